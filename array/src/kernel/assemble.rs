//! Blocks from parts of others, and with other axes.

use super::Failure;
use super::walk::{Walk, dense};
use crate::block::Block;
use crate::dtype::{DType, Element, with_type};

/// A part of an input, and where in the result it goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The first element of the input along each axis, and how far the next one is.
    pub(crate) from: Vec<(usize, isize)>,
    /// Where the first one goes.
    pub(crate) to: Vec<usize>,
    /// How many along each axis.
    pub(crate) shape: Vec<usize>,
}

/// Puts a piece of each input into a block: a new one, or the one that comes before the inputs.
pub(super) fn assemble(
    dtype: DType,
    shape: &[usize],
    pieces: &[Piece],
    mut inputs: Vec<Block>,
) -> Result<Block, Failure> {
    let mut out =
        if inputs.len() > pieces.len() { own(inputs.remove(0))? } else { Block::zeros(dtype, shape)? };
    let to = dense(shape);
    for (piece, input) in pieces.iter().zip(&inputs) {
        let strides = dense(input.shape());
        let from: Vec<isize> =
            strides.iter().zip(&piece.from).map(|(stride, (_, step))| stride * step).collect();
        let first =
            strides.iter().zip(&piece.from).map(|(stride, (first, _))| stride * *first as isize).sum();
        let at = to.iter().zip(&piece.to).map(|(stride, first)| stride * *first as isize).sum();
        let walk = Walk::new(&piece.shape, [&from, &to]);
        with_type!(dtype, T => copy::<T>(&walk, [first, at], input.elements(), out.elements_mut()));
    }
    Ok(out)
}

/// The block itself if nobody else has it, else a copy.
pub(super) fn own(mut block: Block) -> Result<Block, Failure> {
    if block.is_own() {
        return Ok(block);
    }
    let mut copy = Block::zeros(block.dtype(), block.shape())?;
    copy.bytes_mut().copy_from_slice(block.as_bytes());
    Ok(copy)
}

fn copy<T: Element>(walk: &Walk<2>, first: [isize; 2], from: &[T], to: &mut [T]) {
    walk.rows(first, |[at, out]| {
        let [step_from, step_to] = walk.step;
        if (step_from, step_to) == (1, 1) || walk.row == 1 {
            to[out..out + walk.row].copy_from_slice(&from[at..at + walk.row]);
            return;
        }
        let (mut at, mut out) = (at as isize, out as isize);
        for _ in 0..walk.row {
            to[out as usize] = from[at as usize];
            at += step_from;
            out += step_to;
        }
    });
}

/// So many rows and columns are transposed at a time: both sides of it stay in the first cache.
const TILE: usize = 16;

/// A block whose axis `k` is axis `axes[k]` of the input.
pub(super) fn transpose(axes: &[usize], input: &Block) -> Result<Block, Failure> {
    let shape: Vec<usize> = axes.iter().map(|&axis| input.shape()[axis]).collect();
    let strides = dense(input.shape());
    let from: Vec<isize> = axes.iter().map(|&axis| strides[axis]).collect();
    let to = dense(&shape);
    let mut out = Block::zeros(input.dtype(), &shape)?;
    // The result's rows are columns of the input: they are gone over in tiles with the axis whose elements
    // are neighbours there.
    let near = from.iter().zip(&shape).position(|(&stride, &length)| stride == 1 && length > 1);
    let last = shape.iter().rposition(|&length| length > 1);
    let tiled = near.zip(last).filter(|(near, last)| near != last);
    with_type!(input.dtype(), T => {
        let (source, target) = (input.elements::<T>(), out.elements_mut::<T>());
        let Some((near, last)) = tiled else {
            copy(&Walk::new(&shape, [&from, &to]), [0, 0], source, target);
            return Ok(out);
        };
        let mut others = shape.clone();
        (others[near], others[last]) = (1, 1);
        let (rows, columns) = (shape[near], shape[last]);
        let (row_to, column_from) = (to[near] as usize, from[last] as usize);
        let walk = Walk::new(&others, [&from, &to]);
        walk.rows([0, 0], |[at, out]| for step in 0..walk.row {
            let at = (at as isize + step as isize * walk.step[0]) as usize;
            let out = (out as isize + step as isize * walk.step[1]) as usize;
            for row in (0..rows).step_by(TILE) {
                for column in (0..columns).step_by(TILE) {
                    for row in row..rows.min(row + TILE) {
                        for column in column..columns.min(column + TILE) {
                            target[out + row * row_to + column] = source[at + row + column * column_from];
                        }
                    }
                }
            }
        });
    });
    Ok(out)
}
