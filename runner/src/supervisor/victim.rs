//! Where memory runs out a rank goes, never the master, which can say so: the `oom_score_adj` of ranks is
//! above its own. To raise it needs no privilege.
//!
//! The master does that once the rank has execed. The rank itself cannot before: it has the master's memory
//! until then, the kernel kills all who have the memory of its victim, and a child in `exec` is no longer
//! spared as one in `vfork` while it still has it.

use std::fs::File;
use std::io::{Read, Seek, Write};

/// By so much, of 1000, ranks come before the master when the kernel looks for whom to kill.
const BEFORE_MASTER: i32 = 200;
const MOST: i32 = 1000;

/// Makes the kernel prefer this child to us. Without `/proc`, and for programs that have other rights than
/// we, all stays as it is.
pub(super) fn prefer(pid: libc::pid_t) {
    let open = |path: String| File::options().read(true).write(true).open(path).ok();
    let (Some(mut own), Some(mut its)) =
        (open("/proc/self/oom_score_adj".into()), open(format!("/proc/{pid}/oom_score_adj")))
    else {
        return;
    };
    let Some(before) = score(&mut own) else { return };
    let raised = (before + BEFORE_MASTER).min(MOST);
    // We hear of it in the middle of its exec, when it may still have our memory for a moment.
    while has_our_memory(pid) {
        std::thread::yield_now();
    }
    // Where that cannot be asked: the kernel raises all who have the same memory, so we see it, and take it
    // back at once.
    while set(&mut its, raised)
        && raised != before
        && score(&mut own) == Some(raised)
        && set(&mut own, before)
    {
        std::thread::yield_now();
    }
}

/// As far as that is told: not everybody may ask.
fn has_our_memory(pid: libc::pid_t) -> bool {
    const VM: libc::c_int = 1;
    // SAFETY: compares two processes.
    unsafe { libc::syscall(libc::SYS_kcmp, libc::getpid(), pid, VM, 0_usize, 0_usize) == 0 }
}

fn score(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn set(file: &mut File, score: i32) -> bool {
    file.rewind().and_then(|()| file.write_all(score.to_string().as_bytes())).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score_of(pid: libc::pid_t) -> i32 {
        score(&mut File::open(format!("/proc/{pid}/oom_score_adj")).unwrap()).unwrap()
    }

    /// As a child in `exec` is for a moment: with our memory, and not in `vfork`. Nothing is right until it
    /// has memory of its own.
    #[test]
    fn who_still_has_our_memory_does_not_take_us_along() {
        extern "C" fn waits(word: *mut libc::c_void) -> libc::c_int {
            let word = word.cast::<u32>();
            // SAFETY: only system calls, on a stack of its own; the word outlives it.
            unsafe {
                while word.read_volatile() == 0 {
                    libc::sched_yield();
                }
                libc::execv(
                    c"/bin/sleep".as_ptr(),
                    [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()].as_ptr(),
                );
                libc::_exit(1)
            }
        }
        let own = score_of(std::process::id() as libc::pid_t);
        let mut stack = vec![0_u128; 4096];
        let mut word = 0_u32;
        // SAFETY: the child has a stack of its own and makes only system calls; both outlive what it does
        // with them.
        let pid = unsafe {
            let top = stack.as_mut_ptr_range().end.cast();
            libc::clone(waits, top, libc::CLONE_VM | libc::SIGCHLD, (&raw mut word).cast())
        };
        assert!(pid > 0);
        let preferring = std::thread::spawn(move || prefer(pid));
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (early, meanwhile) = (preferring.is_finished(), score_of(pid));
        // SAFETY: our own word.
        unsafe { (&raw mut word).write_volatile(1) };
        preferring.join().unwrap();
        let scores = (score_of(std::process::id() as libc::pid_t), score_of(pid));
        // SAFETY: a child of ours, which was not waited for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        assert!(!early, "it did not wait");
        // Where it may not be asked who has which memory both change to and fro.
        assert!(meanwhile == own || meanwhile == own + BEFORE_MASTER, "{meanwhile}");
        assert_eq!(scores, (own, (own + BEFORE_MASTER).min(MOST)));
    }
}
