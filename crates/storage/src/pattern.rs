//! Glob patterns for local paths: `*` matches any text within a name, `?` any character.
//!
//! Commands that read local files use these patterns. SQL uses the engine's, which also support
//! `**` and `[a-z]` and work on stores.

use std::path::{Path, PathBuf};

/// Returns the paths that match a pattern, sorted; a path without `*` and `?` matches itself.
pub fn matching(pattern: &Path) -> Vec<PathBuf> {
    let is_pattern = |text: &str| text.contains(['*', '?']);
    if pattern.exists() || !is_pattern(&pattern.to_string_lossy()) {
        return vec![pattern.to_owned()];
    }
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = component.as_os_str().to_string_lossy();
        if !is_pattern(&name) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        let inside = |folder: &PathBuf| {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.file_name())
                .filter(|entry| fits(&name, &entry.to_string_lossy()))
                .collect()
        };
        let deeper = |folder: &PathBuf| {
            let mut names: Vec<_> = inside(folder);
            names.sort();
            names.into_iter().map(|name| folder.join(name)).collect::<Vec<_>>()
        };
        found = found.iter().flat_map(deeper).collect();
    }
    found.retain(|path| path.exists());
    found
}

/// Returns true if a name matches a pattern of `*` (any text) and `?` (any character).
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            // Backtrack: the last star consumes one more character.
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, n) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name) in
            [("app-*", "app-1"), ("*", ""), ("a?c", "abc"), ("*_1*", "x_1_12"), ("a*b*c", "aXbYbZc")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("app-*", "ap-1"), ("a?c", "ac"), ("*_1", "x_12"), ("", "a")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn pattern_matches_folders_and_files() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a1/x.log", "a2/x.log", "a2/y.txt", "b/x.log"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        let found = matching(&folder.path().join("a*/*.log"));
        assert_eq!(found, [folder.path().join("a1/x.log"), folder.path().join("a2/x.log")]);
    }
}
