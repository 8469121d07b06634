//! `json_structure`: the types of a JSON value, as JSON.

use std::borrow::Cow;

use crate::types::json::Json;

/// Returns the structure of a value: `{"a":"UBIGINT","b":["VARCHAR"]}`.
pub(super) fn of<'a>(json: &Json<'_>) -> Json<'a> {
    match json {
        Json::List(items) => {
            Json::List(vec![items.iter().map(of).reduce(merged).unwrap_or_else(|| name("NULL"))])
        }
        Json::Object(members) => {
            let of_member = |(key, value): &(String, Json<'_>)| (key.clone(), of(value));
            Json::Object(members.iter().map(of_member).collect())
        }
        scalar => name(scalar.type_name()),
    }
}

fn name<'a>(text: &'static str) -> Json<'a> {
    Json::Text(Cow::Borrowed(text))
}

/// Returns the structure of both.
fn merged<'a>(a: Json<'a>, b: Json<'a>) -> Json<'a> {
    let null = name("NULL");
    match (a, b) {
        (a, b) if a == b || b == null => a,
        (a, b) if a == null => b,
        (Json::List(a), Json::List(b)) => {
            Json::List(vec![a.into_iter().chain(b).reduce(merged).unwrap_or(null)])
        }
        (Json::Object(mut members), Json::Object(more)) => {
            for (key, value) in more {
                match members.iter_mut().find(|(name, _)| *name == key) {
                    Some((_, known)) => *known = merged(std::mem::replace(known, Json::Null), value),
                    None => members.push((key, value)),
                }
            }
            Json::Object(members)
        }
        (Json::Text(a), Json::Text(b)) => {
            let both = [a.as_ref(), b.as_ref()];
            let is = |names: &[&str]| both.iter().all(|name| names.contains(name));
            name(match both {
                _ if is(&["UBIGINT", "BIGINT", "HUGEINT"]) => "HUGEINT",
                _ if is(&["UBIGINT", "BIGINT", "HUGEINT", "DOUBLE"]) => "DOUBLE",
                _ => "JSON",
            })
        }
        _ => name("JSON"),
    }
}
