//! What a data path is made of: compute, data and storage layer, read from a TOML file.
//!
//! After "Experimental Performance Evaluation of Cloud-Based Analytics-as-a-Service" (CLOUD '16,
//! §II-A and §IV-B): the compute layer runs the jobs, the data layer is the service that they
//! read and write (HDFS, Swift, S3), the storage layer is what that service keeps its bytes on
//! (a local disk, a volume of a distributed system). A file describes one composition:
//!
//! ```toml
//! name = "SWI"
//! [compute]
//! system = "Spark"
//! [data]
//! system = "Swift"
//! runs = "rack"              # as seen from what stands before it
//! replication = "parallel"   # none (as without the key), parallel, chain or erasure
//! copies = 3
//! acknowledge = "quorum"     # all (as without the key), quorum, or a number of copies
//! [[data.mediators]]         # in the order in which a request meets them
//! name = "proxy"
//! runs = "rack"
//! [storage]
//! system = "local disk"
//! runs = "machine"
//! ```
//!
//! Where something runs is said relative to what stands before it on the way of a request: the
//! layer above, or the last mediator. Only whether that is another machine matters for the
//! count ([`crate::path`]); the words are for the reader. Nothing here measures: what a link
//! carries is known where the file says it, or a probe.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

/// Where something runs, as seen from what stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// In the same process.
    Process,
    /// On the same machine.
    Machine,
    /// On another machine of the same rack.
    Rack,
    /// Further away.
    Elsewhere,
}

impl Place {
    /// Whether a request crosses a link to get there.
    pub fn is_remote(self) -> bool {
        matches!(self, Place::Rack | Place::Elsewhere)
    }
}

/// How a layer keeps more than one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replication {
    /// One copy.
    None,
    /// All copies are written at once.
    Parallel,
    /// Each copy hands the bytes on to the next, the last one acknowledges.
    Chain,
    /// Fragments with parity, so that any `data_fragments` of them are enough.
    Erasure,
}

/// Who sends a record to the copies of parallel replication or to the fragments of an
/// erasure code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forwarder {
    /// What stands before the layer (Swift's proxy): no hop of its own.
    Writer,
    /// The first copy (Ceph's primary): one more hop to the others.
    Primary,
}

/// What must have written before a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledge {
    /// Every copy.
    All,
    /// More than half of the copies.
    Quorum,
    /// So many.
    Copies(u32),
}

/// Something between two layers that every byte passes through.
#[derive(Debug, Clone, PartialEq)]
pub struct Mediator {
    /// As people call it: `proxy`, `balancer`.
    pub name: String,
    /// As seen from what stands before it.
    pub runs: Place,
    /// How many share the load.
    pub instances: u32,
    /// Rate of the link of one, where the file says it.
    pub link_bytes_per_s: Option<f64>,
}

/// The data layer or the storage layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// As people call it: `HDFS`, `Ceph volume`.
    pub system: String,
    /// As seen from the layer above, or from the last mediator.
    pub runs: Place,
    /// What every byte passes on the way to it.
    pub mediators: Vec<Mediator>,
    /// How it keeps copies.
    pub replication: Replication,
    /// Copies of a record; 1 without replication and with an erasure code.
    pub copies: u32,
    /// Data and parity fragments of an erasure code; 0 and 0 without one.
    pub fragments: (u32, u32),
    /// Who sends to the copies or fragments.
    pub forwarded_by: Forwarder,
    /// Where the copies are, as seen from each other.
    pub copies_run: Place,
    /// What must have written before a write is acknowledged.
    pub acknowledge: Acknowledge,
}

impl Layer {
    /// How many copies must have written before a write is acknowledged.
    pub fn acknowledged_copies(&self) -> u32 {
        match self.acknowledge {
            Acknowledge::All => self.copies,
            Acknowledge::Quorum => self.copies / 2 + 1,
            Acknowledge::Copies(n) => n,
        }
    }

    /// How often the layer below stores a record: once a copy; with an erasure code once for
    /// the fragment that holds it and once for each parity fragment.
    pub fn stores_a_record(&self) -> u32 {
        match self.replication {
            Replication::Erasure => 1 + self.fragments.1,
            _ => self.copies,
        }
    }

    /// Bytes stored for each byte written.
    pub fn stored_per_byte(&self) -> f64 {
        match self.replication {
            Replication::Erasure => {
                f64::from(self.fragments.0 + self.fragments.1) / f64::from(self.fragments.0)
            }
            _ => f64::from(self.copies),
        }
    }

    /// Whether losing one machine loses no data.
    pub fn survives_a_loss(&self) -> bool {
        self.stored_per_byte() > 1.0 && self.copies_run.is_remote()
    }
}

/// A composition of compute, data and storage layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Composition {
    /// As people call it.
    pub name: String,
    /// What runs the jobs.
    pub compute: String,
    /// The service that jobs read and write.
    pub data: Layer,
    /// What that service keeps its bytes on.
    pub storage: Layer,
    /// How jobs put their output in place, where the file says it.
    pub commit: Option<Commit>,
    /// Whether a rename in the data layer copies, where the file says it.
    pub rename_copies: Option<bool>,
}

/// How a job's output comes into place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Commit {
    /// Tasks write under temporary names; tasks and driver rename.
    Rename,
    /// Uploads that are completed when the job commits.
    Multipart,
    /// Tasks write under the final names.
    Direct,
}

/// Why a composition cannot be used: path, line, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompositionError {
    /// The file.
    pub path: String,
    /// From 1; `None` where the file as a whole is meant.
    pub line: Option<usize>,
    /// What is wrong, and the way out.
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

/// What is wrong, and where in the text.
type Wrong = (Range<usize>, String);

impl Composition {
    /// Reads a composition from the text of the file `path`.
    ///
    /// # Errors
    /// What is not understood or contradicts itself, with its line and the way out.
    pub fn parse(path: &str, text: &str) -> Result<Composition, CompositionError> {
        let at = |span: Option<Range<usize>>, message: String| CompositionError {
            path: path.to_string(),
            line: span.map(|s| text[..s.start.min(text.len())].matches('\n').count() + 1),
            message,
        };
        let file: File = toml::from_str(text).map_err(|e| {
            let way_out = "crates/storage/scenarios and docs/storage.md show whole files";
            at(e.span(), format!("{}; {way_out}", e.message().replace('\n', " ")))
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
                "`commit` and `rename` are the data layer's; move them to [data]".to_string(),
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

fn layer(table: LayerTable) -> Result<Layer, Wrong> {
    let replication = table.replication.as_ref().map_or(Replication::None, |r| *r.get_ref());
    let copies = copies(&table, replication)?;
    let fragments = fragments(&table, replication)?;
    let acknowledge = acknowledge(&table, replication, copies)?;
    let forwarded_by = match &table.forwarded_by {
        Some(by) if matches!(replication, Replication::None | Replication::Chain) => {
            return Err((
                by.span(),
                "`forwarded_by` is for parallel replication and erasure codes; leave it out".into(),
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

/// More copies or fragments than any system keeps.
const MOST: u32 = 1000;

fn copies(table: &LayerTable, replication: Replication) -> Result<u32, Wrong> {
    match (&table.copies, replication) {
        (Some(n), _) if *n.get_ref() > MOST => {
            Err((n.span(), format!("{} copies are more than any system keeps; say {MOST} at most", n.get_ref())))
        }
        (Some(n), Replication::Parallel | Replication::Chain) if *n.get_ref() >= 1 => Ok(*n.get_ref()),
        (Some(n), Replication::None) if *n.get_ref() == 1 => Ok(1),
        (Some(n), Replication::None) => {
            Err((n.span(), format!("{} copies, but no replication; say `replication = \"parallel\"` or \"chain\"", n.get_ref())))
        }
        (Some(n), Replication::Erasure) => {
            Err((n.span(), "an erasure code keeps fragments; say `data_fragments` and `parity_fragments` instead of `copies`".into()))
        }
        (Some(n), _) => Err((n.span(), format!("{} copies hold no data; say 1 or more", n.get_ref()))),
        (None, Replication::None | Replication::Erasure) => Ok(1),
        (None, _) => {
            let span = table.replication.as_ref().map(Spanned::span).unwrap_or_default();
            Err((span, "replication without a number; say how many with `copies`".into()))
        }
    }
}

fn fragments(table: &LayerTable, replication: Replication) -> Result<(u32, u32), Wrong> {
    let stray = table.data_fragments.as_ref().or(table.parity_fragments.as_ref());
    match (replication, &table.data_fragments, &table.parity_fragments) {
        (Replication::Erasure, Some(data), Some(parity)) => {
            if *data.get_ref() == 0 {
                return Err((data.span(), "no data fragments hold no data; say 1 or more".into()));
            }
            if let Some(n) = [data, parity].into_iter().find(|n| *n.get_ref() > MOST) {
                let words =
                    format!("{} fragments are more than any system keeps; say {MOST} at most", n.get_ref());
                return Err((n.span(), words));
            }
            Ok((*data.get_ref(), *parity.get_ref()))
        }
        (Replication::Erasure, ..) => {
            let span = table.replication.as_ref().map(Spanned::span).unwrap_or_default();
            Err((span, "an erasure code needs `data_fragments` and `parity_fragments`".into()))
        }
        _ => match stray {
            Some(stray) => Err((
                stray.span(),
                "fragments without an erasure code; say `replication = \"erasure\"`".into(),
            )),
            None => Ok((0, 0)),
        },
    }
}

fn acknowledge(table: &LayerTable, replication: Replication, copies: u32) -> Result<Acknowledge, Wrong> {
    let Some(given) = &table.acknowledge else { return Ok(Acknowledge::All) };
    let wrong = |message: String| Err((given.span(), message));
    let rule = match given.get_ref() {
        toml::Value::String(word) if word == "all" => Acknowledge::All,
        toml::Value::String(word) if word == "quorum" => Acknowledge::Quorum,
        toml::Value::Integer(n) => match u32::try_from(*n) {
            Ok(n) if (1..=copies).contains(&n) => Acknowledge::Copies(n),
            _ => {
                return wrong(format!(
                    "{n} of {copies} copies cannot acknowledge; say 1 to {copies}, \"quorum\" or \"all\""
                ));
            }
        },
        other => {
            return wrong(format!(
                "acknowledge = {other} is not known; say \"all\", \"quorum\" or a number of copies"
            ));
        }
    };
    if replication == Replication::Chain && rule != Acknowledge::All {
        return wrong(
            "the last copy of a chain acknowledges for all; leave `acknowledge` out or say \"all\"".into(),
        );
    }
    Ok(rule)
}

fn mediator(table: MediatorTable) -> Result<Mediator, Wrong> {
    let instances = match &table.instances {
        Some(n) if *n.get_ref() == 0 => {
            return Err((n.span(), "0 instances pass nothing on; say 1 or more".into()));
        }
        n => n.as_ref().map_or(1, |n| *n.get_ref()),
    };
    let link_bytes_per_s = match &table.link {
        Some(link) => Some(rate(link.get_ref()).ok_or_else(|| {
            (link.span(), format!("{} is not a rate; write it like 1Gbit/s or 100MB/s", link.get_ref()))
        })?),
        None => None,
    };
    Ok(Mediator { name: table.name, runs: table.runs, instances, link_bytes_per_s })
}

/// Bytes per second of `1Gbit/s`, `100MB/s` and the like; decimal units.
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
    fn errors_name_path_line_and_way_out() {
        let data = |rest: &str| format!("{HEAD}{rest}");
        check(&data("runs = \"mars\""), "x.toml:9: ");
        check(&data("runs = \"rack\"\nreplicas = 3"), "x.toml:10: unknown field `replicas`");
        check(&data("runs = \"rack\"\ncopies = 3"), "x.toml:10: 3 copies, but no replication; say");
        check(&data("runs = \"rack\"\nreplication = \"chain\""), "x.toml:10: replication without a number");
        let chain = "runs = \"rack\"\nreplication = \"chain\"\ncopies = 3\n";
        check(&data(&format!("{chain}acknowledge = 2")), "x.toml:12: the last copy of a chain");
        check(&data(&format!("{chain}forwarded_by = \"primary\"")), "x.toml:12: `forwarded_by`");
        let parallel = "runs = \"rack\"\nreplication = \"parallel\"\ncopies = 3\n";
        check(&data(&format!("{parallel}acknowledge = 4")), "x.toml:12: 4 of 3 copies");
        check(
            &data(&format!("{parallel}acknowledge = \"most\"")),
            "x.toml:12: acknowledge = \"most\" is not known",
        );
        check(&data("runs = \"rack\"\nreplication = \"erasure\""), "x.toml:10: an erasure code needs");
        check(
            &data("runs = \"rack\"\n[[data.mediators]]\nname = \"p\"\nruns = \"rack\"\nlink = \"fast\""),
            "x.toml:13: fast is not a rate; write it like",
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
