//! Names of types: those of DuckDB and PostgreSQL in statements, and DuckDB's in results and messages.

use std::sync::Arc;

use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, IntervalUnit, TimeUnit,
};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType as SqlType, EnumMember, ExactNumberInfo, ObjectName, StructField, TimezoneInfo,
};

use crate::logical::nearest::hint;
use crate::types::keywords::KEYWORDS;

/// Key of a field's metadata that holds the name of a type whose values are stored as text: UUID, JSON, BIT
/// or ENUM (…).
pub(crate) const TEXT_KIND: &str = "pellucid.text";

/// Names that an error proposes for an unknown type.
const COMMON: [&str; 17] = [
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "DOUBLE",
    "DECIMAL",
    "VARCHAR",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "TIMESTAMP_S",
    "TIMESTAMP_MS",
    "TIMESTAMP_NS",
    "INTERVAL",
    "BLOB",
    "UINTEGER",
    "UUID",
];

/// The type of whole numbers beyond BIGINT: HUGEINT has up to 39 digits, one more than decimals of 128 bits.
pub(super) const HUGEINT: DataType = DataType::Decimal256(39, 0);

/// The type of JSON, which no other text has.
pub(crate) const JSON: DataType = DataType::LargeUtf8;

/// Returns a field of a file with text in place of large strings, which here are JSON; `None` if it has none.
pub(crate) fn without_large_text(field: &FieldRef) -> Option<FieldRef> {
    let data_type = match field.data_type() {
        DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Dictionary(_, values) if **values == DataType::LargeUtf8 => DataType::Utf8View,
        DataType::List(item) => DataType::List(without_large_text(item)?),
        DataType::LargeList(item) => DataType::LargeList(without_large_text(item)?),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(without_large_text(item)?, *length),
        DataType::Map(entries, sorted) => DataType::Map(without_large_text(entries)?, *sorted),
        DataType::Struct(fields) => {
            let made: Vec<Option<FieldRef>> = fields.iter().map(without_large_text).collect();
            if made.iter().all(Option::is_none) {
                return None;
            }
            let fields =
                made.into_iter().zip(fields).map(|(made, own)| made.unwrap_or_else(|| Arc::clone(own)));
            DataType::Struct(fields.collect())
        }
        _ => return None,
    };
    Some(Arc::new(field.as_ref().clone().with_data_type(data_type)))
}

/// Plans the types that DataFusion's planner has no names for, or reads as something else than DuckDB.
#[derive(Debug, Clone)]
pub(crate) struct TypeNames {
    /// The session's time zone, which TIMESTAMPTZ has.
    zone: Arc<str>,
    /// The layout of text: `Utf8View` or `Utf8`.
    text: DataType,
}

impl TypeNames {
    pub(crate) fn new(zone: Arc<str>, text_views: bool) -> Self {
        Self { zone, text: if text_views { DataType::Utf8View } else { DataType::Utf8 } }
    }

    /// Returns the type with this name; `None` leaves it to DataFusion's planner.
    ///
    /// # Errors
    /// Returns an error if the type does not exist or is not supported.
    pub(crate) fn planned(&self, sql: &SqlType) -> Result<Option<DataType>> {
        use TimeUnit::Nanosecond;
        Ok(Some(match sql {
            SqlType::Int16 => DataType::Int16,
            SqlType::Int32 | SqlType::Signed | SqlType::SignedInteger | SqlType::MediumInt(_) => {
                DataType::Int32
            }
            SqlType::Int64 => DataType::Int64,
            SqlType::UInt8 | SqlType::UTinyInt => DataType::UInt8,
            SqlType::UInt16 | SqlType::USmallInt => DataType::UInt16,
            SqlType::UInt32 | SqlType::Unsigned | SqlType::UnsignedInteger => DataType::UInt32,
            SqlType::UInt64 | SqlType::UBigInt => DataType::UInt64,
            SqlType::HugeInt | SqlType::Int128 | SqlType::UHugeInt | SqlType::UInt128 => HUGEINT,
            SqlType::Float32 => DataType::Float32,
            SqlType::Float64 => DataType::Float64,
            SqlType::Numeric(digits)
            | SqlType::Decimal(digits)
            | SqlType::Dec(digits)
            | SqlType::BigDecimal(digits)
            | SqlType::BigNumeric(digits) => decimal(digits)?,
            SqlType::Varchar(_)
            | SqlType::Nvarchar(_)
            | SqlType::Char(_)
            | SqlType::Character(_)
            | SqlType::CharacterVarying(_)
            | SqlType::CharVarying(_)
            | SqlType::CharacterLargeObject(_)
            | SqlType::CharLargeObject(_)
            | SqlType::Clob(_)
            | SqlType::Text
            | SqlType::TinyText
            | SqlType::MediumText
            | SqlType::LongText
            | SqlType::String(_)
            | SqlType::Uuid
            | SqlType::Bit(_)
            | SqlType::BitVarying(_)
            | SqlType::VarBit(_)
            | SqlType::Enum(_, _) => self.text.clone(),
            SqlType::JSON | SqlType::JSONB => JSON,
            SqlType::Bytea
            | SqlType::Blob(_)
            | SqlType::Binary(_)
            | SqlType::Varbinary(_)
            | SqlType::Bytes(_)
            | SqlType::TinyBlob
            | SqlType::MediumBlob
            | SqlType::LongBlob => DataType::Binary,
            SqlType::Date32 => DataType::Date32,
            SqlType::Datetime(precision) | SqlType::TimestampNtz(precision) => {
                DataType::Timestamp(unit(*precision), None)
            }
            SqlType::Timestamp(precision, zone) => {
                let zoned = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
                DataType::Timestamp(unit(*precision), zoned.then(|| Arc::clone(&self.zone)))
            }
            SqlType::Time(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => {
                return refuse("TIME WITH TIME ZONE", "use TIMESTAMPTZ, or TIME");
            }
            SqlType::Time(_, _) => DataType::Time64(Nanosecond),
            SqlType::Interval { .. } => DataType::Interval(IntervalUnit::MonthDayNano),
            SqlType::Array(
                ArrayElemTypeDef::SquareBracket(item, None)
                | ArrayElemTypeDef::AngleBracket(item)
                | ArrayElemTypeDef::Parenthesis(item),
            ) => match self.planned(item)? {
                Some(item) => DataType::new_list(item, true),
                None => return Ok(None),
            },
            SqlType::Struct(fields, _) => return self.structure(fields),
            SqlType::Map(key, value) => match (self.planned(key)?, self.planned(value)?) {
                (Some(key), Some(value)) => map(key, value),
                _ => return self.map_of_default(key, value),
            },
            SqlType::Union(_) => return refuse("UNION", "use a STRUCT with a field for each member"),
            SqlType::Custom(name, _) => self.custom(name)?,
            other => return Ok(self.plain(other)),
        }))
    }

    /// Returns a type whose name the parser does not know.
    fn custom(&self, name: &ObjectName) -> Result<DataType> {
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        let lower = name.to_string().trim_matches('"').to_lowercase();
        Ok(match lower.as_str() {
            "int1" => DataType::Int8,
            "short" => DataType::Int16,
            "signed" => DataType::Int32,
            "long" | "oid" => DataType::Int64,
            "uinteger" => DataType::UInt32,
            "bignum" | "varint" => HUGEINT,
            "logical" => DataType::Boolean,
            "bitstring" | "bpchar" => self.text.clone(),
            "timestamp_s" => DataType::Timestamp(Second, None),
            "timestamp_ms" => DataType::Timestamp(Millisecond, None),
            "timestamp_us" => DataType::Timestamp(Microsecond, None),
            "timestamp_ns" => DataType::Timestamp(Nanosecond, None),
            _ => {
                let known = COMMON.iter().map(|name| name.to_string()).collect();
                let hint = hint(&lower, known, "types are");
                return Err(DataFusionError::Plan(format!("cannot find type {name}; {hint}")));
            }
        })
    }

    /// Returns the types that DataFusion names alike, which those of nested types need.
    fn plain(&self, sql: &SqlType) -> Option<DataType> {
        Some(match sql {
            SqlType::Boolean | SqlType::Bool => DataType::Boolean,
            SqlType::TinyInt(_) => DataType::Int8,
            SqlType::SmallInt(_) | SqlType::Int2(_) => DataType::Int16,
            SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => DataType::Int32,
            SqlType::BigInt(_) | SqlType::Int8(_) => DataType::Int64,
            SqlType::TinyIntUnsigned(_) => DataType::UInt8,
            SqlType::SmallIntUnsigned(_) | SqlType::Int2Unsigned(_) => DataType::UInt16,
            SqlType::IntUnsigned(_) | SqlType::IntegerUnsigned(_) | SqlType::Int4Unsigned(_) => {
                DataType::UInt32
            }
            SqlType::BigIntUnsigned(_) | SqlType::Int8Unsigned(_) => DataType::UInt64,
            SqlType::Float(_) | SqlType::Real | SqlType::Float4 => DataType::Float32,
            SqlType::Double(ExactNumberInfo::None) | SqlType::DoublePrecision | SqlType::Float8 => {
                DataType::Float64
            }
            SqlType::Date => DataType::Date32,
            _ => return None,
        })
    }

    /// Returns the type of a struct, whose fields keep their case.
    fn structure(&self, fields: &[StructField]) -> Result<Option<DataType>> {
        let mut planned = Vec::with_capacity(fields.len());
        for (index, field) in fields.iter().enumerate() {
            let Some(data_type) = self.planned(&field.field_type)? else { return Ok(None) };
            let name =
                field.field_name.as_ref().map_or_else(|| format!("c{index}"), |name| name.value.clone());
            planned.push(Field::new(name, data_type, true));
        }
        Ok(Some(DataType::Struct(planned.into())))
    }

    fn map_of_default(&self, key: &SqlType, value: &SqlType) -> Result<Option<DataType>> {
        refuse(&format!("MAP({key}, {value})"), "use types of DuckDB for its keys and values")
    }
}

impl TypePlanner for TypeNames {
    fn plan_type_field(&self, sql: &SqlType) -> Result<Option<FieldRef>> {
        let Some(data_type) = self.planned(sql)? else { return Ok(None) };
        let field = Field::new("", data_type, true);
        Ok(Some(Arc::new(match text_kind(sql) {
            Some(kind) => field.with_metadata([(TEXT_KIND.to_string(), kind)].into()),
            None => field,
        })))
    }
}

/// Returns the name of a type that is stored as text and has rules for its values.
pub(crate) fn text_kind(sql: &SqlType) -> Option<String> {
    Some(match sql {
        SqlType::JSON | SqlType::JSONB => "JSON".to_string(),
        SqlType::Uuid => "UUID".to_string(),
        SqlType::Bit(_) | SqlType::BitVarying(_) | SqlType::VarBit(_) => "BIT".to_string(),
        SqlType::Custom(name, _) if name.to_string().eq_ignore_ascii_case("bitstring") => "BIT".to_string(),
        SqlType::Enum(members, _) => {
            let names = members.iter().map(|member| match member {
                EnumMember::Name(name) | EnumMember::NamedValue(name, _) => {
                    format!("'{}'", name.replace('\'', "''"))
                }
            });
            format!("ENUM({})", names.collect::<Vec<_>>().join(", "))
        }
        _ => return None,
    })
}

fn refuse<T>(name: &str, way_out: &str) -> Result<T> {
    Err(DataFusionError::Plan(format!("type {name} is not supported; {way_out}")))
}

fn unit(precision: Option<u64>) -> TimeUnit {
    match precision {
        Some(0) => TimeUnit::Second,
        Some(1..=3) => TimeUnit::Millisecond,
        None | Some(4..=6) => TimeUnit::Microsecond,
        Some(_) => TimeUnit::Nanosecond,
    }
}

fn decimal(digits: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match digits {
        ExactNumberInfo::None => (18, 3),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision @ 1..=DECIMAL128_MAX_PRECISION), Ok(scale))
            if scale >= 0 && u64::from(scale.unsigned_abs()) <= u64::from(precision) =>
        {
            Ok(DataType::Decimal128(precision, scale))
        }
        _ => Err(DataFusionError::Plan(format!(
            "cannot use DECIMAL({precision}, {scale}): it has 1 to 38 digits, of which 0 to all are after the point"
        ))),
    }
}

/// Returns the type of a map.
pub(super) fn map(key: DataType, value: DataType) -> DataType {
    let fields = vec![Field::new("key", key, false), Field::new("value", value, true)];
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(fields.into()), false)), false)
}

/// Returns DuckDB's name of the type of a field, also of one whose values are stored as text.
pub(crate) fn name_of(field: &Field) -> String {
    field.metadata().get(TEXT_KIND).cloned().unwrap_or_else(|| name(field.data_type()))
}

/// Returns DuckDB's name of a type.
pub(crate) fn name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "\"NULL\"".to_string(),
        DataType::Boolean => "BOOLEAN".to_string(),
        DataType::Int8 => "TINYINT".to_string(),
        DataType::Int16 => "SMALLINT".to_string(),
        DataType::Int32 => "INTEGER".to_string(),
        DataType::Int64 => "BIGINT".to_string(),
        DataType::UInt8 => "UTINYINT".to_string(),
        DataType::UInt16 => "USMALLINT".to_string(),
        DataType::UInt32 => "UINTEGER".to_string(),
        DataType::UInt64 => "UBIGINT".to_string(),
        DataType::Decimal256(39, 0) => "HUGEINT".to_string(),
        DataType::Float16 | DataType::Float32 => "FLOAT".to_string(),
        DataType::Float64 => "DOUBLE".to_string(),
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => {
            format!("DECIMAL({p},{s})")
        }
        DataType::LargeUtf8 => "JSON".to_string(),
        DataType::Utf8 | DataType::Utf8View => "VARCHAR".to_string(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "BLOB".to_string()
        }
        DataType::Date32 | DataType::Date64 => "DATE".to_string(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".to_string(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE".to_string(),
        DataType::Timestamp(TimeUnit::Second, None) => "TIMESTAMP_S".to_string(),
        DataType::Timestamp(TimeUnit::Millisecond, None) => "TIMESTAMP_MS".to_string(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "TIMESTAMP".to_string(),
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP_NS".to_string(),
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".to_string(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => format!("{}[]", name(item.data_type())),
        DataType::FixedSizeList(item, length) => format!("{}[{length}]", name(item.data_type())),
        DataType::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|field| format!("{} {}", field_name(field.name()), name(field.data_type())));
            format!("STRUCT({})", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                format!("MAP({}, {})", name(fields[0].data_type()), name(fields[1].data_type()))
            }
            _ => "MAP".to_string(),
        },
        DataType::Dictionary(_, values) => name(values),
        DataType::RunEndEncoded(_, values) => name(values.data_type()),
        DataType::Union(..) => "UNION".to_string(),
    }
}

fn field_name(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && !KEYWORDS.contains(name.to_lowercase().as_str());
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Replaces DataFusion's names of types in a message by DuckDB's.
pub(crate) fn in_text(text: &str) -> String {
    let mut replaced = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        replaced.push_str(&match word.as_str() {
            "Decimal128" | "Decimal256" => "DECIMAL".to_string(),
            _ => word.parse().map_or_else(|_| word.clone(), |data_type| name(&data_type)),
        });
        word.clear();
        replaced.push(c);
    }
    replaced.pop();
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::dialect::Pellucid;
    use datafusion::sql::sqlparser::parser::Parser;

    fn planned(sql: &str) -> Result<Option<DataType>> {
        let types = TypeNames::new("UTC".into(), true);
        types.planned(&Parser::new(&Pellucid).try_with_sql(sql).unwrap().parse_data_type().unwrap())
    }

    #[test]
    fn names_of_duckdb_are_known() {
        for (sql, expected) in [
            ("INT1", "TINYINT"),
            ("INT8", "BIGINT"),
            ("uint8", "UTINYINT"),
            ("INT128", "HUGEINT"),
            ("NUMERIC", "DECIMAL(18,3)"),
            ("DECIMAL(5)", "DECIMAL(5,0)"),
            ("timestamp_s", "TIMESTAMP_S"),
            ("TIMESTAMP(9)", "TIMESTAMP_NS"),
            ("DATETIME", "TIMESTAMP"),
            ("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"),
            ("STRING", "VARCHAR"),
            ("BYTEA", "BLOB"),
            ("INT[][]", "INTEGER[][]"),
            ("MAP(VARCHAR, INT)", "MAP(VARCHAR, INTEGER)"),
        ] {
            assert_eq!(planned(sql).unwrap().map(|t| name(&t)).as_deref(), Some(expected), "{sql}");
        }
    }

    #[test]
    fn unknown_types_propose_a_name() {
        let error = planned("timestmp").unwrap_err().to_string();
        assert!(error.contains("cannot find type timestmp; did you mean TIMESTAMP"), "{error}");
        assert!(planned("DECIMAL(39, 0)").unwrap_err().to_string().contains("1 to 38 digits"));
    }
    #[test]
    fn nested_types_have_duckdbs_form() {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let fields =
            vec![field("Street", DataType::Utf8View), field("Name", JSON), field("a b", DataType::Int32)];
        let list = DataType::new_list(DataType::Struct(fields.into()), true);
        assert_eq!(name(&list), "STRUCT(Street VARCHAR, \"Name\" JSON, \"a b\" INTEGER)[]");
    }

    #[test]
    fn large_strings_of_files_are_text() {
        let field = |data_type| Arc::new(Field::new("x", data_type, true));
        let list = |item| DataType::List(field(item));
        let record = |item| DataType::Struct(vec![field(DataType::Int64), field(list(item))].into());
        let made = without_large_text(&field(record(DataType::LargeUtf8))).unwrap();
        assert_eq!(*made.data_type(), record(DataType::Utf8View));
        assert_eq!(without_large_text(&field(record(DataType::Utf8))), None);
    }

    #[test]
    fn names_in_messages_are_replaced() {
        let text = "Cannot coerce Utf8View to Int64, Decimal128(10, 2), Utf8s";
        assert_eq!(in_text(text), "Cannot coerce VARCHAR to BIGINT, DECIMAL(10, 2), Utf8s");
    }
}
