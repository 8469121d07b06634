//! Compositions: the compute, data and storage layers of a data path.
//!
//! The layers follow "Experimental Performance Evaluation of Cloud-Based Analytics-as-a-Service"
//! (CLOUD '16, §II-A and §IV-B). The compute layer runs the jobs. The data layer is the service
//! that they read and write (HDFS, Swift, S3). The storage layer holds that service's bytes
//! (a local disk, a volume of a distributed system). [`Composition::parse`] reads one from a file.
//!
//! Locations are relative to the preceding component on the request path: the layer above, or
//! the last mediator. The count ([`path`]) depends only on whether a location is another
//! machine; the finer distinctions document the setup. This module measures nothing: link rates
//! come from the file or from a probe.

mod file;
pub mod mismatch;
pub mod path;
pub mod rank;

use serde::Deserialize;

pub use file::CompositionError;

/// A location, relative to the preceding component on the request path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// In the same process.
    Process,
    /// On the same machine.
    Machine,
    /// On another machine of the same rack.
    Rack,
    /// Beyond the rack.
    Elsewhere,
}

impl Place {
    /// Returns true if a request crosses a link to get there.
    pub fn is_remote(self) -> bool {
        matches!(self, Place::Rack | Place::Elsewhere)
    }
}

/// A layer's replication scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replication {
    /// One copy.
    None,
    /// All copies are written concurrently.
    Parallel,
    /// Each copy forwards the bytes to the next; the last one acknowledges.
    Chain,
    /// Data and parity fragments; any `data_fragments` of them restore a record.
    Erasure,
}

/// The sender of a record to the copies of parallel replication or to the fragments of an
/// erasure code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forwarder {
    /// The component before the layer (Swift's proxy); adds no hop.
    Writer,
    /// The first copy (Ceph's primary); adds one hop to the others.
    Primary,
}

/// The copies that must be written before a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledge {
    /// Every copy.
    All,
    /// More than half of the copies.
    Quorum,
    /// This many copies.
    Copies(u32),
}

/// A component between two layers that every byte passes through.
#[derive(Debug, Clone, PartialEq)]
pub struct Mediator {
    /// Name for reports: `proxy`, `balancer`.
    pub name: String,
    /// Location, relative to the preceding component.
    pub runs: Place,
    /// Number of instances that share the load.
    pub instances: u32,
    /// Link rate of one instance, if the file gives it.
    pub link_bytes_per_s: Option<f64>,
}

/// The data layer or the storage layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Name for reports: `HDFS`, `Ceph volume`.
    pub system: String,
    /// Location, relative to the layer above or the last mediator.
    pub runs: Place,
    /// Mediators on the way to this layer, in the order in which a request passes them.
    pub mediators: Vec<Mediator>,
    /// Replication scheme.
    pub replication: Replication,
    /// Copies of a record; 1 without replication and with an erasure code.
    pub copies: u32,
    /// Data and parity fragments of an erasure code; `(0, 0)` without one.
    pub fragments: (u32, u32),
    /// Sender of records to the copies or fragments.
    pub forwarded_by: Forwarder,
    /// Location of the copies, relative to each other.
    pub copies_run: Place,
    /// Copies that must be written before a write is acknowledged.
    pub acknowledge: Acknowledge,
}

impl Layer {
    /// Returns the number of copies that must be written before a write is acknowledged.
    pub fn acknowledged_copies(&self) -> u32 {
        match self.acknowledge {
            Acknowledge::All => self.copies,
            Acknowledge::Quorum => self.copies / 2 + 1,
            Acknowledge::Copies(n) => n,
        }
    }

    /// Returns how many times the layer below stores a record: once per copy or, with an erasure
    /// code, once for the fragment that holds it and once for each parity fragment.
    pub fn stores_per_record(&self) -> u32 {
        match self.replication {
            Replication::Erasure => 1 + self.fragments.1,
            _ => self.copies,
        }
    }

    /// Returns the number of bytes stored for each byte written.
    pub fn stored_per_byte(&self) -> f64 {
        match self.replication {
            Replication::Erasure => {
                f64::from(self.fragments.0 + self.fragments.1) / f64::from(self.fragments.0)
            }
            _ => f64::from(self.copies),
        }
    }

    /// Returns true if losing one machine loses no data.
    pub fn survives_machine_loss(&self) -> bool {
        self.stored_per_byte() > 1.0 && self.copies_run.is_remote()
    }
}

/// A composition of a compute, a data and a storage layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Composition {
    /// Name for reports.
    pub name: String,
    /// System that runs the jobs.
    pub compute: String,
    /// Service that jobs read and write.
    pub data: Layer,
    /// Storage that holds the service's bytes.
    pub storage: Layer,
    /// How jobs commit their output, if the file says so.
    pub commit: Option<Commit>,
    /// True if a rename in the data layer copies, if the file says so.
    pub rename_copies: Option<bool>,
}

/// How a job commits its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Commit {
    /// Tasks write under temporary names; tasks and driver rename.
    Rename,
    /// Multipart uploads are completed when the job commits.
    Multipart,
    /// Tasks write directly under the final names.
    Direct,
}
