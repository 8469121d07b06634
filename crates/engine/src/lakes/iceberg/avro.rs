//! Reads Avro object container files, in which Iceberg writes its manifests.
//!
//! Values are read by the schema that the file holds. Source: <https://avro.apache.org/docs/1.12.0/specification/>.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use serde_json::Value as Json;

/// First bytes of a file.
const MAGIC: &[u8] = b"Obj\x01";
/// Bytes of the mark after each block.
const SYNC_BYTES: usize = 16;
/// Maximum size of a block after decompression.
const MAX_BLOCK_BYTES: u64 = 1 << 30;
/// Maximum depth of nested types.
const MAX_DEPTH: usize = 64;

/// A value; fields of a record keep their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Boolean(bool),
    Long(i64),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
    Text(String),
    Record(Vec<(Arc<str>, Value)>),
    Array(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl Value {
    /// Returns a field of a record; NULL and other values have none.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let Self::Record(fields) = self else { return None };
        fields.iter().find(|(field, _)| field.as_ref() == name).map(|(_, value)| value)
    }

    pub(super) fn long(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Self::Long(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the items of an array; a NULL has none.
    pub(super) fn items(&self, name: &str) -> &[Value] {
        match self.get(name) {
            Some(Self::Array(items)) => items,
            _ => &[],
        }
    }
}

/// A type of the file's schema.
#[derive(Debug, Clone)]
enum Type {
    Null,
    Boolean,
    /// `int` and `long`, which are written alike.
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(Arc<[String]>),
    Record(Arc<[(Arc<str>, Type)]>),
    Array(Arc<Type>),
    Map(Arc<Type>),
    Union(Arc<[Type]>),
}

/// Parses types, and keeps those with names.
#[derive(Default)]
struct Schemas(HashMap<String, Type>);

impl Schemas {
    fn parse(&mut self, json: &Json, depth: usize) -> Option<Type> {
        if depth > MAX_DEPTH {
            return None;
        }
        if let Some(branches) = json.as_array() {
            let branches = branches.iter().map(|branch| self.parse(branch, depth + 1));
            return Some(Type::Union(branches.collect::<Option<_>>()?));
        }
        let name = json.as_str().or_else(|| json.get("type")?.as_str());
        let Some(name) = name else { return self.parse(json.get("type")?, depth + 1) };
        let parsed = match name {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "int" | "long" => Type::Long,
            "float" => Type::Float,
            "double" => Type::Double,
            "bytes" => Type::Bytes,
            "string" => Type::Text,
            "fixed" => Type::Fixed(usize::try_from(json.get("size")?.as_u64()?).ok()?),
            "enum" => {
                let symbols = json.get("symbols")?.as_array()?.iter();
                Type::Enum(symbols.map(|s| Some(s.as_str()?.to_string())).collect::<Option<_>>()?)
            }
            "array" => Type::Array(Arc::new(self.parse(json.get("items")?, depth + 1)?)),
            "map" => Type::Map(Arc::new(self.parse(json.get("values")?, depth + 1)?)),
            "record" => {
                let fields = json.get("fields")?.as_array()?.iter();
                let field = |field: &Json| {
                    Some((
                        Arc::from(field.get("name")?.as_str()?),
                        self.parse(field.get("type")?, depth + 1)?,
                    ))
                };
                Type::Record(fields.map(field).collect::<Option<_>>()?)
            }
            named => return self.0.get(named.rsplit('.').next()?).cloned(),
        };
        if let Some(name) = json.get("name").and_then(Json::as_str) {
            self.0.insert(name.rsplit('.').next()?.to_string(), parsed.clone());
        }
        Some(parsed)
    }
}

/// Bytes that are read from their start.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        self.0.split_off(..count)
    }

    /// Reads a number in zigzag encoding.
    fn long(&mut self) -> Option<i64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.long()?).ok()?;
        self.take(length)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// Reads the blocks of an array or a map.
    fn blocks<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        loop {
            let mut count = self.long()?;
            if count < 0 {
                // The size of the block, to skip it.
                self.long()?;
                count = count.checked_neg()?;
            }
            if count == 0 {
                return Some(items);
            }
            // Every item has at least one byte.
            if count as u64 > self.0.len() as u64 {
                return None;
            }
            for _ in 0..count {
                items.push(item(self)?);
            }
        }
    }

    fn value(&mut self, of: &Type) -> Option<Value> {
        Some(match of {
            Type::Null => Value::Null,
            Type::Boolean => Value::Boolean(self.take(1)?[0] != 0),
            Type::Long => Value::Long(self.long()?),
            Type::Float => Value::Float(f32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            Type::Double => Value::Double(f64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            Type::Bytes => Value::Bytes(self.bytes()?.to_vec()),
            Type::Text => Value::Text(self.text()?),
            Type::Fixed(size) => Value::Bytes(self.take(*size)?.to_vec()),
            Type::Enum(symbols) => Value::Text(symbols.get(usize::try_from(self.long()?).ok()?)?.clone()),
            Type::Record(fields) => {
                let field = |(name, of): &(Arc<str>, Type)| Some((Arc::clone(name), self.value(of)?));
                Value::Record(fields.iter().map(field).collect::<Option<_>>()?)
            }
            Type::Array(item) => Value::Array(self.blocks(|reader| reader.value(item))?),
            Type::Map(item) => Value::Map(self.blocks(|reader| Some((reader.text()?, reader.value(item)?)))?),
            Type::Union(branches) => {
                let branch = branches.get(usize::try_from(self.long()?).ok()?)?;
                self.value(branch)?
            }
        })
    }
}

/// Returns the records of a file.
///
/// # Errors
/// Returns the cause if the file is damaged, or has an unknown compression.
pub(super) fn records(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let truncated = || "it is truncated or malformed".to_string();
    let mut reader = Reader(bytes);
    if reader.take(MAGIC.len()) != Some(MAGIC) {
        return Err("it is not an Avro file".to_string());
    }
    let header =
        reader.blocks(|reader| Some((reader.text()?, reader.bytes()?.to_vec()))).ok_or_else(truncated)?;
    let header: HashMap<String, Vec<u8>> = header.into_iter().collect();
    let schema = header.get("avro.schema").and_then(|json| serde_json::from_slice::<Json>(json).ok());
    let schema = schema.and_then(|json| Schemas::default().parse(&json, 0));
    let schema = schema.ok_or("its schema is malformed")?;
    let codec = header.get("avro.codec").map_or(&b"null"[..], Vec::as_slice);
    let sync = reader.take(SYNC_BYTES).ok_or_else(truncated)?;
    let mut records = Vec::new();
    while !reader.0.is_empty() {
        let count = reader.long().ok_or_else(truncated)?;
        let block = reader.bytes().ok_or_else(truncated)?;
        if reader.take(SYNC_BYTES) != Some(sync) {
            return Err(truncated());
        }
        let block = decompressed(codec, block)?;
        let mut block = Reader(&block);
        if count < 0 || count as u64 > block.0.len() as u64 {
            return Err(truncated());
        }
        for _ in 0..count {
            records.push(block.value(&schema).ok_or_else(truncated)?);
        }
    }
    Ok(records)
}

/// Decompresses a block.
fn decompressed(codec: &[u8], block: &[u8]) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let limited = |reader: &mut dyn Read, content: &mut Vec<u8>| {
        reader.take(MAX_BLOCK_BYTES).read_to_end(content).map(drop).map_err(|e| e.to_string())
    };
    match codec {
        b"null" => content.extend_from_slice(block),
        b"deflate" => limited(&mut flate2::read::DeflateDecoder::new(block), &mut content)?,
        b"zstandard" => {
            let mut decoder = zstd::stream::read::Decoder::new(block).map_err(|e| e.to_string())?;
            limited(&mut decoder, &mut content)?;
        }
        b"snappy" => {
            // A checksum follows.
            let length = block.len().checked_sub(4).ok_or("a block is too short")?;
            content =
                snap::raw::Decoder::new().decompress_vec(&block[..length]).map_err(|e| e.to_string())?;
            if crc32fast::hash(&content).to_be_bytes() != block[length..] {
                return Err("the checksum of a block is wrong".to_string());
            }
        }
        other => return Err(format!("unknown compression {}", String::from_utf8_lossy(other))),
    }
    Ok(content)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn long(value: i64) -> Vec<u8> {
        let mut rest = ((value << 1) ^ (value >> 63)) as u64;
        let mut bytes = Vec::new();
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    }

    fn text(text: &str) -> Vec<u8> {
        [long(text.len() as i64), text.as_bytes().to_vec()].concat()
    }

    fn file(schema: &str, codec: &str, count: i64, block: &[u8]) -> Vec<u8> {
        let header = [long(2), text("avro.schema"), text(schema), text("avro.codec"), text(codec), long(0)];
        let sync = vec![7; SYNC_BYTES];
        let block = [long(count), long(block.len() as i64), block.to_vec()].concat();
        [MAGIC.to_vec(), header.concat(), sync.clone(), block, sync].concat()
    }

    const SCHEMA: &str = r#"{"type":"record","name":"r","fields":[
        {"name":"a","type":["null","long"]},{"name":"b","type":"string"},
        {"name":"c","type":{"type":"array","items":{"type":"record","name":"kv","fields":[
            {"name":"key","type":"int"},{"name":"value","type":"bytes"}]}}},
        {"name":"d","type":["null","kv"]}]}"#;

    fn row() -> Vec<u8> {
        let kv = [long(3), text("x")].concat();
        [long(1), long(-70), text("é"), long(1), kv.clone(), long(0), long(1), kv].concat()
    }

    #[test]
    fn records_are_read_by_the_schema_of_the_file() {
        let records = records(&file(SCHEMA, "null", 1, &row())).unwrap();
        let record = &records[0];
        assert_eq!((record.long("a"), record.text("b")), (Some(-70), Some("é")));
        assert_eq!(record.items("c")[0].get("value"), Some(&Value::Bytes(b"x".to_vec())));
        assert_eq!(record.get("d").and_then(|kv| kv.long("key")), Some(3));
    }

    #[test]
    fn compressed_blocks_are_read() {
        use std::io::Write;
        let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        deflate.write_all(&row()).unwrap();
        let mut snappy = snap::raw::Encoder::new().compress_vec(&row()).unwrap();
        snappy.extend(crc32fast::hash(&row()).to_be_bytes());
        let zstd = zstd::encode_all(&row()[..], 1).unwrap();
        for (codec, block) in
            [("deflate", deflate.finish().unwrap()), ("snappy", snappy), ("zstandard", zstd)]
        {
            assert_eq!(records(&file(SCHEMA, codec, 1, &block)).unwrap().len(), 1, "{codec}");
        }
        assert!(records(&file(SCHEMA, "bzip2", 1, &row())).unwrap_err().contains("bzip2"));
    }

    #[test]
    fn damaged_files_are_refused() {
        let whole = file(SCHEMA, "null", 1, &row());
        for length in 0..whole.len() {
            // A file may end after its header.
            let header = whole.len() - (row().len() + 2 + SYNC_BYTES);
            assert!(records(&whole[..length]).is_err() || length == header, "{length}");
        }
        assert!(records(&file(SCHEMA, "null", i64::MAX, &row())).is_err());
        let deep = format!("{}\"int\"{}", "[".repeat(100), "]".repeat(100));
        assert!(records(&file(&deep, "null", 0, &[])).is_err());
    }
}
