//! The table functions `delta_scan` and `iceberg_scan`.
//!
//! A call is planned as a table whose name is the text of the call, which the factory of tables from paths opens.
//! Arguments: the path, and `version` (Delta), `snapshot_from_id` (Iceberg) for another version than the newest.
//! `allow_moved_paths` may be true, since tables may always be moved.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Result};
use datafusion::sql::parser::{DFParser, Statement as Tree};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, TableAlias, TableFactor, UnaryOperator, Value,
    Visitor, VisitorMut,
};

use super::{Lake, Version};
use crate::sql::tree;

/// A call of a table function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub lake: Lake,
    pub place: String,
    pub version: Version,
}

/// Returns the format that a function reads.
fn lake_of(function: &str) -> Option<Lake> {
    match function.to_ascii_lowercase().as_str() {
        "delta_scan" => Some(Lake::Delta),
        "iceberg_scan" => Some(Lake::Iceberg),
        _ => None,
    }
}

/// Returns the name of a table factor that calls a function of this module.
fn called(table: &TableFactor) -> Option<(&Ident, Lake)> {
    let TableFactor::Table { name, args: Some(_), .. } = table else { return None };
    let [part] = &name.0[..] else { return None };
    let ident = part.as_ident()?;
    lake_of(&ident.value).map(|lake| (ident, lake))
}

/// Replaces calls in a statement by names of tables. The function's name stays as the alias.
pub(crate) fn replace(statement: &mut Tree) {
    struct Replace;

    impl VisitorMut for Replace {
        type Break = std::convert::Infallible;

        fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
            let Some((function, _)) = called(table) else { return ControlFlow::Continue(()) };
            let function = function.clone();
            if let TableFactor::Table { name, alias, args, .. } = table {
                let listed =
                    args.take().map(|args| args.args.iter().map(ToString::to_string).collect::<Vec<_>>());
                let text = format!(
                    "{}({})",
                    function.value.to_ascii_lowercase(),
                    listed.unwrap_or_default().join(", ")
                );
                *name = ObjectName::from(vec![Ident::with_quote_and_span('"', function.span, text)]);
                let own = TableAlias { explicit: true, name: function, columns: Vec::new(), at: None };
                alias.get_or_insert(own);
            }
            ControlFlow::Continue(())
        }
    }

    // `Break` is `Infallible`.
    let _ = tree::visit(statement, &mut Replace);
}

/// Parses the name of a table that [`replace`] made; `None` for other names.
///
/// # Errors
/// Returns an error if the arguments are not those of the function.
pub(crate) fn parse(name: &str) -> Result<Option<Call>> {
    let Some(function) = name.split_once('(').map(|(function, _)| function).filter(|f| lake_of(f).is_some())
    else {
        return Ok(None);
    };
    let mut statements = DFParser::parse_sql(&format!("SELECT * FROM {name}"))?;
    let mut found = Arguments(None);
    if let Some(statement) = statements.front_mut() {
        // `Break` is `Infallible`.
        let _ = tree::inspect(statement, &mut found);
    }
    let example = match lake_of(function) {
        Some(Lake::Iceberg) => "iceberg_scan('FOLDER', snapshot_from_id => 123)",
        _ => "delta_scan('FOLDER', version => 3)",
    };
    let explained =
        |why: String| DataFusionError::Plan(format!("cannot call {name}: {why}; write it like {example}"));
    match found.0 {
        Some(arguments) => arguments.map(Some).map_err(explained),
        None => Err(explained("the arguments are not valid".to_string())),
    }
}

/// Finds the arguments of a call.
struct Arguments(Option<Result<Call, String>>);

impl Visitor for Arguments {
    type Break = std::convert::Infallible;

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Self::Break> {
        if let Some((_, lake)) = called(table)
            && let TableFactor::Table { args: Some(args), .. } = table
        {
            self.0 = Some(arguments(lake, &args.args));
        }
        ControlFlow::Continue(())
    }
}

fn arguments(lake: Lake, args: &[FunctionArg]) -> Result<Call, String> {
    let mut call = Call { lake, place: String::new(), version: Version::Newest };
    for (index, arg) in args.iter().enumerate() {
        let (name, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if index == 0 => ("path".to_string(), value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                (name.value.to_ascii_lowercase(), value)
            }
            // `name = value` is an expression to the parser.
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp { left, right, .. })) => {
                (left.to_string().to_ascii_lowercase(), right.as_ref())
            }
            other => return Err(format!("the argument {other} is not supported")),
        };
        match (lake, name.as_str(), value) {
            (_, "path", Expr::Value(value)) if index == 0 => match &value.value {
                Value::SingleQuotedString(place) => call.place.clone_from(place),
                other => return Err(format!("the path {other} is not a text")),
            },
            (Lake::Delta, "version", value) | (Lake::Iceberg, "snapshot_from_id", value) => {
                let number = number(value).ok_or_else(|| format!("{value} is not a whole number"))?;
                call.version = Version::Number(number);
            }
            (Lake::Iceberg, "allow_moved_paths", value) if value.to_string().eq_ignore_ascii_case("true") => {
            }
            _ => return Err(format!("the argument {arg} is not supported")),
        }
    }
    if call.place.is_empty() { Err("it has no path".to_string()) } else { Ok(call) }
}

fn number(value: &Expr) -> Option<i64> {
    match value {
        Expr::Value(value) => value.value.to_string().parse().ok(),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => format!("-{expr}").parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statements::Statement;

    #[test]
    fn calls_become_names_that_parse() {
        let replaced = |sql: &str| {
            let statement: Statement = sql.parse().unwrap();
            let mut tree = statement.tree().clone();
            replace(&mut tree);
            tree.to_string()
        };
        assert_eq!(
            replaced("SELECT d.x FROM DELTA_SCAN('a''b', version => 3) d, iceberg_scan('c/')"),
            "SELECT d.x FROM \"delta_scan('a''b', version => 3)\" d, \"iceberg_scan('c/')\" AS iceberg_scan"
        );
        let call = parse("delta_scan('a''b', version => 3)").unwrap().unwrap();
        assert_eq!((call.place.as_str(), call.version), ("a'b", Version::Number(3)));
        let call =
            parse("iceberg_scan('c/', snapshot_from_id = 7, allow_moved_paths := true)").unwrap().unwrap();
        assert_eq!((call.lake, call.version), (Lake::Iceberg, Version::Number(7)));
        assert_eq!(parse("other('x')").unwrap(), None);
        for bad in [
            "delta_scan()",
            "delta_scan(1)",
            "delta_scan('x', snapshot_from_id => 1)",
            "iceberg_scan('x', 'y')",
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains("write it like"), "{error}");
        }
    }
}
