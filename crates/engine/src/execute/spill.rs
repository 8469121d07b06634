//! Batches of exchanges that do not fit into memory, on disk.
//!
//! A block has batches of one partition in their [`Compact`] form: each is a stream of Arrow IPC, compressed with LZ4. What
//! is needed to read a block, and its checksum, stays in memory. Blocks are in [`Scratch`] files, which end with their
//! exchange, in the folder with the fewest bytes to write.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use bytes::Bytes;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::{DataFusionError, Result};
use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};
use pellucid_runtime::{Monotask, Phase, Runtime, Scratch};

use crate::execute::clock::now_ns;
use crate::execute::compact::{Compact, Number, batch_without_rest};
use crate::execute::memory::shares::Shares;
use crate::execute::memory::usage::{Movable, Usage};
use crate::sync::lock;

/// Bytes after which another monotask reads further blocks, so that a disk reads several for one multitask.
const READ_BYTES: u64 = 1 << 20;

/// The folders for spilled data.
pub(crate) struct Folders(Vec<Folder>);

struct Folder {
    path: PathBuf,
    /// Bytes that wait to be written, and all bytes so far.
    queued_bytes: AtomicU64,
    all_bytes: AtomicU64,
}

impl Folders {
    pub(crate) fn new(paths: Vec<PathBuf>) -> Arc<Self> {
        let folder = |path| Folder { path, queued_bytes: AtomicU64::new(0), all_bytes: AtomicU64::new(0) };
        Arc::new(Self(paths.into_iter().map(folder).collect()))
    }

    /// Returns the folder with the fewest bytes to write.
    fn next(&self) -> Option<usize> {
        let load =
            |of: &Folder| (of.queued_bytes.load(Ordering::Relaxed), of.all_bytes.load(Ordering::Relaxed));
        (0..self.0.len()).min_by_key(|at| load(&self.0[*at]))
    }
}

/// Bytes in the queue of a folder.
struct Queued {
    folders: Arc<Folders>,
    at: usize,
    bytes: u64,
}

impl Queued {
    fn new(folders: &Arc<Folders>, at: usize, bytes: u64) -> Self {
        folders.0[at].queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        folders.0[at].all_bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { folders: Arc::clone(folders), at, bytes }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.folders.0[self.at].queued_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A job's access to disks for its exchanges.
pub(crate) struct Spill {
    pub runtime: Runtime,
    pub folders: Arc<Folders>,
    pub shares: Shares,
    pub usage: Arc<Usage>,
}

/// The files of one exchange, by folder.
pub(crate) struct Files {
    spill: Arc<Spill>,
    files: Mutex<Vec<Option<Arc<Scratch>>>>,
}

/// Batches of one partition on disk.
pub(crate) struct Block {
    file: Arc<Scratch>,
    offset: u64,
    bytes: u64,
    checksum: u32,
    /// Its bytes until they are written, since operators may make room for others while the next stage reads.
    unwritten: Arc<Mutex<Option<Bytes>>>,
    batches: Vec<Stored>,
    /// Memory of the batches as they are taken, and as an exchange would hold them.
    pub batch_bytes: u64,
    held_bytes: u64,
    usage: Arc<Usage>,
}

/// A batch of a block.
struct Stored {
    bytes: usize,
    rows: usize,
    /// The least value of each column that has differences.
    least: Vec<Option<Number>>,
}

/// A block that is being read.
pub(crate) struct Load {
    block: Arc<Block>,
    bytes: Mutex<Option<Bytes>>,
}

impl Spill {
    pub(crate) fn files(self: &Arc<Self>) -> Files {
        Files { spill: Arc::clone(self), files: Mutex::default() }
    }
}

impl Files {
    /// Returns new files of the same job.
    pub(crate) fn again(&self) -> Self {
        self.spill.files()
    }

    /// Encodes batches, such as those of partitions. Returns the blocks by the same keys in the same order, and the monotask
    /// that writes them.
    ///
    /// # Errors
    /// Returns an error if no file can be created, or a batch cannot be encoded.
    pub(crate) fn write<K: Copy>(
        &self,
        parts: Vec<(K, Vec<Compact>)>,
    ) -> Result<(Vec<(K, Block)>, Monotask)> {
        let (at, file) = self.file()?;
        let start_ns = now_ns();
        let max = self.spill.shares.block;
        let (mut blocks, mut chunks) = (Vec::new(), Vec::new());
        for (key, batches) in parts {
            let mut batches = batches.into_iter().flat_map(|batch| batch.split(max)).peekable();
            while let Some(first) = batches.next() {
                let mut of_block = vec![first];
                let mut bytes = of_block[0].batch_bytes;
                while let Some(batch) = batches.next_if(|next| bytes + next.batch_bytes <= max) {
                    bytes += batch.batch_bytes;
                    of_block.push(batch);
                }
                let (block, chunk) = self.block(&file, &of_block)?;
                blocks.push((key, block));
                chunks.push(chunk);
            }
        }
        let (mut offset, monotask) = file.write_monotask(chunks);
        for (_, block) in &mut blocks {
            block.offset = offset;
            offset += block.bytes;
        }
        let unwritten = blocks.iter().map(|(_, block)| Arc::clone(&block.unwritten)).collect();
        self.spill.usage.converted(now_ns() - start_ns);
        Ok((blocks, timed(&self.spill.usage, self.queued(at, unwritten, monotask))))
    }

    /// Encodes the batches of a block.
    fn block(&self, file: &Arc<Scratch>, batches: &[Compact]) -> Result<(Block, Bytes)> {
        let mut bytes = Vec::new();
        let stored = batches.iter().map(|batch| encode(batch, &mut bytes)).collect::<Result<_>>()?;
        let bytes = Bytes::from(bytes);
        let usage = Arc::clone(&self.spill.usage);
        let held_bytes = batches.iter().map(|batch| batch.bytes).sum();
        usage.put_on_disk(held_bytes);
        let block = Block {
            file: Arc::clone(file),
            offset: 0,
            bytes: bytes.len() as u64,
            checksum: crc32fast::hash(&bytes),
            unwritten: Arc::new(Mutex::new(Some(bytes.clone()))),
            batches: stored,
            batch_bytes: batches.iter().map(|batch| batch.batch_bytes).sum(),
            held_bytes,
            usage,
        };
        Ok((block, bytes))
    }

    /// Counts the bytes of a write monotask in the queue of its folder, and frees them once they are written.
    fn queued(&self, at: usize, blocks: Vec<Arc<Mutex<Option<Bytes>>>>, monotask: Monotask) -> Monotask {
        let (run, queued) = (monotask.run, Queued::new(&self.spill.folders, at, monotask.bytes));
        let run = move |context: &_| {
            let done = run(context);
            if done.is_ok() {
                blocks.iter().for_each(|unwritten| drop(lock(unwritten).take()));
            }
            drop(queued);
            done
        };
        Monotask { run: Box::new(run), ..monotask }
    }

    /// Returns true if so much waits to be written that moving more to disk frees too little.
    pub(crate) fn waits_for_disk(&self) -> bool {
        let queued = |folder: &Folder| folder.queued_bytes.load(Ordering::Relaxed);
        self.spill.folders.0.iter().map(queued).sum::<u64>() > self.spill.shares.tables
    }

    /// Lets operators of the same job move batches of `exchange` to disk.
    pub(crate) fn may_move(&self, exchange: Weak<dyn Movable>) {
        self.spill.usage.may_move(exchange);
    }

    /// Returns a file in the folder with the fewest bytes to write.
    fn file(&self) -> Result<(usize, Arc<Scratch>)> {
        let folders = &self.spill.folders;
        let at =
            folders.next().ok_or_else(|| DataFusionError::Execution("no folder to spill to".to_string()))?;
        let mut files = lock(&self.files);
        files.resize(folders.0.len(), None);
        let file = match &files[at] {
            Some(file) => Arc::clone(file),
            None => {
                let new = self.spill.runtime.scratch(&folders.0[at].path);
                let new = new.map_err(DataFusionError::External)?;
                files[at] = Some(Arc::clone(&new));
                new
            }
        };
        Ok((at, file))
    }

    pub(crate) fn shares(&self) -> Shares {
        self.spill.shares
    }
}

/// Returns the monotasks that read blocks: those of one file in the order of their places, so that a spinning disk moves
/// its head little.
pub(crate) fn read(mut loads: Vec<Arc<Load>>) -> Vec<Monotask> {
    loads.sort_by_key(|load| (Arc::as_ptr(&load.block.file), load.block.offset));
    loads.dedup_by(|next, load| Arc::ptr_eq(next, load));
    let mut reads: Vec<(u64, Vec<Arc<Load>>)> = Vec::new();
    for load in loads {
        match reads.last_mut() {
            Some((bytes, of_file))
                if Arc::ptr_eq(&of_file[0].block.file, &load.block.file) && *bytes < READ_BYTES =>
            {
                *bytes += load.block.bytes;
                of_file.push(load);
            }
            _ => reads.push((load.block.bytes, vec![load])),
        }
    }
    let monotask = |(_, loads): (u64, Vec<Arc<Load>>)| {
        let ranges = loads.iter().map(|load| load.block.range()).collect();
        let block = Arc::clone(&loads[0].block);
        let read = block.file.read_monotask(ranges, move |read| {
            for (load, bytes) in loads.iter().zip(read) {
                *lock(&load.bytes) = Some(bytes);
            }
        });
        timed(&block.usage, read)
    };
    reads.into_iter().map(monotask).collect()
}

/// Counts the bytes and the time of a monotask.
fn timed(usage: &Arc<Usage>, monotask: Monotask) -> Monotask {
    let (usage, bytes, phase) = (Arc::clone(usage), monotask.bytes, monotask.phase);
    let inner = monotask.run;
    let run = move |context: &_| {
        let started = Instant::now();
        let done = inner(context);
        let (written, read) = if phase == Phase::Spill { (bytes, 0) } else { (0, bytes) };
        usage.spilled(written, read, started.elapsed());
        done
    };
    Monotask { run: Box::new(run), ..monotask }
}

impl Block {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }

    fn damaged(&self, cause: impl std::fmt::Display) -> DataFusionError {
        DataFusionError::Execution(format!(
            "cannot read spilled data in {}: {cause}; check the disk, or name another folder with --spill-dir",
            self.file.folder().display()
        ))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.usage.gone_from_disk(self.held_bytes);
    }
}

impl Load {
    /// Creates the load of a block. If that has not been written yet, there is nothing to read.
    pub(crate) fn new(block: Arc<Block>) -> Arc<Self> {
        let unwritten = lock(&block.unwritten).clone();
        Arc::new(Self { block, bytes: Mutex::new(unwritten) })
    }

    /// Returns true if the block is in memory, where also the page cache may have it.
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.bytes).is_some() || self.block.file.is_cached(&self.block.range())
    }

    /// Returns the batches; `None` if their block must be read from the disk before.
    ///
    /// # Errors
    /// Returns an error if the block cannot be read, or its bytes are not those that were written.
    pub(crate) fn batches(&self, schema: &SchemaRef) -> Result<Option<Vec<RecordBatch>>> {
        let (block, start_ns) = (&self.block, now_ns());
        let loaded = lock(&self.bytes).take();
        let bytes = match loaded {
            Some(bytes) => bytes,
            None if block.file.is_cached(&block.range()) => {
                block.usage.read_cached(block.bytes);
                block.file.read_cached(block.range()).map_err(DataFusionError::External)?
            }
            None => return Ok(None),
        };
        if crc32fast::hash(&bytes) != block.checksum {
            return Err(block.damaged("its checksum differs"));
        }
        let mut at = 0;
        let batch = |stored: &Stored| {
            let from = at;
            at += stored.bytes;
            decode(&bytes[from..at], stored, schema).map_err(|e| block.damaged(e))
        };
        let batches = block.batches.iter().map(batch).collect::<Result<_>>()?;
        block.usage.converted(now_ns() - start_ns);
        Ok(Some(batches))
    }
}

/// Adds a batch to `bytes` as a compressed stream of Arrow IPC.
fn encode(batch: &Compact, bytes: &mut Vec<u8>) -> Result<Stored> {
    let (arrays, least): (Vec<ArrayRef>, Vec<_>) = batch.columns().into_iter().unzip();
    let field = |(at, array): (usize, &ArrayRef)| Field::new(at.to_string(), array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(arrays.iter().enumerate().map(field).collect::<Vec<_>>()));
    let rows = batch.rows();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let stored = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options)?;
    // A part of a batch refers to the values of all of it.
    let stored = batch_without_rest(stored)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    writer.write(&stored)?;
    let stream = compress_prepend_size(&writer.into_inner()?);
    bytes.extend_from_slice(&stream);
    Ok(Stored { bytes: stream.len(), rows, least })
}

fn decode(bytes: &[u8], stored: &Stored, schema: &SchemaRef) -> Result<RecordBatch> {
    let plain = decompress_size_prepended(bytes).map_err(|e| DataFusionError::Execution(e.to_string()))?;
    let batch = StreamDecoder::new().decode(&mut Buffer::from_vec(plain))?;
    let batch = batch.ok_or_else(|| DataFusionError::Execution("it has no batch".to_string()))?;
    let columns = batch.columns().iter().cloned().zip(stored.least.iter().copied());
    Ok(Compact::restore(schema, stored.rows, columns)?)
}
