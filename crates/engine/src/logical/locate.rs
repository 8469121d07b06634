//! Finds the expression that an error of the planner is about, or the path of files that cannot be read.
//!
//! Most errors of DataFusion's planner and type checks name no place. But planning is cheap, so the
//! statement is planned again with one expression after the other replaced by NULL: the smallest one
//! without which the error disappears contains its cause.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use datafusion::common::DataFusionError;
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{Expr, Spanned, TableFactor, Value, Visitor, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, Tokenizer, Word};

use crate::logical::context::Context;
use crate::sql::dialect::Pellucid;
use crate::sql::statements::Statement;
use crate::sql::tree;

/// Maximum number of times that a statement is planned to find the place.
const MAX_PLANS: usize = 200;

/// Time after which no other place is tried: a generated statement may take long to plan.
const MAX_TIME: Duration = Duration::from_millis(300);

/// Returns the place of the expression that causes `error`.
pub(crate) fn find(context: &Context<'_>, tree: &Tree, error: &DataFusionError) -> Option<Span> {
    let message = error.strip_backtrace();
    let same = |tree: Tree| match checked(context, tree) {
        Ok(()) => false,
        Err(other) => other.strip_backtrace() == message,
    };
    // The error may be of a later step, such as writing a file.
    if !same(tree.clone()) {
        return None;
    }
    let expressions = expressions(tree);
    let started = Instant::now();
    let mut plans = 0;
    let mut cause = |index: usize| {
        plans += 1;
        plans <= MAX_PLANS && started.elapsed() < MAX_TIME && !same(without(tree, index))
    };
    let mut found = None;
    let mut range = 0..expressions.len();
    'descend: loop {
        let mut index = range.start;
        while index < range.end {
            let Spot { span, end } = expressions[index];
            if cause(index) {
                if span != Span::empty() {
                    found = Some(span);
                }
                range = index + 1..end;
                continue 'descend;
            }
            index = end;
        }
        return found;
    }
}

/// Returns the place of the first subquery, if the error is that of one that cannot be joined.
pub(super) fn subquery(tree: &Tree, error: &DataFusionError) -> Option<Span> {
    struct First;
    impl Visitor for First {
        type Break = Span;

        fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Span> {
            match table {
                TableFactor::Derived { lateral: true, .. } => ControlFlow::Break(table.span()),
                _ => ControlFlow::Continue(()),
            }
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Span> {
            match expr {
                Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                    ControlFlow::Break(expr.span())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let message = error.strip_backtrace();
    if !message.contains("Physical plan does not support logical expression") {
        return None;
    }
    tree::inspect(tree, &mut First).break_value().filter(|span| *span != Span::empty())
}

/// Returns the place of the path that an error of reading files names.
pub(super) fn path(statement: &Statement, message: &str) -> Option<Span> {
    // The parser drops the places of texts that name tables.
    let tokens = Tokenizer::new(&Pellucid, statement.text()).tokenize_with_location().ok()?;
    let from_here = tokens.into_iter().filter(|token| token.span.start >= statement.span().start);
    let mut named = from_here.filter(|token| match &token.token {
        Token::SingleQuotedString(text) | Token::Word(Word { value: text, quote_style: Some(_), .. }) => {
            text.contains(['/', '.', '*']) && has_word(message, text)
        }
        _ => false,
    });
    named.next().map(|token| token.span)
}

/// Returns true if a message has a path that is not part of another one.
fn has_word(message: &str, path: &str) -> bool {
    message.match_indices(path).any(|(at, _)| {
        let (before, after) = (&message[..at], &message[at + path.len()..]);
        (before.is_empty() || before.ends_with(' '))
            && (after.is_empty() || after.starts_with([' ', ':', ',', ';']))
    })
}

/// Plans a statement and checks the types of its expressions.
fn checked(context: &Context<'_>, tree: Tree) -> Result<(), DataFusionError> {
    let plan = context.plan(tree)?;
    let state = context.state();
    state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {}).map(drop)
}

/// An expression, in the order of the tree.
#[derive(Clone, Copy)]
struct Spot {
    span: Span,
    /// Index after the last expression within this one.
    end: usize,
}

fn expressions(tree: &Tree) -> Vec<Spot> {
    #[derive(Default)]
    struct Spots {
        all: Vec<Spot>,
        open: Vec<usize>,
    }
    impl Visitor for Spots {
        type Break = std::convert::Infallible;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
            self.open.push(self.all.len());
            self.all.push(Spot { span: expr.span(), end: 0 });
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<Self::Break> {
            if let Some(index) = self.open.pop() {
                self.all[index].end = self.all.len();
            }
            ControlFlow::Continue(())
        }
    }
    let mut spots = Spots::default();
    // `Break` is `Infallible`.
    let _ = tree::inspect(tree, &mut spots);
    spots.all
}

/// Returns the statement with NULL in place of the expression at `index`.
fn without(tree: &Tree, index: usize) -> Tree {
    /// Number of expressions before the one to replace.
    struct Replace(usize);
    impl VisitorMut for Replace {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.0 == 0 {
                *expr = Expr::Value(Value::Null.with_empty_span());
                return ControlFlow::Break(());
            }
            self.0 -= 1;
            ControlFlow::Continue(())
        }
    }
    let mut copy = tree.clone();
    let _ = tree::visit(&mut copy, &mut Replace(index));
    copy
}
