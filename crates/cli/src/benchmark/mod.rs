//! Benchmark data as Parquet files, one a table: TPC-H, TPC-DS, the big data benchmark, a sort.
//!
//! The rows of TPC-H and TPC-DS come from the `tpchgen` and `tpcdsgen` crates, which give
//! those of the official generators; those of the other two are made here. What is added is
//! the way to a good file: a [`Table`] is cut into parts that can be generated on their
//! own, each part becomes one row group of about [`ROW_GROUP_ROWS`] rows (fewer where rows
//! are long), all cores take parts, and the row groups are written in order, so that the
//! files are the same whatever the number of cores.
//!
//! `tpch` and `tpcds` say how each table is cut, `bdb` and `sort` make theirs row by row
//! with `rows`, `write` spreads the work, `file` is a file on its way.
//! Nothing here knows the engine.

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

/// Rows in a row group, give or take what the generators do not let choose.
/// 122,880 rows of a wide table (lineitem, store_sales) are about 18 MiB decoded,
/// in the middle of the 8 to 32 MiB that a multitask should have; of a narrow
/// table a multitask takes a few row groups.
pub const ROW_GROUP_ROWS: u64 = 122_880;

/// Rows in a generated batch: what is decoded at once, and how soon a
/// cancellation is noticed.
const BATCH_ROWS: usize = 8192;

/// Which benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Benchmark {
    /// TPC-H: 8 tables; scale 1 is about 1 GB as text.
    Tpch,
    /// TPC-DS: 24 tables; scale 1 is about 1 GB as text.
    Tpcds,
    /// The big data benchmark: rankings, uservisits, documents; scale 1 is about 2 GB as text.
    Bdb,
    /// Random keys with arrays of longs, to be sorted; scale 1 is 1 GB.
    Sort,
}

impl Benchmark {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Benchmark::Tpch => "tpch",
            Benchmark::Tpcds => "tpcds",
            Benchmark::Bdb => "bdb",
            Benchmark::Sort => "sort",
        }
    }

    /// All tables at a scale, the largest first, so that the last parts to be
    /// generated are small and the cores end together.
    ///
    /// `scale` is at least 0.001; fractions make smaller tables, except those of fixed size.
    /// `values` is how many longs a key of `sort` has; no other benchmark asks.
    /// None at all: this build has no generator for the benchmark.
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

    /// Does what takes a second or two before the first row and cannot be cancelled,
    /// so that a caller can have it done before there is anything to clean up.
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
    /// How many parts there are, at least one.
    pub parts: u64,
    /// About how many rows there are, for the progress bar.
    pub rows: u64,
    /// Generates the part with this index, counted from 0.
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

    /// All tables of all benchmarks at a scale, in parts of at most so many rows.
    fn cut(scale: f64, part_rows: u64) -> impl Iterator<Item = Table> {
        let official = tpch::tables(scale, part_rows).into_iter().chain(tpcds::tables(scale, part_rows));
        official.chain(bdb::tables(scale, part_rows)).chain(sort::tables(scale, 10, part_rows))
    }

    /// Cutting must not change the data: official generators make it in one piece.
    #[test]
    fn parts_make_up_the_whole() {
        let (whole, cut) = (cut(0.002, u64::MAX), cut(0.002, 1000));
        let mut several = 0;
        for (whole, cut) in whole.zip(cut) {
            assert_eq!(whole.parts, 1);
            several += u32::from(cut.parts > 1);
            // As many rows as any test needs, of the table that is large at every scale.
            if cut.name == "customer_demographics" {
                let first: Vec<_> = (cut.part)(0).chain((cut.part)(1)).collect::<Result<_, _>>().unwrap();
                let first = concat_batches(&cut.schema, &first).unwrap();
                let of_whole = (whole.part)(0).next().unwrap().unwrap();
                assert_eq!(first, of_whole.slice(0, first.num_rows()), "{}", cut.name);
            } else {
                assert_eq!(all_rows(&whole), all_rows(&cut), "{}", cut.name);
            }
        }
        assert!(several >= 12, "only {several} tables were cut");
    }

    /// The estimates steer progress and parts; they should be near the truth.
    #[test]
    fn the_expected_rows_are_about_right() {
        for table in cut(0.01, ROW_GROUP_ROWS) {
            if table.rows < 200_000 {
                let rows = all_rows(&table).num_rows() as f64;
                let ratio = rows / table.rows as f64;
                assert!((0.8..1.25).contains(&ratio), "{}: {rows} rows, expected {}", table.name, table.rows);
            }
        }
    }

    /// Row counts that the TPC-H specification (§4.2.5) and `dbgen -s 0.01` give.
    #[test]
    fn row_counts_are_the_published_ones() {
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
        // TPC-DS §3.2.1, scale 1; dimensions only, which take no time.
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
