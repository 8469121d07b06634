//! Reading of JSON lines without building a tree.

mod brackets;
pub mod escape;
pub mod scan;

pub use escape::unescaped;
pub use scan::{Malformed, Raw, Scanner};

/// Reads the named fields of an object, and skips the others. The first word is the method that reads the object,
/// the second the scanner at a field's value:
///
/// ```text
/// fields!(scanner.object, value {
///     b"Job ID" => job.id = value.number()?,
///     b"Properties" => properties(value, &mut job)?,
/// });
/// ```
macro_rules! fields {
    ($scanner:ident.$object:ident, $value:ident { $($key:pat => $read:expr,)* }) => {
        $scanner.$object(|key, $value| {
            match key {
                $($key => $read,)*
                _ => $value.skip()?,
            }
            Ok(())
        })?
    };
}
pub(crate) use fields;
