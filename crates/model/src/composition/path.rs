//! The compute-to-data path: the logical links that a record crosses, counted and drawn.
//!
//! The definition and the counts are those of CLOUD '16, §IV-C and figures 2 and 3, as rules:
//!
//! 1. Components in one place have no hop between them; every mediator on another machine adds
//!    one hop.
//! 2. A read crosses each hop in both directions. One copy answers it; an erasure code's primary
//!    gathers fragments, which adds one hop in both directions.
//! 3. A write to parallel copies counts one hop each way, since the copies are written
//!    concurrently and the acknowledgement that completes the quorum is the last one awaited. If
//!    a primary forwards the record and more than its own copy must be acknowledged, that adds
//!    one hop in both directions.
//! 4. A chain counts each forward hop, and the way back from the last copy once.
//! 5. The data layer's copies multiply the hops to the storage below them.
//!
//! A count is not a time: it ignores the rate of each link and how many streams share it, which
//! is why NC lost to GC-V with the same count (§V-A). [`crate::doctor`] covers that.

use super::{Composition, Forwarder, Layer, Place, Replication};

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the data to the compute layer.
    Read,
    /// From the compute layer to the data.
    Write,
}

/// The path of a record through a composition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Direction of the transfer.
    pub direction: Direction,
    /// Legs in the order in which the record travels them.
    pub legs: Vec<Leg>,
}

/// A part of a path that is travelled once, or once per copy of the layer above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    /// Steps in travel order.
    pub steps: Vec<Step>,
    /// Number of times that the leg is travelled: once per copy of the layer above.
    pub times: u32,
}

/// A step from one node to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Origin.
    pub from: String,
    /// Destination; may name several nodes that are reached concurrently.
    pub to: String,
    /// True if the step crosses a link; false within one place.
    pub is_hop: bool,
    /// True for the way back: an answer or an acknowledgement.
    pub back: bool,
}

/// A node on the request path. `is_hop` is true if a link leads to it.
#[derive(Clone)]
struct Node {
    name: String,
    is_hop: bool,
}

impl Path {
    /// Computes the path of a record through `composition`.
    pub fn of(composition: &Composition, direction: Direction) -> Path {
        let (data, storage) = (&composition.data, &composition.storage);
        let first = copy_name(data, 1);
        let legs = match direction {
            Direction::Read => {
                let mut nodes = nodes_to_fragments(data);
                nodes.extend(nodes_to_fragments(storage));
                vec![Leg { steps: round_trip(&composition.compute, &nodes), times: 1 }]
            }
            Direction::Write => {
                let above = Leg { steps: write(data, &composition.compute), times: 1 };
                let writer =
                    if data.stores_per_record() > 1 { format!("each {}", data.system) } else { first };
                let below = Leg { steps: write(storage, &writer), times: data.stores_per_record() };
                vec![above, below]
            }
        };
        Path { direction, legs }
    }

    /// Returns the number of links that the record crosses.
    pub fn links(&self) -> u32 {
        self.legs.iter().map(|leg| leg.times * leg.hops()).sum()
    }

    /// Returns one entry per crossing of a link; [`Path::links`] is their number.
    pub fn hops(&self) -> Vec<String> {
        let mut hops = Vec::new();
        for leg in &self.legs {
            for time in 1..=leg.times {
                let which =
                    if leg.times > 1 { format!(" (copy {time} of {})", leg.times) } else { String::new() };
                let crossed = leg.steps.iter().filter(|s| s.is_hop);
                hops.extend(crossed.map(|s| format!("{} → {}{which}", s.from, s.to)));
            }
        }
        hops
    }

    /// Draws the path as lines of text: `──▶` is a link, `═══` is a step within one place. Each
    /// line ends with its link count.
    pub fn drawing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for leg in &self.legs {
            for back in [false, true] {
                let steps: Vec<&Step> = leg.steps.iter().filter(|s| s.back == back).collect();
                if let Some(drawn) = drawn(&steps, back) {
                    lines.push((drawn, steps.iter().filter(|s| s.is_hop).count() as u32, leg.times));
                }
            }
        }
        let width = lines.iter().map(|(text, ..)| text.chars().count()).max().unwrap_or(0);
        let line = |(text, hops, times): &(String, u32, u32)| {
            let pad = " ".repeat(width - text.chars().count());
            match times {
                1 => format!("{text}{pad}  {hops}"),
                times => format!("{text}{pad}  {times} × {hops} = {}", times * hops),
            }
        };
        lines.iter().map(line).collect()
    }
}

impl Leg {
    fn hops(&self) -> u32 {
        self.steps.iter().filter(|s| s.is_hop).count() as u32
    }
}

/// Draws the steps of one direction on one line; `None` without steps.
fn drawn(steps: &[&Step], back: bool) -> Option<String> {
    // The way back is drawn from its end, so that both lines have the same nodes below each other.
    let (first, arrow) =
        if back { (&steps.last()?.to, " ◀── ") } else { (&steps.first()?.from, " ──▶ ") };
    let mut text = first.clone();
    let ordered: Vec<&&Step> = if back { steps.iter().rev().collect() } else { steps.iter().collect() };
    for step in ordered {
        text += if step.is_hop { arrow } else { " ═══ " };
        text += if back { &step.from } else { &step.to };
    }
    Some(text)
}

/// Returns the name of a copy by its number, or the layer's name if it keeps one copy only.
fn copy_name(layer: &Layer, number: u32) -> String {
    if layer.copies > 1 { format!("{} {number}", layer.system) } else { layer.system.clone() }
}

/// Returns the mediators and the first copy of a layer.
fn nodes_to(layer: &Layer) -> Vec<Node> {
    let node = |name: String, runs: Place| Node { name, is_hop: runs.is_remote() };
    let mut nodes: Vec<Node> = layer.mediators.iter().map(|m| node(m.name.clone(), m.runs)).collect();
    nodes.push(node(copy_name(layer, 1), layer.runs));
    nodes
}

/// Returns the way to the copy that holds a record or, with an erasure code, to its fragments,
/// which the primary or the client gathers and spreads.
fn nodes_to_fragments(layer: &Layer) -> Vec<Node> {
    let mut nodes = nodes_to(layer);
    let fragments = layer.fragments.0 + layer.fragments.1;
    if layer.replication == Replication::Erasure && fragments > 1 {
        spread(layer, &mut nodes, |first| format!("{} {} fragments", layer.system, fragments + 1 - first));
    }
    nodes
}

/// Extends the way to the first copy to all copies. A primary adds a hop to the others; a writer
/// that reaches all copies concurrently adds none. `several` names the copies from the first or
/// second on.
fn spread(layer: &Layer, nodes: &mut Vec<Node>, several: impl Fn(u32) -> String) {
    let is_hop = layer.copies_run.is_remote();
    match (layer.forwarded_by, nodes.last_mut()) {
        (Forwarder::Primary, _) => nodes.push(Node { name: several(2), is_hop }),
        (Forwarder::Writer, Some(last)) => *last = Node { name: several(1), is_hop: last.is_hop || is_hop },
        (Forwarder::Writer, None) => {}
    }
}

fn outbound(from: &str, nodes: &[Node]) -> Vec<Step> {
    let mut from = from.to_string();
    let step = |node: &Node| {
        let begin = std::mem::replace(&mut from, node.name.clone());
        Step { from: begin, to: node.name.clone(), is_hop: node.is_hop, back: false }
    };
    nodes.iter().map(step).collect()
}

fn round_trip(from: &str, nodes: &[Node]) -> Vec<Step> {
    let mut steps = outbound(from, nodes);
    let back = |s: &Step| Step { from: s.to.clone(), to: s.from.clone(), is_hop: s.is_hop, back: true };
    // Within one place the way back would repeat the way there, so it is left out.
    let returned: Vec<Step> = steps.iter().rev().map(back).collect();
    if returned.iter().any(|s| s.is_hop) {
        steps.extend(returned);
    }
    steps
}

fn write(layer: &Layer, from: &str) -> Vec<Step> {
    let mut nodes = nodes_to_fragments(layer);
    match layer.replication {
        Replication::Chain => return chain(layer, from, nodes),
        Replication::Parallel if layer.acknowledged_copies() > 1 => {
            spread(layer, &mut nodes, |first| several(layer, first));
        }
        // Copies whose acknowledgement is not awaited are not on the path of a write.
        Replication::Parallel | Replication::None | Replication::Erasure => {}
    }
    round_trip(from, &nodes)
}

/// Names the copies from `first` on, which are reached concurrently.
fn several(layer: &Layer, first: u32) -> String {
    match layer.copies {
        n if n == first => copy_name(layer, n),
        n => format!("{} {first}–{n}", layer.system),
    }
}

fn chain(layer: &Layer, from: &str, mut nodes: Vec<Node>) -> Vec<Step> {
    let way = nodes.clone();
    let between = layer.copies_run.is_remote();
    nodes.extend((2..=layer.copies).map(|n| Node { name: copy_name(layer, n), is_hop: between }));
    let mut steps = outbound(from, &nodes);
    // The last copy answers the sender of the first copy, over a link if the two are on
    // different machines.
    let crossed = way.last().is_some_and(|first| first.is_hop) || (between && layer.copies > 1);
    let mut back = Vec::new();
    let mut at = copy_name(layer, layer.copies);
    let names = way.iter().rev().skip(1).map(|n| n.name.clone()).chain([from.to_string()]);
    let links = std::iter::once(crossed).chain(way.iter().rev().skip(1).map(|n| n.is_hop));
    for (to, is_hop) in names.zip(links) {
        back.push(Step { from: std::mem::replace(&mut at, to.clone()), to, is_hop, back: true });
    }
    if back.iter().any(|s| s.is_hop) {
        steps.extend(back);
    }
    steps
}
