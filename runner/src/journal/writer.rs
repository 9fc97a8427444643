//! The thread that writes, so that the job's own waits for no disk: what ranks wrote is synced, their lines
//! are, and then it takes its name.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::aside;
use super::record::{End, Stamp};

/// So many that have ended are written at once, at most: they wait for the slowest of them.
const BATCH: usize = 256;

/// What a rank of another node has made is seen here after so long at the latest: a client of NFS may believe
/// for a minute that it is not there (`acdirmax`).
const SEEN: Duration = Duration::from_secs(65);
/// It is looked so often.
const AGAIN: Duration = Duration::from_millis(250);

/// From so many files on their file system is synced as a whole: each by itself would wait for the disk.
const FEW: usize = 4;

/// What is to be written of a rank that has ended.
pub(super) struct Job {
    pub end: End,
    /// The name of its output.
    pub output: Option<PathBuf>,
    /// The number of the file that it wrote.
    pub file: Option<u64>,
    /// It ran on another node.
    pub is_elsewhere: bool,
    pub log: String,
}

impl Job {
    /// The name of what it wrote, if it ended well.
    fn is_to_be_named(&self) -> Option<&Path> {
        self.output.as_deref().filter(|_| self.end.is_well())
    }
}

pub(super) struct Writer(Sender<Job>);

struct Files {
    journal: Option<(File, PathBuf)>,
    joblog: Option<(File, PathBuf)>,
}

impl Writer {
    /// It writes until it is dropped, or something cannot be written: then the thread says how it went.
    pub fn start(
        journal: Option<(File, PathBuf)>,
        joblog: Option<(File, PathBuf)>,
        told: impl Fn(Result<(), String>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let mut files = Files { journal, joblog };
        let thread = std::thread::Builder::new().name("journal".into());
        thread.spawn(move || {
            let run = AssertUnwindSafe(|| files.run(&receiver));
            told(catch_unwind(run).unwrap_or_else(|_| Err("the thread that writes it panicked".into())));
        })?;
        Ok(Self(sender))
    }

    pub fn write(&self, job: Job) {
        // It has failed, and told so.
        let _ = self.0.send(job);
    }
}

impl Files {
    fn run(&mut self, receiver: &Receiver<Job>) -> Result<(), String> {
        while let Ok(first) = receiver.recv() {
            let mut jobs = vec![first];
            jobs.extend(receiver.try_iter().take(BATCH - 1));
            self.write(&mut jobs)?;
        }
        Ok(())
    }

    fn write(&mut self, jobs: &mut [Job]) -> Result<(), String> {
        let mut result = Ok(());
        if let Some((file, path)) = &mut self.journal {
            let synced = sync(jobs, SEEN);
            // Of whom that cannot be made durable nothing is written; the others are done all the same.
            let durable =
                || jobs.iter().zip(&synced).filter(|(_, synced)| synced.is_ok()).map(|(job, _)| job);
            let lines: Vec<u8> = durable().flat_map(|job| job.end.line()).collect();
            let written = file.write_all(&lines).and_then(|()| file.sync_data());
            written.map_err(|error| cannot("the journal", path, &error))?;
            for path in durable().filter_map(Job::is_to_be_named) {
                let named = std::fs::rename(aside(path), path)
                    .map_err(|error| cannot("the output of a rank that ended well", path, &error));
                result = result.and(named);
            }
            result = synced.into_iter().fold(Ok(()), Result::and).and(result);
        }
        if let Some((file, path)) = &mut self.joblog {
            let lines: String = jobs.iter().map(|job| job.log.as_str()).collect();
            let written = file.write_all(lines.as_bytes());
            result = result.and(written.map_err(|error| cannot("the job log", path, &error)));
        }
        result
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!("{what}, {}, cannot be written: {error}", path.display())
}

/// Makes what ranks wrote durable that ended well, and notes by what it is known again; of each job how that
/// went. What is not seen here yet is awaited for `seen`, for all together: they ended before.
fn sync(jobs: &mut [Job], seen: Duration) -> Vec<Result<(), String>> {
    let begin = Instant::now();
    let may_come = || begin.elapsed() < seen;
    let alone = jobs.iter().filter_map(Job::is_to_be_named).count() < FEW;
    let mut synced = Vec::new();
    jobs.iter_mut().map(|job| job.sync(alone, &mut synced, may_come)).collect()
}

impl Job {
    fn sync(
        &mut self,
        alone: bool,
        synced: &mut Vec<u64>,
        may_come: impl Fn() -> bool,
    ) -> Result<(), String> {
        let Some(path) = self.is_to_be_named().map(aside) else { return Ok(()) };
        let mut stamp = sync_one(&path, self.file, alone, synced);
        while self.is_elsewhere && is_missing(&stamp) && may_come() {
            std::thread::sleep(AGAIN);
            stamp = sync_one(&path, self.file, alone, synced);
        }
        self.end.wrote = Some(stamp.map_err(|error| cannot("the output of a rank", &path, &error))?);
        Ok(())
    }
}

fn is_missing(found: &io::Result<Stamp>) -> bool {
    found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// By itself, or with its file system if that was not `synced` yet.
fn sync_one(path: &Path, number: Option<u64>, alone: bool, synced: &mut Vec<u64>) -> io::Result<Stamp> {
    let file = File::open(path)?;
    let there = file.metadata()?;
    if number.is_some_and(|number| number != there.ino()) {
        return Err(io::Error::other(
            "it is not the file that the rank wrote, which was removed or replaced while it ran",
        ));
    }
    if alone {
        file.sync_data()?;
    } else if !synced.contains(&there.dev()) {
        nix::unistd::syncfs(&file)?;
        synced.push(there.dev());
    }
    Ok(Stamp::of(&there))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that is lost with what twenty of its parts wrote: nobody waits twenty minutes for the journal.
    #[test]
    fn what_of_another_node_is_missing_is_awaited_for_all_together() {
        let seen = Duration::from_millis(500);
        let job = |rank: u32| {
            let end = End { revoked: false, ..End::revocation(rank, None, 7) };
            let output = Some(std::env::temp_dir().join(format!("bdrun-none-{}-{rank}", std::process::id())));
            Job { end, output, file: None, is_elsewhere: true, log: String::new() }
        };
        // One after the other they took four times as long in each attempt, not only while others compute.
        let is_together = (0..20).any(|_| {
            let (mut jobs, begin) = ([0, 1, 2, 3].map(job), Instant::now());
            let ends = sync(&mut jobs, seen);
            assert!(ends.iter().all(Result::is_err) && begin.elapsed() >= seen);
            begin.elapsed() < 3 * seen
        });
        assert!(is_together);
    }

    /// One whose file was replaced is not done, and told of; who ended beside it is.
    #[test]
    fn of_several_that_end_together_one_cannot_be_named() {
        let dir = std::env::temp_dir().join(format!("bdrun-writer-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let job = |rank: u32| {
            let output = dir.join(format!("out-{rank}"));
            std::fs::write(aside(&output), "result").unwrap();
            let number = aside(&output).metadata().unwrap().ino();
            let end = End { revoked: false, ..End::revocation(rank, None, 7) };
            let (output, file, log) = (Some(output), Some(number), format!("{rank}\n"));
            Job { end, output, file, is_elsewhere: false, log }
        };
        let mut jobs = [0, 1, 2].map(job);
        jobs[1].file = jobs[1].file.map(|number| number + 1);
        let open = |name: &str| Some((File::create(dir.join(name)).unwrap(), dir.join(name)));
        let mut files = Files { journal: open("journal"), joblog: open("log") };
        let written = files.write(&mut jobs);
        assert!(written.is_err_and(|error| error.contains("out-1.unfinished")));
        let there = [0, 1, 2].map(|rank| dir.join(format!("out-{rank}")).exists());
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!((there, read("journal").lines().count()), ([true, false, true], 2));
        assert!(!read("journal").contains("\"rank\":1,"));
        assert_eq!(read("log"), "0\n1\n2\n");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
