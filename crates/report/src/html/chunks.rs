//! Binary data inside a text file: gzip, then base64, one `<script type="text/plain">` element a chunk.
//!
//! The browser keeps such an element as text and never runs it; the page unpacks the ones that it needs
//! with `atob` and `DecompressionStream`.

use std::fmt::Write as _;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};

/// Chunks so far, as they go into the page.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    elements: String,
    count: usize,
}

impl Chunks {
    /// Adds a chunk and returns its number: the page finds it as `chunk-NUMBER`.
    pub fn add(&mut self, bytes: &[u8]) -> usize {
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::new(6));
        // A vector takes whatever is written to it.
        let packed = encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default();
        let _ = write!(self.elements, "<script type=\"text/plain\" id=\"chunk-{}\">", self.count);
        STANDARD.encode_string(packed, &mut self.elements);
        self.elements.push_str("</script>\n");
        self.count += 1;
        self.count - 1
    }

    /// All elements.
    pub fn finish(self) -> String {
        self.elements
    }
}
