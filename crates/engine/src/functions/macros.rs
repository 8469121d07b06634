//! Macros: functions that are expressions of other functions.
//!
//! A call is replaced in the syntax tree, after its arguments. The functions of the expression get the place of the
//! call, and its arguments keep theirs, so that errors show what was typed. Clauses of an aggregate (`FILTER`, `OVER`,
//! `DISTINCT`, `ORDER BY`) go to the aggregate in the expression.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{LazyLock, OnceLock};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::context::SessionState;
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, ObjectNamePart, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Span, Tokenizer};

use crate::functions::{special, table};
use crate::sql::dialect::Pellucid;
use crate::sql::tree;

pub(crate) use crate::sql::place::error as wrong;

/// Aggregates that take the clauses of a macro's call.
const AGGREGATES: [&str; 12] = [
    "approx_distinct",
    "approx_percentile_cont",
    "array_agg",
    "avg",
    "count",
    "first_value",
    "last_value",
    "mode",
    "quantile_cont",
    "stddev_pop",
    "string_agg",
    "sum",
];

/// A macro with one number of parameters.
struct Macro {
    parameters: Vec<&'static str>,
    /// The line of the table, and its expression.
    line: usize,
    text: &'static str,
    body: OnceLock<Option<Expr>>,
}

impl Macro {
    /// Returns the expression, which is parsed when it is first needed: a statement calls few of the macros.
    fn body(&self) -> Option<&Expr> {
        let parsed = || {
            // Without locations: the places of the table are not those of a statement.
            let tokens = Tokenizer::new(&Pellucid, self.text).tokenize().ok()?;
            let mut body = Parser::new(&Pellucid).with_tokens(tokens).parse_expr().ok()?;
            // A macro may use those before it.
            let _ = body.visit(&mut Expand { before: self.line, state: None });
            Some(body)
        };
        self.body.get_or_init(parsed).as_ref()
    }
}

/// The macros by name, each with its numbers of parameters.
static MACROS: LazyLock<HashMap<&'static str, Vec<Macro>>> = LazyLock::new(|| {
    let mut macros = HashMap::new();
    for (line, text) in table::MACROS.lines().enumerate() {
        let Some((names, parameters, text)) = parts(text) else { continue };
        for name in names {
            let one = Macro { parameters: parameters.clone(), line, text, body: OnceLock::new() };
            macros.entry(name).or_insert_with(Vec::new).push(one);
        }
    }
    macros
});

/// Reads `name, other (a, b) = expression`; `None` for another line.
fn parts(line: &str) -> Option<(Vec<&str>, Vec<&str>, &str)> {
    let (head, body) = line.split_once(") = ")?;
    let (names, parameters) = head.split_once('(')?;
    let list = |text| str::split(text, ',').map(str::trim).filter(|one| !one.is_empty()).collect();
    Some((list(names), list(parameters), body))
}

/// Returns the names of all macros.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    MACROS.keys().copied()
}

/// Expands the macros of a statement.
///
/// # Errors
/// Returns an error with its place if a call has the wrong number of arguments, or a clause without meaning.
pub(crate) fn expand(tree: &mut Tree, state: &SessionState) -> Result<()> {
    match tree::visit(tree, &mut Expand { before: usize::MAX, state: Some(state) }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Expand<'a> {
    /// The line of the table before which macros are known.
    before: usize,
    /// The functions of the session; `None` while a macro is read.
    state: Option<&'a SessionState>,
}

impl VisitorMut for Expand<'_> {
    type Break = DataFusionError;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<DataFusionError> {
        special::table(table);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        special::rewrite(expr);
        match self.replacement(expr) {
            Ok(Some(made)) => *expr = made,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Expand<'_> {
    fn replacement(&self, expr: &Expr) -> Result<Option<Expr>> {
        let Expr::Function(function) = expr else { return Ok(None) };
        match special::call(function)? {
            // The call of a macro, or a function of DataFusion.
            Some(Expr::Function(other)) => Ok(Some(self.call(&other)?.unwrap_or(Expr::Function(other)))),
            Some(other) => Ok(Some(other)),
            None => self.call(function),
        }
    }

    /// Returns the expression that replaces a call; `None` if it calls no macro.
    fn call(&self, function: &Function) -> Result<Option<Expr>> {
        let Some((name, span)) = name(function) else { return Ok(None) };
        let of_name = MACROS.get(name.as_str()).into_iter().flatten();
        let macros: Vec<&Macro> = of_name.filter(|one| one.line < self.before).collect();
        if macros.is_empty() {
            return self.check(&name, span, function);
        }
        let FunctionArguments::List(list) = &function.args else { return Ok(None) };
        let mut arguments = Vec::new();
        for argument in &list.args {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(expr),
                other => {
                    return Err(wrong(span, format!("cannot call {name}: it takes no argument {other}")));
                }
            }
        }
        // A macro may stand for some numbers of arguments of a function of the same name.
        let Some(one) = macros.iter().find(|one| one.parameters.len() == arguments.len()) else {
            if self.state.is_none_or(|state| is_known(state, &name)) {
                return self.check(&name, span, function);
            }
            let forms: Vec<String> =
                macros.iter().map(|one| format!("{name}({})", one.parameters.join(", "))).collect();
            let given = match arguments.len() {
                1 => "1 argument was given".to_string(),
                n => format!("{n} arguments were given"),
            };
            return Err(wrong(span, format!("cannot call {name}: {given}; write {}", forms.join(" or "))));
        };
        let Some(mut body) = one.body().cloned() else { return Ok(None) };
        let mut fill = Fill {
            parameters: &one.parameters,
            arguments: &arguments,
            call: function,
            span,
            aggregate: false,
        };
        // `Break` is `Infallible`.
        let _ = body.visit(&mut fill);
        match clause(function) {
            Some(clause) if !fill.aggregate => Err(not_an_aggregate(&name, clause, span)),
            _ => Ok(Some(body)),
        }
    }

    /// Refuses the clauses of an aggregate at a function over rows, which DataFusion would ignore.
    fn check(&self, name: &str, span: Span, function: &Function) -> Result<Option<Expr>> {
        let Some(state) = self.state else { return Ok(None) };
        match clause(function) {
            Some(clause)
                if state.scalar_functions().contains_key(name)
                    && !state.aggregate_functions().contains_key(name) =>
            {
                Err(not_an_aggregate(name, clause, span))
            }
            _ => Ok(None),
        }
    }
}

fn is_known(state: &SessionState, name: &str) -> bool {
    state.scalar_functions().contains_key(name)
        || state.aggregate_functions().contains_key(name)
        || state.higher_order_functions().contains_key(name)
}

/// Returns the name of a call in lower case and its place; `None` for a quoted or qualified one.
pub(crate) fn name(function: &Function) -> Option<(String, Span)> {
    match &function.name.0[..] {
        [ObjectNamePart::Identifier(name)] if name.quote_style.is_none() => {
            Some((name.value.to_lowercase(), name.span))
        }
        _ => None,
    }
}

/// Returns the first clause of a call that only aggregates have.
fn clause(function: &Function) -> Option<&'static str> {
    let FunctionArguments::List(list) = &function.args else { return None };
    if function.over.is_some() {
        return Some("OVER");
    }
    if function.filter.is_some() {
        return Some("FILTER");
    }
    if !function.within_group.is_empty() {
        return Some("WITHIN GROUP");
    }
    if list.duplicate_treatment.is_some() {
        return Some("DISTINCT");
    }
    list.clauses.iter().any(|c| matches!(c, FunctionArgumentClause::OrderBy(_))).then_some("ORDER BY")
}

fn not_an_aggregate(name: &str, clause: &str, span: Span) -> DataFusionError {
    wrong(span, format!("cannot call {name} with {clause}: it is not an aggregate; remove {clause}"))
}

/// Fills the arguments and clauses of a call into the body of a macro.
struct Fill<'a> {
    parameters: &'a [&'static str],
    arguments: &'a [&'a Expr],
    call: &'a Function,
    span: Span,
    /// True if the body has an aggregate.
    aggregate: bool,
}

impl VisitorMut for Fill<'_> {
    type Break = std::convert::Infallible;

    // After its children, so that arguments are not visited.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Identifier(name) => {
                if let Some(at) = self.parameters.iter().position(|parameter| *parameter == name.value) {
                    *expr = self.arguments[at].clone();
                }
            }
            Expr::Function(function) => {
                if let [ObjectNamePart::Identifier(name)] = &mut function.name.0[..] {
                    name.span = self.span;
                    if AGGREGATES.contains(&name.value.as_str()) {
                        self.aggregate = true;
                        self.clauses(function);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Fill<'_> {
    /// Copies the clauses of the call to an aggregate of the body.
    fn clauses(&self, function: &mut Function) {
        function.over.clone_from(&self.call.over);
        function.within_group.clone_from(&self.call.within_group);
        if self.call.null_treatment.is_some() {
            function.null_treatment = self.call.null_treatment;
        }
        function.filter = match (function.filter.take(), self.call.filter.clone()) {
            (Some(own), Some(other)) => {
                Some(Box::new(Expr::BinaryOp { left: own, op: BinaryOperator::And, right: other }))
            }
            (own, other) => own.or(other),
        };
        if let (FunctionArguments::List(list), FunctionArguments::List(given)) =
            (&mut function.args, &self.call.args)
        {
            if given.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
                list.duplicate_treatment = given.duplicate_treatment;
            }
            let ordered = |clauses: &[FunctionArgumentClause]| {
                clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)))
            };
            let own = ordered(&list.clauses);
            let more =
                given.clauses.iter().filter(|c| !own || !matches!(c, FunctionArgumentClause::OrderBy(_)));
            list.clauses.extend(more.cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statements::Statement as Parsed;

    fn expanded(sql: &str) -> Result<String> {
        let parsed: Parsed = sql.parse().unwrap();
        let mut tree = parsed.tree().clone();
        let state = datafusion::prelude::SessionContext::new().state();
        expand(&mut tree, &state)?;
        Ok(tree.to_string())
    }

    #[test]
    fn every_line_of_the_table_is_a_macro() {
        for line in table::MACROS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (names, parameters, _) = parts(line).unwrap_or_default();
            let of_name = names.first().and_then(|name| MACROS.get(name)).into_iter().flatten();
            let mut bodies = of_name.filter(|one| one.parameters == parameters).map(Macro::body);
            assert!(bodies.next().is_some_and(|body| body.is_some()), "{line}");
        }
    }

    #[test]
    fn calls_are_replaced_after_their_arguments() {
        let sql = "SELECT year(last_day(x)) FROM t";
        let made = expanded(sql).unwrap();
        assert!(made.starts_with("SELECT date_part('year', CAST("), "{made}");
        // A column may have the name of a parameter.
        assert_eq!(expanded("SELECT ucase(x || y) FROM t").unwrap(), "SELECT upper(x || y) FROM t");
    }

    #[test]
    fn patterns_are_escaped_with_backslashes_once() {
        for (sql, expected) in [
            (r"SELECT a LIKE 'C:\%'", r"SELECT a LIKE 'C:\\%' ESCAPE '\'"),
            (r"SELECT a ILIKE 'x!%!!\' ESCAPE '!'", r"SELECT a ILIKE 'x\%\!\\' ESCAPE '\'"),
            (r"SELECT a LIKE 'x\%' ESCAPE '\'", r"SELECT a LIKE 'x\%' ESCAPE '\'"),
            ("SELECT a LIKE 'x%'", "SELECT a LIKE 'x%'"),
        ] {
            assert_eq!(expanded(sql).unwrap(), expected);
            assert_eq!(expanded(expected).unwrap(), expected);
        }
    }

    #[test]
    fn clauses_go_to_the_aggregate() {
        let made = expanded("SELECT list(DISTINCT a ORDER BY a) FILTER (WHERE b > 1) FROM t").unwrap();
        assert_eq!(made, "SELECT array_agg(DISTINCT a ORDER BY a) FILTER (WHERE b > 1) FROM t");
        let error = expanded("SELECT year(a) OVER () FROM t").unwrap_err().to_string();
        assert!(error.contains("cannot call year with OVER: it is not an aggregate"), "{error}");
        let error = expanded("SELECT upper(a) FILTER (WHERE true) FROM t").unwrap_err().to_string();
        assert!(error.contains("cannot call upper with FILTER"), "{error}");
    }

    #[test]
    fn wrong_number_of_arguments_is_an_error() {
        let error = expanded("SELECT year(a, b) FROM t").unwrap_err().to_string();
        assert!(error.contains("cannot call year: 2 arguments were given; write year(x)"), "{error}");
    }
}
