//! Linux: `/proc`, `/sys`, `cachestat(2)`, `posix_fadvise(2)`, `O_DIRECT`.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::posix;
use super::{DeviceBytes, ResidentPages};

pub(crate) use super::mounts::device_of;

/// `cachestat(2)`, Linux 6.5; the same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Returns the number of pages of `range` that are in memory, in 1 to 5 µs for 8 MiB and without I/O.
///
/// Returns `None` if the kernel does not tell, as for files that the caller neither owns nor may write.
pub(crate) fn resident_pages(file: &fs::File, range: &Range<u64>) -> io::Result<ResidentPages> {
    static MISSING: AtomicBool = AtomicBool::new(false);
    if range.start >= range.end {
        return Ok(Some(0)); // a length of 0 means the rest of the file
    }
    if MISSING.load(Ordering::Relaxed) {
        return posix::mincore_pages(file, range);
    }
    let query = CachestatRange { offset: range.start, len: range.end - range.start };
    let mut stat = Cachestat::default();
    // SAFETY: both structures have the kernel's layout and outlive the call.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const query, &raw mut stat, 0u32) };
    if result == 0 {
        return Ok(Some(stat.cached));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            MISSING.store(true, Ordering::Relaxed);
            posix::mincore_pages(file, range)
        }
        // EPERM: another user's file; EOPNOTSUPP: no support in the file system.
        // Some sandboxes return EPERM for every unknown system call.
        Some(libc::EPERM | libc::EACCES | libc::EOPNOTSUPP) => posix::mincore_pages(file, range),
        _ => Err(error),
    }
}

/// Disables read-ahead, whatever `read_ahead_kb` is set to. Errors are ignored, since they affect only
/// performance.
pub(crate) fn advise_random(file: &fs::File) {
    // SAFETY: passes no pointers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

/// Opens a file for reads that bypass the page cache.
pub(crate) fn open_direct(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Writes a range of dirty pages to the device and waits for it. Metadata is not flushed; the final flush
/// does that, with little data left to write.
pub(crate) fn flush_range(file: &fs::File, range: &Range<u64>) -> io::Result<()> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let (Ok(offset), Ok(len)) = (i64::try_from(range.start), i64::try_from(range.end - range.start)) else {
        return Ok(());
    };
    // SAFETY: passes no pointers.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Not supported here: the final flush writes everything.
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::ESPIPE) => Ok(()),
        _ => Err(error),
    }
}

/// Returns the device bytes of the calling thread so far; `None` if the kernel was built without task I/O
/// accounting.
pub(crate) fn thread_device_bytes() -> Option<DeviceBytes> {
    thread_local! {
        // `thread-self` resolves on open, so each thread needs its own file.
        static IO: RefCell<Option<fs::File>> =
            RefCell::new(fs::File::open("/proc/thread-self/io").ok());
    }
    let mut text = [0u8; 512];
    let len = IO.with(|f| f.borrow().as_ref()?.read_at(&mut text, 0).ok())?;
    parse_io(std::str::from_utf8(&text[..len]).ok()?)
}

fn parse_io(text: &str) -> Option<DeviceBytes> {
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok());
    Some(DeviceBytes { read: field("read_bytes:")?, written: field("write_bytes:")? })
}

/// Returns the bytes that a disk has moved since boot, for all processes.
pub(crate) fn disk_bytes(counters: &Path) -> Option<DeviceBytes> {
    parse_disk(&fs::read_to_string(counters).ok()?)
}

/// Parses `/sys/block/X/stat`, whose sectors have 512 bytes for every device.
fn parse_disk(text: &str) -> Option<DeviceBytes> {
    let field = |i: usize| text.split_ascii_whitespace().nth(i)?.parse::<u64>().ok();
    Some(DeviceBytes { read: field(2)? * 512, written: field(6)? * 512 })
}

/// Returns the folders of counters of the machine's network interfaces, such that each byte is counted
/// once. Excludes loopback, interfaces on top of others (a bond, a bridge, a VLAN), and virtual members of
/// a bridge.
pub(crate) fn link_counters() -> Vec<PathBuf> {
    interfaces(Path::new("/sys/class/net"))
}

fn interfaces(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let is_counted = |entry: &PathBuf| {
        let is_stacked = entries(entry).any(|e| e.file_name().to_string_lossy().starts_with("lower_"));
        let is_member = entry.join("master").exists() && !entry.join("device").exists();
        !entry.ends_with("lo") && !is_stacked && !is_member
    };
    let counted = entries(folder).map(|entry| entry.path()).filter(is_counted);
    counted.map(|entry| entry.join("statistics")).collect()
}

/// Returns the bytes that an interface has received and sent since boot, for all processes.
pub(crate) fn link_bytes(counters: &Path) -> Option<DeviceBytes> {
    let count = |name: &str| fs::read_to_string(counters.join(name)).ok()?.trim().parse().ok();
    Some(DeviceBytes { read: count("rx_bytes")?, written: count("tx_bytes")? })
}

/// Returns the core time of all processes since boot, in steps of 10 ms.
pub(crate) fn machine_busy_ns() -> Option<u64> {
    // SAFETY: passes no pointers.
    let per_s = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    Some(parse_busy(&fs::read_to_string("/proc/stat").ok()?)? * (1_000_000_000 / per_s.max(1)))
}

/// Sums the ticks of user, nice, system, irq and softirq. User includes guests, and stolen time was used by
/// another machine.
fn parse_busy(text: &str) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let field: Vec<u64> = line.split_ascii_whitespace().map_while(|f| f.parse().ok()).collect();
    [0, 1, 2, 5, 6].iter().map(|i| field.get(*i)).sum::<Option<u64>>()
}

/// Returns the peak memory of the process.
pub(crate) fn memory_high_water_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Returns the current memory of the process.
pub(crate) fn memory_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

fn status_bytes(field: &str) -> Option<u64> {
    parse_status(&fs::read_to_string("/proc/self/status").ok()?, field)
}

fn parse_status(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|l| l.strip_prefix(field))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

#[cfg(test)]
mod tests {
    use super::super::other;
    use super::*;

    #[test]
    fn kernel_files_are_parsed() {
        let io = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 3\n";
        assert_eq!(parse_io(io), Some(DeviceBytes { read: 4096, written: 512 }));
        assert_eq!(parse_io("rchar: 9\n"), None);
        let stat = "     10    2   100   7   20   3   200   9   0  5  6\n";
        assert_eq!(parse_disk(stat), Some(DeviceBytes { read: 51_200, written: 102_400 }));
        assert_eq!(parse_busy("cpu  10 1 5 1000 7 2 3 9 4 0\ncpu0 1\n"), Some(21));
        assert_eq!(parse_busy("intr 1 2"), None);
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(parse_status(status, "VmHWM:"), Some(2 << 20));
        assert_eq!(parse_status(status, "VmPeak:"), None);
    }

    #[test]
    fn each_byte_of_the_link_is_counted_once() -> io::Result<()> {
        let of = tempfile::tempdir()?;
        let entries = [
            ("lo", &[][..]),
            ("eth0", &["device", "master", "upper_bond0"]),
            ("bond0", &["lower_eth0"]),
            ("veth1", &["master"]),
            ("veth2", &[]),
        ];
        for (name, inside) in entries {
            let statistics = of.path().join(name).join("statistics");
            fs::create_dir_all(&statistics)?;
            inside.iter().try_for_each(|file| fs::write(of.path().join(name).join(file), ""))?;
            fs::write(statistics.join("rx_bytes"), "70\n")?;
            fs::write(statistics.join("tx_bytes"), "5\n")?;
        }
        let mut found = interfaces(of.path());
        found.sort();
        assert_eq!(found, ["eth0", "veth2"].map(|name| of.path().join(name).join("statistics")));
        assert_eq!(link_bytes(&found[0]), Some(DeviceBytes { read: 70, written: 5 }));
        assert_eq!(link_bytes(of.path()), None);
        Ok(())
    }

    #[test]
    fn both_platforms_agree_about_a_file() -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        io::Write::write_all(&mut file, &[7u8; 100_000])?;
        let whole = 0..100_000;
        let pages = 100_000u64.div_ceil(posix::page_bytes());
        assert_eq!(other::resident_pages(file.as_file(), &whole)?, Some(pages));
        if let Some(cached) = resident_pages(file.as_file(), &whole)? {
            assert_eq!(cached, pages);
        }
        advise_random(file.as_file());
        other::advise_random(file.as_file());
        assert!(other::device_of(file.path())?.name.starts_with("dev"));
        assert!(!device_of(file.path())?.name.is_empty());
        assert_eq!(other::open_direct(file.path())?.metadata()?.len(), 100_000);
        assert!(other::memory_high_water_bytes() >= Some(1 << 20));
        Ok(())
    }

    #[test]
    fn clocks_and_counters_return_values() {
        assert!(posix::thread_cpu_ns() <= posix::process_cpu_ns());
        assert!(machine_busy_ns() > Some(0));
        assert!(memory_bytes() <= memory_high_water_bytes());
        assert!(!posix::machine_name().is_empty());
    }
}
