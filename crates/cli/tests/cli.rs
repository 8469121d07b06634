//! Tests of the command's interface: streams, formats, exit codes and signals. Other tests
//! check the results of SQL.
//!
//! All of them are in one file, so that only one test binary is linked.

use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Returns a folder with TPC-H at scale 0.01, generated once by the command.
fn data() -> &'static Path {
    static DATA: OnceLock<PathBuf> = OnceLock::new();
    DATA.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-tpch");
        let made = run(&["generate", "tpch", "--scale", "0.01", "--force", text(&directory), "--json"]);
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        let document = document(&made);
        assert_eq!(document["format"], "pellucid.generated/1");
        assert_eq!(document["tables"].as_array().map(Vec::len), Some(8));
        assert_eq!(
            (&document["tables"][0]["name"], &document["tables"][0]["rows"]),
            (&json!("lineitem"), &json!(60_175))
        );
        directory
    })
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

fn pellucid(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pellucid"));
    command.args(arguments).env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    pellucid(arguments).output().expect("the command starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Parses standard output, which must be one JSON document that starts with its format.
fn document(output: &Output) -> Value {
    assert!(output.stdout.starts_with(b"{\"format\":\"pellucid."), "{}", stdout(output));
    serde_json::from_slice(&output.stdout).expect("one document")
}

const SMALL: &str =
    "SELECT * FROM (VALUES (1, 'a,b', 1.50), (2, NULL, 2.25)) AS t(id, name, price) ORDER BY id";

#[test]
fn rows_go_to_stdout_and_the_summary_to_stderr() {
    for (format, expected) in [
        ("csv", "id,name,price\n1,\"a,b\",1.5\n2,,2.25\n"),
        (
            "markdown",
            "| id | name | price |\n| ---: | --- | ---: |\n| 1 | a,b | 1.5 |\n| 2 | NULL | 2.25 |\n",
        ),
        (
            "json",
            "[\n{\"id\":1,\"name\":\"a,b\",\"price\":1.5},\n{\"id\":2,\"name\":null,\"price\":2.25}\n]\n",
        ),
    ] {
        let output = run(&["sql", SMALL, "--format", format]);
        assert_eq!(
            (output.status.code(), stdout(&output).as_str()),
            (Some(0), expected),
            "{}",
            stderr(&output)
        );
        assert!(stderr(&output).contains("2 rows in "), "{}", stderr(&output));
    }
    let output = run(&["sql", SMALL, "--quiet"]);
    assert!(stdout(&output).starts_with("┌"), "{}", stdout(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn json_is_one_document_with_rows_and_job() {
    let lineitem = data().join("lineitem.parquet");
    let sql = format!(
        "SELECT count(*) AS n, sum(l_quantity) AS q, min(l_shipdate) AS d FROM '{}'",
        text(&lineitem)
    );
    let output = run(&["sql", &sql, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document = document(&output);
    assert_eq!(document["format"], "pellucid.result/1");
    let names: Vec<_> =
        document["columns"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(names, ["n", "q", "d"]);
    // DECIMAL and DATE as text, integers as numbers.
    assert_eq!(document["rows"], json!([[60_175, "1536127.00", "1992-01-04"]]));
    assert_eq!(document["row_count"], 1);
    assert!(document["job"]["duration_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{document}");
    assert_eq!(document["trace"], Value::Null);

    let output = run(&["sql", "SELECT 1; SELECT 2", "--json"]);
    let rows: Vec<_> =
        self::document(&output)["results"].as_array().unwrap().iter().map(|r| r["rows"].clone()).collect();
    assert_eq!(rows, [json!([[1]]), json!([[2]])]);
}

#[test]
fn statements_come_from_arguments_files_and_standard_input() {
    let directory = tempfile::tempdir().unwrap();
    let nation = format!("nation={}", text(&data().join("nation.parquet")));
    let script = directory.path().join("script.sql");
    fs::write(
        &script,
        "CREATE VIEW few AS SELECT * FROM nation WHERE n_nationkey < 3; SELECT count(*) AS n FROM few;",
    )
    .unwrap();
    let output = run(&["sql", "-f", text(&script), "--table", &nation, "--format", "csv"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "n\n3\n"), "{}", stderr(&output));

    let mut child = pellucid(&["sql", "--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"SELECT 7 AS seven").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "seven\n7\n"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn output_file_has_the_format_of_its_extension() {
    let directory = tempfile::tempdir().unwrap();
    let supplier = data().join("supplier.parquet");
    for ending in ["parquet", "csv", "json"] {
        let target = directory.path().join(format!("out.{ending}"));
        let sql = format!("SELECT s_suppkey, s_name FROM '{}' -- all of them", text(&supplier));
        let output = run(&["sql", &sql, "-o", text(&target), "--json"]);
        assert_eq!(output.status.code(), Some(0), "{ending}: {}", stderr(&output));
        assert_eq!(document(&output)["row_count"], 100);
        let back = run(&[
            "sql",
            &format!("SELECT count(*) AS n, max(s_name) AS m FROM '{}'", text(&target)),
            "--json",
        ]);
        assert_eq!(
            document(&back)["rows"],
            json!([[100, "Supplier#000000100"]]),
            "{ending}: {}",
            stderr(&back)
        );
    }
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn trace_is_written_and_analyzed() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("job.trace");
    let sql =
        format!("SELECT l_shipmode, count(*) FROM '{}' GROUP BY 1", text(&data().join("lineitem.parquet")));
    let output = run(&["sql", &sql, "--trace", text(&trace), "--json"]);
    assert_eq!(document(&output)["trace"], text(&trace), "{}", stderr(&output));

    let output = run(&["analyze", text(&trace), "--json"]);
    let whole = document(&output);
    assert_eq!(whole["format"], "pellucid.analysis/1");
    assert_eq!(
        (&whole["source"]["kind"], &whole["source"]["complete"]),
        (&json!("pellucid-trace"), &json!(true))
    );
    assert_eq!(whole["jobs"].as_array().map(Vec::len), Some(1));
    let output = run(&["analyze", text(&trace)]);
    assert_eq!(output.status.code(), Some(0));
    assert!(!output.stdout.is_empty() && !stdout(&output).contains('\x1b'), "{}", stdout(&output));

    let output = run(&["analyze", text(&trace), text(&trace), "--json"]);
    assert_eq!(document(&output)["analyses"].as_array().map(Vec::len), Some(2));
}

#[test]
fn usage_errors_exit_with_2_and_failures_with_1() {
    let data = text(data());
    for (arguments, code, message) in [
        (&["sql", ""][..], 2, "no statement to run"),
        (&["sql", "SELECT 1", "--memory", "4G"], 2, "unknown unit `G`"),
        (&["sql", "SELECT 1", "--disk-rate", "/=5MB"], 2, "50MB/s"),
        (&["sql", "SELECT 1", "--slow-operator", "5=2"], 2, "for example 5=x2"),
        (&["sql", "SELECT 1", "--slow-operator", "99=x2"], 2, "cannot slow operator 99: the plan"),
        (&["sql", "SELECT 1", "--on", "flink"], 2, "expected spark or spark=MASTER"),
        (&["sql", "SELECT 1", "--on", "spark", "--cores", "2"], 2, "cannot use --cores with --on spark"),
        (&["sql", "SELECT 1", "--conf", "spark.a=b"], 2, "--on"),
        (&["sql", "SELECT 1", "-o", "x.xlsx"], 2, ".parquet, .csv or .json"),
        (&["sql", "SELECT 1", "--spill-dir", "/nowhere/at/all"], 2, "cannot spill to /nowhere/at/all: "),
        (&["sql", "SELECT 1", "--memory", "4"], 2, "no unit; a size is a number with B, kB"),
        (&["sql", "SELECT 1", "--disk-rate", "/no/such/path=50MB/s"], 2, "no such file or directory"),
        (&["sql", "-f", "/nowhere/q.sql"], 1, "cannot read /nowhere/q.sql"),
        (&["generate", "tpch", data], 2, "--force"),
        (&["generate", "tpch", "--scale", "zero", data], 2, "from 0.001"),
        (&["analyze", "/nowhere/a.trace"], 1, "/nowhere/a.trace"),
        (&["report"], 2, "required arguments"),
        (&["reports"], 2, "unrecognized subcommand"),
        (&["export", "/nowhere/a.trace", "--to", "pdf", "-o", "x"], 2, "perfetto"),
        (&["whatif", "/nowhere/a.trace"], 1, "/nowhere/a.trace"),
    ] {
        let output = run(arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(message) && said.contains("error:"), "{arguments:?}: {said}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        "sql",
        "analyze",
        "whatif",
        "backtest",
        "compare",
        "report",
        "export",
        "iterate",
        "storage",
        "spark",
        "generate",
        "demo",
        "completions",
        "man",
    ] {
        let output = run(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        let help = stdout(&output);
        assert!(
            (help.contains("Example:\n  pellucid ") || help.contains("Examples:\n  pellucid "))
                && help.contains("--json"),
            "{help}"
        );
    }
}

#[test]
fn closed_pipe_ends_the_command_quietly() {
    // Two megabytes, far more than the capacity of a pipe.
    let sql = format!("SELECT l_comment FROM '{}'", text(&data().join("lineitem.parquet")));
    let mut child = pellucid(&["sql", &sql, "--format", "csv", "--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[cfg(unix)]
#[test]
fn ctrl_c_exits_with_130_and_removes_partial_files() {
    let directory = tempfile::tempdir().unwrap();
    // Large enough that generation cannot finish before the signal.
    let mut child = pellucid(&["generate", "tpch", "--scale", "1000", text(directory.path())])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while fs::read_dir(directory.path()).unwrap().next().is_none() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        std::thread::yield_now();
    }
    // SAFETY: signals a child that has not been waited for, so its number is not reused.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(130), ""));
    assert!(fs::read_dir(directory.path()).unwrap().next().is_none());
}

#[test]
fn demo_prints_results_timeline_and_next_steps() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["demo", "--scale", "0.01", "--dir", text(directory.path())];
    let output = run(&arguments);
    let (answers, said) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(answers.matches('└').count(), 3, "three answers and a picture: {answers}");
    assert_eq!(said.matches("rows in ").count(), 3, "{said}");
    assert!(said.contains("pellucid analyze"), "{said}");

    // The second run reuses the data, and --json prints the same results.
    let output = pellucid(&arguments).arg("--json").output().unwrap();
    let document = document(&output);
    assert_eq!(document["results"].as_array().map(Vec::len), Some(3));
    assert!(document["results"][1]["rows"].as_array().is_some_and(|rows| rows.len() == 5), "{document}");
    assert!(!stderr(&output).contains("Generating"), "{}", stderr(&output));
}
