//! Kinds of resources with a meaning to analyses. The field is a string, so producers may use others.

/// The cores of a machine; capacity in cores.
pub const CPU: &str = "cpu";
/// One physical disk; capacity in bytes per second.
pub const DISK: &str = "disk";
/// One machine's link; capacity in bytes per second.
pub const NETWORK: &str = "network";
/// A store behind a link (S3 bucket); capacity in bytes per second.
pub const STORE: &str = "store";
/// Memory bandwidth of a machine; capacity in bytes per second.
pub const MEMORY_BANDWIDTH: &str = "memory_bandwidth";
/// Task slots of an executor; capacity in slots.
pub const SLOTS: &str = "slots";
