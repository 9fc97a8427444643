//! Arrays in memory.

use std::io;
use std::sync::{Mutex, PoisonError};

use super::{Sink, Source, rows};
use crate::block::Block;
use crate::dtype::DType;
use crate::shape::Region;

/// An array that is held in memory. It is not counted in the budget: whoever made it holds it.
#[derive(Clone, Debug)]
pub struct Memory(pub Block);

impl Source for Memory {
    fn dtype(&self) -> DType {
        self.0.dtype()
    }

    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn name(&self) -> String {
        "memory".into()
    }

    fn stamp(&self) -> String {
        format!("{:032x}", twox_hash::XxHash3_128::oneshot(self.0.as_bytes()))
    }

    fn read(&self, region: &Region) -> io::Result<Block> {
        let mut block = Block::zeros(self.0.dtype(), &region.shape)?;
        let (from, to, size) = (self.0.as_bytes(), block.bytes_mut(), self.0.dtype().size());
        rows(self.0.shape(), region, |at, put, row| {
            to[put * size..][..row * size].copy_from_slice(&from[at * size..][..row * size]);
            Ok(())
        })?;
        Ok(block)
    }
}

/// Where a result is put together in memory. It is not counted in the budget: whoever asked for it has to
/// have room for it.
#[derive(Debug)]
pub struct Held(Mutex<Block>);

impl Held {
    /// Of a type and shape.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(dtype: DType, shape: &[usize]) -> io::Result<Self> {
        Ok(Self(Mutex::new(Block::zeros(dtype, shape)?)))
    }

    /// What was written.
    pub fn into_block(self) -> Block {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Held {
    fn name(&self) -> String {
        "memory".into()
    }

    fn write(&self, region: &Region, block: &Block) -> io::Result<()> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (shape, size) = (held.shape().to_vec(), block.dtype().size());
        let (to, from) = (held.bytes_mut(), block.as_bytes());
        rows(&shape, region, |at, put, row| {
            to[at * size..][..row * size].copy_from_slice(&from[put * size..][..row * size]);
            Ok(())
        })
    }

    fn finish(&self) -> io::Result<()> {
        Ok(())
    }
}
