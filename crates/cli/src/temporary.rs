//! Temporary folders that only this user can read.
//!
//! They hold settings, logs and rows, which may be confidential. The default mode would let every user of the
//! machine read them.

use crate::failure::Failure;
use crate::interrupt;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// Creates a private folder, which is deleted when it is dropped and when an interrupt exits at once.
///
/// # Errors
/// Returns an error if the folder cannot be created.
pub fn folder(prefix: &str) -> Result<TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir();
    let folder =
        made.map_err(|error| Failure::file("create a folder in", std::env::temp_dir().display(), &error))?;
    interrupt::temporary(folder.path());
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_private_to_the_user() {
        let folder = folder("pellucid-test-").expect("a folder");
        let mode = std::fs::metadata(folder.path()).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
    }
}
