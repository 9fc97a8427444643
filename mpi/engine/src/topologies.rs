//! Topologies (MPI-5.0, chapter 8): who is whose neighbour in a communicator. Ranks are never reordered: all
//! processes are on one node, where nobody is nearer than others.

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::topology::{Cartesian, Graph, Neighbours, TopologyError, adjacency, balanced};

use crate::Mpi;
use crate::args::{Ints, IntsOut, Weights};
use crate::calls::Topologies;
use crate::comm::{Communicator, Form, Groups};
use crate::communicators::{bytes_of, numbers_in};
use crate::failure::{Answer, Failure};
use crate::groups::{PROC_NULL, UNDEFINED};
use crate::handle::{Comm, Info};
use crate::link::Whom;

/// `MPI_CART`, `MPI_GRAPH`, `MPI_DIST_GRAPH`.
const KINDS: [i64; 3] = [211, 212, 213];

/// A communicator's topology, as one of its members knows it.
#[derive(Debug, Clone)]
pub enum Topology {
    /// A grid.
    Cartesian(Cartesian),
    /// A graph that all know.
    Graph(Graph),
    /// A graph of which each knows its own neighbours.
    Distributed(Neighbours),
}

/// Neighbours, in the order of their blocks; none beyond the edge of a grid.
pub type Ranks = Vec<Option<usize>>;

impl From<TopologyError> for Failure {
    fn from(error: TopologyError) -> Self {
        let class = match error {
            TopologyError::Dimensions => Class::Dims,
            TopologyError::Rank => Class::Rank,
            TopologyError::Argument => Class::Arg,
            TopologyError::TooFew => Class::Topology,
        };
        Self { text: Some(error.to_string()), ..class.into() }
    }
}

impl Topology {
    /// From whom a rank receives in collectives of neighbours, and to whom it sends.
    pub fn neighbours(&self, rank: usize) -> Answer<(Ranks, Ranks)> {
        let both = |ranks: Ranks| (ranks.clone(), ranks);
        let place = |rank: i64| Some(rank as usize);
        Ok(match self {
            Self::Cartesian(grid) => {
                both(grid.neighbours(rank as i64)?.into_iter().map(|rank| rank.and_then(place)).collect())
            }
            Self::Graph(graph) => both(graph.neighbours(rank as i64)?.iter().copied().map(place).collect()),
            Self::Distributed(own) => {
                let ranks = |edges: &[(i64, i64)]| edges.iter().map(|&(rank, _)| place(rank)).collect();
                (ranks(&own.sources), ranks(&own.destinations))
            }
        })
    }
}

/// So many numbers.
///
/// # Safety
/// There are so many, or the place is null.
unsafe fn read(count: i64, at: Ints) -> Answer<Vec<i64>> {
    let count = usize::try_from(count).map_err(|_| Class::Arg)?;
    if count > 0 && at.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's.
    Ok((0..count).map(|i| unsafe { at.get(i) }).collect())
}

/// Writes numbers where there must be room for all.
///
/// # Safety
/// There is room for so many, or the place is null.
unsafe fn write(numbers: impl ExactSizeIterator<Item = i64>, room: i64, at: IntsOut) -> Answer<()> {
    if numbers.len() > 0 && (at.is_null() || room < numbers.len() as i64) {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's.
    numbers.enumerate().for_each(|(i, number)| unsafe { at.set(i, number) });
    Ok(())
}

/// Edges with their weights: 1 if none were given.
///
/// # Safety
/// There are as many weights as ranks.
unsafe fn weighted(ranks: Vec<i64>, weights: Weights, size: usize) -> Answer<Vec<(i64, i64)>> {
    let weight = |i: usize| match weights {
        Weights::None => Ok(1),
        Weights::Empty => Err(Failure::from(Class::Arg)),
        Weights::At(at) if at.is_null() => Err(Class::Arg.into()),
        // SAFETY: the caller's.
        Weights::At(at) => Ok(i64::from(unsafe { at.add(i).read_unaligned() })),
    };
    let edge = |(i, rank): (usize, i64)| {
        if !(0..size as i64).contains(&rank) {
            return Err(Class::Rank.into());
        }
        let weight = weight(i)?;
        if weight < 0 { Err(Class::Arg.into()) } else { Ok((rank, weight)) }
    };
    ranks.into_iter().enumerate().map(edge).collect()
}

impl Mpi {
    /// The first `size` processes of a communicator, with a topology.
    fn arranged(&self, of: &Communicator, size: i64, topology: Topology, name: &'static str) -> Answer<Comm> {
        let group = of.group.members()[..size as usize].iter().copied().collect();
        let made = self.part_of(of, Groups::one(group), name)?;
        Ok(self.new_comm(made.map(|mut made| {
            made.topology = Some(topology);
            made
        })))
    }

    fn with_grid<T>(
        &self,
        comm: Comm,
        act: impl FnOnce(&Communicator, &Cartesian) -> Answer<T>,
    ) -> Answer<T> {
        let comm = self.comm(comm)?;
        match &comm.topology {
            Some(Topology::Cartesian(grid)) => act(&comm, grid),
            _ => Err(Class::Topology.into()),
        }
    }

    fn with_graph<T>(&self, comm: Comm, act: impl FnOnce(&Graph) -> Answer<T>) -> Answer<T> {
        match &self.comm(comm)?.topology {
            Some(Topology::Graph(graph)) => act(graph),
            _ => Err(Class::Topology.into()),
        }
    }

    fn with_edges<T>(&self, comm: Comm, act: impl FnOnce(&Neighbours) -> Answer<T>) -> Answer<T> {
        match &self.comm(comm)?.topology {
            Some(Topology::Distributed(neighbours)) => act(neighbours),
            _ => Err(Class::Topology.into()),
        }
    }

    /// # Safety
    /// There are so many numbers.
    unsafe fn grid(&self, of: &Communicator, n: i64, dims: Ints, periods: Ints) -> Answer<Cartesian> {
        if n < 0 {
            return Err(Class::Dims.into());
        }
        // SAFETY: the caller's.
        let (lengths, periods) = unsafe { (read(n, dims)?, read(n, periods)?) };
        let dimensions: Vec<_> =
            lengths.into_iter().zip(periods.into_iter().map(|periodic| periodic != 0)).collect();
        Ok(Cartesian::new(&dimensions, of.group.size() as i64)?)
    }

    /// # Safety
    /// There are so many numbers, and as many edges as the last one says.
    unsafe fn graph(&self, of: &Communicator, nodes: i64, ends: Ints, edges: Ints) -> Answer<Graph> {
        // SAFETY: the caller's.
        let ends = unsafe { read(nodes, ends) }?;
        // SAFETY: the caller's.
        let edges = unsafe { read(ends.last().copied().unwrap_or(0), edges) }?;
        Ok(Graph::new(&ends, &edges, of.group.size() as i64)?)
    }
}

impl Topologies for Mpi {
    unsafe fn cart_coords(&self, comm: Comm, rank: i64, maxdims: i64, coords: IntsOut) -> Answer<()> {
        self.with_grid(comm, |_, grid| {
            // SAFETY: the caller's.
            unsafe { write(grid.coordinates(rank)?.into_iter(), maxdims, coords) }
        })
    }

    unsafe fn cart_create(
        &self,
        comm_old: Comm,
        ndims: i64,
        dims: Ints,
        periods: Ints,
        _: bool,
    ) -> Answer<Comm> {
        let comm = self.intra(comm_old)?;
        // SAFETY: the caller's.
        let grid = unsafe { self.grid(&comm, ndims, dims, periods) }?;
        self.arranged(&comm, grid.size(), Topology::Cartesian(grid), "MPI_Cart_create")
    }

    unsafe fn cart_get(
        &self,
        comm: Comm,
        maxdims: i64,
        dims: IntsOut,
        periods: IntsOut,
        coords: IntsOut,
    ) -> Answer<()> {
        self.with_grid(comm, |comm, grid| {
            // SAFETY: the caller's.
            unsafe {
                write(grid.dimensions().iter().map(|&(length, _)| length), maxdims, dims)?;
                write(grid.dimensions().iter().map(|&(_, periodic)| periodic.into()), maxdims, periods)?;
                write(grid.coordinates(comm.rank as i64)?.into_iter(), maxdims, coords)
            }
        })
    }

    unsafe fn cart_map(&self, comm: Comm, ndims: i64, dims: Ints, periods: Ints) -> Answer<i64> {
        let comm = self.intra(comm)?;
        // SAFETY: the caller's.
        let grid = unsafe { self.grid(&comm, ndims, dims, periods) }?;
        let rank = comm.rank as i64;
        Ok(if rank < grid.size() { rank } else { UNDEFINED })
    }

    unsafe fn cart_rank(&self, comm: Comm, coords: Ints) -> Answer<i64> {
        self.with_grid(comm, |_, grid| {
            // SAFETY: the caller's.
            let at = unsafe { read(grid.dimensions().len() as i64, coords) }?;
            Ok(grid.rank(&at)?)
        })
    }

    unsafe fn cart_shift(&self, comm: Comm, direction: i64, disp: i64) -> Answer<(i64, i64)> {
        self.with_grid(comm, |comm, grid| {
            let dimension = usize::try_from(direction).map_err(|_| Class::Dims)?;
            let (from, to) = grid.shift(comm.rank as i64, dimension, disp)?;
            Ok((from.unwrap_or(PROC_NULL), to.unwrap_or(PROC_NULL)))
        })
    }

    unsafe fn cart_sub(&self, comm: Comm, remain_dims: Ints) -> Answer<Comm> {
        let of = self.comm(comm)?;
        let (part, color, key) = self.with_grid(comm, |comm, grid| {
            // SAFETY: the caller's.
            let remain = unsafe { read(grid.dimensions().len() as i64, remain_dims) }?;
            let remain: Vec<bool> = remain.into_iter().map(|remains| remains != 0).collect();
            Ok(grid.part(comm.rank as i64, &remain)?)
        })?;
        let made = self.split(&of, color, key)?;
        Ok(self.new_comm(made.map(|mut made| {
            made.topology = Some(Topology::Cartesian(part));
            made
        })))
    }

    unsafe fn cartdim_get(&self, comm: Comm) -> Answer<i64> {
        self.with_grid(comm, |_, grid| Ok(grid.dimensions().len() as i64))
    }

    unsafe fn dims_create(&self, nnodes: i64, ndims: i64, dims: IntsOut) -> Answer<()> {
        let count = usize::try_from(ndims).map_err(|_| Class::Dims)?;
        if count > 0 && dims.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: what it wants to keep stands there.
        let mut lengths: Vec<i64> = (0..count).map(|i| unsafe { dims.get(i) }).collect();
        if count > 0 || nnodes != 1 {
            balanced(nnodes, &mut lengths)?;
        }
        // SAFETY: the caller's.
        unsafe { write(lengths.into_iter(), ndims, dims) }
    }

    unsafe fn dist_graph_create(
        &self,
        comm_old: Comm,
        n: i64,
        sources: Ints,
        degrees: Ints,
        destinations: Ints,
        weights: Weights,
        info: Info,
        _: bool,
    ) -> Answer<Comm> {
        let comm = self.intra(comm_old)?;
        let content = self.content_of(info)?;
        let size = comm.group.size();
        // SAFETY: the caller's.
        let (sources, degrees) = unsafe { (read(n, sources)?, read(n, degrees)?) };
        if degrees.iter().any(|&degree| degree < 0) {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: as many destinations, and weights, as the degrees say.
        let edges = unsafe { weighted(read(degrees.iter().sum(), destinations)?, weights, size) }?;
        let from = sources.iter().zip(&degrees).flat_map(|(&from, &n)| std::iter::repeat_n(from, n as usize));
        let own = from.zip(edges).flat_map(|(from, (to, weight))| [from, to, weight]);
        // What all members have named, each what it has; and whether it has weights.
        let said = bytes_of(std::iter::once(i64::from(weights != Weights::None)).chain(own));
        let meeting =
            comm.meet(&**self.link()?, ("MPI_Dist_graph_create", Form::Blocking), &Whom::ALL, &[&said])?;
        self.wait_meeting(&*meeting)?;
        let (mut all, mut is_weighted) = (vec![], false);
        for member in 0..size {
            let numbers = numbers_in(meeting.part(member))?;
            let (has_weights, edges) = numbers.split_first().ok_or(Class::Internal)?;
            is_weighted |= *has_weights != 0;
            all.extend(edges.as_chunks().0.iter().map(|&[from, to, weight]| (from, to, weight)));
        }
        drop(meeting);
        let own = adjacency(all, size, is_weighted)?.swap_remove(comm.rank);
        self.distributed(&comm, own, content)
    }

    unsafe fn dist_graph_create_adjacent(
        &self,
        comm_old: Comm,
        indegree: i64,
        sources: Ints,
        sourceweights: Weights,
        outdegree: i64,
        destinations: Ints,
        destweights: Weights,
        info: Info,
        _: bool,
    ) -> Answer<Comm> {
        let comm = self.intra(comm_old)?;
        let (content, size) = (self.content_of(info)?, comm.group.size());
        // SAFETY: the caller's.
        let own = unsafe {
            Neighbours {
                sources: weighted(read(indegree, sources)?, sourceweights, size)?,
                destinations: weighted(read(outdegree, destinations)?, destweights, size)?,
                weighted: sourceweights != Weights::None || destweights != Weights::None,
            }
        };
        self.distributed(&comm, own, content)
    }

    unsafe fn dist_graph_neighbors(
        &self,
        comm: Comm,
        maxindegree: i64,
        sources: IntsOut,
        sourceweights: Weights,
        maxoutdegree: i64,
        destinations: IntsOut,
        destweights: Weights,
    ) -> Answer<()> {
        self.with_edges(comm, |own| {
            let tell = |edges: &[(i64, i64)], max: i64, to: IntsOut, weights: Weights| {
                let room = usize::try_from(max).map_err(|_| Class::Arg)?;
                let edges = &edges[..edges.len().min(room)];
                // SAFETY: the caller's.
                unsafe {
                    write(edges.iter().map(|&(rank, _)| rank), max, to)?;
                    match weights {
                        Weights::At(at) if own.weighted && !at.is_null() => {
                            let at = IntsOut::small(at.cast_mut());
                            write(edges.iter().map(|&(_, weight)| weight), max, at)
                        }
                        _ => Ok(()),
                    }
                }
            };
            tell(&own.sources, maxindegree, sources, sourceweights)?;
            tell(&own.destinations, maxoutdegree, destinations, destweights)
        })
    }

    unsafe fn dist_graph_neighbors_count(&self, comm: Comm) -> Answer<(i64, i64, i64)> {
        self.with_edges(comm, |own| {
            Ok((own.sources.len() as i64, own.destinations.len() as i64, own.weighted.into()))
        })
    }

    unsafe fn graph_create(
        &self,
        comm_old: Comm,
        nnodes: i64,
        indx: Ints,
        edges: Ints,
        _: bool,
    ) -> Answer<Comm> {
        let comm = self.intra(comm_old)?;
        // SAFETY: the caller's.
        let graph = unsafe { self.graph(&comm, nnodes, indx, edges) }?;
        self.arranged(&comm, graph.size(), Topology::Graph(graph), "MPI_Graph_create")
    }

    unsafe fn graph_get(
        &self,
        comm: Comm,
        maxindex: i64,
        maxedges: i64,
        indx: IntsOut,
        edges: IntsOut,
    ) -> Answer<()> {
        self.with_graph(comm, |graph| {
            // SAFETY: the caller's.
            unsafe {
                write(graph.ends().iter().copied(), maxindex, indx)?;
                write(graph.edges().iter().copied(), maxedges, edges)
            }
        })
    }

    unsafe fn graph_map(&self, comm: Comm, nnodes: i64, indx: Ints, edges: Ints) -> Answer<i64> {
        let comm = self.intra(comm)?;
        // SAFETY: the caller's.
        let graph = unsafe { self.graph(&comm, nnodes, indx, edges) }?;
        let rank = comm.rank as i64;
        Ok(if rank < graph.size() { rank } else { UNDEFINED })
    }

    unsafe fn graph_neighbors(
        &self,
        comm: Comm,
        rank: i64,
        maxneighbors: i64,
        neighbors: IntsOut,
    ) -> Answer<()> {
        self.with_graph(comm, |graph| {
            // SAFETY: the caller's.
            unsafe { write(graph.neighbours(rank)?.iter().copied(), maxneighbors, neighbors) }
        })
    }

    unsafe fn graph_neighbors_count(&self, comm: Comm, rank: i64) -> Answer<i64> {
        self.with_graph(comm, |graph| Ok(graph.neighbours(rank)?.len() as i64))
    }

    unsafe fn graphdims_get(&self, comm: Comm) -> Answer<(i64, i64)> {
        self.with_graph(comm, |graph| Ok((graph.size(), graph.edges().len() as i64)))
    }

    unsafe fn topo_test(&self, comm: Comm) -> Answer<i64> {
        Ok(match &self.comm(comm)?.topology {
            None => UNDEFINED,
            Some(Topology::Cartesian(_)) => KINDS[0],
            Some(Topology::Graph(_)) => KINDS[1],
            Some(Topology::Distributed(_)) => KINDS[2],
        })
    }
}

impl Mpi {
    fn distributed(
        &self,
        of: &Communicator,
        own: Neighbours,
        content: bdrun_mpi_core::info::Info,
    ) -> Answer<Comm> {
        let made = self.part_of(of, of.groups(), "MPI_Dist_graph_create")?.map(|mut made| {
            made.topology = Some(Topology::Distributed(own));
            made.with(|state| state.info = content);
            made
        });
        Ok(self.new_comm(made))
    }
}
