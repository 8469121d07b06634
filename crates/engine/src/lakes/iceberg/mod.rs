//! Iceberg tables.
use datafusion::common::Result;
use datafusion::datasource::listing::ListingTableUrl;
use object_store::ObjectMeta;
use object_store::path::Path;

use super::table::LakeTable;
use super::{Root, Version};

pub(super) fn places(url: &ListingTableUrl) -> (Path, Option<Path>) {
    (url.prefix().clone(), None)
}

pub(super) async fn open(
    root: &Root,
    _file: Option<&Path>,
    _files: &[ObjectMeta],
    _version: Version,
) -> Result<LakeTable> {
    Err(root.unsupported("Iceberg metadata", "read it with Spark"))
}
