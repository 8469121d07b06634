//! Where the plugin's jar is.
//!
//! It is built by Maven and this binary by Cargo, so that either can be had without the other. The
//! jar is not part of the binary: it is looked for where the environment says, beside the binary
//! (as it is installed), and in the checkout that the binary was built in.

use crate::failure::Failure;
use std::path::{Path, PathBuf};
use url::Url;

/// The plugin's class, for `spark.plugins`.
pub const CLASS: &str = "org.pellucid.spark.PellucidPlugin";
/// Says where the jar is, whatever else there may be.
const VARIABLE: &str = "PELLUCID_SPARK_JAR";
const FILE: &str = "pellucid-spark.jar";
/// Where Maven puts it, in a checkout.
const BUILT: &str = "spark-plugin/target";
/// Where the sources of this binary were when it was built.
const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The plugin's jar.
///
/// # Errors
/// When there is none, with where it was looked for.
pub fn jar() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        let path = PathBuf::from(named);
        // Executors are started elsewhere: a relative path means nothing to them.
        return path
            .canonicalize()
            .map_err(|error| Failure::file("use", format!("{VARIABLE}={}", path.display()), &error));
    }
    let binary = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    find(&binary, Path::new(CHECKOUT)).ok_or_else(|| {
        let beside = binary.parent().unwrap_or(Path::new(".")).display();
        Failure::Failed(format!(
            "the plugin's jar was not found: {FILE} is not in {beside}, nor in {BUILT} of the checkout it was built in; \
             build it (make spark-plugin/target/pellucid-spark.jar), or say where it is ({VARIABLE}=PATH)"
        ))
    })
}

/// The jar in Spark's list of jars: a path, or where it has a space or the like a URI, since an unquoted `$(…)` is split at
/// spaces.
///
/// # Errors
/// For a path with a comma, at which Spark splits the list, also where a URI has it encoded.
pub fn location(jar: &Path) -> Result<String, Failure> {
    let path = jar.display().to_string();
    if path.contains(',') {
        return Err(Failure::Failed(format!(
            "cannot give Spark {path}: it splits its list of jars at commas; copy the jar elsewhere and say where \
             ({VARIABLE}=PATH)"
        )));
    }
    let encoded = Url::from_file_path(jar).ok().filter(|url| url.path() != path);
    Ok(encoded.map_or(path, String::from))
}

/// The jar that belongs to a binary at this path: a checkout may have been moved with it, or its build folder
/// may be elsewhere.
fn find(binary: &Path, checkout: &Path) -> Option<PathBuf> {
    let beside = binary.parent().map(|folder| folder.join(FILE));
    let checkouts = binary.ancestors().skip(1).chain([checkout]);
    let built = checkouts.map(|folder| folder.join(BUILT).join(FILE));
    let found = beside.into_iter().chain(built).find(|path| path.is_file())?;
    Some(found.canonicalize().unwrap_or(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_one_word() {
        let check =
            |path: &str, expected: &str| assert_eq!(location(Path::new(path)).expect("no comma"), expected);
        check("/opt/pellucid-0.1/pellucid-spark.jar", "/opt/pellucid-0.1/pellucid-spark.jar");
        check("/opt/my tools/a.jar", "file:///opt/my%20tools/a.jar");
        check("/opt/100%/é\t.jar", "file:///opt/100%25/%C3%A9%09.jar");
        assert!(location(Path::new("/opt/a,b/c.jar")).is_err());
    }

    #[test]
    fn beside_the_binary_comes_before_the_checkout() {
        let folder = tempfile::tempdir().expect("a folder");
        let binary = folder.path().join("target/release/pellucid");
        let nowhere = folder.path().join("nowhere");
        assert_eq!(find(&binary, &nowhere), None);
        assert_eq!(find(&binary, &folder.path().join("elsewhere")), None);
        let made = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, "").expect("written");
            path.canonicalize().expect("a path")
        };
        let elsewhere = made("elsewhere/spark-plugin/target/pellucid-spark.jar");
        assert_eq!(find(&binary, &folder.path().join("elsewhere")), Some(elsewhere));
        let built = made("spark-plugin/target/pellucid-spark.jar");
        assert_eq!(find(&binary, &folder.path().join("elsewhere")), Some(built));
        let beside = made("target/release/pellucid-spark.jar");
        assert_eq!(find(&binary, &nowhere), Some(beside));
    }
}
