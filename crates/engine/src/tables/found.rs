//! The files of a table, as they were found.

use std::sync::Arc;

use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use object_store::{ObjectMeta, ObjectStore};

use crate::tables::find::Format;

/// The files of a table.
pub(crate) struct Found {
    pub store: Arc<dyn ObjectStore>,
    pub store_url: String,
    pub files: Vec<ObjectMeta>,
    pub names: Vec<String>,
    pub format: Format,
    pub compression: FileCompressionType,
    /// DataFusion's name of the compression.
    pub compressed: Option<&'static str>,
    pub extension: String,
}

impl Found {
    /// Returns the paths of the files as a user would write them.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Returns the name of one file.
    pub(crate) fn name<'a>(&'a self, meta: &'a ObjectMeta) -> &'a str {
        let at = self.files.iter().position(|file| file.location == meta.location);
        at.map_or(meta.location.as_ref(), |at| &self.names[at])
    }

    /// Returns the URL of the store.
    pub(crate) fn store_url(&self) -> &str {
        &self.store_url
    }
}
