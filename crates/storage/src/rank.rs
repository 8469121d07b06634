//! Compositions in the order of their compute-to-data paths, and what is odd about them.
//!
//! Ranks are dense: the shortest path is 1, equal paths share a rank, and the next longer one
//! has the next number (CLOUD '16, Table I). The rank is of paths; where it should not be
//! trusted for time, a finding says why.

use std::fmt::Write;

use serde::Serialize;

use crate::composition::Composition;
use crate::finding::Finding;
use crate::mismatch;
use crate::path::{Direction, Path};

/// A composition's place for reads or for writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// From 1, dense: ties share one.
    pub rank: u32,
    /// Its name.
    pub composition: String,
    /// Logical links that a record crosses.
    pub links: u32,
    /// Each of them, as often as it is crossed.
    pub hops: Vec<String>,
}

/// A finding about one composition, and how often it makes each byte be written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankFinding {
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// How often each byte is written; `None` where the finding is not about that.
    pub factor: Option<f64>,
}

/// What `pellucid storage rank --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranking {
    /// Name and version of the document.
    pub format: &'static str,
    /// Shortest path first; ties in the order of the files.
    pub read: Vec<Place>,
    /// The same for writes.
    pub write: Vec<Place>,
    /// What is odd about the compositions.
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

/// The ranking for people: two tables, a drawing of each path, the findings.
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
