//! `pellucid sql`: runs statements one after another and prints their results.

use crate::console::Console;
use crate::engine_options::EngineArguments;
use crate::execute::{Executed, execute};
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::spark;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use pellucid_engine::Engine;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Columns that the line of a statement without a result takes of its text.
const STATEMENT_COLUMNS: usize = 72;

/// Arguments of `sql`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file, glob or folder can stand where a table does: FROM 'data/*.parquet'. The ending says the format: \
.parquet, .csv, .tsv, .txt (as CSV), .json, .jsonl or .ndjson (JSON lines), .arrow or .feather (Arrow IPC). \
Several statements are separated by `;`. FROM t alone means SELECT * FROM t.

Sizes are B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024); a rate is a size a \
second (50MB/s) or bits (1Gbit/s).

With --json: integers and floats are numbers; decimals, dates and times are text, so that no digit is lost; \
lists are arrays, structs are objects (docs/json.md).

In a CSV file, NULL and empty text are both an empty field; reading CSV, an empty field is NULL. A JSON file \
leaves NULLs out and has null for NaN and infinities. Parquet keeps everything.

Example:
  pellucid sql \"SELECT l_shipmode, count(*) FROM 'data/tpch/lineitem.parquet' GROUP BY l_shipmode\"
  pellucid sql -f report.sql --table sales='data/sales/*.parquet' -o report.parquet
  pellucid sql --on spark='local[4]' -f report.sql --trace report.log")]
pub struct Arguments {
    /// Statements to run [default: those of standard input]
    #[arg(value_name = "QUERY")]
    query: Option<String>,
    /// Read the statements from a file (`-`: standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with = "query")]
    file: Option<PathBuf>,
    /// Give files a table's name, for example sales='data/sales/*.parquet'
    #[arg(long = "table", value_name = "NAME=PATH", value_parser = parse_table)]
    tables: Vec<(String, String)>,
    /// Write the last statement's rows to FILE: Parquet, CSV or JSON lines by its ending
    #[arg(short, long, value_name = "FILE", conflicts_with = "format")]
    output: Option<String>,
    /// How to print rows
    #[arg(long, value_enum, default_value = "box")]
    format: Format,
    /// Keep the last statement's trace, for `pellucid analyze`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Run on Apache Spark, through a Python that has PySpark, with Pellucid's plugin where its jar is found
    #[arg(long, value_name = "spark[=MASTER]", help_heading = "Spark")]
    on: Option<String>,
    /// One of Spark's settings, for example spark.executor.memory=4g
    #[arg(long = "conf", value_name = "KEY=VALUE", value_parser = spark::parse_setting, requires = "on", help_heading = "Spark")]
    conf: Vec<(String, String)>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Reads `NAME=PATH`.
pub fn parse_table(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.into(), path.into())),
        _ => Err("it is a name and a path, for example sales='data/sales/*.parquet'".to_string()),
    }
}

/// Refuses two tables of one name: one would hide the other.
fn check_names(tables: &[(String, String)]) -> Result<(), Failure> {
    let mut names = HashSet::new();
    // As SQL would write it: in lower case unless it is quoted.
    let meant = |name: &str| match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.to_string(),
        None => name.to_lowercase(),
    };
    match tables.iter().find(|(name, _)| !names.insert(meant(name))) {
        Some((name, _)) => Err(Failure::Usage(format!(
            "cannot register two tables as {name}: the second would hide the first; name one of them differently"
        ))),
        None => Ok(()),
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    check_names(&arguments.tables)?;
    if let Some(on) = &arguments.on {
        return on_spark(arguments, on, console);
    }
    let target = arguments.output.as_deref().map(Target::new).transpose()?;
    arguments.trace.iter().try_for_each(|trace| output::check_local("--trace", trace))?;
    let text = statements_text(arguments)?;
    let mut statements = Engine::split_statements(&text)?;
    let Some(last) = statements.pop() else {
        return Err(Failure::Usage("there is no statement to run; see `pellucid sql --help`".to_string()));
    };
    let engine = Engine::new(arguments.engine.options()?)?;
    for (name, path) in &arguments.tables {
        engine.register_table(name, path)?;
    }
    let mut documents = Vec::new();
    // A reader that has enough of one statement's rows does not keep the next ones from running.
    let mut reader_gone = false;
    for statement in &statements {
        let executed = execute(&engine, statement, None, console)?;
        match report(&executed, statement, arguments, console) {
            Err(Failure::ReaderGone) => reader_gone = true,
            shown => documents.extend(shown?),
        }
    }
    let trace = arguments.trace.as_deref();
    let statement = target.as_ref().map_or(Ok(last.clone()), |target| target.copy(&last))?;
    let mut executed = execute(&engine, &statement, trace, console)?;
    let trace_failure = executed.result.trace_failure.take();
    let shown = match &target {
        Some(target) => report_written(&executed, copied(&executed), target, console),
        None => report(&executed, &last, arguments, console),
    };
    let shown = shown.and_then(|document| {
        documents.extend(document);
        if reader_gone { Err(Failure::ReaderGone) } else { print_documents(documents, console) }
    });
    trace_failure.map_or(shown, |words| Err(Failure::Failed(words)))
}

/// The same on Spark: all statements in one session, whose event log is the trace.
fn on_spark(arguments: &Arguments, on: &str, console: &Console) -> Result<(), Failure> {
    let master = spark::master(on)?;
    if let Some(option) = arguments.engine.given() {
        return Err(Failure::Usage(format!(
            "{option} says how this machine's engine runs; on Spark its own settings do: leave it out, or use \
             --conf KEY=VALUE"
        )));
    }
    let target = arguments.output.as_deref().map(Target::new).transpose()?;
    let text = statements_text(arguments)?;
    // What is no SQL of ours may be Spark's; it is one statement then.
    let split = Engine::split_statements(&text);
    let ours = split.is_ok();
    let statements = split.unwrap_or_else(|_| vec![text]);
    match (&target, statements.last()) {
        (_, None) => {
            return Err(Failure::Usage(
                "there is no statement to run; see `pellucid sql --help`".to_string(),
            ));
        }
        (Some(target), Some(last)) => drop(target.copy(last)?),
        (None, Some(_)) => {}
    }
    let (conf, tables) = (&arguments.conf, &arguments.tables);
    let request = spark::Request { master, conf, tables, statements: &statements, ours };
    let mut ran = spark::run(&request, console)?;
    let kept = arguments.trace.as_deref().map_or(Ok(()), |path| ran.keep_log(path));
    let trace = arguments.trace.as_deref().filter(|_| kept.is_ok());
    // Where all ran, and only its trace cannot be kept, the rows go where they should.
    let whole = ran.failure.is_none();
    let failure = ran.failure.take().or(kept.err());
    let answered: Vec<_> = ran.answered(trace).into_iter().zip(&statements).collect();
    let shown = show_answers(answered, target.filter(|_| whole), whole, arguments, console);
    failure.map_or(shown, Err)
}

/// Prints the answers, the last to a file where one is named; as a document where there are all of them.
fn show_answers(
    answered: Vec<(Executed, &String)>,
    target: Option<Target>,
    whole: bool,
    arguments: &Arguments,
    console: &Console,
) -> Result<(), Failure> {
    let mut documents = Vec::new();
    let mut answered = answered.into_iter().peekable();
    while let Some((executed, statement)) = answered.next() {
        documents.extend(match target.as_ref().filter(|_| answered.peek().is_none()) {
            None => report(&executed, statement, arguments, console)?,
            Some(target) => {
                let result = &executed.result;
                output::write_file(Path::new(&target.path), &result.schema, &result.batches)?;
                report_written(&executed, executed.rows(), target, console)?
            }
        });
    }
    if whole { print_documents(documents, console) } else { Ok(()) }
}

/// The statements: from the command line, a file, or standard input.
fn statements_text(arguments: &Arguments) -> Result<String, Failure> {
    match (&arguments.query, &arguments.file) {
        (Some(query), _) => return Ok(query.clone()),
        (None, Some(path)) if path != Path::new("-") => {
            return fs::read_to_string(path).map_err(|e| Failure::file("read", path.display(), &e));
        }
        (None, None) if io::stdin().is_terminal() => {
            return Err(Failure::Usage(
                "no query given, and the interactive prompt comes with a later version; give a query \
                 (pellucid sql \"SELECT 1\"), a file (-f FILE), or statements on standard input"
                    .to_string(),
            ));
        }
        _ => {}
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|e| Failure::file("read", "standard input", &e))?;
    Ok(text)
}

/// A statement without its line breaks.
fn one_line(statement: &str) -> String {
    statement.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Prints a result and its summary; with `--json`, returns the document instead.
fn report(
    executed: &Executed,
    statement: &str,
    arguments: &Arguments,
    console: &Console,
) -> Result<Option<Map<String, Value>>, Failure> {
    let document = if console.json {
        Some(executed.document().map_err(unprintable)?)
    } else {
        let result = &executed.result;
        // A statement that has no result (CREATE VIEW) prints nothing on standard output.
        if result.schema.fields().is_empty() {
            console.note(&format!("done: {}", output::fit(&one_line(statement), STATEMENT_COLUMNS)));
            return Ok(None);
        }
        console.print(|out| {
            output::write_result(out, arguments.format, &result.schema, &result.batches, console.cut())
        })?;
        None
    };
    note_end(executed, executed.rows(), console);
    Ok(document)
}

/// How many rows `COPY` wrote: it answers with one row that says so.
fn copied(executed: &Executed) -> Option<u64> {
    let counts = executed.result.batches.iter().filter(|batch| batch.num_rows() > 0);
    let count = |batch: &RecordBatch| {
        batch.columns().first()?.as_primitive_opt::<UInt64Type>().map(|count| count.value(0))
    };
    counts.filter_map(count).next()
}

/// The same for rows that went to a file; what they are is in the file.
fn report_written(
    executed: &Executed,
    rows: Option<u64>,
    target: &Target,
    console: &Console,
) -> Result<Option<Map<String, Value>>, Failure> {
    note_end(executed, rows, console);
    console.note(&format!("written to {}", target.path));
    if !console.json {
        return Ok(None);
    }
    let mut document = executed.document().map_err(unprintable)?;
    document.insert("rows".to_string(), json!([]));
    document.insert("row_count".to_string(), rows.into());
    document.insert("columns".to_string(), json!([]));
    document.insert("output".to_string(), target.path.as_str().into());
    Ok(Some(document))
}

fn note_end(executed: &Executed, rows: Option<u64>, console: &Console) {
    if let Some(summary) = executed.summary(rows) {
        console.note(&summary);
    }
    for warning in &executed.warnings {
        console.warn(warning);
    }
}

fn unprintable(error: io::Error) -> Failure {
    Failure::Failed(format!("a value of the result cannot be shown: {error}; cast it to text"))
}

/// One document for one statement; of several, one with all of them.
fn print_documents(mut documents: Vec<Map<String, Value>>, console: &Console) -> Result<(), Failure> {
    if !console.json {
        return Ok(());
    }
    let document = match documents.pop() {
        Some(only) if documents.is_empty() => only,
        last => {
            documents.extend(last);
            let results = documents.into_iter().map(Value::Object).collect();
            Map::from_iter([("results".to_string(), Value::Array(results))])
        }
    };
    console.print(|out| output::write_document(out, "pellucid.result/1", &document))
}

/// A file for the rows, written by the engine's `COPY`: by write monotasks, under a
/// temporary name, and without holding the rows in memory.
struct Target {
    path: String,
    /// `STORED AS` and options.
    clause: &'static str,
}

impl Target {
    fn new(path: &str) -> Result<Self, Failure> {
        let ending = Path::new(path).extension().and_then(|ending| ending.to_str());
        let clause = match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("parquet") => "STORED AS PARQUET",
            Some("csv") => "STORED AS CSV OPTIONS ('format.has_header' 'true')",
            Some("json" | "jsonl" | "ndjson") => "STORED AS JSON",
            _ => {
                return Err(Failure::Usage(format!(
                    "-o {path}: the ending says the format; use .parquet, .csv or .json"
                )));
            }
        };
        Ok(Target { path: path.to_string(), clause })
    }

    /// The statement that writes the rows of `query` here.
    fn copy(&self, query: &str) -> Result<String, Failure> {
        let keyword = first_keyword(query);
        if !["SELECT", "FROM", "WITH", "VALUES", "TABLE", "("].contains(&keyword.as_str()) {
            return Err(Failure::Usage(format!(
                "-o writes the rows of a query (SELECT, FROM, WITH, VALUES, TABLE); the last statement is {keyword}"
            )));
        }
        // The query may end in a comment, so the parenthesis has a line of its own.
        Ok(format!("COPY (\n{query}\n) TO '{}' {}", self.path.replace('\'', "''"), self.clause))
    }
}

/// The word that a statement begins with, after comments, in capitals.
fn first_keyword(mut sql: &str) -> String {
    loop {
        sql = sql.trim_start();
        if let Some(comment) = sql.strip_prefix("--") {
            sql = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = sql.strip_prefix("/*") {
            sql = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else if sql.starts_with('(') {
            return "(".to_string();
        } else {
            let end = sql.find(|c: char| !c.is_alphanumeric()).unwrap_or(sql.len());
            return sql[..end].to_uppercase();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tables_of_one_name_are_wrong_usage() {
        let table = |name: &str| (name.to_string(), "x.csv".to_string());
        assert!(check_names(&[table("a"), table("b"), table("\"A\"")]).is_ok());
        for (one, other) in [("a", "a"), ("a", "A"), ("a", "\"a\"")] {
            let refused = check_names(&[table(one), table(other)]).err();
            assert_eq!(refused.map(|failure| failure.exit_code()), Some(2), "{one} {other}");
        }
    }

    #[test]
    fn the_first_keyword_is_found_behind_comments() {
        assert_eq!(first_keyword(" -- why\n /* how */ select 1"), "SELECT");
        assert_eq!(first_keyword("(SELECT 1) UNION SELECT 2"), "(");
        assert_eq!(first_keyword("-- nothing"), "");
    }

    #[test]
    fn a_query_is_copied_whole_whatever_it_ends_in() {
        let target = Target::new("it's.CSV").ok().unwrap();
        let copy = target.copy("SELECT 1 -- one").ok().unwrap();
        assert_eq!(
            copy,
            "COPY (\nSELECT 1 -- one\n) TO 'it''s.CSV' STORED AS CSV OPTIONS ('format.has_header' 'true')"
        );
    }

    #[test]
    fn what_cannot_be_written_is_wrong_usage() {
        let message = |result: Result<_, Failure>| {
            result.err().map(|f| (f.exit_code(), f.message().map(str::to_string)))
        };
        let (code, text) = message(Target::new("a.xlsx").map(|_| String::new())).unwrap();
        assert!(code == 2 && text.unwrap().contains(".parquet, .csv or .json"));
        let (code, text) =
            message(Target::new("a.csv").ok().unwrap().copy("CREATE VIEW v AS SELECT 1")).unwrap();
        assert!(code == 2 && text.unwrap().contains("the last statement is CREATE"));
    }
}
