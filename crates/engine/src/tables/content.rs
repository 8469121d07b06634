//! The format of a file by its first bytes, where its name does not say it: pipes, and addresses of web services.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use futures::{StreamExt, stream};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::tables::find::{Format, Kind, compression_type};

/// Bytes that are examined.
const START_BYTES: u64 = 64 << 10;

/// Returns the format and compression of a file.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(crate) async fn kind(store: &Arc<dyn ObjectStore>, file: &ObjectMeta) -> Result<Kind> {
    let start = match file.size {
        0 => Bytes::new(),
        size => store.get_range(&file.location, 0..size.min(START_BYTES)).await?,
    };
    let compressed = compression(&start);
    let start = if compressed.is_some() { decompressed(compressed, start).await } else { start };
    let format = format(&start);
    Ok(Kind { format, compressed, extension: format!(".{}", format.name()) })
}

/// Returns the compression that the first bytes name.
fn compression(start: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 4] =
        [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz")];
    MAGIC.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, name)| *name)
}

/// Returns the start of a text, as far as the start of its compressed bytes has it.
async fn decompressed(compressed: Option<&str>, start: Bytes) -> Bytes {
    let bytes = stream::once(async { Ok::<_, DataFusionError>(start) }).boxed();
    let Ok(mut text) = compression_type(compressed).convert_stream(bytes) else { return Bytes::new() };
    text.next().await.and_then(Result::ok).unwrap_or_default()
}

/// Returns the format that the first bytes name, or text that starts like JSON; otherwise, text is CSV.
fn format(start: &[u8]) -> Format {
    // An Arrow stream begins with the mark of a message, then the length of the schema.
    const ARROW: [&[u8]; 2] = [b"ARROW1", b"\xff\xff\xff\xff"];
    if start.starts_with(b"PAR1") {
        return Format::Parquet;
    }
    if ARROW.iter().any(|magic| start.starts_with(magic)) {
        return Format::Arrow;
    }
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    match text.first() {
        Some(b'{' | b'[') => Format::Json,
        _ => Format::Csv,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use object_store::path::Path;

    #[tokio::test]
    async fn first_bytes_name_format_and_compression() {
        let zstd = |text: &[u8]| zstd::encode_all(text, 1).unwrap();
        for (bytes, expected) in [
            (b"PAR1....".to_vec(), (Format::Parquet, None)),
            (b"ARROW1\0\0".to_vec(), (Format::Arrow, None)),
            (b"\xef\xbb\xbf\n {\"a\": 1}".to_vec(), (Format::Json, None)),
            (b"[1]".to_vec(), (Format::Json, None)),
            (b"a,b\n".to_vec(), (Format::Csv, None)),
            (Vec::new(), (Format::Csv, None)),
            (zstd(b"a,b\n1,2\n"), (Format::Csv, Some("zstd"))),
            (zstd(b"{}\n"), (Format::Json, Some("zstd"))),
        ] {
            let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
            let place = Path::from("x");
            store.put(&place, bytes.clone().into()).await.unwrap();
            let found = kind(&store, &store.head(&place).await.unwrap()).await.unwrap();
            assert_eq!((found.format, found.compressed), expected, "{bytes:?}");
        }
    }
}
