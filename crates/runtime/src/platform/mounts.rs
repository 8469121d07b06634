//! Finds the physical disk of a path, from `/sys` and the mount table.
//!
//! A partition resolves to its disk, so that partitions share one queue. A mapped device (LVM, dm-crypt)
//! resolves to the disk below it if there is exactly one; over several disks it counts as a separate disk,
//! since its bytes cannot be attributed. A loop device counts as a separate disk, too. File systems with
//! virtual device numbers (btrfs, tmpfs, overlay) are looked up in the mount table. They resolve to the
//! device from which they were mounted; those without a device are named by their type.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Device;

/// Returns the device of `path`.
pub(crate) fn device_of(path: &Path) -> io::Result<Device> {
    let number = fs::metadata(path)?.dev();
    if let Some(device) = device_by_number(number) {
        return Ok(device);
    }
    let path = fs::canonicalize(path)?;
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    let Some((kind, source)) = find_mount(&table, &path) else {
        return Ok(virtual_device(format!("dev{number:x}")));
    };
    let from_device = fs::metadata(&source)
        .ok()
        .filter(|m| m.file_type().is_block_device())
        .and_then(|m| device_by_number(m.rdev()));
    Ok(from_device.unwrap_or_else(|| virtual_device(kind)))
}

/// Returns the device of a file system without a disk, which has no counters.
fn virtual_device(name: String) -> Device {
    Device { name, spinning: false, counters: None }
}

fn device_by_number(number: u64) -> Option<Device> {
    let (major, minor) = (libc::major(number), libc::minor(number));
    let entry = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(device_from_entry(physical_disk(entry)))
}

/// Returns the `/sys` folder of the one disk below a device, given the device's own.
fn physical_disk(mut entry: PathBuf) -> PathBuf {
    if entry.join("partition").exists()
        && let Some(disk) = entry.parent()
    {
        entry = disk.to_path_buf();
    }
    let under: Vec<PathBuf> = fs::read_dir(entry.join("slaves"))
        .map(|d| d.flatten().filter_map(|e| fs::canonicalize(e.path()).ok()).collect())
        .unwrap_or_default();
    match under.as_slice() {
        [one] => physical_disk(one.clone()),
        _ => entry,
    }
}

fn device_from_entry(entry: PathBuf) -> Device {
    let name = entry.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let flag = fs::read_to_string(entry.join("queue/rotational")).unwrap_or_default();
    Device { spinning: flag.trim() == "1" && !is_virtual(&name), counters: Some(entry.join("stat")), name }
}

/// Returns true for virtual disks and loop devices. Their drivers often report them as rotational by
/// default, but their storage can handle concurrent requests.
fn is_virtual(name: &str) -> bool {
    ["vd", "xvd", "loop", "zram", "ram", "nbd", "rbd"]
        .iter()
        .any(|p| name.strip_prefix(p).is_some_and(|rest| !rest.is_empty()))
}

/// Returns type and source of the file system of `path` (canonical), from the text of `mountinfo`. The
/// longest mount point above the path wins, and of several at the same point the last.
fn find_mount(table: &str, path: &Path) -> Option<(String, String)> {
    let mut best: Option<(usize, String, String)> = None;
    for line in table.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else { continue };
        let Some(point) = mount.split(' ').nth(4).map(unescape) else { continue };
        let mut fields = file_system.split(' ');
        let (Some(kind), Some(source)) = (fields.next(), fields.next()) else { continue };
        let long_enough = best.as_ref().is_none_or(|(len, _, _)| point.len() >= *len);
        if path.starts_with(&point) && long_enough {
            best = Some((point.len(), kind.to_string(), unescape(source)));
        }
    }
    best.map(|(_, kind, source)| (kind, source))
}

/// Decodes the octal escapes of space, tab, line feed and backslash.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:5 / /dev rw - devtmpfs dev rw
24 23 0:21 / /dev/shm rw shared:4 - tmpfs tmpfs rw
25 22 0:40 /sub /data\\040one rw - btrfs /dev/sdb1 rw,space_cache
26 22 0:41 / /data rw - overlay overlay rw,lowerdir=/a";

    #[test]
    fn longest_mount_point_wins() {
        let check = |path: &str, expect: (&str, &str)| {
            let (kind, source) = find_mount(TABLE, Path::new(path)).expect("mounted");
            assert_eq!((kind.as_str(), source.as_str()), expect, "{path}");
        };
        check("/home/x", ("ext4", "/dev/vda1"));
        check("/dev/shm/x/y", ("tmpfs", "tmpfs"));
        check("/data one/t.parquet", ("btrfs", "/dev/sdb1"));
        check("/data/t.parquet", ("overlay", "overlay"));
        check("/database", ("ext4", "/dev/vda1"));
        assert_eq!(find_mount("", Path::new("/x")), None);
    }

    #[test]
    fn partitions_and_mapped_devices_resolve_to_their_disk() -> io::Result<()> {
        let sys = tempfile::tempdir()?;
        let make = |name: &str, spins: &str| -> io::Result<PathBuf> {
            let dir = sys.path().join(name);
            fs::create_dir_all(dir.join("queue"))?;
            fs::write(dir.join("queue/rotational"), spins)?;
            fs::canonicalize(dir)
        };
        let (sda, sdb, vda) = (make("sda", "1\n")?, make("sdb", "1\n")?, make("vda", "1\n")?);
        let part = sda.join("sda1");
        fs::create_dir_all(&part)?;
        fs::write(part.join("partition"), "1\n")?;
        let (crypt, stripe) = (make("dm-0", "1\n")?, make("md0", "0\n")?);
        for (of, on) in [(&crypt, vec![&part]), (&stripe, vec![&sda, &sdb])] {
            fs::create_dir_all(of.join("slaves"))?;
            for disk in on {
                let name = disk.file_name().unwrap_or_default();
                std::os::unix::fs::symlink(disk, of.join("slaves").join(name))?;
            }
        }
        let device = |entry: &Path| device_from_entry(physical_disk(entry.to_path_buf()));
        assert_eq!(device(&part).name, "sda");
        assert!(device(&part).spinning);
        assert_eq!(device(&crypt).name, "sda");
        assert_eq!(device(&stripe).name, "md0");
        assert!(!device(&vda).spinning, "a virtual disk never counts as spinning");
        Ok(())
    }

    #[test]
    fn file_system_without_device_is_named_by_type() {
        if let Ok(device) = device_of(Path::new("/proc/self/status")) {
            assert_eq!(device, virtual_device("proc".to_string()));
        }
    }
}
