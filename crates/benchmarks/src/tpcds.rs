//! The 24 tables of TPC-DS, split into parts. The table `dbgen_version`, which describes a
//! run of the official generator and is not queried, is omitted.
//!
//! The generators take a range of source rows. A source row of a sales table is an order
//! of several items; a source row of a returns table is an order from which items may be
//! returned. Each part has enough source rows for about `part_rows` rows. Tables that keep
//! history (item, store, …) are generated in one piece, since each row depends on the rows
//! before it.

use super::{BATCH_ROWS, Table};
use tpcdsgen::config::{Session, SessionBuilder, Table as Source};
use tpcdsgen_arrow::{
    CallCenterArrow, CatalogPageArrow, CatalogReturnsArrow, CatalogSalesArrow, CustomerAddressArrow,
    CustomerArrow, CustomerDemographicsArrow, DateDimArrow, HouseholdDemographicsArrow, IncomeBandArrow,
    InventoryArrow, ItemArrow, PromotionArrow, ReasonArrow, ShipModeArrow, StoreArrow, StoreReturnsArrow,
    StoreSalesArrow, TimeDimArrow, WarehouseArrow, WebPageArrow, WebReturnsArrow, WebSalesArrow,
    WebSiteArrow,
};

/// Defines a table by its average number of rows per source row (measured at scale 1), or
/// `whole` for a table that cannot be split.
macro_rules! table {
    ($plan:expr, $name:literal, $source:ident, $arrow:ident, whole) => {
        table!($plan, $name, $source, $arrow, 1.0, u64::MAX)
    };
    ($plan:expr, $name:literal, $source:ident, $arrow:ident, $rows:literal) => {
        table!($plan, $name, $source, $arrow, $rows, ($plan.1 as f64 / $rows) as u64)
    };
    ($plan:expr, $name:literal, $source:ident, $arrow:ident, $rows:literal, $part_rows:expr) => {{
        let session: Session = $plan.0.clone();
        let source_rows = session.get_scaling().get_row_count(Source::$source);
        let parts = source_rows.div_ceil($part_rows).max(1);
        Table {
            name: $name,
            schema: $arrow::schema_ref(),
            parts,
            rows: (source_rows as f64 * $rows) as u64,
            part: Box::new(move |part| {
                // Use parts of equal size, so that the last row group is not a small remainder.
                let (first, end) = (source_rows * part / parts, source_rows * (part + 1) / parts);
                let batches = $arrow::new(session.clone()).with_batch_size(BATCH_ROWS);
                if parts == 1 {
                    Box::new(batches)
                } else {
                    Box::new(batches.with_source_row_range(first + 1, end))
                }
            }),
        }
    }};
}

/// Returns all tables, largest first, in parts of about `part_rows` rows.
///
/// # Panics
/// Panics if `scale` is negative or not finite; the command line validates it.
pub fn tables(scale: f64, part_rows: u64) -> Vec<Table> {
    let session = SessionBuilder::new().with_scale_factor(scale).build().expect("a checked scale");
    let plan = &(session, part_rows);
    vec![
        table!(plan, "inventory", Inventory, InventoryArrow, 1.0),
        table!(plan, "store_sales", StoreSales, StoreSalesArrow, 12.0),
        table!(plan, "catalog_sales", CatalogSales, CatalogSalesArrow, 9.0),
        table!(plan, "web_sales", WebSales, WebSalesArrow, 12.0),
        table!(plan, "customer_demographics", CustomerDemographics, CustomerDemographicsArrow, 1.0),
        table!(plan, "store_returns", StoreReturns, StoreReturnsArrow, 1.2),
        table!(plan, "catalog_returns", CatalogReturns, CatalogReturnsArrow, 0.9),
        table!(plan, "web_returns", WebReturns, WebReturnsArrow, 1.2),
        table!(plan, "customer", Customer, CustomerArrow, 1.0),
        table!(plan, "customer_address", CustomerAddress, CustomerAddressArrow, 1.0),
        table!(plan, "time_dim", TimeDim, TimeDimArrow, whole),
        table!(plan, "date_dim", DateDim, DateDimArrow, whole),
        table!(plan, "item", Item, ItemArrow, whole),
        table!(plan, "catalog_page", CatalogPage, CatalogPageArrow, whole),
        table!(plan, "household_demographics", HouseholdDemographics, HouseholdDemographicsArrow, whole),
        table!(plan, "promotion", Promotion, PromotionArrow, whole),
        table!(plan, "reason", Reason, ReasonArrow, whole),
        table!(plan, "web_page", WebPage, WebPageArrow, whole),
        table!(plan, "web_site", WebSite, WebSiteArrow, whole),
        table!(plan, "income_band", IncomeBand, IncomeBandArrow, whole),
        table!(plan, "ship_mode", ShipMode, ShipModeArrow, whole),
        table!(plan, "store", Store, StoreArrow, whole),
        table!(plan, "call_center", CallCenter, CallCenterArrow, whole),
        table!(plan, "warehouse", Warehouse, WarehouseArrow, whole),
    ]
}
