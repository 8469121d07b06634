//! Finds the deleted rows of files, and leaves them out of a scan.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection, RowSelector};
use datafusion::parquet::file::metadata::ParquetMetaData;
use futures::FutureExt;
use object_store::path::Path;
use pellucid_trace::guard::guarded;

use super::files::{DataFile, Deleted, Vector, VectorPlace};
use super::{Root, all, bitmap};
use crate::scan::damaged;

/// First bytes of a deletion vector.
const MAGIC: u32 = 1_681_511_377;

/// First bytes of one in the format before that.
const NATIVE_MAGIC: u32 = 1_681_511_376;

/// Returns the deleted rows of each file, ascending; none for most.
///
/// # Errors
/// Returns an error if a file of deletes cannot be read or is damaged.
pub(super) async fn deleted(root: &Root, files: &[&DataFile]) -> Result<Vec<Vec<u64>>> {
    let by_file = read_positions(root, files).await?;
    let by_file = &by_file;
    let mut reads = Vec::new();
    for &file in files {
        let read = async move {
            match &file.deleted {
                Deleted::None => Ok(Vec::new()),
                Deleted::Vector(vector) => read_vector(root, vector).await,
                Deleted::Positions { uri, files } => {
                    let rows = files.iter().filter_map(|f| by_file.get(&f.location)?.get(uri)).flatten();
                    let mut rows: Vec<u64> = rows.copied().collect();
                    rows.sort_unstable();
                    rows.dedup();
                    Ok(rows)
                }
            }
        };
        reads.push(read.boxed());
    }
    all(reads).await
}

/// Reads a deletion vector.
async fn read_vector(root: &Root, vector: &Vector) -> Result<Vec<u64>> {
    let corrupt =
        |why: &str| root.error(format!("a deletion vector is damaged ({why}); restore it from a copy"));
    let bytes = match &vector.place {
        VectorPlace::Inline(bytes) => bytes.clone(),
        VectorPlace::Stored { file, offset, bytes } => {
            // Its size, then the vector, then its checksum.
            let end = offset.checked_add(*bytes).and_then(|end| end.checked_add(8));
            let range = *offset..end.ok_or_else(|| corrupt("its size is invalid"))?;
            let all = root.read_range(file, range).await?;
            let (size, rest) = all.split_at_checked(4).ok_or_else(|| corrupt("it is truncated"))?;
            let (vector, sum) =
                rest.split_at_checked(*bytes as usize).ok_or_else(|| corrupt("it is truncated"))?;
            if size != (*bytes as u32).to_be_bytes() || sum != crc32fast::hash(vector).to_be_bytes() {
                return Err(corrupt("its size or checksum differs from its content"));
            }
            vector.to_vec()
        }
    };
    let (magic, rest) = bytes.split_at_checked(4).ok_or_else(|| corrupt("it is truncated"))?;
    let rows = if magic == MAGIC.to_le_bytes() {
        bitmap::values(rest)
    } else if magic == NATIVE_MAGIC.to_be_bytes() {
        bitmap::native_values(rest)
    } else {
        return Err(corrupt("its first bytes are not those of a deletion vector"));
    };
    let rows = rows.ok_or_else(|| corrupt("it is not a Roaring bitmap"))?;
    if rows.len() as u64 != vector.count {
        return Err(corrupt("it has another number of rows than the log says"));
    }
    Ok(rows)
}

/// Deleted rows by data file.
type Positions = HashMap<String, Vec<u64>>;

/// Reads the position delete files of `files`, each once.
async fn read_positions(root: &Root, files: &[&DataFile]) -> Result<HashMap<Path, Positions>> {
    let mut wanted: Vec<Path> = Vec::new();
    for file in files {
        if let Deleted::Positions { files, .. } = &file.deleted {
            wanted.extend(files.iter().map(|f| f.location.clone()));
        }
    }
    wanted.sort();
    wanted.dedup();
    let mut reads = Vec::new();
    for place in wanted {
        let read = async move {
            let bytes = root.read(&place).await?;
            let name = root.name(&place);
            let positions = guarded(|| Ok(positions_of(&name, bytes)));
            let positions = positions.unwrap_or_else(|_| Err(damaged(&name, "its content is malformed")))?;
            Ok((place, positions))
        };
        reads.push(read.boxed());
    }
    Ok(all(reads).await?.into_iter().collect())
}

/// Reads the rows of a position delete file.
fn positions_of(name: &str, bytes: bytes::Bytes) -> Result<Positions> {
    let lacks = |column: &str| damaged(name, &format!("it lacks the column {column} of position deletes"));
    let mut positions = Positions::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(bytes)?.build()? {
        let batch = batch?;
        let column = |column: &str| batch.column_by_name(column).ok_or_else(|| lacks(column));
        let paths = cast(column("file_path")?, &DataType::Utf8)?;
        let rows = cast(column("pos")?, &DataType::Int64)?;
        let (paths, rows) = (paths.as_string::<i32>(), rows.as_primitive::<Int64Type>());
        for index in 0..batch.num_rows() {
            let row = u64::try_from(rows.value(index)).ok().filter(|_| !paths.is_null(index));
            let row = row.ok_or_else(|| damaged(name, "it has an invalid position"))?;
            match positions.get_mut(paths.value(index)) {
                Some(known) => known.push(row),
                None => _ = positions.insert(paths.value(index).to_string(), vec![row]),
            }
        }
    }
    Ok(positions)
}

/// Returns the access to a file without its `deleted` rows, which are ascending; `None` if all its rows are read.
pub(super) fn access(metadata: &Arc<ParquetMetaData>, deleted: &[u64]) -> Option<ParquetAccessPlan> {
    if deleted.is_empty() {
        return None;
    }
    let groups = metadata.row_groups().iter().map(|group| group.num_rows().max(0) as u64);
    Some(ParquetAccessPlan::new(accesses(groups, deleted)))
}

fn accesses(groups: impl Iterator<Item = u64>, deleted: &[u64]) -> Vec<RowGroupAccess> {
    let (mut start, mut rest) = (0, deleted);
    groups
        .map(|rows| {
            let within = rest.partition_point(|row| *row < start + rows);
            let (here, after) = rest.split_at(within);
            let first = start;
            (start, rest) = (start + rows, after);
            if here.is_empty() {
                return RowGroupAccess::Scan;
            }
            if here.len() as u64 == rows {
                return RowGroupAccess::Skip;
            }
            let mut selectors = Vec::new();
            let mut at = first;
            for row in here {
                if *row > at {
                    selectors.push(RowSelector::select((row - at) as usize));
                }
                selectors.push(RowSelector::skip(1));
                at = row + 1;
            }
            if at < first + rows {
                selectors.push(RowSelector::select((first + rows - at) as usize));
            }
            // Merges neighbours.
            RowGroupAccess::Selection(RowSelection::from(selectors))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lakes::root::tests::root;

    #[test]
    fn deleted_rows_are_left_out_of_their_row_groups() {
        let accesses = accesses([4, 2, 3, 5].into_iter(), &[1, 2, 4, 5, 9, 13]);
        let selection =
            |selectors: &[RowSelector]| RowGroupAccess::Selection(RowSelection::from(selectors.to_vec()));
        let (skip, select) = (RowSelector::skip, RowSelector::select);
        assert_eq!(
            accesses,
            [
                selection(&[select(1), skip(2), select(1)]),
                RowGroupAccess::Skip,
                RowGroupAccess::Scan,
                selection(&[skip(1), select(3), skip(1)]),
            ]
        );
    }

    #[tokio::test]
    async fn stored_vector_is_checked() {
        use object_store::ObjectStoreExt;
        let root = root();
        let mut vector = MAGIC.to_le_bytes().to_vec();
        vector.extend(1u64.to_le_bytes());
        vector.extend([0; 4]);
        vector.extend(12346u32.to_le_bytes());
        vector.extend(1u32.to_le_bytes());
        vector.extend([0, 0, 1, 0, 0, 0, 0, 0, 3, 0, 7, 0]);
        let stored = |vector: &[u8]| {
            let sum = crc32fast::hash(vector).to_be_bytes();
            [&[1], &(vector.len() as u32).to_be_bytes()[..], vector, &sum].concat()
        };
        let file = root.below("v.bin").unwrap();
        let place = VectorPlace::Stored { file: file.clone(), offset: 1, bytes: vector.len() as u64 };
        let whole = Vector { place, count: 2 };
        root.store.put(&file, stored(&vector).into()).await.unwrap();
        assert_eq!(read_vector(&root, &whole).await.unwrap(), [3, 7]);
        let mut damaged = stored(&vector);
        damaged[10] ^= 1;
        root.store.put(&file, damaged.into()).await.unwrap();
        let error = read_vector(&root, &whole).await.unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
        let inline = Vector { place: VectorPlace::Inline(vector), count: 3 };
        assert!(read_vector(&root, &inline).await.is_err());
    }
}
