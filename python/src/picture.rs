//! A run as a page.

use std::time::Instant;

use bdrun_graph::draw;
use bdrun_graph::online::{Effect, Event, Online, Place};
use bdrun_graph::run::{Event as Noted, Step, What};
use bdrun_graph::{Builder, FunctionId, Inputs, Task};

/// What happened when.
#[derive(Debug)]
pub(crate) struct Trace {
    began: Instant,
    events: Vec<Noted>,
}

impl Default for Trace {
    fn default() -> Self {
        Self { began: Instant::now(), events: Vec::new() }
    }
}

impl Trace {
    fn note(&mut self, what: What, live: u64) {
        self.events.push(Noted { at: self.began.elapsed(), what, live });
    }

    /// Something has happened, after which so much is live.
    pub(crate) fn heard(&mut self, event: Event, live: u64) {
        match event {
            Event::Done { task, .. } => self.note(What::End(Step::Run(task)), live),
            Event::Written(task) => self.note(What::End(Step::Write(task)), live),
            Event::Read(task) => self.note(What::End(Step::Read(task)), live),
            Event::Stored(_) | Event::Died(_) | Event::Took(..) | Event::Budget(_) => {}
        }
    }

    /// Something is to be done.
    pub(crate) fn told(&mut self, effect: Effect, live: u64) {
        match effect {
            Effect::Run { task, .. } => self.note(What::Begin(Step::Run(task)), live),
            Effect::Write(task) => self.note(What::Begin(Step::Write(task)), live),
            Effect::Read(task) => self.note(What::Begin(Step::Read(task)), live),
            Effect::Forget(task, Place::Memory) => self.note(What::Release(task), live),
            Effect::Forget(_, Place::Scratch) | Effect::Store(..) => {}
        }
    }

    /// The page; `names` has a line for each task.
    pub(crate) fn page(&self, online: &Online, names: &str) -> Result<String, String> {
        let (graph, mut names) = (online.graph(), names.lines());
        let mut builder = Builder::default();
        let keys: Vec<String> = graph.tasks().map(|task| graph.key(task).to_owned()).collect();
        for task in graph.tasks() {
            let inputs: Vec<&str> = graph.needs(task).map(|input| &*keys[input.index()]).collect();
            let origin = names.next().unwrap_or_default();
            let named = Task {
                bytes: graph.bytes(task),
                output: graph.output(task),
                origin,
                ..Task::new(&keys[task.index()], FunctionId(0), Inputs::Keys(&inputs))
            };
            builder.add(named).map_err(|error| error.to_string())?;
        }
        let graph = builder.build().map_err(|error| error.to_string())?;
        draw::page(&graph, online.order(), &self.events, online.budget()).map_err(|error| error.to_string())
    }
}
