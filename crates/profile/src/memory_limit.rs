//! The memory that the system gives this process: the least of the limits of its cgroups and the memory of the machine.
//!
//! A process belongs to one cgroup of version 2, and with version 1 to one of the controller `memory`. The limits of all
//! parents hold as well. `/proc/self/cgroup` names the cgroup, `/proc/self/mountinfo` the folder in which its files are.
//! In a container, the mount often shows the container's own cgroup as the root, and the name may be that of the host;
//! such a name is looked for below the mount, and its parents up to the mount itself count in any case.

use std::path::{Component, Path, PathBuf};

/// The lowest value that version 1 shows for "no limit": the largest number of whole pages in 63 bits, for any size of
/// pages.
const UNLIMITED_MIN: u64 = 1 << 60;

/// A source of memory limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitSource {
    /// The limit of a cgroup, from this file.
    Cgroup(PathBuf),
    /// The memory of the machine.
    Machine,
}

/// The memory that the process may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailableMemory {
    /// The number of bytes.
    pub bytes: u64,
    /// The source of the number.
    pub source: LimitSource,
}

/// Returns the memory that the system gives this process; `None` if the system does not tell.
pub fn available_memory() -> Option<AvailableMemory> {
    available_below(Path::new("/"))
}

/// Returns the memory that a process may take; its files of `/proc` and cgroups are below `root`.
fn available_below(root: &Path) -> Option<AvailableMemory> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(&root.join("proc/meminfo")).as_deref().and_then(total_memory);
    let machine = machine.map(|bytes| AvailableMemory { bytes, source: LimitSource::Machine });
    let mut limits: Vec<AvailableMemory> = machine.into_iter().collect();
    let cgroups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = read(&root.join("proc/self/mountinfo")).unwrap_or_default();
    for (version, name) in memory_cgroups(&cgroups) {
        for mount in mounts.lines().filter_map(|line| CgroupMount::parse(line, version)) {
            for file in mount.limit_files(name, version) {
                let text = read(&root.join(file.strip_prefix("/").unwrap_or(&file)));
                if let Some(bytes) = text.as_deref().and_then(parse_limit) {
                    limits.push(AvailableMemory { bytes, source: LimitSource::Cgroup(file) });
                }
            }
        }
    }
    limits.into_iter().min_by_key(|it| it.bytes)
}

/// Returns the memory of the machine, from the text of `/proc/meminfo`.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the limit in a file of a cgroup; `None` for `max` and the like.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED_MIN)
}

/// The version of a hierarchy of cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CgroupVersion {
    V1,
    V2,
}

impl CgroupVersion {
    fn limit_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.limit_in_bytes",
            Self::V2 => "memory.max",
        }
    }
}

/// Returns the names of the cgroups that limit the memory of a process, from the text of `/proc/self/cgroup`
/// (cgroups(7)): `0::/a/b` is of version 2, `7:memory:/a/b` of version 1.
fn memory_cgroups(text: &str) -> impl Iterator<Item = (CgroupVersion, &str)> {
    text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, name) = (parts.next()?, parts.next()?, parts.next()?);
        let version = match controllers {
            "" if number == "0" => CgroupVersion::V2,
            names if names.split(',').any(|it| it == "memory") => CgroupVersion::V1,
            _ => return None,
        };
        Some((version, name))
    })
}

/// A mount of a hierarchy of cgroups.
#[derive(Debug, PartialEq, Eq)]
struct CgroupMount {
    /// The cgroup that is the root of the mount.
    root: PathBuf,
    /// The folder where it is mounted.
    folder: PathBuf,
}

impl CgroupMount {
    /// Reads a line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)); `None` if it is about something else.
    fn parse(line: &str, version: CgroupVersion) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, folder) = (fields.next()?, fields.next()?);
        let mut fields = file_system.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1).unwrap_or_default());
        let fits = match version {
            CgroupVersion::V1 => kind == "cgroup" && options.split(',').any(|it| it == "memory"),
            CgroupVersion::V2 => kind == "cgroup2",
        };
        fits.then(|| Self { root: unescape(root).into(), folder: unescape(folder).into() })
    }

    /// Returns the files that may have a limit for a process in the cgroup `name`: its own and those of its parents, up
    /// to the mount.
    fn limit_files(&self, name: &str, version: CgroupVersion) -> Vec<PathBuf> {
        let name = Path::new(name);
        // Without a namespace, both are names of the host. A name outside of the root has parts `..`, or is as it is.
        let below = name.strip_prefix(&self.root).or_else(|_| name.strip_prefix("/"));
        let below = below.unwrap_or(Path::new(""));
        let is_below = below.components().all(|it| matches!(it, Component::Normal(_)));
        let below = if is_below { below } else { Path::new("") };
        let folders = below.ancestors().map(|it| self.folder.join(it));
        folders.map(|it| it.join(version.limit_file())).collect()
    }
}

/// Replaces the escapes of special characters in a path of `/proc/self/mountinfo`: `\040` is a space.
fn unescape(path: &str) -> String {
    let mut parts = path.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|it| u8::from_str_radix(it, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cgroups");

    #[test]
    fn the_least_limit_of_the_cgroups_and_the_machine_counts() {
        const MACHINE: u64 = 16_384_256 * 1024;
        let cgroup = |bytes: u64, file: &str| {
            Some(AvailableMemory { bytes, source: LimitSource::Cgroup(file.into()) })
        };
        let machine = Some(AvailableMemory { bytes: MACHINE, source: LimitSource::Machine });
        for (fixture, expected) in [
            // A service of systemd; its slice has the lower limit.
            ("v2_nested", cgroup(402_653_184, "/sys/fs/cgroup/system.slice/memory.max")),
            // A container with a namespace of cgroups: its own cgroup is the root.
            ("v2_container", cgroup(536_870_912, "/sys/fs/cgroup/memory.max")),
            ("v2_unlimited", machine.clone()),
            // Docker without a namespace of cgroups: the name is that of the host, and the mount shows that cgroup.
            ("v1_container", cgroup(268_435_456, "/sys/fs/cgroup/memory/memory.limit_in_bytes")),
            ("v1_unlimited", machine.clone()),
            // The controller is in version 1, and the process is in a cgroup of version 2, too.
            (
                "hybrid",
                cgroup(1_073_741_824, "/sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes"),
            ),
            // A limit above the memory of the machine.
            ("v2_above_machine", machine.clone()),
            ("no_cgroups", machine),
            ("nothing", None),
        ] {
            assert_eq!(available_below(&Path::new(FIXTURES).join(fixture)), expected, "{fixture}");
        }
    }

    #[test]
    fn cgroups_without_a_limit_on_memory_are_skipped() {
        let text = "12:cpu,cpuacct:/a\n7:hugetlb,memory:/b:c\n1:name=systemd:/d\n0::/e\nnonsense\n";
        let found: Vec<_> = memory_cgroups(text).collect();
        assert_eq!(found, [(CgroupVersion::V1, "/b:c"), (CgroupVersion::V2, "/e")]);
    }

    #[test]
    fn a_mount_shows_a_part_of_the_hierarchy() {
        let line = r"35 31 0:30 /docker/1f /sys/fs/my\040cgroup rw,nosuid shared:16 - cgroup cgroup rw,memory";
        let mount = CgroupMount::parse(line, CgroupVersion::V1).expect("it is a mount of cgroups");
        let files = |name| -> Vec<String> {
            let files = mount.limit_files(name, CgroupVersion::V1);
            files.iter().map(|it| it.display().to_string()).collect()
        };
        let own = "/sys/fs/my cgroup/memory.limit_in_bytes";
        assert_eq!(files("/docker/1f"), [own]);
        assert_eq!(files("/docker/1f/app"), ["/sys/fs/my cgroup/app/memory.limit_in_bytes", own]);
        assert_eq!(files("/../../other"), [own]);
        assert_eq!(CgroupMount::parse(line, CgroupVersion::V2), None);
        assert_eq!(CgroupMount::parse("35 31", CgroupVersion::V1), None);
    }

    #[test]
    fn words_and_numbers_without_meaning_are_no_limit() {
        for text in ["max\n", "", "-1", "9223372036854771712\n", "many"] {
            assert_eq!(parse_limit(text), None, "{text}");
        }
        assert_eq!(parse_limit("536870912\n"), Some(536_870_912));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_some_memory() {
        let available = available_memory().expect("Linux tells");
        assert!(available.bytes > 64 << 20, "{available:?}");
    }
}
