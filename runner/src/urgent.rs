//! Threads that must not wait for a processor behind those they watch.
//!
//! A rank that is not ours to stop grows by a gigabyte a second. If more threads are ready than there are
//! processors, each look at it, and each order that follows, waits for its turn, some tens of milliseconds,
//! now and then 300: by then it holds far more than the budget. So where it is allowed (root, or
//! `CAP_SYS_NICE`, or a limit for it) the thread that looks and the one that decides are scheduled before
//! others: both sleep most of the time, and what a look may take of a processor is bounded. The threads that
//! move memory have their turn sooner than ranks, but do not shut them out: they compute a checksum of every
//! page that they move.

use std::ffi::c_int;

/// Schedules the calling thread before ordinary ones, if that is allowed, and nobody has said otherwise by a
/// nice value or a policy of their own. What it starts is scheduled as always.
pub fn schedule_first() {
    let first = libc::sched_param { sched_priority: 1 };
    if !is_ordinary() {
        return;
    }
    // SAFETY: a call about this thread (0) that reads a parameter.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &first) } != 0 {
        schedule_sooner();
    }
}

/// The same, but only sooner than ordinary ones.
pub fn schedule_sooner() {
    const NICE: c_int = -10;
    let plain = libc::sched_param { sched_priority: 0 };
    // SAFETY: as above.
    unsafe {
        if is_ordinary()
            && libc::sched_setscheduler(0, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, &plain) == 0
        {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
        }
    }
}

/// Starts a thread that has its turn sooner than ordinary ones from its first moment on: a new one would have
/// to wait, as an ordinary one, to say that it is none. It gets what it is to call first.
pub fn start_sooner<T>(start: impl FnOnce(fn()) -> T) -> T {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: as above.
    let is_first = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: as above.
    let set = |policy| unsafe { libc::sched_setscheduler(0, policy, &first) } == 0;
    if !is_first || !set(libc::SCHED_RR) {
        return start(schedule_sooner);
    }
    let started = start(|| {
        // SAFETY: as above.
        unsafe {
            let plain = libc::sched_param { sched_priority: 0 };
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &plain);
        }
        schedule_sooner();
    });
    set(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK);
    started
}

fn is_ordinary() -> bool {
    // SAFETY: ask about this thread.
    unsafe {
        libc::sched_getscheduler(0) == libc::SCHED_OTHER && libc::getpriority(libc::PRIO_PROCESS, 0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither what it starts, nor a thread that somebody has made nice, is scheduled first.
    #[test]
    fn what_is_started_is_scheduled_as_always() {
        // SAFETY: ask about this thread.
        let how = || unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) };
        let plain = (libc::SCHED_OTHER, 0);
        if how() != plain {
            return; // whoever runs the tests has said otherwise
        }
        let schedules = [schedule_first as fn(), schedule_sooner];
        for schedule in schedules {
            let started = std::thread::spawn(move || {
                schedule();
                std::thread::spawn(how).join().unwrap()
            });
            let nice = std::thread::spawn(move || {
                // SAFETY: makes this thread nice.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 7) };
                schedule();
                how()
            });
            assert_eq!(started.join().unwrap(), plain);
            assert_eq!(nice.join().unwrap(), (libc::SCHED_OTHER, 7));
        }
    }

    /// It is scheduled first until it says how it goes on, and what comes after it as always.
    #[test]
    fn who_is_started_sooner_is_so_from_its_birth() {
        // SAFETY: ask about this thread.
        let how = || unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) };
        let first = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
        let of_all = std::thread::spawn(move || {
            schedule_first();
            let own = how();
            let started = start_sooner(|settle| {
                std::thread::spawn(move || {
                    let born = how();
                    settle();
                    (born, how(), std::thread::spawn(how).join().unwrap())
                })
            });
            let after = std::thread::spawn(how).join().unwrap();
            (own, started.join().unwrap(), how(), after)
        });
        let (own, (born, settled, below), then, after) = of_all.join().unwrap();
        assert_eq!((own, below), (then, after), "nothing stays");
        if own.0 == first {
            let sooner = (libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, -10);
            assert_eq!((born.0, settled, after), (libc::SCHED_RR, sooner, (libc::SCHED_OTHER, 0)));
        }
    }
}
