//! What memory is really there, and how much of it the job may hold.
//!
//! Two things bound it: what the kernel can give without swapping (`MemAvailable`), and the headroom of every
//! cgroup from our own up to the root, v1 or v2. In a container only a part of that path may be visible; what
//! is visible is used, and for v1 the kernel's own `hierarchical_memory_limit` tells of the rest.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroups::{Hierarchy, Mount, hierarchies_under};
use crate::cli::{Memory, Options};
use crate::units::Bytes;

/// Limits from here on mean none: v1 writes the largest page-aligned `i64`.
const NO_LIMIT: u64 = 1 << 62;

/// How much memory there is, and what says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// `MemAvailable`, or the file of the limit that is tighter.
    pub source: String,
}

impl Available {
    /// The part of one of so many masters on this machine.
    #[must_use]
    pub fn among(self, masters: u32) -> Self {
        if masters < 2 {
            return self;
        }
        let source = format!("{}, a part of {masters} masters,", self.source);
        Self { bytes: self.bytes / u64::from(masters), source }
    }
}

/// How much memory the job may hold, and why so much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Bytes; at least 1.
    pub bytes: u64,
    /// As in `--memory`, or `50% of what MemAvailable allows`.
    pub source: String,
}

/// Why no budget can be found.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// The kernel does not say what is available.
    #[error("cannot read the available memory from {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// So little that a unit is missing.
    #[error(
        "--memory: {} less than 1 MiB for each of the {computing} ranks that compute at a time{}",
        if *bytes < 1 << 20 { format!("{bytes} bytes are") } else { format!("{} is", Bytes(*bytes)) },
        if *bytes < 1 << 20 {
            format!("; a number without a unit means bytes: write {bytes}M for MiB, {bytes}G for GiB")
        } else {
            format!(": give it {computing}M at least, or let fewer compute at a time ({option})")
        }
    )]
    TooLittle {
        /// The budget.
        bytes: u64,
        /// Ranks that compute at the same time.
        computing: u32,
        /// The option that says how many do.
        option: &'static str,
    },
    /// The processes themselves do not fit.
    #[error("{alive} processes take at least {} beside the budget, and {source_text} allows {}: fewer ranks (-np), or \
             more memory", Bytes(*fixed), Bytes(*there))]
    NoRoom {
        /// Ranks that live at the same time.
        alive: u32,
        /// What they take at least.
        fixed: u64,
        /// What there is.
        there: u64,
        /// What says so.
        source_text: String,
    },
    /// There is none left.
    #[error("no memory is left ({source_text}); name an amount with --memory")]
    NoneLeft {
        /// What says so.
        source_text: String,
    },
}

/// What memory is there now for this process and its children.
///
/// # Errors
/// [`BudgetError::Unreadable`] without a readable `/proc/meminfo`. Unreadable cgroup files are taken as no
/// limit.
pub fn available() -> Result<Available, BudgetError> {
    available_under(Path::new("/"))
}

/// The share that is used of the memory there is, where only what the runtime manages is counted.
const MANAGED: f64 = 0.5;
/// Where all that ranks hold is measured: what is left is for the page cache, the kernel, and the time
/// between two looks.
const MEASURED: f64 = 0.8;

/// The share that is used where none is named.
#[must_use]
pub const fn share(independent: bool) -> f64 {
    if independent { MEASURED } else { MANAGED }
}

/// The budget that was asked for, of a job of `independent` ranks or not, whose processes hold `fixed` bytes
/// besides. An amount or share named by the user is taken as it is, even if it is not there; else what these
/// processes hold besides is left.
///
/// # Errors
/// [`BudgetError::NoneLeft`] for a share of nothing.
pub fn budget(
    options: &Options,
    available: &Available,
    independent: bool,
    fixed: u64,
) -> Result<Budget, BudgetError> {
    let named = match options.memory {
        Some(Memory::Bytes(bytes)) => return Ok(Budget { bytes, source: "--memory".into() }),
        Some(Memory::Share(share)) => Some(share),
        Some(Memory::Auto) | None => options.budget_fraction,
    };
    let share = named.unwrap_or_else(|| self::share(independent));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share in (0, 1] of a number of bytes; the last few do not matter"
    )]
    let bytes = (available.bytes as f64 * share) as u64;
    if bytes == 0 {
        return Err(BudgetError::NoneLeft { source_text: available.source.clone() });
    }
    let rest = available.bytes.saturating_sub(fixed).max(bytes / 4);
    if named.is_none() && rest < bytes {
        let source = format!("what {} allows beside {} of processes", available.source, Bytes(fixed));
        return Ok(Budget { bytes: rest, source });
    }
    Ok(Budget { bytes, source: format!("{}% of what {} allows", 100.0 * share, available.source) })
}

/// A budget of less for each rank that computes is a mistake of units.
pub const LEAST: u64 = 1 << 20;
/// What an idle rank and the master hold beside the budget, at least: text that is not shared, stacks, page
/// tables.
const LEAST_RANK: u64 = 200 << 10;
const LEAST_JOB: u64 = 4 << 20;
/// The same as it is set aside: 360 KiB of a rank are its own (measured), 170 KiB the kernel's (page tables,
/// stacks, descriptors).
const FIXED_PER_RANK: u64 = 544 << 10;
/// The same of the master, and a page cache for the text of programs.
pub const FIXED_PER_JOB: u64 = 8 << 20;

/// Bytes that `alive` processes and the master hold beside the budget, as they are set aside: what is
/// estimated, times what it turned out to be in earlier runs.
pub fn fixed(alive: u32, overhead: f64) -> u64 {
    ((FIXED_PER_JOB + FIXED_PER_RANK * u64::from(alive)) as f64 * overhead) as u64
}

/// Whether `bytes` can be a budget of a job of which `alive` ranks live, and `computing` of them compute (as
/// `option` says), at the same time; and what is to be said if it may turn out not to be there.
///
/// # Errors
/// [`BudgetError::TooLittle`], [`BudgetError::NoRoom`].
pub fn check(
    bytes: u64,
    alive: u32,
    (computing, option): (u32, &'static str),
    available: &Available,
) -> Result<Option<String>, BudgetError> {
    if bytes / u64::from(computing.max(1)) < LEAST {
        return Err(BudgetError::TooLittle { bytes, computing, option });
    }
    let least = LEAST_JOB + LEAST_RANK * u64::from(alive);
    let (there, source) = (available.bytes, &available.source);
    if least > there {
        return Err(BudgetError::NoRoom { alive, fixed: least, there, source_text: source.clone() });
    }
    let fixed = fixed(alive, 1.0);
    let most = bytes.saturating_add(fixed);
    Ok((most > there).then(|| {
        format!(
            "a budget of {} and about {} for {alive} processes are more than the {} that {source} allows: if ranks use all of it the \
             kernel may kill them; --memory {}M would fit",
            Bytes(bytes),
            Bytes(fixed),
            Bytes(there),
            (there.saturating_sub(fixed) >> 20).max(1)
        )
    }))
}

/// [`available`] of the system whose root directory is `root`.
///
/// # Errors
/// As [`available`].
pub fn available_under(root: &Path) -> Result<Available, BudgetError> {
    let path = root.join("proc/meminfo");
    let text =
        fs::read_to_string(&path).map_err(|source| BudgetError::Unreadable { path: path.clone(), source })?;
    // MemFree is all that kernels before 3.14 have.
    let kibibytes = field(&text, "MemAvailable:").or_else(|| field(&text, "MemFree:")).ok_or_else(|| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "it has no MemAvailable");
        BudgetError::Unreadable { path, source }
    })?;
    let memory = Available { bytes: kibibytes.saturating_mul(1024), source: "MemAvailable".into() };
    Ok(headrooms(root)
        .into_iter()
        .fold(memory, |tightest, headroom| if headroom.bytes < tightest.bytes { headroom } else { tightest }))
}

/// Where the kernel tells how long processes waited for memory: those of our cgroup, with the ranks'; where
/// it does not tell that (version 1, the root), all of the machine. What others in a container of their own
/// wait for is none of ours.
#[must_use]
pub fn pressure_file(root: &Path) -> PathBuf {
    let own = || {
        let (groups, mounts) = hierarchies_under(root).ok()?;
        let group = Hierarchy::V2.locate(&groups, &mounts).ok()?;
        let file = root.join(group.strip_prefix("/").unwrap_or(&group)).join("memory.pressure");
        file.exists().then_some(file)
    };
    own().unwrap_or_else(|| root.join("proc/pressure/memory"))
}

/// The headroom of every cgroup that limits this process and can be seen.
fn headrooms(root: &Path) -> Vec<Available> {
    let Ok((groups, mounts)) = hierarchies_under(root) else { return Vec::new() };
    let mut found = Vec::new();
    for hierarchy in [MEMORY, Hierarchy::V2] {
        let Some(own) = hierarchy.group_in(&groups) else { continue };
        for mount in hierarchy.mounts(&mounts) {
            let top = root.join(mount.at.trim_start_matches('/'));
            let mut at = directory(&mount, &top, own);
            loop {
                found.extend(headroom(hierarchy, root, &at));
                if at == top || !at.pop() {
                    break;
                }
            }
        }
    }
    found
}

/// Where version 1 limits memory.
const MEMORY: Hierarchy = Hierarchy::V1("memory");

/// What may still be used in a cgroup; none if it has no limit. The page cache that has not been used lately
/// is given up by the kernel before anybody is refused.
fn headroom(hierarchy: Hierarchy, root: &Path, directory: &Path) -> Option<Available> {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let stat = read("memory.stat").unwrap_or_default();
    let (limits, used, cache) = match hierarchy {
        Hierarchy::V1(_) => (
            [
                ("memory.limit_in_bytes", number("memory.limit_in_bytes")),
                ("memory.stat", field(&stat, "hierarchical_memory_limit")),
            ],
            number("memory.usage_in_bytes"),
            field(&stat, "total_inactive_file"),
        ),
        // Beyond `high` a cgroup is not refused memory but slowed down until it gives some back.
        Hierarchy::V2 => (
            [("memory.max", number("memory.max")), ("memory.high", number("memory.high"))],
            number("memory.current"),
            None,
        ),
    };
    let cache = cache.or_else(|| field(&stat, "inactive_file")).unwrap_or(0);
    let (name, limit) = limits
        .into_iter()
        .filter_map(|(name, limit)| Some((name, limit.filter(|&limit| limit < NO_LIMIT)?)))
        .min_by_key(|&(_, limit)| limit)?;
    let shown = directory.strip_prefix(root).unwrap_or(directory);
    Some(Available {
        bytes: limit.saturating_sub(used.unwrap_or(0).saturating_sub(cache)),
        source: format!("/{}", shown.join(name).display()),
    })
}

/// Where our own cgroup is seen: below the mount point, by the part of its path behind what is mounted there.
/// In a container the path may be that of the host, or lead out of what is mounted: then it is the mount
/// point.
fn directory(mount: &Mount, top: &Path, own: &str) -> PathBuf {
    let below = if mount.shows == "/" { Some(own) } else { own.strip_prefix(mount.shows.as_str()) };
    let below = below.filter(|path| path.is_empty() || path.starts_with('/')).unwrap_or("");
    let directory = top.join(below.trim_start_matches('/'));
    if below.split('/').any(|part| part == "..") || !directory.is_dir() { top.to_owned() } else { directory }
}

/// The number behind a word that begins a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const GIB: u64 = 1 << 30;
    const V2: &str = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "30 23 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      35 30 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                      36 30 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";

    /// A tree of files that is removed in the end.
    struct Tree(PathBuf);

    impl Tree {
        /// 16 GiB available, and these files.
        fn new(cgroup: &str, mounts: &str, files: &[(&str, &str)]) -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name =
                format!("bdrun-budget-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let tree = Self(std::env::temp_dir().join(name));
            tree.file("proc/meminfo", "MemTotal: 33554432 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\n");
            tree.file("proc/self/cgroup", cgroup);
            tree.file("proc/self/mountinfo", mounts);
            for (path, text) in files {
                tree.file(path, text);
            }
            tree
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn available(&self) -> (u64, String) {
            let found = available_under(&self.0).unwrap();
            (found.bytes, found.source)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn masters_of_one_machine_share_it() {
        let all = Available { bytes: 900, source: "MemAvailable".into() };
        assert_eq!(all.clone().among(1), all);
        let part = all.among(3);
        assert_eq!((part.bytes, &part.source[..]), (300, "MemAvailable, a part of 3 masters,"));
    }

    #[test]
    fn without_cgroups() {
        assert_eq!(Tree::new("", "", &[]).available(), (16 * GIB, "MemAvailable".into()));
        let tree = Tree::new("0::/\n", V2, &[]);
        assert_eq!(tree.available().0, 16 * GIB, "the root has no limit files");
        fs::remove_file(tree.0.join("proc/meminfo")).unwrap();
        assert!(available_under(&tree.0).unwrap_err().to_string().contains("proc/meminfo"));
    }

    #[test]
    fn version_two_takes_the_tightest_of_the_path() {
        let files = [
            ("sys/fs/cgroup/a/memory.max", "4294967296\n"),
            ("sys/fs/cgroup/a/memory.current", "3221225472\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 1073741824\nactive_file 7\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.high", "3221225472\n"),
            ("sys/fs/cgroup/a/b/memory.current", "0\n"),
        ];
        let tree = Tree::new("0::/a/b\n", V2, &files);
        assert_eq!(tree.available(), (2 * GIB, "/sys/fs/cgroup/a/memory.max".into()));
        tree.file("sys/fs/cgroup/a/b/memory.high", "1073741824\n");
        assert_eq!(tree.available(), (GIB, "/sys/fs/cgroup/a/b/memory.high".into()));
        tree.file("sys/fs/cgroup/a/b/memory.current", "2000000000\n");
        assert_eq!(tree.available().0, 0, "already beyond it");
    }

    #[test]
    fn our_own_cgroups_pressure_counts() {
        let own = "sys/fs/cgroup/a/b/memory.pressure";
        let tree = Tree::new("4:memory:/job\n0::/a/b\n", &format!("{V1}{V2}"), &[(own, "some avg10=1.00\n")]);
        assert_eq!(pressure_file(&tree.0), tree.0.join(own));
        let machine = |tree: &Tree| tree.0.join("proc/pressure/memory");
        for (groups, mounts) in [("0::/a/c\n", V2), ("4:memory:/a/b\n", V1), ("0::/a/b\n", V1)] {
            let tree = Tree::new(groups, mounts, &[(own, "")]);
            assert_eq!(pressure_file(&tree.0), machine(&tree), "{groups}");
        }
    }

    #[test]
    fn version_one_and_its_way_to_say_unlimited() {
        let files = [
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n"),
            (
                "sys/fs/cgroup/memory/job/memory.stat",
                "cache 1\nhierarchical_memory_limit 9223372036854771712\n",
            ),
        ];
        let cgroup = "4:memory:/job\n1:cpu:/elsewhere\n0::/\n";
        let tree = Tree::new(cgroup, V1, &files);
        assert_eq!(tree.available().0, 16 * GIB);
        tree.file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3221225472\n");
        tree.file("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 0\ntotal_inactive_file 536870912\n");
        let expected = "/sys/fs/cgroup/memory/job/memory.limit_in_bytes";
        assert_eq!(tree.available(), (5 * GIB / 2, expected.into()));
        // A parent that cannot be seen has a lower limit.
        tree.file(
            "sys/fs/cgroup/memory/job/memory.stat",
            "hierarchical_memory_limit 2147483648\ntotal_inactive_file 0\n",
        );
        assert_eq!(tree.available(), (GIB, "/sys/fs/cgroup/memory/job/memory.stat".into()));
    }

    #[test]
    fn containers_where_the_path_cannot_be_seen() {
        // Our cgroup is mounted, but our path is that of the host.
        let mounts = "31 23 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let files = [("sys/fs/cgroup/memory.max", "1073741824"), ("sys/fs/cgroup/memory.current", "0")];
        for cgroup in ["0::/docker/abc\n", "0::/docker/abcdef\n", "0::/../other\n", "0::/gone/from/here\n"] {
            assert_eq!(Tree::new(cgroup, mounts, &files).available().0, GIB, "{cgroup}");
        }
        // One level below what is mounted.
        let deeper = [files[0], files[1], ("sys/fs/cgroup/x/memory.max", "1048576")];
        assert_eq!(Tree::new("0::/docker/abc/x\n", mounts, &deeper).available().0, 1 << 20);
        // The mount shows the host's root and the path is not there.
        assert_eq!(Tree::new("0::/docker/abc\n", V2, &files).available().0, GIB);
    }

    #[test]
    fn the_budget_is_what_was_asked_for() {
        let there = Available { bytes: 10 * GIB, source: "MemAvailable".into() };
        let choose = |line: &str| {
            let options = Options::from_args(line.split(' ')).unwrap();
            budget(&options, &there, false, fixed(1, 1.0)).unwrap()
        };
        assert_eq!(choose("bdrun p").bytes, 5 * GIB);
        assert_eq!(choose("bdrun p").source, "50% of what MemAvailable allows");
        assert_eq!(choose("bdrun --budget-fraction 0.25 p").bytes, 5 * GIB / 2);
        assert_eq!(choose("bdrun --memory 10% p").bytes, GIB);
        assert_eq!(choose("bdrun --memory 64G p").bytes, 64 * GIB, "even if it is not there");
        // What 256 processes hold besides is left, unless a share was asked for.
        let little = Available { bytes: 256 << 20, ..there.clone() };
        let many = |line: &str| {
            let options = Options::from_args(line.split(' ')).unwrap();
            budget(&options, &little, false, fixed(256, 1.0)).unwrap()
        };
        assert_eq!(many("bdrun p").bytes, 112 << 20);
        assert_eq!(many("bdrun p").source, "what MemAvailable allows beside 144.0 MiB of processes");
        assert_eq!(many("bdrun --budget-fraction 0.5 p").bytes, 128 << 20);
        let nothing = Available { bytes: 0, ..there.clone() };
        assert!(budget(&Options::from_args(["bdrun", "p"]).unwrap(), &nothing, false, 1).is_err());
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available().unwrap().bytes > 0);
    }

    #[test]
    fn a_budget_that_cannot_be_is_said() {
        let there = Available { bytes: 256 << 20, source: "memory.max".into() };
        let check = |bytes, alive, computing| check(bytes, alive, (computing, "-j"), &there);
        assert_eq!(check(100 << 20, 16, 2).expect("it fits"), None);
        let warning = check(240 << 20, 256, 2).expect("it may do").expect("it may not");
        assert!(
            warning.contains("240.0 MiB") && warning.contains("256.0 MiB") && warning.contains("memory.max"),
            "{warning}"
        );
        assert!(check(500 << 30, 1, 1).expect("it may do").is_some());
        let error = check(1024, 2, 2).expect_err("a unit is missing").to_string();
        assert!(error.contains("1024M") && error.contains("without a unit"), "{error}");
        let error = check(10 << 20, 20, 20).expect_err("too many at once").to_string();
        assert!(error.contains("20M at least") && error.contains("compute at a time (-j)"), "{error}");
        let error = check(10 << 20, 4000, 2).expect_err("too many processes").to_string();
        assert!(error.contains("4000 processes") && error.contains("-np"), "{error}");
        assert!(check(10 << 20, 256, 2).is_ok(), "a small budget for each resident rank is enough");
    }
}
