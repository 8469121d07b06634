//! Types of the user: `CREATE TYPE mood AS ENUM ('sad', 'ok')`.
//!
//! The name of a type in a statement is replaced by the type itself, before the statement is planned.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ArrayElemTypeDef, CaseWhen, DataType, EnumMember, Expr,
    Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Spanned,
    Statement as SqlStatement, UserDefinedTypeRepresentation, Value, ValueWithSpan, VisitorMut,
};

use crate::EngineError;
use crate::sql::statements::Statement;
use crate::sql::tree;
use crate::statements::script::state::State;

/// Creates a type.
///
/// # Errors
/// Returns an error with its place if it exists, or is not an ENUM.
pub(crate) fn create(
    state: &State,
    statement: &Statement,
    name: &ObjectName,
    representation: Option<&UserDefinedTypeRepresentation>,
) -> Result<(), EngineError> {
    let Some(UserDefinedTypeRepresentation::Enum { labels }) = representation else {
        let message =
            format!("cannot create type {name}: only ENUM types are supported; write AS ENUM ('a', 'b')");
        return Err(statement.refuse(name.span(), &message));
    };
    let mut members: Vec<String> = Vec::new();
    for label in labels {
        if members.contains(&label.value) {
            let message =
                format!("cannot create type {name}: value '{}' occurs twice; remove one", label.value);
            return Err(statement.refuse(name.span(), &message));
        }
        members.push(label.value.clone());
    }
    let mut names = state.names();
    if names.types.contains_key(&key(name)) {
        let message = format!("cannot create type {name}: it exists; DROP TYPE {name} first");
        return Err(statement.refuse(name.span(), &message));
    }
    names.types.insert(key(name), members);
    Ok(())
}

/// Drops a type.
///
/// # Errors
/// Returns an error with its place if there is none.
pub(crate) fn drop(
    state: &State,
    statement: &Statement,
    name: &ObjectName,
    if_exists: bool,
) -> Result<(), EngineError> {
    if state.names().types.remove(&key(name)).is_none() && !if_exists {
        return Err(statement.refuse(name.span(), &format!("cannot find type {name}; check its name")));
    }
    Ok(())
}

fn key(name: &ObjectName) -> String {
    match &name.0[..] {
        [part] => part.as_ident().map_or_else(|| name.to_string(), |name| name.value.clone()),
        _ => name.to_string(),
    }
    .to_lowercase()
}

/// Replaces the names of types in a statement, and calls of functions of their values.
///
/// # Errors
/// Returns an error with its place if such a function has another argument.
pub(crate) fn expand(state: &State, statement: &Statement, tree: &mut Tree) -> Result<(), EngineError> {
    let types = state.names().types.clone();
    match tree::visit(tree, &mut Replace { types: &types }) {
        ControlFlow::Break(message) => Err(statement.refuse(message.1, &message.0)),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Replace<'a> {
    types: &'a HashMap<String, Vec<String>>,
}

impl VisitorMut for Replace<'_> {
    type Break = (String, datafusion::sql::sqlparser::tokenizer::Span);

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> ControlFlow<Self::Break> {
        match statement {
            SqlStatement::CreateTable(table) => {
                table.columns.iter_mut().for_each(|column| self.data_type(&mut column.data_type));
            }
            SqlStatement::AlterTable(alter) => {
                for operation in &mut alter.operations {
                    match operation {
                        AlterTableOperation::AddColumn { column_def, .. } => {
                            self.data_type(&mut column_def.data_type);
                        }
                        AlterTableOperation::AlterColumn {
                            op: AlterColumnOperation::SetDataType { data_type, .. },
                            ..
                        } => self.data_type(data_type),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Cast { data_type, .. } => self.data_type(data_type),
            Expr::Function(function) => match self.of_values(function) {
                Ok(Some(made)) => *expr = made,
                Ok(None) => {}
                Err(message) => return ControlFlow::Break((message, function.name.span())),
            },
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Replace<'_> {
    fn data_type(&self, data_type: &mut DataType) {
        match data_type {
            DataType::Custom(name, _) => {
                if let Some(members) = self.types.get(&key(name)) {
                    let members = members.iter().map(|member| EnumMember::Name(member.clone()));
                    *data_type = DataType::Enum(members.collect(), None);
                }
            }
            DataType::Array(
                ArrayElemTypeDef::SquareBracket(item, _)
                | ArrayElemTypeDef::AngleBracket(item)
                | ArrayElemTypeDef::Parenthesis(item),
            ) => self.data_type(item),
            DataType::Struct(fields, _) => {
                fields.iter_mut().for_each(|field| self.data_type(&mut field.field_type));
            }
            _ => {}
        }
    }

    /// Returns the value of `enum_range(NULL::mood)` and the like.
    fn of_values(&self, function: &Function) -> Result<Option<Expr>, String> {
        let name = function.name.to_string().to_lowercase();
        if !["enum_range", "enum_first", "enum_last", "enum_code", "enum_range_boundary"]
            .contains(&name.as_str())
        {
            return Ok(None);
        }
        let FunctionArguments::List(list) = &function.args else { return Ok(None) };
        let arguments: Vec<&Expr> = list
            .args
            .iter()
            .filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                _ => None,
            })
            .collect();
        let members = arguments.iter().find_map(|argument| match argument {
            Expr::Cast { data_type: DataType::Enum(members, _), .. } => Some(members),
            _ => None,
        });
        let members: Vec<&str> = match members {
            Some(members) => members.iter().map(name_of).collect(),
            None => {
                return Err(format!(
                    "cannot call {name}: its argument must be cast to an ENUM: {name}(NULL::mood)"
                ));
            }
        };
        let list = |members: &[&str]| tree::call("make_array", members.iter().map(|one| text(one)).collect());
        let place = |value: &str| members.iter().position(|member| *member == value);
        Ok(Some(match (name.as_str(), &arguments[..]) {
            ("enum_first", [_]) => text(members.first().unwrap_or(&"")),
            ("enum_last", [_]) => text(members.last().unwrap_or(&"")),
            ("enum_range", [_]) => list(&members),
            ("enum_code", [value]) => {
                let whens = members.iter().zip(0..).map(|(member, code)| CaseWhen {
                    condition: text(member),
                    result: Expr::Value(Value::Number(code.to_string(), false).with_empty_span()),
                });
                Expr::Case {
                    case_token: AttachedToken::empty(),
                    end_token: AttachedToken::empty(),
                    operand: Some(Box::new((*value).clone())),
                    conditions: whens.collect(),
                    else_result: None,
                }
            }
            ("enum_range_boundary", [from, to]) => {
                let from = constant(from)?.and_then(|value| place(&value)).unwrap_or(0);
                let to = constant(to)?.and_then(|value| place(&value)).map_or(members.len(), |at| at + 1);
                list(members.get(from..to).unwrap_or_default())
            }
            _ => return Err(format!("cannot call {name}: {} arguments were given", arguments.len())),
        }))
    }
}

/// Returns the text of a constant; `None` for NULL.
fn constant(expr: &Expr) -> Result<Option<String>, String> {
    match expr {
        Expr::Cast { expr, .. } => constant(expr),
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Ok(Some(text.clone())),
        Expr::Value(ValueWithSpan { value: Value::Null, .. }) => Ok(None),
        other => Err(format!("cannot call enum_range_boundary: {other} must be a constant or NULL")),
    }
}

fn name_of(member: &EnumMember) -> &str {
    match member {
        EnumMember::Name(name) | EnumMember::NamedValue(name, _) => name,
    }
}

fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_string()).with_empty_span())
}
