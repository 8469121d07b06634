//! Statements other than queries, with DuckDB's syntax and meaning.
//!
//! A statement passes through here twice. [`syntax`] rewrites its tokens, before it is parsed, to syntax that the
//! parser has. [`begin`] replaces views, macros and lists of tables in its tree, before it is planned, and runs it unless
//! it needs rows: then it becomes a query, which runs as a job like any other, and [`Finish`] uses the rows.
//!
//! [`tables`] holds tables in memory and what changes them, [`describe`] the lists of tables and columns, and [`script`] what
//! a statement leaves for later ones.

mod copies;
pub(crate) mod describe;
pub(crate) mod own;
mod run;
pub(crate) mod script;
pub(crate) mod syntax;
mod tables;

use std::sync::Arc;

use datafusion::arrow::array::Array;
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::sql::parser::{ExplainStatement, ResetStatement, Statement as Tree};
use datafusion::sql::sqlparser::ast::{
    CreateView, Insert, Merge, ObjectName, ObjectType, Query, SetExpr, Spanned, Statement as SqlStatement,
    Update, With,
};

use crate::EngineError;
use crate::queries::pivot::without_values;
use crate::session::Session;
use crate::sql::statements::Statement;
use crate::statements::own::Own;
use crate::statements::run::{Rows, as_tree, nothing};
use crate::statements::script::settings::Effect;
use crate::statements::script::state::Sequence;
use crate::statements::script::{macros, prepared, settings, transaction, types, views};
use crate::statements::syntax::parameters::placeholders;
use crate::statements::tables::change::Change;
use crate::statements::tables::create::Creation;
use crate::statements::tables::insert::{Extra, Insertion};
use crate::statements::tables::merge::Merging;
use crate::statements::tables::{alter, change, create, insert, merge, table};
use crate::sync::lock;

/// A statement that has begun.
#[expect(clippy::large_enum_variant, reason = "a statement has one")]
pub(crate) enum Begun {
    /// The statement to plan and run, and what its rows are for.
    Run(Statement, Option<Finish>),
    /// The result of a statement that is complete.
    Done(Rows),
}

/// The use of the rows of a statement.
pub(crate) enum Finish {
    Create(Box<Creation>),
    Insert(Box<Insertion>),
    Change(Box<Change>),
    Merge(Box<Merging>),
    /// Their only value becomes that of a variable.
    Variable(String),
    /// They hold the number of rows that COPY wrote.
    Copied,
}

impl Finish {
    /// Uses the rows of the job. Returns the statement's result.
    ///
    /// # Errors
    /// Returns an error if the rows do not fit; then nothing has changed.
    pub(crate) async fn apply(self, session: &Session, rows: Rows) -> Result<Rows, EngineError> {
        match self {
            Self::Create(creation) => creation.finish(session, rows).await,
            Self::Insert(insertion) => insertion.finish(session, rows).await,
            Self::Change(change) => change.finish(session, rows).await,
            Self::Merge(merging) => merging.finish(session, rows).await,
            Self::Variable(name) => {
                let mut values =
                    rows.1.iter().filter(|batch| batch.num_rows() > 0).map(|batch| batch.column(0));
                let value = match values.next() {
                    Some(values) => ScalarValue::try_from_array(values, 0)?,
                    None => ScalarValue::Null,
                };
                lock(&session.statements.variables).insert(name, value);
                Ok(nothing())
            }
            Self::Copied => {
                let counts = rows.1.iter().filter(|batch| batch.num_rows() > 0).map(|batch| batch.column(0));
                let count = |values: &Arc<dyn Array>| ScalarValue::try_from_array(values, 0);
                let counts = counts.map(count).collect::<Result<Vec<_>, DataFusionError>>()?;
                let number = |value: &ScalarValue| match value {
                    ScalarValue::UInt64(Some(count)) => usize::try_from(*count).unwrap_or(usize::MAX),
                    _ => 0,
                };
                run::count(counts.iter().map(number).sum())
            }
        }
    }
}

/// Returns the statement with its views, macros and lists of tables replaced.
///
/// # Errors
/// Returns an error with its place if a call is wrong.
pub(crate) async fn expanded(session: &Session, statement: &Statement) -> Result<Statement, EngineError> {
    let (state, mut tree) = (&session.statements, statement.tree().clone());
    // A macro may read a view, and a view may call a macro.
    for _ in 0..2 {
        views::expand(state, statement, &mut tree)?;
        macros::expand(state, statement, &mut tree)?;
    }
    types::expand(state, statement, &mut tree)?;
    settings::expand(session, statement, &mut tree)?;
    if let Some(name) = placeholders(&tree).first() {
        let bare = name.trim_start_matches('$');
        let message = format!(
            "parameter {name} has no value; give it with --param {bare}=VALUE, or PREPARE and EXECUTE the statement"
        );
        return Err(statement.refuse(statement.span(), &message));
    }
    describe::expand(&session.context.state(), statement, &mut tree).await?;
    Ok(statement.with_tree(tree))
}

/// Runs a statement that needs no rows, or returns the query of its rows.
///
/// # Errors
/// Returns an error, with its place in the statement if it has one.
pub(crate) async fn begin(session: &Session, statement: &Statement) -> Result<Begun, EngineError> {
    transaction::check(session, statement)?;
    let mut statement = statement.clone();
    for _ in 0..8 {
        let Tree::Statement(inner) = statement.tree() else { break };
        let SqlStatement::Execute { name, parameters, .. } = inner.as_ref() else { break };
        statement = prepared::executed(&session.statements, &statement, name.as_ref(), parameters)?;
    }
    if let Some(begun) = unexpanded(session, &statement).await? {
        return Ok(begun);
    }
    let statement = expanded(session, &statement).await?;
    match statement.tree().clone() {
        Tree::Statement(inner) => Beginning { session, statement }.sql(*inner).await,
        Tree::CopyTo(copy) => match statement.own().cloned() {
            Some(Own::CopyTo(own)) => {
                let copy = copies::to_file(session, &statement, copy, &own).await?;
                Ok(Begun::Run(statement.with_tree(Tree::CopyTo(copy)), Some(Finish::Copied)))
            }
            _ => Ok(Begun::Run(statement, None)),
        },
        Tree::Explain(explain) => explained(session, &statement, explain).await,
        Tree::Reset(ResetStatement::Variable(name)) => {
            Ok(effect(&statement, settings::reset(session, &statement, &name)?))
        }
        Tree::CreateExternalTable(_) => Ok(Begun::Run(statement, None)),
    }
}

fn effect(statement: &Statement, effect: Effect) -> Begun {
    match effect {
        Effect::Own(tree) => Begun::Run(statement.with_tree(tree), None),
        Effect::Done => Begun::Done(nothing()),
    }
}

/// Runs a statement whose tree must stay as it is written, or which has no tree.
async fn unexpanded(session: &Session, statement: &Statement) -> Result<Option<Begun>, EngineError> {
    let state = &session.statements;
    match statement.own() {
        Some(Own::Nothing) => return Ok(Some(Begun::Done(nothing()))),
        Some(Own::ResetVariable(name)) => drop(lock(&state.variables).remove(name)),
        Some(Own::CreateSequence(new)) => {
            let mut sequences = lock(&state.sequences);
            if sequences.contains_key(&new.name) && !new.or_replace {
                if new.if_not_exists {
                    return Ok(Some(Begun::Done(nothing())));
                }
                let message =
                    format!("cannot create sequence {}: it exists; use CREATE OR REPLACE SEQUENCE", new.name);
                return Err(statement.refuse(new.span, &message));
            }
            sequences.insert(new.name.clone(), Sequence { of: new.clone(), last: None });
        }
        Some(Own::DropMacro { name, if_exists, span }) => {
            if state.names().macros.remove(name).is_none() && !if_exists {
                return Err(statement.refuse(*span, &format!("cannot find macro {name}; check its name")));
            }
        }
        _ => {
            let Tree::Statement(inner) = statement.tree() else { return Ok(None) };
            match inner.as_ref() {
                SqlStatement::CreateMacro { or_replace, name, args, definition, .. } => {
                    macros::create(state, statement, name, args.as_deref(), definition, *or_replace)?;
                }
                SqlStatement::CreateType { name, representation } => {
                    types::create(state, statement, name, representation.as_ref())?;
                }
                prepare @ SqlStatement::Prepare { .. } => prepared::prepare(state, statement, prepare),
                SqlStatement::CreateView(view) => {
                    return create_view(session, statement, view).await.map(Some);
                }
                _ => return Ok(None),
            }
        }
    }
    Ok(Some(Begun::Done(nothing())))
}

/// Creates a view, whose query later statements read.
async fn create_view(
    session: &Session,
    statement: &Statement,
    view: &CreateView,
) -> Result<Begun, EngineError> {
    if let Some(found) = table::find(&session.context.state(), &view.name).await? {
        if view.if_not_exists {
            return Ok(Begun::Done(nothing()));
        }
        let is_view = found.provider.table_type() == TableType::View;
        if !view.or_replace || !is_view {
            let way = if is_view { "use CREATE OR REPLACE VIEW" } else { "DROP TABLE it first" };
            let message = format!("cannot create view {}: it exists; {way}", view.name);
            return Err(statement.refuse(view.name.span(), &message));
        }
    }
    if let Some(open) = without_values(&view.query) {
        let message = format!(
            "cannot create view {}: its PIVOT ON {open} has no values, and those of now would stay; add IN (…)",
            view.name
        );
        return Err(statement.refuse(open.span(), &message));
    }
    let mut made = view.clone();
    made.temporary = false;
    made.or_replace = true;
    let expanded =
        expanded(session, &statement.with_tree(Tree::Statement(Box::new(SqlStatement::CreateView(made)))))
            .await?;
    // Plans the query, so that a wrong one is not remembered.
    crate::logical::plan(&session.context.state(), &expanded, &std::sync::Arc::default()).await?;
    views::remember(&session.statements, view);
    Ok(Begun::Run(expanded, None))
}

/// Explains a statement: a change of a table by the query of its rows.
async fn explained(
    session: &Session,
    statement: &Statement,
    explain: ExplainStatement,
) -> Result<Begun, EngineError> {
    let inner = statement.with_tree((*explain.statement).clone());
    let Tree::Statement(tree) = explain.statement.as_ref() else {
        return Ok(Begun::Run(statement.clone(), None));
    };
    let (query, changes) = match tree.as_ref() {
        SqlStatement::Insert(of) => match insert::begin(session, &inner, of, Extra::default()).await? {
            Some((query, _insertion)) => (query, true),
            None => return Ok(Begun::Run(statement.clone(), None)),
        },
        SqlStatement::CreateTable(table) => match &table.query {
            Some(query) => (query.clone(), true),
            None => {
                return Err(statement.refuse(statement.span(), "EXPLAIN needs a statement that reads rows"));
            }
        },
        SqlStatement::Query(query) => (query.clone(), false),
        SqlStatement::Update(_) | SqlStatement::Delete(_) => {
            let message = "cannot EXPLAIN UPDATE or DELETE; EXPLAIN a SELECT with the same WHERE";
            return Err(statement.refuse(statement.span(), message));
        }
        _ => return Err(statement.refuse(statement.span(), "EXPLAIN needs a statement that reads rows")),
    };
    if changes && explain.options.analyze {
        let message = "cannot EXPLAIN ANALYZE a statement that changes a table; EXPLAIN ANALYZE its query";
        return Err(statement.refuse(statement.span(), message));
    }
    let tree =
        Tree::Explain(ExplainStatement { statement: Box::new(as_tree(query)), options: explain.options });
    Ok(Begun::Run(statement.with_tree(tree), None))
}

/// A statement of the parser.
struct Beginning<'a> {
    session: &'a Session,
    statement: Statement,
}

impl Beginning<'_> {
    async fn sql(self, inner: SqlStatement) -> Result<Begun, EngineError> {
        let (session, statement) = (self.session, &self.statement);
        match inner {
            SqlStatement::Query(query) => match query.body.as_ref() {
                // WITH … MERGE
                SetExpr::Merge(SqlStatement::Merge(of)) => self.merge(of, query.with.clone()).await,
                _ => Ok(self.query(query)),
            },
            SqlStatement::Merge(of) => self.merge(&of, None).await,
            SqlStatement::CreateTable(table) => {
                let query = table.query.clone();
                let created = create::begin(session, statement, table).await?;
                match (created, query) {
                    (Some(creation), Some(query)) => Ok(self.run(query, Finish::Create(Box::new(creation)))),
                    _ => Ok(Begun::Done(nothing())),
                }
            }
            SqlStatement::Insert(of) => self.insert(of).await,
            SqlStatement::Update(Update { .. })
            | SqlStatement::Delete(_)
            | SqlStatement::Truncate(_)
            | SqlStatement::AlterTable(_) => self.change(inner).await,
            SqlStatement::Drop { object_type, names, if_exists, .. } => {
                self.drop(object_type, &names, if_exists).await
            }
            SqlStatement::StartTransaction { .. } => done(transaction::begin(session, statement).await),
            SqlStatement::Commit { .. } => done(transaction::commit(session, statement).await),
            SqlStatement::Rollback { savepoint: None, .. } => {
                done(transaction::rollback(session, statement).await)
            }
            SqlStatement::Deallocate { name, .. } => {
                done(prepared::deallocate(&session.statements, statement, &name))
            }
            SqlStatement::Set(set) => Ok(effect(statement, settings::set(session, statement, &set)?)),
            SqlStatement::Use(object) => done(settings::use_object(session, statement, &object)),
            SqlStatement::Install { extension_name } | SqlStatement::Load { extension_name } => {
                done(settings::extension(statement, &extension_name))
            }
            SqlStatement::CreateSchema { .. }
            | SqlStatement::CreateDatabase { .. }
            | SqlStatement::ShowVariable { .. }
            | SqlStatement::ShowTables { .. }
            | SqlStatement::ShowColumns { .. }
            | SqlStatement::ShowFunctions { .. }
            | SqlStatement::ShowCreate { .. }
            | SqlStatement::ExplainTable { .. }
            | SqlStatement::Analyze(_) => Ok(Begun::Run(self.statement, None)),
            other => Err(unknown(statement, &other)),
        }
    }

    fn run(self, query: Box<Query>, finish: Finish) -> Begun {
        Begun::Run(self.statement.with_tree(as_tree(query)), Some(finish))
    }

    fn query(self, query: Box<Query>) -> Begun {
        match self.statement.own().cloned() {
            Some(Own::SetVariable(name)) => self.run(query, Finish::Variable(name)),
            _ => Begun::Run(self.statement, None),
        }
    }

    async fn insert(self, of: Insert) -> Result<Begun, EngineError> {
        let extra = match self.statement.own() {
            Some(Own::ByName) => Extra { by_name: true, source: None },
            Some(Own::CopyFrom(copy)) => copies::from_file(self.session, &self.statement, &of, copy).await?,
            _ => Extra::default(),
        };
        match insert::begin(self.session, &self.statement, &of, extra).await? {
            Some((query, insertion)) => Ok(self.run(query, Finish::Insert(Box::new(insertion)))),
            None => Ok(Begun::Run(self.statement, None)),
        }
    }

    async fn merge(self, of: &Merge, with: Option<With>) -> Result<Begun, EngineError> {
        let (mut query, merging) = merge::begin(self.session, &self.statement, of).await?;
        query.with = with;
        Ok(self.run(query, Finish::Merge(Box::new(merging))))
    }

    async fn change(self, inner: SqlStatement) -> Result<Begun, EngineError> {
        let (query, change) = match &inner {
            SqlStatement::Update(of) => change::update(self.session, &self.statement, of).await?,
            SqlStatement::Delete(of) => change::delete(self.session, &self.statement, of).await?,
            SqlStatement::Truncate(of) => {
                let [target] = &of.table_names[..] else {
                    return Err(self.statement.refuse(self.statement.span(), "TRUNCATE needs one table"));
                };
                return Ok(Begun::Done(change::truncate(self.session, &self.statement, &target.name).await?));
            }
            SqlStatement::AlterTable(of) => {
                return done(alter::alter(self.session, &self.statement, of).await);
            }
            other => return Err(unknown(&self.statement, other)),
        };
        Ok(self.run(query, Finish::Change(Box::new(change))))
    }

    async fn drop(
        self,
        kind: ObjectType,
        names: &[ObjectName],
        if_exists: bool,
    ) -> Result<Begun, EngineError> {
        let statement = &self.statement;
        match kind {
            ObjectType::Table | ObjectType::View => {
                done(alter::drop(self.session, statement, kind, names, if_exists).await)
            }
            ObjectType::Schema | ObjectType::Database => Ok(Begun::Run(self.statement, None)),
            ObjectType::Type => {
                let state = &self.session.statements;
                done(names.iter().try_for_each(|name| types::drop(state, statement, name, if_exists)))
            }
            ObjectType::Sequence => {
                for name in names {
                    let removed =
                        lock(&self.session.statements.sequences).remove(&name.to_string().to_lowercase());
                    if removed.is_none() && !if_exists {
                        let message = format!("cannot find sequence {name}; check its name");
                        return Err(statement.refuse(name.span(), &message));
                    }
                }
                Ok(Begun::Done(nothing()))
            }
            other => {
                Err(statement
                    .refuse(statement.span(), &format!("DROP {other} is not supported; there are none")))
            }
        }
    }
}

fn done(result: Result<(), EngineError>) -> Result<Begun, EngineError> {
    result.map(|()| Begun::Done(nothing()))
}

/// Returns the error for a statement that the engine does not have.
fn unknown(statement: &Statement, inner: &SqlStatement) -> EngineError {
    let way_out = match inner {
        SqlStatement::CreateIndex(_) => {
            "tables have no indices; remove it (PRIMARY KEY and UNIQUE are checked)"
        }
        SqlStatement::AttachDatabase { .. } => "query files by their paths: FROM 'path/*.parquet'",
        SqlStatement::Savepoint { .. } | SqlStatement::Rollback { .. } => "use BEGIN, COMMIT and ROLLBACK",
        _ => "remove it",
    };
    let text = statement.sql().split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let span = statement.span();
    statement.refuse(span, &format!("the statement {text} is not supported; {way_out}"))
}
