//! `pellucid completions` and `pellucid man`: files for an installation, from the definitions of `--help`.

use crate::console::Console;
use crate::failure::Failure;
use crate::output;
use clap_complete::Shell;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pellucid completions fish > ~/.config/fish/completions/pellucid.fish
  pellucid completions zsh > \"${fpath[1]}/_pellucid\"
  source <(pellucid completions bash)")]
pub struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  pellucid man -o man1")]
pub struct Man {
    /// The folder to write; it must not exist, or be empty
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
}

/// Runs `completions`.
pub fn completions(
    arguments: &Completions,
    mut command: clap::Command,
    console: &Console,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "pellucid", &mut script);
    if console.json {
        let script = String::from_utf8_lossy(&script);
        let document = json!({"shell": arguments.shell.to_string(), "script": script});
        return console.print_document("pellucid.completions/1", &document);
    }
    console.print(|out| out.write_all(&script))
}

/// Runs `man`.
pub fn man(arguments: &Man, command: clap::Command, console: &Console) -> Result<(), Failure> {
    let path = &arguments.output;
    output::write_whole_folder(path, |folder| clap_mangen::generate_to(command, folder))?;
    if console.json {
        return console.print_document("pellucid.man/1", &json!({"path": path.to_string_lossy()}));
    }
    console.note(&format!("wrote {}", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        crate::Arguments::command().debug_assert();
    }
}
