//! The other nodes of a job, if there are any: the job's side of [`crate::nodes`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use bdrun_ipc::mail::Mail;
use bdrun_ipc::spread::Spread;

use super::listen::Message;
use super::setup::Setup;
use super::{Job, scratch};
use crate::cli::{Halt, MAX_RANKS, Options};
use crate::exit::Ending;
use crate::launch::Launch;
use crate::nodes::{End, Nodes, Told, TransportError, mpi};
use crate::post::{Letters, Post};
use crate::residency::{Event, Next};
use crate::stats::Stats;
use crate::supervisor::EscalationEvent;

/// A time to sleep; whatever comes ends it.
const LONG: Duration = Duration::from_secs(3600);

/// In the environment: `1` if a job is on one node, whatever has started bdrun.
const NODES: &str = "BDRUN_NODES";
const ALONE: &str = "1";

/// What of all that was asked for there is not yet on several nodes.
fn not_on_several(options: &Options, launch: &Launch) -> Option<&'static str> {
    let counts = options.launch.halt.is_some_and(|halt| ![Halt::FIRST, Halt::NEVER].contains(&halt));
    let asked = [
        ("a list that is read while the job runs, or --pipe,", launch.streams()),
        ("a job of more than 65,536 ranks", options.np > MAX_RANKS),
        ("--journal", options.journal.journal.is_some()),
        ("--resume", options.journal.resume.is_some()),
        ("--joblog", options.journal.joblog.is_some()),
        ("--learn", options.learn.learn.is_some()),
        // Each master counts the ranks of its own node.
        ("--halt other than never and now,fail=1", counts),
    ];
    asked.into_iter().find_map(|(what, asked)| asked.then_some(what))
}

/// For a rank of a job on several nodes: a bdrun that it starts is of none of them.
pub(super) fn variable_of_ranks() -> (OsString, OsString) {
    (NODES.into(), ALONE.into())
}

/// The master of one node among the others.
pub(super) struct Elsewhere {
    nodes: Nodes,
    /// The others were told that the job ends.
    told: bool,
}

/// Meets the masters of the other nodes, if a launcher has started several.
pub(super) fn meet(options: &Options, launch: &Launch) -> Result<Option<Elsewhere>, Ending> {
    let variable = |name: &str| std::env::var(name).ok();
    mpi::keep_from_ranks(&variable);
    if variable(NODES).as_deref() == Some(ALONE) {
        return Ok(None);
    }
    let Some(launcher) = mpi::launcher(&variable) else { return Ok(None) };
    if let Some(what) = not_on_several(options, launch) {
        return Err(Ending::Usage(format!(
            "{} has started {} of bdrun, as the masters of one job on several nodes, and {what} is for one node only; for jobs that have \
             nothing to do with each other: {NODES}={ALONE} in the environment",
            launcher.name, launcher.nodes
        )));
    }
    let words: Vec<String> = options.line().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let nodes = Nodes::meet(&launcher, options.np, &words).map_err(Ending::Setup)?;
    Ok(Some(Elsewhere { nodes, told: false }))
}

/// Which ranks are here.
pub(super) fn spread(elsewhere: Option<&Elsewhere>, np: u32) -> Spread {
    elsewhere.map_or(Spread::alone(np), |elsewhere| elsewhere.nodes.spread())
}

/// How many masters share the memory and the processors of this machine.
pub(super) fn masters_here(elsewhere: Option<&Elsewhere>) -> u32 {
    elsewhere.map_or(1, |elsewhere| elsewhere.nodes.on_this_machine())
}

impl Elsewhere {
    /// The job has its memory.
    pub fn begin(&mut self, setup: &Setup, post: &Post<Message>) -> Result<(), Ending> {
        let open = || -> std::io::Result<Mail> {
            let [mail, spill] = setup.mail.fds();
            Ok(Mail::open_whole(mail.try_clone_to_owned()?, spill.try_clone_to_owned()?))
        };
        let mail = open().map_err(|error| Ending::Setup(format!("another descriptor: {error}")))?;
        let post = post.clone();
        let tell = Box::new(move |told| _ = post.leave(Message::Nodes(told)));
        self.nodes.begin(setup.segment.shared(), mail, tell);
        Ok(())
    }

    /// See [`Nodes::acted`].
    pub fn acted(&self) -> u64 {
        self.nodes.acted()
    }

    /// See [`Nodes::set_quiet`].
    pub fn set_quiet(&self, acted: Option<u64>) {
        self.nodes.set_quiet(acted);
    }

    /// All ranks here have ended by themselves, whatever they ended with: the others go on.
    pub fn is_at_its_end(&mut self) {
        self.told = true;
    }

    /// It is over here, so far with this ending: waits until it is everywhere, and how it ends then. The
    /// first node's statistics become those of all.
    pub fn leave(&mut self, stats: &mut Stats, mut ending: Ending, letters: &Letters<Message>) -> Ending {
        self.nodes.set_over();
        // Numbers and texts: nothing that cannot be written.
        self.nodes.bye(serde_json::to_vec(stats).unwrap_or_default());
        loop {
            let message = match letters.next(LONG) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match message {
                Message::Nodes(Told::Over(accounts)) => {
                    for (node, account) in accounts {
                        let Ok(other) = serde_json::from_slice::<Stats>(&account) else { continue };
                        if ending.is_success() && other.exit_code != 0 {
                            let (code, why) = (other.exit_code, other.error.clone().unwrap_or_default());
                            ending = Ending::Elsewhere { node, code, why };
                            stats.ended_by(&ending);
                        }
                        stats.add_node(other);
                    }
                    break;
                }
                Message::Nodes(told) => {
                    if let Some(later) = self.otherwise(told, &[]).filter(|_| ending.is_success()) {
                        stats.ended_by(&later);
                        ending = later;
                    }
                }
                // Signals have their own effect by now.
                _ => {}
            }
        }
        ending
    }

    /// After that, once this master has said how the job ended: waits until the others have.
    pub fn go(self) {
        self.nodes.go();
    }

    /// The job cannot begin here: the others are told, and end. Then [`go`](Self::go).
    pub fn give_up(&mut self, ending: &Ending) {
        self.nodes.give_up(end_of(ending));
    }

    /// How the job ends after all, of which all is over here; the others are told of what they do not know.
    fn otherwise(&self, told: Told, scratch_dirs: &[PathBuf]) -> Option<Ending> {
        match told {
            Told::Ended(node, End { code, why, .. }) => Some(Ending::Elsewhere { node, code, why }),
            Told::Broken(error) => {
                let broken = broken(error, scratch_dirs);
                self.nodes.end(end_of(&broken));
                Some(broken)
            }
            Told::Settled | Told::Over(_) => None,
        }
    }

    /// Who speaks for all of them.
    pub fn is_first(&self) -> bool {
        self.nodes.spread().node == 0
    }
}

impl Job<'_> {
    /// Ranks of other nodes are none of this master's.
    pub(super) fn skip_those_elsewhere(&mut self) {
        let here = self.setup.segment.here();
        for rank in (0..self.np()).filter(|rank| !here.contains(rank)) {
            self.ranks[rank as usize].status = Some("elsewhere".into());
            self.supervisor.never_was(rank);
            if !self.core.was_done_before(rank, 0) {
                self.events.push(Event::Exited { rank, peak: 0, next: Next::Over });
            }
            self.ranks.remove(rank);
        }
    }

    /// Tells the others that the job ends, if it does not end well.
    pub(super) fn tell_elsewhere(&mut self) {
        let Some(elsewhere) = &mut self.elsewhere else { return };
        let Some(ending) = self.ending.as_ref().filter(|ending| !ending.is_success()) else { return };
        if !std::mem::replace(&mut elsewhere.told, true) && !matches!(ending, Ending::Elsewhere { .. }) {
            elsewhere.nodes.end(end_of(ending));
        }
    }

    /// What the others tell.
    pub(super) fn told(&mut self, told: Told) {
        match told {
            Told::Ended(node, End { code, why, has_grace }) => {
                self.ending.get_or_insert(Ending::Elsewhere { node, code, why });
                let event = if has_grace { EscalationEvent::End } else { EscalationEvent::Fail };
                self.escalate(event);
            }
            Told::Settled => {
                if !self.observe_all() {
                    self.events.push(Event::Settled);
                    // Before another node's end is heard, which names that node's ranks only.
                    self.schedule();
                }
            }
            Told::Broken(error) => self.end(broken(error, &self.setup.scratch_dirs)),
            // Only who has said goodbye is told so, in `leave`.
            Told::Over(_) => {}
        }
    }

    /// The same once all is over here, but for what is to be written.
    pub(super) fn told_at_the_end(&mut self, told: Told) {
        let Some(elsewhere) = &self.elsewhere else { return };
        if let Some(later) = elsewhere.otherwise(told, &self.setup.scratch_dirs) {
            self.end_otherwise(later);
        }
    }
}

/// How the job ends if the gateway can do nothing more.
fn broken(error: TransportError, scratch_dirs: &[PathBuf]) -> Ending {
    match error {
        TransportError::Broken(text) => Ending::Internal(text),
        TransportError::Full { rank, need } => {
            Ending::ScratchFull { rank, need, directory: scratch::fullest(scratch_dirs) }
        }
    }
}

/// What the others are told of it.
fn end_of(ending: &Ending) -> End {
    let has_grace = matches!(ending, Ending::Interrupted { .. } | Ending::Timeout(_));
    End { code: ending.code(), why: ending.to_string(), has_grace }
}
