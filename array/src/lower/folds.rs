//! Tasks of what is made of whole arrays: partial results of blocks, and those merged.

use std::sync::Arc;

use bdrun_graph::{Output, TaskId};
use hashbrown::HashMap;

use super::bytes as bytes_of;
use super::{BYTES_PER_SECOND, FLOPS_PER_SECOND, Lowering, Size, at, bytes};
use crate::array::{Array, Op};
use crate::dtype::DType;
use crate::kernel::{Decomposition, Indices, Kernel, Piece, Reduction, STATE, packed};
use crate::shape::{Region, places, strides};

/// So many partial results are merged at a time.
const FAN: usize = 8;

impl Lowering {
    pub(super) fn reduce(
        &mut self,
        array: &Array,
        reduction: Reduction,
        axes: &[usize],
        operand: &Array,
        of: &[TaskId],
    ) -> Vec<TaskId> {
        let (state, planes) = (reduction.state(operand.dtype()), reduction.planes(operand.dtype()));
        let grid = operand.chunks().grid();
        let is_index = matches!(reduction, Reduction::ArgMin | Reduction::ArgMax);
        let steps = if axes.len() == operand.dimensions() {
            strides(operand.shape())
        } else {
            (0..operand.dimensions()).map(|axis| usize::from(axes.contains(&axis))).collect()
        };
        let regions: Vec<Region> = operand.chunks().regions().collect();
        let elements = |shape: &[usize]| axes.iter().map(|&axis| shape[axis]).product::<usize>() as u64;
        let mut tasks = Vec::new();
        for place in places(&array.chunks().grid()) {
            let shape = array.chunks().block(&place);
            let partial = bytes(&shape, state.size() * planes);
            // The blocks along the axes that are reduced.
            let along: Vec<usize> = axes.iter().map(|&axis| grid[axis]).collect();
            let mut row: Vec<(TaskId, u64)> = Vec::new();
            for inner in places(&along) {
                let mut from = place.clone();
                axes.iter().zip(&inner).for_each(|(&axis, &at)| from[axis] = at);
                let block = at(&from, &grid);
                let region = &regions[block];
                let indices = is_index.then(|| Indices {
                    first: region.start.iter().zip(&steps).map(|(start, step)| start * step).sum(),
                    steps: steps.clone(),
                });
                let kernel = Kernel::Partial { reduction, axes: axes.to_vec(), indices };
                let through = bytes(&region.shape, operand.dtype().size());
                // The mean of complex numbers is put together before it is taken apart.
                let work = if planes == 3 { bytes(&shape, 16) } else { 0 };
                let size =
                    Size { bytes: partial, work, seconds: through as f64 / BYTES_PER_SECOND, source: false };
                let task = self.add(array, &array.0.op.name(), kernel, &[of[block]], size, Output::No);
                row.push((task, elements(&region.shape)));
            }
            let count = elements(operand.shape());
            let of = operand.dtype();
            let merge = |counts| Kernel::Merge { reduction, of, counts };
            let last = self.merged(array, row, partial, merge);
            let bytes = bytes(&shape, array.dtype().size());
            let kernel = Kernel::Finish { reduction, count, dtype: array.dtype(), shape };
            tasks.push(self.step(array, kernel, &[last], bytes));
        }
        tasks
    }

    pub(super) fn decompose(
        &mut self,
        array: &Array,
        how: Decomposition,
        operand: &Array,
        of: TaskId,
    ) -> TaskId {
        let bytes = bytes(array.shape(), 8);
        let (rows, columns) = (operand.shape()[0] as f64, operand.shape()[1] as f64);
        // The factors before they are put into the result: reflections or rotations, and a copy of the
        // matrix.
        let work = bytes + 2 * bytes_of(operand.shape(), 8);
        // They are products of blocks of columns.
        let sides = [operand.shape()[0], operand.shape()[1]];
        self.packed = self.packed.max(packed(DType::F64, sides, sides[0].min(sides[1])));
        let seconds = 4.0 * rows * columns * rows.min(columns) / FLOPS_PER_SECOND;
        let size = Size { bytes, work, seconds, source: false };
        self.add(array, &array.0.op.name(), Kernel::Decompose(how), &[of], size, Output::No)
    }

    /// Partial results, each of so many elements, merged a few at a time until there is one.
    fn merged(
        &mut self,
        array: &Array,
        mut row: Vec<(TaskId, u64)>,
        bytes: u64,
        kernel: impl Fn(Vec<u64>) -> Kernel,
    ) -> TaskId {
        while row.len() > 1 {
            let mut merged = Vec::with_capacity(row.len().div_ceil(FAN));
            for group in row.chunks(FAN) {
                if let [only] = group {
                    merged.push(*only);
                    continue;
                }
                let (inputs, counts): (Vec<TaskId>, Vec<u64>) = group.iter().copied().unzip();
                let sum = counts.iter().sum();
                merged.push((self.step(array, kernel(counts), &inputs, bytes), sum));
            }
            row = merged;
        }
        row[0].0
    }

    pub(super) fn quantiles(
        &mut self,
        array: &Array,
        bits: &[u64],
        operand: &Array,
        of: &[TaskId],
    ) -> TaskId {
        let bytes = 8 * STATE as u64;
        let mut row = Vec::with_capacity(of.len());
        for (&block, region) in of.iter().zip(operand.chunks().regions()) {
            // A logarithm for each element; the sketch before it is put into the result.
            let seconds = 4.0 * bytes_of(&region.shape, 8) as f64 / BYTES_PER_SECOND;
            let size = Size { bytes, work: bytes, seconds, source: false };
            row.push((self.add(array, "sketch", Kernel::Sketch, &[block], size, Output::No), 0));
        }
        let last = self.merged(array, row, bytes, |_| Kernel::MergeSketches);
        self.step(array, Kernel::Quantiles(bits.to_vec()), &[last], 8 * bits.len() as u64)
    }

    /// A row for each block.
    pub(super) fn histogram(&mut self, array: &Array, operand: &Array, of: &[Arc<[TaskId]>]) -> Vec<TaskId> {
        let bins = array.shape()[1];
        let mut tasks = Vec::with_capacity(of[0].len());
        for (&block, region) in of[0].iter().zip(operand.chunks().regions()) {
            let inputs = [block, of[1][0], of[2][0], of[3][0]];
            let seconds = bytes(&region.shape, operand.dtype().size()) as f64 / BYTES_PER_SECOND;
            let size = Size { bytes: 8 * bins as u64, seconds, ..Size::default() };
            tasks.push(self.add(array, "histogram", Kernel::Histogram, &inputs, size, Output::No));
        }
        tasks
    }

    /// Each block on top of the last elements of the one before it.
    pub(super) fn scan(&mut self, array: &Array, of: &[TaskId]) -> Vec<TaskId> {
        let Op::Scan(scan, axis, _) = array.0.op else { unreachable!("it is a scan") };
        let grid = array.chunks().grid();
        let size = array.dtype().size();
        let mut tasks: Vec<TaskId> = Vec::new();
        let mut carried: HashMap<Vec<usize>, TaskId> = HashMap::new();
        for place in places(&grid) {
            let shape = array.chunks().block(&place);
            let mut row = place.clone();
            row[axis] = 0;
            let inputs: Vec<TaskId> =
                std::iter::once(of[at(&place, &grid)]).chain(carried.get(&row).copied()).collect();
            let kernel = Kernel::Scan { scan, axis, dtype: array.dtype() };
            let task = self.step(array, kernel, &inputs, bytes(&shape, size));
            if place[axis] + 1 < grid[axis] {
                let mut last = shape.clone();
                last[axis] = 1;
                let from =
                    (0..shape.len()).map(|at| (if at == axis { shape[axis] - 1 } else { 0 }, 1)).collect();
                let pieces = vec![Piece { from, to: vec![0; shape.len()], shape: last.clone() }];
                let carry = bytes(&last, size);
                let kernel = Kernel::Assemble { dtype: array.dtype(), shape: last, pieces };
                carried.insert(row, self.step(array, kernel, &[task], carry));
            }
            tasks.push(task);
        }
        tasks
    }
}
