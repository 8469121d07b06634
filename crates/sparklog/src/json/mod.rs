//! Reading of JSON lines without building a tree.

pub mod escape;
pub mod scan;

pub use escape::unescaped;
pub use scan::{Malformed, Raw, Scanner};
