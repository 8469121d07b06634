//! Functions that compute a value from the values of one row.

mod columns;
pub(crate) mod format;
pub(crate) mod patterns;
pub(crate) mod text;

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, plan_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use regex::Regex;

use crate::functions::rows::columns::{Builder, Column};
use crate::types;

/// The type of a parameter or of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A value of any type: a number, a boolean, or its text.
    Any,
    Text,
    Integer,
    Double,
    Boolean,
    Blob,
    /// A date or timestamp, as microseconds since 1970.
    Moment,
    Texts,
    Interval,
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Text(Cow<'a, str>),
    Integer(i64),
    Double(f64),
    /// A decimal number, as its text.
    Decimal(String),
    Boolean(bool),
    Blob(Cow<'a, [u8]>),
    Texts(Vec<Option<String>>),
    Interval(IntervalMonthDayNano),
}

impl Value<'_> {
    /// Returns the text; empty for another type.
    pub(crate) fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            _ => "",
        }
    }

    /// Returns the whole number; 0 for another type.
    pub(crate) fn integer(&self) -> i64 {
        match self {
            Value::Integer(number) => *number,
            _ => 0,
        }
    }

    /// Returns the number; 0 for another type.
    pub(crate) fn double(&self) -> f64 {
        match self {
            Value::Double(number) => *number,
            Value::Integer(number) => *number as f64,
            Value::Decimal(text) => text.parse().unwrap_or(0.0),
            _ => 0.0,
        }
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(Cow::Owned(text))
    }
}

/// State that rows of one batch share.
#[derive(Default)]
pub(crate) struct Memory {
    patterns: HashMap<String, Regex>,
}

impl Memory {
    /// Returns a compiled pattern.
    pub(crate) fn pattern(&mut self, text: &str) -> std::result::Result<Regex, String> {
        if let Some(known) = self.patterns.get(text) {
            return Ok(known.clone());
        }
        let made = Regex::new(text).map_err(|error| {
            let cause = error.to_string();
            let cause = cause.lines().last().unwrap_or_default().trim_start_matches("error: ").to_string();
            format!("`{text}` is not a regular expression: {cause}")
        })?;
        self.patterns.insert(text.to_string(), made.clone());
        Ok(made)
    }
}

type Body = for<'a> fn(&mut Memory, &[Value<'a>]) -> std::result::Result<Value<'a>, String>;

/// A function over rows. The result is NULL if an argument is.
pub(crate) struct Function {
    names: &'static [&'static str],
    parameters: &'static [Kind],
    /// Number of parameters that may be absent.
    optional: usize,
    /// True if the last parameter may repeat.
    repeated: bool,
    /// True if the body sees arguments that are NULL.
    nulls: bool,
    result: Kind,
    body: Body,
}

impl Function {
    pub(crate) const fn new(
        names: &'static [&'static str],
        parameters: &'static [Kind],
        result: Kind,
        body: Body,
    ) -> Self {
        Self { names, parameters, optional: 0, repeated: false, nulls: false, result, body }
    }

    pub(crate) const fn optional(self, optional: usize) -> Self {
        Self { optional, ..self }
    }

    pub(crate) const fn repeated(self) -> Self {
        Self { repeated: true, optional: 1, ..self }
    }

    pub(crate) const fn with_nulls(self) -> Self {
        Self { nulls: true, ..self }
    }
}

/// Returns the functions of several lists, for registration.
pub(crate) fn all(lists: &[&'static [Function]]) -> Vec<ScalarUDF> {
    let functions = lists.iter().flat_map(|list| list.iter());
    functions
        .map(|function| {
            let aliases = function.names[1..].iter().map(|name| name.to_string()).collect();
            let signature = Signature::user_defined(Volatility::Immutable);
            ScalarUDF::new_from_impl(Rows { function, aliases, signature })
        })
        .collect()
}

#[derive(Debug)]
struct Rows {
    function: &'static Function,
    aliases: Vec<String>,
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.names[0])
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        self.function.names == other.function.names
    }
}

impl Eq for Rows {}

impl Hash for Rows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.names.hash(state);
    }
}

impl Rows {
    fn kind(&self, index: usize) -> Kind {
        let parameters = self.function.parameters;
        parameters[index.min(parameters.len() - 1)]
    }
}

impl ScalarUDFImpl for Rows {
    fn name(&self) -> &str {
        self.function.names[0]
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.function.result))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let most = self.function.parameters.len();
        let least = most - self.function.optional;
        if types.len() < least || (types.len() > most && !self.function.repeated) {
            let range = if least == most { least.to_string() } else { format!("{least} to {most}") };
            return Err(plan_datafusion_err!(
                "cannot call {}: {} arguments were given; it takes {range}",
                shown(self.name()),
                types.len()
            ));
        }
        let types = types.iter().enumerate();
        types
            .map(|(index, given)| {
                let kind = self.kind(index);
                coerced(kind, given).ok_or_else(|| {
                    plan_datafusion_err!(
                        "cannot call {}: argument {} is {}; it must be {}",
                        shown(self.name()),
                        index + 1,
                        types::names::name(given),
                        described(kind)
                    )
                })
            })
            .collect()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let mut columns = Vec::with_capacity(args.args.len());
        for (index, arg) in args.args.iter().enumerate() {
            let (array, one) = match arg {
                ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
                ColumnarValue::Array(array) => (Arc::clone(array), false),
            };
            columns.push((Column::new(&array, self.kind(index))?, one));
        }
        let mut memory = Memory::default();
        let mut builder = Builder::new(self.function.result, rows);
        let mut values = Vec::with_capacity(columns.len());
        for row in 0..rows {
            values.clear();
            values.extend(columns.iter().map(|(column, one)| column.value(if *one { 0 } else { row })));
            if !self.function.nulls && values.contains(&Value::Null) {
                builder.push(Value::Null);
                continue;
            }
            let made = (self.function.body)(&mut memory, &values).map_err(|cause| {
                match cause.starts_with("cannot ") {
                    true => exec_datafusion_err!("{cause}"),
                    false => exec_datafusion_err!("cannot call {}: {cause}", shown(self.name())),
                }
            })?;
            builder.push(made);
        }
        let array = builder.finish();
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?));
        }
        Ok(ColumnarValue::Array(array))
    }
}

/// Returns the name of a function as it is typed.
fn shown(name: &str) -> &str {
    name.strip_prefix("pellucid_").unwrap_or(name)
}

fn data_type(kind: Kind) -> DataType {
    match kind {
        Kind::Any | Kind::Text => DataType::Utf8,
        Kind::Integer => DataType::Int64,
        Kind::Double => DataType::Float64,
        Kind::Boolean => DataType::Boolean,
        Kind::Blob => DataType::Binary,
        Kind::Moment => DataType::Timestamp(TimeUnit::Microsecond, None),
        Kind::Texts => DataType::new_list(DataType::Utf8, true),
        Kind::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
    }
}

fn described(kind: Kind) -> &'static str {
    match kind {
        Kind::Any => "a value",
        Kind::Text => "text; CAST it AS VARCHAR",
        Kind::Integer => "a whole number",
        Kind::Double => "a number",
        Kind::Boolean => "a boolean",
        Kind::Blob => "binary data or text",
        Kind::Moment => "a date or a timestamp",
        Kind::Texts => "a list of text",
        Kind::Interval => "an interval",
    }
}

/// Returns the type to which an argument is cast; `None` if it is of a wrong type.
fn coerced(kind: Kind, given: &DataType) -> Option<DataType> {
    let given = match given {
        DataType::Dictionary(_, values) => values.as_ref(),
        other => other,
    };
    let text = given.is_string();
    let fits = match kind {
        Kind::Any => return Some(if given.is_null() { DataType::Utf8 } else { given.clone() }),
        Kind::Text => text,
        Kind::Integer => given.is_integer(),
        Kind::Double => given.is_numeric(),
        Kind::Boolean => matches!(given, DataType::Boolean),
        Kind::Blob => {
            text || matches!(given, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
        }
        Kind::Moment => {
            text || matches!(given, DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _))
        }
        Kind::Texts => {
            matches!(given, DataType::List(field) if field.data_type().is_string() || field.data_type().is_null())
        }
        Kind::Interval => matches!(given, DataType::Interval(_)),
    };
    (fits || given.is_null()).then(|| data_type(kind))
}
