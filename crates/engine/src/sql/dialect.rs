//! The dialect of SQL: the parser's generic one without what the engine has no use for, and with what
//! analysts know from DuckDB and PostgreSQL.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::sql::operators;

/// The dialect of the engine.
#[derive(Debug)]
pub(crate) struct Pellucid;

macro_rules! with {
    ($($feature:ident),* $(,)?) => {
        $(fn $feature(&self) -> bool { true })*
    };
}

impl Dialect for Pellucid {
    /// The parser asks for the generic dialect by its type in some places.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_identifier_start(&self, c: char) -> bool {
        c.is_alphabetic() || c == '_' || c == '@'
    }

    fn is_identifier_part(&self, c: char) -> bool {
        c.is_alphanumeric() || matches!(c, '_' | '@' | '$')
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        operators::prefix(self, parser)
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        operators::infix(parser, left, precedence)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        operators::precedence(self, parser).map(Ok)
    }

    with!(
        allow_extract_custom,
        allow_extract_single_quotes,
        support_map_literal_syntax,
        supports_install,
        supports_load_extension,
        supports_array_join_syntax,
        supports_array_typedef_with_brackets,
        supports_asc_desc_in_column_definition,
        supports_bitwise_shift_operators,
        supports_comma_separated_trim,
        supports_comment_on,
        supports_constraint_keyword_without_name,
        supports_cte_without_as,
        supports_data_type_signed_suffix,
        supports_dictionary_syntax,
        supports_empty_projections,
        supports_explain_with_utility_options,
        supports_extract_comma_syntax,
        supports_filter_during_aggregation,
        supports_from_first_select,
        supports_group_by_expr,
        supports_group_by_with_modifier,
        supports_in_empty_list,
        supports_lambda_functions,
        supports_left_associative_joins_without_parens,
        supports_limit_comma,
        supports_named_fn_args_with_assignment_operator,
        supports_nested_comments,
        supports_notnull_operator,
        supports_numeric_literal_underscores,
        supports_order_by_all,
        supports_parens_around_table_factor,
        supports_partition_by_after_order_by,
        supports_projection_trailing_commas,
        supports_select_wildcard_except,
        supports_select_wildcard_exclude,
        supports_select_wildcard_ilike,
        supports_select_wildcard_rename,
        supports_select_wildcard_replace,
        supports_struct_literal,
        supports_pipe_operator,
        supports_interval_options,
        supports_string_escape_constant,
        supports_string_literal_concatenation_with_newline,
        supports_trailing_commas,
        supports_unicode_string_literal,
        supports_update_order_by,
        supports_values_as_table_factor,
        supports_window_clause_named_window_reference,
        supports_window_function_null_treatment_arg,
    );
}
