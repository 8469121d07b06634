//! Lambdas: `x -> …` is one as an argument of a function that takes one, and otherwise reads a value of JSON. Within one,
//! `x.a` is a field of its parameter.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, LambdaFunction,
    LambdaFunctionParameter, LambdaSyntax, OneOrManyWithParens, Subscript, Value, VisitorMut,
    visit_expressions_mut,
};

use crate::sql::tree;

/// The functions that take a lambda.
const FUNCTIONS: [&str; 16] = [
    "__unpacked",
    "any_match",
    "apply",
    "array_any_match",
    "array_apply",
    "array_filter",
    "array_reduce",
    "array_transform",
    "columns",
    "filter",
    "list_any_match",
    "list_apply",
    "list_filter",
    "list_reduce",
    "list_transform",
    "reduce",
];

/// Makes lambdas of the arguments `x -> …` of these functions.
pub(crate) fn find(statement: &mut Statement) {
    // `Break` is `Infallible`.
    let _ = tree::visit(statement, &mut Find);
}

struct Find;

impl VisitorMut for Find {
    type Break = std::convert::Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Function(function) = expr
            && FUNCTIONS.contains(&function.name.to_string().to_lowercase().as_str())
            && let FunctionArguments::List(list) = &mut function.args
        {
            for argument in &mut list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument
                    && let Some(lambda) = lambda(expr)
                {
                    *expr = lambda;
                }
            }
        }
        if let Expr::Lambda(lambda) = expr {
            fields(lambda);
        }
        ControlFlow::Continue(())
    }
}

/// Replaces `x.a` by `x['a']` for the parameters of a lambda, which DataFusion would take for tables.
fn fields(lambda: &mut LambdaFunction) {
    let LambdaFunction { params, body, .. } = lambda;
    let is_parameter = |name: &Ident| match &*params {
        OneOrManyWithParens::One(one) => one.name.value.eq_ignore_ascii_case(&name.value),
        OneOrManyWithParens::Many(many) => {
            many.iter().any(|one| one.name.value.eq_ignore_ascii_case(&name.value))
        }
    };
    let _ = visit_expressions_mut(body.as_mut(), |expr| {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [first, fields @ ..] = &parts[..]
            && is_parameter(first)
        {
            let field = |name: &Ident| {
                let name = Value::SingleQuotedString(name.value.clone()).with_span(name.span);
                AccessExpr::Subscript(Subscript::Index { index: Expr::Value(name) })
            };
            let access_chain = fields.iter().map(field).collect();
            let root = Box::new(Expr::Identifier(first.clone()));
            *expr = Expr::CompoundFieldAccess { root, access_chain };
        }
        ControlFlow::<()>::Continue(())
    });
}

fn lambda(expr: &Expr) -> Option<Expr> {
    let Expr::BinaryOp { left, op: BinaryOperator::Arrow, right } = expr else { return None };
    let parameter = |name: &Ident| LambdaFunctionParameter { name: name.clone(), data_type: None };
    let params = match left.as_ref() {
        Expr::Identifier(name) => OneOrManyWithParens::One(parameter(name)),
        Expr::Nested(inner) => match inner.as_ref() {
            Expr::Identifier(name) => OneOrManyWithParens::Many(vec![parameter(name)]),
            _ => return None,
        },
        _ => return None,
    };
    Some(Expr::Lambda(LambdaFunction { params, body: right.clone(), syntax: LambdaSyntax::Arrow }))
}
