//! The scan whose columns are decoded one by one, and the decoders of its files.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::TimeUnit;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::physical_plan::parquet::{Int96Coercer, apply_file_schema_type_coercions};
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::projection::{ProjectionExprs, Projector};
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr_adapter::{DefaultPhysicalExprAdapterFactory, replace_columns_with_literals};

use crate::execute::expressions::Timer;
use crate::scan::Scan;
use crate::scan::dynamic_filter::KeyFilter;
use crate::scan::prune::Pruner;

/// A file of a scan.
pub(crate) struct ColumnFile {
    /// Index of the source in the scan.
    pub source: usize,
    pub metadata: Arc<ParquetMetaData>,
    pub pruner: Arc<Pruner>,
    decoder: OnceLock<Arc<Decoder>>,
}

impl ColumnFile {
    pub(crate) fn new(source: usize, metadata: Arc<ParquetMetaData>, pruner: Arc<Pruner>) -> Self {
        Self { source, metadata, pruner, decoder: OnceLock::new() }
    }

    /// Returns the decoder, which the multitasks of the file share.
    pub(crate) fn decoder(
        &self,
        scan: &ColumnScan,
        keys: &[Arc<dyn PhysicalExpr>],
        file: &PartitionedFile,
    ) -> Result<Arc<Decoder>> {
        if let Some(decoder) = self.decoder.get() {
            return Ok(Arc::clone(decoder));
        }
        let decoder = Arc::new(Decoder::of(scan, keys, file, &self.metadata)?);
        Ok(Arc::clone(self.decoder.get_or_init(|| decoder)))
    }
}

/// A scan whose columns are decoded one by one.
pub(crate) struct ColumnScan {
    /// The bytes.
    pub scan: Arc<Scan>,
    /// The divided scan.
    pub config: FileScanConfig,
    pub projection: ProjectionExprs,
    /// Of each expression of the projection that costs something.
    pub timers: Vec<Option<Arc<Timer>>>,
    /// The unit and time zone that timestamps of 96 bits get.
    pub int96: Option<(TimeUnit, Option<Arc<str>>)>,
    /// Files by path.
    pub files: HashMap<String, ColumnFile>,
    /// True if the predicate may exclude more rows when a row group is decoded than when it was read.
    pub may_tighten: bool,
}

impl ColumnScan {
    /// Returns the indices of the decoded columns in the table's schema of its files.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let count = self.config.file_schema().fields().len();
        self.projection.column_indices().into_iter().filter(|column| *column < count).collect()
    }
}

/// A decoded column of a file.
pub(crate) struct DecodedColumn {
    /// Its place in [`ColumnScan::columns`].
    pub place: Option<usize>,
    pub mask: ProjectionMask,
    /// Leaf columns, several if it is nested.
    pub leaves: Vec<usize>,
}

/// A filter of keys, by which a file's rows are dropped before its other columns are decoded.
pub(crate) struct DecodedKey {
    /// The columns that it uses, by their index in [`Decoder::columns`].
    pub columns: Vec<usize>,
    /// Over a batch of these columns.
    pub filter: KeyFilter,
}

/// Decodes a file, and adapts its columns to the table.
pub(crate) struct Decoder {
    pub metadata: ArrowReaderMetadata,
    /// In the order of the file.
    pub columns: Vec<DecodedColumn>,
    pub keys: Vec<DecodedKey>,
    pub projector: Projector,
}

impl Decoder {
    /// Builds the decoder by the rules of DataFusion's opener.
    fn of(
        scan: &ColumnScan,
        keys: &[Arc<dyn PhysicalExpr>],
        file: &PartitionedFile,
        in_file: &Arc<ParquetMetaData>,
    ) -> Result<Self> {
        let table = scan.config.file_schema();
        let mut options = ArrowReaderOptions::new();
        if let Some(schema) = &file.arrow_schema {
            options = options.with_schema(Arc::clone(schema));
        }
        let mut metadata = ArrowReaderMetadata::try_new(Arc::clone(in_file), options)?;
        let mut schema = Arc::clone(metadata.schema());
        if let Some(coerced) = apply_file_schema_type_coercions(table, &schema) {
            schema = Arc::new(coerced);
        }
        if let Some((unit, zone)) = &scan.int96 {
            let coercer = Int96Coercer::new(metadata.parquet_schema(), &schema, unit);
            if let Some(coerced) = coercer.with_timezone(zone.clone()).coerce() {
                schema = Arc::new(coerced);
            }
        }
        if !Arc::ptr_eq(&schema, metadata.schema()) {
            let options = ArrowReaderOptions::new().with_schema(Arc::clone(&schema));
            metadata = ArrowReaderMetadata::try_new(Arc::clone(in_file), options)?;
        }
        let of_path: HashMap<String, ScalarValue> = scan
            .config
            .table_partition_cols()
            .iter()
            .zip(&file.partition_values)
            .map(|(field, value)| (field.name().clone(), value.clone()))
            .collect();
        let adapter = match *table == schema {
            true => None,
            false => {
                let factory = scan.config.expr_adapter_factory.clone();
                let factory = factory.unwrap_or_else(|| Arc::new(DefaultPhysicalExprAdapterFactory));
                Some(factory.create(Arc::clone(table), Arc::clone(&schema))?)
            }
        };
        let rewritten = |mut expr: Arc<dyn PhysicalExpr>| {
            if !of_path.is_empty() {
                expr = replace_columns_with_literals(expr, &of_path)?;
            }
            match &adapter {
                Some(adapter) => adapter.rewrite(expr),
                None => Ok(expr),
            }
        };
        let simplifier = PhysicalExprSimplifier::new(&schema);
        let adapted = |expr: Arc<dyn PhysicalExpr>| {
            let expr = rewritten(expr)?;
            if adapter.is_some() { simplifier.simplify(expr) } else { Ok(expr) }
        };
        let projection = scan.projection.clone().try_map_exprs(adapted)?;
        let roots = projection.column_indices();
        let places = scan.columns().into_iter().map(|column| -> Result<Vec<usize>> {
            let expr = adapted(Arc::new(ColumnExpr::new(table.field(column).name(), column)))?;
            Ok(collect_columns(&expr).into_iter().map(|column| column.index()).collect())
        });
        let places: Vec<Vec<usize>> = places.collect::<Result<_>>()?;
        let descriptor = metadata.parquet_schema();
        let column = |root: &usize| DecodedColumn {
            place: places.iter().position(|roots| roots.contains(root)),
            mask: ProjectionMask::roots(descriptor, [*root]),
            leaves: (0..descriptor.num_columns())
                .filter(|leaf| descriptor.get_column_root_idx(*leaf) == *root)
                .collect(),
        };
        let columns = roots.iter().map(column).collect();
        let key = |key: &Arc<dyn PhysicalExpr>| -> Result<Option<DecodedKey>> {
            // Not simplified, since the key of a directory would be evaluated.
            let key = rewritten(Arc::clone(key))?;
            let mut of_key: Vec<usize> = collect_columns(&key).iter().map(ColumnExpr::index).collect();
            of_key.sort_unstable();
            let places = of_key.iter().map(|root| roots.binary_search(root).ok()).collect::<Option<_>>();
            // A column that is not part of the scan's output has not been read.
            let Some(columns) = places else { return Ok(None) };
            let key = reassign_expr_columns(key, &schema.project(&of_key)?)?;
            Ok(key.downcast_ref().map(|filter: &KeyFilter| DecodedKey { columns, filter: filter.clone() }))
        };
        let keys = keys.iter().map(key).filter_map(Result::transpose).collect::<Result<_>>()?;
        let decoded = schema.project(&roots)?;
        let mut timers = scan.timers.iter();
        let projector = projection
            .try_map_exprs(|expr| {
                let expr = reassign_expr_columns(expr, &decoded)?;
                Ok(match timers.next() {
                    Some(Some(timer)) => timer.wrap(expr),
                    _ => expr,
                })
            })?
            .make_projector(&decoded)?;
        Ok(Self { metadata, columns, keys, projector })
    }
}
