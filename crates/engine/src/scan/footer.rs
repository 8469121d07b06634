//! Reads the metadata of Parquet files while a statement is planned.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use object_store::{ObjectMeta, ObjectStore};

use crate::tables::formats::caught;

/// Reads the footer and the page index of a file, or takes them from the session's cache.
///
/// # Errors
/// Returns an error if the file cannot be read or is damaged.
pub(crate) async fn footer(
    store: &dyn ObjectStore,
    file: &ObjectMeta,
    cache: Arc<FileMetadataCache>,
) -> Result<Arc<ParquetMetaData>> {
    let reader = DFParquetMetadata::new(store, file)
        .with_file_metadata_cache(Some(cache))
        .with_page_index_policy(Some(PageIndexPolicy::Optional));
    caught(&format!("/{}", file.location), reader.fetch_metadata())
        .await
        .map_err(|e| e.context(format!("cannot read the metadata of {}", file.location)))
}
