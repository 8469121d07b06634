//! The eight tables of TPC-H, split into parts.
//!
//! The generators take a part number and the number of parts, and split at orders or
//! keys, so the parts of lineitem differ slightly in length.

use super::{BATCH_ROWS, Batches, Table};
use arrow::datatypes::SchemaRef;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::text::TextPool;
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// Defines a table by its rows at scale 1 (`fixed`: at any scale) and its generator.
macro_rules! table {
    ($plan:expr, $name:literal, fixed $rows:literal, $arrow:ident, $generator:ident) => {
        table!($plan, $name, $rows as u64, $arrow, $generator)
    };
    ($plan:expr, $name:literal, $rows:literal, $arrow:ident, $generator:ident) => {
        table!($plan, $name, ($rows * $plan.0) as u64, $arrow, $generator)
    };
    ($plan:expr, $name:literal, $rows:expr, $arrow:ident, $generator:ident) => {{
        let (scale, part_rows) = $plan;
        split($name, $rows, part_rows, $arrow::schema_ref(), move |part, parts| {
            let generator = $generator::new(scale, part, parts);
            Box::new($arrow::new(generator).with_batch_size(BATCH_ROWS))
        })
    }};
}

/// Returns all tables, largest first, in parts of about `part_rows` rows.
pub fn tables(scale: f64, part_rows: u64) -> Vec<Table> {
    let plan = (scale, part_rows);
    vec![
        table!(plan, "lineitem", 6_001_215.0, LineItemArrow, LineItemGenerator),
        table!(plan, "orders", 1_500_000.0, OrderArrow, OrderGenerator),
        table!(plan, "partsupp", 800_000.0, PartSuppArrow, PartSuppGenerator),
        table!(plan, "part", 200_000.0, PartArrow, PartGenerator),
        table!(plan, "customer", 150_000.0, CustomerArrow, CustomerGenerator),
        table!(plan, "supplier", 10_000.0, SupplierArrow, SupplierGenerator),
        table!(plan, "nation", fixed 25, NationArrow, NationGenerator),
        table!(plan, "region", fixed 5, RegionArrow, RegionGenerator),
    ]
}

/// Generates the text from which all comments are taken. Takes a second or two, once per process.
pub fn prepare() {
    TextPool::get_or_init_default();
}

fn split(
    name: &'static str,
    rows: u64,
    part_rows: u64,
    schema: SchemaRef,
    generate: impl Fn(i32, i32) -> Batches + Send + Sync + 'static,
) -> Table {
    // The generators count parts as i32, which is enough for 260 trillion rows.
    let parts = i32::try_from(rows.div_ceil(part_rows).max(1)).unwrap_or(i32::MAX);
    Table {
        name,
        schema,
        parts: parts as u64,
        rows,
        part: Box::new(move |part| generate(part as i32 + 1, parts)),
    }
}
