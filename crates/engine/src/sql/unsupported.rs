//! Refuses what the parser accepts and DataFusion's planner would ignore.

use std::ops::ControlFlow;

use datafusion::common::DataFusionError;
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, DuplicateTreatment, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    JoinConstraint, JoinOperator, OrderByKind, Query, Select, SelectItem, Set, Spanned, Statement,
    TableConstraint, TableFactor, Value, ValueWithSpan, Visitor, WindowType,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::sql::{place, tree};

/// The setting that would change how later statements are parsed.
const DIALECT: &str = "datafusion.sql_parser.dialect";

/// Refuses constructs that would be ignored, or give a wrong answer.
///
/// # Errors
/// Returns an error that names the construct and its place.
pub(crate) fn check(tree: &Tree) -> Result<(), DataFusionError> {
    let external = match tree {
        Tree::CreateExternalTable(table) => keys(&table.columns, &table.constraints),
        _ => ControlFlow::Continue(()),
    };
    let found = match external {
        ControlFlow::Continue(()) => tree::inspect(tree, &mut Unsupported::default()),
        refused => refused,
    };
    match found {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(Refused { message, span }) => Err(place::error(span, message)),
    }
}

/// A construct that is refused.
struct Refused {
    message: String,
    span: Span,
}

#[derive(Default)]
struct Unsupported {
    /// Names of the windows that the statement defines.
    windows: Vec<String>,
}

fn refuse(span: Span, construct: &str, way_out: &str) -> ControlFlow<Refused> {
    ControlFlow::Break(Refused { message: format!("{construct} is not supported; {way_out}"), span })
}

impl Visitor for Unsupported {
    type Break = Refused;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Refused> {
        match statement {
            Statement::Set(Set::SingleAssignment { variable, .. })
                if variable.to_string().eq_ignore_ascii_case(DIALECT) =>
            {
                let message =
                    format!("cannot set {DIALECT}: there is one dialect of SQL here; remove the statement");
                ControlFlow::Break(Refused { message, span: variable.span() })
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Refused> {
        let span = query.span();
        if let Some(lock) = query.locks.first() {
            refuse(span, &lock.to_string(), "tables are not locked; remove it")?;
        }
        if let Some(clause) = &query.for_clause {
            refuse(span, &clause.to_string(), "choose the output's format with --format")?;
        }
        if query.settings.is_some() {
            refuse(span, "SETTINGS", "use SET before the query")?;
        }
        let order = query.order_by.as_ref().map(|order| &order.kind);
        if let Some(OrderByKind::Expressions(keys)) = order
            && let Some(Expr::Value(key)) = keys.iter().map(|key| &key.expr).find(|key| is_text(key))
        {
            let message = format!(
                "cannot order by the text {key}, which is the same in every row; write a column without quotes, or in double quotes"
            );
            return ControlFlow::Break(Refused { message, span: key.span });
        }
        if query.format_clause.is_some() {
            refuse(span, "FORMAT", "choose the output's format with --format")?;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Refused> {
        let span = select.span();
        self.windows.extend(select.named_window.iter().map(|window| window.0.value.to_lowercase()));
        if let Some(top) = &select.top {
            refuse(span, &top.to_string(), "write LIMIT and the number at the end of the query")?;
        }
        if let Some(into) = &select.into {
            refuse(span, &into.to_string(), "use CREATE TABLE … AS SELECT")?;
        }
        if select.prewhere.is_some() {
            refuse(span, "PREWHERE", "use WHERE")?;
        }
        if !select.connect_by.is_empty() {
            refuse(span, "CONNECT BY", "use WITH RECURSIVE")?;
        }
        if let Some(mode) = &select.value_table_mode {
            refuse(span, &mode.to_string(), "select a struct")?;
        }
        if select.exclude.is_some() {
            refuse(span, "EXCLUDE after the columns", "write it after the *")?;
        }
        if let Some(modifiers) = &select.select_modifiers {
            refuse(span, &modifiers.to_string(), "remove it")?;
        }
        for item in &select.projection {
            if let SelectItem::ExprWithAliases { expr, .. } = item {
                refuse(expr.span(), "several aliases for one expression", "give it one alias")?;
            }
        }
        for join in select.from.iter().flat_map(|from| &from.joins) {
            if has_no_condition(&join.join_operator) {
                refuse(
                    join.relation.span(),
                    "a join without a condition",
                    "write ON or USING after the table, or CROSS JOIN before it",
                )?;
            }
            let name = match &join.join_operator {
                JoinOperator::CrossApply => "CROSS APPLY",
                JoinOperator::OuterApply => "OUTER APPLY",
                JoinOperator::AsOf { match_condition, .. }
                    if !match_condition.to_string().starts_with("__") =>
                {
                    refuse(match_condition.span(), "MATCH_CONDITION", "write the inequality after ON")?;
                    continue;
                }
                JoinOperator::StraightJoin(_) => "STRAIGHT_JOIN",
                JoinOperator::ArrayJoin | JoinOperator::LeftArrayJoin | JoinOperator::InnerArrayJoin => {
                    "ARRAY JOIN"
                }
                _ => continue,
            };
            refuse(join.relation.span(), name, "use JOIN, or JOIN LATERAL")?;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Refused> {
        let span = expr.span();
        let Expr::Function(function) = expr else {
            return match expr {
                Expr::Convert { .. } => refuse(span, "CONVERT", "use CAST(x AS type)"),
                _ => ControlFlow::Continue(()),
            };
        };
        if let Some(WindowType::WindowSpec(window)) = &function.over
            && let Some(name) = &window.window_name
            && !self.windows.contains(&name.value.to_lowercase())
        {
            let message = format!(
                "cannot find window {name}; write PARTITION BY or ORDER BY before the columns, or define it: WINDOW {name} AS (…)"
            );
            return ControlFlow::Break(Refused { message, span: name.span });
        }
        let FunctionArguments::List(list) = &function.args else { return ControlFlow::Continue(()) };
        let name = function.name.to_string().to_lowercase();
        let is_star = matches!(list.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
        if is_star && ["sum", "avg", "min", "max"].contains(&name.as_str()) {
            refuse(span, &format!("{name}(*)"), "only count takes *; name a column")?;
        }
        let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        if name == "count" && is_distinct && list.args.len() > 1 {
            refuse(span, "DISTINCT over several arguments", "write count(DISTINCT (a, b))")?;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Refused> {
        let span = table.span();
        if let TableFactor::Table { with_hints, version, partitions, json_path, index_hints, .. } = table {
            if !with_hints.is_empty() || !index_hints.is_empty() {
                refuse(span, "a hint for a table", "remove it")?;
            }
            if let Some(version) = version {
                refuse(span, &version.to_string(), "only the current rows of a table can be read")?;
            }
            if !partitions.is_empty() {
                refuse(span, "PARTITION after a table", "select partitions with WHERE")?;
            }
            if json_path.is_some() {
                refuse(span, "a path within a table", "select the field")?;
            }
        }
        let ordinality = match table {
            TableFactor::Table { with_ordinality, .. }
            | TableFactor::Function { with_ordinality, .. }
            | TableFactor::UNNEST { with_ordinality, .. } => *with_ordinality,
            _ => false,
        };
        if ordinality {
            refuse(span, "WITH ORDINALITY", "number the rows with row_number() OVER ()")?;
        }
        ControlFlow::Continue(())
    }
}

/// Returns true for a join that needs a condition and has none.
fn has_no_condition(join: &JoinOperator) -> bool {
    use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
    match join {
        Join(condition)
        | Inner(condition)
        | Left(condition)
        | LeftOuter(condition)
        | Right(condition)
        | RightOuter(condition)
        | FullOuter(condition) => *condition == JoinConstraint::None,
        _ => false,
    }
}

fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }))
}

/// Refuses keys and other constraints, which would not be enforced, and options of columns.
fn keys(columns: &[ColumnDef], constraints: &[TableConstraint]) -> ControlFlow<Refused> {
    const WAY_OUT: &str = "rows would not be checked; remove it";
    for column in columns {
        for option in &column.options {
            if !matches!(option.option, ColumnOption::Null | ColumnOption::NotNull | ColumnOption::Default(_))
            {
                refuse(column.name.span, &format!("{} of column {}", option.option, column.name), WAY_OUT)?;
            }
        }
    }
    constraints.iter().try_for_each(|one| refuse(one.span(), &one.to_string(), WAY_OUT))
}

#[cfg(test)]
mod tests {
    use crate::sql::statements::Statement;

    #[test]
    fn ignored_constructs_are_refused_with_their_place() {
        for (sql, construct) in [
            (
                "CREATE EXTERNAL TABLE t (a INT PRIMARY KEY) STORED AS CSV LOCATION 'x'",
                "PRIMARY KEY of column a is not supported",
            ),
            (
                "CREATE EXTERNAL TABLE t (a INT, UNIQUE (a)) STORED AS CSV LOCATION 'x'",
                "UNIQUE (a) is not supported",
            ),
            ("SELECT * FROM t FOR UPDATE", "FOR UPDATE is not supported"),
            ("SELECT a FROM t ORDER BY b, 'a'", "cannot order by the text 'a'"),
            ("SELECT TOP 5 a FROM t", "TOP 5 is not supported; write LIMIT"),
            ("SELECT * FROM t JOIN u", "a join without a condition is not supported; write ON"),
            ("SELECT * FROM t LEFT JOIN u WHERE a > 1", "a join without a condition"),
            ("SELECT rank() OVER (a) FROM t", "cannot find window a; write PARTITION BY"),
            ("SELECT sum(*) FROM t", "sum(*) is not supported; only count takes *"),
            ("SELECT count(DISTINCT a, b) FROM t", "write count(DISTINCT (a, b))"),
            ("SELECT CONVERT(VARCHAR, a) FROM t", "CONVERT is not supported; use CAST"),
        ] {
            let error = sql.parse::<Statement>().unwrap_err().to_string();
            assert!(error.contains(construct), "{sql}: {error}");
        }
        for sql in [
            "SELECT * FROM t AS positional JOIN u ON true",
            "CREATE TABLE t (a INT NOT NULL DEFAULT 1)",
            "SELECT * FROM t NATURAL JOIN u POSITIONAL JOIN v, w CROSS JOIN x SEMI JOIN y USING (a)",
            "SELECT rank() OVER (w ORDER BY a), count(*) FROM t WINDOW w AS (PARTITION BY b)",
        ] {
            assert!(sql.parse::<Statement>().is_ok(), "{sql}");
        }
    }
}
