//! A scratch directory that fills up.

use std::path::Path;

use crate::common::{Directory, Outcome, bdrun_args, bdrun_on, first_of, skipped};

const MIB: u64 = 1 << 20;

/// A small file system in memory; unmounted in the end.
pub(crate) struct SmallDisk(Directory);

impl SmallDisk {
    pub(crate) fn new(mib: u64) -> Result<Self, String> {
        let dir = Directory::new("small-disk");
        let options = format!("size={mib}M");
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("none"), dir.path(), Some("tmpfs"), flags, Some(options.as_str()))
            .map_err(|error| format!("a tmpfs cannot be mounted: {error}"))?;
        Ok(Self(dir))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn used(&self) -> u64 {
        let info = nix::sys::statvfs::statvfs(self.path()).expect("statvfs");
        (info.blocks() - info.blocks_free()) * info.fragment_size()
    }

    /// A job with its scratch there.
    fn run(&self, args: &str) -> Outcome {
        bdrun_on(self.path(), args.split_whitespace()).run()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, so that a job that a failed test has left does not keep it.
        let _ = nix::mount::umount2(self.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_scratch_directory_is_named_with_need_and_remedy() {
    let disk = match SmallDisk::new(64) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    let directory = disk.path().display().to_string();
    for options in ["", "--processors 1", "--resident 2"] {
        let outcome = disk.run(&format!("-np 8 --memory 64M {options} sweep 32M 3"));
        outcome.failed_with(121, &["scratch is full", &directory, "needs", "--scratch", "--memory"]);
        let stats = outcome.stats();
        assert_eq!(stats.status, "scratch-full");
        let within = stats.peak_resident_bytes <= stats.budget_bytes;
        assert!(within || stats.overdraft_rank.is_some(), "{stats:?}");
        assert!((0..8).any(|rank| outcome.stderr.contains(&format!("rank {rank} needs"))), "{outcome:?}");
        assert_eq!(disk.used(), 0, "what was written there is gone");
    }
}

/// Output that waits for its turn and finds no room is an error that says so, not a job that stands still.
#[test]
fn output_that_waits_for_its_turn_fits_nowhere() {
    let disk = match SmallDisk::new(4) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    let script = "if [ $0 = 0 ]; then sleep 1000; else head -c 20000000 /dev/zero; fi";
    let outcome =
        bdrun_on(disk.path(), ["-np", "2", "--keep-order", "--memory", "64M", "sh", "-c", script, "{rank}"])
            .run();
    outcome.failed_with(122, &["--keep-order", "No space left", "--scratch"]);
    assert_eq!(disk.used(), 0);
}

/// Of two directories it is the full one that is named.
#[test]
fn of_two_directories_the_full_one_is_named() {
    let disk = match SmallDisk::new(24) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    let roomy = Directory::new("roomy-disk");
    let outcome = bdrun_on(
        roomy.path(),
        ["--scratch".into(), disk.path().display().to_string()]
            .into_iter()
            .chain("-np 8 --memory 64M sweep 32M 3".split_whitespace().map(String::from)),
    )
    .run();
    outcome.failed_with(121, &["scratch is full", &disk.path().display().to_string()]);
    assert!(!outcome.stderr.contains(&roomy.path().display().to_string()), "{outcome:?}");
    assert_eq!(disk.used(), 0);
}

/// As long as somebody in RAM can finish, a full disk only means that nobody is moved out.
#[test]
fn a_job_goes_on_while_residents_can_finish() {
    let disk = match SmallDisk::new(16) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    // Where nobody does anything for two seconds the budget is exceeded: that may be on a busy machine.
    first_of(["1.5", "0.5", "0.1"], |seconds| {
        // Memory for two of five; scratch for none.
        let outcome = disk.run(&format!("-np 5 --memory 64M relay 24 {seconds}"));
        let ended = (outcome.code, outcome.stdout.as_str());
        assert_eq!(ended, (Some(0), "5 ranks ended in turn\n"), "{outcome:?}");
        assert_eq!(disk.used(), 0);
        let stats = outcome.stats();
        if stats.overdraft_rank.is_some() {
            return Err(format!("{outcome:?}"));
        }
        assert!(stats.peak_resident_bytes <= 64 * MIB && stats.demand_bytes >= 48 * MIB, "{stats:?}");
        Ok(())
    });
}

/// Messages that find no room in RAM go to scratch; when that is full too, the sender is named.
#[test]
fn messages_that_fit_nowhere() {
    let disk = match SmallDisk::new(2) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    let outcome = disk.run("-np 4 --memory 4M conformance");
    outcome.failed_with(121, &["scratch is full", &disk.path().display().to_string()]);
    assert_eq!(disk.used(), 0);
}

/// A block of standard input that fits nowhere.
#[test]
fn blocks_that_fit_nowhere() {
    let disk = match SmallDisk::new(4) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    let dir = Directory::new("blocks");
    let input = dir.path().join("input");
    std::fs::write(&input, vec![b'\n'; 16 << 20]).expect("an input");
    let input = std::fs::File::open(input).expect("the input");
    let args = ["--pipe", "--block", "8M", "--memory", "64M", "--", "wc", "-c"];
    let outcome = bdrun_on(disk.path(), args).with(|command| command.stdin(input)).run();
    outcome.failed_with(121, &["scratch is full", &disk.path().display().to_string()]);
    assert_eq!(disk.used(), 0);
}

/// A job that has failed anyway says that its journal lacks something: who goes on with it relies on that.
#[test]
fn a_journal_that_lacks_something_is_said_of_a_job_that_failed() {
    let disk = match SmallDisk::new(1) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    let at = |name: &str| disk.path().join(name).display().to_string();
    let (journal, filler) = (at("journal"), at("filler"));
    let dir = Directory::new("full-journal");
    let list = dir.path().join("list");
    // What is written down of it needs more than what is left of the page that its journal has.
    std::fs::write(&list, format!("{}\n", "x".repeat(10_000))).expect("a list");
    let script = "dd if=/dev/zero of=\"$0\" bs=4096 2> /dev/null; exit 3";
    let list = list.display().to_string();
    let args = ["--journal", &journal, "--parts", &list, "--literal", "--", "sh", "-c", script, &filler];
    let outcome = bdrun_args(args).run();
    outcome.failed_with(3, &["journal", "No space left on device"]);
}
