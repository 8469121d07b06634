//! COPY, once the columns of its rows are known.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DataFusionError;
use datafusion::common::TableReference;
use datafusion::common::{Constraints, DFSchema};
use datafusion::logical_expr::CreateExternalTable;
use datafusion::sql::parser::{CopyToSource, CopyToStatement};
use datafusion::sql::sqlparser::ast::{Insert, Query, TableObject};

use crate::EngineError;
use crate::logical::nearest::hint;
use crate::session::Session;
use crate::sql::statements::Statement;
use crate::statements::describe::columns::{self, Described};
use crate::statements::describe::source::with_source;
use crate::statements::own::{CopyFrom, CopyTo};
use crate::statements::run::{self, Temporary};
use crate::statements::tables::insert::{Extra, existing};
use crate::tables::streams;

/// Completes a `COPY … TO`: the names of its partitions, and nested values of CSV as text.
///
/// # Errors
/// Returns an error with its place if the query is invalid, or an option does not fit its columns.
pub(crate) async fn to_file(
    session: &Session,
    statement: &Statement,
    mut copy: CopyToStatement,
    own: &CopyTo,
) -> Result<CopyToStatement, EngineError> {
    let CopyToSource::Query(query) = &mut copy.source else { return Ok(copy) };
    let state = session.context.state();
    let columns = columns::of_query(&state, statement, query.clone()).await?;
    for name in &own.partition_by {
        let column = columns.iter().find(|c| c.name == *name);
        let column = column.or_else(|| columns.iter().find(|c| c.name.eq_ignore_ascii_case(name)));
        let Some(column) = column else {
            let names = columns.iter().map(|c| c.name.clone()).collect();
            let message = format!("cannot partition by {name}: {}", hint(name, names, "the columns are"));
            return Err(statement.refuse(statement.span(), &message));
        };
        copy.partitioned_by.push(column.plan_name.clone());
    }
    if let Some(span) = own.force_quote
        && nullable(session, statement, query).await?
    {
        let message = "cannot use the option FORCE_QUOTE: a column may be NULL, which would be written as quoted text; \
                       select coalesce(column, '')";
        return Err(statement.refuse(span, message));
    }
    if own.csv && columns.iter().any(|c| c.data_type.is_nested()) {
        *query = as_text(query, &columns)?;
    }
    Ok(copy)
}

/// Returns true if a column of a query may have NULLs.
async fn nullable(session: &Session, statement: &Statement, query: &Query) -> Result<bool, EngineError> {
    let inner = statement.with_tree(run::as_tree(Box::new(query.clone())));
    let (plan, _) =
        crate::logical::plan(&session.context.state(), &inner, &std::sync::Arc::default()).await?;
    Ok(plan.schema().fields().iter().any(|field| field.is_nullable()))
}

/// Returns a query with its nested values as text.
fn as_text(query: &Query, columns: &[Described]) -> Result<Box<Query>, EngineError> {
    let item = |column: &Described| {
        let name = run::name(&column.plan_name);
        match column.data_type.is_nested() {
            true => format!("CAST({name} AS VARCHAR) AS {name}"),
            false => name,
        }
    };
    let items: Vec<String> = columns.iter().map(item).collect();
    let mut outer = run::query(&format!("SELECT {} FROM __source AS s", items.join(", ")))?;
    with_source(&mut outer, "__source", query);
    Ok(outer)
}

/// Returns the rows of the file of `COPY t FROM 'file'`.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(crate) async fn from_file(
    session: &Session,
    statement: &Statement,
    insert: &Insert,
    copy: &CopyFrom,
) -> Result<Extra, EngineError> {
    if copy.format != "csv" {
        let by_name = copy.format == "json" && insert.columns.is_empty();
        return Ok(Extra { by_name, source: None });
    }
    let TableObject::TableName(name) = &insert.table else { return Ok(Extra::default()) };
    let found = existing(session, statement, name).await?;
    let schema = found.provider.schema();
    let names: Vec<String> = match (&insert.columns[..], found.table()) {
        ([], Some(table)) => table
            .definition
            .columns
            .iter()
            .filter(|c| c.generated.is_none())
            .map(|c| c.name.clone())
            .collect(),
        ([], None) => schema.fields().iter().map(|field| field.name().clone()).collect(),
        (columns, _) => columns.iter().map(|c| crate::statements::tables::insert::last(c).value).collect(),
    };
    let types: Vec<DataType> = names
        .iter()
        .map(|name| {
            let field = schema.fields().iter().find(|f| f.name().eq_ignore_ascii_case(name));
            field.map_or(DataType::Utf8, |field| field.data_type().clone())
        })
        .collect();
    let table = csv(session, statement, copy, &names, &types).await?;
    let source = Temporary::register(&session.context, table)?;
    let nulls = copy.options.iter().find(|option| ["NULLSTR", "NULL"].contains(&option.name.as_str()));
    let columns: Vec<String> = match nulls {
        Some(option) => {
            let text = crate::statements::syntax::words::quoted(option.value()?);
            names.iter().map(|name| format!("nullif({0}, {text}) AS {0}", run::name(name))).collect()
        }
        None => vec!["*".to_string()],
    };
    let query = run::query(&format!("SELECT {} FROM {}", columns.join(", "), run::name(&source.name)))?;
    Ok(Extra { by_name: false, source: Some((query, source)) })
}

/// Returns the table of a CSV file, whose columns are text.
async fn csv(
    session: &Session,
    statement: &Statement,
    copy: &CopyFrom,
    names: &[String],
    types: &[DataType],
) -> Result<Arc<dyn datafusion::catalog::TableProvider>, EngineError> {
    let state = session.context.state();
    let file = streams::readable(&state, &copy.file).await?;
    let first =
        first_line(&file).map_err(|e| EngineError::Failed(format!("{}: {e}; check the path", copy.file)))?;
    let mut options: HashMap<String, String> = HashMap::new();
    let mut set = |key: &str, value: &str| options.insert(format!("format.{key}"), value.to_string());
    let (mut delimiter, mut header) = (None, None);
    set("null_regex", "^$");
    set("newlines_in_values", "true");
    for option in &copy.options {
        match option.name.as_str() {
            "DELIMITER" | "SEP" | "DELIM" => delimiter = option.value()?.replace("\\t", "\t").chars().next(),
            "HEADER" => header = Some(option.is_true()?),
            "QUOTE" => drop(set("quote", option.byte()?)),
            "ESCAPE" if option.byte()? != "\"" => drop(set("escape", option.byte()?)),
            "COMPRESSION" if !option.value()?.starts_with("auto") => {
                drop(set("compression", &option.value()?.to_lowercase()))
            }
            _ => {}
        }
    }
    let delimiter = delimiter.unwrap_or_else(|| sniffed(&first, names.len()));
    set("delimiter", &delimiter.to_string());
    let fields: Vec<&str> = first.trim_end().split(delimiter).map(|field| field.trim_matches('"')).collect();
    if fields.len() != names.len() {
        let message = format!(
            "cannot copy {} into {} columns: its first line has {}; list the columns: COPY t (…) FROM, or give DELIMITER",
            copy.file,
            names.len(),
            fields.len()
        );
        return Err(statement.refuse(copy.span, &message));
    }
    let header = header.unwrap_or_else(|| is_header(&fields, names, types));
    set("has_header", &header.to_string());
    for (end, compression) in [(".gz", "gzip"), (".zst", "zstd")] {
        if copy.file.ends_with(end) {
            set("compression", compression);
        }
    }
    let schema =
        Schema::new(names.iter().map(|name| Field::new(name, DataType::Utf8, true)).collect::<Vec<_>>());
    let schema = DFSchema::try_from(schema)?;
    let command = CreateExternalTable::builder(TableReference::bare("copied"), file, "CSV", Arc::new(schema))
        .with_options(options)
        .with_constraints(Constraints::default())
        .build();
    let factory = state.table_factories().get("CSV").cloned();
    let factory = factory.ok_or_else(|| DataFusionError::Internal("no factory of CSV tables".to_string()))?;
    Ok(factory.create(&state, &command).await?)
}

/// Returns the first line of a local file that is not compressed.
fn first_line(file: &str) -> std::io::Result<String> {
    use std::io::BufRead;
    let mut line = String::new();
    std::io::BufReader::new(std::fs::File::open(file)?).read_line(&mut line)?;
    Ok(line.trim_start_matches('\u{feff}').to_string())
}

/// Returns the separator that divides a line into this number of fields.
fn sniffed(line: &str, fields: usize) -> char {
    let fits = |separator: &char| line.split(*separator).count() == fields;
    [',', '\t', ';', '|'].into_iter().find(fits).unwrap_or(',')
}

/// Returns true if the fields are the columns' names, or no values of their types.
fn is_header(fields: &[&str], names: &[String], types: &[DataType]) -> bool {
    let named = fields.iter().zip(names).all(|(field, name)| field.eq_ignore_ascii_case(name));
    let fits = |(field, kind): (&&str, &DataType)| match kind {
        kind if kind.is_numeric() => field.is_empty() || field.trim().parse::<f64>().is_ok(),
        DataType::Date32 | DataType::Timestamp(..) => {
            field.is_empty() || field.contains(|c: char| c.is_ascii_digit())
        }
        DataType::Boolean => {
            ["", "true", "false", "t", "f", "1", "0"].contains(&field.to_lowercase().as_str())
        }
        _ => true,
    };
    named || !fields.iter().zip(types).all(fits)
}
