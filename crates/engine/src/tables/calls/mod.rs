//! Table functions over files: `read_csv('a.csv', header = true)` and its kin, and those that describe files.
//!
//! Before a statement is planned, each call is replaced by a table whose name is the text of the call, and its files are
//! opened. The function's name stays the alias.

mod csv_options;
mod json_options;
mod options;
mod parquet;
mod sniffed;
mod values;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::MemTable;
use datafusion::execution::context::SessionState;
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Spanned, TableAlias, TableFactor,
    VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::logical::nearest::{hint, nearest};
use crate::sql::{place, tree};
use crate::tables::calls::options::Function;
use crate::tables::calls::values::{Argument, Value};
use crate::tables::{listing, open};

/// An argument that cannot be used.
#[derive(Debug)]
pub(crate) struct Refused {
    pub message: String,
    pub span: Span,
}

impl From<Refused> for DataFusionError {
    fn from(refused: Refused) -> Self {
        place::error(refused.span, refused.message)
    }
}

/// A call of a table function over files.
#[derive(Debug)]
pub(crate) struct Call {
    function: Function,
    places: Vec<String>,
    options: Vec<(Ident, Argument)>,
}

/// Replaces the calls in a statement by tables, and returns them by the tables' names.
///
/// # Errors
/// Returns an error if an argument is not a literal, or no function has the name but one has a similar one.
pub(crate) fn replace(state: &SessionState, tree: &mut Tree) -> Result<HashMap<String, Call>> {
    let mut visitor = Replace { state, calls: HashMap::new(), aliases: HashMap::new() };
    match tree::visit(tree, &mut visitor) {
        ControlFlow::Continue(()) => Ok(visitor.calls),
        ControlFlow::Break(refused) => Err(refused.into()),
    }
}

struct Replace<'a> {
    state: &'a SessionState,
    calls: HashMap<String, Call>,
    /// Number of calls without an alias, by function.
    aliases: HashMap<String, usize>,
}

impl VisitorMut for Replace<'_> {
    type Break = Refused;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Refused> {
        let text = table.to_string();
        let TableFactor::Table { name, alias, args, .. } = table else { return ControlFlow::Continue(()) };
        let Some(arguments) = args else { return ControlFlow::Continue(()) };
        let [part] = &name.0[..] else { return ControlFlow::Continue(()) };
        let Some(ident) = part.as_ident().cloned() else { return ControlFlow::Continue(()) };
        let lower = ident.value.to_lowercase();
        let Some(function) = Function::by_name(&lower) else { return self.unknown(&ident) };
        let call = match read(function, &ident, &arguments.args) {
            Ok(call) => call,
            Err(refused) => return ControlFlow::Break(refused),
        };
        let table_name = match alias {
            Some(alias) => text.trim_end_matches(&alias.to_string()).trim_end().to_string(),
            None => text,
        };
        *args = None;
        *name = ObjectName::from(vec![Ident::with_quote('"', &table_name)]);
        if alias.is_none() {
            let times = self.aliases.entry(lower.clone()).or_default();
            let own = if *times == 0 { lower } else { format!("{lower}_{times}") };
            *times += 1;
            *alias =
                Some(TableAlias { explicit: true, name: Ident::new(own), columns: Vec::new(), at: None });
        }
        self.calls.insert(table_name, call);
        ControlFlow::Continue(())
    }
}

impl Replace<'_> {
    /// Proposes the names of functions that are similar to an unknown one.
    fn unknown(&self, name: &Ident) -> ControlFlow<Refused> {
        let lower = name.value.to_lowercase();
        let mut known: Vec<String> = self.state.table_functions().keys().cloned().collect();
        if known.contains(&lower) {
            return ControlFlow::Continue(());
        }
        known.extend(Function::NAMES.iter().map(|(name, _)| name.to_string()));
        known.sort();
        if nearest(&lower, &known).is_empty() {
            return ControlFlow::Continue(());
        }
        let message = format!("cannot find table function {lower}; {}", hint(&lower, known, "there are"));
        ControlFlow::Break(Refused { message, span: name.span })
    }
}

/// Reads the arguments of a call.
fn read(function: Function, name: &Ident, arguments: &[FunctionArg]) -> Result<Call, Refused> {
    let lower = name.value.to_lowercase();
    let mut places: Option<Vec<String>> = None;
    let mut options: Vec<(Ident, Argument)> = Vec::new();
    for argument in arguments {
        let (option, value) = match argument {
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => (Some(name.clone()), value),
            // `header = true` is parsed as a comparison.
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
                left,
                op: BinaryOperator::Eq,
                right,
            })) => match &**left {
                Expr::Identifier(name) => (Some(name.clone()), &**right),
                other => {
                    let message = format!("expected the name of an option before =, found `{other}`");
                    return Err(Refused { message, span: other.span() });
                }
            },
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (None, value),
            other => {
                let message = format!("cannot read `{other}` as an argument of {lower}");
                return Err(Refused { message, span: other.span() });
            }
        };
        let argument = Argument { value: values::read(value)?, span: value.span() };
        match option {
            None if places.is_none() => places = Some(argument.texts("of files").map_err(|_| Refused {
                message: format!(
                    "{lower} takes a path or a list of paths: {lower}('a.csv'), {lower}(['a.csv', 'b.csv'])"
                ),
                span: argument.span,
            })?),
            None => {
                let message = format!("{lower} takes one path; give several as a list: {lower}(['a', 'b'])");
                return Err(Refused { message, span: argument.span });
            }
            Some(option) => {
                if options.iter().any(|(known, _)| known.value.eq_ignore_ascii_case(&option.value)) {
                    let message = format!("the option {option} is given twice; remove one");
                    return Err(Refused { message, span: option.span });
                }
                options.push((option, argument));
            }
        }
    }
    match places {
        Some(places) if !places.is_empty() => Ok(Call { function, places, options }),
        _ => {
            let message = format!("{lower} needs a path: {lower}('PATH')");
            Err(Refused { message, span: name.span })
        }
    }
}

impl Call {
    /// Opens the files of the call. `sql_type` converts the name of a type.
    ///
    /// # Errors
    /// Returns an error if an option is unknown or cannot be honoured, or the files cannot be read.
    pub(crate) async fn open(
        &self,
        state: &SessionState,
        sql_type: &(dyn Fn(&str) -> Option<DataType> + Sync),
    ) -> Result<Arc<dyn TableProvider>> {
        let options = options::read(self.function, &self.options, sql_type)?;
        match self.function {
            Function::Glob => self.glob(state).await,
            Function::SniffCsv => {
                let found = open::find_all(state, &self.places, &options).await?;
                one_batch(sniffed::row(&found, &options, &self.options).await?)
            }
            Function::ParquetMetadata
            | Function::ParquetSchema
            | Function::ParquetFileMetadata
            | Function::ParquetKvMetadata => {
                let found = open::find_all(state, &self.places, &options).await?;
                one_batch(parquet::rows(state, self.function, &found).await?)
            }
            _ => listing(state, &self.places, &options).await,
        }
    }

    /// Returns the table of the files that match.
    async fn glob(&self, state: &SessionState) -> Result<Arc<dyn TableProvider>> {
        let mut names = Vec::new();
        for place in &self.places {
            match open::matches(state, place).await {
                Ok(found) => names.extend(found),
                // No match is an empty table.
                Err(error) if error.to_string().contains("no file matches") => {}
                Err(error) => return Err(error),
            }
        }
        let column: ArrayRef = Arc::new(StringArray::from(names));
        one_batch(RecordBatch::try_from_iter([("file", column)])?)
    }
}

fn one_batch(batch: RecordBatch) -> Result<Arc<dyn TableProvider>> {
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

/// Returns the text of a value, for messages.
fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("'{text}'"),
        Value::Word(word) => word.clone(),
        Value::Number(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Null => "NULL".to_string(),
        Value::List(_) => "the list".to_string(),
        Value::Struct(_) => "the struct".to_string(),
    }
}
