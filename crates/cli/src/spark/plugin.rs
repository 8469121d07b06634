//! Locates the plugin's jar.
//!
//! Maven builds the jar and Cargo builds this binary, so that either can be used without the other.
//! The jar is searched for at the path in the environment variable, next to the binary (where it is
//! installed), and in a checkout of this project. Spark runs it on the driver and on all executors, so a jar
//! in a checkout must belong to this user or root: the folders above a binary may be writable by others.

use crate::failure::Failure;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use url::Url;

/// The plugin's class, for `spark.plugins`.
pub const CLASS: &str = "org.pellucid.spark.PellucidPlugin";
/// Environment variable with the path of the jar, which overrides the search.
const VARIABLE: &str = "PELLUCID_SPARK_JAR";
const FILE: &str = "pellucid-spark.jar";
/// Maven's output folder in a checkout.
const BUILT: &str = "spark-plugin/target";
/// The checkout in which this binary was built.
const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the path of the plugin's jar.
///
/// # Errors
/// Returns an error that lists the searched locations if the jar is not found.
pub fn jar() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        let path = PathBuf::from(named);
        // Executors have other working directories, so the path must be absolute.
        return path
            .canonicalize()
            .map_err(|error| Failure::file("use", format!("{VARIABLE}={}", path.display()), &error));
    }
    let binary = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    find(&binary, Path::new(CHECKOUT)).ok_or_else(|| {
        let beside = binary.parent().unwrap_or(Path::new(".")).display();
        Failure::Failed(format!(
            "cannot find the plugin's jar: {FILE} is neither in {beside} nor in {BUILT} of the checkout (where it \
             must belong to this user or root); build it (make spark-plugin/target/pellucid-spark.jar), or set \
             {VARIABLE} to its path"
        ))
    })
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

/// Returns the jar that belongs to a binary at this path. Searches the checkout above the binary as well as the
/// original one, since the checkout may have been moved, or its build folder may be elsewhere.
fn find(binary: &Path, checkout: &Path) -> Option<PathBuf> {
    let beside = binary.parent().map(|folder| folder.join(FILE)).filter(|path| path.is_file());
    let checkouts = binary.ancestors().skip(1).chain([checkout]).filter(|folder| is_checkout(folder));
    let mut built = checkouts.map(|folder| folder.join(BUILT).join(FILE));
    let found = beside.or_else(|| built.find(|path| is_own(path)))?;
    Some(found.canonicalize().unwrap_or(found))
}

/// Returns whether a folder is a checkout of this project.
fn is_checkout(folder: &Path) -> bool {
    let package = format!("name = \"{}\"", env!("CARGO_PKG_NAME"));
    let manifest = std::fs::read_to_string(folder.join("crates/cli/Cargo.toml"));
    folder.join("Cargo.toml").is_file() && manifest.is_ok_and(|text| text.lines().any(|line| line == package))
}

/// Returns whether a path is a file that belongs to this user or root.
fn is_own(path: &Path) -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let user = unsafe { libc::geteuid() };
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && [0, user].contains(&file.uid()))
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

    #[test]
    fn jar_next_to_the_binary_takes_precedence() {
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
        let checkout = |folder: &str| {
            made(&format!("{folder}/Cargo.toml"));
            let manifest = made(&format!("{folder}/crates/cli/Cargo.toml"));
            std::fs::write(manifest, "[package]\nname = \"pellucid-cli\"\n").expect("written");
        };
        let elsewhere = made("elsewhere/spark-plugin/target/pellucid-spark.jar");
        let built = made("spark-plugin/target/pellucid-spark.jar");
        assert_eq!(find(&binary, &folder.path().join("elsewhere")), None, "these are not checkouts");
        checkout("elsewhere");
        assert_eq!(find(&binary, &folder.path().join("elsewhere")), Some(elsewhere));
        checkout(".");
        assert_eq!(find(&binary, &folder.path().join("elsewhere")), Some(built.clone()));
        // SAFETY: geteuid has no preconditions and cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            std::os::unix::fs::chown(&built, Some(65534), None).expect("changed");
            assert_eq!(find(&binary, &nowhere), None, "it belongs to another user");
        }
        let beside = made("target/release/pellucid-spark.jar");
        assert_eq!(find(&binary, &nowhere), Some(beside));
    }
}
