//! The binary of the `pellucid` command, which is in the library, since the Python package has it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Must run before any code that may use the instructions it checks for.
    pellucid_cli::check_processor();
    ExitCode::from(pellucid_cli::main(pellucid_cli::Program::binary()))
}
