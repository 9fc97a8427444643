//! What a task computes: a function, or a program of functions that passes have put together.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::csr::Csr;

/// Names a function; what it does is known to whoever runs the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// Names what a task computes: a function, or a program of this graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BodyId(u32);

const HIGH: u32 = 1 << 31;

/// What a task computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// One function of the task's inputs, in their order.
    Function(FunctionId),
    /// Several functions; the last one's value is the result.
    Program(ProgramId),
}

/// A program of [`Programs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramId(u32);

impl BodyId {
    /// A function.
    ///
    /// # Panics
    /// If the function's number is 2^31 or more.
    pub fn function(function: FunctionId) -> Self {
        assert!(function.0 < HIGH, "functions have numbers below 2^31");
        Self(function.0)
    }

    fn program(program: ProgramId) -> Self {
        Self(program.0 | HIGH)
    }

    /// What it names.
    pub fn body(self) -> Body {
        if self.0 & HIGH == 0 {
            Body::Function(FunctionId(self.0))
        } else {
            Body::Program(ProgramId(self.0 & !HIGH))
        }
    }
}

/// What a step of a program is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    /// An input of the task, by its place.
    Input(u32),
    /// The value of an earlier step.
    Step(u32),
}

impl Argument {
    fn pack(self) -> u32 {
        match self {
            Self::Input(at) => at,
            Self::Step(at) => at | HIGH,
        }
    }

    fn unpack(packed: u32) -> Self {
        if packed & HIGH == 0 { Self::Input(packed) } else { Self::Step(packed & !HIGH) }
    }
}

/// One call in a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// What is called.
    pub function: FunctionId,
    /// With what.
    pub arguments: Vec<Argument>,
}

/// The programs of a graph, each one once however many tasks have it.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The steps of each program.
    steps: Csr,
    /// The function of each step.
    functions: Vec<FunctionId>,
    /// The arguments of each step, packed.
    arguments: Csr,
    /// How many inputs a task has at least that each program is for.
    inputs: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Programs {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.steps.rows()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The steps of a body whose task has so many inputs: of a function one, which is given all inputs.
    pub fn steps(&self, body: BodyId, inputs: usize) -> Vec<Step> {
        match body.body() {
            Body::Function(function) => {
                vec![Step { function, arguments: (0..inputs as u32).map(Argument::Input).collect() }]
            }
            Body::Program(program) => self.program(program).collect(),
        }
    }

    fn program(&self, program: ProgramId) -> impl Iterator<Item = Step> {
        self.steps.row(program.0 as usize).iter().map(|&step| Step {
            function: self.functions[step as usize],
            arguments: self.arguments.row(step as usize).iter().map(|&at| Argument::unpack(at)).collect(),
        })
    }

    fn hash(&self, steps: impl Iterator<Item = Step>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        steps.for_each(|step| step.hash(&mut hasher));
        hasher.finish()
    }

    /// Whether a body is a function, or one of these that is given no more than a task of so many inputs has.
    pub(crate) fn is_for(&self, body: BodyId, inputs: usize) -> bool {
        match body.body() {
            Body::Function(_) => true,
            Body::Program(program) => {
                self.inputs.get(program.0 as usize).is_some_and(|&needed| needed as usize <= inputs)
            }
        }
    }

    /// A body with these steps; the last one's value is the result.
    ///
    /// # Panics
    /// If there are none, one is given the value of a later one, or an input has a number of 2^31 or more.
    pub fn intern(&mut self, steps: &[Step]) -> BodyId {
        assert!(!steps.is_empty(), "a program has steps");
        let mut inputs = 0;
        for (at, step) in steps.iter().enumerate() {
            for &argument in &step.arguments {
                match argument {
                    Argument::Step(of) => assert!((of as usize) < at, "step {at} needs a later one's value"),
                    Argument::Input(of) => {
                        assert!(of < HIGH, "inputs have numbers below 2^31");
                        inputs = inputs.max(of + 1);
                    }
                }
            }
        }
        let hash = self.hash(steps.iter().cloned());
        let same = |&at: &u32| self.program(ProgramId(at)).eq(steps.iter().cloned());
        if let Some(&found) = self.index.find(hash, same) {
            return BodyId::program(ProgramId(found));
        }
        let (first, program) = (self.functions.len() as u32, self.len() as u32);
        for step in steps {
            self.functions.push(step.function);
            self.arguments.push(step.arguments.iter().map(|argument| argument.pack()));
        }
        self.steps.push(first..self.functions.len() as u32);
        self.inputs.push(inputs);
        let mut index = std::mem::take(&mut self.index);
        index.insert_unique(hash, program, |&at| self.hash(self.program(ProgramId(at))));
        self.index = index;
        BodyId::program(ProgramId(program))
    }

    /// The body with these steps for a task of so many inputs: a plain function if it is one of all inputs in
    /// order.
    pub(crate) fn intern_task(&mut self, steps: &[Step], inputs: usize) -> BodyId {
        if let [step] = steps
            && step.arguments.iter().copied().eq((0..inputs as u32).map(Argument::Input))
        {
            return BodyId::function(step.function);
        }
        self.intern(steps)
    }

    /// Computes a body's value: calls its functions with what they are given. A value, input or step, is
    /// handed over at its last use, so that the function may drop it or write its result in its place; before
    /// that a clone is (of an `Arc`, say).
    ///
    /// # Errors
    /// What a call returned, with the step's place.
    pub fn evaluate<V: Clone, E>(
        &self,
        body: BodyId,
        inputs: Vec<V>,
        mut call: impl FnMut(FunctionId, Vec<V>) -> Result<V, E>,
    ) -> Result<V, (usize, E)> {
        let program = match body.body() {
            Body::Function(function) => return call(function, inputs).map_err(|error| (0, error)),
            Body::Program(program) => program,
        };
        let steps = self.steps.row(program.0 as usize);
        let mut uses = vec![0_u32; inputs.len() + steps.len()];
        let given = inputs.len();
        let slot = |packed: u32| match Argument::unpack(packed) {
            Argument::Input(at) => at as usize,
            Argument::Step(at) => given + at as usize,
        };
        for &step in steps {
            self.arguments.row(step as usize).iter().for_each(|&packed| uses[slot(packed)] += 1);
        }
        let mut values: Vec<Option<V>> = inputs.into_iter().map(Some).collect();
        for (value, uses) in values.iter_mut().zip(&uses) {
            // An input that no step is given is not held either.
            if *uses == 0 {
                *value = None;
            }
        }
        for (at, &step) in steps.iter().enumerate() {
            let arguments = self.arguments.row(step as usize).iter().map(|&packed| {
                let slot = slot(packed);
                uses[slot] -= 1;
                let value = if uses[slot] == 0 { values[slot].take() } else { values[slot].clone() };
                value.expect("values are there until their last use")
            });
            let arguments = arguments.collect();
            let value = call(self.functions[step as usize], arguments).map_err(|error| (at, error))?;
            if at + 1 == steps.len() {
                return Ok(value);
            }
            values.push((uses[given + at] > 0).then_some(value));
        }
        unreachable!("a program has steps")
    }
}
