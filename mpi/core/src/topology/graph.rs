//! Graphs of processes (sections 8.5.1 and 8.5.6).

use super::TopologyError;

/// A graph that every process knows: `MPI_Graph_create`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// Where the neighbours of each rank end.
    ends: Vec<i64>,
    edges: Vec<i64>,
}

impl Graph {
    /// Of `size` processes: where the neighbours of each rank end, and all of them, one rank's behind the
    /// other's.
    ///
    /// # Errors
    /// There are more ranks than processes, or the ends do not ascend, or there are other neighbours.
    pub fn new(ends: &[i64], edges: &[i64], size: i64) -> Result<Self, TopologyError> {
        let nodes = ends.len() as i64;
        if nodes > size {
            return Err(TopologyError::TooFew);
        }
        let ascend = ends.is_sorted() && ends.first().is_none_or(|&first| first >= 0);
        let fits = ends.last().copied().unwrap_or(0) == edges.len() as i64;
        if !ascend || !fits || !edges.iter().all(|edge| (0..nodes).contains(edge)) {
            return Err(TopologyError::Argument);
        }
        Ok(Self { ends: ends.to_vec(), edges: edges.to_vec() })
    }

    /// How many processes are in it.
    #[must_use]
    pub fn size(&self) -> i64 {
        self.ends.len() as i64
    }

    /// See [`Graph::new`].
    #[must_use]
    pub fn ends(&self) -> &[i64] {
        &self.ends
    }

    /// See [`Graph::new`].
    #[must_use]
    pub fn edges(&self) -> &[i64] {
        &self.edges
    }

    /// The neighbours of a rank.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn neighbours(&self, rank: i64) -> Result<&[i64], TopologyError> {
        let rank = usize::try_from(rank).map_err(|_| TopologyError::Rank)?;
        let end = *self.ends.get(rank).ok_or(TopologyError::Rank)?;
        let begin = if rank == 0 { 0 } else { self.ends[rank - 1] };
        Ok(&self.edges[begin as usize..end as usize])
    }
}

/// What a process knows of a graph that nobody knows as a whole: `MPI_Dist_graph_create_adjacent`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// Who sends to it, and the weight of that.
    pub sources: Vec<(i64, i64)>,
    /// To whom it sends.
    pub destinations: Vec<(i64, i64)>,
    /// Whether weights were given.
    pub weighted: bool,
}

/// `MPI_Dist_graph_create`: of edges (from, to, weight) that anybody named, in the order of the naming ranks,
/// what each of `size` processes knows then.
///
/// # Errors
/// An edge leads to no process, or has a negative weight.
pub fn adjacency(
    edges: impl IntoIterator<Item = (i64, i64, i64)>,
    size: usize,
    weighted: bool,
) -> Result<Vec<Neighbours>, TopologyError> {
    let mut all = vec![Neighbours { weighted, ..Neighbours::default() }; size];
    let is_there = |rank: i64| usize::try_from(rank).ok().filter(|&rank| rank < size);
    for (from, to, weight) in edges {
        let (source, destination) = is_there(from).zip(is_there(to)).ok_or(TopologyError::Rank)?;
        if weight < 0 {
            return Err(TopologyError::Argument);
        }
        all[source].destinations.push((to, weight));
        all[destination].sources.push((from, weight));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_example() {
        // Section 8.5.3: four processes.
        let graph = Graph::new(&[2, 3, 4, 6], &[1, 3, 0, 3, 0, 2], 5).expect("legal");
        assert_eq!(graph.size(), 4);
        let neighbours: Vec<&[i64]> = (0..4).map(|rank| graph.neighbours(rank).expect("there")).collect();
        assert_eq!(neighbours, [&[1, 3][..], &[0], &[3], &[0, 2]]);
        assert_eq!(graph.neighbours(4), Err(TopologyError::Rank));
    }

    #[test]
    fn what_is_not_legal_is_refused() {
        assert_eq!(Graph::new(&[1, 2], &[0, 1], 1), Err(TopologyError::TooFew));
        assert_eq!(Graph::new(&[2, 1], &[0, 1], 2), Err(TopologyError::Argument));
        assert_eq!(Graph::new(&[1, 2], &[0, 2], 2), Err(TopologyError::Argument));
        assert_eq!(Graph::new(&[1, 2], &[0], 2), Err(TopologyError::Argument));
        assert_eq!(Graph::new(&[], &[], 2).map(|graph| graph.size()), Ok(0));
        assert_eq!(adjacency([(0, 2, 1)], 2, true), Err(TopologyError::Rank));
        assert_eq!(adjacency([(0, 1, -1)], 2, true), Err(TopologyError::Argument));
    }

    #[test]
    fn edges_are_known_at_both_ends() {
        let all = adjacency([(0, 1, 5), (1, 0, 6), (0, 1, 7), (2, 2, 8)], 3, true).expect("legal");
        assert_eq!(all[0].destinations, [(1, 5), (1, 7)]);
        assert_eq!(all[0].sources, [(1, 6)]);
        assert_eq!(all[1].sources, [(0, 5), (0, 7)]);
        assert_eq!((&all[2].sources, &all[2].destinations), (&vec![(2, 8)], &vec![(2, 8)]));
    }
}
