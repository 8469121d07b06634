//! Ranks compositions by the length of their compute-to-data paths.
//!
//! Ranks are dense: the shortest path has rank 1, paths of equal length share a rank, and the
//! next longer path has the next number (CLOUD '16, Table I). The rank compares path lengths, not
//! run times; findings report the cases in which the two differ.

use std::fmt::Write;

use serde::Serialize;

use super::Composition;
use super::mismatch::{self, RankFinding};
use super::path::{Direction, Path};

/// The rank of one composition for reads or for writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Dense rank, from 1; ties share a rank.
    pub rank: u32,
    /// Name of the composition.
    pub composition: String,
    /// Number of logical links that a record crosses.
    pub links: u32,
    /// Each crossing of a link.
    pub hops: Vec<String>,
}

/// The document that `pellucid storage rank --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranking {
    /// Name and version of the document.
    pub format: &'static str,
    /// Ranks for reads, shortest path first; ties keep the order of the files.
    pub read: Vec<Place>,
    /// Ranks for writes, in the same order.
    pub write: Vec<Place>,
    /// Mismatches in the compositions.
    pub findings: Vec<RankFinding>,
}

impl Ranking {
    /// Ranks compositions.
    pub fn of(compositions: &[Composition]) -> Ranking {
        Ranking {
            format: "pellucid.rank/1",
            read: places(compositions, Direction::Read),
            write: places(compositions, Direction::Write),
            findings: compositions.iter().flat_map(mismatch::of_composition).collect(),
        }
    }
}

fn places(compositions: &[Composition], direction: Direction) -> Vec<Place> {
    let mut places: Vec<Place> = compositions
        .iter()
        .map(|c| {
            let path = Path::of(c, direction);
            Place { rank: 0, composition: c.name.clone(), links: path.links(), hops: path.hops() }
        })
        .collect();
    places.sort_by_key(|p| p.links);
    let (mut rank, mut before) = (0, None);
    for place in &mut places {
        rank += u32::from(before != Some(place.links));
        before = Some(place.links);
        place.rank = rank;
    }
    places
}

/// Renders the ranking as text: two tables, a drawing of each path, and the findings.
pub fn text(compositions: &[Composition], ranking: &Ranking) -> String {
    let mut out = String::new();
    let width = ranking.read.iter().map(|p| p.composition.chars().count()).max().unwrap_or(0).max(11);
    let table = |out: &mut String, title: &str, places: &[Place]| {
        let _ = writeln!(out, "{title}\n  rank  {:width$}  links", "composition");
        for p in places {
            let _ = writeln!(out, "  {:>4}  {:width$}  {:>5}", p.rank, p.composition, p.links);
        }
    };
    table(&mut out, "Read", &ranking.read);
    table(&mut out, "\nWrite", &ranking.write);
    for c in compositions {
        for (direction, what) in [(Direction::Read, "read"), (Direction::Write, "write")] {
            let path = Path::of(c, direction);
            let links = match path.links() {
                1 => "1 link".to_string(),
                n => format!("{n} links"),
            };
            let _ = writeln!(out, "\n{}, {what}: {links}", c.name);
            for line in path.drawing() {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
    for RankFinding { finding, .. } in &ranking.findings {
        let _ = writeln!(out, "\n{}\n  {}\n  Change: {}", finding.title, finding.evidence, finding.change);
    }
    out
}
