//! The other nodes of a job, if there are any: the job's side of [`crate::nodes`].

use std::ffi::OsString;

use bdrun_ipc::mail::Mail;
use bdrun_ipc::spread::Spread;

use super::Job;
use super::listen::Message;
use super::setup::Setup;
use crate::cli::{MAX_RANKS, Options};
use crate::exit::Ending;
use crate::launch::Launch;
use crate::nodes::{End, Nodes, Told, mpi};
use crate::post::Post;
use crate::residency::{Event, Next};
use crate::stats::Stats;

/// In the environment: `1` if a job is on one node, whatever has started bdrun.
const NODES: &str = "BDRUN_NODES";
const ALONE: &str = "1";

/// What of all that was asked for there is not yet on several nodes.
fn not_on_several(options: &Options, launch: &Launch) -> Option<&'static str> {
    let asked = [
        ("a list that is read while the job runs, or --pipe,", launch.streams()),
        ("a job of more than 65,536 ranks", options.np > MAX_RANKS),
        ("--journal", options.journal.journal.is_some()),
        ("--resume", options.journal.resume.is_some()),
        ("--joblog", options.journal.joblog.is_some()),
        ("--learn", options.learn.learn.is_some()),
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

    /// It is over here: waits until it is everywhere. The first node's statistics become those of all.
    pub fn leave(&mut self, stats: &mut Stats) {
        self.nodes.set_over();
        // Numbers and texts: nothing that cannot be written.
        let account = serde_json::to_vec(stats).unwrap_or_default();
        for (_, account) in self.nodes.leave(account) {
            if let Ok(other) = serde_json::from_slice(&account) {
                stats.add_node(other);
            }
        }
    }

    /// After that, once this master has said how the job ended: waits until the others have.
    pub fn go(self) {
        self.nodes.go();
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
            elsewhere.nodes.end(End { code: ending.code(), why: ending.to_string() });
        }
    }

    /// What the others tell.
    pub(super) fn told(&mut self, told: Told) {
        match told {
            Told::Ended(node, End { code, why }) => self.end(Ending::Elsewhere { node, code, why }),
            Told::Settled => {
                if !self.observe_all() {
                    self.events.push(Event::Settled);
                    // Before another node's end is heard, which names that node's ranks only.
                    self.schedule();
                }
            }
            Told::Broken(text) => self.end(Ending::Internal(text)),
        }
    }
}
