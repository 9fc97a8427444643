//! Several processes as threads of one, each with its own MPI.

mod arguments;
mod collectives;
mod communicators;
mod failures;
mod files;
mod hints;
mod inter;
mod messages;
mod partitioned;
mod places;
mod sends;
mod threads;
mod tools;
mod topologies;
mod windows;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bdrun_ipc::far::Change;
use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Process;

use crate::Mpi;
use crate::communicators::no_place;
use crate::failure::Answer;
use crate::link::{
    Awaited, Combines, Come, Coming, Head, Limits, Link, Meeting, Needed, Parcel, Place, Whom,
};

/// What was deposited for one meeting.
#[derive(Debug, Default)]
struct Table {
    names: Vec<&'static str>,
    parts: HashMap<Process, Arc<Vec<u8>>>,
    whom: HashMap<usize, Whom>,
}

impl Table {
    /// Who is awaited knows that, and nobody thinks he is who is not.
    fn check(&self, members: usize) {
        for (&one, whom) in &self.whom {
            for (&other, theirs) in self.whom.iter().filter(|(other, _)| **other != one) {
                let awaits = whom.awaits != Needed::All && whom.awaits.of(members).any(|n| n == other);
                let knows = theirs.awaited_by.of(members).any(|n| n == one);
                assert_eq!(awaits, knows, "{:?}: {one} {whom:?}, {other} {theirs:?}", self.names);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    inboxes: HashMap<Process, Vec<(Head, Vec<u8>)>>,
    /// Who meets where.
    places: HashMap<u32, Vec<Process>>,
    /// Members that have not closed a place yet, of those that can be closed.
    open: HashMap<u32, usize>,
    tables: HashMap<(u32, u64), Table>,
    /// What they share there.
    words: HashMap<u32, AtomicI64>,
    /// Who is in the midst of MPI, as people see it from outside.
    begun: HashMap<Process, bool>,
}

/// What carries bytes between threads.
#[derive(Debug)]
struct Job {
    processes: u32,
    nodes: u32,
    shared: Mutex<Shared>,
    changed: Condvar,
    /// One of the processes has failed: the others need not wait for it.
    failed: AtomicBool,
    /// How often a thread was told that another one has found something.
    nudges: AtomicU32,
}

/// So many communicators there may be at a time.
const MOST_PLACES: u32 = 500;

/// Tells the others if its thread panics.
struct Watched(Arc<Job>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.failed.fetch_or(std::thread::panicking(), SeqCst);
    }
}

impl Job {
    fn new(nodes: u32, processes: u32) -> Arc<Self> {
        let (shared, changed, failed) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let nudges = AtomicU32::new(0);
        Arc::new(Self { processes, nodes, shared, changed, failed, nudges })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Shared) -> T) -> T {
        let done = act(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        done
    }

    fn wait(&self, limits: Limits<'_>) {
        assert!(!self.failed.load(SeqCst), "another process has failed");
        if (limits.unless)() {
            return;
        }
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.changed.wait_timeout(shared, Duration::from_millis(1));
    }
}

#[derive(Debug)]
struct Thread {
    process: Process,
    job: Arc<Job>,
}

/// The parts of a meeting, as far as they are there, for one of its members.
#[derive(Debug)]
struct Met {
    job: Arc<Job>,
    at: (u32, u64),
    members: Vec<Process>,
    awaits: Needed,
    parts: Vec<OnceLock<Arc<Vec<u8>>>>,
    /// Of every other collective somebody combines the parts for all.
    combines: Option<Arc<dyn Combines>>,
    combined: OnceLock<Vec<u8>>,
}

impl Meeting for Met {
    fn is_complete(&self) -> Answer<bool> {
        self.job.with(|shared| {
            let table = &shared.tables[&self.at];
            if table.names.iter().any(|&name| name != table.names[0]) {
                return Err(Class::Other.into());
            }
            let mut all = true;
            for member in self.awaits.of(self.members.len()) {
                match table.parts.get(&self.members[member]) {
                    Some(part) => _ = self.parts[member].set(part.clone()),
                    None => all = false,
                }
            }
            Ok(all)
        })
    }

    fn part(&self, member: usize) -> &dyn Parcel {
        &**self.parts[member].get().expect("it has come")
    }

    fn combined(&self) -> Option<&dyn Parcel> {
        let combines = self.combines.as_ref()?;
        let combined = || combines.combine(&|member| self.part(member)).expect("all parts are there");
        Some(self.combined.get_or_init(combined))
    }

    fn wait(&self, limits: Limits<'_>) {
        self.job.wait(limits);
    }
}

impl Link for Thread {
    fn process(&self) -> Process {
        self.process
    }

    fn processes(&self) -> u32 {
        self.job.processes
    }

    fn send(&self, to: Process, head: Head, data: &[&[u8]]) -> Answer<()> {
        self.job.with(|shared| shared.inboxes.entry(to).or_default().push((head, data.concat())));
        Ok(())
    }

    fn receive(&self, take: &mut dyn FnMut(Head, Come<'_>)) -> Answer<()> {
        let come = self.job.with(|shared| shared.inboxes.remove(&self.process).unwrap_or_default());
        // Either way that bytes come in.
        for (head, data) in come {
            if data.len() % 2 == 0 {
                take(head, Come::Passing(&data))
            } else {
                take(head, Come::Whole(Box::new(data)))
            }
        }
        Ok(())
    }

    fn wait(&self, _: Awaited, limits: Limits<'_>) {
        self.job.wait(limits);
    }

    fn nudge(&self) {
        self.job.nudges.fetch_add(1, SeqCst);
        self.job.changed.notify_all();
    }

    fn wake(&self, _: Process) {
        self.job.changed.notify_all();
    }

    fn has_left(&self, process: Process) -> Option<bool> {
        Some(self.job.with(|shared| shared.begun.get(&process) == Some(&false)))
    }

    fn open(&self, members: &[Process]) -> Answer<Place> {
        self.job.with(|shared| {
            // The first ones are everybody's and each one's own.
            let number = shared.places.len() as u32 + 1;
            if shared.open.len() as u32 >= MOST_PLACES {
                return Err(no_place("of a test"));
            }
            shared.places.insert(number, members.to_vec());
            shared.open.insert(number, members.len());
            Ok(Place { number, context: 4 * number })
        })
    }

    fn close(&self, place: Place) {
        self.job.with(|shared| {
            let left = shared.open.get_mut(&place.number).expect("it is open");
            *left -= 1;
            if *left == 0 {
                shared.open.remove(&place.number);
            }
        });
    }

    fn set_begun(&self, begun: bool) {
        self.job.with(|shared| shared.begun.insert(self.process, begun));
    }

    fn node_of(&self, process: Process) -> u32 {
        process % self.job.nodes
    }

    fn word(&self, place: Place, change: Change) -> Answer<i64> {
        self.job.with(|shared| Ok(change.apply(shared.words.entry(place.number).or_default())))
    }

    fn meet(&self, place: Place, coming: &Coming<'_>) -> Answer<Box<dyn Meeting>> {
        // That of each by itself has one member.
        let own = place == crate::link::ONESELF;
        let at = (if own { 1000 + self.process } else { place.number }, coming.number);
        let members = self.job.with(|shared| {
            let table = shared.tables.entry(at).or_default();
            table.names.push(coming.name);
            table.parts.insert(self.process, Arc::new(coming.part.concat()));
            let members = if own { vec![self.process] } else { shared.places[&place.number].clone() };
            assert_eq!(members[coming.seat], self.process);
            table.whom.insert(coming.seat, coming.whom.clone());
            table.check(members.len());
            members
        });
        let (parts, awaits) = (vec![OnceLock::new(); members.len()], coming.whom.awaits.clone());
        let combines = coming.combines.filter(|_| (coming.number / 2).is_multiple_of(2)).map(Combines::kept);
        let (job, combined) = (self.job.clone(), OnceLock::new());
        Ok(Box::new(Met { job, at, members, awaits, parts, combines, combined }))
    }
}

thread_local! {
    /// That of the process which this thread is.
    static JOB: RefCell<Option<Arc<Job>>> = const { RefCell::new(None) };
}

/// The job of which this thread is a process.
fn job() -> Arc<Job> {
    JOB.with_borrow(|job| job.clone().expect("it is one of a job"))
}

/// How many places are open that were made, of all processes.
fn places() -> usize {
    job().with(|shared| shared.open.len())
}

/// Runs the same in so many processes, which have initialised MPI.
fn run(processes: u32, body: impl Fn(&Mpi, u32) + Sync) {
    run_on(1, processes, body);
}

/// The same where they are on so many nodes.
fn run_on(nodes: u32, processes: u32, body: impl Fn(&Mpi, u32) + Sync) {
    let job = Job::new(nodes, processes);
    job.with(|shared| _ = shared.places.insert(0, (0..processes).collect()));
    std::thread::scope(|scope| {
        for process in 0..processes {
            let (job, body) = (job.clone(), &body);
            scope.spawn(move || {
                use crate::calls::Environment;
                let _watched = Watched(job.clone());
                JOB.set(Some(job.clone()));
                let mpi = Mpi::new();
                mpi.link.set(Arc::new(Thread { process, job })).expect("it is new");
                // SAFETY: nothing is given.
                unsafe { mpi.init(std::ptr::null_mut(), std::ptr::null_mut()) }.expect("it begins");
                body(&mpi, process);
                // SAFETY: as above.
                unsafe { mpi.finalize() }.expect("it ends");
            });
        }
    });
}

/// What a call has completed without a failure.
trait Well<T> {
    /// What it gives; a failure, also one of what it has completed.
    fn well(self) -> Answer<T>;
}

impl<T> Well<T> for Answer<crate::failure::Told<T>> {
    fn well(self) -> Answer<T> {
        self.and_then(|told| told.failure.map_or(Ok(told.given), Err))
    }
}

/// One request, as the calls take it.
fn one(of: &mut crate::handle::Request) -> crate::args::Handles<crate::handle::Request> {
    unsafe fn read(at: *mut std::ffi::c_void, _: usize) -> Answer<u64> {
        // SAFETY: the caller's.
        Ok(unsafe { at.cast::<u64>().read() })
    }
    unsafe fn write(at: *mut std::ffi::c_void, _: usize, value: u64) {
        // SAFETY: the caller's.
        unsafe { at.cast::<u64>().write(value) }
    }
    crate::args::Handles::new(std::ptr::from_mut(of).cast(), read, write)
}

/// `MPI_Wait`: also what the handle is then.
unsafe fn wait(
    mpi: &Mpi,
    mut request: crate::handle::Request,
) -> Answer<(crate::handle::Request, crate::args::Status)> {
    // SAFETY: the caller's.
    let told = unsafe { crate::calls::Requests::wait(mpi, one(&mut request)) }?;
    told.failure.map_or(Ok((request, told.given)), Err)
}

/// `MPI_Test`: the same.
unsafe fn test(
    mpi: &Mpi,
    mut request: crate::handle::Request,
) -> Answer<(crate::handle::Request, bool, crate::args::Status)> {
    // SAFETY: the caller's.
    let told = unsafe { crate::calls::Requests::test(mpi, one(&mut request)) }?;
    let (flag, status) = told.given;
    told.failure.map_or(Ok((request, flag, status)), Err)
}
