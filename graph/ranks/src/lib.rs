//! Task graphs of [`bdrun_graph`] on the ranks of a node: processes that share the memory of blocks.
//!
//! ```
//! use std::sync::Arc;
//!
//! use bdrun_graph::order::{self, Effort};
//! use bdrun_graph::plan::plan;
//! use bdrun_graph::run::{Call, Progress};
//! use bdrun_graph::{Builder, FunctionId, Inputs, Output, Task};
//! use bdrun_graph_ranks::Ranks;
//!
//! let world = bdrun_worker::init()?; // bdrun -np 3 PROGRAM: rank 0 says what is done, two do it
//!
//! // The same graph and plan on all ranks.
//! let (read, add) = (FunctionId(0), FunctionId(1));
//! let mut builder = Builder::default();
//! for key in ["x", "y"] {
//!     let task = Task::new(key, read, Inputs::Keys(&[]));
//!     builder.add(Task { bytes: 100_000, source: true, ..task })?;
//! }
//! let sum = Task::new("sum", add, Inputs::Keys(&["x", "y"]));
//! let sum = builder.add(Task { bytes: 100_000, output: Output::Kept, ..sum })?;
//! let graph = builder.build()?;
//! let order = order::order(&graph, Effort::default());
//! let plan = plan(&graph, &order.tasks, order::bound(&graph, &order.tasks, 2))?;
//!
//! // On whichever rank it is to be done.
//! let call = |call: Call, inputs: Vec<Arc<Vec<u8>>>| match call.function {
//!     FunctionId(0) => Ok(Arc::new(vec![7; 100_000])),
//!     _ => Ok(Arc::new(inputs[0].iter().zip(&*inputs[1]).map(|(x, y)| x + y).collect())),
//! };
//! let outcome = Ranks::of(&world).run(&graph, &plan, &Progress::default(), call)?;
//! if let Some(mut outcome) = outcome {
//!     assert_eq!(outcome.take(sum)?, Some(Arc::new(vec![14; 100_000])));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it is: rank 0 takes the decisions of [`bdrun_graph::run::Dispatch`], the others run tasks and move
//! results to scratch and back. A result is put once into memory that all of them map (a memfd), where tasks
//! are given it as it lies. What it is not: an execution over several nodes, which is an error that says so.
//! How much memory it takes beside the budget, and what a task costs: the README.
//!
//! | module | answers |
//! |---|---|
//! | `desk` | pure: who does what, where results lie |
//! | `room` | pure: places in shared memory, and which pages go back |
//! | `wire` | what ranks tell each other |
//! | `perform` | doing it |
//! | `memory` | what they share |
//! | `outcome` | what is left of it, and how much of the budget that is |

mod desk;
mod memory;
mod outcome;
mod perform;
mod room;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bdrun_graph::plan::{Action, Plan};
use bdrun_graph::run::{
    Block, Call, Failure, Lend, Program, Progress, RunError, Step, What, scratch_directory,
};
use bdrun_graph::{Graph, TaskId};
use bdrun_worker::{Communicator, Source, World};
use hashbrown::HashMap;

use desk::{Desk, Finished, HOME, Kept, Task};
use memory::Memory;
use outcome::{Counted, Shared};
use perform::perform;
use room::PAGE;
use wire::{Answer, Hello, Order, Welcome};

pub use outcome::Outcome;
pub use room::pages;

/// Tags of messages.
const HELLO: u32 = 1;
const ORDER: u32 = 2;
const ANSWER: u32 = 3;

/// Why an execution ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What rank 0 is told.
    #[error(transparent)]
    Run(#[from] RunError),
    /// What the others are told.
    #[error("rank 0 says: {0}")]
    Elsewhere(String),
    /// Memory or scratch that ranks share is not to be had.
    #[error("what ranks share cannot be {what}: {error}")]
    Shared {
        /// "made" or "opened".
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// Ranks do not run the same, or not on one machine.
    #[error("rank {rank} {what}")]
    Differ {
        /// The first of those that do not do what rank 0 does.
        rank: usize,
        /// What it does.
        what: &'static str,
    },
    /// A rank cannot open it.
    #[error("rank {rank} cannot open what ranks share: {why}")]
    Refused {
        /// The first of those that cannot.
        rank: usize,
        /// Why.
        why: String,
    },
    /// Messages cannot be sent or received.
    #[error(transparent)]
    Messages(#[from] bdrun_worker::Error),
}

/// Says whether rank 0 runs a task itself.
type IsHome<'a> = dyn Fn(&Graph, TaskId) -> bool + 'a;

/// The ranks of a communicator.
pub struct Ranks<'a> {
    comm: &'a Communicator,
    world: Option<&'a World>,
    scratch: PathBuf,
    is_home: Box<IsHome<'a>>,
    data: u128,
}

impl std::fmt::Debug for Ranks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ranks, scratch on {}", self.comm.size(), self.scratch.display())
    }
}

impl<'a> Ranks<'a> {
    /// All ranks of the job. The plan's budget is counted in that of the job while it runs.
    pub fn of(world: &'a World) -> Self {
        Self { world: Some(world), ..Self::on(world.communicator()) }
    }

    /// Those of a communicator of one node. The budget is counted nowhere else.
    pub fn on(comm: &'a Communicator) -> Self {
        Self { comm, world: None, scratch: scratch_directory(), is_home: Box::new(|_, _| false), data: 0 }
    }

    /// The directory, on a disk, for what does not fit: of rank 0; what is written to one in memory stays
    /// there, beside the budget. Default: [`scratch_directory`].
    #[must_use]
    pub fn scratch(self, directory: &Path) -> Self {
        Self { scratch: directory.into(), ..self }
    }

    /// What stands for the data that functions read. That all ranks have the same is seen to before anything
    /// runs, as of graph and plan.
    #[must_use]
    pub fn data(self, identity: u128) -> Self {
        Self { data: identity, ..self }
    }

    /// Tasks that rank 0 runs itself, because what they write to, say, only it has open. It has little else
    /// to do, but says nothing to others meanwhile.
    #[must_use]
    pub fn at_home(self, is_home: impl Fn(&Graph, TaskId) -> bool + 'a) -> Self {
        Self { is_home: Box::new(is_home), ..self }
    }

    /// Runs a plan of the graph, the same on all ranks (a collective). `call` computes, as for
    /// [`Threads`](bdrun_graph::run::Threads): each task on one rank. It may keep nothing of what it is
    /// given but copies. On rank 0 the outcome; with one rank that runs all.
    ///
    /// # Errors
    /// The first thing that went wrong, on rank 0; the others are told of it ([`Error::Elsewhere`]). Tasks
    /// that run are finished before.
    pub fn run<V: Block + Lend>(
        &self,
        graph: &Graph,
        plan: &Plan,
        progress: &Progress,
        call: impl Fn(Call, Vec<V>) -> Result<V, Failure>,
    ) -> Result<Option<Outcome<'a>>, Error> {
        let hello = Hello { digest: digest(graph, plan), data: self.data, boot: boot() };
        // Messages of its own: whatever the program sends meanwhile.
        let comm = self.comm.duplicate()?;
        let this = Running { ranks: self, comm: &comm };
        if comm.rank() != HOME {
            this.follow(graph, &hello, call)?;
            return Ok(None);
        }
        this.lead(graph, plan, &hello, progress, call).map(Some)
    }
}

/// Ranks while they run.
struct Running<'r, 'a> {
    ranks: &'r Ranks<'a>,
    comm: &'r Communicator,
}

impl<'a> Running<'_, 'a> {
    /// Ranks other than 0.
    fn follow<V: Block + Lend>(
        &self,
        graph: &Graph,
        hello: &Hello,
        call: impl Fn(Call, Vec<V>) -> Result<V, Failure>,
    ) -> Result<(), Error> {
        self.comm.send_value(HOME, HELLO, hello)?;
        let memory = match self.comm.recv_value::<Welcome>(HOME, HELLO)?.0 {
            Welcome::Refused(why) => return Err(Error::Elsewhere(why)),
            Welcome::Shared(names) => Memory::open(&names),
        };
        self.comm.send_value(HOME, HELLO, &memory.as_ref().map_err(ToString::to_string).err())?;
        let memory = Arc::new(memory.map_err(|error| Error::Shared { what: "opened", error })?);
        loop {
            match self.comm.recv_value::<Order>(HOME, ORDER)?.0 {
                Order::End(None) => return Ok(()),
                Order::End(Some(why)) => return Err(Error::Elsewhere(why)),
                order => {
                    let answer = perform(graph, &memory, order, &call);
                    self.comm.send_value(HOME, ANSWER, &answer)?;
                }
            }
        }
    }

    fn lead<V: Block + Lend>(
        &self,
        graph: &Graph,
        plan: &Plan,
        hello: &Hello,
        progress: &Progress,
        call: impl Fn(Call, Vec<V>) -> Result<V, Failure>,
    ) -> Result<Outcome<'a>, Error> {
        // Of addresses there are enough that results of all sizes lie one behind another; of the memory no
        // more is used than the budget.
        let len = plan.budget.saturating_mul(16).clamp(1 << 26, 1 << 44).next_multiple_of(PAGE);
        let pages = pages(graph, plan);
        let shared = Counted::new(self.ranks.world, pages).map_err(Error::from).and_then(|counted| {
            let memory = Memory::make(len, &self.ranks.scratch);
            Ok(Shared::new(memory.map_err(|error| Error::Shared { what: "made", error })?, counted))
        });
        let mut shared = self.welcome(hello, shared)?;
        let program = Program::new(graph, plan);
        let is_home = |task| (self.ranks.is_home)(graph, task);
        let desk = Desk::new(graph, &program, (pages, len), self.comm.size(), is_home);
        let seconds = |step: &Step| if let Step::Run(task) = step { graph.seconds(*task) } else { 0.0 };
        progress.begin(program.steps().len() as u64, program.steps().iter().map(seconds).sum());
        let lead = Lead { comm: self.comm, graph, program: &program, memory: &shared.memory, progress };
        let (is_used, ended) = lead.run(desk, call);
        if !is_used {
            shared.is_used_no_more();
        }
        let told = self.end(1..self.comm.size(), ended.as_ref().err().map(ToString::to_string));
        // What went wrong first is said, also if then nobody can be told of it.
        let (kept, peak) = ended?;
        told?;
        Ok(Outcome::new(shared, kept, peak))
    }

    /// Who waits for orders is told that there are no more.
    fn end(&self, ranks: impl IntoIterator<Item = usize>, why: Option<String>) -> Result<(), Error> {
        let order = Order::End(why);
        ranks.into_iter().try_for_each(|rank| Ok(self.comm.send_value(rank, ORDER, &order)?))
    }

    /// Tells all where the memory is, if all are about to do the same; or why nobody goes on.
    fn welcome(&self, hello: &Hello, shared: Result<Shared<'a>, Error>) -> Result<Shared<'a>, Error> {
        let others = || 1..self.comm.size();
        let mut differs = None;
        for rank in others() {
            let theirs = self.comm.recv_value::<Hello>(rank, HELLO)?.0;
            let what = if theirs.boot != hello.boot {
                "is on another node, and shares no memory with rank 0: a graph runs on the ranks of one node"
            } else if theirs.data != hello.data {
                "reads other data than rank 0"
            } else if theirs.digest != hello.digest {
                "runs another graph or plan than rank 0: all are to make the same from the same data"
            } else {
                continue;
            };
            differs.get_or_insert(Error::Differ { rank, what });
        }
        let named = differs.map_or(shared, Err).and_then(|shared| {
            let names = shared.memory.names().map_err(|error| Error::Shared { what: "made", error })?;
            Ok((shared, names))
        });
        let welcome = match &named {
            Ok((_, names)) => Welcome::Shared(names.clone()),
            Err(error) => Welcome::Refused(error.to_string()),
        };
        for rank in others() {
            self.comm.send_value(rank, HELLO, &welcome)?;
        }
        let (shared, _) = named?;
        let (mut refused, mut waiting) = (None, Vec::new());
        for rank in others() {
            match self.comm.recv_value::<Option<String>>(rank, HELLO)?.0 {
                Some(why) => _ = refused.get_or_insert(Error::Refused { rank, why }),
                None => waiting.push(rank),
            }
        }
        let Some(error) = refused else { return Ok(shared) };
        // Those that could open it wait for orders.
        _ = self.end(waiting, Some(error.to_string()));
        Err(error)
    }
}

/// Rank 0 while it runs.
struct Lead<'r> {
    comm: &'r Communicator,
    graph: &'r Graph,
    program: &'r Program,
    memory: &'r Arc<Memory>,
    progress: &'r Progress,
}

/// What is kept, and what was live at most.
type Ended = Result<(HashMap<TaskId, Kept>, u64), Error>;

impl Lead<'_> {
    /// Runs all. And says whether somebody may still use what lies in shared memory: a rank that has not
    /// answered, or a function that has kept what it was given.
    fn run<V: Block + Lend>(
        &self,
        mut desk: Desk<'_>,
        call: impl Fn(Call, Vec<V>) -> Result<V, Failure>,
    ) -> (bool, Ended) {
        if let Err(error) = self.rounds(&mut desk, call) {
            return (true, Err(error));
        }
        let ([_, peak], is_used) = (desk.live(), desk.is_used());
        (is_used, desk.into_kept().map(|kept| (kept, peak)).map_err(Error::from))
    }

    /// Until there is nothing more to do, and nobody does anything.
    fn rounds<V: Block + Lend>(
        &self,
        desk: &mut Desk<'_>,
        call: impl Fn(Call, Vec<V>) -> Result<V, Failure>,
    ) -> Result<(), Error> {
        let comm = self.comm;
        let mut home: VecDeque<(usize, Order)> = VecDeque::new();
        loop {
            if self.progress.is_cancelled() && !desk.is_done() {
                desk.end(RunError::Cancelled);
            }
            if desk.has_failed() {
                // What was to be done next is not.
                home.clear();
            }
            while let Some(Task { rank, step, order, cold }) = desk.next() {
                for extent in cold {
                    if let Err(error) = self.memory.give_back(extent.at, extent.len) {
                        desk.end(self.lost(step, error));
                    }
                }
                self.progress.note(What::Begin(self.program.steps()[step]), desk.live()[0]);
                if rank == HOME {
                    home.push_back((step, order));
                } else {
                    comm.send_value(rank, ORDER, &order)?;
                }
            }
            // The others first: they wait.
            let is_there = !home.is_empty() && comm.iprobe(Source::Any, ANSWER)?.is_some();
            if (home.is_empty() || is_there) && desk.is_awaited() {
                let (answer, status) = comm.recv_value::<Answer>(Source::Any, ANSWER)?;
                self.finish(desk, status.source, None, answer);
            } else if let Some((step, order)) = home.pop_front() {
                let answer = perform(self.graph, self.memory, order, &call);
                self.finish(desk, HOME, Some(step), answer);
            } else {
                return Ok(());
            }
        }
    }

    fn finish(&self, desk: &mut Desk<'_>, rank: usize, step: Option<usize>, answer: Answer) {
        let Some(Finished { step, released }) = desk.answer(rank, step, answer) else { return };
        let this = self.program.steps()[step];
        let [live, _] = desk.live();
        self.progress.note(What::End(this), live);
        released.into_iter().for_each(|task| self.progress.note(What::Release(task), live));
        self.progress.finish(if let Step::Run(task) = this { self.graph.seconds(task) } else { 0.0 });
    }

    fn lost(&self, step: usize, error: io::Error) -> RunError {
        desk::lost(self.graph, self.program.steps()[step].task(), error)
    }
}

/// What stands for a graph and a plan: what is computed from what, and when.
fn digest(graph: &Graph, plan: &Plan) -> u64 {
    let mut hasher = DefaultHasher::new();
    (graph.len(), plan.budget, plan.actions.len()).hash(&mut hasher);
    for task in graph.tasks() {
        let inputs = graph.inputs(task).map(TaskId::index).collect::<Vec<_>>();
        graph.programs().steps(graph.body(task), inputs.len()).hash(&mut hasher);
        (inputs, graph.bytes(task), graph.output(task)).hash(&mut hasher);
    }
    for &action in &plan.actions {
        let (kind, task) = match action {
            Action::Run(task) => (0, task),
            Action::Write(task) => (1, task),
            Action::Read(task) => (2, task),
            Action::Drop(task) => (3, task),
        };
        (kind, task.index()).hash(&mut hasher);
    }
    hasher.finish()
}

/// What tells this machine, since it was started, from others.
fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}
