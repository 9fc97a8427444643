//! What rank 0 knows and decides: a state machine without messages, memory or a clock. [`Desk::next`] says
//! who does what, [`Desk::answer`] takes what came of it. Which step starts when, and why the budget is kept
//! and nothing gets stuck, is `bdrun_graph::run::Dispatch`; here is who does it, and where results lie.
//!
//! A place in shared memory belongs to one order from when it is given out (`into`) until that is answered,
//! and then to all who are told of it, until the last of them has answered. So nobody writes what another
//! reads.

use std::io;

use bdrun_graph::run::{Dispatch, Gaps, Named, Program, RunError, Step};
use bdrun_graph::{Graph, Output, TaskId};
use hashbrown::HashMap;

use crate::room::{Extent, Room};
use crate::wire::{Answer, Bytes, Fault, Order, Part, TOLD};

/// Rank 0 itself.
pub(crate) const HOME: usize = 0;

/// Where a result is on scratch.
#[derive(Clone, Debug)]
struct Place {
    at: u64,
    part: Bytes,
    head: Vec<u8>,
}

pub(crate) struct Desk<'a> {
    graph: &'a Graph,
    program: &'a Program,
    dispatch: Dispatch<'a>,
    /// Steps of tasks that only rank 0 may run.
    is_home: Vec<bool>,
    /// The result of each stay, once it is made.
    parts: Vec<Option<Part>>,
    /// Where each step that runs puts its result.
    into: HashMap<usize, Extent>,
    places: HashMap<TaskId, Place>,
    /// How many times each is still read from there.
    reads: HashMap<TaskId, u32>,
    room: Room,
    scratch: Gaps,
    /// Where the results lie that are being written.
    written: HashMap<usize, u64>,
    idle: Vec<usize>,
    /// What each rank does.
    busy: Vec<Option<usize>>,
    /// Steps that rank 0 is to do, or does.
    at_home: usize,
    /// There is none but rank 0.
    alone: bool,
    /// A function has kept what it was given.
    is_kept: bool,
    ended: Option<RunError>,
}

/// What there is to do now.
pub(crate) struct Task {
    /// By whom.
    pub rank: usize,
    /// The step of the program.
    pub step: usize,
    pub order: Order,
    /// Places whose pages go back to the kernel before.
    pub cold: Vec<Extent>,
}

/// A step is done.
#[derive(Debug, PartialEq)]
pub(crate) struct Finished {
    pub step: usize,
    /// Tasks whose results were released with it.
    pub released: Vec<TaskId>,
}

impl<'a> Desk<'a> {
    /// For so many ranks, and shared memory of so many bytes. `is_home` names the tasks that rank 0 runs
    /// itself.
    pub fn new(
        graph: &'a Graph,
        program: &'a Program,
        (budget, memory): (u64, u64),
        ranks: usize,
        is_home: impl Fn(TaskId) -> bool,
    ) -> Self {
        let steps = program.steps();
        let is_home = steps.iter().map(|step| matches!(step, Step::Run(task) if is_home(*task))).collect();
        let mut reads = HashMap::new();
        for step in steps {
            if let Step::Read(task) = step {
                *reads.entry(*task).or_insert(0) += 1;
            }
        }
        Self {
            graph,
            program,
            dispatch: Dispatch::new(program),
            is_home,
            parts: vec![None; steps.len()],
            into: HashMap::new(),
            places: HashMap::new(),
            reads,
            room: Room::new(budget, memory),
            scratch: Gaps::default(),
            written: HashMap::new(),
            idle: (1..ranks).rev().collect(),
            busy: vec![None; ranks],
            at_home: 0,
            alone: ranks == 1,
            is_kept: false,
            ended: None,
        }
    }

    /// A step that starts now, if one can and there is somebody to do it. What rank 0 is to do itself it does
    /// when it has nothing else to say.
    pub fn next(&mut self) -> Option<Task> {
        if self.ended.is_some() || self.dispatch.is_done() {
            return None;
        }
        if self.alone && self.at_home > 0 || !self.alone && self.idle.is_empty() {
            return None;
        }
        let step = self.dispatch.start(false).or_else(|| self.dispatch.start(true));
        let Some(step) = step else {
            if self.dispatch.running() == 0 {
                self.ended = Some(RunError::Stuck);
            }
            return None;
        };
        let mut cold = Vec::new();
        let order = match self.order(step, &mut cold) {
            Ok(order) => order,
            Err(error) => {
                self.ended = Some(error);
                return None;
            }
        };
        let is_told = |part: &Part| matches!(part.bytes, Bytes::Told(_));
        let told = match &order {
            // What is told is at rank 0.
            Order::Write { part, .. } => is_told(part),
            Order::Read { into, .. } => into.is_none(),
            _ => false,
        };
        let rank =
            if self.alone || told || self.is_home[step] { HOME } else { self.idle.pop().unwrap_or(HOME) };
        if rank == HOME {
            self.at_home += 1;
        } else {
            self.busy[rank] = Some(step);
        }
        Some(Task { rank, step, order, cold })
    }

    fn order(&mut self, step: usize, cold: &mut Vec<Extent>) -> Result<Order, RunError> {
        let present = "a stay has its result until its last use";
        let part = |desk: &Self, stay: u32| desk.parts[stay as usize].clone().expect(present);
        let arguments = self.program.arguments(step);
        Ok(match self.program.steps()[step] {
            Step::Run(task) => {
                let inputs = arguments.iter().map(|&stay| part(self, stay)).collect();
                let into = self.place(step, self.graph.bytes(task), cold)?;
                Order::Run { task: task.index() as u32, inputs, into }
            }
            Step::Write(_) => {
                let part = part(self, arguments[0]);
                let to = self.scratch.take(part.bytes.len());
                self.written.insert(step, to);
                Order::Write { part, to }
            }
            Step::Read(task) => {
                let Place { at, part, .. } = &self.places[&task];
                let (from, len) = (*at, part.len());
                let into = self.place(step, len, cold)?;
                Order::Read { from, len, into }
            }
        })
    }

    /// Where a result of so many bytes at most goes; nowhere if it is told.
    fn place(&mut self, step: usize, len: u64, cold: &mut Vec<Extent>) -> Result<Option<u64>, RunError> {
        if len <= TOLD {
            return Ok(None);
        }
        let Some(at) = self.room.take(len, |extent| cold.push(extent)) else {
            // There are many times as many as the budget has bytes: see `Running::lead`.
            let why = format!("no {len} bytes of addresses one after the other are left");
            let error = io::Error::new(io::ErrorKind::OutOfMemory, why);
            return Err(lost(self.graph, self.program.steps()[step].task(), error));
        };
        self.into.insert(step, Extent { at, len });
        Ok(Some(at))
    }

    /// What a rank has answered; of rank 0 it is said which step it was.
    pub fn answer(&mut self, rank: usize, step: Option<usize>, answer: Answer) -> Option<Finished> {
        let step = if rank == HOME {
            self.at_home -= 1;
            step
        } else {
            self.idle.push(rank);
            self.busy[rank].take()
        }?;
        let task = self.program.steps()[step].task();
        let into = self.into.remove(&step);
        match (self.program.steps()[step], answer) {
            (_, Answer::Failed(fault, keeps)) => {
                self.is_kept |= keeps;
                let error = self.error(step, rank, fault);
                self.ended.get_or_insert(error);
                return None;
            }
            (Step::Run(_), Answer::Made(part)) => {
                let len = part.bytes.len();
                let fits = match (&part.bytes, into) {
                    (Bytes::Told(_), _) => len <= TOLD,
                    (Bytes::Lie { at, .. }, Some(into)) => *at == into.at && len <= into.len,
                    (Bytes::Lie { .. }, None) => false,
                };
                if !fits || len > self.graph.bytes(task) {
                    self.ended.get_or_insert(self.error(step, rank, Fault::Size(len)));
                    return None;
                }
                self.keep(step, into, part);
            }
            (Step::Read(_), Answer::Read(bytes)) => {
                let Place { head, .. } = &self.places[&task];
                let part = Part { head: head.clone(), bytes };
                self.keep(step, into, part);
                self.was_read(task);
            }
            (Step::Write(_), Answer::Written) => {
                let part = self.parts[self.program.arguments(step)[0] as usize].as_ref();
                let Part { head, bytes } = part.expect("it was there to be written");
                let at = self.written.remove(&step).expect("it was told where to");
                let place = Place { at, part: length(bytes), head: head.clone() };
                self.places.insert(task, place);
            }
            _ => {
                self.ended.get_or_insert(RunError::Stuck);
                return None;
            }
        }
        let mut released = Vec::new();
        let freed = self.dispatch.finish(step, |stay| released.push(stay));
        self.dispatch.give_back(freed);
        for &stay in &released {
            if let Some(Part { bytes: Bytes::Lie { at, len }, .. }) = self.parts[stay].take() {
                self.room.give(at, len);
            }
        }
        let released = released.into_iter().map(|stay| self.program.steps()[stay].task()).collect();
        Some(Finished { step, released })
    }

    /// A result is there: what it does not take of its place is free.
    fn keep(&mut self, step: usize, into: Option<Extent>, part: Part) {
        if let Some(into) = into {
            match &part.bytes {
                Bytes::Told(_) => self.room.give(into.at, into.len),
                Bytes::Lie { len, .. } => self.room.shorten(into, *len),
            }
        }
        self.parts[step] = Some(part);
    }

    /// After its last reading nobody reads it.
    fn was_read(&mut self, task: TaskId) {
        let Some(reads) = self.reads.get_mut(&task) else { return };
        *reads -= 1;
        if *reads == 0
            && self.graph.output(task) != Output::Kept
            && let Some(place) = self.places.remove(&task)
        {
            self.scratch.give(place.at, place.part.len());
        }
    }

    fn error(&self, step: usize, rank: usize, fault: Fault) -> RunError {
        let this = self.program.steps()[step];
        let task = this.task();
        let named = Named::new(self.graph, task);
        match fault {
            Fault::Task { step, cause } => {
                RunError::task(self.graph, task, step, format!("{cause} (on rank {rank})").into())
            }
            Fault::Size(bytes) => RunError::Size { task: named, bytes, declared: self.graph.bytes(task) },
            Fault::Scratch(text) => {
                let what = if matches!(this, Step::Write(_)) { "written to" } else { "read from" };
                RunError::Store { task: named, what, error: io::Error::other(text) }
            }
        }
    }

    /// No step starts any more.
    pub fn end(&mut self, error: RunError) {
        self.ended.get_or_insert(error);
    }

    /// Whether all is done.
    pub fn is_done(&self) -> bool {
        self.dispatch.is_done()
    }

    /// Whether something went wrong.
    pub fn has_failed(&self) -> bool {
        self.ended.is_some()
    }

    /// When rank 0 does nothing: whether a place in shared memory may still be read or written, by a rank
    /// that has not answered, or by a function that has kept it.
    pub fn is_used(&self) -> bool {
        self.is_kept || self.is_awaited()
    }

    /// Whether ranks other than 0 have something to do.
    pub fn is_awaited(&self) -> bool {
        self.busy.iter().any(Option::is_some)
    }

    /// Bytes of results and work that are live, now and at most.
    pub fn live(&self) -> [u64; 2] {
        [self.dispatch.used(), self.dispatch.most()]
    }

    /// When nothing runs any more: the results that are kept, each in memory or on scratch.
    pub fn into_kept(mut self) -> Result<HashMap<TaskId, Kept>, RunError> {
        if let Some(error) = self.ended {
            return Err(error);
        }
        if !self.dispatch.is_done() {
            return Err(RunError::Stuck);
        }
        let mut kept: HashMap<TaskId, Kept> = (self.places.into_iter())
            .map(|(task, place)| {
                (task, Kept { scratch: Some(place.at), head: place.head, bytes: place.part })
            })
            .collect();
        for &(task, stay) in self.program.kept() {
            if let Some(Part { head, bytes }) = self.parts[stay as usize].take() {
                kept.insert(task, Kept { scratch: None, head, bytes });
            }
        }
        Ok(kept)
    }
}

/// There is no room in shared memory for a result.
pub(crate) fn lost(graph: &Graph, task: TaskId, error: io::Error) -> RunError {
    let what = "given room in shared memory, or be written to";
    RunError::Store { task: Named::new(graph, task), what, error }
}

/// A result that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Where it is there, if it is.
    pub scratch: Option<u64>,
    pub head: Vec<u8>,
    /// Of what is on scratch only the length counts.
    pub bytes: Bytes,
}

/// Of what is on scratch the length, however it was handed over.
fn length(bytes: &Bytes) -> Bytes {
    Bytes::Lie { at: 0, len: bytes.len() }
}
