//! Suggestions for misspelled names, ignoring case.

use strsim::levenshtein;

/// Returns `nearest names: a, b`, or lists the known names if none is similar.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let distance = |other: &str| levenshtein(&name.to_lowercase(), &other.to_lowercase());
    let mut known: Vec<(usize, &str)> = known.map(|other| (distance(other), other)).collect();
    known.sort();
    let max_distance = name.chars().count() / 3 + 1;
    let near: Vec<&str> =
        known.iter().filter(|(edits, _)| *edits <= max_distance).take(3).map(|(_, name)| *name).collect();
    if near.is_empty() {
        let mut all: Vec<&str> = known.iter().take(12).map(|(_, name)| *name).collect();
        if known.len() > all.len() {
            all.push("…");
        }
        return format!("it has {}", all.join(", "));
    }
    format!("nearest names: {}", near.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_lists_similar_names_or_else_all() {
        let known = || ["area", "radius", "label", "texture"].into_iter();
        assert_eq!(nearest("lable", known()), "nearest names: label");
        assert_eq!(nearest("Radus", known()), "nearest names: radius");
        assert_eq!(nearest("xyz", known()), "it has area, label, radius, texture");
    }
}
