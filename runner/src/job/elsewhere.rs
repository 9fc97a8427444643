//! The other nodes of a job, if there are any: the job's side of [`crate::nodes`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bdrun_ipc::mail::Mail;
use bdrun_ipc::spread::Spread;
use serde::{Deserialize, Serialize};

use super::listen::Message;
use super::setup::{self, Setup};
use super::{Job, scratch};
use crate::cli::{Halt, MAX_RANKS, Options};
use crate::exit::Ending;
use crate::history::History;
use crate::in_use;
use crate::launch::Launch;
use crate::nodes::{End, Nodes, Told, TransportError, Word, mpi};
use crate::post::{Letters, Post};
use crate::residency::{Event, Next};
use crate::stats::{RankStats, Stats};
use crate::supervisor::EscalationEvent;

/// A time to sleep; whatever comes ends it.
const LONG: Duration = Duration::from_secs(3600);

/// In the environment: `1` if a job is on one node, whatever has started bdrun.
const NODES: &str = "BDRUN_NODES";
const ALONE: &str = "1";

/// What a master is among those of a job.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Which of the ranks are here, unless they are dealt out.
    pub spread: Spread,
    /// How many masters share the memory and the processors of this machine.
    pub masters: u32,
    /// Ranks are dealt out to whichever node can begin them.
    pub deals: bool,
}

impl Place {
    /// The only one.
    pub fn alone(ranks: u32) -> Self {
        Self { spread: Spread::alone(ranks), masters: 1, deals: false }
    }

    /// Of a master that has met these.
    pub fn of(elsewhere: Option<&Elsewhere>, ranks: u32) -> Self {
        elsewhere.map_or(Self::alone(ranks), |elsewhere| Self {
            spread: elsewhere.nodes.spread(),
            masters: elsewhere.nodes.on_this_machine(),
            deals: elsewhere.deals,
        })
    }
}

/// Whether ranks are dealt out where there are several nodes: independent parts of a list. In
/// the order of their numbers they can print only where each node has its share of them.
fn deals(options: &Options, launch: &Launch) -> Result<bool, Ending> {
    let may = launch.part(0).is_some() && !launch.streams() && !options.launch.keep_order;
    Ok(may && setup::is_independent(options, launch)?)
}

/// What of all that was asked for there is not yet on several nodes.
fn not_on_several(options: &Options, launch: &Launch, deals: bool) -> Option<&'static str> {
    if launch.streams() {
        return Some("a list that is read while the job runs, or --pipe,");
    }
    if deals {
        return None;
    }
    let counts = options.launch.halt.is_some_and(|halt| ![Halt::FIRST, Halt::NEVER].contains(&halt));
    let asked = [
        ("a job of more than 65,536 ranks that are no parts of a list", options.np > MAX_RANKS),
        ("--journal", options.journal.journal.is_some()),
        ("--resume", options.journal.resume.is_some()),
        ("--joblog", options.journal.joblog.is_some()),
        ("--learn", options.learn.learn.is_some()),
        // Each master counts the ranks of its own node.
        ("--halt other than never and now,fail=1", counts),
    ];
    // Each node has its share of these.
    asked.into_iter().find_map(|(what, asked)| asked.then_some(what))
}

/// For a rank of a job on several nodes: a bdrun that it starts is of none of them.
pub(super) fn variable_of_ranks() -> (OsString, OsString) {
    (NODES.into(), ALONE.into())
}

/// What a master tells the first at the end.
#[derive(Serialize, Deserialize)]
struct Account {
    /// Seconds since 1970.
    began: f64,
    stats: Stats,
    /// What of them is written down nowhere else.
    rest: RankStats,
    history: Option<History>,
}

/// The master of one node among the others.
pub(super) struct Elsewhere {
    nodes: Nodes,
    /// The others were told that the job ends.
    told: bool,
    /// See [`Place::deals`].
    deals: bool,
    /// The launcher's way of telling that another of its processes is gone is SIGUSR1.
    usr1_is_the_launchers: bool,
}

/// Meets the masters of the other nodes, if a launcher has started several.
pub(super) fn meet(options: &Options, launch: &Launch) -> Result<Option<Elsewhere>, Ending> {
    let variable = |name: &str| std::env::var(name).ok();
    mpi::keep_from_ranks(&variable);
    if variable(NODES).as_deref() == Some(ALONE) {
        return Ok(None);
    }
    let Some(launcher) = mpi::launcher(&variable) else { return Ok(None) };
    let deals = deals(options, launch)?;
    if let Some(what) = not_on_several(options, launch, deals) {
        return Err(Ending::Usage(format!(
            "{} has started {} of bdrun, as the masters of one job on several nodes, and {what} is for one node only, or for parts that are \
             dealt out (of --parts or --glob, without --keep-order); for jobs that have nothing to do with each other: {NODES}={ALONE} in \
             the environment",
            launcher.name, launcher.nodes
        )));
    }
    let words: Vec<String> = options.line().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let nodes = Nodes::meet(&launcher, options.np, &words, launch.parts()).map_err(Ending::Setup)?;
    in_use::is_of_the_job_of(nodes.first());
    // MPICH's, in whose name Hydra starts processes, where it leaves the others alone.
    let usr1_is_the_launchers = variable("HYDI_CONTROL_FD").is_some();
    Ok(Some(Elsewhere { nodes, told: false, deals, usr1_is_the_launchers }))
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
        self.nodes.begin(setup.segment.shared(), mail, self.deals, tell);
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
    /// first node's statistics and history, of a job that began then, become those of all.
    pub fn leave(
        &mut self,
        stats: &mut Stats,
        began: SystemTime,
        history: &mut Option<History>,
        mut ending: Ending,
        letters: &Letters<Message>,
    ) -> Ending {
        self.nodes.set_over();
        let began = began.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        // Numbers and texts: nothing that cannot be written.
        let account = |account: Account| serde_json::to_vec(&account).unwrap_or_default();
        self.nodes.bye(if self.is_first() {
            vec![]
        } else {
            let (stats, rest) = (stats.clone(), stats.rest.clone());
            account(Account { began, stats, rest, history: history.take() })
        });
        loop {
            let message = match letters.next(LONG) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match message {
                Message::Nodes(Told::Over(accounts)) => {
                    for (node, account) in accounts {
                        let Ok(account) = serde_json::from_slice::<Account>(&account) else { continue };
                        let other = Stats { rest: account.rest, ..account.stats };
                        if let (Some(own), Some(history)) = (&mut *history, account.history) {
                            own.join(node, account.began - began, history);
                        }
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
            Told::Settled | Told::Over(_) | Told::Said(..) | Told::Lost(..) => None,
        }
    }

    /// Who speaks for all of them.
    pub fn is_first(&self) -> bool {
        self.node() == 0
    }

    /// Which of them this is.
    pub fn node(&self) -> u32 {
        self.nodes.spread().node
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.nodes.spread().nodes
    }

    /// Ranks of several nodes may wait for each other.
    pub fn is_linked(&self) -> bool {
        !self.deals
    }

    /// Whether this signal says that another master is gone, which is noticed besides, and is none of the
    /// ranks'.
    pub fn is_the_launchers(&self, signal: i32) -> bool {
        self.deals && self.usr1_is_the_launchers && signal == libc::SIGUSR1
    }

    /// See [`Nodes::may_begin`].
    pub fn may_begin(&self) -> bool {
        !self.deals || self.nodes.may_begin()
    }

    /// Says this to all others.
    pub fn say_to_all(&self, word: &Word) {
        let others = (0..self.count()).filter(|&node| node != self.node());
        others.for_each(|node| self.say(node, word.clone()));
    }

    /// See [`Nodes::say`].
    pub fn say(&self, node: u32, word: Word) {
        self.nodes.say(node, word);
    }

    /// What the machine of a node is called.
    pub fn host(&self, node: u32) -> &str {
        self.nodes.host(node)
    }
}

impl Job<'_> {
    /// Ranks of other nodes are none of this master's.
    pub(super) fn skip_those_elsewhere(&mut self) {
        if self.setup.deals {
            return;
        }
        let here = self.setup.segment.here();
        for rank in (0..self.np()).filter(|rank| !here.contains(rank)) {
            self.ranks[rank as usize].status = Some("elsewhere".into());
            self.supervisor.is_over(rank);
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
            Told::Said(node, Word::Asked { id, about }) => self.answer_node(node, id, about),
            Told::Said(_, Word::Answer { id, answer }) => self.node_answers(id, &answer),
            Told::Said(node, word) => self.hear_of_parts(node, word),
            Told::Lost(node, why) => self.lose_node(node, &why),
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
        TransportError::Broken(text) | TransportError::Lost { why: text, .. } => Ending::Internal(text),
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
