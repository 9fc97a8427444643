//! From expressions to tasks.

mod folds;

use std::sync::Arc;

use bdrun_graph::{BodyId, Builder, FunctionId, Graph, GraphError, Inputs, Output, Task, TaskId};
use hashbrown::HashMap;

use crate::array::{Array, Node, Op, ordered};
use crate::error::Error;
use crate::kernel::{Kernel, Lie, Number, Piece, Roles, packed};
use crate::shape::{MOST_BLOCKS, count, next, places};
use crate::source::{Sink, Source};

/// Tasks, and what their functions are.
pub(crate) struct Lowered {
    pub(crate) graph: Graph,
    /// The kernel of each function.
    pub(crate) kernels: Vec<Kernel>,
    /// What kernels read from.
    pub(crate) sources: Vec<Arc<dyn Source>>,
    /// Bytes that a thread keeps beside blocks once it has multiplied the largest ones.
    pub(crate) packed: u64,
}

/// Bytes that go through memory in a second, of a function of elements; for the order of tasks no more than
/// their proportion matters.
const BYTES_PER_SECOND: f64 = 2e9;
/// The same from storage.
const READ_PER_SECOND: f64 = 1e9;
/// Multiplications and additions.
const FLOPS_PER_SECOND: f64 = 2e10;

/// The tasks that compute arrays and write them to sinks.
pub(crate) fn lower(outputs: &[(Array, &dyn Sink)]) -> Result<Lowered, Error> {
    let mut lowering = Lowering::default();
    for (number, (array, sink)) in outputs.iter().enumerate() {
        for node in ordered(array) {
            lowering.node(&node)?;
        }
        lowering.plan(array, count(&array.chunks().grid()))?;
        let blocks = lowering.blocks[&key(array)].clone();
        for (region, &block) in array.chunks().regions().zip(blocks.iter()) {
            // What a run before has written is not computed: passes leave out what nobody needs.
            if region.is_empty() || sink.has(&region) {
                continue;
            }
            let size = Size { work: sink.work(&region), ..Size::default() };
            let kernel = Kernel::Write { sink: number, region };
            lowering.add(array, "write", kernel, &[block], size, Output::Stored);
        }
    }
    let graph = match lowering.builder.build() {
        Err(error @ GraphError::Bytes { .. }) => {
            return Err(Error::no_memory("the blocks of all arrays".into(), &error.to_string()));
        }
        // What is named and built here is right otherwise, or the crate is not.
        graph => graph.expect("tasks are added behind their inputs"),
    };
    let Lowering { kernels, sources, packed, .. } = lowering;
    Ok(Lowered { graph, kernels, sources, packed })
}

fn key(array: &Array) -> *const Node {
    Arc::as_ptr(&array.0)
}

#[derive(Default)]
struct Lowering {
    builder: Builder,
    kernels: Vec<Kernel>,
    functions: HashMap<Kernel, FunctionId>,
    sources: Vec<Arc<dyn Source>>,
    source_numbers: HashMap<*const (), usize>,
    /// The tasks of each array's blocks, in C order.
    blocks: HashMap<*const Node, Arc<[TaskId]>>,
    /// Arrays are numbered in the order in which they come.
    arrays: usize,
    tasks: usize,
    /// How many there will be at most, and pieces that they put together.
    planned: usize,
    packed: u64,
}

/// What a task takes.
#[derive(Clone, Copy, Default)]
struct Size {
    bytes: u64,
    work: u64,
    seconds: f64,
    source: bool,
}

fn bytes(shape: &[usize], size: usize) -> u64 {
    crate::shape::count(shape).saturating_mul(size) as u64
}

impl Lowering {
    fn function(&mut self, kernel: Kernel) -> BodyId {
        let next = FunctionId(self.kernels.len() as u32);
        let kernels = &mut self.kernels;
        let id = *self.functions.entry(kernel).or_insert_with_key(|kernel| {
            kernels.push(kernel.clone());
            next
        });
        BodyId::function(id)
    }

    fn source(&mut self, source: &Arc<dyn Source>) -> usize {
        let next = self.sources.len();
        let number = *self.source_numbers.entry(Arc::as_ptr(source).cast()).or_insert(next);
        if number == next {
            self.sources.push(source.clone());
        }
        number
    }

    fn add(
        &mut self,
        array: &Array,
        what: &str,
        kernel: Kernel,
        inputs: &[TaskId],
        size: Size,
        output: Output,
    ) -> TaskId {
        let body = self.function(kernel);
        let key = format!("{what}-{}/{}", self.arrays, self.tasks);
        self.tasks += 1;
        let origin = array.0.origin.to_string();
        let task = Task {
            key: &key,
            body,
            inputs: Inputs::Tasks(inputs),
            bytes: size.bytes,
            work: size.work,
            seconds: size.seconds as f32,
            output,
            source: size.source,
            origin: &origin,
        };
        // Keys are numbered, and there are fewer tasks than would fit in memory.
        self.builder.add(task).expect("a task of a new key")
    }

    /// A task whose cost is that its bytes go through memory.
    fn step(&mut self, array: &Array, kernel: Kernel, inputs: &[TaskId], bytes: u64) -> TaskId {
        let size = Size { bytes, seconds: bytes as f64 / BYTES_PER_SECOND, ..Size::default() };
        self.add(array, &array.0.op.name(), kernel, inputs, size, Output::No)
    }

    /// So many tasks more: an error before there are any of more than there can be.
    fn plan(&mut self, array: &Array, tasks: usize) -> Result<(), Error> {
        self.planned = self.planned.saturating_add(tasks);
        if self.planned <= MOST_BLOCKS {
            return Ok(());
        }
        let what = format!("tasks of {} ({})", array.0.op.name(), array.0.origin);
        let why = "together with those before it more than 2^24 tasks, one or more for each block: there are \
                   fewer of larger blocks (`rechunk`, or `block` where it is read)";
        Err(Error::no_memory(what, why))
    }

    /// The tasks of an array whose operands' are there.
    fn node(&mut self, array: &Array) -> Result<(), Error> {
        if self.blocks.contains_key(&key(array)) {
            return Ok(());
        }
        self.plan(array, tasks_of(array))?;
        self.arrays += 1;
        let of: Vec<Arc<[TaskId]>> =
            array.0.op.operands().iter().map(|operand| self.blocks[&key(operand)].clone()).collect();
        let blocks = match &array.0.op {
            Op::Read { source, start } => self.read(array, source, start),
            Op::Full(value) => self.each(array, &of, |shape, _| {
                let (dtype, shape) = (array.dtype(), shape.to_vec());
                Kernel::Full { value: Number(*value), dtype, shape }
            }),
            Op::Unary(function, _) => {
                let kernel = Kernel::Unary { function: *function, dtype: array.dtype() };
                self.each(array, &of, |_, _| kernel.clone())
            }
            Op::Binary { function, of: compute, .. } => {
                let kernel = Kernel::Binary { function: *function, of: *compute, dtype: array.dtype() };
                self.each(array, &of, |_, _| kernel.clone())
            }
            Op::Select(_) => self.each(array, &of, |_, _| Kernel::Select { dtype: array.dtype() }),
            Op::Axes(_) => {
                let shapes = places(&array.chunks().grid()).zip(of[0].to_vec());
                let shapes: Vec<_> =
                    shapes.map(|(place, block)| (array.chunks().block(&place), block)).collect();
                let mut tasks = Vec::with_capacity(shapes.len());
                for (shape, block) in shapes {
                    let bytes = bytes(&shape, array.dtype().size());
                    tasks.push(self.step(array, Kernel::Reshape { shape }, &[block], bytes));
                }
                tasks
            }
            Op::Transpose(order, operand) => self.transpose(array, order, operand, &of[0]),
            Op::Slice(from, operand) => self.slice(array, from, operand, &of[0]),
            Op::Concatenate(axis, operands) => concatenate(array, *axis, operands, &of),
            Op::Reduce { reduction, axes, of: operand } => {
                self.reduce(array, *reduction, axes, operand, &of[0])
            }
            Op::Contract { roles, operands } => self.contract(array, roles, operands, &of),
            Op::Scan(..) => self.scan(array, &of[0]),
            Op::Decompose(how, operand) => vec![self.decompose(array, *how, operand, of[0][0])],
            Op::Quantiles(bits, operand) => vec![self.quantiles(array, bits, operand, &of[0])],
            Op::Bounds(_) => {
                let (dtype, bins) = (array.dtype(), array.len() - 1);
                let inputs = [of[0][0], of[1][0]];
                // Exact ones, before they are rounded.
                let (bytes, work) = (bytes(array.shape(), dtype.size()), bytes(array.shape(), 8));
                let size = Size { bytes, work, seconds: bytes as f64 / BYTES_PER_SECOND, source: false };
                vec![self.add(array, "bounds", Kernel::Bounds { bins, dtype }, &inputs, size, Output::No)]
            }
            Op::Histogram(operands) => self.histogram(array, &operands[0], &of),
        };
        self.blocks.insert(key(array), blocks.into());
        Ok(())
    }

    fn read(&mut self, array: &Array, source: &Arc<dyn Source>, start: &[usize]) -> Vec<TaskId> {
        let number = self.source(source);
        let mut tasks = Vec::new();
        for region in array.chunks().regions() {
            let bytes = bytes(&region.shape, array.dtype().size());
            let seconds = bytes as f64 / READ_PER_SECOND;
            let region = Array::read_region(start, &region);
            let size = Size { bytes, work: source.work(&region), seconds, source: true };
            let kernel = Kernel::Read { source: number, region };
            tasks.push(self.add(array, "read", kernel, &[], size, Output::No));
        }
        tasks
    }

    /// A task for each block, of those blocks of the operands that stretch to its place.
    fn each(
        &mut self,
        array: &Array,
        of: &[Arc<[TaskId]>],
        kernel: impl Fn(&[usize], &[usize]) -> Kernel,
    ) -> Vec<TaskId> {
        let grids: Vec<Vec<usize>> =
            array.0.op.operands().iter().map(|operand| operand.chunks().grid()).collect();
        let mut tasks = Vec::new();
        for place in places(&array.chunks().grid()) {
            let shape = array.chunks().block(&place);
            let inputs: Vec<TaskId> =
                grids.iter().zip(of).map(|(grid, blocks)| blocks[at(&place, grid)]).collect();
            let bytes = bytes(&shape, array.dtype().size());
            let seconds = bytes as f64 / BYTES_PER_SECOND;
            let source = inputs.is_empty();
            let size = Size { bytes, work: 0, seconds, source };
            tasks.push(self.add(
                array,
                &array.0.op.name(),
                kernel(&shape, &place),
                &inputs,
                size,
                Output::No,
            ));
        }
        tasks
    }

    fn transpose(&mut self, array: &Array, order: &[usize], operand: &Array, of: &[TaskId]) -> Vec<TaskId> {
        let grid = operand.chunks().grid();
        let mut tasks = Vec::new();
        for place in places(&array.chunks().grid()) {
            let mut from = vec![0; place.len()];
            order.iter().zip(&place).for_each(|(&axis, &at)| from[axis] = at);
            let bytes = bytes(&array.chunks().block(&place), array.dtype().size());
            let kernel = Kernel::Transpose { axes: order.to_vec() };
            tasks.push(self.step(array, kernel, &[of[at(&from, &grid)]], bytes));
        }
        tasks
    }

    /// Puts together the pieces of blocks that each block of a slice consists of.
    fn slice(
        &mut self,
        array: &Array,
        from: &[(usize, isize)],
        operand: &Array,
        of: &[TaskId],
    ) -> Vec<TaskId> {
        let starts = operand.chunks().starts();
        let grid = operand.chunks().grid();
        let size = array.dtype().size();
        let mut tasks = Vec::new();
        for region in array.chunks().regions() {
            // Along each axis: block, first element in it, where it goes, how many.
            let mut along = Vec::with_capacity(from.len());
            for (axis, &(first, step)) in from.iter().enumerate() {
                along.push(cut(&starts[axis], first, step, region.start[axis], region.shape[axis]));
            }
            let counts: Vec<usize> = along.iter().map(Vec::len).collect();
            let whole = bytes(&region.shape, size);
            let (mut pieces, mut inputs, mut taken) = (Vec::new(), Vec::new(), 0);
            let mut task = None;
            let mut all = places(&counts).peekable();
            while let Some(place) = all.next() {
                let parts: Vec<Part> = along.iter().zip(&place).map(|(parts, &at)| parts[at]).collect();
                let block: Vec<usize> = parts.iter().map(|part| part.block).collect();
                let shape = operand.chunks().block(&block);
                let input = of[at(&block, &grid)];
                let piece = Piece {
                    from: parts.iter().zip(from).map(|(part, &(_, step))| (part.first, step)).collect(),
                    to: parts.iter().map(|part| part.to).collect(),
                    shape: parts.iter().map(|part| part.count).collect(),
                };
                if piece.shape == shape && shape == region.shape && from.iter().all(|&(_, step)| step == 1) {
                    task = Some(input);
                    break;
                }
                taken += bytes(&shape, size);
                pieces.push(piece);
                inputs.push(input);
                // Of many blocks a few at a time, so that not all of them have to be in memory.
                if all.peek().is_none() || taken >= whole.max(MANY) {
                    let first: Vec<TaskId> = task.into_iter().chain(inputs.drain(..)).collect();
                    let pieces = std::mem::take(&mut pieces);
                    let kernel =
                        Kernel::Assemble { dtype: array.dtype(), shape: region.shape.clone(), pieces };
                    task = Some(self.step(array, kernel, &first, whole));
                    taken = 0;
                }
            }
            tasks.push(task.unwrap_or_else(|| {
                let (dtype, shape) = (array.dtype(), region.shape.clone());
                let value = Number(crate::Scalar::Bool(false));
                let size = Size { bytes: whole, source: true, ..Size::default() };
                self.add(array, "empty", Kernel::Full { value, dtype, shape }, &[], size, Output::No)
            }));
        }
        tasks
    }

    fn contract(
        &mut self,
        array: &Array,
        roles: &[Roles; 2],
        operands: &[Array; 2],
        of: &[Arc<[TaskId]>],
    ) -> Vec<TaskId> {
        let grids = [operands[0].chunks().grid(), operands[1].chunks().grid()];
        let middle: Vec<usize> = roles[0].summed.iter().map(|&axis| grids[0][axis]).collect();
        let counts = [roles[0].batch.len(), roles[0].own.len()];
        let mut tasks = Vec::new();
        for place in places(&array.chunks().grid()) {
            let shape = array.chunks().block(&place);
            let result = bytes(&shape, array.dtype().size());
            let mut sum = None;
            for inner in places(&middle) {
                let block = |of: usize| {
                    let mut from = vec![0; operands[of].dimensions()];
                    let own = counts[0] + if of == 0 { 0 } else { counts[1] };
                    roles[of]
                        .batch
                        .iter()
                        .zip(&place)
                        .for_each(|(&axis, &at)| from[axis] = at.min(grids[of][axis] - 1));
                    roles[of].own.iter().zip(&place[own..]).for_each(|(&axis, &at)| from[axis] = at);
                    roles[of].summed.iter().zip(&inner).for_each(|(&axis, &at)| from[axis] = at);
                    from
                };
                let (mut inputs, mut work, mut length) = (Vec::from_iter(sum), 0, 1);
                let mut own = [1; 2];
                for operand in 0..2 {
                    let from = block(operand);
                    let shape = operands[operand].chunks().block(&from);
                    inputs.push(of[operand][at(&from, &grids[operand])]);
                    if roles[operand].lie() == Lie::No {
                        work += bytes(&shape, array.dtype().size());
                    }
                    length = roles[operand].summed.iter().map(|&axis| shape[axis]).product();
                    own[operand] = roles[operand].own.iter().map(|&axis| shape[axis]).product();
                }
                self.packed = self.packed.max(packed(array.dtype(), own, length));
                let flops = 2.0 * shape.iter().product::<usize>() as f64 * length as f64;
                let size = Size { bytes: result, work, seconds: flops / FLOPS_PER_SECOND, source: false };
                let kernel = Kernel::Contract { dtype: array.dtype(), roles: roles.clone() };
                sum = Some(self.add(array, "dot", kernel, &inputs, size, Output::No));
            }
            tasks.push(sum.expect("each axis has a block"));
        }
        tasks
    }
}

/// How many tasks an array is at most, and pieces that they put together.
fn tasks_of(array: &Array) -> usize {
    let blocks = |array: &Array| count(&array.chunks().grid());
    match &array.0.op {
        Op::Contract { roles, operands } => {
            let grid = operands[0].chunks().grid();
            let middle: Vec<usize> = roles[0].summed.iter().map(|&axis| grid[axis]).collect();
            blocks(array).saturating_mul(count(&middle))
        }
        Op::Slice(from, operand) => {
            let (starts, own) = (operand.chunks().starts(), array.chunks().starts());
            let along = |(axis, &(first, step)): (usize, &(usize, isize))| {
                let block = |pair: &[usize]| cut(&starts[axis], first, step, pair[0], pair[1] - pair[0]);
                own[axis].windows(2).map(|pair| block(pair).len()).sum()
            };
            count(&from.iter().enumerate().map(along).collect::<Vec<usize>>())
        }
        Op::Reduce { of, .. } | Op::Quantiles(_, of) => blocks(of).saturating_mul(2),
        Op::Histogram(operands) => blocks(&operands[0]),
        Op::Scan(..) => blocks(array).saturating_mul(2),
        Op::Concatenate(..) => 0,
        _ => blocks(array),
    }
}

/// Bytes of blocks that a slice is put together from at a time, if it has fewer itself.
const MANY: u64 = 1 << 20;

/// Where a block of a result is in the grid of an operand that stretches to it.
fn at(place: &[usize], grid: &[usize]) -> usize {
    let skipped = place.len() - grid.len();
    let mut at = 0;
    for (place, &length) in place[skipped..].iter().zip(grid) {
        at = at * length + (*place).min(length - 1);
    }
    at
}

/// The part of a slice along an axis that lies in one block.
#[derive(Clone, Copy)]
struct Part {
    block: usize,
    first: usize,
    to: usize,
    count: usize,
}

/// The parts of `count` elements from the `start`th of a slice.
fn cut(starts: &[usize], first: usize, step: isize, start: usize, count: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut done = 0;
    while done < count {
        let from = (first as isize + step * (start + done) as isize) as usize;
        let block = starts.partition_point(|&start| start <= from) - 1;
        let room = if step > 0 { starts[block + 1] - from } else { from + 1 - starts[block] };
        let taken = room.div_ceil(step.unsigned_abs()).min(count - done);
        parts.push(Part { block, first: from - starts[block], to: done, count: taken });
        done += taken;
    }
    parts
}

/// Blocks of arrays behind each other are those of the whole.
fn concatenate(array: &Array, axis: usize, operands: &[Array], of: &[Arc<[TaskId]>]) -> Vec<TaskId> {
    let grid = array.chunks().grid();
    let mut tasks = Vec::new();
    let mut place = vec![0; grid.len()];
    loop {
        let mut own = place.clone();
        for (operand, blocks) in operands.iter().zip(of) {
            let grid = operand.chunks().grid();
            if own[axis] < grid[axis] {
                tasks.push(blocks[at(&own, &grid)]);
                break;
            }
            own[axis] -= grid[axis];
        }
        if !next(&mut place, &grid) {
            return tasks;
        }
    }
}
