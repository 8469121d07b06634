//! Versions and limits of the format.

/// Major version of the format that this build writes. It reads this version and all older ones.
pub const FORMAT_MAJOR: u32 = 1;
/// Minor version of the format that this build writes. It also reads newer ones, but skips their additions.
pub const FORMAT_MINOR: u32 = 9;

/// Maximum bytes of lines in one block. The reader rejects larger blocks, which bounds its memory even
/// for a damaged file.
pub(crate) const MAX_BLOCK_BYTES: usize = 16 << 20;
