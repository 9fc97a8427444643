//! The life of MPI in a process, and what is around it (MPI-5.0, chapters 9 and 11).

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::info::Info as Content;

use crate::Mpi;
use crate::asleep;
use crate::calls::Environment;
use crate::comm::World;
use crate::face::Kind;
use crate::failure::{Answer, Failure};
use crate::handle::{Comm, Errhandler, Group, Info, Session};
use crate::link::{Alone, EVERYBODY, Link};
use crate::node::Node;
use crate::text;

/// `MPI_THREAD_SINGLE` to `MPI_THREAD_MULTIPLE`.
pub const LEVELS: [i64; 4] = [0, 1024, 2048, 4096];

/// Where MPI is in its life: it is initialised once and finalised once, however many sessions there are.
#[derive(Debug)]
pub struct Life {
    stage: AtomicU8,
    level: AtomicI64,
    /// Threads may be in calls at the same time, by that level or that of a session.
    several: AtomicBool,
    /// The thread that initialised it, as C's library knows it.
    main: AtomicU64,
    /// By who begins or ends: a session may be another thread's (MPI-5.0, section 11.3.1).
    changes: Mutex<()>,
}

const BEFORE: u8 = 0;
const BEGUN: u8 = 1;
const AFTER: u8 = 2;

impl Life {
    /// Not initialised.
    pub const fn new() -> Self {
        let (stage, level) = (AtomicU8::new(BEFORE), AtomicI64::new(LEVELS[0]));
        let (several, main) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { stage, level, several, main, changes: Mutex::new(()) }
    }

    /// From now on threads may be in calls at the same time.
    pub(crate) fn set_for_several(&self) {
        self.several.store(true, SeqCst);
    }

    /// Whether they may.
    pub(crate) fn is_for_several(&self) -> bool {
        self.several.load(SeqCst)
    }

    /// No other thread begins or ends meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A failure with its reason.
fn because(class: Class, text: &str) -> Failure {
    Failure { text: Some(text.into()), ..class.into() }
}

fn thread() -> u64 {
    // SAFETY: no preconditions. No system call: every wait asks.
    unsafe { libc::pthread_self() }
}

fn clock(read: impl FnOnce(&mut libc::timespec) -> c_int) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    read(&mut time);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Mpi {
    /// There is something that carries bytes.
    pub(crate) fn begin(&self) -> Answer<()> {
        self.begin_with(Node::connect)
    }

    fn begin_with(&self, connect: impl FnOnce() -> Answer<Option<Node>>) -> Answer<()> {
        if self.link.get().is_some() {
            return Ok(());
        }
        // A process joins a job once: a second thread that tried would be refused, and take from the first
        // what it has joined with.
        let _one = self.life.lock();
        if self.link.get().is_none() {
            let link: Arc<dyn Link> = match connect()? {
                Some(node) => self.node.get_or_init(|| Arc::new(node)).clone(),
                None => Arc::new(Alone::default()),
            };
            let _ = self.link.set(link);
            // Where only sessions are this is the thread that waits.
            let _ = self.life.main.compare_exchange(0, thread(), SeqCst, SeqCst);
            // Asked for the first time, C's library has to look where it says that.
            asleep::is_alone();
        }
        Ok(())
    }

    fn initialize(&self, level: i64) -> Answer<i64> {
        if !LEVELS.contains(&level) {
            return Err(Class::Arg.into());
        }
        let begun = self.life.stage.compare_exchange(BEFORE, BEGUN, SeqCst, SeqCst);
        begun.map_err(|stage| match stage {
            BEGUN => because(Class::Other, "MPI is initialized already"),
            _ => because(Class::Other, "MPI was finalized, and cannot be initialized again"),
        })?;
        self.begin()?;
        let link = self.link()?;
        let world = Arc::new(World::new(&**link));
        link.set_name(EVERYBODY, "MPI_COMM_WORLD");
        {
            let _one = self.life.lock();
            let _ = self.world.set(world);
            link.set_begun(true);
        }
        self.life.level.store(level, SeqCst);
        if level == LEVELS[3] {
            self.life.set_for_several();
        }
        self.life.main.store(thread(), SeqCst);
        Ok(level)
    }

    /// Whether MPI was finalised.
    pub(crate) fn is_over(&self) -> bool {
        self.life.stage.load(SeqCst) == AFTER
    }

    /// Whether this is the thread that initialised MPI.
    pub(crate) fn is_main_thread(&self) -> bool {
        self.life.main.load(SeqCst) == thread()
    }

    /// That of memory which a program allocates with these hints (MPI-5.0, section 9.2).
    fn alignment(&self, info: Info) -> Answer<usize> {
        let content = self.content_of(info)?;
        let asked = content.get(b"mpi_minimum_memory_alignment", self.limits())?;
        let asked = asked.and_then(|asked| str::from_utf8(asked).ok()?.trim().parse::<usize>().ok());
        Ok(asked.filter(|asked| asked.is_power_of_two()).unwrap_or(0).max(64))
    }

    fn running(&self) -> Answer<()> {
        self.world().map(drop)
    }
}

impl Environment for Mpi {
    unsafe fn abort(&self, comm: Comm, errorcode: i64) -> Answer<()> {
        let on = match comm {
            Comm::WORLD => "MPI_COMM_WORLD".to_owned(),
            _ => self
                .comm(comm)
                .map(|comm| comm.with(|state| String::from_utf8_lossy(&state.name).into_owned()))
                .unwrap_or_default(),
        };
        // What a shell sees of it; never success.
        let exit = i32::try_from(errorcode & 0xff).ok().filter(|&exit| exit != 0).unwrap_or(1);
        self.die(&format!("MPI_Abort({on}, {errorcode})"), exit)
    }

    unsafe fn alloc_mem(&self, size: i64, info: Info, at: *mut c_void) -> Answer<()> {
        let size = usize::try_from(size).map_err(|_| Class::Arg)?;
        let align = self.alignment(info)?;
        if at.is_null() {
            return Err(Class::Arg.into());
        }
        let mut block = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        if unsafe { libc::posix_memalign(&raw mut block, align, size.max(1)) } != 0 {
            return Err(Class::NoMemory.into());
        }
        // SAFETY: the caller's: there is room for a pointer.
        unsafe { at.cast::<*mut c_void>().write(block) };
        Ok(())
    }

    unsafe fn free_mem(&self, base: *mut c_void) -> Answer<()> {
        // SAFETY: the caller's: of `alloc_mem`, or null.
        unsafe { libc::free(base) };
        Ok(())
    }

    unsafe fn finalize(&self) -> Answer<()> {
        let world = self.world()?;
        for (comm, handle) in [(&world.own, Comm::SELF), (&world.all, Comm::WORLD)] {
            // SAFETY: the caller's: the functions of attributes are such.
            unsafe { self.comm_keys.delete_all(&comm.attributes, self.whose(Kind::Comm, handle)) }?;
        }
        self.leave_critical_if_in()?;
        self.check(world)?;
        let _one = self.life.lock();
        self.life.stage.store(AFTER, SeqCst);
        // A session may go on.
        if self.goes_on().is_err() {
            self.link()?.set_begun(false);
        }
        Ok(())
    }

    unsafe fn finalized(&self) -> Answer<bool> {
        Ok(self.is_over())
    }

    unsafe fn get_hw_resource_info(&self) -> Answer<Info> {
        Ok(self.new_info(Content::default()))
    }

    unsafe fn get_library_version(&self, version: *mut c_char) -> Answer<i64> {
        if version.is_null() {
            return Err(Class::Arg.into());
        }
        let said = format!("bdrun {}, ABI of {}", env!("CARGO_PKG_VERSION"), self.face().name);
        // SAFETY: the caller's: there is room for the longest.
        Ok(unsafe { text::write(version, self.face().limits.library_version, said.as_bytes()) } as i64)
    }

    unsafe fn get_processor_name(&self, name: *mut c_char) -> Answer<i64> {
        if name.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: there is room for the longest.
        Ok(unsafe { text::write(name, self.face().limits.processor_name, text::host().as_bytes()) } as i64)
    }

    unsafe fn get_version(&self) -> Answer<(i64, i64)> {
        Ok(self.face().version)
    }

    unsafe fn group_from_session_pset(&self, session: Session, name: *const c_char) -> Answer<Group> {
        // SAFETY: the caller's.
        unsafe { self.set_group(session, name) }
    }

    unsafe fn init(&self, _: *mut c_int, _: *mut c_void) -> Answer<()> {
        self.initialize(LEVELS[0]).map(drop)
    }

    unsafe fn init_thread(&self, _: *mut c_int, _: *mut c_void, required: i64) -> Answer<i64> {
        self.initialize(required)
    }

    unsafe fn initialized(&self) -> Answer<bool> {
        Ok(self.life.stage.load(SeqCst) != BEFORE)
    }

    unsafe fn is_thread_main(&self) -> Answer<bool> {
        self.running()?;
        Ok(self.is_main_thread())
    }

    unsafe fn pcontrol(&self, _: i64) -> Answer<()> {
        Ok(())
    }

    unsafe fn query_thread(&self) -> Answer<i64> {
        self.running()?;
        Ok(self.life.level.load(SeqCst))
    }

    unsafe fn session_finalize(&self, session: Session) -> Answer<Session> {
        self.end_session(session)
    }

    unsafe fn session_get_info(&self, session: Session) -> Answer<Info> {
        self.session_info(session)
    }

    unsafe fn session_get_nth_pset(
        &self,
        session: Session,
        _: Info,
        n: i64,
        room: i64,
        name: *mut c_char,
    ) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { self.nth_set(session, n, room, name) }
    }

    unsafe fn session_get_num_psets(&self, session: Session, _: Info) -> Answer<i64> {
        self.count_sets(session)
    }

    unsafe fn session_get_pset_info(&self, session: Session, name: *const c_char) -> Answer<Info> {
        // SAFETY: the caller's.
        unsafe { self.set_info(session, name) }
    }

    unsafe fn session_init(&self, info: Info, errhandler: Errhandler) -> Answer<Session> {
        self.new_session(info, errhandler)
    }

    unsafe fn wtick(&self) -> Answer<f64> {
        // SAFETY: the pointer is to a local.
        Ok(clock(|time| unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, time) }).as_secs_f64())
    }

    unsafe fn wtime(&self) -> Answer<f64> {
        // SAFETY: the pointer is to a local.
        Ok(clock(|time| unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time) }).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// A process joins its job once, though sessions begin in several threads at the same time.
    #[test]
    fn threads_that_begin_at_once_connect_once() {
        for _ in 0..10 {
            let (mpi, barrier, times) = (Mpi::new(), Barrier::new(4), AtomicU32::new(0));
            let connect = || {
                times.fetch_add(1, SeqCst);
                std::thread::sleep(Duration::from_millis(5));
                Ok(None)
            };
            let begin = || {
                barrier.wait();
                mpi.begin_with(connect)
            };
            let all: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
                threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
            });
            assert_eq!((all, times.into_inner()), (vec![Ok(()); 4], 1));
            assert!(mpi.link.get().is_some());
        }
    }
}
