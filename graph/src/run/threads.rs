//! Steps on threads of this process.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use hashbrown::HashMap;

use super::dispatch::Dispatch;
use super::failure::{Failure, Named, RunError};
use super::program::{Program, Step};
use super::progress::Progress;
use super::store::Store;
use super::task::{Block, Call, checked, run_task};
use super::trace::What;
use crate::graph::{Graph, Output, TaskId};
use crate::plan::Plan;

/// On how many threads to run. Where the system has not so many left, fewer do it ([`Outcome::lacked`]).
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// Threads that compute. They transfer too when they have nothing else to do.
    pub compute: usize,
    /// Threads that only transfer, if anything is to be transferred: they read ahead and write behind.
    pub transfer: usize,
}

impl Default for Threads {
    fn default() -> Self {
        Self { compute: std::thread::available_parallelism().map_or(1, usize::from), transfer: 1 }
    }
}

/// Results of so many bytes are freed with the lock: that takes less than to take it twice.
const SMALL: u64 = 64 << 10;

/// What is left when all has run. What of it is on scratch is released with it.
#[derive(Debug)]
pub struct Outcome<'s, V, S: Store<V>> {
    /// Results that are kept, in memory.
    here: HashMap<TaskId, V>,
    /// Those that are on scratch.
    out: HashMap<TaskId, Arc<S::Place>>,
    store: &'s S,
    /// Bytes of results and work that were live at most.
    pub peak: u64,
    /// Threads that were asked for and that the system did not have.
    pub lacked: usize,
}

impl<V, S: Store<V>> Outcome<'_, V, S> {
    /// A result that is kept, from scratch if it is there. None if it was taken, or is not kept.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn take(&mut self, task: TaskId) -> std::io::Result<Option<V>> {
        if let Some(value) = self.here.remove(&task) {
            return Ok(Some(value));
        }
        let Some(place) = self.out.get(&task) else { return Ok(None) };
        let value = self.store.read(task, place)?;
        release(self.store, self.out.remove(&task));
        Ok(Some(value))
    }
}

impl<V, S: Store<V>> Drop for Outcome<'_, V, S> {
    fn drop(&mut self) {
        release(self.store, self.out.drain().map(|(_, place)| place));
    }
}

fn release<V, S: Store<V>>(store: &S, places: impl IntoIterator<Item = Arc<S::Place>>) {
    places.into_iter().filter_map(Arc::into_inner).for_each(|place| store.release(place));
}

impl Threads {
    /// Runs a plan of the graph. `call` computes; it is given its arguments themselves where nobody else will
    /// use them ([`crate::Programs::evaluate`]), so that it may write in their place. What moves out goes to
    /// `store`.
    ///
    /// # Errors
    /// The first thing that went wrong; no step starts after that, and those that run are finished.
    ///
    /// # Panics
    /// If the store panics, or a value as it is dropped. (A function that panics is an error.)
    pub fn run<'s, V: Block, S: Store<V>>(
        self,
        graph: &Graph,
        plan: &Plan,
        store: &'s S,
        progress: &Progress,
        call: impl Fn(Call, Vec<V>) -> Result<V, Failure> + Sync,
    ) -> Result<Outcome<'s, V, S>, RunError> {
        let program = Program::new(graph, plan);
        let (mut seconds, mut reads) = (0.0, HashMap::new());
        let mut is_transferring = false;
        for step in &program.steps {
            match step {
                Step::Run(task) => seconds += graph.seconds(*task),
                Step::Read(task) => *reads.entry(*task).or_insert(0) += 1,
                Step::Write(_) => is_transferring = true,
            }
        }
        progress.begin(program.steps.len() as u64, seconds);
        let shared = Shared {
            dispatch: Dispatch::new(&program),
            values: std::iter::repeat_with(|| None).take(program.steps.len()).collect(),
            places: HashMap::new(),
            reads,
            waiting: [0, 0],
            error: None,
            freeing: 0,
        };
        let execution = Execution {
            graph,
            program: &program,
            store,
            progress,
            call,
            shared: Mutex::new(shared),
            wake: Default::default(),
        };
        let transfer = if is_transferring { self.transfer } else { 0 };
        // This thread does all kinds of steps, so those are enough that there are.
        let (compute, mut lacked) = (self.compute.max(1), 0);
        std::thread::scope(|scope| {
            let others = 1..compute + transfer;
            for thread in others.clone() {
                let execution = &execution;
                let work = move || execution.work(thread >= compute);
                if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    lacked = others.end - thread;
                    break;
                }
            }
            execution.work(false);
        });
        let mut shared = execution.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Whatever comes of it, the store is left as it was.
        let mut outcome =
            Outcome { here: HashMap::new(), out: shared.places, store, peak: shared.dispatch.most(), lacked };
        if let Some(error) = shared.error {
            return Err(error);
        }
        for &(task, stay) in &program.kept {
            release(store, outcome.out.remove(&task));
            outcome.here.extend(shared.values[stay as usize].take().map(|value| (task, value)));
        }
        Ok(outcome)
    }
}

struct Shared<'a, V, P> {
    dispatch: Dispatch<'a>,
    /// The value of each stay.
    values: Vec<Option<V>>,
    /// Where results are on scratch.
    places: HashMap<TaskId, Arc<P>>,
    /// How many times each is still read from there.
    reads: HashMap<TaskId, u32>,
    /// Threads that wait: of those that compute, and of those that only transfer.
    waiting: [usize; 2],
    /// Threads that give memory back, of steps that do not run any more.
    freeing: usize,
    error: Option<RunError>,
}

struct Execution<'a, V, S: Store<V>, F> {
    graph: &'a Graph,
    program: &'a Program,
    store: &'a S,
    progress: &'a Progress,
    call: F,
    shared: Mutex<Shared<'a, V, S::Place>>,
    wake: [Condvar; 2],
}

/// What a thread is to do, with what it needs for it.
enum Job<V, P> {
    Run(TaskId, Vec<V>),
    Write(TaskId, V),
    Read(TaskId, Arc<P>),
}

type Finished<V, S> = Result<Done<V, <S as Store<V>>::Place>, RunError>;

/// What came of it.
enum Done<V, P> {
    Value(V),
    Written(P),
}

/// Ends the other threads if this one panics, in a store or as a value is dropped: they would wait for its
/// step.
struct Alarm<'e, 'a, V, S: Store<V>, F>(&'e Execution<'a, V, S, F>);

impl<V, S: Store<V>, F> Drop for Alarm<'_, '_, V, S, F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.error.get_or_insert(RunError::Cancelled);
            self.0.wake.iter().for_each(Condvar::notify_all);
        }
    }
}

impl<V: Block, S: Store<V>, F: Fn(Call, Vec<V>) -> Result<V, Failure> + Sync> Execution<'_, V, S, F> {
    /// A thread: starts one step after the other until there are no more.
    fn work(&self, only_transfer: bool) {
        let _alarm = Alarm(self);
        let mut released: Vec<V> = Vec::new();
        let mut gone: Vec<S::Place> = Vec::new();
        let mut released_tasks: Vec<TaskId> = Vec::new();
        let mut finished: Option<(usize, Finished<V, S>)> = None;
        loop {
            let next = {
                // Nothing panics while it is held but by a defect, which then shows.
                let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((step, result)) = finished.take() {
                    let freed =
                        self.finish(&mut shared, step, result, &mut released, &mut released_tasks, &mut gone);
                    // Bytes are given back when they are free. To free much may take long, so not with the
                    // lock.
                    if freed > SMALL || !gone.is_empty() {
                        shared.freeing += 1;
                        drop(shared);
                        released.clear();
                        gone.drain(..).for_each(|place| self.store.release(place));
                        shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                        shared.freeing -= 1;
                    } else {
                        released.clear();
                    }
                    shared.dispatch.give_back(freed);
                    if let Some(trace) = self.progress.trace() {
                        let live = shared.dispatch.used();
                        released_tasks.drain(..).for_each(|task| trace.note(What::Release(task), live));
                    }
                    for kind in 0..2 {
                        if shared.waiting[kind] > 0 {
                            self.wake[kind].notify_all();
                        }
                    }
                }
                loop {
                    if shared.error.is_none() && self.progress.is_cancelled() && !shared.dispatch.is_done() {
                        shared.error = Some(RunError::Cancelled);
                    }
                    if shared.error.is_some() || shared.dispatch.is_done() {
                        break None;
                    }
                    let dispatch = &mut shared.dispatch;
                    let step = if only_transfer { None } else { dispatch.start(false) };
                    if let Some(step) = step.or_else(|| dispatch.start(true)) {
                        if let Some(trace) = self.progress.trace() {
                            trace.note(What::Begin(self.program.steps[step]), dispatch.used());
                        }
                        break Some((step, self.job(&mut shared, step)));
                    }
                    // Bytes that are being given back the next step may wait for.
                    if !only_transfer && dispatch.running() == 0 && shared.freeing == 0 {
                        shared.error = Some(RunError::Stuck);
                        continue;
                    }
                    let kind = usize::from(only_transfer);
                    shared.waiting[kind] += 1;
                    shared = self.wake[kind].wait(shared).unwrap_or_else(PoisonError::into_inner);
                    shared.waiting[kind] -= 1;
                }
            };
            let Some((step, job)) = next else { break };
            finished = Some((step, self.perform(job)));
        }
        self.wake.iter().for_each(Condvar::notify_all);
    }

    /// What a step needs.
    fn job(&self, shared: &mut Shared<'_, V, S::Place>, step: usize) -> Job<V, S::Place> {
        let present = "a stay has its value until its last use";
        match self.program.steps[step] {
            Step::Run(task) => {
                let stays = self.program.arguments.row(step);
                let value = |&stay: &u32| shared.values[stay as usize].clone().expect(present);
                let arguments = stays.iter().map(value).collect();
                // Of what is used for the last time the arguments are all that is left.
                for &stay in self.program.uses.row(step) {
                    if shared.dispatch.is_last_use(stay as usize) {
                        shared.values[stay as usize] = None;
                    }
                }
                Job::Run(task, arguments)
            }
            Step::Write(task) => {
                let stay = self.program.arguments.row(step)[0] as usize;
                Job::Write(task, shared.values[stay].clone().expect(present))
            }
            Step::Read(task) => Job::Read(task, shared.places[&task].clone()),
        }
    }

    fn perform(&self, job: Job<V, S::Place>) -> Finished<V, S> {
        let store_error = |task: TaskId, what: &'static str, error| RunError::Store {
            task: Named::new(self.graph, task),
            what,
            error,
        };
        match job {
            Job::Write(task, value) => match self.store.write(task, &value) {
                Ok(place) => Ok(Done::Written(place)),
                Err(error) => Err(store_error(task, "written to", error)),
            },
            Job::Read(task, place) => match self.store.read(task, &place) {
                Ok(value) => checked(self.graph, task, value).map(Done::Value),
                Err(error) => Err(store_error(task, "read from", error)),
            },
            Job::Run(task, arguments) => run_task(self.graph, task, arguments, &self.call).map(Done::Value),
        }
    }

    fn finish(
        &self,
        shared: &mut Shared<'_, V, S::Place>,
        step: usize,
        result: Finished<V, S>,
        released: &mut Vec<V>,
        released_tasks: &mut Vec<TaskId>,
        gone: &mut Vec<S::Place>,
    ) -> u64 {
        let task = self.program.steps[step].task();
        match result {
            Err(error) => {
                // The first one tells.
                shared.error.get_or_insert(error);
                return 0;
            }
            Ok(Done::Value(value)) => shared.values[step] = Some(value),
            Ok(Done::Written(place)) => _ = shared.places.insert(task, Arc::new(place)),
        }
        let values = &mut shared.values;
        let trace = self.progress.trace();
        let freed = shared.dispatch.finish(step, |stay| {
            released.extend(values[stay].take());
            if trace.is_some() {
                released_tasks.push(self.program.steps[stay].task());
            }
        });
        if let Some(trace) = trace {
            trace.note(What::End(self.program.steps[step]), shared.dispatch.used());
        }
        let mut cost = 0.0;
        match self.program.steps[step] {
            Step::Run(task) => cost = self.graph.seconds(task),
            Step::Read(task) => {
                let reads = shared.reads.get_mut(&task).expect("reads were counted");
                *reads -= 1;
                if *reads == 0 && self.graph.output(task) != Output::Kept {
                    gone.extend(shared.places.remove(&task).and_then(Arc::into_inner));
                }
            }
            Step::Write(_) => (),
        }
        self.progress.finish(cost);
        freed
    }
}
