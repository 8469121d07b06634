//! Generates benchmark data as Parquet files, one per table: TPC-H, TPC-DS, the big data
//! benchmark, and a sort.
//!
//! The `tpchgen` and `tpcdsgen` crates generate the same rows as the official generators;
//! the rows of the other two benchmarks are generated here. A [`Table`] is split into parts
//! that can be generated independently. Each part becomes one row group of about
//! [`ROW_GROUP_ROWS`] rows (fewer if rows are long). All cores generate parts, and the row
//! groups are written in order, so that the files do not depend on the number of cores.
//!
//! `tpch` and `tpcds` define how each table is split, `bdb` and `sort` generate their tables
//! row by row with `rows`, `write` distributes the work, and `file` writes one file.

mod bdb;
mod file;
mod rows;
mod sort;
#[cfg(feature = "tpcds")]
mod tpcds;
mod tpch;
mod write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

pub use file::{WriteError, Written};
pub use write::{Request, write};

/// Approximate number of rows in a row group; the generators do not allow an exact number.
/// 122,880 rows of a wide table (lineitem, store_sales) are about 18 MiB decoded, within
/// the 8 to 32 MiB that suit a multitask. Of a narrow table, a multitask reads a few row
/// groups.
pub const ROW_GROUP_ROWS: u64 = 122_880;

/// Rows per generated batch. Cancellation is checked once per batch.
const BATCH_ROWS: usize = 8192;

/// A supported benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Benchmark {
    /// TPC-H: 8 tables; scale 1 is about 1 GB as text.
    Tpch,
    /// TPC-DS: 24 tables; scale 1 is about 1 GB as text.
    Tpcds,
    /// The big data benchmark: rankings, uservisits, documents; scale 1 is about 2 GB as text.
    Bdb,
    /// Random keys with arrays of 64-bit integers, for sorting; scale 1 is 1 GB.
    Sort,
}

impl Benchmark {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Benchmark::Tpch => "tpch",
            Benchmark::Tpcds => "tpcds",
            Benchmark::Bdb => "bdb",
            Benchmark::Sort => "sort",
        }
    }

    /// Returns all tables at a scale, largest first, so that the last parts are small and the
    /// cores finish together.
    ///
    /// `scale` is at least 0.001; fractions shrink all tables except those of fixed size.
    /// `values` is the number of values per key of `sort`; other benchmarks ignore it.
    /// Returns no tables if this build lacks the generator.
    pub fn tables(self, scale: f64, values: u32) -> Vec<Table> {
        match self {
            Benchmark::Tpch => tpch::tables(scale, ROW_GROUP_ROWS),
            #[cfg(feature = "tpcds")]
            Benchmark::Tpcds => tpcds::tables(scale, ROW_GROUP_ROWS),
            #[cfg(not(feature = "tpcds"))]
            Benchmark::Tpcds => Vec::new(),
            Benchmark::Bdb => bdb::tables(scale, ROW_GROUP_ROWS),
            Benchmark::Sort => sort::tables(scale, values, ROW_GROUP_ROWS),
        }
    }

    /// Runs the set-up, which takes a second or two and cannot be cancelled. Callers run it
    /// before they create anything that needs cleanup.
    pub fn prepare(self) {
        if self == Benchmark::Tpch {
            tpch::prepare();
        }
    }
}

/// Batches of one part of a table, in order.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// A table that can be generated part by part.
pub struct Table {
    /// Name of the table, and of its file without `.parquet`.
    pub name: &'static str,
    /// Columns.
    pub schema: SchemaRef,
    /// Number of parts, at least one.
    pub parts: u64,
    /// Approximate number of rows, for the progress bar.
    pub rows: u64,
    /// Generates the part with this index, starting at 0.
    pub part: Box<dyn Fn(u64) -> Batches + Send + Sync>,
}

#[cfg(all(test, feature = "tpcds"))]
mod tests {
    use super::*;
    use arrow::compute::concat_batches;

    fn all_rows(table: &Table) -> RecordBatch {
        let batches: Vec<_> =
            (0..table.parts).flat_map(|part| (table.part)(part)).collect::<Result<_, _>>().unwrap();
        concat_batches(&table.schema, &batches).unwrap()
    }

    /// Returns the tables of all benchmarks at a scale, in parts of at most `part_rows` rows.
    fn split(scale: f64, part_rows: u64) -> impl Iterator<Item = Table> {
        let official = tpch::tables(scale, part_rows).into_iter().chain(tpcds::tables(scale, part_rows));
        official.chain(bdb::tables(scale, part_rows)).chain(sort::tables(scale, 10, part_rows))
    }

    /// Splitting must not change the data, which the official generators produce in one piece.
    #[test]
    fn parts_concatenate_to_the_whole_table() {
        let (whole, split) = (split(0.002, u64::MAX), split(0.002, 1000));
        let mut several = 0;
        for (whole, split) in whole.zip(split) {
            assert_eq!(whole.parts, 1);
            several += u32::from(split.parts > 1);
            // This table is large at every scale, so compare its first two parts only.
            if split.name == "customer_demographics" {
                let first: Vec<_> = (split.part)(0).chain((split.part)(1)).collect::<Result<_, _>>().unwrap();
                let first = concat_batches(&split.schema, &first).unwrap();
                let of_whole = (whole.part)(0).next().unwrap().unwrap();
                assert_eq!(first, of_whole.slice(0, first.num_rows()), "{}", split.name);
            } else {
                assert_eq!(all_rows(&whole), all_rows(&split), "{}", split.name);
            }
        }
        assert!(several >= 12, "only {several} tables were split");
    }

    /// The estimates determine progress and parts, so they must be close to the actual rows.
    #[test]
    fn estimated_rows_are_close_to_actual_rows() {
        for table in split(0.01, ROW_GROUP_ROWS) {
            if table.rows < 200_000 {
                let rows = all_rows(&table).num_rows() as f64;
                let ratio = rows / table.rows as f64;
                assert!((0.8..1.25).contains(&ratio), "{}: {rows} rows, expected {}", table.name, table.rows);
            }
        }
    }

    /// Row counts of the TPC-H specification (§4.2.5) and `dbgen -s 0.01`.
    #[test]
    fn row_counts_match_the_specifications() {
        let published = [
            ("lineitem", 60_175),
            ("orders", 15_000),
            ("partsupp", 8_000),
            ("part", 2_000),
            ("customer", 1_500),
            ("supplier", 100),
            ("nation", 25),
            ("region", 5),
        ];
        for (table, (name, rows)) in tpch::tables(0.01, ROW_GROUP_ROWS).iter().zip(published) {
            assert_eq!((table.name, all_rows(table).num_rows()), (name, rows));
        }
        // TPC-DS §3.2.1, scale 1; only dimension tables, which are quick to generate.
        let published = [
            ("date_dim", 73_049),
            ("time_dim", 86_400),
            ("item", 18_000),
            ("customer", 100_000),
            ("store", 12),
            ("call_center", 6),
            ("web_site", 30),
            ("promotion", 300),
        ];
        let tables = tpcds::tables(1.0, ROW_GROUP_ROWS);
        assert_eq!(tables.len(), 24);
        for (name, rows) in published {
            let table = tables.iter().find(|table| table.name == name).unwrap();
            assert_eq!((name, all_rows(table).num_rows()), (name, rows));
        }
    }
}
