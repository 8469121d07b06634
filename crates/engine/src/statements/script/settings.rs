//! SET, RESET, USE and `current_setting` with DuckDB's names of settings.
//!
//! A setting is honoured, or refused with the option of the command that does the same. A few have no effect here
//! because the engine always does what they ask for.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Select, SelectItem, Set, Spanned, Use,
    Value, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::session::Session;
use crate::sql::statements::Statement;
use crate::sql::tree;
use crate::statements::run;
use crate::statements::script::memory;
use crate::statements::tables::insert::last;

/// Settings of DuckDB about progress, extensions and files, which have nothing to change here.
const WITHOUT_EFFECT: [&str; 9] = [
    "autoinstall_known_extensions",
    "autoload_known_extensions",
    "enable_object_cache",
    "enable_progress_bar",
    "enable_progress_bar_print",
    "immediate_transaction_mode",
    "parquet_metadata_cache",
    "preserve_insertion_order",
    "progress_bar_time",
];

/// Extensions whose functions are built in.
const BUILT_IN: [&str; 6] = ["httpfs", "aws", "json", "parquet", "icu", "core_functions"];

/// The effect of SET or RESET.
pub(crate) enum Effect {
    /// DataFusion changes its own setting.
    Own(Tree),
    Done,
}

/// Handles SET.
///
/// # Errors
/// Returns an error with its place if the setting cannot be changed.
pub(crate) fn set(session: &Session, statement: &Statement, set: &Set) -> Result<Effect, EngineError> {
    let (variable, values) = match set {
        Set::SingleAssignment { variable, values, .. } => (variable, values),
        Set::SetTimeZone { .. } => return Ok(Effect::Own(statement.tree().clone())),
        other => {
            return Err(statement.refuse(
                statement.span(),
                &format!("{other} is not supported; set one variable: SET name = value"),
            ));
        }
    };
    let name = variable.to_string().to_lowercase();
    let text = values.iter().map(plain).collect::<Vec<_>>().join(", ");
    let refuse = |way: &str| Err(statement.refuse(variable.span(), &format!("cannot set {name}: {way}")));
    match name.as_str() {
        "timezone" | "time_zone" => {
            keep(session, &name, &text);
            Ok(Effect::Own(statement.tree().clone()))
        }
        "threads" | "worker_threads" => {
            let cores = session.options.cores;
            if text.parse() == Ok(cores) {
                return Ok(Effect::Done);
            }
            refuse(&format!(
                "the engine runs on {cores} cores; choose them when it starts, with --cores {text}"
            ))
        }
        "memory_limit" | "max_memory" => match memory::size(&text) {
            Some(bytes) => {
                limit_memory(session, bytes);
                Ok(Effect::Done)
            }
            None => refuse("it must be a size, such as '1GB' or '512MiB'"),
        },
        "temp_directory" => refuse("name folders with --spill-dir instead"),
        "schema" | "search_path" => {
            use_schema(session, statement, variable.span(), &text).map(|()| Effect::Done)
        }
        "default_null_order" | "null_order" => {
            let order = match text.to_lowercase().replace(' ', "_").as_str() {
                "nulls_last" | "last" => "nulls_last",
                "nulls_first" | "first" => "nulls_first",
                _ => return refuse("the orders are nulls_first and nulls_last"),
            };
            let query = format!("SET datafusion.sql_parser.default_null_ordering = '{order}'");
            keep(session, "default_null_order", order);
            own(&query)
        }
        "default_order" if text.to_lowercase().starts_with("asc") => Ok(Effect::Done),
        _ if WITHOUT_EFFECT.contains(&name.as_str()) => {
            keep(session, &name, &text);
            Ok(Effect::Done)
        }
        _ if name.starts_with("datafusion.") => Ok(Effect::Own(statement.tree().clone())),
        _ => refuse("this setting does not exist; SHOW ALL lists the settings"),
    }
}

/// Handles RESET.
///
/// # Errors
/// Returns an error with its place if the setting does not exist.
pub(crate) fn reset(
    session: &Session,
    statement: &Statement,
    variable: &ObjectName,
) -> Result<Effect, EngineError> {
    let name = variable.to_string().to_lowercase();
    session.statements.settings().remove(&name);
    match name.as_str() {
        "threads" | "worker_threads" | "default_order" => Ok(Effect::Done),
        "memory_limit" | "max_memory" => {
            let before = session.options.memory_bytes.and_then(|bytes| usize::try_from(bytes).ok());
            limit_memory(session, before.unwrap_or(usize::MAX));
            Ok(Effect::Done)
        }
        "timezone" | "time_zone" => own("RESET datafusion.execution.time_zone"),
        "default_null_order" | "null_order" => own("RESET datafusion.sql_parser.default_null_ordering"),
        "schema" | "search_path" => {
            use_schema(session, statement, variable.span(), "main").map(|()| Effect::Done)
        }
        _ if WITHOUT_EFFECT.contains(&name.as_str()) => Ok(Effect::Done),
        _ if name.starts_with("datafusion.") => Ok(Effect::Own(statement.tree().clone())),
        _ => {
            let message =
                format!("cannot reset {name}: this setting does not exist; SHOW ALL lists the settings");
            Err(statement.refuse(statement.span(), &message))
        }
    }
}

fn limit_memory(session: &Session, bytes: usize) {
    if let Some(pool) = session.context.runtime_env().memory_pool.downcast_ref::<memory::Pool>() {
        pool.set_limit(bytes);
    }
}

fn own(text: &str) -> Result<Effect, EngineError> {
    Ok(Effect::Own(run::parsed(text)?))
}

fn keep(session: &Session, name: &str, value: &str) {
    session.statements.settings().insert(name.to_string(), value.to_string());
}

/// Returns a value without quotes.
fn plain(expr: &Expr) -> String {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(name) => name.value.clone(),
        other => other.to_string(),
    }
}

/// Handles USE.
///
/// # Errors
/// Returns an error with its place if the schema does not exist.
pub(crate) fn use_object(session: &Session, statement: &Statement, object: &Use) -> Result<(), EngineError> {
    match object {
        Use::Object(name) | Use::Schema(name) | Use::Database(name) | Use::Catalog(name) => {
            let options = session.context.state().config_options().catalog.clone();
            let last = last(name).value;
            let is_database =
                last.eq_ignore_ascii_case(&options.default_catalog) || last.eq_ignore_ascii_case("memory");
            let schema = if is_database { "main" } else { &last };
            use_schema(session, statement, name.span(), schema)
        }
        other => Err(statement.refuse(statement.span(), &format!("{other} is not supported; USE a schema"))),
    }
}

fn use_schema(session: &Session, statement: &Statement, span: Span, name: &str) -> Result<(), EngineError> {
    let state = session.context.state();
    let options = state.config_options().catalog.clone();
    let catalog = state.catalog_list().catalog(&options.default_catalog);
    let names = catalog.map(|catalog| catalog.schema_names()).unwrap_or_default();
    let known = names.iter().find(|schema| schema.eq_ignore_ascii_case(name));
    // Where DuckDB has `main`.
    let usual =
        ["main", "public"].iter().find(|usual| names.iter().any(|n| n == *usual)).map(|n| n.to_string());
    let found = known.cloned().or_else(|| if name.eq_ignore_ascii_case("main") { usual } else { None });
    let Some(found) = found else {
        let hint = crate::logical::nearest::hint(name, names, "the schemas are");
        return Err(statement.refuse(span, &format!("cannot find schema {name}; {hint}")));
    };
    let state = session.context.state_ref();
    state.write().config_mut().options_mut().catalog.default_schema = found;
    Ok(())
}

/// Handles INSTALL and LOAD.
///
/// # Errors
/// Returns an error with its place for an extension that is not built in.
pub(crate) fn extension(
    statement: &Statement,
    name: &datafusion::sql::sqlparser::ast::Ident,
) -> Result<(), EngineError> {
    if BUILT_IN.contains(&name.value.to_lowercase().as_str()) {
        return Ok(());
    }
    let message = format!(
        "cannot load extension {}: there are no extensions; built in are {}",
        name.value,
        BUILT_IN.join(", ")
    );
    Err(statement.refuse(name.span, &message))
}

/// Replaces `current_setting('name')` by its value.
///
/// # Errors
/// Returns an error with its place if the setting does not exist.
pub(crate) fn expand(session: &Session, statement: &Statement, tree: &mut Tree) -> Result<(), EngineError> {
    match tree::visit(tree, &mut CurrentSetting(session)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break((span, message)) => Err(statement.refuse(span, &message)),
    }
}

struct CurrentSetting<'a>(&'a Session);

impl CurrentSetting<'_> {
    /// Returns the argument of a call.
    fn of(expr: &Expr) -> Option<String> {
        let Expr::Function(function) = expr else { return None };
        if !function.name.to_string().eq_ignore_ascii_case("current_setting") {
            return None;
        }
        match &function.args {
            FunctionArguments::List(list) => match &list.args[..] {
                [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => Some(plain(expr).to_lowercase()),
                _ => None,
            },
            _ => None,
        }
    }

    fn value(&self, name: &str) -> Option<Value> {
        let session = self.0;
        let text = |text: String| Some(Value::SingleQuotedString(text));
        if let Some(kept) = session.statements.settings().get(name) {
            return text(kept.clone());
        }
        let state = session.context.state();
        let options = state.config_options();
        match name {
            "threads" | "worker_threads" => Some(Value::Number(session.options.cores.to_string(), false)),
            "timezone" => text(options.execution.time_zone.clone().unwrap_or_else(|| "UTC".to_string())),
            "schema" | "search_path" => text(options.catalog.default_schema.clone()),
            "memory_limit" | "max_memory" => {
                let env = session.context.runtime_env();
                let limit = env.memory_pool.downcast_ref::<memory::Pool>().and_then(memory::Pool::limit);
                text(limit.map_or("unlimited".to_string(), |bytes| format!("{bytes} B")))
            }
            _ => options
                .entries()
                .into_iter()
                .find(|entry| entry.key == name)
                .and_then(|entry| text(entry.value.unwrap_or_default())),
        }
    }
}

impl VisitorMut for CurrentSetting<'_> {
    type Break = (Span, String);

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && Self::of(expr).is_some()
            {
                let alias = datafusion::sql::sqlparser::ast::Ident::with_quote('"', expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Some(name) = Self::of(expr) {
            match self.value(&name) {
                Some(value) => *expr = Expr::Value(value.with_empty_span()),
                None => {
                    let message = format!("cannot find setting {name}; SHOW ALL lists the settings");
                    return ControlFlow::Break((expr.span(), message));
                }
            }
        }
        ControlFlow::Continue(())
    }
}
