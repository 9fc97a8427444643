//! What `/proc` says of a thread of this process. Nothing here allocates.

use crate::sys::{Errno, Fd};

/// Of a status file so much is read at a time.
const SIZE: usize = 8192;
const GROUPS: &[u8] = b"\nGroups:";

/// The value of a line such as `Threads:\t1` in the text of a status file.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    text.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(name))
}

pub fn number(text: &[u8]) -> Option<i32> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn signal_set(text: &[u8], name: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(field(text, name)?).ok()?.trim(), 16).ok()
}

/// What a status file says that matters here.
pub struct Status {
    /// The thread's id in its own namespace.
    pub tid: i32,
    /// Whether that is also the id under which this /proc lists it.
    pub same: bool,
    pub threads: i32,
    pub dead: bool,
    /// Asleep, or runnable.
    pub state: u8,
    /// The signals it blocks, bit 0 for signal 1, and those sent to it that it has not taken. A thread inside
    /// our handler blocks all, but has taken the one sent, so both have to be looked at.
    pub blocked: u64,
    pub pending: u64,
}

impl Status {
    /// Whether waiting longer is of no use: it sleeps with the signal, which it was sent, blocked; or sleeps
    /// again and has not been in the handler, as it waited for that signal and was told of it (`sigwait`).
    pub fn cannot_stop(&self, signal: i32) -> bool {
        let has = |set: u64| set >> (signal - 1) & 1 == 1;
        self.state == b'S' && (has(self.blocked) || !has(self.pending))
    }
}

/// All of it, but for the groups where they are very many: they stand between what matters, and may be 64 Ki.
fn read(file: &Fd, buf: &mut [u8]) -> Result<usize, Errno> {
    let mut n = file.pread(buf, 0)?;
    if n < buf.len() {
        return Ok(n);
    }
    let wrong = Errno(libc::EPROTO);
    let groups = buf.windows(GROUPS.len()).position(|text| text == GROUPS).ok_or(wrong)? + 1;
    let mut at = n;
    loop {
        if let Some(end) = buf[groups..n].iter().position(|&b| b == b'\n') {
            buf.copy_within(groups + end + 1..n, groups);
            n -= end + 1;
            break;
        }
        let more = file.pread(&mut buf[groups..], at as u64)?;
        if more == 0 {
            return Err(wrong);
        }
        (n, at) = (groups + more, at + more);
    }
    Ok(n + file.pread(&mut buf[n..], at as u64)?)
}

/// Of the thread that has this file; none if it has ended.
pub fn of(path: &std::ffi::CStr) -> Result<Option<Status>, Errno> {
    let mut buf = [0u8; SIZE];
    let file = match Fd::open(path, libc::O_RDONLY) {
        Err(Errno(libc::ENOENT | libc::ESRCH)) => return Ok(None),
        other => other?,
    };
    let n = match read(&file, &mut buf) {
        Err(Errno(libc::ESRCH)) => return Ok(None),
        other => other?,
    };
    let text = &buf[..n];
    let parsed = (|| {
        let ids = field(text, b"NSpid:").or_else(|| field(text, b"Pid:"))?;
        let mut ids = ids.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
        let first = ids.next()?;
        let state = field(text, b"State:")?.iter().find(|b| !b.is_ascii_whitespace())?;
        let last = ids.next_back();
        Some(Status {
            tid: number(last.unwrap_or(first))?,
            same: last.is_none(),
            threads: number(field(text, b"Threads:")?)?,
            dead: matches!(state, b'Z' | b'X'),
            state: *state,
            blocked: signal_set(text, b"SigBlk:")?,
            pending: signal_set(text, b"SigPnd:")?,
        })
    })();
    parsed.map(Some).ok_or(Errno(libc::EPROTO))
}

/// Of the thread that asks, and with it of the process. The first thread may have ended: of that one, and so
/// by `/proc/self`, nothing more is told.
pub fn own() -> Result<Status, Errno> {
    of(c"/proc/thread-self/status").and_then(|s| s.ok_or(Errno(libc::ENOENT)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    /// Whoever is in so many groups.
    #[test]
    fn groups_are_passed_over_however_many_they_are() {
        let path = std::env::temp_dir().join(format!("sbmalloc-status-{}", std::process::id()));
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path");
        for groups in (0..65_536).step_by(4099).chain(725..760) {
            let list: String = (0..groups).map(|n| format!("{} ", 4_000_000_000_u32 + n)).collect();
            let text = format!(
                "Name:\ta\nState:\tS (sleeping)\nPid:\t7\nGroups:\t{list}\nNSpid:\t7\t3\nThreads:\t2\n\
                 SigPnd:\t0000000000000005\nSigBlk:\t0000000000000004\nlast:\t{}\n",
                "x".repeat(900)
            );
            std::fs::write(&path, text).expect("a file");
            let status = of(&name).expect("understood").expect("there");
            let found =
                (status.tid, status.same, status.threads, status.dead, status.blocked, status.pending);
            assert_eq!(found, (3, false, 2, false, 4, 5), "{groups}");
        }
        std::fs::remove_file(path).expect("removed");
        let own = own().expect("our own");
        assert!(own.threads > 1 && !own.dead);
    }
}
