//! Serves one image of an emulated disk over FUSE: `pellucid-lab-hdd FOLDER BYTES KIND`.
//!
//! The folder gets three files. `image` is held in memory and is as slow as a drive of its kind (`drive.rs`).
//! `kind` reads as the current kind; write another kind to change it. `stats` holds the drive's counters as JSON.
//! A loop device with direct I/O on the image makes it a kernel block device.
//!
//! FUSE threads receive requests, and one thread acts as the drive. The program exits when the folder is unmounted.

mod drive;

use drive::{Drive, KINDS, Nanos, Parameters, Request, Served};
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request as FuseRequest, TimeOrNow, WriteFlags,
};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const IMAGE: u64 = 2;
const STATS: u64 = 3;
const KIND: u64 = 4;
/// Attributes never change; the kernel reads `stats` and `kind` without its cache.
const TTL: Duration = Duration::from_secs(3600);

/// A transfer to carry out once the drive's time for it has passed.
enum Transfer {
    Read(ReplyData),
    Write(Vec<u8>, ReplyWrite),
}

/// The drive's counters since it was started.
#[derive(Default)]
struct Counts {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    positioned: u64,
    positioning_ns: u64,
    /// Time in which the drive moved its head or transferred requested bytes.
    busy_ns: u64,
    in_flight: u64,
    max_in_flight: u64,
    /// In-flight requests, summed over time.
    in_flight_ns: u128,
    changed_ns: Nanos,
}

impl Counts {
    fn change_in_flight(&mut self, now_ns: Nanos, by: i64) {
        self.in_flight_ns += u128::from(now_ns.saturating_sub(self.changed_ns)) * u128::from(self.in_flight);
        self.changed_ns = now_ns;
        self.in_flight = self.in_flight.saturating_add_signed(by);
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
    }

    fn served(&mut self, request: &Request, served: Served) {
        let (count, bytes) = match request.write {
            true => (&mut self.writes, &mut self.write_bytes),
            false => (&mut self.reads, &mut self.read_bytes),
        };
        *count += 1;
        *bytes += request.bytes;
        self.positioned += u64::from(served.positioning_ns > 0);
        self.positioning_ns += served.positioning_ns;
        self.busy_ns += served.end_ns - served.begin_ns + served.ahead_ns;
    }

    fn json(&self, kind: &str, at_ns: Nanos) -> String {
        let Counts { reads, read_bytes, writes, write_bytes, positioned, positioning_ns, busy_ns, .. } = self;
        format!(
            "{{\"kind\":\"{kind}\",\"at_ns\":{at_ns},\"reads\":{reads},\"read_bytes\":{read_bytes},\"writes\":{writes},\
             \"write_bytes\":{write_bytes},\"positioned\":{positioned},\"positioning_ns\":{positioning_ns},\
             \"busy_ns\":{busy_ns},\"in_flight\":{},\"in_flight_most\":{},\"in_flight_ns\":{}}}\n",
            self.in_flight, self.max_in_flight, self.in_flight_ns
        )
    }
}

struct State {
    queue: VecDeque<(Request, Transfer)>,
    kind: Parameters,
    counts: Counts,
}

struct Shared {
    started: Instant,
    bytes: u64,
    state: Mutex<State>,
    arrived: Condvar,
}

impl Shared {
    fn now_ns(&self) -> Nanos {
        self.started.elapsed().as_nanos() as Nanos
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, offset: u64, bytes: u64, transfer: Transfer) {
        let mut state = self.lock();
        let arrived_ns = self.now_ns();
        let write = matches!(transfer, Transfer::Write(..));
        state.counts.change_in_flight(arrived_ns, 1);
        state.queue.push_back((Request { offset, bytes, write, arrived_ns }, transfer));
        self.arrived.notify_one();
    }

    /// Runs the drive's thread, which owns the image.
    fn run_drive(&self) {
        let mut image = vec![0_u8; self.bytes as usize];
        let mut drive = Drive::new(self.lock().kind);
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() {
                state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.kind != drive.kind {
                drive = Drive::new(state.kind);
            }
            let place = drive.choose(self.now_ns(), state.queue.iter().map(|(request, _)| request));
            let Some((request, transfer)) = place.and_then(|place| state.queue.remove(place)) else {
                continue;
            };
            let served = drive.serve(&request);
            state.counts.served(&request, served);
            drop(state);
            let left = served.end_ns.saturating_sub(self.now_ns());
            if left > 0 {
                thread::sleep(Duration::from_nanos(left));
            }
            // Count before replying: the client may read the counters right after the reply.
            self.lock().counts.change_in_flight(self.now_ns(), -1);
            transfer.complete(&mut image, &request);
        }
    }
}

impl Transfer {
    fn complete(self, image: &mut [u8], request: &Request) {
        let begin = (request.offset as usize).min(image.len());
        let end = (begin + request.bytes as usize).min(image.len());
        match self {
            Transfer::Read(reply) => reply.data(&image[begin..end]),
            Transfer::Write(data, reply) => {
                image[begin..end].copy_from_slice(&data[..end - begin]);
                reply.written((end - begin) as u32);
            }
        }
    }
}

/// The file system of one disk.
struct Disk(Arc<Shared>);

impl Disk {
    fn attributes(&self, ino: u64) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            1 => (FileType::Directory, 0o755, 0),
            IMAGE => (FileType::RegularFile, 0o600, self.0.bytes),
            STATS => (FileType::RegularFile, 0o444, 0),
            KIND => (FileType::RegularFile, 0o600, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn set_kind(&self, name: &[u8]) -> bool {
        let named = KINDS.iter().find(|kind| kind.name.as_bytes() == name.trim_ascii());
        named.map(|kind| self.0.lock().kind = *kind).is_some()
    }
}

impl Filesystem for Disk {
    fn init(&mut self, _: &FuseRequest, config: &mut KernelConfig) -> io::Result<()> {
        // Without FUSE_ASYNC_DIO a loop device's requests arrive one at a time.
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES;
        config.add_capabilities(wanted).map_err(|missing| {
            io::Error::other(format!("cannot serve the disk: the kernel lacks {missing:?}"))
        })?;
        let limit =
            |max: u32| io::Error::other(format!("cannot set a FUSE limit: the kernel allows at most {max}"));
        config.set_max_write(1 << 20).map_err(limit)?;
        config.set_max_background(256).map(drop).map_err(|given| limit(u32::from(given)))
    }

    fn lookup(&self, _: &FuseRequest, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = match name.to_str() {
            Some("image") => IMAGE,
            Some("stats") => STATS,
            Some("kind") => KIND,
            _ => 0,
        };
        match self.attributes(ino) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &FuseRequest, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(u64::from(ino)) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Ignores the truncation that precedes a write to `kind`; sizes are not kept.
    fn setattr(
        &self,
        request: &FuseRequest,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.getattr(request, ino, handle, reply);
    }

    fn open(&self, _: &FuseRequest, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = if u64::from(ino) == IMAGE { FopenFlags::empty() } else { FopenFlags::FOPEN_DIRECT_IO };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &FuseRequest,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let text = match u64::from(ino) {
            IMAGE => return self.0.submit(offset, u64::from(size), Transfer::Read(reply)),
            STATS => {
                let mut state = self.0.lock();
                let now_ns = self.0.now_ns();
                state.counts.change_in_flight(now_ns, 0);
                state.counts.json(state.kind.name, now_ns)
            }
            _ => format!("{}\n", self.0.lock().kind.name),
        };
        reply.data(text.as_bytes().get(offset as usize..).unwrap_or_default());
    }

    fn write(
        &self,
        _: &FuseRequest,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match u64::from(ino) {
            IMAGE => self.0.submit(offset, data.len() as u64, Transfer::Write(data.to_vec(), reply)),
            KIND if self.set_kind(data) => reply.written(data.len() as u32),
            _ => reply.error(Errno::EINVAL),
        }
    }

    /// Does nothing, since every acknowledged write is complete.
    fn fsync(&self, _: &FuseRequest, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, bytes, kind] = &arguments[..] else {
        eprintln!("usage: pellucid-lab-hdd FOLDER BYTES KIND");
        return ExitCode::from(2);
    };
    let named = KINDS.iter().find(|known| known.name == kind);
    let (Ok(bytes), Some(kind)) = (bytes.parse::<u64>(), named) else {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        eprintln!("invalid arguments: BYTES must be a number, KIND one of {}", names.join(", "));
        return ExitCode::from(2);
    };
    let state = State { queue: VecDeque::new(), kind: *kind, counts: Counts::default() };
    let shared = Arc::new(Shared {
        started: Instant::now(),
        bytes,
        state: Mutex::new(state),
        arrived: Condvar::new(),
    });
    let drive = Arc::clone(&shared);
    thread::spawn(move || drive.run_drive());
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("pellucid-lab-hdd".to_owned())];
    config.n_threads = Some(2);
    match fuser::mount(Disk(shared), folder, &config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot mount {folder}: {error}");
            ExitCode::FAILURE
        }
    }
}
