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

    /// Whether this rank is one that writes.
    fn is_writer(&self) -> bool {
        match self {
            Self::Shared(region) => region.is_leader(),
            Self::Own(_) => true,
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

/// Cuts of all stages: α, β₁ … βₙ each, one behind the other in the order in which they came, and of each
/// stage where they are. All ranks keep the same account, because all see the same cuts.
///
/// Within an iteration a rank keeps what came for the stage that it is at, and only the writer all; they come
/// into the pool at once when it ends. So a stage asks for one collective, not for three, and a rank that is
/// out of RAM is brought back once for it.
pub struct Pool {
    numbers: Numbers,
    /// Of each stage the ranges of its cuts.
    parts: Vec<Vec<Range<usize>>>,
    /// Numbers that are there.
    used: usize,
    /// The last cuts that came, and for which stage.
    recent: (usize, Vec<f64>),
    /// Stages and lengths of what is not in the pool yet.
    coming: Vec<(usize, usize)>,
    /// The cuts of these, where they are written.
    pending: Vec<f64>,
}

impl Pool {
    /// Empty, with room for `capacity` cuts of all stages together, for the ranks of `node` (a collective).
    ///
    /// # Errors
    /// Those of [`Numbers::new`]; more than memory can have.
    pub fn new(node: &impl SharedMemory, case: &Case, capacity: usize, share: bool) -> Result<Self> {
        let (stages, width) = (case.stages.len(), case.reservoirs.len() + 1);
        let len = capacity.checked_mul(width).filter(|len| *len < isize::MAX as usize / 8);
        let len = len.ok_or_else(|| Error::Option(format!("{capacity} cuts are too many")))?;
        let (coming, pending) = (vec![], vec![]);
        let numbers = Numbers::new(node, len, share)?;
        Ok(Self { numbers, parts: vec![vec![]; stages], used: 0, recent: (0, vec![]), coming, pending })
    }

    /// For threads of a pool to read.
    pub fn view(&self) -> Cuts<'_> {
        let Self { numbers, parts, recent: (stage, cuts), .. } = self;
        Cuts { numbers: numbers.as_slice(), parts, recent: (*stage, cuts) }
    }

    /// How many numbers the cuts in the pool have.
    pub const fn len(&self) -> usize {
        self.used
    }

    /// Whether there are no cuts in the pool.
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Cuts come to a stage, the same on all ranks. Until [`keep`](Self::keep) only those that came last are
    /// seen.
    pub fn bring(&mut self, stage: usize, cuts: Vec<f64>) {
        self.coming.push((stage, cuts.len()));
        if self.numbers.is_writer() {
            self.pending.extend_from_slice(&cuts);
        }
        self.recent = (stage, cuts);
    }

    /// What came is in the pool from now on (a collective).
    ///
    /// # Errors
    /// If ranks cannot communicate, or there is no room.
    pub fn keep(&mut self) -> Result<()> {
        let end = self.used + self.coming.iter().map(|(_, len)| len).sum::<usize>();
        if end > self.numbers.as_slice().len() {
            return Err(Error::Option("the pool of cuts is full".into()));
        }
        let pending = std::mem::take(&mut self.pending);
        self.numbers.change(self.used..end, |numbers| numbers.copy_from_slice(&pending))?;
        for (stage, len) in self.coming.drain(..) {
            if len > 0 {
                self.parts[stage].push(self.used..self.used + len);
            }
            self.used += len;
        }
        self.recent = (0, vec![]);
        Ok(())
    }
}

/// The pool of cuts, to read.
#[derive(Clone, Copy)]
pub struct Cuts<'a> {
    numbers: &'a [f64],
    parts: &'a [Vec<Range<usize>>],
    recent: (usize, &'a [f64]),
}

impl<'a> Cuts<'a> {
    /// Cuts on what all stages behind this one cost, in parts.
    pub fn of(self, stage: usize) -> impl Iterator<Item = &'a [f64]> + Clone {
        let recent = Some(self.recent.1).filter(|_| self.recent.0 == stage);
        self.parts[stage].iter().map(move |part| &self.numbers[part.clone()]).chain(recent)
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
        let tiny = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/tiny.toml"));
        let case = Case::read(tiny).expect("bundled");
        for share in [true, false] {
            let mut pool = Pool::new(&LocalBackend, &case, 4, share).expect("a pool");
            let cut = |number: f64| vec![number, number + 0.25, number + 0.5];
            let of = |pool: &Pool, stage| pool.view().of(stage).flatten().copied().collect::<Vec<_>>();
            pool.bring(2, cut(1.0));
            assert_eq!((of(&pool, 2), of(&pool, 1)), (cut(1.0), vec![]));
            pool.bring(1, cut(2.0));
            // What came before is seen again when it is in the pool.
            assert_eq!((of(&pool, 2), of(&pool, 1)), (vec![], cut(2.0)));
            pool.keep().expect("room");
            pool.bring(2, [cut(3.0), cut(4.0)].concat());
            assert_eq!(of(&pool, 2), [cut(1.0), cut(3.0), cut(4.0)].concat());
            pool.bring(1, vec![]);
            pool.keep().expect("room");
            assert_eq!(of(&pool, 2), [cut(1.0), cut(3.0), cut(4.0)].concat());
            assert_eq!((of(&pool, 0), of(&pool, 1), pool.len()), (vec![], cut(2.0), 12));
            pool.bring(0, cut(5.0));
            assert!(pool.keep().is_err_and(|error| error.to_string().contains("full")));
        }
    }

    #[test]
    fn the_same_cut_is_kept_once_where_it_came_first() {
        let cuts = [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, -0.0, 0.0, 0.0, 0.0];
        assert_eq!(distinct(&cuts, 2).len(), 8);
        assert_eq!(distinct(&cuts, 2)[..6], [1.0, 2.0, 3.0, 4.0, -0.0, 0.0]);
    }
}
