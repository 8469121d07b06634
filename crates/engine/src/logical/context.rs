//! The tables, functions and settings that DataFusion's planner asks for while it plans one statement.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::TableFunctionArgs;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::config::ConfigOptions;
use datafusion::common::file_options::file_type::FileType;
use datafusion::common::{
    DFSchema, ResolvedTableReference, Result, ScalarValue, TableReference, plan_datafusion_err,
};
use datafusion::datasource::file_format::format_as_file_type;
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::planner::{ParserOptions, SqlToRel};
use datafusion::sql::sqlparser::ast::ColumnDef;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::sql::dialect::Pellucid;
use crate::sql::statements::Statement;
use crate::tables::calls;

use crate::types::names::TypeNames;
use crate::types::operators::Operators;
use crate::types::rules;
use crate::types::zone;

use crate::queries::Relations;
use crate::queries::pivot::values::Values;

/// The tables and functions of one statement. Its tables are looked up once, so that the statement can be planned again
/// after a name in it was replaced.
pub(crate) struct Context<'a> {
    state: &'a SessionState,
    types: TypeNames,
    planners: Vec<Arc<dyn ExprPlanner>>,
    tables: HashMap<ResolvedTableReference, Arc<dyn TableSource>>,
    relations: Vec<Arc<dyn RelationPlanner>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(state: &'a SessionState, values: &Arc<Values>) -> Self {
        let config = state.config_options();
        let types = TypeNames::new(zone::of_session(config), config.sql_parser.map_string_types_to_utf8view);
        let mut planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(Operators)];
        planners.extend(state.expr_planners().iter().cloned());
        let own: Arc<dyn RelationPlanner> = Arc::new(Relations(Arc::clone(values)));
        let relations = std::iter::once(own).chain(state.relation_planners().iter().cloned()).collect();
        Self { state, types, planners, tables: HashMap::new(), relations }
    }

    /// Replaces calls of `read_csv` and the like by tables, and opens their files.
    ///
    /// # Errors
    /// Returns an error if an argument is invalid, or the files cannot be read.
    pub(crate) async fn open_files(&mut self, tree: &mut Tree) -> Result<()> {
        for (name, call) in calls::replace(self.state, tree)? {
            let table = call.open(self.state, &|name| self.sql_type(name)).await?;
            let name = self.resolved(TableReference::bare(name));
            self.tables.insert(name, provider_as_source(table));
        }
        Ok(())
    }

    /// Returns the type of a name such as `DECIMAL(10, 2)`.
    fn sql_type(&self, name: &str) -> Option<DataType> {
        let mut parser = Parser::new(&Pellucid).try_with_sql(name).ok()?;
        parser.parse_data_type().ok().filter(|_| parser.peek_token().token == Token::EOF)?;
        let cast: Statement = format!("SELECT CAST(NULL AS {name})").parse().ok()?;
        let plan = self.plan(cast.tree().clone()).ok()?;
        Some(plan.schema().field(0).data_type().clone())
    }

    /// Looks up the tables of a statement that are not known yet. The planner reports missing ones.
    ///
    /// # Errors
    /// Returns an error if the files of a table cannot be read.
    pub(crate) async fn resolve(&mut self, tree: &Tree) -> Result<()> {
        for reference in self.state.resolve_table_references(tree)? {
            let name = self.resolved(reference);
            if self.tables.contains_key(&name) {
                continue;
            }
            if let Ok(schema) = self.state.schema_for_ref(name.clone())
                && let Some(table) = schema.table(&name.table).await?
            {
                self.tables.insert(name, provider_as_source(table));
            }
        }
        Ok(())
    }

    /// Plans a statement whose tables are resolved.
    ///
    /// # Errors
    /// Returns an error if a name is unknown, or the statement is invalid or not supported.
    pub(crate) fn plan(&self, tree: Tree) -> Result<LogicalPlan> {
        let options = ParserOptions::from(&self.options().sql_parser);
        SqlToRel::new_with_options(self, options).statement_to_plan(tree)
    }

    /// Returns the schema of declared columns.
    ///
    /// # Errors
    /// Returns an error for an unknown type.
    pub(crate) fn schema(&self, columns: Vec<ColumnDef>) -> Result<Schema> {
        let options = ParserOptions::from(&self.options().sql_parser);
        SqlToRel::new_with_options(self, options).build_schema(columns)
    }

    /// Returns the names of the columns of all tables.
    pub(crate) fn columns(&self) -> Vec<String> {
        let schemas = self.tables.values().map(|table| table.schema());
        schemas
            .flat_map(|schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>())
            .collect()
    }

    pub(crate) fn state(&self) -> &SessionState {
        self.state
    }

    fn resolved(&self, name: TableReference) -> ResolvedTableReference {
        let catalog = &self.state.config_options().catalog;
        name.resolve(&catalog.default_catalog, &catalog.default_schema)
    }
}

impl ContextProvider for Context<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        let name = self.resolved(name);
        self.tables.get(&name).cloned().ok_or_else(|| plan_datafusion_err!("table '{name}' not found"))
    }

    fn get_file_type(&self, extension: &str) -> Result<Arc<dyn FileType>> {
        self.state
            .get_file_format_factory(&extension.to_lowercase())
            .map(format_as_file_type)
            .ok_or_else(|| plan_datafusion_err!("There is no registered file format with ext {extension}"))
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let function = self
            .state
            .table_functions()
            .get(&name.to_lowercase())
            .ok_or_else(|| plan_datafusion_err!("table function '{name}' not found"))?;
        let context = SimplifyContext::builder()
            .with_config_options(Arc::clone(self.state.config_options()))
            .with_query_execution_start_time(self.state.execution_props().query_execution_start_time)
            .build();
        let simplifier = ExprSimplifier::new(context);
        let simplified =
            |arg| simplifier.coerce(arg, &DFSchema::empty()).and_then(|e| simplifier.simplify(e));
        // DataFusion's tables of timestamps have nanoseconds, and its simplifier does not know our casts.
        let exact = |arg: Expr| {
            let arg = rules::constant(arg)?;
            Ok(match simplified(arg)? {
                Expr::Literal(value @ ScalarValue::TimestampMicrosecond(..), metadata) => {
                    let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
                    Expr::Literal(value.cast_to(&nanos)?, metadata)
                }
                other => other,
            })
        };
        let args = args.into_iter().map(exact).collect::<Result<Vec<_>>>()?;
        let args = TableFunctionArgs::new(&args, self.state);
        Ok(provider_as_source(function.create_table_provider_with_args(args)?))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relations
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(self.types.clone()))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if name == "timezone" {
            return Some(Arc::new(zone::function(self.options())));
        }
        self.state.scalar_functions().get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    /// There are no variables.
    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state.higher_order_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}
