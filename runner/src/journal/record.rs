//! The lines of a journal: JSON, one object each. The first says which job it is of, the others how a rank
//! ended.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use crate::residency::Rank;

/// Of the lines below.
pub(super) const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    /// The version; the name says what the file is.
    pub bdrun_journal: u32,
    /// What was asked for, option by option.
    pub job: Vec<(String, String)>,
}

/// How a rank ended. Times are seconds, since 1970 where they are points in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct End {
    /// Its number then.
    pub rank: Rank,
    /// Its part, if the job had parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// A hash of all it was given: program, arguments, environment, files.
    pub given: u64,
    /// Its exit code.
    pub exit: i32,
    /// The signal that ended it, or 0.
    pub signal: i32,
    /// It ended because the job did, whatever it says of itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// No end: its output is gone, so it is to run again. What is written of it before counts no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
    /// When it began.
    pub begin: f64,
    /// How long it lived.
    pub seconds: f64,
    /// The most it held, bytes; 0 if that is not known.
    pub peak: u64,
    /// A hash of the name of its output, if it wrote one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// What it wrote, as it was when it had ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrote: Option<Stamp>,
}

/// By what a file is known again, whatever its name: its size, bytes, and when it was changed last, seconds
/// and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp(pub u64, pub i64, pub i64);

impl Stamp {
    pub fn of(file: &Metadata) -> Self {
        Self(file.size(), file.mtime(), file.mtime_nsec())
    }

    /// Changed last before the other was.
    pub fn is_older(self, other: Self) -> bool {
        (self.1, self.2) < (other.1, other.2)
    }
}

impl End {
    /// The line that takes back that a part is done.
    pub const fn revocation(rank: Rank, part: Option<String>, given: u64) -> Self {
        let (exit, signal, stopped, revoked) = (0, 0, false, true);
        let (begin, seconds, peak, output, wrote) = (0.0, 0.0, 0, None, None);
        Self { rank, part, given, exit, signal, stopped, revoked, begin, seconds, peak, output, wrote }
    }

    /// Whether it need not run again.
    pub const fn is_well(&self) -> bool {
        self.exit == 0 && self.signal == 0 && !self.stopped && !self.revoked
    }

    pub fn line(&self) -> Vec<u8> {
        line(self)
    }
}

impl Header {
    pub fn line(&self) -> Vec<u8> {
        line(self)
    }
}

fn line(of: &impl Serialize) -> Vec<u8> {
    // Text and numbers: nothing that cannot be written.
    let mut bytes = serde_json::to_vec(of).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// What is in a journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Contents {
    pub header: Option<Header>,
    pub ends: Vec<End>,
    /// Bytes of whole lines.
    pub len: u64,
}

impl Contents {
    /// Reads all whole lines. The last, if it has no end, was being written when somebody was killed.
    ///
    /// # Errors
    /// In words, if it is no journal.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let len = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let (whole, torn) = bytes.split_at(len);
        let mut lines = whole.split_inclusive(|&byte| byte == b'\n').enumerate();
        let Some((_, first)) = lines.next() else {
            // As far as it goes it must be a first line, or it is somebody's file.
            let begin: &[u8] = b"{\"bdrun_journal\":";
            let most = begin.len().min(torn.len());
            let is_ours = begin[..most] == torn[..most];
            return if is_ours { Ok(Self::default()) } else { Err("it does not begin as one".into()) };
        };
        let header: Header =
            serde_json::from_slice(first).map_err(|error| format!("its first line: {error}"))?;
        if header.bdrun_journal != VERSION {
            return Err(format!(
                "its version is {}, and this bdrun's {VERSION}: use the bdrun that made it",
                header.bdrun_journal
            ));
        }
        let ends: Result<Vec<End>, String> = lines
            .map(|(at, line)| {
                serde_json::from_slice(line).map_err(|error| format!("its line {}: {error}", at + 1))
            })
            .collect();
        Ok(Self { header: Some(header), ends: ends?, len: len as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header { bdrun_journal: VERSION, job: vec![("the command".into(), "wc -c {}".into())] }
    }

    fn end(rank: Rank, exit: i32) -> End {
        let (part, given) = (Some(format!("part\n{rank}\u{fffd}")), u64::MAX - u64::from(rank));
        let (signal, stopped, revoked, begin, seconds, peak) = (0, false, rank == 3, 1.5e9, 0.25, 1 << 40);
        let output = (rank != 2).then_some(u64::MAX);
        let wrote = (rank == 0).then_some(Stamp(1 << 50, -1, 999_999_999));
        End { rank, part, given, exit, signal, stopped, revoked, begin, seconds, peak, output, wrote }
    }

    fn journal(ends: u32) -> (Vec<u8>, Contents) {
        let ends: Vec<_> = (0..ends).map(|rank| end(rank, i32::from(rank == 1))).collect();
        let bytes: Vec<u8> =
            std::iter::once(header().line()).chain(ends.iter().map(End::line)).flatten().collect();
        let len = bytes.len() as u64;
        (bytes, Contents { header: Some(header()), ends, len })
    }

    #[test]
    fn what_is_written_is_read() {
        let (bytes, contents) = journal(3);
        assert_eq!(Contents::parse(&bytes).unwrap(), contents);
    }

    #[test]
    fn other_files_are_refused() {
        for text in
            ["hello\n", "hello", "{\"bdrun_journal\":1}\n", "{\"bdrun_journal\":2,\"job\":[]}\n", "\n"]
        {
            assert!(Contents::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        let (mut bytes, _) = journal(2);
        bytes.extend_from_slice(b"something else\n");
        assert!(Contents::parse(&bytes).unwrap_err().contains("line 4"));
    }

    proptest! {
        /// Wherever bdrun was killed, what was written whole is there, and nothing else.
        #[test]
        fn a_torn_journal_is_read_up_to_its_last_whole_line(cut in 0.0..1.0) {
            let (bytes, contents) = journal(4);
            let at = (bytes.len() as f64 * cut) as usize;
            let read = Contents::parse(&bytes[..at]).unwrap();
            let lines = bytes[..at].iter().filter(|&&byte| byte == b'\n').count();
            prop_assert_eq!(read.header.is_some(), lines > 0);
            prop_assert_eq!(&read.ends[..], &contents.ends[..lines.saturating_sub(1)]);
            prop_assert_eq!(Contents::parse(&bytes[..read.len as usize]).unwrap(), read);
        }
    }
}
