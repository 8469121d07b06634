//! `pellucid demo`: generates data, runs three queries, and shows their results, their
//! bottlenecks and a timeline of the machine's resources.

use crate::console::Console;
use crate::engine_options::EngineArguments;
use crate::execute::{Executed, execute};
use crate::failure::Failure;
use crate::generate::{all_cores, generate, parse_scale};
use crate::output::{self, Format};
use pellucid_benchmarks::{Benchmark, Table};
use pellucid_engine::Engine;
use serde_json::{Value, json};
use std::env;
use std::path::{Path, PathBuf};

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The data (TPC-H, 360 MB at scale 1) is generated once, in DIR/tpch-<scale>, and then reused.

Example:
  pellucid demo
  pellucid demo --scale 0.1 --dir /tmp/pellucid")]
pub struct Arguments {
    /// Directory for data and trace [default: `pellucid` in the cache directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Scale factor of the data
    #[arg(long, default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Questions with their SQL, in order of complexity.
const QUESTIONS: [(&str, &str); 3] = [
    (
        "How much was sold by each shipping mode, and how much of it was late?",
        "SELECT l_shipmode AS shipped_by, count(*) AS items, sum(l_extendedprice) AS price,
       round(100.0 * avg(CASE WHEN l_receiptdate > l_commitdate THEN 1 ELSE 0 END), 1) AS late_percent
FROM lineitem
GROUP BY l_shipmode
ORDER BY price DESC",
    ),
    (
        "Which nations bought the most in 1996, and from how many suppliers?",
        "SELECT n_name AS nation, sum(l_extendedprice * (1 - l_discount)) AS revenue,
       count(DISTINCT l_suppkey) AS suppliers
FROM lineitem
JOIN orders ON l_orderkey = o_orderkey
JOIN customer ON o_custkey = c_custkey
JOIN nation ON c_nationkey = n_nationkey
WHERE o_orderdate BETWEEN DATE '1996-01-01' AND DATE '1996-12-31'
GROUP BY n_name
ORDER BY revenue DESC
LIMIT 5",
    ),
    (
        "Which part earned each manufacturer the most?",
        "SELECT maker, part, revenue
FROM (
  SELECT p_mfgr AS maker, p_name AS part, sum(l_extendedprice * (1 - l_discount)) AS revenue,
         row_number() OVER (PARTITION BY p_mfgr ORDER BY sum(l_extendedprice * (1 - l_discount)) DESC) AS place
  FROM lineitem JOIN part ON l_partkey = p_partkey
  GROUP BY p_mfgr, p_name
)
WHERE place = 1
ORDER BY revenue DESC",
    ),
];

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let home = match &arguments.dir {
        Some(directory) => directory.clone(),
        None => cache_directory()?,
    };
    let data = home.join(format!("tpch-{}", arguments.scale));
    let trace = home.join("demo.trace");
    prepare(&data, arguments.scale, console)?;

    let engine = Engine::new(arguments.engine.options()?)?;
    for table in tables(arguments.scale) {
        engine.register_table(table.name, &table_path(&data, table.name).to_string_lossy())?;
    }
    let mut documents = Vec::new();
    let mut last: Option<Executed> = None;
    for (question, sql) in QUESTIONS {
        console.note("");
        console.heading(question);
        console.note(sql);
        let executed = execute(&engine, sql.parse()?, Some(&trace), console)?;
        if console.json {
            documents.push(document(question, sql, &executed)?);
        } else {
            let result = &executed.result;
            console.print(|out| {
                let limits = console.display_limits(None);
                output::write_result(out, Format::Box, &result.schema, &result.batches, limits)
            })?;
        }
        if let Some(summary) = executed.summary(executed.rows()) {
            console.note(&summary);
        }
        last = Some(executed);
    }
    if console.json {
        let document = json!({"scale": arguments.scale, "data": data, "results": documents});
        return console.print_document("pellucid.demo/1", &document);
    }
    if let Some(executed) = last {
        let timeline =
            pellucid_report::timeline(&executed.result.trace, console.width(), console.color_stdout());
        console.note("");
        console.heading("The resources of this machine while the last query ran");
        console.print_styled(|out| out.write_all(timeline.as_bytes()))?;
    }
    print_next_steps(&data, &trace, console);
    Ok(())
}

/// Generates the data unless it exists.
fn prepare(data: &Path, scale: f64, console: &Console) -> Result<(), Failure> {
    let tables = tables(scale);
    if tables.iter().all(|table| table_path(data, table.name).is_file()) {
        console.note(&format!("TPC-H data at scale {scale} is in {}", data.display()));
        return Ok(());
    }
    console.note(&format!("Generating TPC-H data at scale {scale} in {} …", data.display()));
    // Tables are complete or missing; after an interruption, all of them are generated again.
    generate(Benchmark::Tpch, &tables, data, all_cores(), true, console).map(|_| ())
}

fn tables(scale: f64) -> Vec<Table> {
    Benchmark::Tpch.tables(scale, 0)
}

fn table_path(data: &Path, table: &str) -> PathBuf {
    data.join(format!("{table}.parquet"))
}

fn print_next_steps(data: &Path, trace: &Path, console: &Console) {
    console.note("");
    console.heading("Try next");
    console.note(&format!("  pellucid analyze {}", quoted(&trace.to_string_lossy())));
    let orders = table_path(data, "orders").to_string_lossy().replace('\'', "''");
    let sql = format!("SELECT o_orderpriority, count(*) FROM '{orders}' GROUP BY 1 ORDER BY 1");
    console.note(&format!("  pellucid sql {} --io direct", quoted(&sql)));
}

/// Quotes text for a shell.
fn quoted(text: &str) -> String {
    if text.contains('\'') && !text.contains(['"', '$', '`', '\\', '!']) {
        format!("\"{text}\"")
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn document(question: &str, sql: &str, executed: &Executed) -> Result<Value, Failure> {
    let mut document = executed.document()?;
    document["question"] = json!(question);
    document["sql"] = json!(sql);
    Ok(document)
}

/// Returns `pellucid` in the user's cache directory.
fn cache_directory() -> Result<PathBuf, Failure> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| {
        let cache = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
        absolute("HOME").map(|home| home.join(cache))
    });
    cache.map(|cache| cache.join("pellucid")).ok_or_else(|| {
        Failure::Usage("cannot find a cache directory: neither XDG_CACHE_HOME nor HOME is an absolute path; use --dir DIR".to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn quoted_text_is_shell_safe() {
        assert_eq!(quoted("/a b"), "'/a b'");
        assert_eq!(quoted("FROM 'd''ir'"), "\"FROM 'd''ir'\"");
        assert_eq!(quoted("it's $5"), "'it'\\''s $5'");
    }
}
