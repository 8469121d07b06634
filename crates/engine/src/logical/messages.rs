//! Messages of DataFusion's planner in the words of SQL, with a way out.

use crate::logical::nearest::hint;
use crate::types::names::in_text;

/// Names of types that a CAST may name.
const TYPES: &[&str] = &[
    "BIGINT",
    "BLOB",
    "BOOLEAN",
    "DATE",
    "DECIMAL",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "INTERVAL",
    "SMALLINT",
    "TIME",
    "TIMESTAMP",
    "TINYINT",
    "VARCHAR",
];

/// Rewrites a message; `None` for one that needs no other words.
pub(super) fn rewrite(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some((_, rest)) = text.split_once("While expanding wildcard, column \"") {
        let column = rest.split_once('"')?.0;
        let name = column.rsplit('.').next()?;
        return Some(format!(
            "column {name} is not in GROUP BY: a group may have several values of it; add it to GROUP BY, or use an \
             aggregate such as max({name})"
        ));
    }
    if let Some(rest) = text.strip_prefix("Cannot coerce arithmetic expression ") {
        let expression = in_text(rest.strip_suffix(" to valid types")?);
        return Some(format!(
            "cannot compute {expression}: the types do not fit; cast one side, for example CAST(… AS BIGINT)"
        ));
    }
    if text.starts_with("Cannot create filter with non-boolean predicate") {
        let kind = in_text(text.rsplit_once(" returning ")?.1);
        return Some(format!(
            "cannot use a value of type {kind} as a condition; compare it, for example x <> 0"
        ));
    }
    if text.ends_with("queries have different number of columns") {
        let message =
            "cannot combine queries with different numbers of columns; select as many columns in both";
        return Some(format!("{message} sides of {}", text.split(' ').next()?));
    }
    if text.starts_with("LIMIT must be >= 0") || text.starts_with("OFFSET must be >=0") {
        return Some("cannot use a negative LIMIT or OFFSET; write 0 or more, or remove it".to_string());
    }
    if let Some((clause, kind)) =
        text.strip_prefix("Expected ").and_then(|rest| rest.split_once(" to be an integer or null, but got "))
    {
        let kind = in_text(kind);
        return Some(format!("cannot use a value of type {kind} as {clause}; write a whole number"));
    }
    if let Some(rest) = text.strip_prefix("Order by column out of bounds, specified: ") {
        let (position, columns) = rest.split_once(", max: ")?;
        return Some(format!(
            "cannot order by column {position}: the result has {columns}; write a position from 1 to {columns}"
        ));
    }
    if let Some(rest) = text.strip_prefix("Too many columns! The subquery should only return one column: ") {
        let columns = rest.split(", ").count();
        return Some(format!("this subquery has {columns} columns and needs one; select one column in it"));
    }
    if text.contains("Correlated scalar subquery must be aggregated") {
        let message = "cannot use this subquery as a value, since it may give several rows; select an aggregate such as max(x), or add \
                       LIMIT 1";
        return Some(message.to_string());
    }
    if let Some(kind) = text.strip_prefix("Unsupported SQL type ") {
        let known = TYPES.iter().map(|name| name.to_string()).collect();
        return Some(format!("cannot find type {kind}; {}", hint(kind, known, "the types are")));
    }
    if let Some(rest) = text.strip_prefix("Source table contains ") {
        let (columns, rest) = rest.split_once(" columns but only ")?;
        let names = rest.split(' ').next()?;
        return Some(format!(
            "cannot name {columns} columns with {names} names; write as many names as columns"
        ));
    }
    if text.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        return Some("cannot use an aggregate in WHERE, which comes before grouping; use HAVING".to_string());
    }
    if text.starts_with("Physical plan does not support logical expression WindowFunction") {
        return Some("cannot use a window function in WHERE; use QUALIFY".to_string());
    }
    of_expression(text)
}

/// Rewrites a message about an expression.
fn of_expression(text: &str) -> Option<String> {
    let kind_after = |start: &str| text.strip_prefix(start).map(in_text);
    // The texts around `middle`, up to `end` if there is one.
    let between = |start: &str, middle: &str, end: Option<&str>| {
        let (left, rest) = text.strip_prefix(start)?.split_once(middle)?;
        let right = end.and_then(|end| rest.split_once(end)).map_or(rest, |(right, _)| right);
        Some((in_text(left), in_text(right)))
    };
    if text.starts_with("HAVING clause references: ") {
        let message = "cannot use this column in HAVING: a group may have several values of it; add it to GROUP BY, use an aggregate, or \
                       write the condition after WHERE";
        return Some(message.to_string());
    }
    if let Some((column, _)) = between("For SELECT DISTINCT, ORDER BY expressions ", " must appear", None) {
        return Some(format!(
            "cannot order the rows of SELECT DISTINCT by {column}, which is not one of their columns; add it after DISTINCT"
        ));
    }
    if text.starts_with("Aggregate function calls cannot be nested") {
        let message = "cannot use an aggregate within another; compute the inner one in a subquery: SELECT max(s) FROM (SELECT sum(x) AS s \
                       FROM … GROUP BY …)";
        return Some(message.to_string());
    }
    if let Some(kind) = kind_after("Unary operator 'NOT' requires a boolean expression, got ") {
        return Some(format!("cannot use NOT on a value of type {kind}; compare it, for example x = 0"));
    }
    if text.starts_with("Unary operator '-' only supports ") {
        return Some(
            "cannot negate this value: it is not a number or an interval; CAST it AS DOUBLE".to_string(),
        );
    }
    if let Some(sides) = kind_after("Cannot infer common argument type for logical boolean operation ") {
        return Some(format!(
            "cannot compute {sides}: both sides must be conditions; compare them, for example x <> 0"
        ));
    }
    if let Some((left, rest)) = between("There isn't a common type to coerce ", " and ", Some(" expression"))
    {
        let (right, operator) = rest.split_once(" in ")?;
        return Some(format!("cannot compare {left} with {right} by {operator}; CAST both sides AS VARCHAR"));
    }
    if text.starts_with("unnest() can only be applied to ") {
        let message = "cannot unnest this value: it is neither a list nor a struct; divide a text by string_split(x, ',')";
        return Some(message.to_string());
    }
    if let Some((_, kind)) = between("Cannot access field at argument ", ": type ", Some(" is not ")) {
        return Some(format!(
            "cannot take a field of a value of type {kind}; only structs and maps have fields"
        ));
    }
    if let Some(field) =
        text.strip_prefix("Field ").and_then(|rest| rest.strip_suffix(" not found in struct"))
    {
        return Some(format!("cannot find field {field} in the struct; typeof(x) shows its fields"));
    }
    if text.starts_with("QUALIFY clause requires window functions") {
        return Some("cannot use QUALIFY without a window function; use WHERE".to_string());
    }
    if let Some((values, rest)) =
        between("Inconsistent data length across values list: got ", " values in row ", None)
    {
        let (row, columns) = rest.split_once(" but expected ")?;
        let row = row.parse::<usize>().ok()? + 1;
        return Some(format!(
            "cannot use VALUES with rows of different lengths: row {row} has {values} values, and {columns} are \
             wanted; write as many in each row"
        ));
    }
    if let Some((window, _)) = between("The window ", " is not defined", None) {
        return Some(format!("cannot find window {window}; define it: WINDOW {window} AS (ORDER BY …)"));
    }
    if let Some((number, kind)) =
        between("Argument #", " must be an INTEGER, TIMESTAMP, DATE or NULL, got ", None)
    {
        return Some(format!(
            "cannot use a value of type {kind} as argument {number}; write a whole number, a date or a timestamp"
        ));
    }
    match text {
        "Step cannot be zero" => Some("cannot count by steps of 0; write another step".to_string()),
        "Expected an integer value" => {
            Some("cannot use this argument of the function: it must be a whole number".to_string())
        }
        _ => None,
    }
}

/// Rewrites the error of two tables with one name.
pub(super) fn duplicate_table(qualifier: &str) -> String {
    format!("cannot use {qualifier} for two tables; give one of them another alias")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_to_do() {
        for (text, expected) in [
            (
                "Cannot coerce arithmetic expression Utf8 + Int64 to valid types",
                "cannot compute VARCHAR + BIGINT",
            ),
            (
                "Order by column out of bounds, specified: 5, max: 1",
                "cannot order by column 5: the result has 1",
            ),
            ("Unsupported SQL type INTEGR", "did you mean INTEGER?"),
            (
                "Unary operator 'NOT' requires a boolean expression, got Int64",
                "NOT on a value of type BIGINT; compare",
            ),
            (
                "Cannot infer common argument type for logical boolean operation Utf8 AND Boolean",
                "cannot compute VARCHAR AND BOOLEAN: both sides",
            ),
            (
                "There isn't a common type to coerce Utf8 and Int64 in ILIKE expression",
                "cannot compare VARCHAR with BIGINT by ILIKE",
            ),
            (
                "Inconsistent data length across values list: got 1 values in row 1 but expected 2",
                "row 2 has 1 values, and 2 are wanted",
            ),
            ("The window w is not defined!", "cannot find window w; define it"),
        ] {
            let message = rewrite(text).unwrap();
            assert!(message.contains(expected), "{message}");
        }
        assert_eq!(rewrite("other"), None);
    }
}
