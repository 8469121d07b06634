//! Messages for unknown names: what was looked for, and the nearest names that exist.

use datafusion::common::{Column, DataFusionError, SchemaError};
use datafusion::execution::context::SessionState;
use strsim::damerau_levenshtein;

use crate::functions;
use crate::logical::messages;

/// Maximum number of names that a message lists.
const LISTED: usize = 8;

/// Rewrites the error of an unknown or ambiguous name.
pub(crate) fn rewrite(state: &SessionState, error: DataFusionError) -> DataFusionError {
    let message = match error.find_root() {
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => Some(unknown_column(field, valid_fields)),
            SchemaError::AmbiguousReference { field } => Some(format!(
                "column {} is in more than one table; write the table before it (t.{})",
                field.name, field.name
            )),
            SchemaError::DuplicateQualifiedField { qualifier, .. } => {
                Some(messages::duplicate_table(&qualifier.to_string()))
            }
            _ => None,
        },
        DataFusionError::Plan(text) => unknown_function(state, text)
            .or_else(|| wrong_arguments(text))
            .or_else(|| messages::rewrite(text)),
        DataFusionError::NotImplemented(text) => messages::rewrite(text),
        DataFusionError::Execution(text) => wrong_arguments(text),
        _ => None,
    };
    message.map_or(error, DataFusionError::Plan)
}

fn unknown_column(field: &Column, valid: &[Column]) -> String {
    let name = field.flat_name();
    // Columns of the engine's own, which no statement can name.
    let valid: Vec<Column> = valid.iter().filter(|other| !other.name.starts_with("__")).cloned().collect();
    let valid = &valid[..];
    if valid.is_empty() {
        return format!("cannot find column {name}: there is no table here; for text, use single quotes");
    }
    // With a table before it, only this table's columns.
    let of_table: Vec<&Column> =
        valid.iter().filter(|other| field.relation.is_none() || other.relation == field.relation).collect();
    if let (Some(table), true) = (&field.relation, of_table.is_empty()) {
        let mut tables: Vec<String> =
            valid.iter().filter_map(|other| Some(other.relation.as_ref()?.table().to_string())).collect();
        tables.sort();
        tables.dedup();
        return format!(
            "cannot find table {}; {}",
            table.table(),
            hint(table.table(), tables, "the tables are")
        );
    }
    let mut columns: Vec<String> = Vec::new();
    for column in of_table {
        if !columns.contains(&column.name) {
            columns.push(column.name.clone());
        }
    }
    format!("cannot find column {name}; {}", hint(&field.name, columns, "the columns are"))
}

fn unknown_function(state: &SessionState, text: &str) -> Option<String> {
    let (name, _) = text.strip_prefix("Invalid function '")?.split_once('\'')?;
    let mut known: Vec<String> = state.scalar_functions().keys().cloned().collect();
    known.extend(state.aggregate_functions().keys().cloned());
    known.extend(state.window_functions().keys().cloned());
    known.extend(state.higher_order_functions().keys().cloned());
    known.extend(functions::names().cloned());
    known.retain(|name| !name.starts_with("pellucid_"));
    known.sort();
    known.dedup();
    let hint = match nearest(name, &known) {
        near if near.is_empty() => "SHOW FUNCTIONS lists those that exist".to_string(),
        near => did_you_mean(&near),
    };
    Some(format!("cannot find function {name}; {hint}"))
}

/// Shortens the error of a call whose arguments do not fit, which DataFusion wraps and follows with a list of types.
fn wrong_arguments(text: &str) -> Option<String> {
    let (before, after) = text.split_once("No function matches the given name and argument types '")?;
    if let Some((_, own)) = before.rsplit_once("coercion failed with: ")
        && let Some(at) = own.find("cannot ")
    {
        return Some(own[at..].trim_end_matches(['.', ' ']).to_string());
    }
    let (call, forms) = after.split_once('\'')?;
    let forms: Vec<&str> = forms
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "Candidate functions:")
        .skip(1)
        .filter(|form| !form.contains("UserDefined"))
        .collect();
    let way_out = match &forms[..] {
        [] => "CAST the arguments".to_string(),
        [form, ..] if forms.len() <= LISTED => {
            let forms = if forms.len() == 1 { form.to_string() } else { forms.join(" or ") };
            format!("it takes {forms}")
        }
        _ => "CAST the arguments".to_string(),
    };
    Some(format!("cannot call {call}: the number or the types of the arguments do not fit; {way_out}"))
}

/// Proposes the names nearest to `name`, or lists the first ones.
pub(crate) fn hint(name: &str, known: Vec<String>, all: &str) -> String {
    let near = nearest(name, &known);
    if !near.is_empty() {
        return did_you_mean(&near);
    }
    let more = if known.len() > LISTED { ", …" } else { "" };
    format!("{all} {}{more}", known[..known.len().min(LISTED)].join(", "))
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [before @ .., last] if !before.is_empty() => format!("did you mean {} or {last}?", before.join(", ")),
        near => format!("did you mean {}?", near.join(", ")),
    }
}

/// Returns up to three of the names that differ from `name` in few characters, or begin or end with it, the
/// nearest first and in a fixed order.
pub(crate) fn nearest(name: &str, known: &[String]) -> Vec<String> {
    let name = name.to_lowercase();
    let length = name.chars().count();
    let mut near: Vec<(usize, &String)> = Vec::new();
    for other in known {
        let lower = other.to_lowercase();
        let distance = damerau_levenshtein(&name, &lower);
        let part = length >= 3
            && (lower.starts_with(&name)
                || lower.ends_with(&name)
                || name.starts_with(&lower) && lower.len() >= 3);
        if distance <= length.max(3) / 3 && distance < length {
            near.push((distance, other));
        } else if part {
            near.push((length + distance, other));
        }
    }
    near.sort();
    near.into_iter().take(3).map(|(_, name)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn nearest_names_come_first_and_unrelated_ones_do_not() {
        let known = names(&["name", "names", "nation", "age", "full_name", "Name2"]);
        assert_eq!(nearest("nam", &known), ["name", "Name2", "names"]);
        assert_eq!(nearest("zzz", &known), Vec::<String>::new());
        // A swap of two characters is one mistake.
        assert_eq!(nearest("nmae", &known), ["name"]);
    }

    #[test]
    fn unknown_column_lists_the_columns_of_its_table() {
        let column = |table: &str, name: &str| Column::new(Some(table), name);
        let valid = [column("t", "id"), column("t", "city"), column("u", "id")];
        let message = unknown_column(&Column::new(Some("t"), "cty"), &valid);
        assert_eq!(message, "cannot find column t.cty; did you mean city?");
        let message = unknown_column(&Column::new_unqualified("price"), &valid);
        assert_eq!(message, "cannot find column price; the columns are id, city");
        let message = unknown_column(&Column::new(Some("x"), "id"), &valid);
        assert_eq!(message, "cannot find table x; the tables are t, u");
        assert!(unknown_column(&Column::new_unqualified("a"), &[]).contains("single quotes"));
    }
}
