//! The end of the process that moves, at any moment: what it holds ends with it, and what it does not goes
//! on.

use crate::driver::{Random, Subject, command, cycle};
use sbmalloc::other::{Image, Refusal};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Moves a program of its own without end.
pub fn tracer() {
    let mut command = command("small sum");
    let mut subject =
        command.process_group(0).stdin(Stdio::inherit()).stdout(Stdio::null()).spawn().expect("started");
    let pid = subject.id() as i32;
    println!("pid {pid}");
    let mut image = Image::new().expect("scratch");
    let mover = std::thread::spawn(move || {
        let mut is_told = false;
        loop {
            match cycle(pid, &mut image, Duration::from_millis(2)) {
                Ok(_) if !is_told => {
                    println!("moved");
                    is_told = true;
                }
                Err(Refusal::Gone) => break,
                Ok(_) => {}
                Err(refusal) => assert!(!refusal.is_lasting(), "{refusal}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    mover.join().expect("mover");
    subject.wait().expect("wait");
}

#[test]
fn nothing_is_left_with_wrong_memory() {
    // So that the programs become ours when their parents end, and we hear of their ends.
    // SAFETY: no memory is touched.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }, 0);
    let mut random = Random(u64::from(std::process::id()) | 1 << 40);
    let (mut killed, mut went_on) = (0, 0);
    for round in 0..30 {
        let mut tracer = Subject::start("tracer");
        let pid: i32 = tracer.line_with("pid ").parse().expect("a number");
        // On a busy machine nobody is held as soon as that.
        if round % 2 == 0 {
            tracer.wait_for("moved");
        }
        std::thread::sleep(Duration::from_micros(20_000 + random.below(200_000)));
        tracer.kill();
        let begun = Instant::now();
        let status = loop {
            let mut status = 0;
            // SAFETY: our child by adoption.
            match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
                0 => {}
                n if n == pid => break status,
                _ => panic!("{}", std::io::Error::last_os_error()),
            }
            assert!(begun.elapsed() < Duration::from_secs(300), "left standing");
            std::thread::sleep(Duration::from_millis(2));
        };
        match (libc::WIFSIGNALED(status), libc::WIFEXITED(status)) {
            (true, _) if libc::WTERMSIG(status) == libc::SIGKILL => killed += 1,
            // It looked at all of its memory until its end.
            (_, true) if libc::WEXITSTATUS(status) == 0 => went_on += 1,
            _ => panic!("status {status:x}"),
        }
    }
    println!("{killed} ended with it, {went_on} were not held and went on");
    assert!(killed > 0);
}
