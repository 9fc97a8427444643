//! What a rank does with its account and with what the pager refuses, without a master.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bdrun_ipc::inbox;
use bdrun_ipc::segment::EvictFailure;
use bdrun_ipc::state::Pager;
use sbmalloc::SbVec;

use super::*;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;

/// What `bdrun` would hand to the first of `np` ranks.
pub(crate) fn handed(np: u32) -> Handed {
    let segment = Segment::create(np, BUDGET, MIB, 1).expect("a segment");
    let scratch = tempfile();
    let (control, _) = UnixStream::pair().expect("a socket");
    Handed { segment, mail: Mail::create(scratch).expect("mail"), control: control.into(), rank: 0 }
}

fn tempfile() -> OwnedFd {
    // SAFETY: makes a descriptor, which nobody else has.
    unsafe {
        let fd = libc::memfd_create(c"spill".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// The first rank of a job, in the calling thread; its account is not that of this process.
pub(crate) fn runtime() -> &'static Runtime {
    runtime_of(handed(2))
}

fn runtime_of(handed: Handed) -> &'static Runtime {
    runtime_that(handed, true)
}

/// Of bdrun's own runtime, or of a program that knows nothing of it.
fn runtime_that(Handed { segment, mail, control, rank }: Handed, native: bool) -> &'static Runtime {
    let this = Runtime {
        segment,
        mail,
        rank,
        control,
        owner: AtomicI32::new(thread()),
        native,
        is_front: AtomicBool::new(false),
        // SAFETY: getpid has no preconditions.
        process: unsafe { libc::getpid() },
        attached: AtomicBool::new(true),
        out: AtomicBool::new(false),
        probes: AtomicBool::new(false),
        vouched: AtomicU64::new(0),
        meter: Meter::new(),
        alive: Alive::new(false),
        phase_changes: AtomicU64::new(0),
        asks: AtomicI32::new(0),
        failed: AtomicU32::new(0),
    };
    assert!(this.block().word.birth());
    Box::leak(Box::new(this))
}

/// The pager moves the memory of the whole process, and a fork brings it in: one test at a time.
pub(crate) fn pager_alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that the pager cannot stop, until dropped: it sleeps with all signals blocked.
struct Unstoppable(Option<Sender<()>>, Option<JoinHandle<()>>);

impl Unstoppable {
    fn begin() -> Self {
        let (end, ends) = channel::<()>();
        let (say, said) = channel();
        let sleeps = move |ends: Receiver<()>| {
            // SAFETY: zeros are a valid set, which is filled; only this thread's mask is set.
            unsafe {
                let mut all: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
            }
            say.send(()).expect("the test waits");
            let _ = ends.recv();
        };
        let thread = std::thread::spawn(move || sleeps(ends));
        said.recv().expect("it has begun");
        Self(Some(end), Some(thread))
    }
}

impl Drop for Unstoppable {
    fn drop(&mut self) {
        drop(self.0.take());
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// This process can open no file, until dropped.
struct NoFiles(libc::rlimit);

impl NoFiles {
    fn begin() -> Self {
        // SAFETY: both read or write a local, for which zeros are valid.
        unsafe {
            let mut before: libc::rlimit = std::mem::zeroed();
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before), 0);
            let none = libc::rlimit { rlim_cur: 0, ..before };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none), 0);
            Self(before)
        }
    }
}

impl Drop for NoFiles {
    fn drop(&mut self) {
        // SAFETY: reads one structure.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.0) };
    }
}

fn executor<'a>(runtime: &'a Runtime, until: &'a TimedFutex, place: &'a Place<'a>) -> RankPager<'a> {
    RankPager { runtime, until, for_memory: true, place, paging_ns: 0, moved: false }
}

/// How often it is tried to move memory; each time for up to three seconds.
const TRIES: u32 = 20;

/// Some memory of this process, out.
fn out() -> SbVec<u64> {
    let memory: SbVec<u64> = (0..MIB).collect();
    // Refused as long as a thread of another test gets no processor to stop on.
    for _ in 1..TRIES {
        // SAFETY: only threads write to it.
        match unsafe { pager::evict() } {
            Err(error) if error.is_passing() => std::thread::sleep(Duration::from_millis(20)),
            left => return left.map(|_| memory).expect("it can leave"),
        }
    }
    panic!("it cannot leave");
}

fn free(runtime: &Runtime) -> u64 {
    u64::try_from(runtime.segment.header().pool.free()).expect("no overdraft")
}

#[test]
fn what_an_evict_gave_back_meanwhile_is_not_set_aside_again() {
    let runtime = runtime();
    let block = runtime.block();
    // The evict comes while the pool is asked, which then has nothing, or has all that is asked for.
    for is_there in [false, true] {
        block.prepaid.store(30, SeqCst);
        block.granted.store(30, SeqCst);
        let taken = Cell::new(0);
        let take = |bytes| {
            if block.prepaid.swap(0, SeqCst) > 0 {
                block.granted.store(0, SeqCst);
            }
            taken.set(taken.get() + if is_there { bytes } else { 0 });
            is_there
        };
        let paid = memory::pay(block, 100, true, take, |bytes| taken.set(taken.get() - bytes));
        assert_eq!(paid, is_there);
        assert_eq!(block.prepaid.load(SeqCst), 0, "nothing was left of it");
        assert_eq!(block.granted.load(SeqCst), taken.get());
        assert_eq!(taken.get(), if is_there { 100 } else { 0 });
    }
}

#[test]
fn what_was_set_aside_pays_first() {
    let runtime = runtime();
    let block = runtime.block();
    block.prepaid.store(50, SeqCst);
    block.granted.store(70, SeqCst);
    let pays = |bytes, from_pool| memory::pay(block, bytes, true, |rest| rest == from_pool, |_| ());
    let now = || (block.prepaid.load(SeqCst), block.granted.load(SeqCst));
    assert!(pays(20, 0));
    assert_eq!(now(), (30, 70));
    assert!(!pays(40, 0));
    assert_eq!(now(), (30, 70), "what is not enough stays");
    assert!(!memory::pay(block, 20, false, |rest| rest == 0, |_| ()), "it is not this thread's");
    assert_eq!(now(), (30, 70));
    assert!(pays(40, 10));
    assert_eq!(now(), (0, 80));
}

#[test]
fn an_evict_that_is_refused_keeps_nothing_that_was_set_aside() {
    let _alone = pager_alone();
    let (runtime, until) = (runtime(), TimedFutex::until(None));
    let everything = Place::known(pager::EVERYTHING);
    let block = runtime.block();
    assert!(runtime.segment.header().pool.take(3 * MIB));
    block.granted.store(3 * MIB, SeqCst);
    block.prepaid.store(2 * MIB, SeqCst);
    let other = Unstoppable::begin();
    executor(runtime, &until, &everything).evict();
    drop(other);
    assert_eq!(block.evict_failure.load(SeqCst), EvictFailure::Refused as u32);
    assert_eq!((block.prepaid.load(SeqCst), block.granted.load(SeqCst)), (0, MIB));
    assert_eq!(free(runtime), BUDGET - MIB);
}

#[test]
fn a_rank_that_cannot_be_stopped_runs_only_with_all_it_needs() {
    let _alone = pager_alone();
    let (runtime, until) = (runtime(), TimedFutex::until(None));
    let everything = Place::known(pager::EVERYTHING);
    let block = runtime.block();
    let memory = out();
    block.all.store(8 * MIB, SeqCst);
    for (granted, runs) in [(MIB, false), (8 * MIB, true)] {
        block.granted.store(granted, SeqCst);
        let other = Unstoppable::begin();
        assert_eq!(executor(runtime, &until, &everything).restore(), runs, "{granted} bytes");
        drop(other);
        assert!(pager::is_evicted(), "nothing could be brought in");
    }
    drop(memory);
}

/// It did not: it ran on with what it had, in each look was seen to use much once more, and held all in the
/// end that had not been given to it.
#[test]
fn a_rank_that_was_seen_to_use_much_comes_in_whole_even_if_it_had_not_left() {
    let _alone = pager_alone();
    // A rank also runs if it could not be brought in because a thread does not stop, as in `out`.
    assert!((0..TRIES).any(|_| comes_in_whole()));
}

fn comes_in_whole() -> bool {
    let (runtime, until) = (runtime(), TimedFutex::until(None));
    let memory = out();
    let block = runtime.block();
    block.all.store(8 * MIB, SeqCst);
    // What other tests hold comes in with it.
    block.granted.store(BUDGET, SeqCst);
    runtime.probes.store(true, SeqCst);
    assert!(executor(runtime, &until, &Place::known(pager::SAME_PHASE)).restore());
    assert!(pager::is_evicted(), "it probes");
    assert!(executor(runtime, &until, &Place::known(pager::EVERYTHING)).restore());
    let came = !pager::is_evicted();
    drop(memory);
    came
}

#[test]
fn a_look_without_a_descriptor_is_made_later() {
    // In a process of its own: other tests need descriptors, and one that is lost ends its process.
    const ALONE: &str = "BDRUN_WORKER_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let me = std::env::current_exe().expect("this program");
        let name = "runtime::tests::a_look_without_a_descriptor_is_made_later";
        let out = Command::new(me).args([name, "--exact"]).env(ALONE, "1").output().expect("run");
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.contains("1 passed"), "{}: {said}", out.status);
        return;
    }
    let runtime = runtime();
    let memory = out();
    let first = memory[0]; // comes in
    runtime.meter.start();
    let none = NoFiles::begin();
    assert!(pager::touched().is_err_and(|error| error.is_passing()));
    runtime.look(); // or it ends this process
    runtime.vouch_for(&[bytemuck::bytes_of(&first)]);
    drop(none);
    assert!(runtime.meter.is_armed());
    let faults = page_faults();
    assert_ne!(runtime.vouched.load(SeqCst), faults, "what came in is still to be verified");
    runtime.vouch_for(&[bytemuck::bytes_of(&first)]);
    assert!(runtime.vouched.load(SeqCst) >= faults);
    runtime.meter.stop();
}

/// Another thread may free, or the rank may have left, between the two.
#[test]
fn what_was_given_back_meanwhile_is_paid_for_once_more() {
    let runtime = runtime();
    let block = runtime.block();
    assert!(runtime.segment.header().pool.take(30));
    block.granted.store(30, SeqCst);
    runtime.hand_over(100);
    assert_eq!((block.granted.load(SeqCst), free(runtime)), (0, BUDGET - 100));
    // Nor is more given back than there is.
    block.prepaid.store(50, SeqCst);
    block.granted.store(20, SeqCst);
    runtime.give_reserve_back();
    assert_eq!((block.granted.load(SeqCst), free(runtime)), (0, BUDGET - 80));
    assert_eq!(block.prepaid.load(SeqCst), 0);
}

/// Threads say where they are each for itself: an earlier number may come last.
#[test]
fn a_place_from_which_another_thread_has_gone_on_is_passed() {
    assert_eq!(
        [(6, 6), (6, 8), (6, 5), (0, u64::MAX)].map(|(then, now)| changes_since(then, now)),
        [0, 2, u64::MAX, u64::MAX]
    );
    let _alone = pager_alone();
    let runtime = runtime();
    runtime.phase_changes.store(6, SeqCst);
    site::set(1, 5);
    runtime.end_phase_if(|changes| changes > 1);
}

/// The master is told, so that the job ends with the code of that, and the rank is.
#[test]
fn a_message_that_cannot_be_read_from_scratch_is_a_failure_of_scratch() {
    // No room in RAM: it lies on scratch, which can be written and not be read.
    let segment = Segment::create(2, BUDGET, 0, 1).expect("a segment");
    let spill = tempfile();
    let path = format!("/proc/self/fd/{}", spill.as_raw_fd());
    let write_only = File::options().write(true).open(path).expect("opened once more");
    let (control, master) = UnixStream::pair().expect("a socket");
    let mail = Mail::create(write_only.into()).expect("mail");
    let runtime = runtime_of(Handed { segment, mail, control: control.into(), rank: 0 });
    let (segment, mail) = (&runtime.segment, &runtime.mail);
    let _ = inbox::push(segment, mail, 0, 7, 1, (0, 0), &[&[5; 1000]]).expect("written");
    let mut arrived = vec![];
    inbox::drain(segment, 0, &mut arrived).expect("there");
    let error = inbox::take(segment, mail, arrived.remove(0), &mut [0; 1000]).expect_err("not readable");
    let said = runtime.failed(error).to_string();
    assert!(said.contains("cannot read a message from scratch in /"), "{said}");
    match control::recv_frame(master.as_fd()).expect("a frame") {
        Some(Frame::Failed { kind: FailureKind::Scratch, bytes: 0, text }) => {
            assert!(said.ends_with(&text) && text.contains("Bad file descriptor"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

/// It has a token then, which the one that waited did not give.
#[test]
fn a_rank_that_is_one_of_another_library_since_a_wait_began_has_one_token() {
    let mut handed = handed(2);
    handed.segment = Segment::create(2, BUDGET, MIB, 2).expect("a segment");
    let runtime = runtime_that(handed, false);
    let waiting = Waiting::Memory { bytes: MIB };
    runtime.wait_at(None, waiting, &Place::known(pager::EVERYTHING), || {
        runtime.become_front();
        true
    });
    let holders = || runtime.segment.header().tokens.holders().count();
    assert_eq!(holders(), 1);
    runtime.wait_at(None, waiting, &Place::known(pager::EVERYTHING), || {
        assert_eq!(holders(), 0);
        true
    });
    assert_eq!(holders(), 1);
}

/// A rank that sees nothing, in a process of its own: it ends as one whose memory is lost, once orders
/// without end would bring nothing in; not at the first of them.
#[test]
fn a_rank_that_stays_blind_is_lost() {
    const ALONE: &str = "BDRUN_TEST_STAYS_BLIND";
    let Some(before) = std::env::var_os(ALONE) else {
        let me = std::env::current_exe().expect("this program");
        let name = "runtime::tests::a_rank_that_stays_blind_is_lost";
        for (before, code) in [("0", 0), ("59", 0), ("60", 122)] {
            let out = Command::new(&me).args([name, "--exact"]).env(ALONE, before).output().expect("run");
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(code), "after {before}: {said}");
        }
        return;
    };
    let (runtime, until) = (runtime(), TimedFutex::until(None));
    let memory = out();
    let block = runtime.block();
    block.all.store(8 * MIB, SeqCst);
    block.granted.store(MIB, SeqCst);
    runtime.failed.store(before.to_str().and_then(|text| text.parse().ok()).expect("a number"), SeqCst);
    let none = NoFiles::begin();
    assert!(!executor(runtime, &until, &Place::known(pager::EVERYTHING)).restore());
    drop(none);
    drop(memory);
}
