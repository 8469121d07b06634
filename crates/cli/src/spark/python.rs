//! Finds a Python interpreter that has PySpark.
//!
//! The search follows Spark's own order: `PYSPARK_DRIVER_PYTHON`, `PYSPARK_PYTHON`, and otherwise
//! `python3` on the path. If `SPARK_HOME` is set, the PySpark of that installation takes precedence,
//! as in its `bin/pyspark`.

use crate::failure::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Python interpreter that has PySpark.
#[derive(Debug)]
pub struct Python {
    program: OsString,
    /// Value of `PYTHONPATH`.
    path: Option<OsString>,
}

impl Python {
    /// Finds the user's interpreter.
    ///
    /// # Errors
    /// Returns an error that lists the interpreters tried if none has PySpark.
    pub fn find() -> Result<Python, Failure> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let named = ["PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"].into_iter().find_map(variable);
        let programs = named.map_or(vec!["python3".into(), "python".into()], |program| vec![program]);
        let path = variable("SPARK_HOME").map(PathBuf::from).and_then(|home| modules(&home));
        let mut tried = Vec::new();
        for program in programs {
            let python = Python { program, path: path.clone() };
            match python.check() {
                None => return Ok(python),
                Some(why) => tried.push(format!("{} {why}", python.program.display())),
            }
        }
        Err(Failure::Failed(format!(
            "cannot find PySpark: {}; install it (pip install pyspark sqlglot), or set PYSPARK_PYTHON to a \
             Python that has it, or SPARK_HOME to a Spark installation",
            tried.join(", ")
        )))
    }

    /// Returns why the interpreter cannot be used, or `None` if it has PySpark.
    fn check(&self) -> Option<String> {
        // Finding the module takes a tenth of the time of importing it.
        let program = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pyspark') is None)";
        let mut command = self.command();
        match command.args(["-c", program]).stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(status) if status.success() => None,
            Ok(status) if status.code() == Some(1) => Some("has no module pyspark".to_string()),
            Ok(status) => Some(format!("failed ({status})")),
            Err(error) => Some(format!("cannot be started ({error})")),
        }
    }

    /// Returns a command that runs the interpreter.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(path) = &self.path {
            command.env("PYTHONPATH", path);
        }
        command
    }
}

/// Returns the `PYTHONPATH` for the PySpark of a Spark installation, or `None` if it has none.
fn modules(home: &Path) -> Option<OsString> {
    let python = home.join("python");
    let lib = std::fs::read_dir(python.join("lib")).ok()?;
    let py4j = lib.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("py4j-") && name.ends_with(".zip")
    });
    let mut paths: Vec<PathBuf> = [Some(python), py4j].into_iter().flatten().collect();
    paths.extend(std::env::var_os("PYTHONPATH").iter().flat_map(std::env::split_paths));
    std::env::join_paths(paths).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spark_home_sets_the_module_path() {
        let home = tempfile::tempdir().expect("a folder");
        assert_eq!(modules(home.path()), None);
        let lib = home.path().join("python/lib");
        std::fs::create_dir_all(&lib).expect("made");
        std::fs::write(lib.join("py4j-0.10.9.9-src.zip"), "").expect("written");
        let paths: Vec<PathBuf> =
            std::env::split_paths(&modules(home.path()).expect("found")).take(2).collect();
        assert_eq!(paths, [home.path().join("python"), lib.join("py4j-0.10.9.9-src.zip")]);
    }

    #[test]
    fn missing_interpreter_is_reported() {
        let why = Python { program: "/nowhere/python".into(), path: None }.check();
        assert!(why.is_some_and(|why| why.contains("cannot be started")));
    }
}
