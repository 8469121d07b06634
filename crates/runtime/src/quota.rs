//! Quotas of this process on cores and memory, from its control groups.
//!
//! A thread under a quota runs at full speed for a part of each period and is then throttled, so two
//! threads under a quota of half a core have the capacity of half a core. The capacity of the cores in a
//! trace must include the quota, which the number of threads does not. Both versions of control groups are
//! read at their usual mount points, with all parent groups; the smallest quota applies.

use std::fs;
use std::path::Path;

use crate::platform;

/// Returns the CPU quota of this process in cores; `None` without a limit.
pub(crate) fn cores() -> Option<f64> {
    of_this_process("cpu", cores_of)
}

/// Returns the memory that this process may use: that of the machine, or less by the limits of its control groups.
pub fn available_memory_bytes() -> Option<u64> {
    let limit = of_this_process("memory", memory_of).map(|bytes| bytes as u64);
    limit.into_iter().chain(platform::machine_memory_bytes()).min()
}

fn of_this_process(controller: &str, of_group: fn(&Path) -> Option<f64>) -> Option<f64> {
    let listed = fs::read_to_string("/proc/self/cgroup").ok()?;
    smallest_quota(&listed, Path::new("/sys/fs/cgroup"), controller, of_group)
}

/// Returns the smallest quota of the groups in `listed` (the text of `/proc/self/cgroup`), which are
/// mounted below `root`.
fn smallest_quota(
    listed: &str,
    root: &Path,
    controller: &str,
    of_group: fn(&Path) -> Option<f64>,
) -> Option<f64> {
    let each = listed.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let mount = match controllers {
            "" => root.to_path_buf(),
            _ if controllers.split(',').any(|c| c == controller) => {
                [controllers, controller].map(|name| root.join(name)).into_iter().find(|at| at.is_dir())?
            }
            _ => return None,
        };
        let folder = mount.join(group);
        let above = folder.ancestors().take_while(|at| at.starts_with(&mount));
        above.filter_map(of_group).min_by(f64::total_cmp)
    });
    each.min_by(f64::total_cmp)
}

fn text(group: &Path, name: &str) -> Option<String> {
    fs::read_to_string(group.join(name)).ok()
}

/// Returns the memory limit of one group, in bytes.
fn memory_of(group: &Path) -> Option<f64> {
    // "max" means no limit, as does the largest number of version 1, which is more than any machine has.
    text(group, "memory.max").or_else(|| text(group, "memory.limit_in_bytes"))?.trim().parse().ok()
}

/// Returns the quota of one group, in cores.
fn cores_of(group: &Path) -> Option<f64> {
    let text = |name: &str| text(group, name);
    let (allowed, period) = match text("cpu.max") {
        Some(both) => both.trim().split_once(' ').map(|(a, p)| (a.to_string(), p.to_string()))?,
        None => (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?),
    };
    // "max" and -1 mean no limit.
    let (allowed, period): (f64, f64) = (allowed.trim().parse().ok()?, period.trim().parse().ok()?);
    (allowed > 0.0 && period > 0.0).then(|| allowed / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(listed: &str, root: &Path) -> Option<f64> {
        smallest_quota(listed, root, "cpu", cores_of)
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn smallest_quota_of_version_2_groups_applies() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("a/cpu.max", "150000 100000\n"), ("a/b/cpu.max", "max 100000\n")]);
        assert_eq!(cores("0::/a/b\n", root.path()), Some(1.5));
        assert_eq!(cores("0::/other\n", root.path()), None);
    }

    #[test]
    fn version_1_quota_is_read_with_shared_mounts() {
        let root = tempfile::tempdir().unwrap();
        let half = [("cpu/job/cpu.cfs_quota_us", "5000\n"), ("cpu/job/cpu.cfs_period_us", "10000\n")];
        write(root.path(), &half);
        write(root.path(), &[("cpu/cpu.cfs_quota_us", "-1\n"), ("cpu/cpu.cfs_period_us", "100000\n")]);
        assert_eq!(cores("5:memory:/x\n2:cpu:/job\n0::/\n", root.path()), Some(0.5));
        assert_eq!(cores("2:cpu,cpuacct:/job\n", root.path()), Some(0.5));
        assert_eq!(cores("2:cpu:/\n3:cpuset:/job\n", root.path()), None);
    }

    #[test]
    fn smallest_memory_limit_applies() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("a/memory.max", "max\n"), ("a/b/memory.max", "1048576\n")]);
        write(root.path(), &[("memory/c/memory.limit_in_bytes", "4096\n")]);
        let limit = |listed| smallest_quota(listed, root.path(), "memory", memory_of);
        assert_eq!([limit("0::/a/b\n"), limit("0::/a\n")], [Some(1_048_576.0), None]);
        assert_eq!(limit("7:cpu:/a\n4:memory:/c/d\n"), Some(4096.0));
        assert!(available_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn unreadable_quota_is_no_limit() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("a/cpu.max", "soon\n"), ("b/cpu.max", "5 0\n")]);
        for listed in ["", "nonsense", "0::/a", "0::/b", "0::/../..", "1:cpu:/a"] {
            assert_eq!(cores(listed, root.path()), None, "{listed}");
        }
    }
}
