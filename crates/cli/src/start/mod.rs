//! The start of the command: the check of the processor, and the program that this process runs.
//!
//! The command is a binary, and also a function of the Python package's extension module. In the second case, the
//! process runs Python, and its arguments include Python's.

mod cpu;

pub use cpu::check as check_processor;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// The program that this process runs, and its arguments.
#[derive(Debug)]
pub struct Program {
    /// The name shown in usage messages, and the arguments after it.
    arguments: Vec<OsString>,
    python: Option<Python>,
}

/// The Python interpreter and the extension module that contains the command.
#[derive(Debug)]
struct Python {
    interpreter: PathBuf,
    module: PathBuf,
}

impl Program {
    /// Returns the binary of this process, with its arguments.
    pub fn binary() -> Self {
        Program { arguments: std::env::args_os().collect(), python: None }
    }

    /// Returns the command of the Python package, with the arguments after the command's name.
    pub fn in_python(arguments: Vec<OsString>, interpreter: PathBuf, module: PathBuf) -> Self {
        let arguments = std::iter::once("pellucid".into()).chain(arguments).collect();
        Program { arguments, python: Some(Python { interpreter, module }) }
    }

    /// Makes this the program of the process. The first call decides.
    pub(crate) fn register(self) -> &'static Self {
        PROGRAM.get_or_init(|| self)
    }

    /// Returns the program of this process.
    pub(crate) fn current() -> &'static Self {
        PROGRAM.get_or_init(Program::binary)
    }

    /// Returns the name of the program, and its arguments.
    pub(crate) fn name_and_arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Returns the arguments after the name of the program.
    pub(crate) fn arguments(&self) -> &[OsString] {
        self.arguments.get(1..).unwrap_or_default()
    }

    /// Returns the path of the file with the command's code: the binary or the extension module.
    pub(crate) fn file(&self) -> io::Result<PathBuf> {
        self.python.as_ref().map_or_else(std::env::current_exe, |python| Ok(python.module.clone()))
    }

    /// Returns a process to start that runs this program with the same arguments.
    pub(crate) fn again(&self) -> io::Result<Command> {
        let mut command = match &self.python {
            None => Command::new(self.file()?),
            Some(python) => {
                let mut command = Command::new(&python.interpreter);
                // Without -P, Python would import a folder `pellucid` of the working directory.
                command.args(["-P", "-m", "pellucid"]);
                command
            }
        };
        command.args(self.arguments());
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_of_the_package_starts_again_in_its_interpreter() {
        let given = vec!["sql".into(), "SELECT 1".into()];
        let program =
            Program::in_python(given.clone(), "/venv/bin/python".into(), "/site/pellucid/_native.so".into());
        assert_eq!(program.name_and_arguments()[0], "pellucid");
        assert_eq!(program.arguments(), given);
        assert_eq!(program.file().expect("given").to_str(), Some("/site/pellucid/_native.so"));
        let again = program.again().expect("given");
        assert_eq!(again.get_program(), "/venv/bin/python");
        let arguments: Vec<_> = again.get_args().collect();
        assert_eq!(arguments, ["-P", "-m", "pellucid", "sql", "SELECT 1"]);
    }
}
