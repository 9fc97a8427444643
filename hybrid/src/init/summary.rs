use std::fmt;

use super::numa::Numa;
use super::scheduler::Scheduler;
use super::solvers::Wrong;
use super::threads::Threads;
use crate::Kind;

/// How a job is set up: what rank 0 says when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The back end.
    pub backend: Kind,
    /// What said that it is this one.
    pub because: &'static str,
    /// Number of ranks.
    pub ranks: usize,
    /// Nodes that they are on.
    pub nodes: usize,
    /// Ranks on this rank's node.
    pub ranks_here: usize,
    /// Threads of each rank's pool.
    pub threads: Threads,
    /// Processors that this rank may use.
    pub processors: usize,
    /// Who gave them.
    pub scheduler: Scheduler,
    /// Where pages come from.
    pub numa: Numa,
    /// Variables that were set to keep solvers to one thread.
    pub solvers: Vec<Wrong>,
}

impl Summary {
    /// Threads of all ranks.
    #[must_use]
    pub const fn cores(&self) -> usize {
        self.ranks * self.threads.count
    }
}

/// `1 rank`, `2 ranks`.
fn some(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Threads { count, source } = self.threads;
        let (ranks, nodes, threads) =
            (some(self.ranks, "rank"), some(self.nodes, "node"), some(count, "thread"));
        writeln!(f, "{ranks} on {nodes} by {} ({})", self.backend, self.because)?;
        writeln!(f, "{threads} in each ({source}), {} in all", self.cores())?;
        // A rank may be bound to some of its node's processors, and others to others: only of one rank on a
        // node, or of ranks that may use the same, is it known that there are too few.
        let crowded = count > self.processors;
        let processors = some(self.processors, "processor");
        let few = if crowded { ": fewer than threads" } else { "" };
        writeln!(f, "{processors} for this rank, of {} on its node{few}", self.ranks_here)?;
        writeln!(f, "scheduler: {}", self.scheduler)?;
        write!(f, "memory: {}", self.numa)?;
        for Wrong { variable, was, must_be } in &self.solvers {
            let was = was.as_ref().map_or_else(|| "was not set".to_owned(), |was| format!("was {was}"));
            write!(f, "\nsolvers: {variable}={must_be} ({was})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::threads::ThreadSource;

    #[test]
    fn it_says_what_there_is() {
        let omp = Wrong { variable: "OMP_NUM_THREADS", was: Some("8".into()), must_be: "1" };
        let highs = Wrong { variable: "HIGHS_PARALLEL", was: None, must_be: "false" };
        let summary = Summary {
            backend: Kind::Mpi,
            because: "PMI_RANK",
            ranks: 8,
            nodes: 2,
            ranks_here: 4,
            threads: Threads { count: 16, source: ThreadSource::Variable("SLURM_CPUS_PER_TASK") },
            processors: 16,
            scheduler: Scheduler::None,
            numa: Numa::Local { nodes: 4 },
            solvers: vec![omp, highs],
        };
        let said = summary.to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "8 ranks on 2 nodes by mpi (PMI_RANK)",
                "16 threads in each (SLURM_CPUS_PER_TASK), 128 in all",
                "16 processors for this rank, of 4 on its node",
                "scheduler: none",
                "memory: 4 nodes of memory, each thread's own first",
                "solvers: OMP_NUM_THREADS=1 (was 8)",
                "solvers: HIGHS_PARALLEL=false (was not set)",
            ]
        );
        let few = Summary { processors: 8, solvers: vec![], ..summary };
        assert!(few.to_string().contains("8 processors for this rank, of 4 on its node: fewer than threads"));
    }
}
