//! Dot commands: their names, their arguments and their help.

use crate::failure::Failure;
use crate::output::Format;
use clap::ValueEnum;
use std::path::PathBuf;

/// A dot command with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Analyze,
    Exit,
    Help,
    /// The new format; without one, shows the current format.
    Mode(Option<Format>),
    Open(String),
    Plan,
    Read(PathBuf),
    Report(PathBuf),
    /// The table to describe; without one, all of them.
    Schema(Option<String>),
    Tables,
    /// Without a value, shows the current one.
    Timer(Option<bool>),
    /// Settings of `whatif`: `cores=4`, `disk.rate=50MB/s..400MB/s`.
    WhatIf(Vec<String>),
}

/// The description of a command.
pub struct Described {
    pub name: &'static str,
    arguments: &'static str,
    help: &'static str,
}

impl Described {
    /// Returns the words that its argument may be, if they are few.
    pub fn values(&self) -> Vec<String> {
        self.arguments
            .trim_matches(['[', ']'])
            .split('|')
            .filter(|value| value.starts_with(|c: char| c.is_lowercase()))
            .map(String::from)
            .collect()
    }
}

/// The page that `.report` writes unless it is told otherwise.
const REPORT: &str = "report.html";

const fn described(name: &'static str, arguments: &'static str, help: &'static str) -> Described {
    Described { name, arguments, help }
}

/// All commands, in alphabetical order.
pub const ALL: [Described; 12] = [
    described(".analyze", "", "show where the last query spent its time"),
    described(".exit", "", "leave, as Ctrl-D does"),
    described(".help", "", "show this list"),
    described(".mode", "[box|csv|json|markdown]", "set or show the format of results"),
    described(".open", "PATH", "make a table of a file, or of each in a folder"),
    described(".plan", "", "show the last query's stages and operators"),
    described(".read", "FILE", "run the statements of a file"),
    described(".report", "[FILE.html]", "write the last query's report [report.html]"),
    described(".schema", "[TABLE]", "show the columns of a table, or of all tables"),
    described(".tables", "", "list tables and views"),
    described(".timer", "[on|off]", "show elapsed and processor time of statements"),
    described(".whatif", "[KEY=VALUE…]", "predict the last query's time, say for cores=x2"),
];

/// Parses a line that [`super::lexer::is_command`] accepts.
///
/// # Errors
/// Returns an error if the command is unknown or its arguments do not fit.
pub fn parse(line: &str) -> Result<Command, Failure> {
    let words = words(line.trim().trim_end_matches(';'))?;
    let (name, arguments) = words.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    let name = match name.to_lowercase().as_str() {
        "exit" | "quit" | ".quit" => ".exit".to_string(),
        "help" => ".help".to_string(),
        name => name.to_string(),
    };
    let unfit = || {
        let described = ALL.iter().find(|one| one.name == name);
        let arguments = described.map_or("", |one| one.arguments);
        Failure::Usage(
            format!("cannot run {}: expected {name} {arguments}", line.trim()).trim_end().to_string(),
        )
    };
    Ok(match (name.as_str(), arguments) {
        (".analyze", []) => Command::Analyze,
        (".exit", []) => Command::Exit,
        (".help", []) => Command::Help,
        (".mode", []) => Command::Mode(None),
        (".mode", [format]) => Command::Mode(Some(Format::from_str(format, true).map_err(|_| unfit())?)),
        (".open", [path]) => Command::Open(path.clone()),
        (".plan", []) => Command::Plan,
        (".read", [path]) => Command::Read(path.into()),
        (".report", []) => Command::Report(REPORT.into()),
        (".report", [path]) => Command::Report(path.into()),
        (".schema", []) => Command::Schema(None),
        (".schema", [table]) => Command::Schema(Some(table.clone())),
        (".tables", []) => Command::Tables,
        (".timer", []) => Command::Timer(None),
        (".timer", [value]) if value == "on" => Command::Timer(Some(true)),
        (".timer", [value]) if value == "off" => Command::Timer(Some(false)),
        (".whatif", settings) => Command::WhatIf(settings.to_vec()),
        _ if ALL.iter().any(|one| one.name == name) => return Err(unfit()),
        _ => {
            return Err(Failure::Usage(format!(
                "cannot run {name}: unknown command; .help lists the commands"
            )));
        }
    })
}

/// Divides a line into words, which quotes may hold together.
fn words(line: &str) -> Result<Vec<String>, Failure> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if matches!(c, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(Failure::Usage(format!("cannot run {line}: the quote {open} is not closed; close it")));
    }
    words.extend(word);
    Ok(words)
}

/// Returns the list of commands and keys.
pub fn help() -> String {
    let lines =
        ALL.iter().map(|one| format!("{:<31}{}\n", format!("{} {}", one.name, one.arguments), one.help));
    let keys = "\
Statements end with `;` and may have several lines. Tab completes names, words
and paths; Ctrl-R searches the history; Ctrl-C stops a query; Ctrl-D leaves.
";
    lines.collect::<String>() + keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_arguments() {
        let settings =
            |settings: &[&str]| Command::WhatIf(settings.iter().map(ToString::to_string).collect());
        for (line, command) in [
            (".tables", Command::Tables),
            (" .TABLES ; ", Command::Tables),
            (".mode", Command::Mode(None)),
            (".mode CSV", Command::Mode(Some(Format::Csv))),
            (".timer on", Command::Timer(Some(true))),
            (".schema", Command::Schema(None)),
            (".schema 'my table'", Command::Schema(Some("my table".to_string()))),
            (".open \"it's.csv\"", Command::Open("it's.csv".to_string())),
            (".read  a.sql", Command::Read("a.sql".into())),
            (".report", Command::Report("report.html".into())),
            (".whatif", settings(&[])),
            (".whatif cores=4  disk.rate=x2", settings(&["cores=4", "disk.rate=x2"])),
            ("exit", Command::Exit),
            ("QUIT;", Command::Exit),
        ] {
            assert_eq!(parse(line).ok(), Some(command), "{line}");
        }
    }

    #[test]
    fn unfit_arguments_name_those_that_fit() {
        for (line, message) in [
            (".mode xml", "cannot run .mode xml: expected .mode [box|csv|json|markdown]"),
            (".tables x", "cannot run .tables x: expected .tables"),
            (".open", "cannot run .open: expected .open PATH"),
            (".timer maybe", "cannot run .timer maybe: expected .timer [on|off]"),
            (".none", "cannot run .none: unknown command; .help lists the commands"),
            (".", "cannot run .: unknown command; .help lists the commands"),
            (".open 'a", "cannot run .open 'a: the quote ' is not closed; close it"),
        ] {
            assert_eq!(
                parse(line).err().and_then(|failure| failure.message().map(String::from)).as_deref(),
                Some(message)
            );
        }
    }

    #[test]
    fn help_fits_80_columns_and_lists_every_command_and_format() {
        let help = help();
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        assert!(ALL.iter().all(|one| help.contains(one.name)) && ALL.is_sorted_by_key(|one| one.name));
        let modes = ALL.iter().find(|one| one.name == ".mode").map(Described::values).unwrap_or_default();
        let formats = Format::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        assert_eq!(modes, formats.map(|value| value.get_name().to_string()).collect::<Vec<_>>());
    }
}
