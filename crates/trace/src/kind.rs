//! Kinds of resource that analyses know by name. Kinds are open: the field is a string.

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
