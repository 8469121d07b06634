//! Which physical disk a device number stands for, by way of `/sys` and the
//! table of mounts.
//!
//! Partitions lead to their disk, so that they share its queue. A mapped device
//! (LVM, dm-crypt) leads to the disk under it, where there is just one; over
//! several it is a disk of its own, since its bytes cannot be told apart. A loop
//! device is a disk of its own. File systems with a device number of their own
//! (btrfs, tmpfs, overlay) are looked up among the mounts: one that was mounted
//! from a device leads there, any other is named by its type.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Device;

/// The device that `path` is on.
pub(crate) fn device_of(path: &Path) -> io::Result<Device> {
    let number = fs::metadata(path)?.dev();
    if let Some(device) = of_number(number) {
        return Ok(device);
    }
    let path = fs::canonicalize(path)?;
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    let Some((kind, source)) = mounted(&table, &path) else {
        return Ok(plain(format!("dev{number:x}")));
    };
    let from_device = fs::metadata(&source)
        .ok()
        .filter(|m| m.file_type().is_block_device())
        .and_then(|m| of_number(m.rdev()));
    Ok(from_device.unwrap_or_else(|| plain(kind)))
}

/// One without a device: nothing to count, nothing that spins.
fn plain(name: String) -> Device {
    Device { name, spinning: false, counters: None }
}

fn of_number(number: u64) -> Option<Device> {
    let (major, minor) = (libc::major(number), libc::minor(number));
    let entry = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(of_entry(physical(entry)))
}

/// From a device's folder in `/sys` to that of the one disk under it.
fn physical(mut entry: PathBuf) -> PathBuf {
    if entry.join("partition").exists()
        && let Some(disk) = entry.parent()
    {
        entry = disk.to_path_buf();
    }
    let under: Vec<PathBuf> = fs::read_dir(entry.join("slaves"))
        .map(|d| d.flatten().filter_map(|e| fs::canonicalize(e.path()).ok()).collect())
        .unwrap_or_default();
    match under.as_slice() {
        [one] => physical(one.clone()),
        _ => entry,
    }
}

fn of_entry(entry: PathBuf) -> Device {
    let name = entry.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let flag = fs::read_to_string(entry.join("queue/rotational")).unwrap_or_default();
    Device { spinning: flag.trim() == "1" && !is_virtual(&name), counters: Some(entry.join("stat")), name }
}

/// Virtual disks and loop devices often claim to spin, since nobody told their
/// driver otherwise; what is behind them takes several requests at once.
fn is_virtual(name: &str) -> bool {
    ["vd", "xvd", "loop", "zram", "ram", "nbd", "rbd"]
        .iter()
        .any(|p| name.strip_prefix(p).is_some_and(|rest| !rest.is_empty()))
}

/// Type and source of the file system that `path` (canonical) is on, from the
/// text of `mountinfo`: the longest mount point above it, the last
/// one where several are mounted on one another.
fn mounted(table: &str, path: &Path) -> Option<(String, String)> {
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

/// The kernel writes a blank, a tab, a line feed and a backslash in octal.
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
    fn the_longest_mount_point_above_it() {
        let check = |path: &str, expect: (&str, &str)| {
            let (kind, source) = mounted(TABLE, Path::new(path)).expect("mounted");
            assert_eq!((kind.as_str(), source.as_str()), expect, "{path}");
        };
        check("/home/x", ("ext4", "/dev/vda1"));
        check("/dev/shm/x/y", ("tmpfs", "tmpfs"));
        check("/data one/t.parquet", ("btrfs", "/dev/sdb1"));
        check("/data/t.parquet", ("overlay", "overlay"));
        check("/database", ("ext4", "/dev/vda1"));
        assert_eq!(mounted("", Path::new("/x")), None);
    }

    #[test]
    fn partitions_mapped_devices_and_stripes() -> io::Result<()> {
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
        let name = |entry: &Path| of_entry(physical(entry.to_path_buf()));
        assert_eq!(name(&part).name, "sda");
        assert!(name(&part).spinning);
        assert_eq!(name(&crypt).name, "sda");
        assert_eq!(name(&stripe).name, "md0");
        assert!(!name(&vda).spinning, "a virtual disk's claim is not believed");
        Ok(())
    }

    #[test]
    fn files_without_a_device_have_a_resource_of_their_own() {
        if let Ok(device) = device_of(Path::new("/proc/self/status")) {
            assert_eq!(device, plain("proc".to_string()));
        }
    }
}
