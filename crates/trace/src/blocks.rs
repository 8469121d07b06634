//! The blocks of a trace, decompressed one at a time.

use std::io::{self, Read};

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::format::MAX_BLOCK_BYTES;

/// Maximum window of a frame: that of the largest block.
const WINDOW_LOG_MAX: u32 = MAX_BLOCK_BYTES.ilog2();
const INPUT_BYTES: usize = 64 << 10;

/// The result of [`Blocks::next`].
pub enum Block {
    Whole,
    /// The input has ended.
    None,
    /// The input ends within a frame.
    Cut,
    /// The frame cannot be decompressed; the rest is not trusted.
    Damaged(String),
}

/// A decompressor that reads one frame at a time.
pub struct Blocks<R> {
    input: R,
    decoder: Decoder<'static>,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Bytes of the input that were read.
    pub bytes: u64,
    /// Number of whole blocks.
    pub whole: u64,
}

impl<R: Read + Send> Blocks<R> {
    pub fn new(input: R) -> io::Result<Blocks<R>> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
        Ok(Blocks { input, decoder, buffer: vec![0; INPUT_BYTES], from: 0, to: 0, bytes: 0, whole: 0 })
    }

    /// Decompresses the next frame into `block`. Errors are those of the input.
    pub fn next(&mut self, block: &mut Vec<u8>) -> io::Result<Block> {
        block.clear();
        let mut in_frame = false;
        // The decoder may hold output that did not fit in the last call.
        let mut pending = false;
        loop {
            if !pending && self.from == self.to && !self.fill()? {
                block.clear();
                return Ok(if in_frame { Block::Cut } else { Block::None });
            }
            in_frame = true;
            if block.len() == block.capacity() {
                block.reserve(INPUT_BYTES);
            }
            let mut input = InBuffer::around(&self.buffer[self.from..self.to]);
            let written = block.len();
            let mut output = OutBuffer::around_pos(block, written);
            let hint = self.decoder.run(&mut input, &mut output);
            self.from += input.pos();
            pending = block.len() == block.capacity();
            match hint {
                Err(why) => {
                    block.clear();
                    return Ok(Block::Damaged(why.to_string()));
                }
                Ok(0) => {
                    self.whole += 1;
                    self.decoder.reinit()?;
                    return Ok(Block::Whole);
                }
                Ok(_) if block.len() > MAX_BLOCK_BYTES => {
                    block.clear();
                    let why = format!("a block exceeds {} MiB", MAX_BLOCK_BYTES >> 20);
                    return Ok(Block::Damaged(why));
                }
                Ok(_) => {}
            }
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        let read = loop {
            match self.input.read(&mut self.buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        (self.from, self.to) = (0, read);
        self.bytes += read as u64;
        Ok(read > 0)
    }
}
