//! Locates the plugin's jar.
//!
//! Maven builds the jar and Cargo builds this program, so that either can be used without the other.
//! Spark runs the jar on the driver and on all executors. It is therefore taken only from the path in the
//! environment variable or from the folder of the program: others may be able to write to folders above.

use crate::failure::Failure;
use crate::start::Program;
use std::path::{Path, PathBuf};
use url::Url;

/// The plugin's class, for `spark.plugins`.
pub const CLASS: &str = "org.pellucid.spark.PellucidPlugin";
/// Environment variable with the path of the jar, which overrides the search.
const VARIABLE: &str = "PELLUCID_SPARK_JAR";
const FILE: &str = "pellucid-spark.jar";

/// Returns the path of the plugin's jar.
///
/// # Errors
/// Returns an error that names the expected path if the jar is not found.
pub fn jar() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        let path = PathBuf::from(named);
        // Executors have other working directories, so the path must be absolute.
        return path
            .canonicalize()
            .map_err(|error| Failure::file("use", format!("{VARIABLE}={}", path.display()), &error));
    }
    let program = Program::current().file().and_then(|path| path.canonicalize()).unwrap_or_default();
    let beside = program.with_file_name(FILE);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Failure::Failed(format!(
        "cannot find the plugin's jar: {} does not exist; build it there (make plugin), or set {VARIABLE} to its path",
        beside.display()
    )))
}

/// Returns the jar as an entry of Spark's list of jars: its path, or a URI if the path contains spaces or
/// other special characters, since the shell splits an unquoted `$(…)` at spaces.
///
/// # Errors
/// Returns an error for a path with a comma. Spark splits the list at commas, even if a URI encodes them.
pub fn location(jar: &Path) -> Result<String, Failure> {
    let path = jar.display().to_string();
    if path.contains(',') {
        return Err(Failure::Failed(format!(
            "cannot pass {path} to Spark: Spark splits its list of jars at commas; copy the jar to another \
             path, and set {VARIABLE} to it"
        )));
    }
    let encoded = Url::from_file_path(jar).ok().filter(|url| url.path() != path);
    Ok(encoded.map_or(path, String::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_contains_no_spaces() {
        let check =
            |path: &str, expected: &str| assert_eq!(location(Path::new(path)).expect("no comma"), expected);
        check("/opt/pellucid-0.1/pellucid-spark.jar", "/opt/pellucid-0.1/pellucid-spark.jar");
        check("/opt/my tools/a.jar", "file:///opt/my%20tools/a.jar");
        check("/opt/100%/é\t.jar", "file:///opt/100%25/%C3%A9%09.jar");
        assert!(location(Path::new("/opt/a,b/c.jar")).is_err());
    }
}
