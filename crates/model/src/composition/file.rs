//! Reads a composition from a TOML file:
//!
//! ```toml
//! name = "SWI"
//! [compute]
//! system = "Spark"
//! [data]
//! system = "Swift"
//! runs = "rack"              # relative to the preceding component
//! replication = "parallel"   # none (the default), parallel, chain or erasure
//! copies = 3
//! acknowledge = "quorum"     # all (the default), quorum, or a number of copies
//! [[data.mediators]]         # in the order in which a request passes them
//! name = "proxy"
//! runs = "rack"
//! [storage]
//! system = "local disk"
//! runs = "machine"
//! ```

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::{Acknowledge, Commit, Composition, Forwarder, Layer, Mediator, Place, Replication};

/// An error in a composition file, with its path, line and remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompositionError {
    /// The file.
    pub path: String,
    /// Line, from 1; `None` if the error concerns the whole file.
    pub line: Option<usize>,
    /// Cause and remedy.
    pub message: String,
}

impl fmt::Display for CompositionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

impl std::error::Error for CompositionError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    compute: ComputeTable,
    data: LayerTable,
    storage: LayerTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComputeTable {
    system: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerTable {
    system: String,
    runs: Place,
    replication: Option<Spanned<Replication>>,
    copies: Option<Spanned<u32>>,
    data_fragments: Option<Spanned<u32>>,
    parity_fragments: Option<Spanned<u32>>,
    forwarded_by: Option<Spanned<Forwarder>>,
    copies_run: Option<Place>,
    acknowledge: Option<Spanned<toml::Value>>,
    #[serde(default)]
    mediators: Vec<MediatorTable>,
    commit: Option<Spanned<Commit>>,
    rename: Option<Spanned<Rename>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rename {
    Copy,
    Metadata,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MediatorTable {
    name: String,
    runs: Place,
    instances: Option<Spanned<u32>>,
    link: Option<Spanned<String>>,
}

/// An error message and its span in the text.
type ParseError = (Range<usize>, String);

impl Composition {
    /// Parses a composition from the text of the file `path`.
    ///
    /// # Errors
    /// Returns an error if the text is invalid or contradicts itself; the error names the line and a remedy.
    pub fn parse(path: &str, text: &str) -> Result<Composition, CompositionError> {
        let at = |span: Option<Range<usize>>, message: String| CompositionError {
            path: path.to_string(),
            line: span.map(|s| text[..s.start.min(text.len())].matches('\n').count() + 1),
            message,
        };
        let file: File = toml::from_str(text).map_err(|e| {
            let remedy = "see crates/storage/scenarios and docs/storage.md for complete files";
            at(e.span(), format!("{}; {remedy}", e.message().replace('\n', " ")))
        })?;
        let commit = file.data.commit.as_ref().map(|c| *c.get_ref());
        let rename_copies = file.data.rename.as_ref().map(|r| matches!(r.get_ref(), Rename::Copy));
        if let Some(span) = file.storage.commit.as_ref().map(Spanned::span).or(file
            .storage
            .rename
            .as_ref()
            .map(Spanned::span))
        {
            return Err(at(
                Some(span),
                "`commit` and `rename` belong to the data layer; move them to [data]".to_string(),
            ));
        }
        let layer = |table| layer(table).map_err(|(span, message)| at(Some(span), message));
        Ok(Composition {
            name: file.name,
            compute: file.compute.system,
            data: layer(file.data)?,
            storage: layer(file.storage)?,
            commit,
            rename_copies,
        })
    }
}

fn layer(table: LayerTable) -> Result<Layer, ParseError> {
    let replication = table.replication.as_ref().map_or(Replication::None, |r| *r.get_ref());
    let copies = copies(&table, replication)?;
    let fragments = fragments(&table, replication)?;
    let acknowledge = acknowledge(&table, replication, copies)?;
    let forwarded_by = match &table.forwarded_by {
        Some(by) if matches!(replication, Replication::None | Replication::Chain) => {
            return Err((
                by.span(),
                "`forwarded_by` needs parallel replication or an erasure code; remove it".into(),
            ));
        }
        by => by.as_ref().map_or(Forwarder::Writer, |by| *by.get_ref()),
    };
    Ok(Layer {
        system: table.system,
        runs: table.runs,
        mediators: table.mediators.into_iter().map(mediator).collect::<Result<_, _>>()?,
        replication,
        copies,
        fragments,
        forwarded_by,
        copies_run: table.copies_run.unwrap_or(Place::Rack),
        acknowledge,
    })
}

/// Largest accepted number of copies or fragments; no system keeps more.
const MAX_COPIES: u32 = 1000;

fn copies(table: &LayerTable, replication: Replication) -> Result<u32, ParseError> {
    match (&table.copies, replication) {
        (Some(n), _) if *n.get_ref() > MAX_COPIES => {
            Err((n.span(), format!("{} copies are more than any system keeps; use at most {MAX_COPIES}", n.get_ref())))
        }
        (Some(n), Replication::Parallel | Replication::Chain) if *n.get_ref() >= 1 => Ok(*n.get_ref()),
        (Some(n), Replication::None) if *n.get_ref() == 1 => Ok(1),
        (Some(n), Replication::None) => {
            Err((n.span(), format!("{} copies need replication; set `replication` to \"parallel\" or \"chain\"", n.get_ref())))
        }
        (Some(n), Replication::Erasure) => {
            Err((n.span(), "an erasure code keeps fragments; set `data_fragments` and `parity_fragments` instead of `copies`".into()))
        }
        (Some(n), _) => Err((n.span(), format!("{} copies hold no data; use 1 or more", n.get_ref()))),
        (None, Replication::None | Replication::Erasure) => Ok(1),
        (None, _) => {
            let span = table.replication.as_ref().map(Spanned::span).unwrap_or_default();
            Err((span, "replication without a number of copies; set `copies`".into()))
        }
    }
}

fn fragments(table: &LayerTable, replication: Replication) -> Result<(u32, u32), ParseError> {
    let stray = table.data_fragments.as_ref().or(table.parity_fragments.as_ref());
    match (replication, &table.data_fragments, &table.parity_fragments) {
        (Replication::Erasure, Some(data), Some(parity)) => {
            if *data.get_ref() == 0 {
                return Err((data.span(), "0 data fragments hold no data; use 1 or more".into()));
            }
            if let Some(n) = [data, parity].into_iter().find(|n| *n.get_ref() > MAX_COPIES) {
                let message = format!(
                    "{} fragments are more than any system keeps; use at most {MAX_COPIES}",
                    n.get_ref()
                );
                return Err((n.span(), message));
            }
            Ok((*data.get_ref(), *parity.get_ref()))
        }
        (Replication::Erasure, ..) => {
            let span = table.replication.as_ref().map(Spanned::span).unwrap_or_default();
            Err((span, "an erasure code needs `data_fragments` and `parity_fragments`; set both".into()))
        }
        _ => match stray {
            Some(stray) => {
                Err((stray.span(), "fragments need an erasure code; set `replication` to \"erasure\"".into()))
            }
            None => Ok((0, 0)),
        },
    }
}

fn acknowledge(table: &LayerTable, replication: Replication, copies: u32) -> Result<Acknowledge, ParseError> {
    let Some(given) = &table.acknowledge else { return Ok(Acknowledge::All) };
    let wrong = |message: String| Err((given.span(), message));
    let rule = match given.get_ref() {
        toml::Value::String(word) if word == "all" => Acknowledge::All,
        toml::Value::String(word) if word == "quorum" => Acknowledge::Quorum,
        toml::Value::Integer(n) => match u32::try_from(*n) {
            Ok(n) if (1..=copies).contains(&n) => Acknowledge::Copies(n),
            _ => {
                return wrong(format!(
                    "cannot wait for {n} of {copies} copies; use 1 to {copies}, \"quorum\" or \"all\""
                ));
            }
        },
        other => {
            return wrong(format!(
                "invalid `acknowledge = {other}`; use \"all\", \"quorum\" or a number of copies"
            ));
        }
    };
    if replication == Replication::Chain && rule != Acknowledge::All {
        return wrong(
            "the last copy of a chain acknowledges for all; remove `acknowledge` or set it to \"all\"".into(),
        );
    }
    Ok(rule)
}

fn mediator(table: MediatorTable) -> Result<Mediator, ParseError> {
    let instances = match &table.instances {
        Some(n) if *n.get_ref() == 0 => {
            return Err((n.span(), "0 instances forward nothing; use 1 or more".into()));
        }
        n => n.as_ref().map_or(1, |n| *n.get_ref()),
    };
    let link_bytes_per_s = match &table.link {
        Some(link) => Some(rate(link.get_ref()).ok_or_else(|| {
            (link.span(), format!("invalid rate `{}`; write it like 1Gbit/s or 100MB/s", link.get_ref()))
        })?),
        None => None,
    };
    Ok(Mediator { name: table.name, runs: table.runs, instances, link_bytes_per_s })
}

/// Parses `1Gbit/s`, `100MB/s` and the like (decimal units) into bytes per second.
fn rate(text: &str) -> Option<f64> {
    let text = text.trim().strip_suffix("/s")?;
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let value: f64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim();
    let (scale, bits) = match unit.strip_suffix("bit") {
        Some(scale) => (scale, true),
        None => (unit.strip_suffix('B')?, false),
    };
    let scale = match scale {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return None,
    };
    (value > 0.0).then(|| value * scale / if bits { 8.0 } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let error = Composition::parse("x.toml", text).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }

    const HEAD: &str = "name = \"X\"\n[compute]\nsystem = \"Spark\"\n[storage]\nsystem = \"disk\"\nruns = \"machine\"\n[data]\nsystem = \"HDFS\"\n";

    #[test]
    fn errors_name_path_line_and_remedy() {
        let data = |rest: &str| format!("{HEAD}{rest}");
        check(&data("runs = \"mars\""), "x.toml:9: ");
        check(&data("runs = \"rack\"\nreplicas = 3"), "x.toml:10: unknown field `replicas`");
        check(&data("runs = \"rack\"\ncopies = 3"), "x.toml:10: 3 copies need replication; set");
        check(&data("runs = \"rack\"\nreplication = \"chain\""), "x.toml:10: replication without a number");
        let chain = "runs = \"rack\"\nreplication = \"chain\"\ncopies = 3\n";
        check(&data(&format!("{chain}acknowledge = 2")), "x.toml:12: the last copy of a chain");
        check(&data(&format!("{chain}forwarded_by = \"primary\"")), "x.toml:12: `forwarded_by`");
        let parallel = "runs = \"rack\"\nreplication = \"parallel\"\ncopies = 3\n";
        check(&data(&format!("{parallel}acknowledge = 4")), "x.toml:12: cannot wait for 4 of 3 copies");
        check(
            &data(&format!("{parallel}acknowledge = \"most\"")),
            "x.toml:12: invalid `acknowledge = \"most\"`",
        );
        check(&data("runs = \"rack\"\nreplication = \"erasure\""), "x.toml:10: an erasure code needs");
        check(
            &data("runs = \"rack\"\n[[data.mediators]]\nname = \"p\"\nruns = \"rack\"\nlink = \"fast\""),
            "x.toml:13: invalid rate `fast`; write it like",
        );
        check("name = ", "x.toml:1: ");
        check("", "missing field");
    }

    #[test]
    fn rates_are_bytes_per_second() {
        assert_eq!(rate("1Gbit/s"), Some(125e6));
        assert_eq!(rate("100MB/s"), Some(100e6));
        assert_eq!(rate("1.5 kB/s"), Some(1500.0));
        assert_eq!((rate("0MB/s"), rate("5 parsecs"), rate("")), (None, None, None));
    }
}
