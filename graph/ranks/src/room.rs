//! Places in the memory that ranks share: who lies where, and which pages go back to the kernel.
//!
//! Pages of a result that was released are *warm*: the next one of the same size is put there, and nobody
//! has to clear pages for it. Together with what is live they never take more than the budget: what has been
//! warm longest goes back to the kernel.

use std::collections::{BTreeMap, BTreeSet};

use bdrun_graph::Graph;
use bdrun_graph::plan::{Action, Plan};
use bdrun_graph::run::Gaps;

use crate::wire::TOLD;

/// Bytes; every place begins and ends at a page.
pub(crate) const PAGE: u64 = 4096;

/// Bytes of pages that results take together at most while a plan of the graph runs: what is not told takes
/// whole pages. As many as the plan's budget, if all results of more than 4 KiB are whole pages.
#[must_use]
pub fn pages(graph: &Graph, plan: &Plan) -> u64 {
    // Each time that a result is made or read it takes a place, and it may have several at a time: the bytes
    // of each, and those of its last page behind them.
    let made = plan.actions.iter().filter_map(|action| match action {
        Action::Run(task) | Action::Read(task) => Some(graph.bytes(*task)),
        Action::Write(_) | Action::Drop(_) => None,
    });
    let is_odd = |bytes: &u64| *bytes > TOLD && !bytes.is_multiple_of(PAGE);
    let mut odd: Vec<(u128, u128)> =
        made.filter(is_odd).map(|bytes| (bytes.into(), (PAGE - bytes % PAGE).into())).collect();
    // Within the budget no more is lost than by those that lose most for each byte.
    odd.sort_unstable_by(|one, other| (other.1 * one.0).cmp(&(one.1 * other.0)));
    let (mut left, mut lost) = (u128::from(plan.budget), 0);
    for (bytes, behind) in odd {
        if bytes > left {
            lost += (behind * left).div_ceil(bytes);
            break;
        }
        left -= bytes;
        lost += behind;
    }
    plan.budget.saturating_add(u64::try_from(lost).unwrap_or(u64::MAX))
}

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub at: u64,
    pub len: u64,
}

#[derive(Debug)]
pub(crate) struct Room {
    gaps: Gaps,
    /// Released, by number: longest ago first.
    warm: BTreeMap<u64, Extent>,
    /// The same by length and number: results may be of very many lengths.
    lengths: BTreeSet<(u64, u64)>,
    /// The next number.
    number: u64,
    warm_bytes: u64,
    live: u64,
    budget: u64,
    /// There is room for so many bytes, taken or not.
    end: u64,
}

impl Room {
    pub fn new(budget: u64, end: u64) -> Self {
        let (warm, lengths) = (BTreeMap::new(), BTreeSet::new());
        Self { gaps: Gaps::default(), warm, lengths, number: 0, warm_bytes: 0, live: 0, budget, end }
    }

    fn remove(&mut self, number: u64) -> Option<Extent> {
        let extent = self.warm.remove(&number)?;
        self.lengths.remove(&(extent.len, number));
        self.warm_bytes -= extent.len;
        Some(extent)
    }

    /// A place of so many bytes, if there is one. Names to `cold` the places whose pages are to go back
    /// before it is used.
    pub fn take(&mut self, len: u64, mut cold: impl FnMut(Extent)) -> Option<u64> {
        let len = len.next_multiple_of(PAGE);
        self.live += len;
        // The last one that was released.
        let found = self.lengths.range((len, 0)..=(len, u64::MAX)).next_back().copied();
        let found = found.and_then(|(_, number)| self.remove(number));
        while self.live + self.warm_bytes > self.budget
            && let Some((&oldest, _)) = self.warm.first_key_value()
            && let Some(extent) = self.remove(oldest)
        {
            self.gaps.give(extent.at, extent.len);
            cold(extent);
        }
        if let Some(extent) = found {
            return Some(extent.at);
        }
        let at = self.gaps.take(len);
        if at + len > self.end {
            self.gaps.give(at, len);
            self.live -= len;
            return None;
        }
        Some(at)
    }

    /// What was taken is free.
    pub fn give(&mut self, at: u64, len: u64) {
        let len = len.next_multiple_of(PAGE);
        self.live -= len;
        if len > 0 {
            self.warm_bytes += len;
            self.warm.insert(self.number, Extent { at, len });
            self.lengths.insert((len, self.number));
            self.number += 1;
        }
    }

    /// Of what was taken no more than so many bytes are needed; the pages behind them are warm.
    pub fn shorten(&mut self, extent: Extent, len: u64) {
        let (whole, len) = (extent.len.next_multiple_of(PAGE), len.next_multiple_of(PAGE));
        if len < whole {
            self.give(extent.at + len, whole - len);
        }
    }

    /// Bytes of pages that are taken or warm.
    #[cfg(test)]
    fn pages(&self) -> u64 {
        self.live + self.warm_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bdrun_graph::{Builder, FunctionId, Inputs, Task, TaskId};
    use proptest::prelude::*;

    #[test]
    fn what_is_as_long_takes_warm_pages() {
        let mut room = Room::new(5 * PAGE, 1 << 30);
        let mut cold = Vec::new();
        let mut take = |room: &mut Room, len| room.take(len, |extent| cold.push(extent)).unwrap();
        let (one, two) = (take(&mut room, PAGE + 1), take(&mut room, 2 * PAGE));
        room.give(one, PAGE + 1);
        assert_eq!(take(&mut room, 2 * PAGE), one);
        room.give(two, 2 * PAGE);
        // Four pages are taken or warm, and three more are not to be had.
        assert_eq!(take(&mut room, 3 * PAGE), two);
        assert_eq!(cold, [Extent { at: two, len: 2 * PAGE }]);
        assert_eq!(room.take(1 << 30, |_| ()), None, "there is an end");
    }

    fn planned(sizes: &[u64], budget: u64) -> (Graph, Plan) {
        let mut builder = Builder::default();
        let actions = sizes.iter().enumerate().map(|(number, &bytes)| {
            let key = number.to_string();
            let task = Task::new(&key, FunctionId(0), Inputs::Keys(&[]));
            Action::Run(builder.add(Task { bytes, ..task }).unwrap())
        });
        let actions = actions.collect();
        let plan = Plan { actions, budget, peak: 0, written: 0, read: 0, again: 0 };
        (builder.build().unwrap(), plan)
    }

    #[test]
    fn one_odd_result_takes_a_page_more() {
        let (block, budget) = (8 << 20, 700 << 20);
        let mut sizes = vec![block; 200];
        let all = |sizes: &[u64]| {
            let (graph, plan) = planned(sizes, budget);
            pages(&graph, &plan) - budget
        };
        assert_eq!(all(&sizes), 0);
        // A mean; what is told takes no page.
        sizes.extend([5000, 4096, 100]);
        assert_eq!(all(&sizes), 2 * PAGE - 5000);
        // Read again it may be there twice.
        let (graph, mut plan) = planned(&sizes, budget);
        plan.actions.extend([
            Action::Write(TaskId(200)),
            Action::Read(TaskId(200)),
            Action::Drop(TaskId(200)),
        ]);
        assert_eq!(pages(&graph, &plan) - budget, 2 * (2 * PAGE - 5000));
        // Where all are odd it is by how much, and no more than fit.
        assert_eq!(all(&[4097; 1_000_000]), (u128::from(budget) * 4095).div_ceil(4097) as u64);
        assert_eq!(all(&[4097; 100]), 100 * 4095);
    }

    /// Very many warm places, none of which is as long as what comes.
    #[test]
    fn warm_places_are_not_gone_through() {
        let mut room = Room::new(u64::MAX, u64::MAX);
        let mut short: Vec<u64> = (0..200_000).map(|_| room.take(PAGE, |_| ()).unwrap()).collect();
        short.drain(..).for_each(|at| room.give(at, PAGE));
        let begun = processor_time();
        for _ in 0..100_000 {
            room.take(2 * PAGE, |_| panic!("there is room")).unwrap();
        }
        // By looks at each of them that were 2 * 10^10.
        let took = processor_time() - begun;
        assert!(took < 10.0, "{took} s");
    }

    /// Seconds of this thread, however busy the machine is.
    fn processor_time() -> f64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    proptest! {
        /// Whatever is there together within the budget takes no more.
        #[test]
        fn no_results_take_more_pages(sizes in prop::collection::vec(1_u64..40_000, 1..40), budget in 1_u64..400_000) {
            let (graph, plan) = planned(&sizes, budget);
            let (mut bytes, mut whole) = (0, 0);
            for size in sizes {
                if bytes + size <= budget {
                    bytes += size;
                    whole += if size > TOLD { size.next_multiple_of(PAGE) } else { 0 };
                }
            }
            prop_assert!(whole <= pages(&graph, &plan), "{whole}");
        }

        #[test]
        fn nobody_lies_where_another_does(moves in prop::collection::vec((any::<bool>(), 0_u64..40_000), 1..200)) {
            let budget = 200_000;
            let mut room = Room::new(budget, 1 << 30);
            let mut there: Vec<Extent> = Vec::new();
            // The pages that are in memory, by whether anybody gave them back.
            let mut pages = std::collections::BTreeSet::new();
            for (takes, len) in moves {
                let live: u64 = there.iter().map(|extent| extent.len.next_multiple_of(PAGE)).sum();
                if takes || there.is_empty() {
                    let at = room.take(len, |cold| {
                        for page in (cold.at..cold.at + cold.len).step_by(PAGE as usize) {
                            assert!(pages.remove(&page), "nobody uses it, and it was not given back before");
                        }
                    }).unwrap();
                    prop_assert!(there.iter().all(|other| at + len <= other.at || other.at + other.len <= at
                        || len == 0 || other.len == 0));
                    there.push(Extent { at, len });
                    pages.extend((at..at + len).step_by(PAGE as usize));
                    let live = live + len.next_multiple_of(PAGE);
                    prop_assert!(pages.len() as u64 * PAGE <= live.max(budget), "{} bytes", pages.len() as u64 * PAGE);
                    prop_assert_eq!(room.pages(), pages.len() as u64 * PAGE);
                } else {
                    let extent = there.swap_remove(len as usize % there.len());
                    room.give(extent.at, extent.len);
                }
            }
        }
    }
}
