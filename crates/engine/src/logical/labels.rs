//! Names of result columns: an expression without an alias is named by its text, and a name that occurs
//! twice is allowed.
//!
//! DataFusion names an expression by its plan (`to_char(Utf8("2020-02-03"),Utf8("%Y"))`) and refuses
//! two columns of the same name. So expressions get aliases, and repeated names a number: `a`, `a_1`. The
//! result of the statement shows them without the number.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::common::DFSchema;
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, Query, Select, SelectItem, SetExpr, Statement, Visitor, VisitorMut,
};

use crate::sql::tree;

/// Names of columns as the result shows them, by the name in the plan.
pub(crate) type Labels = HashMap<String, String>;

/// Gives every expression in the SELECT lists of a statement a name, and repeated names a number. Returns
/// the names to show in the statement's own result.
pub(crate) fn apply(tree: &mut Tree) -> Labels {
    let labels = match tree {
        Tree::Statement(inner) => match inner.as_mut() {
            Statement::Query(query) => leftmost(query).map(name),
            _ => None,
        },
        _ => None,
    };
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut Selects);
    labels.unwrap_or_default()
}

/// Returns the SELECT that names the columns of a query.
fn leftmost(query: &mut Query) -> Option<&mut Select> {
    let mut body = query.body.as_mut();
    loop {
        body = match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::SetOperation { left, .. } => left,
            SetExpr::Query(query) => &mut query.body,
            _ => return None,
        }
    }
}

struct Selects;

impl VisitorMut for Selects {
    type Break = std::convert::Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        name(select);
        ControlFlow::Continue(())
    }
}

/// Returns true if a SELECT list of a statement has an unnamed `unnest`, which may be of a struct.
pub(crate) fn has_unnest(tree: &Tree) -> bool {
    struct Find(bool);
    impl Visitor for Find {
        type Break = std::convert::Infallible;

        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
            self.0 |= select
                .projection
                .iter()
                .any(|item| matches!(item, SelectItem::UnnamedExpr(e) if is_unnest(e)));
            ControlFlow::Continue(())
        }
    }
    let mut find = Find(false);
    // `Break` is `Infallible`.
    let _ = tree::inspect(tree, &mut find);
    find.0
}

/// Adds the names of the columns that `unnest` of a struct makes: those of its fields.
pub(crate) fn of_unnest(tree: &Tree, schema: &DFSchema, labels: &mut Labels) {
    if !has_unnest(tree) {
        return;
    }
    for field in schema.fields() {
        // `unnest_placeholder(…).a`, or `column.a`: DataFusion gives other columns no dot.
        if let Some((_, name)) = field.name().rsplit_once('.').filter(|_| !labels.contains_key(field.name()))
        {
            labels.insert(field.name().clone(), name.trim_matches('"').to_string());
        }
    }
}

/// Names the fields of structs in all SELECT lists (`l.sku`), which DataFusion calls `l[sku]`, if one of the columns
/// `names` is called so. Returns true if anything changed.
pub(crate) fn of_fields<'a>(tree: &mut Tree, names: impl Iterator<Item = &'a str>) -> bool {
    struct Fields<'a>(Vec<&'a str>, bool);
    impl VisitorMut for Fields<'_> {
        type Break = std::convert::Infallible;

        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)) = item
                    && let Expr::CompoundIdentifier(parts) = &*expr
                    && let Some(last) = parts.last()
                    && let Some(name) = self.0.iter().find(|name| name.eq_ignore_ascii_case(&last.value))
                {
                    let alias = Ident::with_quote('"', *name);
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                    self.1 = true;
                }
            }
            ControlFlow::Continue(())
        }
    }
    let of_field = |name: &'a str| name.strip_suffix(']')?.rsplit_once('[').map(|(_, field)| field);
    let mut fields = Fields(names.filter_map(of_field).collect(), false);
    if !fields.0.is_empty() {
        // `Break` is `Infallible`.
        let _ = tree::visit(tree, &mut fields);
    }
    fields.1
}

/// Names the columns of a SELECT. Returns the names without the number, by those that have one.
fn name(select: &mut Select) -> Labels {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
            && !is_unnest(expr)
        {
            let alias = Ident::with_quote('"', expr.to_string());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    let wildcards = select.projection.iter().filter_map(|item| match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => Some(options),
        _ => None,
    });
    let wildcard = wildcards.clone().next().is_some();
    let excluded: Vec<String> = wildcards
        .flat_map(|options| match &options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => vec![name.to_string().to_lowercase()],
            Some(ExcludeSelectItem::Multiple(names)) => {
                names.iter().map(|n| n.to_string().to_lowercase()).collect()
            }
            None => Vec::new(),
        })
        .collect();
    let mut taken: HashSet<String> = HashSet::new();
    let mut labels = Labels::new();
    for item in &mut select.projection {
        let Some(shown) = shown(item) else { continue };
        let column = matches!(item, SelectItem::UnnamedExpr(_));
        let again = wildcard && column && !excluded.contains(&shown.to_lowercase());
        if taken.insert(shown.to_lowercase()) && !again {
            continue;
        }
        let numbered = (1..).map(|n| format!("{shown}_{n}")).find(|name| taken.insert(name.to_lowercase()));
        if let (Some(numbered), SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) =
            (numbered, &item)
        {
            let alias = Ident::with_quote('"', &numbered);
            labels.insert(numbered, shown);
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    labels
}

/// Returns the name that a column has in the result.
fn shown(item: &SelectItem) -> Option<String> {
    let name = match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => name,
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last()?,
        SelectItem::ExprWithAlias { alias, .. } => alias,
        _ => return None,
    };
    Some(match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    })
}

/// `unnest` of a struct makes several columns, which no alias can name.
fn is_unnest(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("unnest"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statements::Statement as Parsed;

    fn named(sql: &str) -> (String, Vec<(String, String)>) {
        let parsed: Parsed = sql.parse().unwrap();
        let mut tree = parsed.tree().clone();
        let mut labels: Vec<_> = apply(&mut tree).into_iter().collect();
        labels.sort();
        (tree.to_string(), labels)
    }

    #[test]
    fn expressions_are_named_by_their_text() {
        let (sql, labels) = named("SELECT a, t.b, a+1, count( * ) AS n, upper('x') FROM t");
        let expected = r#"SELECT a, t.b, a + 1 AS "a + 1", count(*) AS n, upper('x') AS "upper('x')" FROM t"#;
        assert_eq!((sql.as_str(), labels.len()), (expected, 0));
        assert_eq!(named("SELECT unnest(s) FROM t").0, "SELECT unnest(s) FROM t");
    }

    #[test]
    fn fields_of_structs_have_their_own_name() {
        let parsed: Parsed = "SELECT l.SKU, l.qty, a FROM (SELECT x.sku FROM t)".parse().unwrap();
        let mut tree = parsed.tree().clone();
        assert!(!of_fields(&mut tree, ["sku", "a[1]"].into_iter()));
        assert!(of_fields(&mut tree, ["l[Sku]", "a"].into_iter()));
        let expected = r#"SELECT l.SKU AS "Sku", l.qty, a FROM (SELECT x.sku AS "Sku" FROM t)"#;
        assert_eq!(tree.to_string(), expected);
    }

    #[test]
    fn repeated_names_get_a_number_that_the_result_does_not_show() {
        let (sql, labels) = named("SELECT a, A, b AS a, a_1 FROM (SELECT c, c FROM t)");
        let expected =
            r#"SELECT a, A AS "a_1", b AS "a_2", a_1 AS "a_1_1" FROM (SELECT c, c AS "c_1" FROM t)"#;
        assert_eq!(sql, expected);
        let shown = [("a_1", "a"), ("a_1_1", "a_1"), ("a_2", "a")];
        assert_eq!(labels, shown.map(|(a, b)| (a.to_string(), b.to_string())));
        assert_eq!(named("SELECT *, a FROM t").0, r#"SELECT *, a AS "a_1" FROM t"#);
        assert_eq!(named("SELECT * EXCLUDE (a), a FROM t").0, "SELECT * EXCLUDE (a), a FROM t");
    }
}
