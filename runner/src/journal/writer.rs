//! The thread that writes, so that the job's own waits for no disk: what ranks wrote is synced, their lines
//! are, and then it takes its name.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::aside;
use super::record::End;

/// So many that have ended are written at once, at most: they wait for the slowest of them.
const BATCH: usize = 256;

/// From so many files on their file system is synced as a whole: each by itself would wait for the disk.
const FEW: usize = 4;

struct Job {
    end: End,
    output: Option<PathBuf>,
    log: String,
}

pub(super) struct Writer {
    sender: Sender<Job>,
    thread: JoinHandle<Result<(), String>>,
}

struct Files {
    journal: Option<(File, PathBuf)>,
    joblog: Option<(File, PathBuf)>,
}

impl Writer {
    pub fn start(
        journal: Option<(File, PathBuf)>,
        joblog: Option<(File, PathBuf)>,
        failed: impl Fn(String) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let mut files = Files { journal, joblog };
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || files.run(&receiver).inspect_err(|error| failed(error.clone())))?;
        Ok(Self { sender, thread })
    }

    pub fn write(&self, end: End, output: Option<PathBuf>, log: String) {
        // It has failed, and told so.
        let _ = self.sender.send(Job { end, output, log });
    }

    pub fn finish(self) -> Result<(), String> {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|_| Err("the thread that writes the journal has ended".into()))
    }
}

impl Files {
    fn run(&mut self, receiver: &Receiver<Job>) -> Result<(), String> {
        while let Ok(first) = receiver.recv() {
            let mut jobs = vec![first];
            jobs.extend(receiver.try_iter().take(BATCH - 1));
            self.write(&jobs)?;
        }
        Ok(())
    }

    fn write(&mut self, jobs: &[Job]) -> Result<(), String> {
        let well = || jobs.iter().filter(|job| job.end.is_well()).filter_map(|job| job.output.as_deref());
        if let Some((file, path)) = &mut self.journal {
            sync(&well().map(aside).collect::<Vec<_>>())?;
            let lines: Vec<u8> = jobs.iter().flat_map(|job| job.end.line()).collect();
            let written = file.write_all(&lines).and_then(|()| file.sync_data());
            written.map_err(|error| cannot("the journal", path, &error))?;
            for path in well() {
                std::fs::rename(aside(path), path)
                    .map_err(|error| cannot("the output of a rank that ended well", path, &error))?;
            }
        }
        if let Some((file, path)) = &mut self.joblog {
            let lines: String = jobs.iter().map(|job| job.log.as_str()).collect();
            file.write_all(lines.as_bytes()).map_err(|error| cannot("the job log", path, &error))?;
        }
        Ok(())
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!("{what}, {}, cannot be written: {error}", path.display())
}

/// Makes files durable.
fn sync(paths: &[PathBuf]) -> Result<(), String> {
    let mut synced = Vec::new();
    for path in paths {
        let one = sync_one(path, paths.len() < FEW, &mut synced);
        one.map_err(|error| cannot("the output of a rank", path, &error))?;
    }
    Ok(())
}

/// By itself, or with its file system if that was not `synced` yet.
fn sync_one(path: &Path, alone: bool, synced: &mut Vec<u64>) -> io::Result<()> {
    let file = File::open(path)?;
    if alone {
        return file.sync_data();
    }
    let device = file.metadata()?.dev();
    if !synced.contains(&device) {
        nix::unistd::syncfs(&file)?;
        synced.push(device);
    }
    Ok(())
}
