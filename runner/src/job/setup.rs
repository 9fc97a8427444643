//! What must be there before the first rank starts.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::Segment;
use bdrun_ipc::spread::Spread;
use bdrun_ipc::tokens;
use sbmalloc::{Compression, TrackerChoice};

use super::blocks::{Blocks, PLACES};
use super::elsewhere::Place;
use super::learned;
use super::mpi;
use super::preload::{self, Way};
use super::resume;
use super::scratch;
use super::stdin::Input;
use crate::budget::{self, Budget};
use crate::cli::{Compress, MAX_RANKS, Memory, Options, Tracker};
use crate::descriptors::{self, Demand, Spare};
use crate::exit::Ending;
use crate::launch::Launch;
use crate::learn::Known;
use crate::residency::Limits;
use crate::supervisor::SpawnError;
use crate::units::Bytes;

/// Everything a job is made of but processes.
pub(super) struct Setup {
    /// What each rank is given.
    pub launch: Launch,
    /// That of rank 0.
    pub program: PathBuf,
    /// Its ranks know nothing of bdrun, and are paged from outside.
    pub independent: bool,
    /// Ranks are independent: what one of them has done counts without the rest.
    pub alone: bool,
    /// They are dealt out over several nodes.
    pub deals: bool,
    /// What can be read again of what rank 0 inherits.
    pub stdin: Input,
    /// The library put in front of it.
    pub preload: Option<PathBuf>,
    /// The one to put there if ranks cannot be paged from outside.
    pub fallback: Option<PathBuf>,
    /// At least one; the first also takes messages that do not fit.
    pub scratch_dirs: Vec<PathBuf>,
    pub segment: Blocks,
    pub mail: Mail,
    pub limits: Limits,
    /// The kernel's limit for all ranks, bytes (with `--enforce`).
    pub cgroup_limit: u64,
    /// Our MPI, for the ranks.
    pub mpi: Option<mpi::Settings>,
    /// What ranks are told of trackers.
    pub tracker: TrackerChoice,
    /// What ranks are told of compression.
    pub compression: Compression,
    /// Bytes that were there for it.
    pub available: u64,
    /// What earlier runs say.
    pub known: Known,
    /// Files that may stay open for ranks to be measured.
    pub spare: Spare,
    pub notes: Vec<String>,
}

/// What the ranks of a job are.
struct Kind {
    program: PathBuf,
    mpi: Option<mpi::Settings>,
    independent: bool,
    preload: Option<PathBuf>,
    fallback: Option<PathBuf>,
    alone: bool,
}

impl Kind {
    fn of(options: &Options, launch: &Launch) -> Result<Self, Ending> {
        let programs = find_programs(launch)?;
        let program = programs[0].clone();
        let exe = std::env::current_exe().unwrap_or_default();
        let library_path = launch.variable(0, "LD_LIBRARY_PATH");
        let mpi = mpi::settings(options.mpi, &exe, &programs, library_path.as_deref())?;
        let is_mpi =
            mpi.as_ref().is_some_and(|mpi| mpi.is_called(options.mpi, &program, &launch.given(0).args));
        let (independent, preload, fallback) = match preload::way(options.preload, is_mpi, &program)? {
            Way::Own => (false, None, None),
            Way::Preloaded(library) => (false, Some(library), None),
            Way::Outside(fallback) => (true, None, fallback),
        };
        let alone = !is_mpi && (independent || preload.is_some());
        Ok(Self { program, mpi, independent, preload, fallback, alone })
    }
}

/// Of ranks that may talk to one another all have to be known before the first begins: then the list of parts
/// is read to its end.
pub(super) fn know_all(mut launch: Launch, options: &mut Options) -> Result<Launch, Ending> {
    if launch.streams() && !Kind::of(options, &launch)?.independent {
        if options.launch.pipe {
            return Err(Ending::Usage(
                "--pipe is for independent ranks: those of this program (of an MPI, of bdrun's own runtime, or with --preload) \
                 may talk to one another, and all of them have to be there"
                    .into(),
            ));
        }
        launch.read_rest(options)?;
    }
    Ok(launch)
}

/// What is decided before anything is made: how ranks run, and what of the machine is theirs.
pub(super) struct Decided {
    program: PathBuf,
    /// See [`Setup`].
    pub independent: bool,
    alone: bool,
    preload: Option<PathBuf>,
    fallback: Option<PathBuf>,
    mpi: Option<mpi::Settings>,
    pub limits: Limits,
    /// What the job may hold, bytes, and why so much.
    pub budget: Budget,
    available: u64,
    pub known: Known,
    pub notes: Vec<String>,
}

/// Whether the ranks know nothing of bdrun.
pub(super) fn is_independent(options: &Options, launch: &Launch) -> Result<bool, Ending> {
    Kind::of(options, launch).map(|kind| kind.independent)
}

/// Whether there are more ranks than places for those that may talk to one another, or nobody knows how many.
fn is_wide(options: &Options, launch: &Launch) -> bool {
    launch.streams() || options.np > MAX_RANKS
}

impl Decided {
    /// `place`: what is here of it.
    pub fn new(options: &Options, launch: &Launch, place: Place) -> Result<Self, Ending> {
        let Place { spread, masters, deals } = place;
        let Kind { program, mpi, independent, preload, fallback, alone } = Kind::of(options, launch)?;
        let wide = deals || is_wide(options, launch);
        if wide && !independent {
            return Err(Ending::Setup(format!(
                "{} ranks: of those that may talk to one another (of an MPI, of bdrun's own runtime, or with --preload) there may be \
                 {MAX_RANKS}: give each rank several parts",
                options.np
            )));
        }
        // Those of one that is put in front of them all live at once, and none of them is run again.
        let fallback = fallback.filter(|_| !wide && !options.launch.rerun);
        if options.enforce && options.memory == Some(Memory::Auto) {
            return Err(Ending::Usage(
                "--memory auto follows what is there, and --enforce has the kernel hold a limit that does not change: one of them".into(),
            ));
        }
        if options.jobs.is_some() && !independent {
            return Err(Ending::Usage(
                "-j is for independent ranks, which are begun as others end; those of this program (of an MPI, of bdrun's own \
                 runtime, or with --preload) all live at once: --processors says how many compute, --resident how many are in RAM"
                    .into(),
            ));
        }
        resume::check(options, alone)?;
        if options.launch.rerun && !independent {
            return Err(Ending::Usage(
                "--rerun is for ranks that are paged from outside; with --preload always they move what they hold themselves".into(),
            ));
        }
        let known = learned::known(options, launch)?;
        let no_budget = |error: budget::BudgetError| Ending::Setup(error.to_string());
        let available = budget::available().map_err(no_budget)?.among(masters);
        let processors = match options.jobs.or(options.processors) {
            Some(named) => named,
            None => (options.processor_count() / masters).max(1),
        };
        // Independent ranks are begun as they fit; of others all live.
        let computing = processors.min(options.resident_limit());
        let here = spread.here().len() as u32;
        let alive = if independent { computing } else { here };
        let fixed = budget::fixed(alive, known.overhead);
        let budget = budget::budget(options, &available, independent, fixed).map_err(no_budget)?;
        let total = budget.bytes;
        let named = if options.jobs.is_some() { "-j" } else { "--processors" };
        let checked = budget::check(total, alive, (computing, named), &available).map_err(no_budget)?;
        let mut notes: Vec<String> = checked.into_iter().collect();
        if !independent && processors.min(here) > tokens::MOST {
            notes.push(format!(
                "of {} processors {} are used: so many ranks of an MPI, or of bdrun's own runtime, compute at once",
                processors,
                tokens::MOST
            ));
        }
        let mut managed = total;
        if options.enforce {
            let fixed = budget::fixed(alive, known.overhead);
            managed =
                total.checked_sub(fixed).filter(|&rest| rest >= budget::FIXED_PER_JOB).ok_or_else(|| {
                    Ending::Setup(format!(
                        "--enforce: the limit of {} does not hold the fixed cost of {} processes ({}); \
                     raise --memory or lower -np",
                        Bytes(total),
                        alive,
                        Bytes(fixed)
                    ))
                })?;
        }
        let (tokens, resident) = (processors, options.resident_limit());
        let first = options
            .rank_memory
            .unwrap_or_else(|| (managed / 4 / u64::from(resident)).clamp(64 << 10, 1 << 20))
            .min(managed);
        let limits = Limits {
            budget: managed,
            processors: tokens,
            resident,
            alive: options.jobs.unwrap_or(u32::MAX),
            enforce: options.enforce,
            // Ranks themselves see to it that they hold no more; on top of that one may ask for room for
            // messages.
            rank_limit: options.rank_memory.map(|most| most.saturating_add(bdrun_ipc::inbox::HEADER_BLOCK)),
            first_reserve: first,
            moves: tokens.saturating_mul(2),
            part: PART,
            ahead: managed / 3,
        };
        let available = available.bytes;
        Ok(Self {
            program,
            independent,
            alone,
            preload,
            fallback,
            mpi,
            limits,
            budget,
            available,
            known,
            notes,
        })
    }
}

impl Setup {
    /// `place`: what is here of it.
    pub fn new(options: &Options, launch: Launch, place: Place) -> Result<Self, Ending> {
        let decided = Decided::new(options, &launch, place)?;
        let Limits { budget: managed, processors: tokens, .. } = decided.limits;
        let mut notes = Vec::new();
        let scratch_dirs = scratch::directories(options, &mut notes)?;
        notes.extend(decided.notes);
        let spill = scratch::make_file_in_each(&scratch_dirs)?;
        let (wide, spread) = (place.deals || is_wide(options, &launch), place.spread);
        let (places, spread) =
            if wide { (PLACES, Spread::alone(PLACES)) } else { (spread.here().len() as u32, spread) };
        let segment = Segment::create_spread(spread, managed, managed / 2, tokens).map_err(setup)?;
        segment
            .header()
            .rank_limit
            .store(options.rank_memory.unwrap_or(0), std::sync::atomic::Ordering::SeqCst);
        // What is touched while it is out takes twice its memory for a moment (the page of the file, and the
        // copy), of which small ranks have none to spare, nor has a job whose limit the kernel enforces.
        let metered = !options.enforce && managed / u64::from(places) >= METERED;
        segment.header().metered.store(u32::from(metered), std::sync::atomic::Ordering::SeqCst);
        let recorded = options.trace.is_some();
        segment.header().recorded.store(u32::from(recorded), std::sync::atomic::Ordering::SeqCst);
        let tracker = choose_tracker(options.tracker, &mut notes);
        let mail = Mail::create(spill).map_err(setup)?;
        let mut setup = Self {
            launch,
            program: decided.program,
            independent: decided.independent,
            alone: decided.alone,
            deals: place.deals,
            stdin: Input::own(),
            preload: decided.preload,
            fallback: decided.fallback,
            scratch_dirs,
            segment: Blocks::new(segment, wide),
            mail,
            limits: decided.limits,
            cgroup_limit: decided.budget.bytes,
            mpi: decided.mpi,
            tracker,
            compression: compression(options.compress),
            available: decided.available,
            known: decided.known,
            spare: Spare::new(0),
            notes,
        };
        setup.provide_files(options)?;
        Ok(setup)
    }

    /// Sees to the open files that the ranks will take. Of independent ones no more are begun
    /// than there are files for.
    pub fn provide_files(&mut self, options: &Options) -> Result<(), Ending> {
        let here = self.segment.here().len() as u32;
        let ranks = if self.segment.is_wide() { PLACES - 1 } else { here };
        let demand = Demand {
            ranks,
            least: if self.independent { options.jobs.unwrap_or(1).min(ranks) } else { ranks },
            native: !self.independent,
            scratch: u32::try_from(self.scratch_dirs.len()).unwrap_or(u32::MAX),
        };
        let fit = descriptors::provide(demand).map_err(|lack| Ending::Setup(lack.to_string()))?;
        self.limits.alive = options.jobs.unwrap_or(u32::MAX).min(fit.alive);
        self.spare = Spare::new(fit.spare);
        Ok(())
    }

    /// The program of a rank, found anew where each may have its own.
    pub fn program_of(&self, rank: u32) -> Result<PathBuf, Ending> {
        if !self.launch.programs_differ() {
            return Ok(self.program.clone());
        }
        find_program_of(&self.launch, rank)
    }
}

/// Sees that the programs of all ranks are there; each once, that of rank 0 first.
fn find_programs(launch: &Launch) -> Result<Vec<PathBuf>, Ending> {
    let mut programs = vec![find_program_of(launch, 0)?];
    if launch.programs_differ() {
        let mut seen = HashSet::from([launch.program(0)]);
        for rank in 1..launch.np() {
            if seen.insert(launch.program(rank)) {
                programs.push(find_program_of(launch, rank)?);
            }
        }
    }
    Ok(programs)
}

/// Looked for from where `bdrun` is, also if the rank runs elsewhere.
fn find_program_of(launch: &Launch, rank: u32) -> Result<PathBuf, Ending> {
    let found = find_program(&launch.program(rank))?;
    if launch.changes_directory(rank) { absolute(&found) } else { Ok(found) }
}

fn absolute(path: &Path) -> Result<PathBuf, Ending> {
    std::path::absolute(path)
        .map_err(|error| Ending::Setup(format!("where {} is cannot be said: {error}", path.display())))
}

/// Bytes of the budget for each rank from which on ranks leave out what they are not known to use.
const METERED: u64 = 32 << 20;

/// The least that is moved of a rank that does not move as a whole: enough for the disk's full rate.
const PART: u64 = 32 << 20;

/// Measured once here, so that ranks need not.
fn choose_tracker(wanted: Tracker, notes: &mut Vec<String>) -> TrackerChoice {
    match wanted {
        Tracker::Auto => sbmalloc::measure_trackers().map_or(TrackerChoice::Hash, TrackerChoice::Measured),
        Tracker::Hash => TrackerChoice::Hash,
        Tracker::Uffd => {
            if let Err(error) = sbmalloc::measure_trackers() {
                notes.push(format!(
                    "--tracker uffd: the kernel does not track writes here ({error}); using hash"
                ));
                return TrackerChoice::Hash;
            }
            TrackerChoice::Uffd
        }
    }
}

fn compression(wanted: Compress) -> Compression {
    match wanted {
        Compress::Auto => Compression::Auto,
        Compress::Lz4 => Compression::Lz4,
        Compress::None => Compression::None,
    }
}

fn setup(error: bdrun_ipc::Error) -> Ending {
    Ending::Setup(error.to_string())
}

/// As the user named it if that is a path; else in one of the [`folders`].
fn find_program(name: &OsStr) -> Result<PathBuf, Ending> {
    let text = name.to_string_lossy().into_owned();
    let is_program =
        |path: &Path| path.is_file() && path.metadata().is_ok_and(|m| m.permissions().mode() & 0o111 != 0);
    if Path::new(name).components().count() > 1 {
        let path = PathBuf::from(name);
        return if is_program(&path) {
            Ok(path)
        } else {
            Err(match path.metadata() {
                Ok(_) => Ending::NotExecutable(text, "it is no executable file".into()),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    Ending::NotExecutable(text, format!("it cannot be looked at: {error}"))
                }
                Err(_) => Ending::NotFound { program: text, closed: None },
            })
        };
    }
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = folders(beside, &path);
    if let Some(found) = folders.iter().map(|dir| dir.join(name)).find(|path| is_program(path)) {
        return Ok(found);
    }
    // It may be in a folder that bdrun may not look into.
    let is_closed = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    let closed = folders.iter().find(|dir| dir.join(name).metadata().is_err_and(is_closed));
    Err(Ending::NotFound { program: text, closed: closed.map(|dir| dir.display().to_string()) })
}

/// Where programs are looked for: beside `bdrun` itself, then in PATH. A folder of PATH in which bdrun has
/// been installed has many other programs and only its place there: `python3` of a virtual environment, say,
/// goes before the one of /usr/bin.
fn folders(beside: Option<PathBuf>, path: &OsStr) -> Vec<PathBuf> {
    let is_one = |folder: &PathBuf| {
        std::env::split_paths(path)
            .any(|other| other == *folder || other.canonicalize().is_ok_and(|other| other == *folder))
    };
    beside.filter(|folder| !is_one(folder)).into_iter().chain(std::env::split_paths(path)).collect()
}

/// Why the first rank could not be started, as an ending.
pub(super) fn cannot_start(rank: u32, error: &SpawnError) -> Ending {
    match error {
        SpawnError::Exec { program, source } if source.kind() == std::io::ErrorKind::NotFound => {
            // The file is there, so what is missing is its interpreter.
            Ending::NotExecutable(program.display().to_string(), "its interpreter is not found".into())
        }
        SpawnError::Exec { program, source } => {
            Ending::NotExecutable(program.display().to_string(), source.to_string())
        }
        other => Ending::Setup(format!("rank {rank} cannot be started: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_path_and_by_path() {
        assert!(find_program(OsStr::new("sh")).is_ok());
        assert!(find_program(OsStr::new("/bin/sh")).is_ok());
        assert!(matches!(find_program(OsStr::new("no-such-program-anywhere")), Err(Ending::NotFound { .. })));
        assert!(matches!(find_program(OsStr::new("./no-such")), Err(Ending::NotFound { .. })));
        assert!(matches!(find_program(OsStr::new("/etc/passwd")), Err(Ending::NotExecutable(..))));
    }

    #[test]
    fn installed_in_a_folder_of_path_bdrun_keeps_its_order() {
        let dir = std::env::temp_dir().join(format!("bdrun-folders-{}", std::process::id()));
        let (bin, link) = (dir.join("bin"), dir.join("link"));
        std::fs::create_dir_all(&bin).unwrap();
        let bin = bin.canonicalize().unwrap();
        std::os::unix::fs::symlink(&bin, &link).unwrap();
        let other = PathBuf::from("/venv/bin");
        let path = |folders: &[&PathBuf]| std::env::join_paths(folders).unwrap();
        let found = |folders: &[&PathBuf]| super::folders(Some(bin.clone()), &path(folders));
        assert_eq!(found(&[&other]), [bin.clone(), other.clone()]);
        assert_eq!(found(&[&other, &bin]), [other.clone(), bin.clone()]);
        assert_eq!(found(&[&other, &link]), [other.clone(), link.clone()], "by another name");
        assert_eq!(super::folders(None, &path(&[&other])), [other]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
