//! What all ranks read: the opening tree and the pool of cuts, once per node.

use std::ops::Range;

use bdrun_hybrid::{SharedMemory, SharedRegion};

use crate::case::Case;
use crate::error::{Error, Result};
use crate::noise::Inflows;

/// Numbers that the leader of a node writes and its ranks read, or that each rank has for itself.
pub enum Numbers {
    /// Once per node.
    Shared(SharedRegion<f64>),
    /// Once per rank: to see what sharing spares (`--no-share`).
    Own(Vec<f64>),
}

impl Numbers {
    /// So many zeros, for the ranks of `node` (a collective).
    ///
    /// # Errors
    /// Those of [`SharedMemory::create_shared_region`].
    pub fn new(node: &impl SharedMemory, len: usize, share: bool) -> Result<Self> {
        Ok(if share { Self::Shared(node.create_shared_region(len)?) } else { Self::Own(vec![0.0; len]) })
    }

    /// All of them.
    pub fn as_slice(&self) -> &[f64] {
        match self {
            Self::Shared(region) => region.as_slice(),
            Self::Own(numbers) => numbers,
        }
    }

    /// Changes some of them, where that is to be done (a collective: all wait until nobody reads, and until
    /// it is done).
    ///
    /// # Errors
    /// Those of [`SharedRegion::write`] and [`SharedRegion::fence`].
    pub fn change(&mut self, range: Range<usize>, change: impl FnOnce(&mut [f64])) -> Result<()> {
        match self {
            Self::Own(numbers) => change(&mut numbers[range]),
            Self::Shared(region) => {
                let mut writing = region.write()?;
                if let Some(numbers) = writing.range_mut(range) {
                    change(numbers);
                }
                writing.fence()?;
            }
        }
        Ok(())
    }
}

/// The opening tree of a case, `[stage][opening][reservoir]` in m³/s.
pub struct Openings {
    numbers: Numbers,
    reservoirs: usize,
    openings: usize,
}

impl Openings {
    /// Computes it (a collective of the node's ranks).
    ///
    /// # Errors
    /// If ranks cannot communicate, or the case was not validated.
    pub fn new(node: &impl SharedMemory, case: &Case, share: bool) -> Result<Self> {
        let (reservoirs, openings) = (case.reservoirs.len(), case.openings);
        let len = case.stages.len() * openings * reservoirs;
        let mut numbers = Numbers::new(node, len, share)?;
        let inflows = Inflows::new(case)?;
        numbers.change(0..len, |tree| inflows.tree(tree))?;
        Ok(Self { numbers, reservoirs, openings })
    }

    /// For threads of a pool to read.
    pub fn view(&self) -> Tree<'_> {
        Tree { numbers: self.numbers.as_slice(), reservoirs: self.reservoirs, openings: self.openings }
    }
}

/// The opening tree, to read.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    numbers: &'a [f64],
    reservoirs: usize,
    openings: usize,
}

impl<'a> Tree<'a> {
    /// All openings of a stage, one behind the other.
    pub fn of(self, stage: usize) -> &'a [f64] {
        let len = self.openings * self.reservoirs;
        &self.numbers[stage * len..][..len]
    }

    /// One of them.
    pub fn inflow(self, stage: usize, opening: usize) -> &'a [f64] {
        &self.of(stage)[opening * self.reservoirs..][..self.reservoirs]
    }
}

/// Cuts of all stages: for each stage room for `capacity` of α, β₁ … βₙ, of which the first are there. All
/// ranks count alike, because all see the same cuts.
pub struct Pool {
    numbers: Numbers,
    /// Cuts of each stage that are there.
    counts: Vec<usize>,
    /// Cuts of each stage that there is room for.
    capacity: usize,
    /// Numbers of a cut.
    width: usize,
}

impl Pool {
    /// Empty, for the ranks of `node` (a collective).
    ///
    /// # Errors
    /// Those of [`Numbers::new`]; more than memory can have.
    pub fn new(node: &impl SharedMemory, case: &Case, capacity: usize, share: bool) -> Result<Self> {
        let (stages, width) = (case.stages.len(), case.reservoirs.len() + 1);
        let len = capacity.checked_mul(stages * width).filter(|len| *len < isize::MAX as usize / 8);
        let len = len.ok_or_else(|| Error::Option(format!("{capacity} cuts for each stage are too many")))?;
        Ok(Self { numbers: Numbers::new(node, len, share)?, counts: vec![0; stages], capacity, width })
    }

    /// For threads of a pool to read.
    pub fn view(&self) -> Cuts<'_> {
        let &Self { ref numbers, ref counts, capacity, width } = self;
        Cuts { numbers: numbers.as_slice(), counts, capacity, width }
    }

    /// How many cuts there are, of all stages.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| *count as u64).sum()
    }

    /// Adds cuts to a stage (a collective, with the same cuts on all ranks).
    ///
    /// # Errors
    /// If ranks cannot communicate, or there is no room.
    pub fn add(&mut self, stage: usize, cuts: &[f64]) -> Result<()> {
        let count = cuts.len() / self.width;
        if self.counts[stage] + count > self.capacity {
            let text = format!("stage {} has more than {} cuts", stage + 1, self.capacity);
            return Err(Error::Option(text));
        }
        let start = (stage * self.capacity + self.counts[stage]) * self.width;
        self.numbers.change(start..start + cuts.len(), |numbers| numbers.copy_from_slice(cuts))?;
        self.counts[stage] += count;
        Ok(())
    }
}

/// The pool of cuts, to read.
#[derive(Clone, Copy)]
pub struct Cuts<'a> {
    numbers: &'a [f64],
    counts: &'a [usize],
    capacity: usize,
    width: usize,
}

impl<'a> Cuts<'a> {
    /// Cuts on what all stages behind this one cost.
    pub fn of(self, stage: usize) -> &'a [f64] {
        &self.numbers[stage * self.capacity * self.width..][..self.counts[stage] * self.width]
    }
}

/// Of cuts those that are not, bit by bit, one of those before them. Trajectories that came to one state
/// bring the same cut: all of them do in the second stage, as the first has one inflow.
pub fn distinct(cuts: &[f64], width: usize) -> Vec<f64> {
    let mut seen = std::collections::HashSet::new();
    let bits = |cut: &[f64]| cut.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    cuts.chunks_exact(width).filter(|cut| seen.insert(bits(cut))).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bdrun_hybrid::LocalBackend;
    use std::path::Path;

    #[test]
    fn cuts_are_found_where_they_were_put() {
        let case =
            Case::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/tiny.toml"))).expect("bundled");
        for share in [true, false] {
            let mut pool = Pool::new(&LocalBackend, &case, 3, share).expect("a pool");
            let cut = |number: f64| [number, number + 0.25, number + 0.5];
            pool.add(2, &cut(1.0)).expect("room");
            pool.add(1, &cut(2.0)).expect("room");
            pool.add(2, &[cut(3.0), cut(4.0)].concat()).expect("room");
            assert_eq!(pool.view().of(2), [cut(1.0), cut(3.0), cut(4.0)].concat());
            assert_eq!((pool.view().of(0), pool.view().of(1), pool.count()), (&[][..], &cut(2.0)[..], 4));
            assert!(pool.add(2, &cut(5.0)).is_err_and(|error| error.to_string().contains("stage 3")));
        }
    }

    #[test]
    fn the_same_cut_is_kept_once_where_it_came_first() {
        let cuts = [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, -0.0, 0.0, 0.0, 0.0];
        assert_eq!(distinct(&cuts, 2).len(), 8);
        assert_eq!(distinct(&cuts, 2)[..6], [1.0, 2.0, 3.0, 4.0, -0.0, 0.0]);
    }
}
