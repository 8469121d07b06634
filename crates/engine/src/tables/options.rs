//! How the files of a table are to be read: the options of `read_csv` and the like.

use datafusion::arrow::datatypes::DataType;

use crate::tables::csv::CsvOptions;
use crate::tables::find::Format;
use crate::tables::json::JsonOptions;

/// Options of a table over files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FileOptions {
    /// `None` is inferred from the extensions of the files.
    pub format: Option<Format>,
    /// `None` is inferred from the extension; `Some(None)`: the files are not compressed.
    pub compression: Option<Option<&'static str>>,
    pub csv: CsvOptions,
    pub json: JsonOptions,
    pub union_by_name: bool,
    /// Name of a column with the path of the file.
    pub filename: Option<String>,
    /// `None`: the keys of folders are columns if all files have the same.
    pub hive_partitioning: Option<bool>,
    pub hive_types: Vec<(String, DataType)>,
    /// True if the types of keys are inferred.
    pub hive_autocast: bool,
    pub file_row_number: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            format: None,
            compression: None,
            csv: CsvOptions::default(),
            json: JsonOptions::default(),
            union_by_name: false,
            filename: None,
            hive_partitioning: None,
            hive_types: Vec::new(),
            hive_autocast: true,
            file_row_number: false,
        }
    }
}
