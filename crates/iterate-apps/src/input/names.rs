//! Suggestions for misspelled names.

/// Returns `nearest names: a, b`, or lists the known names if none is similar.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<(usize, &str)> = known.map(|other| (distance(name, other), other)).collect();
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

/// Computes the Levenshtein distance, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
    let (a, b) = (letters(a), letters(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
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
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
