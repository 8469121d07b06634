//! Exports of a trace to the formats of other tools.

pub(crate) mod folded;
pub(crate) mod otlp;
pub(crate) mod parquet;
pub(crate) mod perfetto;
