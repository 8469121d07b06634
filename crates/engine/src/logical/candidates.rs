//! Messages for unknown names: what was looked for, and the nearest names that exist.

use datafusion::common::{Column, DataFusionError, SchemaError};
use datafusion::execution::context::SessionState;

use crate::functions;
use crate::logical::messages;
use crate::logical::nearest::{LISTED, did_you_mean, hint, nearest};

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

/// Returns the names of all functions that a statement may call, in alphabetical order.
pub(crate) fn function_names(state: &SessionState) -> Vec<String> {
    let mut known: Vec<String> = state.scalar_functions().keys().cloned().collect();
    known.extend(state.aggregate_functions().keys().cloned());
    known.extend(state.window_functions().keys().cloned());
    known.extend(state.higher_order_functions().keys().cloned());
    known.extend(functions::names().map(str::to_string));
    known.retain(|name| !name.starts_with("pellucid_") && !name.starts_with("__"));
    known.sort();
    known.dedup();
    known
}

fn unknown_function(state: &SessionState, text: &str) -> Option<String> {
    let (name, _) = text.strip_prefix("Invalid function '")?.split_once('\'')?;
    if state.window_functions().contains_key(&name.to_lowercase()) {
        return Some(format!(
            "cannot call {name} without OVER: it is a window function; write {name}(…) OVER (ORDER BY …)"
        ));
    }
    let hint = match nearest(name, &function_names(state)) {
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
    let mut forms: Vec<&str> = forms
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "Candidate functions:")
        .skip(1)
        .filter(|form| !form.contains("UserDefined"))
        .collect();
    // Types that have one name here are several in DataFusion.
    forms.sort_unstable();
    forms.dedup();
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

#[cfg(test)]
mod tests {
    use super::*;

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
