//! Graphs from edge lists: GAP's text format (`source destination` per line, ignoring a weight after them),
//! CSV or Parquet.
//!
//! Vertices are renumbered by falling degree, so that those with the most edges are adjacent in memory;
//! kernels rely on that. Every process of a job reads the whole graph, since the new numbers depend on all
//! edges.

use super::{InputError, Table};
use std::fs;
use std::path::Path;

/// A directed graph. Duplicate edges count separately.
#[derive(Debug)]
pub struct Graph {
    /// Names of the vertices in the file, by new number.
    pub vertices: Vec<u64>,
    /// Source and destination of each edge, as new numbers.
    pub edges: Vec<(u32, u32)>,
    /// Number of outgoing edges of each vertex.
    pub out_degrees: Vec<u32>,
}

impl Graph {
    /// Returns an identity of the graph that is fast to compute: its size, and a hash of the vertices' names and
    /// degrees.
    pub fn identity(&self) -> (usize, usize, u64) {
        let mix = |hash: u64, number: u64| (hash ^ number).wrapping_mul(0x0100_0000_01b3);
        let vertices = self.vertices.iter().zip(&self.out_degrees);
        let hash = vertices
            .fold(0xcbf2_9ce4_8422_2325, |hash, (name, degree)| mix(mix(hash, *name), u64::from(*degree)));
        (self.vertices.len(), self.edges.len(), hash)
    }
}

/// Larger names are not exact in `f64`, as which tables are read.
const LARGEST_NAME: f64 = (1_u64 << 53) as f64;

/// Reads a graph. With `vertices`, its vertices are 0 to `vertices` − 1, whether or not they have edges. Without,
/// they are those with edges.
///
/// # Errors
/// If a line is not an edge, a vertex is out of range, or the graph has no edges or too many vertices.
pub fn read(path: &Path, vertices: Option<u64>) -> Result<Graph, InputError> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let edges = match ending {
        "parquet" | "csv" | "tsv" => from_table(path, vertices)?,
        _ if path.is_dir() => from_table(path, vertices)?,
        _ => {
            let mut edges = Vec::new();
            for path in super::matching(path)? {
                edges.append(&mut from_text(&path, vertices)?);
            }
            edges
        }
    };
    if edges.is_empty() {
        return Err(InputError::Failed(format!("{} has no edges", path.display())));
    }
    number(path, edges, vertices)
}

fn missing(place: &str, vertex: u64, vertices: u64) -> InputError {
    InputError::Failed(format!(
        "{place}: vertex {vertex} is out of range: with --vertices {vertices} they are 0 to {}; use a larger number",
        vertices.saturating_sub(1)
    ))
}

fn from_text(path: &Path, vertices: Option<u64>) -> Result<Vec<(u64, u64)>, InputError> {
    let text = fs::read(path).map_err(|e| InputError::io("read", path, &e))?;
    let mut edges = Vec::with_capacity(text.len() / 14);
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' || line[0] == b'%' {
            continue;
        }
        let place = || format!("{}, line {}", path.display(), number + 1);
        let mut fields =
            line.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|field| !field.is_empty());
        let mut next = || {
            let field = fields.next().unwrap_or_default();
            let vertex = whole(field).ok_or_else(|| {
                InputError::Failed(format!(
                    "{}: {:?} is not a vertex; a line is two whole numbers, source and destination",
                    place(),
                    String::from_utf8_lossy(field)
                ))
            })?;
            match vertices {
                Some(vertices) if vertex >= vertices => Err(missing(&place(), vertex, vertices)),
                _ => Ok(vertex),
            }
        };
        edges.push((next()?, next()?));
    }
    Ok(edges)
}

fn whole(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 20 {
        return None;
    }
    field.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

fn from_table(path: &Path, vertices: Option<u64>) -> Result<Vec<(u64, u64)>, InputError> {
    let table = Table::open(path)?;
    let known = table.numeric_columns();
    let pairs = [("src", "dst"), ("source", "target"), ("source", "destination"), ("from", "to")];
    let named =
        pairs.into_iter().find(|(a, b)| [a, b].iter().all(|name| known.iter().any(|known| known == *name)));
    let columns = match (named, &known[..]) {
        (Some((a, b)), _) => [a.to_string(), b.to_string()],
        (None, [a, b, ..]) => [a.clone(), b.clone()],
        _ => {
            return Err(InputError::Usage(format!(
                "{} has fewer than two columns of numbers; an edge list has src and dst",
                path.display()
            )));
        }
    };
    // Grows with the values, since the number of rows is only a claim of a footer.
    let mut edges: Vec<(u64, u64)> = Vec::new();
    let mut bad: Option<(usize, f64)> = None;
    let mut absent: Option<(usize, u64)> = None;
    table.read(0..table.rows(), &columns, &mut |row, column, value| {
        if value.fract() != 0.0 || !(0.0..LARGEST_NAME).contains(&value) {
            bad.get_or_insert((row, value));
            return;
        }
        let vertex = value as u64;
        if vertices.is_some_and(|vertices| vertex >= vertices) {
            absent.get_or_insert((row, vertex));
        }
        if edges.len() <= row {
            edges.resize(row + 1, (0, 0));
        }
        if column == 0 { edges[row].0 = vertex } else { edges[row].1 = vertex }
    })?;
    let place = |row: usize| format!("{}, row {}", path.display(), row + 1);
    if let Some((row, value)) = bad {
        let place = place(row);
        return Err(InputError::Failed(format!(
            "{place}: {value} is not a vertex; vertices are whole numbers below 2^53"
        )));
    }
    match (absent, vertices) {
        (Some((row, vertex)), Some(vertices)) => Err(missing(&place(row), vertex, vertices)),
        _ => Ok(edges),
    }
}

/// Renumbers vertices by falling degree, and by name among equal degrees.
fn number(path: &Path, named: Vec<(u64, u64)>, vertices: Option<u64>) -> Result<Graph, InputError> {
    let largest = named.iter().map(|(a, b)| *a.max(b)).max().unwrap_or(0);
    // If names are dense, they index tables directly. Otherwise use their positions in sorted order.
    let dense = vertices.is_some() || largest < 8 * named.len() as u64 + 1024;
    let names: Vec<u64> = if dense {
        Vec::new()
    } else {
        let mut names: Vec<u64> = named.iter().flat_map(|(a, b)| [*a, *b]).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let count = if dense { vertices.unwrap_or(largest + 1) } else { names.len() as u64 };
    if count > u64::from(u32::MAX) {
        return Err(InputError::Failed(format!(
            "{} has more than 2^32 vertices, the maximum",
            path.display()
        )));
    }
    let place =
        |name: u64| if dense { name as usize } else { names.binary_search(&name).unwrap_or_default() };
    let mut edges: Vec<(u32, u32)> =
        named.into_iter().map(|(a, b)| (place(a) as u32, place(b) as u32)).collect();
    let (mut degrees, mut out) = (vec![0_u32; count as usize], vec![0_u32; count as usize]);
    for (source, destination) in &edges {
        degrees[*source as usize] += 1;
        degrees[*destination as usize] += 1;
        out[*source as usize] += 1;
    }
    let mut order: Vec<u32> =
        (0..count as u32).filter(|vertex| vertices.is_some() || degrees[*vertex as usize] > 0).collect();
    order.sort_by_key(|vertex| std::cmp::Reverse(degrees[*vertex as usize]));
    let mut numbers = degrees;
    for (number, vertex) in order.iter().enumerate() {
        numbers[*vertex as usize] = number as u32;
    }
    for (source, destination) in &mut edges {
        (*source, *destination) = (numbers[*source as usize], numbers[*destination as usize]);
    }
    Ok(Graph {
        out_degrees: order.iter().map(|vertex| out[*vertex as usize]).collect(),
        vertices: order
            .iter()
            .map(|vertex| if dense { u64::from(*vertex) } else { names[*vertex as usize] })
            .collect(),
        edges,
    })
}
