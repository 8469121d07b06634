//! The files of a log: their order, archives, compression, and lines. Nothing here knows about events.

pub mod archive;
pub mod codec;
pub mod layout;
pub mod lines;
