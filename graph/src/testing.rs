//! Random graphs for tests, and the time that they take.

use crate::{Builder, FunctionId, Graph, Inputs, Output, Task, TaskId};

/// Numbers that a seed determines (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// What this thread has computed so far, however busy the machine is.
pub(crate) fn processor_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes a time there.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(code, 0);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A graph of so many tasks: of one of several densities, sizes equal or very different, some outputs, some
/// work. The function of task i is i % 7.
pub(crate) fn random_graph(random: &mut Random, tasks: usize) -> Graph {
    let (fan, window) = (1 + random.below(4), 1 + random.below(tasks as u64 + 1));
    let sizes = random.below(3);
    let (works, kept, roots) = (random.below(2), random.below(3), 1 + random.below(4));
    let mut builder = Builder::default();
    for task in 0..tasks as u64 {
        let from = task.min(window);
        let count = if from == 0 || random.below(roots + 2) == 0 { 0 } else { 1 + random.below(fan) };
        let inputs: Vec<TaskId> =
            (0..count).map(|_| TaskId((task - 1 - random.below(from)) as u32)).collect();
        let bytes = match sizes {
            0 => 10,
            1 => 1 + random.below(20),
            _ => 1 << random.below(10),
        };
        let output = match random.below(12) {
            0 if kept > 0 => Output::Kept,
            1 | 2 => Output::Stored,
            _ if task + 1 == tasks as u64 => Output::Stored,
            _ => Output::No,
        };
        builder
            .add(Task {
                bytes,
                work: if works == 1 { random.below(bytes) } else { 0 },
                seconds: random.below(10) as f32,
                output,
                source: inputs.is_empty() && random.below(2) == 0,
                origin: if task % 2 == 0 { "even.rs:1" } else { "odd.rs:2" },
                ..Task::new(&format!("t{task}"), FunctionId(task as u32 % 7), Inputs::Tasks(&inputs))
            })
            .unwrap();
    }
    builder.build().unwrap()
}

/// A graph of chains that fork and join now and then; whatever nobody needs is an output.
pub(crate) fn chains(random: &mut Random, tasks: usize) -> Graph {
    let mut unused: Vec<TaskId> = Vec::new();
    let mut inputs: Vec<Vec<TaskId>> = Vec::new();
    for task in 0..tasks as u32 {
        let mut row = Vec::new();
        let count = [0, 1, 1, 1, 1, 2][random.below(6) as usize];
        for _ in 0..count {
            if random.below(6) == 0 && task > 0 {
                row.push(TaskId(random.below(u64::from(task)) as u32));
            } else if !unused.is_empty() {
                row.push(unused.swap_remove(random.below(unused.len() as u64) as usize));
            }
        }
        inputs.push(row);
        unused.push(TaskId(task));
    }
    let mut used = vec![false; tasks];
    inputs.iter().flatten().for_each(|input| used[input.index()] = true);
    let (sizes, works) = (1 + random.below(8), random.below(12));
    let mut builder = Builder::default();
    for (number, row) in inputs.iter().enumerate() {
        let key = format!("t{number}");
        let output = match random.below(10) {
            0 => Output::Kept,
            _ if used[number] => Output::No,
            _ => Output::Stored,
        };
        let task = Task::new(&key, FunctionId(number as u32 % 7), Inputs::Tasks(row));
        let (bytes, work) = (1 + random.below(sizes), random.below(works));
        builder.add(Task { bytes, work, output, source: row.is_empty(), seconds: 1.0, ..task }).unwrap();
    }
    builder.build().unwrap()
}
