//! Values of the arguments of table functions: literals, lists and structs of them.

use datafusion::arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{Expr, Spanned, UnaryOperator, Value as Literal};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::tables::calls::Refused;

/// A value that an argument may have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Boolean(bool),
    Number(f64),
    Text(String),
    /// A word without quotes, such as the name of a type.
    Word(String),
    List(Vec<Value>),
    Struct(Vec<(String, Value)>),
}

/// An argument with its place.
#[derive(Debug, Clone)]
pub(crate) struct Argument {
    pub value: Value,
    pub span: Span,
}

/// Reads a literal.
///
/// # Errors
/// Returns an error for any other expression.
pub(crate) fn read(expr: &Expr) -> Result<Value, Refused> {
    let refused = || Refused {
        message: format!(
            "cannot read `{expr}` as an argument of a table function; write a literal, such as 'text'"
        ),
        span: expr.span(),
    };
    Ok(match expr {
        Expr::Value(value) => match &value.value {
            Literal::Null => Value::Null,
            Literal::Boolean(flag) => Value::Boolean(*flag),
            Literal::Number(digits, _) => {
                Value::Number(digits.replace('_', "").parse().map_err(|_| refused())?)
            }
            other => Value::Text(other.clone().into_string().ok_or_else(refused)?),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match read(expr)? {
            Value::Number(number) => Value::Number(-number),
            _ => return Err(refused()),
        },
        Expr::Nested(inner) => read(inner)?,
        Expr::Array(array) => Value::List(array.elem.iter().map(read).collect::<Result<_, _>>()?),
        Expr::Dictionary(fields) => {
            let field = |field: &datafusion::sql::sqlparser::ast::DictionaryField| {
                Ok((field.key.value.clone(), read(&field.value)?))
            };
            Value::Struct(fields.iter().map(field).collect::<Result<_, Refused>>()?)
        }
        Expr::Map(map) => {
            let entry = |entry: &datafusion::sql::sqlparser::ast::MapEntry| match read(&entry.key)? {
                Value::Text(key) => Ok((key, read(&entry.value)?)),
                _ => Err(refused()),
            };
            Value::Struct(map.entries.iter().map(entry).collect::<Result<_, Refused>>()?)
        }
        // A quoted name is text, as DuckDB reads it.
        Expr::Identifier(word) => match word.quote_style {
            Some(_) => Value::Text(word.value.clone()),
            None => Value::Word(word.value.clone()),
        },
        // For example DECIMAL(10, 2).
        Expr::Function(function) => Value::Word(function.to_string()),
        Expr::BinaryOp { left, op: datafusion::sql::sqlparser::ast::BinaryOperator::StringConcat, right } => {
            match (read(left)?, read(right)?) {
                (Value::Text(left), Value::Text(right)) => Value::Text(left + &right),
                _ => return Err(refused()),
            }
        }
        _ => return Err(refused()),
    })
}

impl Argument {
    fn wrong(&self, name: &str, expected: &str) -> Refused {
        Refused { message: format!("the option {name} is {expected}"), span: self.span }
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<bool, Refused> {
        match &self.value {
            Value::Boolean(flag) => Ok(*flag),
            Value::Number(number) if *number == 0.0 || *number == 1.0 => Ok(*number == 1.0),
            Value::Text(word) | Value::Word(word) if word.eq_ignore_ascii_case("true") => Ok(true),
            Value::Text(word) | Value::Word(word) if word.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(self.wrong(name, "true or false")),
        }
    }

    pub(crate) fn integer(&self, name: &str) -> Result<i64, Refused> {
        match &self.value {
            Value::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => Ok(*number as i64),
            Value::Text(text) if text.parse::<i64>().is_ok() => {
                text.parse().map_err(|_| self.wrong(name, "a whole number"))
            }
            _ => Err(self.wrong(name, "a whole number")),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str, Refused> {
        match &self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong(name, "a text in single quotes")),
        }
    }

    /// Returns a text or a list of texts.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, Refused> {
        let expected = "a text in single quotes, or a list of them: ['a', 'b']";
        let text = |value: &Value| match value {
            Value::Text(text) => Ok(text.clone()),
            _ => Err(self.wrong(name, expected)),
        };
        match &self.value {
            Value::List(all) => all.iter().map(text).collect(),
            one => Ok(vec![text(one)?]),
        }
    }

    /// Returns a single byte; `None` for an empty text.
    pub(crate) fn byte(&self, name: &str) -> Result<Option<u8>, Refused> {
        match self.text(name)?.as_bytes() {
            [] => Ok(None),
            [byte] => Ok(Some(*byte)),
            _ => Err(self.wrong(name, "a single character of ASCII, or '' for none")),
        }
    }

    /// Returns the names and types of a struct, or the types of a list, which have no names.
    pub(crate) fn types(&self, name: &str) -> Result<Vec<(Option<String>, String)>, Refused> {
        let expected = "types by column: {'a': 'INTEGER', 'b': 'VARCHAR'}, or a list of types";
        let text = |value: &Value| match value {
            Value::Text(text) | Value::Word(text) => Ok(text.clone()),
            _ => Err(self.wrong(name, expected)),
        };
        match &self.value {
            Value::Struct(fields) => {
                fields.iter().map(|(column, value)| Ok((Some(column.clone()), text(value)?))).collect()
            }
            Value::List(all) => all.iter().map(|value| Ok((None, text(value)?))).collect(),
            _ => Err(self.wrong(name, expected)),
        }
    }
}

/// Converts the names of types.
pub(super) struct Types<'a>(pub &'a (dyn Fn(&str) -> Option<DataType> + Sync));

impl Types<'_> {
    /// Returns the types of an argument, with the names of their columns.
    pub(super) fn of(
        &self,
        name: &str,
        argument: &Argument,
    ) -> Result<Vec<(Option<String>, DataType)>, Refused> {
        let one = |(column, text): (Option<String>, String)| match (self.0)(&text) {
            Some(data_type) => Ok((column, data_type)),
            None => Err(Refused {
                message: format!(
                    "cannot find the type {text} of {name}; use one such as BIGINT, DOUBLE, VARCHAR or DATE"
                ),
                span: argument.span,
            }),
        };
        argument.types(name)?.into_iter().map(one).collect()
    }

    /// Returns the types of columns, each with its name.
    pub(super) fn of_columns(
        &self,
        name: &str,
        argument: &Argument,
        expected: &str,
    ) -> Result<Vec<(String, DataType)>, Refused> {
        let typed = self.of(name, argument)?.into_iter();
        let typed: Option<Vec<_>> = typed.map(|(column, data_type)| Some((column?, data_type))).collect();
        typed.filter(|typed| !typed.is_empty()).ok_or_else(|| argument.wrong(name, expected))
    }
}
