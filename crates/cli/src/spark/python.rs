//! Which Python has PySpark.
//!
//! In the order in which Spark itself looks: `PYSPARK_DRIVER_PYTHON`, `PYSPARK_PYTHON`, else the
//! `python3` of the path. With `SPARK_HOME` set, the PySpark of that installation goes first, as
//! in its own `bin/pyspark`.

use crate::failure::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Python that has PySpark.
#[derive(Debug)]
pub struct Python {
    program: OsString,
    /// What `PYTHONPATH` has to be.
    path: Option<OsString>,
}

impl Python {
    /// The user's.
    ///
    /// # Errors
    /// When none has PySpark, with those that were asked.
    pub fn find() -> Result<Python, Failure> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let named = ["PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"].into_iter().find_map(variable);
        let programs = named.map_or(vec!["python3".into(), "python".into()], |program| vec![program]);
        let path = variable("SPARK_HOME").map(PathBuf::from).and_then(|home| modules(&home));
        let mut asked = Vec::new();
        for program in programs {
            let python = Python { program, path: path.clone() };
            match python.lacks() {
                None => return Ok(python),
                Some(why) => asked.push(format!("{} {why}", python.program.display())),
            }
        }
        Err(Failure::Failed(format!(
            "PySpark was not found: {}; install it (pip install pyspark sqlglot), or name a Python that has it \
             (PYSPARK_PYTHON=…), or an installation of Spark (SPARK_HOME=…)",
            asked.join(", ")
        )))
    }

    /// Why it is not the one; `None`: it has PySpark.
    fn lacks(&self) -> Option<String> {
        // Found, not loaded: that takes a tenth of the time.
        let question = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pyspark') is None)";
        let mut command = self.command();
        match command.args(["-c", question]).stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(status) if status.success() => None,
            Ok(status) if status.code() == Some(1) => Some("has no module pyspark".to_string()),
            Ok(status) => Some(format!("does not run ({status})")),
            Err(error) => Some(format!("cannot be started ({error})")),
        }
    }

    /// To run it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(path) = &self.path {
            command.env("PYTHONPATH", path);
        }
        command
    }
}

/// `PYTHONPATH` for the PySpark within an installation of Spark; `None` where there is none in it.
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
    fn an_installation_brings_its_modules() {
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
    fn a_program_that_is_none_says_so() {
        let why = Python { program: "/nowhere/python".into(), path: None }.lacks();
        assert!(why.is_some_and(|why| why.contains("cannot be started")));
    }
}
