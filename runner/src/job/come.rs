//! Parts that come while the job runs: of a list on standard input that is read as it is written, and blocks
//! of standard input (`--pipe`).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::listen::Message;
use super::scratch::unlinked_file;
use super::{Job, Window};
use crate::exit::Ending;
use crate::launch::{Came, Launch, PartsError};
use crate::post::Post;
use crate::residency::Event;

/// Begins to read, if there is such a list, or something to be cut into blocks: how many may be read, and how
/// many parts are known already.
pub(super) fn start(
    launch: &mut Launch,
    scratch: &Path,
    post: &Post<Message>,
) -> Result<Option<(Arc<Window>, u32)>, Ending> {
    let post = post.clone();
    let tell = move |came| {
        // Nobody to hear it: the job has ended.
        let _ = post.leave(Message::Came(came));
    };
    let cannot = |error: std::io::Error| Ending::Setup(format!("cannot start a thread: {error}"));
    if let Some(rest) = launch.take_rest() {
        let known = launch.np();
        return rest.read(tell).map(|window| Some((window, known))).map_err(cannot);
    }
    let Some(pipe) = launch.take_pipe() else { return Ok(None) };
    let scratch = scratch.to_owned();
    let make = move || unlinked_file(&scratch).map(File::from);
    pipe.read(make, tell).map(|window| Some((window, 0))).map_err(cannot)
}

/// The blocks of `--pipe` whose ranks have not ended.
#[derive(Default)]
pub(super) struct Piped {
    files: BTreeMap<u32, File>,
    /// How many there were.
    count: u32,
}

impl Piped {
    /// Where a rank finds its block. Of one that begins anew it is read anew.
    pub fn of(&self, rank: u32) -> Option<PathBuf> {
        let file = self.files.get(&rank)?;
        Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
    }

    /// A rank has ended.
    pub fn forget(&mut self, rank: u32) {
        self.files.remove(&rank);
    }
}

/// There is no room, or no more of it for this user.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl Job<'_> {
    /// Parts were read.
    pub(super) fn came(&mut self, came: Came) {
        if self.coming.is_none() {
            // Nobody else is begun (`--halt soon`).
            return;
        }
        let more = !matches!(came, Came::End(_));
        let taken = match came {
            Came::Lines(lines) => self.setup.launch.add(lines).map(|()| self.np()),
            Came::Block(file) => self.came_block(file),
            Came::End(Some(PartsError::Scratch { source })) if is_full(&source) => Err(Ending::ScratchFull {
                rank: self.piped.count,
                need: self.options.launch.block,
                directory: self.setup.scratch_dirs.first().map(|dir| dir.display().to_string()),
            }),
            Came::End(Some(error @ PartsError::Scratch { .. })) => {
                Err(Ending::ScratchBroken(error.to_string()))
            }
            Came::End(Some(error)) => Err(Ending::Setup(error.to_string())),
            Came::End(None) => Ok(self.np()),
        };
        if !more {
            self.coming = None;
        }
        match taken {
            Ok(ranks) => self.events.push(Event::Came { ranks, more }),
            Err(ending) => self.end(ending),
        }
    }

    /// A block was read, and is on scratch; how many there are.
    fn came_block(&mut self, file: File) -> Result<u32, Ending> {
        let rank = self.piped.count;
        self.piped.files.insert(rank, file);
        self.piped.count += 1;
        // The first was known before it was there.
        if rank > 0 {
            self.setup.launch.add_block()?;
        }
        Ok(self.piped.count)
    }
}
