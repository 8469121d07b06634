//! Binary chunks embedded in the page: gzip, then base64, each in a `<script type="text/plain">` element.
//!
//! Browsers never run such an element. The page unpacks chunks on demand with `atob` and
//! `DecompressionStream`.

use std::fmt::Write as _;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};

/// The elements of all chunks so far.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    elements: String,
    count: usize,
}

impl Chunks {
    /// Adds a chunk and returns its number. The chunk's element has the id `chunk-NUMBER`.
    pub fn add(&mut self, bytes: &[u8]) -> usize {
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::new(6));
        // Writing to a vector cannot fail.
        let packed = encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default();
        let _ = write!(self.elements, "<script type=\"text/plain\" id=\"chunk-{}\">", self.count);
        STANDARD.encode_string(packed, &mut self.elements);
        self.elements.push_str("</script>\n");
        self.count += 1;
        self.count - 1
    }

    /// Returns all elements.
    pub fn finish(self) -> String {
        self.elements
    }
}
