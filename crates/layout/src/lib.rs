//! Layouts of Parquet tables: compression, order of the rows, row groups, types.
//!
//! A [`Sample`] of a table is read, written in another [`Layout`] and decoded in both, which measures the effect of a
//! [`Change`] on the core time of decoding and on the bytes to read ([`effect`]). [`copy`] and [`TableWriter`] write a
//! whole table in a layout, with the same settings as the sample.
//!
//! ```no_run
//! use pellucid_layout::{Change, Layout, Limits, Sample, TableFile, effect, footer};
//!
//! let files = [footer("lineitem.parquet".as_ref())?];
//! let present = Layout::of(&files);
//! let (groups, columns) = (TableFile::row_groups(&files), ["l_quantity".to_string()]);
//! let sample = Sample::read(&groups, &columns, None, Limits::default())?;
//! let change: Change = "lz4".parse().expect("a codec");
//! if let Some(effect) = effect(&sample, &present.with(&change))? {
//!     println!("{} times the core time, {} times the bytes", effect.time, effect.bytes);
//! }
//! # Ok::<(), pellucid_layout::LayoutError>(())
//! ```

mod change;
mod effect;
mod error;
mod file;
mod layout;
mod sample;
mod write;

pub use change::{Change, Codec, Narrow, TableChange};
pub use effect::{Effect, effect};
pub use error::LayoutError;
pub use file::{TableFile, footer, table_name};
pub use layout::Layout;
pub use sample::{Limits, Sample};
pub use write::{TableWriter, copy};
