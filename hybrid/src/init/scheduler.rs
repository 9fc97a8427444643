//! What the site's scheduler says of the job, and the launcher of its ranks.

use std::fmt;

use super::Env;

/// Who gave the job its processors. What is not said is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheduler {
    /// Nobody: somebody's own machine.
    None,
    /// Slurm.
    Slurm {
        /// Number of the job.
        job: String,
        /// Nodes of the job.
        nodes: Option<usize>,
        /// Tasks of the job.
        tasks: Option<usize>,
        /// Processors of each task.
        processors: Option<usize>,
        /// Bytes of memory on each node.
        memory: Option<u64>,
    },
    /// PBS (OpenPBS, PBS Professional, Torque).
    Pbs {
        /// Number of the job.
        job: String,
        /// Nodes of the job: those that the file of nodes names.
        nodes: Option<usize>,
        /// Processors of each part (`NCPUS`, or Torque's `PBS_NUM_PPN`).
        processors: Option<usize>,
    },
}

impl Scheduler {
    /// By the environment; `nodefile` reads what `PBS_NODEFILE` names.
    #[must_use]
    pub fn detect(env: Env<'_>, nodefile: &dyn Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| env(name).and_then(|value| value.trim().parse().ok());
        let named = |name: &str| env(name).filter(|value| !value.is_empty());
        if let Some(job) = named("SLURM_JOB_ID") {
            return Self::Slurm {
                job,
                nodes: number("SLURM_JOB_NUM_NODES"),
                tasks: number("SLURM_NTASKS"),
                processors: number("SLURM_CPUS_PER_TASK"),
                memory: env("SLURM_MEM_PER_NODE").and_then(|value| slurm_memory(&value)),
            };
        }
        let Some(job) = named("PBS_JOBID") else { return Self::None };
        let nodes = env("PBS_NODEFILE").and_then(|path| nodefile(&path)).map(|text| {
            let mut names: Vec<&str> = text.split_whitespace().collect();
            names.sort_unstable();
            names.dedup();
            names.len()
        });
        Self::Pbs { job, nodes, processors: number("NCPUS").or_else(|| number("PBS_NUM_PPN")) }
    }
}

/// Bytes of a number of MiB, or with K, M, G or T behind it. 0 is all of the node, which says nothing.
fn slurm_memory(value: &str) -> Option<u64> {
    let value = value.trim();
    let (digits, shift) = match value.char_indices().next_back()? {
        (at, 'K' | 'k') => (&value[..at], 10),
        (at, 'M' | 'm') => (&value[..at], 20),
        (at, 'G' | 'g') => (&value[..at], 30),
        (at, 'T' | 't') => (&value[..at], 40),
        _ => (value, 20),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = Vec::new();
        let mut say = |number: Option<usize>, one: &str, many: &str| match number {
            Some(1) => said.push(format!("1 {one}")),
            Some(number) => said.push(format!("{number} {many}")),
            None => {}
        };
        let name = match self {
            Self::None => return f.write_str("none"),
            Self::Slurm { job, nodes, tasks, processors, memory } => {
                say(*nodes, "node", "nodes");
                say(*tasks, "task", "tasks");
                say(*processors, "processor each", "processors each");
                if let Some(bytes) = memory {
                    said.push(format!("{} MiB on each node", bytes >> 20));
                }
                format!("Slurm, job {job}")
            }
            Self::Pbs { job, nodes, processors } => {
                say(*nodes, "node", "nodes");
                say(*processors, "processor each", "processors each");
                format!("PBS, job {job}")
            }
        };
        f.write_str(&name)?;
        if said.is_empty() { Ok(()) } else { write!(f, " ({})", said.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(set: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| set.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn slurm_and_pbs_are_known_by_their_variables() {
        let slurm = [
            ("SLURM_JOB_ID", "42"),
            ("SLURM_JOB_NUM_NODES", "4"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_CPUS_PER_TASK", "16"),
            ("SLURM_MEM_PER_NODE", "64000"),
        ];
        let found = Scheduler::detect(&env(&slurm), &|_| None);
        let said = "Slurm, job 42 (4 nodes, 8 tasks, 16 processors each, 64000 MiB on each node)";
        assert_eq!(found.to_string(), said);
        assert_eq!(Scheduler::detect(&env(&slurm[..1]), &|_| None).to_string(), "Slurm, job 42");
        let pbs = [("PBS_JOBID", "7.head"), ("PBS_NODEFILE", "/nodes"), ("NCPUS", "1")];
        let file = |path: &str| (path == "/nodes").then(|| "b\na\nb\nb\n".to_owned());
        assert_eq!(
            Scheduler::detect(&env(&pbs), &file).to_string(),
            "PBS, job 7.head (2 nodes, 1 processor each)"
        );
        let gone = Scheduler::detect(&env(&pbs), &|_| None);
        assert_eq!(gone, Scheduler::Pbs { job: "7.head".into(), nodes: None, processors: Some(1) });
        assert_eq!(Scheduler::detect(&env(&[]), &file), Scheduler::None);
        assert_eq!(Scheduler::None.to_string(), "none");
    }

    #[test]
    fn slurms_memory_is_in_mebibytes_unless_it_says_another_unit() {
        let cases = [
            ("64", Some(64 << 20)),
            ("64M", Some(64 << 20)),
            ("2G", Some(2 << 30)),
            ("512K", Some(512 << 10)),
            ("1T", Some(1 << 40)),
            ("0", None),
            ("", None),
            ("G", None),
            ("99999999999999999T", None),
        ];
        for (value, bytes) in cases {
            assert_eq!(slurm_memory(value), bytes, "{value}");
        }
    }
}
