//! Parts of a statement that the syntax tree of the parser has no place for.

use datafusion::sql::sqlparser::tokenizer::Span;

use crate::statements::syntax::copy_options::CopyOption;

/// A statement, or a clause of one, that is not in the tree.
#[derive(Debug, Clone)]
pub(crate) enum Own {
    /// `INSERT INTO t BY NAME …`; the tree is the INSERT without these words.
    ByName,
    /// `COPY … TO` in DuckDB's form; the tree is DataFusion's COPY.
    CopyTo(CopyTo),
    /// `COPY t FROM 'file'`; the tree is an INSERT of the file.
    CopyFrom(CopyFrom),
    /// `SET VARIABLE name = …`; the tree is a query of the value.
    SetVariable(String),
    /// `RESET VARIABLE name`.
    ResetVariable(String),
    /// `CREATE SEQUENCE`.
    CreateSequence(NewSequence),
    /// `DROP MACRO name`.
    DropMacro { name: String, if_exists: bool, span: Span },
    /// A statement that has no effect on tables in memory, such as `CHECKPOINT`.
    Nothing,
}

/// Properties of `COPY … TO` that depend on the columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct CopyTo {
    pub csv: bool,
    pub partition_by: Vec<String>,
    pub keep_partition_columns: bool,
    /// The place of `FORCE_QUOTE`.
    pub force_quote: Option<Span>,
}

/// The file of `COPY … FROM`.
#[derive(Debug, Clone)]
pub(crate) struct CopyFrom {
    pub file: String,
    /// `csv`, `parquet` or `json`.
    pub format: String,
    pub options: Vec<CopyOption>,
    /// The place of the file's name.
    pub span: Span,
}

/// A sequence to create.
#[derive(Debug, Clone)]
pub(crate) struct NewSequence {
    pub name: String,
    pub or_replace: bool,
    pub if_not_exists: bool,
    pub start: i64,
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    pub cycle: bool,
    pub span: Span,
}
