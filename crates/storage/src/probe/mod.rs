//! Measures the performance of a store: `pellucid storage probe URL`.
//!
//! A [`Probe`] writes objects into a temporary folder ([`folder`]), reads them in large and small
//! requests with increasing concurrency, lists, renames and commits them, and removes them. It
//! assumes nothing: it detects renames that copy by timing them on a small and a large object. The
//! probe keeps to a budget of time and bytes, of which each part has a share; values without a
//! remaining budget are `None`.
//!
//! The results describe the store as one client sees it, including the link and all caches. By
//! default the probe reads back objects that it has just written; it can read existing objects
//! instead ([`pieces`]). On the local file system a write ends when its bytes are on the device, as
//! in the engine, and the probe evicts its files from the page cache before it reads them.

mod content;
mod folder;
mod load;
mod measure;
mod output;
mod pieces;
mod place;

pub use content::content;
pub use folder::{Folder, FolderKind};
pub use measure::{Budget, Probe, ProbeError, Progress};
pub use pellucid_trace::probe::{
    Commit, FirstByte, Pattern, ReadFrom, ReadRate, Rename, Report, Service, Upload,
};
pub use place::{PlaceError, probe};
