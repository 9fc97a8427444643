//! How datatypes are made of others (MPI-5.0, section 5.1.2).

use std::sync::{Arc, OnceLock};

use super::bounds::Bounds;
use super::origin::{Combiner, Contents, Origin, Width};
use super::{Basic, Copies, Datatype, Map, Type, TypeError};

/// Elements of one kind next to each other: of `MPI_Type_indexed` and its relatives.
#[derive(Debug, Clone)]
pub struct Block {
    /// How many.
    pub count: i64,
    /// Where the first is: bytes, or extents of the datatype.
    pub at: i64,
}

fn product(a: i64, b: i64) -> Result<i64, TypeError> {
    a.checked_mul(b).ok_or(TypeError::TooLarge)
}

fn counted(count: i64) -> Result<i64, TypeError> {
    if count < 0 { Err(TypeError::Count) } else { Ok(count) }
}

impl Datatype {
    fn made(list: Vec<Copies>, combiner: Combiner, contents: Contents) -> Result<Type, TypeError> {
        let bounds = Bounds::of_copies(&list)?;
        Self::bounded(list, bounds, combiner, contents)
    }

    pub(super) fn bounded(
        list: Vec<Copies>,
        bounds: Bounds,
        combiner: Combiner,
        contents: Contents,
    ) -> Result<Type, TypeError> {
        let sum = |of: fn(&Datatype) -> i64| {
            list.iter().try_fold(0_i64, |sum, copies| {
                sum.checked_add(product(copies.count, of(&copies.of))?).ok_or(TypeError::TooLarge)
            })
        };
        let (size, elements) = (sum(|of| of.size)?, sum(|of| of.elements)?);
        let origin = Origin::Made { combiner, contents };
        let map = Map::Copies(list.into_boxed_slice());
        Ok(Arc::new(Self { map, bounds, size, elements, origin, layout: OnceLock::new() }))
    }

    /// The same map as another's, with these bounds.
    pub(super) fn same(of: &Type, bounds: Bounds, combiner: Combiner, contents: Contents) -> Type {
        let origin = Origin::Made { combiner, contents };
        let (size, elements) = (of.size, of.elements);
        Arc::new(Self { map: Map::Same(of.clone()), bounds, size, elements, origin, layout: OnceLock::new() })
    }

    /// `MPI_Type_dup`.
    #[must_use]
    pub fn dup(of: &Type) -> Type {
        Self::same(of, of.bounds, Combiner::Dup, Contents::of_types([of]))
    }

    /// `MPI_Type_create_f90_real` and its relatives: a predefined one, found by what was asked for.
    #[must_use]
    pub fn found(of: Basic, combiner: Combiner, asked: &[i64]) -> Type {
        let of = Self::basic(of);
        Self::same(&of, of.bounds, combiner, Contents::default().plain(asked.iter().copied()))
    }

    /// `MPI_Type_create_resized`.
    ///
    /// # Errors
    /// The upper bound is no address.
    pub fn resized(of: &Type, lower: i64, extent: i64, width: Width) -> Result<Type, TypeError> {
        let upper = lower.checked_add(extent).ok_or(TypeError::TooLarge)?;
        let contents = Contents::of_types([of]).addresses(width, [lower, extent]);
        Ok(Self::same(of, Bounds { set: Some((lower, upper)), ..of.bounds }, Combiner::Resized, contents))
    }

    /// `MPI_Type_contiguous`.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn contiguous(count: i64, of: &Type, width: Width) -> Result<Type, TypeError> {
        let copies = Copies { at: 0, count: counted(count)?, stride: of.extent(), of: of.clone() };
        let contents = Contents::of_types([of]).integers(width, [count]);
        Self::made(vec![copies], Combiner::Contiguous, contents)
    }

    /// `MPI_Type_vector`: `stride` in extents of the datatype.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn vector(count: i64, length: i64, stride: i64, of: &Type, width: Width) -> Result<Type, TypeError> {
        let contents = Contents::of_types([of]).integers(width, [count, length, stride]);
        let bytes = product(stride, of.extent())?;
        Self::strided(count, length, bytes, of, Combiner::Vector, contents)
    }

    /// `MPI_Type_create_hvector`: `stride` in bytes.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn hvector(count: i64, length: i64, stride: i64, of: &Type, width: Width) -> Result<Type, TypeError> {
        let contents = Contents::of_types([of]).integers(width, [count, length]).addresses(width, [stride]);
        Self::strided(count, length, stride, of, Combiner::Hvector, contents)
    }

    fn strided(
        count: i64,
        length: i64,
        stride: i64,
        of: &Type,
        combiner: Combiner,
        contents: Contents,
    ) -> Result<Type, TypeError> {
        let (count, length) = (counted(count)?, counted(length)?);
        let block = Self::row(length, of.extent(), of)?;
        Self::made(vec![Copies { at: 0, count, stride, of: block }], combiner, contents)
    }

    /// Copies of one, for what is made in several steps: nobody sees it.
    pub(super) fn row(count: i64, stride: i64, of: &Type) -> Result<Type, TypeError> {
        let copies = Copies { at: 0, count, stride, of: of.clone() };
        Self::made(vec![copies], Combiner::Contiguous, Contents::default())
    }

    /// `MPI_Type_indexed`: displacements in extents of the datatype.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn indexed(blocks: &[Block], of: &Type, width: Width) -> Result<Type, TypeError> {
        let contents = Contents::of_types([of])
            .integers(width, [blocks.len() as i64])
            .integers(width, blocks.iter().map(|block| block.count))
            .integers(width, blocks.iter().map(|block| block.at));
        Self::blocks(blocks, of.extent(), of, Combiner::Indexed, contents)
    }

    /// `MPI_Type_create_hindexed`: displacements in bytes.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn hindexed(blocks: &[Block], of: &Type, width: Width) -> Result<Type, TypeError> {
        let contents = Contents::of_types([of])
            .integers(width, [blocks.len() as i64])
            .integers(width, blocks.iter().map(|block| block.count))
            .addresses(width, blocks.iter().map(|block| block.at));
        Self::blocks(blocks, 1, of, Combiner::Hindexed, contents)
    }

    /// `MPI_Type_create_indexed_block`: displacements in extents of the datatype.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn indexed_block(length: i64, at: &[i64], of: &Type, width: Width) -> Result<Type, TypeError> {
        let contents = Contents::of_types([of])
            .integers(width, [at.len() as i64, length])
            .integers(width, at.iter().copied());
        Self::blocks(&equal(length, at), of.extent(), of, Combiner::IndexedBlock, contents)
    }

    /// `MPI_Type_create_hindexed_block`: displacements in bytes.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn hindexed_block(length: i64, at: &[i64], of: &Type, width: Width) -> Result<Type, TypeError> {
        let contents = Contents::of_types([of])
            .integers(width, [at.len() as i64, length])
            .addresses(width, at.iter().copied());
        Self::blocks(&equal(length, at), 1, of, Combiner::HindexedBlock, contents)
    }

    fn blocks(
        blocks: &[Block],
        unit: i64,
        of: &Type,
        combiner: Combiner,
        contents: Contents,
    ) -> Result<Type, TypeError> {
        let copies = |block: &Block| {
            let (count, at) = (counted(block.count)?, product(block.at, unit)?);
            Ok(Copies { at, count, stride: of.extent(), of: of.clone() })
        };
        let list: Result<Vec<Copies>, TypeError> = blocks.iter().map(copies).collect();
        Self::made(list?, combiner, contents)
    }

    /// `MPI_Type_create_struct`: blocks of each datatype, displacements in bytes.
    ///
    /// # Errors
    /// See [`TypeError`].
    pub fn structure(blocks: &[(Block, Type)], width: Width) -> Result<Type, TypeError> {
        let contents = Contents::of_types(blocks.iter().map(|(_, of)| of))
            .integers(width, [blocks.len() as i64])
            .integers(width, blocks.iter().map(|(block, _)| block.count))
            .addresses(width, blocks.iter().map(|(block, _)| block.at));
        let copies = |(block, of): &(Block, Type)| {
            let count = counted(block.count)?;
            Ok(Copies { at: block.at, count, stride: of.extent(), of: of.clone() })
        };
        let list: Result<Vec<Copies>, TypeError> = blocks.iter().map(copies).collect();
        Self::made(list?, Combiner::Struct, contents)
    }
}

fn equal(length: i64, at: &[i64]) -> Vec<Block> {
    at.iter().map(|&at| Block { count: length, at }).collect()
}
