//! SUMMARIZE: one query that reads the rows once, and a row for each of their columns.

use datafusion::arrow::datatypes::DataType;
use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::Query;

use crate::EngineError;
use crate::sql::statements::Statement;
use crate::statements::describe::columns::{self, Described};
use crate::statements::describe::quantile::QUANTILE;
use crate::statements::describe::source::with_source;
use crate::statements::run;
use crate::statements::syntax::words::quoted;

/// Stands for the rows to summarize.
const SOURCE: &str = "__source";

/// Returns the query of a summary.
///
/// # Errors
/// Returns an error with its place if the query to summarize is invalid.
pub(crate) async fn query(
    state: &SessionState,
    statement: &Statement,
    source: Box<Query>,
) -> Result<Box<Query>, EngineError> {
    let columns = columns::of_query(state, statement, source.clone()).await?;
    let mut computed = vec!["count(*) AS n".to_string()];
    let mut shown: Vec<(&str, Vec<String>)> =
        ["column_name", "column_type", "min", "max", "approx_unique", "avg", "std"]
            .iter()
            .chain(&["q25", "q50", "q75", "count", "null_percentage"])
            .map(|name| (*name, Vec::new()))
            .collect();
    for (at, column) in columns.iter().enumerate() {
        let (measures, values) = measured(at, column);
        computed.extend(measures);
        for ((_, column), value) in shown.iter_mut().zip(values) {
            column.push(value);
        }
    }
    let lists: Vec<String> = shown
        .iter()
        .map(|(name, values)| format!("unnest(make_array({})) AS \"{name}\"", values.join(", ")))
        .collect();
    let text =
        format!("SELECT {} FROM (SELECT {} FROM {SOURCE} AS s)", lists.join(", "), computed.join(", "));
    let mut query = run::query(&text)?;
    with_source(&mut query, SOURCE, &source);
    Ok(query)
}

/// How the values of a type are averaged and shown.
enum Kind {
    /// Quantiles are rounded.
    Whole,
    Fraction,
    /// The type as DataFusion names it, and that of an average.
    Time(String, String),
    Other,
}

fn kind(data_type: &DataType) -> Kind {
    match data_type {
        t if t.is_integer() => Kind::Whole,
        DataType::Decimal128(..)
        | DataType::Decimal256(..)
        | DataType::Decimal64(..)
        | DataType::Decimal32(..) => Kind::Whole,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Kind::Fraction,
        DataType::Date32 => Kind::Time("Date32".to_string(), "Timestamp(Second, None)".to_string()),
        DataType::Timestamp(..) => Kind::Time(data_type.to_string(), data_type.to_string()),
        _ => Kind::Other,
    }
}

/// Returns the aggregates of a column, and the values of its row in terms of them.
fn measured(at: usize, column: &Described) -> (Vec<String>, Vec<String>) {
    let name = format!("s.{}", run::name(&column.plan_name));
    let number = match kind(&column.data_type) {
        Kind::Time(..) if column.data_type == DataType::Date32 => {
            format!("CAST(arrow_cast({name}, 'Int32') AS DOUBLE)")
        }
        Kind::Time(..) => format!("CAST(arrow_cast({name}, 'Int64') AS DOUBLE)"),
        _ => format!("CAST({name} AS DOUBLE)"),
    };
    // It does not take floats.
    let distinct = match kind(&column.data_type) {
        Kind::Fraction => format!("CAST({name} AS VARCHAR)"),
        _ => name.clone(),
    };
    let mut measures =
        vec![format!("approx_distinct({distinct}) AS unique_{at}"), format!("count({name}) AS count_{at}")];
    let bounded = !matches!(
        column.data_type,
        DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
            | DataType::Map(..)
            | DataType::Null
    );
    if bounded {
        measures.extend([format!("min({name}) AS min_{at}"), format!("max({name}) AS max_{at}")]);
    }
    let numeric = !matches!(kind(&column.data_type), Kind::Other);
    if numeric {
        measures.push(format!("avg({number}) AS avg_{at}"));
        measures.push(format!("stddev({number}) AS std_{at}"));
        for percent in [25, 50, 75] {
            measures.push(format!("{QUANTILE}_{percent}({number}) AS q{percent}_{at}"));
        }
    }
    let null = "CAST(NULL AS VARCHAR)".to_string();
    let text = |value: String| match &column.data_type {
        DataType::Timestamp(_, zone) => {
            let plain = format!("replace(CAST({value} AS VARCHAR), 'T', ' ')");
            if zone.is_some() { format!("replace({plain}, 'Z', '+00')") } else { plain }
        }
        _ => format!("CAST({value} AS VARCHAR)"),
    };
    let bound = |which: &str| if bounded { text(format!("{which}_{at}")) } else { null.clone() };
    let average = match kind(&column.data_type) {
        Kind::Other => null.clone(),
        Kind::Time(_, to) => {
            let scale = if column.data_type == DataType::Date32 { " * 86400" } else { "" };
            let value = format!("arrow_cast(arrow_cast(avg_{at}{scale}, 'Int64'), {})", quoted(&to));
            format!("replace(CAST({value} AS VARCHAR), 'T', ' ')")
        }
        _ => format!("CAST(avg_{at} AS VARCHAR)"),
    };
    let deviation = match kind(&column.data_type) {
        Kind::Whole | Kind::Fraction => format!("CAST(std_{at} AS VARCHAR)"),
        _ => null.clone(),
    };
    let quantile = |percent: u8| match kind(&column.data_type) {
        Kind::Other => null.clone(),
        Kind::Fraction => format!("CAST(q{percent}_{at} AS VARCHAR)"),
        Kind::Whole => format!("CAST(CAST({} AS BIGINT) AS VARCHAR)", even(percent, at)),
        Kind::Time(of, _) => {
            let whole = if column.data_type == DataType::Date32 { "Int32" } else { "Int64" };
            text(format!("arrow_cast(arrow_cast({}, '{whole}'), {})", even(percent, at), quoted(&of)))
        }
    };
    let values = vec![
        quoted(&column.name),
        quoted(&column.type_name),
        bound("min"),
        bound("max"),
        format!("CAST(unique_{at} AS BIGINT)"),
        average,
        deviation,
        quantile(25),
        quantile(50),
        quantile(75),
        "n".to_string(),
        format!("CAST(round(100.0 * CAST(n - count_{at} AS DOUBLE) / nullif(n, 0), 2) AS DECIMAL(9, 2))"),
    ];
    (measures, values)
}

/// Returns a quantile rounded to a whole number, half to even.
fn even(percent: u8, at: usize) -> String {
    let q = format!("q{percent}_{at}");
    format!("CASE WHEN {q} - floor({q}) = 0.5 THEN 2 * round({q} / 2) ELSE round({q}) END")
}
