//! `pellucid sql`: runs statements in order and prints their results.

use crate::console::Console;
use crate::engine_options::EngineArguments;
use crate::execute::{Executed, execute};
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::{inputs, prompt, script, spark};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use clap::{Args, FromArgMatches};
use pellucid_engine::{Engine, EngineError, EngineOptions, Statement};
use pellucid_trace::Recorder;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Arguments of `sql`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file, glob pattern, folder or URL can be used as a table: FROM 'data/*.parquet'. '/dev/stdin' or '-' is \
standard input. The extension determines the format: .parquet, .csv, .tsv, .txt (CSV), .json, .jsonl or .ndjson (JSON lines), \
.arrow or .feather (Arrow IPC). Separate statements with `;`. FROM t is short for SELECT * FROM t.

Sizes use the units B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024). Rates are \
sizes per second (50MB/s) or bits per second (1Gbit/s).

With --json, integers and floats are numbers. Decimals, dates and times are strings, to preserve every \
digit. Lists are arrays and structs are objects (docs/json.md).

In CSV files, NULL and empty text are both written as an empty field, which reads back as NULL. JSON files \
omit NULLs and write NaN and infinities as null. Parquet preserves all values.

Example:
  pellucid sql \"SELECT count(*) FROM 'data/tpch/lineitem.parquet'\"
  pellucid sql -f report.sql --table sales='sales/*.parquet' -o report.csv
  pellucid sql --on spark='local[4]' -f report.sql --trace report.log")]
pub struct Arguments {
    /// Statements to run [default: a prompt on a terminal, otherwise read from standard input]
    #[arg(value_name = "QUERY")]
    query: Option<String>,
    /// Read the statements from a file (`-` for standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with = "query")]
    file: Option<PathBuf>,
    /// Register files as a table, for example sales='data/sales/*.parquet'
    #[arg(long = "table", value_name = "NAME=PATH", value_parser = parse_table)]
    tables: Vec<(String, String)>,
    /// Write the last statement's rows to FILE: Parquet, CSV or JSON lines, by extension
    #[arg(short, long, value_name = "FILE", conflicts_with = "format")]
    output: Option<String>,
    /// Set a parameter of the statements: $NAME, or $1 for the first `?` (repeatable)
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = script::parse_parameter)]
    parameters: Vec<(String, String)>,
    /// Output format of the rows
    #[arg(long, value_enum, default_value = "box")]
    format: Format,
    /// Show at most N rows of a result as a box; 0 shows all [default: 40 on a terminal, otherwise all]
    #[arg(long, value_name = "N")]
    max_rows: Option<usize>,
    /// Write the last statement's trace to FILE, for `pellucid analyze`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Sample the call stacks of compute threads into the trace, 99 times per second of core time
    #[arg(long, requires = "trace", conflicts_with = "on")]
    stacks: bool,
    /// Run on Apache Spark; requires PySpark, and uses Pellucid's plugin if its jar is found
    #[arg(long, value_name = "spark[=MASTER]", help_heading = "Spark")]
    on: Option<String>,
    /// Set a Spark property, for example spark.executor.memory=4g
    #[arg(long = "conf", value_name = "KEY=VALUE", value_parser = spark::parse_setting, requires = "on", help_heading = "Spark")]
    conf: Vec<(String, String)>,
    #[command(flatten)]
    engine: EngineArguments,
}

impl Default for Arguments {
    /// Returns the arguments of `sql` alone.
    fn default() -> Self {
        let command = Self::augment_args(clap::Command::new("sql"));
        let parsed = Self::from_arg_matches(&command.get_matches_from(["sql"]));
        parsed.unwrap_or_else(|error| error.exit())
    }
}

/// Parses `NAME=PATH`.
pub fn parse_table(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.into(), path.into())),
        _ => Err("expected NAME=PATH, for example sales='data/sales/*.parquet'".to_string()),
    }
}

/// Rejects two tables with the same name, since the second would hide the first.
fn check_names(tables: &[(String, String)]) -> Result<(), Failure> {
    let mut names = HashSet::new();
    // SQL folds names to lower case unless they are quoted.
    let normalized = |name: &str| match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.to_string(),
        None => name.to_lowercase(),
    };
    match tables.iter().find(|(name, _)| !names.insert(normalized(name))) {
        Some((name, _)) => Err(Failure::Usage(format!(
            "cannot register two tables as {name}: the second would hide the first; rename one of them"
        ))),
        None => Ok(()),
    }
}

/// Rejects outputs that name one file, or the file of the statements. An output may replace a table: it
/// appears after the table was read.
fn check_outputs(arguments: &Arguments) -> Result<(), Failure> {
    let (output, trace) = (arguments.output.as_deref().map(Path::new), arguments.trace.as_deref());
    output::check_outputs(&[("-o", output), ("--trace", trace)], arguments.file.as_deref())
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    check_names(&arguments.tables)?;
    if arguments.query.is_none() && arguments.file.is_none() && io::stdin().is_terminal() {
        return open_prompt(arguments, console);
    }
    if let Some(on) = &arguments.on {
        return on_spark(arguments, on, console);
    }
    let target = arguments.output.as_deref().map(Target::new).transpose()?;
    check_outputs(arguments)?;
    if let Some(trace) = &arguments.trace {
        output::check_local("--trace", trace)?;
        Recorder::check_path(trace)?;
    }
    let text = statements_text(arguments)?;
    let mut statements = Statement::parse_all(&text)?;
    script::bind(&mut statements, &arguments.parameters)?;
    let Some(last) = statements.pop() else { return Err(nothing_to_run()) };
    let count = statements.len() + 1;
    if target.is_some() {
        check_query(&last)?;
    }
    let stdin_taken = reads_stdin(arguments);
    let stacks = arguments.stacks;
    let engine = Engine::new(EngineOptions { stdin_taken, stacks, ..arguments.engine.options()? })?;
    for (name, path) in &arguments.tables {
        engine.declare_table(name, path)?;
    }
    let show = |executed: &Executed, sql: &str| {
        executed.show(sql, arguments.format, console.display_limits(arguments.max_rows), console)
    };
    let mut documents = Vec::new();
    // A closed pipe must not stop later statements.
    let mut stdout_closed = false;
    for (number, statement) in (1..).zip(statements) {
        let sql = statement.sql().to_string();
        let place = (number, statement.line());
        let executed = execute(&engine, statement, None, console)
            .map_err(|failure| script::located(failure, place, count))?;
        match show(&executed, &sql) {
            Err(Failure::BrokenPipe) => stdout_closed = true,
            printed => documents.extend(printed?),
        }
    }
    let trace = arguments.trace.as_deref();
    let sql = last.sql().to_string();
    let place = (count, last.line());
    let last = match &target {
        Some(target) => last.into_copy(&target.path, target.format, target.options),
        None => last,
    };
    let mut executed =
        execute(&engine, last, trace, console).map_err(|failure| script::located(failure, place, count))?;
    if let Some(why) = engine.no_stacks() {
        console.note(&format!("no stacks: {why}"));
    }
    let trace_failure = executed.result.trace_failure.take();
    let printed = match &target {
        Some(target) => report_written(&executed, copied_rows(&executed), target, console),
        None => show(&executed, &sql),
    };
    let printed = printed.and_then(|document| {
        documents.extend(document);
        if stdout_closed { Err(Failure::BrokenPipe) } else { print_documents(documents, console) }
    });
    trace_failure.map_or(printed, |message| Err(Failure::Failed(message)))
}

/// Opens the prompt, unless an option or a redirected stream has no use there.
fn open_prompt(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let options = [
        ("--json", console.json),
        ("--on", arguments.on.is_some()),
        ("-o", arguments.output.is_some()),
        ("--trace", arguments.trace.is_some()),
        ("--param", !arguments.parameters.is_empty()),
    ];
    let redirected = !io::stdout().is_terminal() || !io::stderr().is_terminal();
    let why = match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => format!("the prompt does not take {option}"),
        None if redirected => "the prompt needs a terminal for its output".to_string(),
        None => {
            let options = prompt::Options {
                engine: EngineOptions { stdin_taken: true, ..arguments.engine.options()? },
                tables: arguments.tables.clone(),
                format: arguments.format,
                max_rows: arguments.max_rows,
            };
            return prompt::run(options, console);
        }
    };
    Err(Failure::Usage(format!(
        "cannot open a prompt: {why}; pass a query (pellucid sql \"SELECT 1\") or a file (-f FILE), or pipe \
         statements to standard input"
    )))
}

/// Runs the command on Spark: all statements in one session, whose event log is the trace.
fn on_spark(arguments: &Arguments, on: &str, console: &Console) -> Result<(), Failure> {
    let master = spark::master(on)?;
    if let Some(option) = arguments.engine.given() {
        return Err(Failure::Usage(format!(
            "cannot use {option} with --on spark: it configures the local engine; remove it, or set a Spark \
             property with --conf KEY=VALUE"
        )));
    }
    let target = arguments.output.as_deref().map(Target::new).transpose()?;
    check_outputs(arguments)?;
    arguments.trace.as_deref().map_or(Ok(()), inputs::check_log_path)?;
    if let Some((name, _)) = arguments.parameters.first() {
        return Err(Failure::Usage(format!(
            "cannot set parameter {name} with --on spark: parameters are not translated; write the value into the statement"
        )));
    }
    let text = statements_text(arguments)?;
    let parsed = Statement::parse_all(&text);
    let ours = parsed.is_ok();
    let statements = match parsed {
        Ok(parsed) => {
            let last = parsed.last().ok_or_else(nothing_to_run)?;
            if target.is_some() {
                check_query(last)?;
            }
            parsed.iter().map(|statement| (statement.sql().to_string(), statement.line())).collect()
        }
        // Text that the grammar does not have may be valid Spark SQL; treat it as one statement.
        Err(EngineError::Syntax(_)) => vec![(text, 1)],
        Err(refused) => return Err(refused.into()),
    };
    let (conf, tables) = (&arguments.conf, &arguments.tables);
    let request = spark::Request { master, conf, tables, statements: &statements, ours };
    let mut ran = spark::run(&request, console)?;
    let kept = arguments.trace.as_deref().map_or(Ok(()), |path| ran.keep_log(path));
    let trace = arguments.trace.as_deref().filter(|_| kept.is_ok());
    // If all statements succeeded and only the trace could not be kept, still write the rows.
    let all_succeeded = ran.failure.is_none();
    let failure = ran.failure.take().or(kept.err());
    let executed: Vec<_> = ran.executed(trace).into_iter().zip(&statements).collect();
    let printed =
        print_results(executed, target.filter(|_| all_succeeded), all_succeeded, arguments, console);
    failure.map_or(printed, Err)
}

/// Prints the results and writes the last one to `target`, if given. With `--json`, prints a document
/// only if all statements succeeded.
fn print_results(
    executed: Vec<(Executed, &(String, u64))>,
    target: Option<Target>,
    all_succeeded: bool,
    arguments: &Arguments,
    console: &Console,
) -> Result<(), Failure> {
    let mut documents = Vec::new();
    let mut remaining = executed.into_iter().peekable();
    while let Some((executed, (statement, _))) = remaining.next() {
        documents.extend(match target.as_ref().filter(|_| remaining.peek().is_none()) {
            None => {
                let limits = console.display_limits(arguments.max_rows);
                executed.show(statement, arguments.format, limits, console)?
            }
            Some(target) => {
                let result = &executed.result;
                if result.schema.fields().is_empty() {
                    return Err(Failure::Usage(format!(
                        "cannot write {}: the last statement has no rows; end with a query",
                        target.path
                    )));
                }
                output::write_file(Path::new(&target.path), &result.schema, &result.batches)?;
                report_written(&executed, executed.rows(), target, console)?
            }
        });
    }
    if all_succeeded { print_documents(documents, console) } else { Ok(()) }
}

fn nothing_to_run() -> Failure {
    Failure::Usage("no statement to run; see `pellucid sql --help`".to_string())
}

/// Checks that the last statement is a query, whose rows `-o` writes.
fn check_query(last: &Statement) -> Result<(), Failure> {
    if last.is_query() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "cannot write rows with -o: the last statement is {}; end with a query (SELECT, FROM, WITH, VALUES, \
         TABLE)",
        last.keyword()
    )))
}

/// Returns true if the statements are read from standard input.
fn reads_stdin(arguments: &Arguments) -> bool {
    arguments.query.is_none() && arguments.file.as_deref().is_none_or(|path| path == Path::new("-"))
}

/// Reads the statements from the command line, a file, or standard input.
fn statements_text(arguments: &Arguments) -> Result<String, Failure> {
    match (&arguments.query, &arguments.file) {
        (Some(query), _) => return Ok(query.clone()),
        (None, Some(path)) if path != Path::new("-") => {
            return fs::read_to_string(path).map_err(|e| Failure::file("read", path.display(), &e));
        }
        _ => {}
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|e| Failure::file("read", "standard input", &e))?;
    Ok(text)
}

/// Returns the number of rows that `COPY` wrote, which is the only value of its result.
fn copied_rows(executed: &Executed) -> Option<u64> {
    let counts = executed.result.batches.iter().filter(|batch| batch.num_rows() > 0);
    let count = |batch: &RecordBatch| {
        batch.columns().first()?.as_primitive_opt::<UInt64Type>().map(|count| count.value(0))
    };
    counts.filter_map(count).next()
}

/// Prints the summary of a result whose rows were written to a file; with `--json`, returns the
/// document, without the rows.
fn report_written(
    executed: &Executed,
    rows: Option<u64>,
    target: &Target,
    console: &Console,
) -> Result<Option<Value>, Failure> {
    executed.print_summary(rows, console);
    console.note(&format!("written to {}", target.path));
    if !console.json {
        return Ok(None);
    }
    let mut document = executed.document()?;
    document["rows"] = json!([]);
    document["row_count"] = json!(rows);
    document["columns"] = json!([]);
    document["output"] = json!(target.path);
    Ok(Some(document))
}

/// Prints the document of a single statement, or one document that contains those of several.
fn print_documents(mut documents: Vec<Value>, console: &Console) -> Result<(), Failure> {
    if !console.json {
        return Ok(());
    }
    let document = match documents.pop() {
        Some(only) if documents.is_empty() => only,
        last => {
            documents.extend(last);
            let mut all = json!({});
            all["results"] = Value::Array(documents);
            all
        }
    };
    console.print_document("pellucid.result/1", &document)
}

/// A file for the rows. The engine's `COPY` writes it with write monotasks, under a temporary
/// name, and without holding the rows in memory.
struct Target {
    path: String,
    /// `STORED AS`.
    format: &'static str,
    /// `OPTIONS`.
    options: &'static [(&'static str, &'static str)],
}

impl Target {
    fn new(path: &str) -> Result<Self, Failure> {
        let ending = Path::new(path).extension().and_then(|ending| ending.to_str());
        let (format, options): (_, &[_]) = match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("parquet") => ("PARQUET", &[]),
            Some("csv") => ("CSV", &[("format.has_header", "true")]),
            Some("json" | "jsonl" | "ndjson") => ("JSON", &[]),
            _ => {
                return Err(Failure::Usage(format!(
                    "cannot infer the format of -o {path} from its extension; use .parquet, .csv or .json"
                )));
            }
        };
        Ok(Target { path: path.to_string(), format, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_table_names_are_usage_errors() {
        let table = |name: &str| (name.to_string(), "x.csv".to_string());
        assert!(check_names(&[table("a"), table("b"), table("\"A\"")]).is_ok());
        for (one, other) in [("a", "a"), ("a", "A"), ("a", "\"a\"")] {
            let refused = check_names(&[table(one), table(other)]).err();
            assert_eq!(refused.map(|failure| failure.exit_code()), Some(2), "{one} {other}");
        }
    }

    #[test]
    fn unsupported_output_is_a_usage_error() {
        let failure = Target::new("a.xlsx").err().unwrap();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.message().unwrap().contains(".parquet, .csv or .json"));
        let failure = check_query(&"CREATE VIEW v AS SELECT 1".parse().ok().unwrap()).err().unwrap();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.message().unwrap().contains("the last statement is CREATE"));
    }
}
