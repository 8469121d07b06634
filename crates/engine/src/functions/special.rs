//! Calls and operators that are rewritten by their form: named arguments, clauses, operators and slices.

use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, Ident, Interval, ObjectName, Subscript, TableAlias,
    TableAliasColumnDef, TableFactor, UnaryOperator, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::functions::dates::parts::Part;
use crate::functions::macros::{name, wrong};
use crate::sql::tree;

/// Other names of functions.
const RENAMED: [(&str, &str); 36] = [
    ("list_value", "make_array"),
    ("list_pack", "make_array"),
    ("list_indexof", "array_position"),
    ("array_indexof", "array_position"),
    ("list_apply", "array_transform"),
    ("array_apply", "array_transform"),
    ("apply", "array_transform"),
    ("list_transform", "array_transform"),
    ("filter", "array_filter"),
    ("list_filter", "array_filter"),
    ("reduce", "list_reduce"),
    ("array_reduce", "list_reduce"),
    ("list_aggr", "list_aggregate"),
    ("array_aggr", "list_aggregate"),
    ("array_aggregate", "list_aggregate"),
    ("aggregate", "list_aggregate"),
    ("gen_random_uuid", "uuid"),
    ("uuidv4", "uuid"),
    ("quantile", "quantile_disc"),
    ("percentile_disc", "quantile_disc"),
    ("max_by", "arg_max"),
    ("argmax", "arg_max"),
    ("min_by", "arg_min"),
    ("argmin", "arg_min"),
    ("stddev_samp", "stddev"),
    ("count_star", "count"),
    ("nvl2", "nvl2"),
    ("date_format", "to_char"),
    ("greatest_common_divisor", "gcd"),
    ("least_common_multiple", "lcm"),
    ("left_grapheme", "left"),
    ("right_grapheme", "right"),
    ("rank_dense", "dense_rank"),
    ("array_value", "make_array"),
    ("array_zip", "arrays_zip"),
    ("reservoir_quantile", "quantile_disc"),
];

/// Aggregates `x` that lists have as `list_x`.
const OF_LISTS: [&str; 30] = [
    "any_value",
    "approx_count_distinct",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "count",
    "entropy",
    "histogram",
    "kurtosis",
    "kurtosis_pop",
    "mad",
    "max",
    "median",
    "min",
    "mode",
    "product",
    "quantile_cont",
    "quantile_disc",
    "skewness",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
];

/// Returns the call of a function with other arguments or another name; `None` if it stays.
///
/// # Errors
/// Returns an error with its place if the form of the call has no meaning.
pub(crate) fn call(function: &Function) -> Result<Option<Expr>> {
    let (Some((name, span)), FunctionArguments::List(list)) = (name(function), &function.args) else {
        // Without parentheses.
        let name = function.name.to_string().to_lowercase();
        return Ok(match name.as_str() {
            "current_user" | "session_user" | "current_role" => Some(text_of("pellucid")),
            "current_timestamp" => Some(tree::call("now", Vec::new())),
            "localtimestamp" => Some(tree::call("current_localtimestamp", Vec::new())),
            "localtime" => Some(tree::call("current_localtime", Vec::new())),
            "current_catalog" => Some(text_of("memory")),
            _ => None,
        });
    };
    let plain = unnamed(list);
    let with = |to: &str, arguments: Vec<Expr>| {
        let mut made = function.clone();
        made.name = ObjectName::from(vec![Ident::with_span(span, to)]);
        made.args = FunctionArguments::List(FunctionArgumentList {
            args: arguments.into_iter().map(|one| FunctionArg::Unnamed(FunctionArgExpr::Expr(one))).collect(),
            ..list.clone()
        });
        made
    };
    match (name.as_str(), plain.as_deref()) {
        ("date_part" | "datepart", Some([Expr::Value(part), x])) => {
            let Value::SingleQuotedString(text) = &part.value else { return Ok(None) };
            let Some(part) = Part::parse(text) else { return Ok(None) };
            Ok(Some(match part.name() {
                // Those that DataFusion has.
                other @ ("decade" | "century" | "millennium" | "era" | "julian" | "yearweek") => {
                    Expr::Function(with(other, vec![x.clone()]))
                }
                known => Expr::Function(with("date_part", vec![text_of(known), x.clone()])),
            }))
        }
        ("date_trunc" | "datetrunc", Some([Expr::Value(part), x])) => {
            let Value::SingleQuotedString(text) = &part.value else { return Ok(None) };
            Ok(Part::parse(text).map(|part| match part {
                Part::Decade | Part::Century | Part::Millennium => {
                    Expr::Function(with(&format!("pellucid_trunc_{}", part.name()), vec![x.clone()]))
                }
                part => Expr::Function(with("date_trunc", vec![text_of(part.name()), x.clone()])),
            }))
        }
        ("strptime" | "try_strptime", Some([text, formats])) => {
            let formats = match formats {
                Expr::Array(_) => formats.clone(),
                one => Expr::Array(Array { elem: vec![one.clone()], named: false }),
            };
            let to = format!("pellucid_{name}");
            let zoned = formats.to_string().contains("%z");
            let moment = Expr::Function(with(&to, vec![text.clone(), formats]));
            Ok(Some(if zoned { tree::call_at(span, "pellucid_utc", vec![moment]) } else { moment }))
        }
        ("strftime", Some([format @ Expr::Value(_), x])) if !matches!(x, Expr::Value(_)) => {
            Ok(Some(Expr::Function(with("strftime", vec![x.clone(), format.clone()]))))
        }
        ("substr" | "substring" | "array_slice" | "list_slice", Some([text, start, rest @ ..])) => {
            substring(&name, text, start, rest)
                .map_or(Ok(None), |made| Ok(Some(Expr::Function(with("pellucid_substr", made)))))
        }
        // Lists in lists, and then the fields of structs.
        ("unnest", None)
            if list.args.len() == 2
                && list.args[1].to_string().to_lowercase().replace(' ', "") == "recursive:=true" =>
        {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = &list.args[0] else { return Ok(None) };
            let inner = with("unnest", vec![value.clone()]);
            Ok(Some(Expr::Function(with("unnest", vec![Expr::Function(inner)]))))
        }
        // With names of groups, a struct.
        ("regexp_extract", Some([text, pattern, Expr::Array(names), options @ ..])) if options.len() <= 1 => {
            let options = options.first().cloned().unwrap_or_else(|| text_of(""));
            let arguments =
                [text.clone(), pattern.clone(), options].into_iter().chain(names.elem.iter().cloned());
            Ok(Some(Expr::Function(with("pellucid_regexp_groups", arguments.collect()))))
        }
        // Within a frame that moves, the values of a list are joined; and those in an order, since DataFusion has one order
        // for all calls of `string_agg`.
        ("string_agg" | "listagg" | "group_concat", Some([text, separator @ ..]))
            if (function.over.is_some() || is_ordered(list) && separator.iter().all(is_value))
                && separator.len() <= 1 =>
        {
            let separator = separator.first().cloned().unwrap_or_else(|| text_of(","));
            let list = Expr::Function(with("array_agg", vec![text.clone()]));
            Ok(Some(tree::call_at(span, "list_aggregate", vec![list, text_of("string_agg"), separator])))
        }
        ("struct_pack", None) => Ok(Some(Expr::Function(with("named_struct", named(list, &name, span)?)))),
        ("struct_insert" | "struct_update", None) => {
            let mut arguments = list.args.clone();
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(target)) = arguments.remove(0) else {
                return Err(wrong(span, format!("cannot call {name}: its first argument must be a struct")));
            };
            let fields = FunctionArgumentList { args: arguments, ..list.clone() };
            let mut values = vec![target];
            values.extend(named(&fields, &name, span)?);
            Ok(Some(Expr::Function(with("pellucid_struct_insert", values))))
        }
        ("count" | "count_star", Some([])) => {
            let mut made = with("count", Vec::new());
            if let FunctionArguments::List(list) = &mut made.args {
                list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
            }
            Ok(Some(Expr::Function(made)))
        }
        (_, Some(arguments)) if !function.within_group.is_empty() => {
            match within_group(&name, function, arguments, &with) {
                Some(made) => Ok(Some(call(&made)?.unwrap_or(Expr::Function(made)))),
                None => Ok(None),
            }
        }
        (_, Some([list, more @ ..]))
            if name.strip_prefix("list_").is_some_and(|of| OF_LISTS.contains(&of)) =>
        {
            let of = text_of(&name["list_".len()..]);
            let arguments = [list.clone(), of].into_iter().chain(more.iter().cloned());
            Ok(Some(Expr::Function(with("list_aggregate", arguments.collect()))))
        }
        _ => Ok(RENAMED.iter().find(|(from, to)| *from == name && from != to).map(|(_, to)| {
            let mut made = function.clone();
            made.name = ObjectName::from(vec![Ident::with_span(span, *to)]);
            Expr::Function(made)
        })),
    }
}

/// Returns the arguments of `substr` if DataFusion's gives another answer than DuckDB's.
fn substring(name: &str, text: &Expr, start: &Expr, rest: &[Expr]) -> Option<Vec<Expr>> {
    let positive = |expr: &Expr| matches!(expr, Expr::Value(value) if matches!(&value.value, Value::Number(n, _) if n.parse::<u64>().is_ok_and(|n| n > 0)));
    let same = positive(start) && rest.iter().all(positive);
    let fits = name.starts_with("subst") && rest.len() <= 1;
    (fits && !same).then(|| [text.clone(), start.clone()].into_iter().chain(rest.iter().cloned()).collect())
}

/// Moves the order of `WITHIN GROUP` into the arguments, for aggregates of our own.
fn within_group(
    name: &str,
    function: &Function,
    arguments: &[Expr],
    with: &dyn Fn(&str, Vec<Expr>) -> Function,
) -> Option<Function> {
    let [order] = &function.within_group[..] else { return None };
    let value = order.expr.clone();
    let descending = order.options.asc == Some(false);
    let mut made = match (name, arguments) {
        ("mode", []) => with("mode", vec![value]),
        ("percentile_disc" | "quantile_disc" | "percentile_cont" | "quantile_cont", [fraction]) => {
            let to = if name.ends_with("cont") { "quantile_cont" } else { "quantile_disc" };
            let fraction = match descending {
                true => Expr::BinaryOp {
                    left: Box::new(Expr::value(Value::Number("1".to_string(), false))),
                    op: BinaryOperator::Minus,
                    right: Box::new(fraction.clone()),
                },
                false => fraction.clone(),
            };
            with(to, vec![value, fraction])
        }
        ("listagg" | "string_agg" | "group_concat", _) => {
            let mut made = with(name, arguments.to_vec());
            if let FunctionArguments::List(list) = &mut made.args {
                list.clauses.push(FunctionArgumentClause::OrderBy(function.within_group.clone()));
            }
            made
        }
        _ => return None,
    };
    made.within_group = Vec::new();
    Some(made)
}

/// Returns true for a call with ORDER BY.
fn is_ordered(list: &FunctionArgumentList) -> bool {
    list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)))
}

fn is_value(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(_))
}

/// Returns the arguments if none has a name or is `*`.
fn unnamed(list: &FunctionArgumentList) -> Option<Vec<Expr>> {
    let plain = |one: &FunctionArg| match one {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(plain).collect()
}

/// Returns the names and values of `a := 1, b := 2` in turn.
fn named(list: &FunctionArgumentList, function: &str, span: Span) -> Result<Vec<Expr>> {
    let mut values = Vec::new();
    for one in &list.args {
        match one {
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                values.extend([text_of(&name.value), value.clone()]);
            }
            FunctionArg::ExprNamed {
                name: Expr::Identifier(name),
                arg: FunctionArgExpr::Expr(value),
                ..
            } => {
                values.extend([text_of(&name.value), value.clone()]);
            }
            other => {
                return Err(wrong(
                    span,
                    format!("cannot call {function}: {other} has no name; write name := {other}"),
                ));
            }
        }
    }
    Ok(values)
}

/// Rewrites operators and other special forms as calls.
pub(crate) fn rewrite(expr: &mut Expr) {
    if let Expr::BinaryOp { left, op, right } = expr
        && let Some(function) = of_chain(op)
    {
        let taken = |side: &mut Expr| std::mem::replace(side, Expr::value(Value::Null));
        *expr = chained(function, taken(left), taken(right));
        return;
    }
    if let Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } = expr {
        with_backslash(pattern, escape_char);
        return;
    }
    let made = match expr {
        Expr::Extract { field, expr: x, .. } => {
            Some(tree::call("date_part", vec![text_of(&field.to_string().to_lowercase()), (**x).clone()]))
        }
        Expr::Substring { expr: text, substring_from, substring_for, .. } => {
            let start = substring_from.as_deref().cloned().unwrap_or_else(|| number("1"));
            let rest: Vec<Expr> = substring_for.as_deref().cloned().into_iter().collect();
            substring("substr", text, &start, &rest).map(|arguments| tree::call("pellucid_substr", arguments))
        }
        Expr::BinaryOp { left, op, right } => {
            let both = |name| Some(tree::call(name, vec![(**left).clone(), (**right).clone()]));
            match op {
                BinaryOperator::Arrow => both("json_extract"),
                BinaryOperator::LongArrow => both("json_extract_string"),
                BinaryOperator::PGOverlap => both("list_has_any"),
                BinaryOperator::AtArrow => both("list_has_all"),
                BinaryOperator::ArrowAt => {
                    Some(tree::call("list_has_all", vec![(**right).clone(), (**left).clone()]))
                }
                BinaryOperator::PGStartsWith => both("starts_with"),
                BinaryOperator::PGRegexMatch => both("regexp_full_match"),
                BinaryOperator::PGRegexNotMatch => both("regexp_full_match").map(not),
                BinaryOperator::Custom(name) if name == "GLOB" => both("pellucid_glob"),
                _ => None,
            }
        }
        Expr::SimilarTo { negated, expr, pattern, escape_char: None } => {
            let made = tree::call("regexp_full_match", vec![(**expr).clone(), (**pattern).clone()]);
            Some(if *negated { not(made) } else { made })
        }
        Expr::UnaryOp { op: UnaryOperator::PGAbs, expr } => Some(tree::call("abs", vec![(**expr).clone()])),
        Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr } => Some(Expr::BinaryOp {
            left: expr.clone(),
            op: BinaryOperator::Xor,
            right: Box::new(Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number("1")) }),
        }),
        Expr::Interval(Interval { value, leading_field: Some(unit), last_field: None, .. })
            if !matches!(**value, Expr::Value(_) | Expr::UnaryOp { .. }) =>
        {
            let unit = text_of(&unit.to_string().to_lowercase());
            Some(tree::call("pellucid_interval", vec![unit, (**value).clone()]))
        }
        Expr::CompoundFieldAccess { access_chain, .. } => {
            for access in access_chain {
                if let AccessExpr::Dot(field) = access
                    && let Expr::Identifier(name) = field
                {
                    *field = text_of(&name.value);
                }
                if let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) = access {
                    lower_bound.get_or_insert_with(|| number("1"));
                    upper_bound.get_or_insert_with(|| Expr::UnaryOp {
                        op: UnaryOperator::Minus,
                        expr: Box::new(number("1")),
                    });
                }
            }
            None
        }
        _ => None,
    };
    if let Some(made) = made {
        *expr = made;
    }
}

/// Escapes a constant pattern of LIKE with backslashes, as DataFusion has it. Without ESCAPE, a backslash is a character like
/// others. A second time, it changes nothing.
fn with_backslash(pattern: &mut Expr, escape: &mut Option<ValueWithSpan>) {
    const BACKSLASH: char = '\\';
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span }) = pattern else { return };
    let by = match escape.as_ref().map(|escape| &escape.value) {
        None => None,
        Some(Value::SingleQuotedString(by)) if by.chars().count() == 1 => by.chars().next(),
        Some(_) => return,
    };
    if by == Some(BACKSLASH) || (by.is_none() && !text.contains(BACKSLASH)) {
        return;
    }
    let mut escaped = String::with_capacity(text.len() + 1);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        let next = if by == Some(c) { characters.next() } else { None };
        if next.is_some() || c == BACKSLASH {
            escaped.push(BACKSLASH);
        }
        escaped.push(next.unwrap_or(c));
    }
    *text = escaped;
    *escape = Some(Value::SingleQuotedString(BACKSLASH.to_string()).with_span(*span));
}

/// Returns the function of an operator that takes all operands of a chain.
fn of_chain(op: &BinaryOperator) -> Option<&'static str> {
    match op {
        BinaryOperator::DuckIntegerDivide => Some("pellucid_quotient"),
        BinaryOperator::BitwiseXor | BinaryOperator::PGExp => Some("pellucid_power"),
        _ => None,
    }
}

/// Returns a call of a function with two operands, or that in the left one with the right one added: a chain of calls
/// within calls would take cubic time to plan.
fn chained(function: &str, mut left: Expr, right: Expr) -> Expr {
    match &mut left {
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. })
            if name.to_string() == function =>
        {
            list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(right)));
            left
        }
        _ => tree::call(function, vec![left, right]),
    }
}

/// Names the column of a table function as DuckDB does: `range`, `generate_series`, `unnest`.
pub(crate) fn table(table: &mut TableFactor) {
    let (name, alias) = match table {
        TableFactor::Table { name, args: Some(_), alias, .. } => {
            let Some(name) = name.0.last().and_then(|part| part.as_ident()) else { return };
            (name.clone(), alias)
        }
        TableFactor::UNNEST { alias, array_exprs, .. } if array_exprs.len() == 1 => {
            (Ident::new("unnest"), alias)
        }
        _ => return,
    };
    let column = name.value.to_lowercase();
    if !matches!(column.as_str(), "range" | "generate_series" | "unnest") {
        return;
    }
    let own = TableAlias { explicit: true, name, columns: Vec::new(), at: None };
    let alias = alias.get_or_insert(own);
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: Ident::new(column), data_type: None });
    }
}

fn number(digits: &str) -> Expr {
    Expr::value(Value::Number(digits.to_string(), false))
}

fn text_of(text: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(text.to_string()))
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statements::Statement;

    #[test]
    fn chains_of_an_operator_are_one_call() {
        use datafusion::sql::sqlparser::ast::{SelectItem, SetExpr, Statement as Parsed};
        for (sql, expected) in [
            ("SELECT a ** b ^ c ** 2", "pellucid_power(a, b, c, 2)"),
            ("SELECT a // b // c", "pellucid_quotient(a, b, c)"),
            ("SELECT a ** b // c", "pellucid_quotient(pellucid_power(a, b), c)"),
        ] {
            let parsed: Statement = sql.parse().unwrap();
            let datafusion::sql::parser::Statement::Statement(tree) = parsed.tree().clone() else {
                panic!("{sql}")
            };
            let Parsed::Query(query) = *tree else { panic!("{sql}") };
            let SetExpr::Select(mut select) = *query.body else { panic!("{sql}") };
            let Some(SelectItem::UnnamedExpr(expr)) = select.projection.first_mut() else { panic!("{sql}") };
            let _ = datafusion::sql::sqlparser::ast::visit_expressions_mut(expr, |expr| {
                rewrite(expr);
                std::ops::ControlFlow::<()>::Continue(())
            });
            assert_eq!(expr.to_string(), expected);
        }
    }
}
