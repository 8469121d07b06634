//! The columns that `*` and `COLUMNS(…)` select.

use std::ops::ControlFlow;

use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::execution::SessionStateDefaults;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::Expr as Planned;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    LambdaFunction, ObjectName, OneOrManyWithParens, RenameSelectItem, Spanned, Value, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};

use super::columns::{Side, coalesced, place, reference};
use super::{error, template};

/// The columns of a FROM clause.
pub(super) struct Source {
    pub fields: Vec<Column>,
    /// Columns that joins merge, in lower case.
    pub using: Vec<(String, Side)>,
}

/// An expression and the name of its column.
pub(super) type Selected = Vec<(Expr, Option<String>)>;

/// Returns true for a call of COLUMNS.
pub(super) fn is_columns(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if is_call(function, "columns") || is_call(function, "__unpacked"))
}

fn is_call(function: &Function, name: &str) -> bool {
    function.name.0.len() == 1 && function.name.to_string().eq_ignore_ascii_case(name)
}

/// Returns the columns of `*` or `t.*` with its options.
pub(super) fn star(
    options: &WildcardAdditionalOptions,
    table: Option<&ObjectName>,
    source: &Source,
) -> Result<Selected> {
    let table = table.and_then(|table| table.0.last()?.as_ident());
    let excluded: Vec<&Ident> = match (&options.opt_exclude, &options.opt_except) {
        (Some(ExcludeSelectItem::Single(name)), _) => {
            name.0.iter().filter_map(|part| part.as_ident()).next_back().into_iter().collect()
        }
        (Some(ExcludeSelectItem::Multiple(names)), _) => {
            names.iter().filter_map(|name| name.0.last()?.as_ident()).collect()
        }
        (None, Some(except)) => {
            std::iter::once(&except.first_element).chain(&except.additional_elements).collect()
        }
        (None, None) => Vec::new(),
    };
    let replaced: Vec<_> = options.opt_replace.iter().flat_map(|replace| &replace.items).collect();
    let renamed: Vec<_> = match &options.opt_rename {
        Some(RenameSelectItem::Single(one)) => vec![one],
        Some(RenameSelectItem::Multiple(many)) => many.iter().collect(),
        None => Vec::new(),
    };
    let known = |name: &Ident| source.fields.iter().any(|field| same(&field.name, &name.value));
    let lists = excluded.iter().map(|name| (*name, "EXCLUDE"));
    let lists = lists.chain(replaced.iter().map(|item| (&item.column_name, "REPLACE")));
    for (name, list) in lists.chain(renamed.iter().map(|item| (&item.ident, "RENAME"))) {
        if !known(name) {
            let names: Vec<String> = source.fields.iter().map(|field| field.name.clone()).collect();
            let hint = crate::logical::nearest::hint(&name.value, names, "the columns are");
            return Err(error(name.span, format!("cannot find column {} of {list}; {hint}", name.value)));
        }
    }
    let mut selected = Selected::new();
    let mut merged: Vec<String> = Vec::new();
    for field in &source.fields {
        let of_table = |field: &Column| {
            table.is_none_or(|table| {
                field.relation.as_ref().is_some_and(|other| same(other.table(), &table.value))
            })
        };
        if !of_table(field) || excluded.iter().any(|name| same(&field.name, &name.value)) {
            continue;
        }
        let lower = field.name.to_lowercase();
        let side = source.using.iter().rev().find(|(name, _)| table.is_none() && *name == lower);
        let expr = match side {
            Some(_) if merged.contains(&lower) => continue,
            Some((_, side)) => {
                let all: Vec<&Column> =
                    source.fields.iter().filter(|other| same(&other.name, &field.name)).collect();
                merged.push(lower);
                match side {
                    Side::Left => reference(field),
                    Side::Right => reference(all[all.len() - 1]),
                    Side::Both => coalesced(&all),
                }
            }
            None => reference(field),
        };
        let name = renamed
            .iter()
            .find(|item| same(&item.ident.value, &field.name))
            .map(|item| item.alias.value.clone());
        let expr = replaced
            .iter()
            .find(|item| same(&item.column_name.value, &field.name))
            .map_or(expr, |item| item.expr.clone());
        selected.push((expr, Some(name.unwrap_or_else(|| field.name.clone()))));
    }
    Ok(selected)
}

fn same(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Returns an expression for each column that its COLUMNS selects; `None` if it has none.
///
/// # Errors
/// Returns an error with its place if no column matches, or if it has different COLUMNS.
pub(super) fn expand(expr: &Expr, source: &Source) -> Result<Option<Selected>> {
    let mut copy = expr.clone();
    if let Expr::Function(function) = &copy
        && function.name.to_string() == "__unpacked"
    {
        return Err(error(
            place(expr),
            "cannot use *COLUMNS(…) here: it makes several arguments of a function".to_string(),
        ));
    }
    let unpacked = unpack(&mut copy, source)?;
    let mut calls = Calls::default();
    let _ = copy.visit(&mut calls);
    let Some(first) = calls.0.first() else {
        return Ok(unpacked.then(|| vec![(copy, None)]));
    };
    if calls.0.iter().any(|other| other.to_string() != first.to_string()) {
        let message = "cannot use different COLUMNS in one expression; write them alike";
        return Err(error(place(first), message.to_string()));
    }
    let selected = selected(first, source)?;
    let put = |(column, name): (Expr, Option<String>)| {
        let mut copy = copy.clone();
        let _ = copy.visit(&mut Put { column: &column });
        (copy, name)
    };
    Ok(Some(selected.into_iter().map(put).collect()))
}

/// Like [`expand`], with an alias. `\1` in it stands for the first group of the pattern.
pub(super) fn aliased(expr: &Expr, alias: &Ident, source: &Source) -> Result<Selected> {
    let mut calls = Calls::default();
    let _ = expr.clone().visit(&mut calls);
    let pattern = calls.0.first().and_then(pattern);
    let mut selected = expand(expr, source)?.unwrap_or_default();
    for (_, name) in &mut selected {
        let new = match (&pattern, &name) {
            (Some(pattern), Some(column)) if alias.value.contains('\\') => {
                captured(pattern, column, &alias.value)?
            }
            _ => alias.value.clone(),
        };
        *name = Some(new);
    }
    Ok(selected)
}

/// The calls of COLUMNS in an expression.
#[derive(Default)]
struct Calls(Vec<Expr>);

impl VisitorMut for Calls {
    type Break = std::convert::Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if is_columns(expr) {
            self.0.push(expr.clone());
        }
        ControlFlow::Continue(())
    }
}

struct Put<'a> {
    column: &'a Expr,
}

impl VisitorMut for Put<'_> {
    type Break = std::convert::Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if is_columns(expr) {
            *expr = self.column.clone();
        }
        ControlFlow::Continue(())
    }
}

/// Replaces `*COLUMNS(…)` among arguments by the columns. Returns true if there was one.
fn unpack(expr: &mut Expr, source: &Source) -> Result<bool> {
    struct Unpack<'a> {
        source: &'a Source,
        error: Option<datafusion::common::DataFusionError>,
        found: bool,
    }
    impl Unpack<'_> {
        fn columns(&mut self, expr: &Expr) -> Option<Vec<Expr>> {
            let is = matches!(expr, Expr::Function(function) if is_call(function, "__unpacked"));
            if !is {
                return None;
            }
            self.found = true;
            match selected(expr, self.source) {
                Ok(selected) => Some(selected.into_iter().map(|(expr, _)| expr).collect()),
                Err(error) => {
                    self.error = Some(error);
                    None
                }
            }
        }
    }
    impl VisitorMut for Unpack<'_> {
        type Break = std::convert::Infallible;

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
            match expr {
                Expr::Function(Function { args: FunctionArguments::List(list), .. }) => {
                    let arguments = std::mem::take(&mut list.args);
                    for argument in arguments {
                        match &argument {
                            FunctionArg::Unnamed(FunctionArgExpr::Expr(one)) => match self.columns(one) {
                                Some(columns) => list.args.extend(
                                    columns
                                        .into_iter()
                                        .map(|one| FunctionArg::Unnamed(FunctionArgExpr::Expr(one))),
                                ),
                                None => list.args.push(argument),
                            },
                            _ => list.args.push(argument),
                        }
                    }
                }
                Expr::Array(array) => {
                    let elements = std::mem::take(&mut array.elem);
                    for element in elements {
                        match self.columns(&element) {
                            Some(columns) => array.elem.extend(columns),
                            None => array.elem.push(element),
                        }
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut unpack = Unpack { source, error: None, found: false };
    let _ = expr.visit(&mut unpack);
    match unpack.error {
        Some(error) => Err(error),
        None => Ok(unpack.found),
    }
}

/// Returns the columns that a call of COLUMNS selects.
fn selected(call: &Expr, source: &Source) -> Result<Selected> {
    let every = || star(&WildcardAdditionalOptions::default(), None, source);
    let argument = match call {
        Expr::Function(Function { args: FunctionArguments::List(list), .. }) if list.args.len() == 1 => {
            &list.args[0]
        }
        _ => return Err(error(place(call), usage(call))),
    };
    let matches = |condition: &dyn Fn(&str) -> Result<bool>| -> Result<Selected> {
        let mut selected = Selected::new();
        for (expr, name) in every()? {
            if condition(name.as_deref().unwrap_or_default())? {
                selected.push((expr, name));
            }
        }
        Ok(selected)
    };
    let found = match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => every()?,
        FunctionArg::Unnamed(FunctionArgExpr::WildcardWithOptions(options)) => star(options, None, source)?,
        FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(table)) => {
            star(&WildcardAdditionalOptions::default(), Some(table), source)?
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(names))) => {
            let names: Vec<String> = names.elem.iter().filter_map(text).collect();
            matches(&|column| Ok(names.iter().any(|name| same(name, column))))?
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Lambda(LambdaFunction {
            params, body, ..
        }))) => {
            let parameter = match params {
                OneOrManyWithParens::One(one) => &one.name,
                OneOrManyWithParens::Many(many) if many.len() == 1 => &many[0].name,
                OneOrManyWithParens::Many(_) => return Err(error(place(call), usage(call))),
            };
            matches(&|column| {
                let mut body = body.as_ref().clone();
                let _ = body.visit(&mut Argument { parameter, column });
                is_true(&body)
            })?
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => match text(expr) {
            Some(pattern) => matches(&|column| is_true(&function("regexp_like", &[column, &pattern])))?,
            None => return Err(error(place(call), usage(call))),
        },
        _ => return Err(error(place(call), usage(call))),
    };
    if found.is_empty() {
        let names: Vec<&str> = source.fields.iter().map(|field| field.name.as_str()).take(8).collect();
        return Err(error(
            place(call),
            format!("cannot find a column for {call}; the columns are {}", names.join(", ")),
        ));
    }
    Ok(found)
}

fn usage(call: &Expr) -> String {
    format!(
        "cannot read {call}: COLUMNS takes *, a pattern ('^a'), a list of names or a lambda (c -> c LIKE 'a%')"
    )
}

/// Returns the pattern of `COLUMNS('…')`.
fn pattern(call: &Expr) -> Option<String> {
    match call {
        Expr::Function(Function { args: FunctionArguments::List(list), .. }) => match list.args.first()? {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => text(expr),
            _ => None,
        },
        _ => None,
    }
}

fn text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Replaces the parameter of a lambda by the name of a column.
struct Argument<'a> {
    parameter: &'a Ident,
    column: &'a str,
}

impl VisitorMut for Argument<'_> {
    type Break = std::convert::Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if matches!(expr, Expr::Identifier(name) if same(&name.value, &self.parameter.value)) {
            *expr = literal(self.column);
        }
        ControlFlow::Continue(())
    }
}

fn literal(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_string()).with_empty_span())
}

fn function(name: &str, arguments: &[&str]) -> Expr {
    let arguments: Vec<String> = arguments.iter().map(|text| literal(text).to_string()).collect();
    let call = format!("{name}({})", arguments.join(", "));
    template::expr(&call).unwrap_or_else(|| literal(&call))
}

/// Returns the part of a column's name that an alias with groups describes.
fn captured(pattern: &str, column: &str, alias: &str) -> Result<String> {
    // One more group, for \0.
    let mut shifted = String::new();
    let mut characters = alias.chars().peekable();
    while let Some(c) = characters.next() {
        match characters.peek().and_then(|next| next.to_digit(10)) {
            Some(digit) if c == '\\' => {
                shifted.push_str(&format!("\\{}", digit + 1));
                characters.next();
            }
            _ => shifted.push(c),
        }
    }
    let whole = format!("^.*?({pattern}).*$");
    let value = constant(&function("regexp_replace", &[column, &whole, &shifted]))?;
    Ok(match value.cast_to(&datafusion::arrow::datatypes::DataType::Utf8)? {
        ScalarValue::Utf8(Some(text)) => text,
        _ => alias.to_string(),
    })
}

fn is_true(condition: &Expr) -> Result<bool> {
    let value = constant(condition).map_err(|cause| error(condition.span(), cause.strip_backtrace()))?;
    Ok(matches!(value, ScalarValue::Boolean(Some(true))))
}

/// Computes an expression without columns.
fn constant(expr: &Expr) -> Result<ScalarValue> {
    let state = SessionStateBuilder::new()
        .with_scalar_functions(SessionStateDefaults::default_scalar_functions())
        .with_expr_planners(SessionStateDefaults::default_expr_planners())
        .build();
    let schema = DFSchema::empty();
    let planned = state.create_logical_expr(&expr.to_string(), &schema)?;
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    match simplifier.simplify(simplifier.coerce(planned, &schema)?)? {
        Planned::Literal(value, _) => Ok(value),
        other => Err(datafusion::common::DataFusionError::Plan(format!("{other} is not a constant"))),
    }
}
