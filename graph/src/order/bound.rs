//! What an order takes when several tasks run at once.

use super::memory::Live;
use crate::graph::{Graph, TaskId};

/// Bytes within which `threads` threads can run the order without one of them waiting for memory, if tasks
/// take equally long: at each place what is live there, and the results and work of this task and the next
/// ones, one for each thread. With one thread that is the peak.
///
/// As the budget of an execution it is kept whatever tasks take, for a task that does not fit waits; and it
/// is enough to finish, for one thread needs no more than the peak. So it bounds what `threads` threads use.
pub fn bound(graph: &Graph, order: &[TaskId], threads: usize) -> u64 {
    let threads = threads.max(1);
    let size = |task: TaskId| graph.bytes(task) + graph.work(task);
    let mut ahead: u64 = order.iter().take(threads).map(|&task| size(task)).sum();
    let mut live = Live::new(graph);
    let mut most = 0;
    for (place, &task) in order.iter().enumerate() {
        most = most.max(live.bytes + ahead);
        live.run(task);
        ahead -= size(task);
        ahead += order.get(place + threads).map_or(0, |&next| size(next));
    }
    most
}
