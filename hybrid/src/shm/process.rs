//! Which process a rank is, for whoever wants to know whether it lives.

use std::io;
use std::os::unix::fs::MetadataExt;

/// A process: its number, when it was born (in ticks), and where numbers of processes mean the same.
#[derive(Debug, PartialEq, Eq)]
pub struct Process {
    pub id: u64,
    pub born: u64,
    pub namespace: u64,
}

impl Process {
    pub fn own() -> Self {
        let id = std::process::id().into();
        let born = stat(id).ok().flatten().map_or(0, |(born, _)| born);
        Self { id, born, namespace: namespace() }
    }

    /// Whether it lives, as far as can be told from here.
    pub fn may_live(&self) -> bool {
        let is_known = self.born != 0 && self.namespace != 0 && self.namespace == namespace();
        !is_known
            || match stat(self.id) {
                Ok(Some((born, lives))) => born == self.born && lives,
                Ok(None) => true,
                // Where processes are hidden (`hidepid`) it may be there all the same.
                Err(_) => is_there(self.id),
            }
    }
}

fn is_there(id: u64) -> bool {
    let Ok(id) = libc::pid_t::try_from(id) else { return false };
    // SAFETY: no signal is sent.
    let sent = unsafe { libc::kill(id, 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// That of this process; 0 if it cannot be had.
fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// When a process was born, and whether any thread of it lives.
fn stat(id: u64) -> io::Result<Option<(u64, bool)>> {
    let text = std::fs::read(format!("/proc/{id}/stat"))?;
    Ok(parsed(&String::from_utf8_lossy(&text)))
}

fn parsed(text: &str) -> Option<(u64, bool)> {
    // The name before may have blanks and parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let (born, threads) = number(19).zip(number(17))?;
    // Of a process whose first thread has ended alone there are others.
    Some((born, !matches!(fields[0], "Z" | "X") || threads > 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_has_ended_and_no_other_is_taken_for_it() {
        let own = Process::own();
        assert!(own.born > 0 && own.namespace > 0 && own.may_live());
        assert!(!Process { born: own.born + 1, ..Process::own() }.may_live(), "another of that number");
        assert!(Process { namespace: own.namespace + 1, id: 1 << 40, born: 7 }.may_live(), "not known here");
        assert!(!Process { id: 1 << 40, namespace: own.namespace, ..own }.may_live(), "nobody");
        let of = |state: &str, threads: u64| {
            parsed(&format!("7 (a) b) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 0 1234 5 6"))
        };
        assert_eq!(
            (of("S", 1), of("Z", 1), of("X", 0)),
            (Some((1234, true)), Some((1234, false)), Some((1234, false)))
        );
        assert_eq!((of("Z", 3), parsed(""), parsed("7 (a) S 1")), (Some((1234, true)), None, None));
    }
}
