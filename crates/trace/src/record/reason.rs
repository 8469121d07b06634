//! Reasons for a change of concurrency. The field is a string, so producers may use others.

/// All known reasons, those of the plugin for Spark first.
pub const ALL: [&str; 8] = [
    "start",
    "more at once moved more bytes a second",
    "more at once did not pay",
    "not bound by I/O",
    "the most that may run",
    "as the last stage like it",
    "fixed",
    "bytes per second grew",
];

/// Number of reasons of the plugin.
const OF_PLUGIN: u64 = 7;

/// Returns the reason for a code that the plugin logs. Codes start at 1.
pub fn of_plugin(code: u64) -> Option<&'static str> {
    (1..=OF_PLUGIN).contains(&code).then(|| ALL[code as usize - 1])
}
