//! `pellucid rewrite`: writes a table as a piece of advice says.
//!
//! The files appear together when all of them are written and verified. Files are copied one by one, so memory holds a
//! row group. To sort, the rows of one range of keys after the other are sorted in memory, in as many ranges as fit.

mod sort;
mod source;
mod verify;

use crate::console::Console;
use crate::failure::Failure;
use pellucid_engine::{Engine, EngineOptions};
use pellucid_layout::{Change, Layout, TableChange, copy, footer, table_name};
use pellucid_model::units::{grouped, parse_size, size_in_full, time};
use pellucid_trace::whole::WholeFolder;
use serde_json::json;
use source::{RowsWritten, Source, TABLE, cancellable, statement};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Arguments of `rewrite`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
ADVICE is the name of a piece of advice of `pellucid advise`:
  none:TABLE, lz4:TABLE, snappy:TABLE, zstd:TABLE
                        another compression
  dictionary:TABLE      dictionaries where values repeat
  rows:TABLE:NUMBER     row groups of this many rows
  date:TABLE:COLUMN     dates instead of text
  integer:TABLE:COLUMN  whole numbers instead of decimals
  sort:TABLE:COLUMN     rows in the order of a column

Rows are kept exactly: their number and a checksum that does not depend on their order are compared before the files \
appear.

Example:
  pellucid rewrite lineitem.parquet --like sort:lineitem:l_shipdate -o sorted
  pellucid sql \"SELECT count(*) FROM 'sorted' WHERE l_shipdate < '1992-03-01'\"")]
pub struct Arguments {
    /// A Parquet file, or a folder of Parquet files
    #[arg(value_name = "TABLE")]
    table: String,
    /// The change; repeat to combine changes
    #[arg(long = "like", value_name = "ADVICE", required = true, value_parser = parse_change)]
    like: Vec<TableChange>,
    /// Folder for the files; it must be empty or not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Do not compare the rows with those of the table
    #[arg(long)]
    no_verify: bool,
    /// Memory for the rows that are sorted at once [default: half of what is available]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
}

fn parse_change(text: &str) -> Result<TableChange, String> {
    text.parse()
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let started = Instant::now();
    check_output(&arguments.output)?;
    let engine = Engine::new(EngineOptions::default())?;
    let source = source(arguments, &engine, console)?;
    let present = Layout::of(&source.files);
    let layout = arguments.like.iter().fold(present, |layout, change| layout.with(&change.change));
    let output = arguments.output.display();
    let folder = WholeFolder::create(&arguments.output).map_err(|e| Failure::file("write", &output, &e))?;
    let bytes = match &layout.sort {
        None => copied(&source, &layout, folder.path())?,
        Some(column) => {
            let file = folder.path().join(format!("{}.parquet", arguments.like[0].table));
            sort::write(&source, &layout, column, &file, arguments.memory)?
        }
    };
    if !arguments.no_verify {
        verify::same_rows(&source, &layout, folder.path())?;
    }
    folder.publish().map_err(|e| Failure::file("write", &output, &e))?;
    let before: u64 = source.files.iter().filter_map(|f| f.path.metadata().ok()).map(|m| m.len()).sum();
    let duration_ms = started.elapsed().as_secs_f64() * 1e3;
    if console.json {
        let like: Vec<String> = arguments.like.iter().map(TableChange::to_string).collect();
        let document = json!({
            "path": arguments.output,
            "like": like,
            "rows": source.rows,
            "bytes": bytes,
            "bytes_before": before,
            "verified": !arguments.no_verify,
            "duration_ms": duration_ms,
        });
        console.print_document("pellucid.rewritten/1", &document)?;
    }
    console.note(&format!(
        "{} rows in {} · {}, before {} · {} · {output}",
        grouped(source.rows),
        time(duration_ms),
        size_in_full(bytes),
        size_in_full(before),
        if arguments.no_verify { "not verified" } else { "same rows" },
    ));
    Ok(())
}

/// Refuses a folder with files.
fn check_output(output: &Path) -> Result<(), Failure> {
    let is_empty = match output.read_dir() {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !output.exists(),
    };
    match is_empty {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "cannot write to {}: it is not an empty folder; choose another one, or remove its files",
            output.display()
        ))),
    }
}

/// Opens the table, and checks that the changes are for it.
fn source<'a>(
    arguments: &Arguments,
    engine: &'a Engine,
    console: &'a Console,
) -> Result<Source<'a>, Failure> {
    let table = &arguments.table;
    engine.register_table(TABLE, table)?;
    let wrong = |why: &str| Failure::Usage(format!("cannot rewrite {table}: {why}"));
    let scans = engine.scans(&statement(&format!("SELECT * FROM {TABLE}"))?)?;
    let scan = scans.into_iter().next().filter(|scan| !scan.files.is_empty());
    let scan =
        scan.ok_or_else(|| wrong("it has no Parquet files; name a Parquet file or a folder of them"))?;
    if let Some(obstacle) = scan.obstacle {
        return Err(wrong(obstacle));
    }
    let paths: Vec<&Path> = scan.files.iter().map(PathBuf::as_path).collect();
    let name = table_name(&paths).unwrap_or_default();
    for change in &arguments.like {
        if change.table != name {
            return Err(Failure::Usage(format!(
                "cannot rewrite {table} like {change}: the table's name is {name}; give the advice for {name}"
            )));
        }
        if let Change::Sort(column) | Change::Type(column, _) = &change.change
            && !scan.columns.contains(column)
        {
            return Err(wrong(&format!(
                "it has no column {column}; its columns are {}",
                scan.columns.join(", ")
            )));
        }
    }
    let files = paths.iter().map(|path| footer(path)).collect::<Result<Vec<_>, _>>()?;
    let rows = files.iter().map(|file| file.metadata.file_metadata().num_rows().max(0) as u64).sum();
    Ok(Source { engine, scan, files, rows, console })
}

/// Copies each file under its name, and returns the bytes written.
fn copied(source: &Source<'_>, layout: &Layout, folder: &Path) -> Result<u64, Failure> {
    let (cancelled, _guard) = cancellable();
    let mut written = RowsWritten::new(source);
    let mut bytes = 0;
    for file in &source.files {
        let name = file.path.file_name().unwrap_or_default();
        let proceed = &mut |rows| {
            written.add(rows);
            !cancelled.load(Ordering::Relaxed)
        };
        bytes += copy(&file.path, &folder.join(name), layout, proceed)?.1;
    }
    Ok(bytes)
}
