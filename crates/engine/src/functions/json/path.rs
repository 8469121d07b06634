//! Paths into JSON: `$.a.b[0]`, `/a/b/0`, or the name of a key.

use crate::types::json::Json;

/// A path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Key(String),
    /// An element; a negative number counts from the end.
    Index(i64),
    /// A key of an object, or the number of an element.
    Pointer(String),
    /// `.*`
    Values,
    /// `[*]`
    Elements,
    /// `..`: the value and all within it.
    Within,
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    /// Returns the cause if it is not one.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix('$') {
            return steps(rest).map(Self).ok_or_else(|| {
                format!("`{text}` is not a path; use the form $.key[0], \"key.with.dots\" in quotes")
            });
        }
        if let Some(rest) = text.strip_prefix('/') {
            let step = |part: &str| Step::Pointer(part.replace("~1", "/").replace("~0", "~"));
            return Ok(Self(rest.split('/').map(step).collect()));
        }
        Ok(Self(if text.is_empty() { Vec::new() } else { vec![Step::Key(text.to_string())] }))
    }

    /// Returns the path of an element.
    pub(crate) fn index(at: i64) -> Self {
        Self(vec![Step::Index(at)])
    }

    /// Returns true if the path may find any number of values.
    pub(crate) fn is_wild(&self) -> bool {
        self.0.iter().any(|step| matches!(step, Step::Values | Step::Elements | Step::Within))
    }

    /// Returns the values at the path.
    pub(crate) fn find<'a, 'b>(&self, json: &'b Json<'a>) -> Vec<&'b Json<'a>> {
        self.0.iter().fold(vec![json], |found, step| {
            let mut next = Vec::new();
            found.into_iter().for_each(|json| step.take(json, &mut next));
            next
        })
    }
}

impl Step {
    fn take<'a, 'b>(&self, json: &'b Json<'a>, found: &mut Vec<&'b Json<'a>>) {
        match (self, json) {
            (Step::Key(key) | Step::Pointer(key), Json::Object(_)) => found.extend(json.get(key)),
            (Step::Index(at), Json::List(items)) => {
                let at = if *at < 0 { items.len() as i64 + at } else { *at };
                found.extend(usize::try_from(at).ok().and_then(|at| items.get(at)));
            }
            (Step::Pointer(digits), Json::List(items)) => {
                let plain = digits == "0" || !digits.starts_with('0');
                found.extend(digits.parse::<usize>().ok().filter(|_| plain).and_then(|at| items.get(at)));
            }
            (Step::Values, Json::Object(members)) => found.extend(members.iter().map(|(_, value)| value)),
            (Step::Elements, Json::List(items)) => found.extend(items),
            (Step::Within, _) => within(json, found),
            _ => {}
        }
    }
}

fn within<'a, 'b>(json: &'b Json<'a>, found: &mut Vec<&'b Json<'a>>) {
    found.push(json);
    match json {
        Json::List(items) => items.iter().for_each(|item| within(item, found)),
        Json::Object(members) => members.iter().for_each(|(_, value)| within(value, found)),
        _ => {}
    }
}

/// Reads the steps after `$`; `None` if they are wrong.
fn steps(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (inner, after) = after.split_once(']')?;
            let digits = |text: &str| -> Option<i64> {
                text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
            };
            steps.push(match inner {
                "*" => Step::Elements,
                // Behind the last element.
                "#" => Step::Index(i64::MAX),
                _ => match inner.strip_prefix("#-").or_else(|| inner.strip_prefix('-')) {
                    Some(from_end) => Step::Index(-digits(from_end)?),
                    None => Step::Index(digits(inner)?),
                },
            });
            rest = after;
            continue;
        }
        rest = rest.strip_prefix('.')?;
        if let Some(after) = rest.strip_prefix('.') {
            steps.push(Step::Within);
            rest = after;
            if rest.starts_with('[') {
                continue;
            }
        }
        let (key, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        if key.is_empty() {
            return None;
        }
        steps.push(if key == "*" { Step::Values } else { Step::Key(key.to_string()) });
        rest = after;
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_values() {
        let json = Json::parse(r#"{"a":{"b":[10,20]},"c.d":1,"e/f":2}"#).unwrap();
        for (path, expected) in [
            ("$", vec![json.to_string()]),
            ("$.a.b[1]", vec!["20".into()]),
            ("$.a.b[#-1]", vec!["20".into()]),
            ("$.a.b[-2]", vec!["10".into()]),
            ("$.a.b[#]", vec![]),
            ("$.a.b[*]", vec!["10".into(), "20".into()]),
            ("$..b", vec!["[10,20]".into()]),
            ("/a/b/0", vec!["10".into()]),
            ("/a/b/00", vec![]),
            ("/e~1f", vec!["2".into()]),
            ("c.d", vec!["1".into()]),
            ("$.\"c.d\"", vec!["1".into()]),
        ] {
            let found = Path::parse(path).unwrap();
            let found: Vec<String> = found.find(&json).iter().map(|value| value.to_string()).collect();
            assert_eq!(found, expected, "{path}");
        }
        for path in ["$a", "$.", "$[", "$[x]", "$.a[", "$['a']", "$.\"a"] {
            assert!(Path::parse(path).is_err(), "{path}");
        }
    }
}
