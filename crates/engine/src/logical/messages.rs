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
    None
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
        ] {
            let message = rewrite(text).unwrap();
            assert!(message.contains(expected), "{message}");
        }
        assert_eq!(rewrite("other"), None);
    }
}
