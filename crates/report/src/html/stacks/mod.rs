//! The data of the flame graph: sampled stacks as a tree below stages and operators, and the functions by samples.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use pellucid_trace::{Stack, Trace};
use serde::Serialize;

/// Nodes with less than this part of the samples are left out of the tree: they are not visible.
const SMALLEST_PART: u64 = 10_000;
/// Maximum number of functions of a stack in the tree, more than are sampled.
const MAX_DEPTH: usize = 300;
/// Maximum number of functions in the table.
const MAX_FUNCTIONS: usize = 300;

/// Sampled stacks.
#[derive(Debug, Serialize)]
pub(crate) struct Flame {
    rate_hz: u64,
    samples: u64,
    names: Vec<String>,
    /// Index of the parent among the nodes, index of the name, and samples. Parents come first; the root is its own.
    nodes: Vec<(usize, usize, u64)>,
    /// The functions in which most samples were taken.
    functions: Vec<Function>,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    /// Samples in the function itself.
    own: u64,
    /// Samples in it and the functions that it called.
    total: u64,
}

/// Returns the names of a stack's stage and operator.
pub(crate) fn place<'t>(trace: &'t Trace, stack: &Stack) -> [Cow<'t, str>; 2] {
    let operator = match stack.operator {
        None => Cow::Borrowed("no operator"),
        Some(number) => {
            let of = trace.operators.iter().find(|o| o.stage == stack.stage && o.operator == number);
            of.map_or_else(|| Cow::Owned(format!("operator {number}")), |of| Cow::Borrowed(of.name.as_str()))
        }
    };
    [Cow::Owned(format!("stage {}", stack.stage)), operator]
}

#[derive(Default)]
struct Node<'t> {
    count: u64,
    children: BTreeMap<Cow<'t, str>, Node<'t>>,
}

/// Returns the flame graph of a trace with stacks.
pub(crate) fn flame(trace: &Trace) -> Option<Flame> {
    let mut root = Node::default();
    let mut functions: HashMap<&str, (u64, u64)> = HashMap::new();
    for stack in &trace.stacks {
        root.count = root.count.saturating_add(stack.count);
        let mut node = &mut root;
        for name in
            place(trace, stack).into_iter().chain(stack.frames.split(';').map(Cow::Borrowed).take(MAX_DEPTH))
        {
            node = node.children.entry(name).or_default();
            node.count = node.count.saturating_add(stack.count);
        }
        // A recursive function is in a stack several times.
        for name in stack.frames.split(';').collect::<HashSet<_>>() {
            let total = &mut functions.entry(name).or_default().1;
            *total = total.saturating_add(stack.count);
        }
        if let Some(name) = stack.frames.rsplit(';').next() {
            let own = &mut functions.entry(name).or_default().0;
            *own = own.saturating_add(stack.count);
        }
    }
    if trace.stacks.is_empty() {
        return None;
    }
    let mut functions: Vec<Function> = functions
        .into_iter()
        .map(|(name, (own, total))| Function { name: name.to_owned(), own, total })
        .collect();
    functions.sort_by(|a, b| (b.own, b.total, &a.name).cmp(&(a.own, a.total, &b.name)));
    functions.truncate(MAX_FUNCTIONS);
    let mut flame = Flame {
        rate_hz: Stack::RATE_HZ,
        samples: root.count,
        names: Vec::new(),
        nodes: Vec::new(),
        functions,
    };
    let mut known = HashMap::new();
    let mut left = vec![(0, Cow::Borrowed("all"), root)];
    while let Some((parent, name, node)) = left.pop() {
        if node.count.saturating_mul(SMALLEST_PART) < flame.samples {
            continue;
        }
        let names = &mut flame.names;
        let name = *known.entry(name).or_insert_with_key(|name| {
            names.push(name.to_string());
            names.len() - 1
        });
        let at = flame.nodes.len();
        flame.nodes.push((parent, name, node.count));
        left.extend(node.children.into_iter().map(|(name, child)| (at, name, child)));
    }
    Some(flame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_a_tree_and_functions_count_once_a_stack() {
        let stack =
            |operator, count, frames: &str| Stack { stage: 1, operator, count, frames: frames.into() };
        let stacks = vec![
            stack(Some(4), 3, "run;sort;sort"),
            stack(Some(4), 2, "run"),
            stack(None, 20_000, "run;copy"),
        ];
        let rare = stack(Some(4), 1, "run;rare");
        let trace = Trace { stacks: stacks.into_iter().chain([rare]).collect(), ..Trace::default() };
        let flame = flame(&trace).unwrap();
        assert_eq!(flame.samples, 20_006);
        let path = |mut at: usize| {
            let mut names = vec![flame.names[flame.nodes[at].1].as_str()];
            while at > 0 {
                at = flame.nodes[at].0;
                names.insert(0, &flame.names[flame.nodes[at].1]);
            }
            names.join(";")
        };
        let mut nodes: Vec<_> = (0..flame.nodes.len()).map(|at| (path(at), flame.nodes[at].2)).collect();
        nodes.sort();
        let expected = [
            ("all", 20_006),
            ("all;stage 1", 20_006),
            ("all;stage 1;no operator", 20_000),
            ("all;stage 1;no operator;run", 20_000),
            ("all;stage 1;no operator;run;copy", 20_000),
            ("all;stage 1;operator 4", 6),
            ("all;stage 1;operator 4;run", 6),
            ("all;stage 1;operator 4;run;sort", 3),
            ("all;stage 1;operator 4;run;sort;sort", 3),
        ];
        assert_eq!(nodes, expected.map(|(path, count)| (path.to_owned(), count)));
        let functions: Vec<_> = flame.functions.iter().map(|f| (f.name.as_str(), f.own, f.total)).collect();
        assert_eq!(functions, [("copy", 20_000, 20_000), ("sort", 3, 3), ("run", 2, 20_006), ("rare", 1, 1)]);
        assert!(super::flame(&Trace::default()).is_none());
    }
}
