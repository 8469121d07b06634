//! Scripts of `pellucid sql`: leading comments, parameters, and the place of a failed statement.

use std::ffi::OsString;

use pellucid_engine::Statement;

use crate::failure::Failure;

/// Parses `NAME=VALUE`.
pub fn parse_parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.trim_start_matches('$').into(), value.into())),
        _ => Err("expected NAME=VALUE, for example since=2024-01-01".to_string()),
    }
}

/// Marks an argument that starts with a comment of SQL (`-- why`) as a value, which clap would take for an option.
pub fn comment_as_value(argument: OsString) -> OsString {
    match argument.to_str() {
        Some(text) if text.starts_with("--") && text.len() > 2 && text.contains(char::is_whitespace) => {
            let is_option = text.split(char::is_whitespace).next().is_some_and(|word| word.contains('='));
            if is_option { argument } else { format!(" {text}").into() }
        }
        _ => argument,
    }
}

/// Sets the parameters of the statements.
pub fn bind(statements: &mut [Statement], parameters: &[(String, String)]) -> Result<(), Failure> {
    for (name, _) in parameters {
        let used =
            |statement: &Statement| statement.parameters().iter().any(|p| p.eq_ignore_ascii_case(name));
        if !statements.iter().any(used) {
            return Err(Failure::Usage(format!(
                "cannot set parameter {name}: no statement has ${name}; write it there, or remove --param {name}"
            )));
        }
    }
    statements.iter_mut().for_each(|statement| statement.bind(parameters));
    Ok(())
}

/// Adds the line of the statement to an error of a script that names no place.
pub fn located(failure: Failure, statement: (usize, u64), statements: usize) -> Failure {
    let (number, line) = statement;
    let place = |message: String| match message.contains("line ") || statements < 2 {
        true => message,
        false => format!("{message}\n  in statement {number} of {statements}, line {line}"),
    };
    match failure {
        Failure::Usage(message) => Failure::Usage(place(message)),
        Failure::Failed(message) => Failure::Failed(place(message)),
        other => other,
    }
}
