//! Names that are near to one that does not exist, for messages.

use strsim::damerau_levenshtein;

/// Maximum number of names that a message lists.
pub(super) const LISTED: usize = 8;

/// Proposes the names nearest to `name`, or lists the first ones.
pub(crate) fn hint(name: &str, known: Vec<String>, all: &str) -> String {
    let near = nearest(name, &known);
    if !near.is_empty() {
        return did_you_mean(&near);
    }
    let more = if known.len() > LISTED { ", …" } else { "" };
    format!("{all} {}{more}", known[..known.len().min(LISTED)].join(", "))
}

/// Returns the proposal of names.
pub(super) fn did_you_mean(near: &[String]) -> String {
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
}
