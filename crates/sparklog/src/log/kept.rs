//! The memory of a log's contents: an estimate for the [budget](pellucid_trace::budget), and short names
//! once names take much of it.

use crate::log::warnings::Warnings;
use crate::text;

/// Maximum length of the names of jobs and executions, which may be whole SQL texts.
const MAX_NAME_CHARS: usize = 2000;
/// Total length of names from which further ones are shortened: programs may submit each of a hundred
/// thousand jobs with the same long text.
const MAX_NAME_BYTES: usize = 64 << 20;
/// Length of a shortened name.
const SHORT_NAME_CHARS: usize = 100;
/// An item (a job, a stage) with its entries in maps, here and in the trace.
const ITEM_BYTES: usize = 500;
/// A task, packed.
const TASK_BYTES: usize = 100;

/// The memory of what was kept so far.
#[derive(Debug, Default)]
pub struct Kept {
    bytes: usize,
    name_bytes: usize,
}

impl Kept {
    /// Counts an item with texts and lists of `more` bytes.
    pub fn item(&mut self, more: usize) {
        self.bytes += ITEM_BYTES + more;
    }

    /// Counts a task.
    pub fn task(&mut self) {
        self.bytes += TASK_BYTES;
    }

    /// Returns the estimated memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Shortens the name of a job or execution, and counts it.
    pub fn name(&mut self, name: Option<String>, warnings: &mut Warnings) -> String {
        let name = name.unwrap_or_default();
        let name = if self.name_bytes <= MAX_NAME_BYTES {
            text::clipped(&name, MAX_NAME_CHARS)
        } else {
            warnings.add(format!(
                "the names of jobs and SQL executions exceed {} MiB: later names are shortened to \
                 {SHORT_NAME_CHARS} characters",
                MAX_NAME_BYTES >> 20
            ));
            text::clipped(&name, SHORT_NAME_CHARS)
        };
        self.name_bytes += name.len();
        self.item(name.len());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_once_they_exceed_their_limit() {
        let (mut kept, mut warnings) = (Kept::default(), Warnings::default());
        let long = || Some("x".repeat(MAX_NAME_CHARS));
        while kept.name_bytes <= MAX_NAME_BYTES {
            assert_eq!(kept.name(long(), &mut warnings).len(), MAX_NAME_CHARS);
        }
        assert_eq!(kept.name(long(), &mut warnings), "x".repeat(SHORT_NAME_CHARS) + "…");
        assert_eq!(kept.name(None, &mut warnings), "");
        assert!(kept.bytes() > MAX_NAME_BYTES);
        assert_eq!(warnings.into_messages().len(), 1);
    }
}
