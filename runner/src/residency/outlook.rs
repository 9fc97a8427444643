//! What admission alone makes of those who stand in line, if each needs what it is taken to need, from its
//! beginning to its end: for a plan. What else may happen is not foreseen: that more are begun than fit
//! because processors would be idle (`overbook.rs`), or that ranks are paged out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Core, Rank};

/// How a job would go.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outlook {
    /// Ranks in the order in which they would be begun.
    pub order: Vec<Rank>,
    /// Bytes that are needed from each of these seconds on.
    pub needed: Vec<(f64, u64)>,
    /// Seconds until the last has ended.
    pub time: f64,
    /// The most ranks at once.
    pub at_once: u32,
}

impl Core {
    /// Those in line are begun as [`Core`] would, as many at once as processors, places and `-j` allow. Of
    /// each `needs` says bytes and seconds.
    #[must_use]
    pub fn outlook(mut self, needs: impl Fn(Rank) -> (u64, f64)) -> Outlook {
        let most = self.limits.processors.min(self.limits.resident).min(self.limits.alive);
        let mut outlook = Outlook::default();
        // Who runs, by when it ends; with what is counted for it, and what it needs.
        let mut running = BinaryHeap::<Reverse<(u64, Rank, u64, u64)>>::new();
        let (mut now, mut counted, mut needed) = (0.0f64, 0u64, 0u64);
        loop {
            while (running.len() as u32) < most && !self.waits_for_pilot(running.is_empty()) {
                let free = self.limits.budget.saturating_sub(counted);
                let others = most - (running.len() as u32 + 1);
                let alone = running.is_empty();
                let next = self.queue.take(free, alone, others, &self.ranks, &self.digest, &self.limits);
                let Some((rank, reserve)) = next else { break };
                let (bytes, seconds) = needs(rank);
                let counts = bytes.max(reserve);
                // Times are not negative, so their bits are in their order.
                running.push(Reverse(((now + seconds.max(0.0)).to_bits(), rank, counts, bytes)));
                (counted, needed) = (counted.saturating_add(counts), needed.saturating_add(bytes));
                outlook.order.push(rank);
            }
            outlook.needed.push((now, needed));
            outlook.at_once = outlook.at_once.max(running.len() as u32);
            let Some(&Reverse((end, ..))) = running.peek() else { break };
            now = f64::from_bits(end);
            while running.peek().is_some_and(|&Reverse((other, ..))| other == end)
                && let Some(Reverse((_, rank, counts, bytes))) = running.pop()
            {
                (counted, needed) = (counted.saturating_sub(counts), needed.saturating_sub(bytes));
                let declared = self.ranks[rank as usize].declared;
                self.digest.add(Some(declared), bytes);
            }
        }
        outlook.time = now;
        outlook
    }
}

#[cfg(test)]
mod tests {
    use crate::residency::sim::Machine;
    use crate::residency::{Can, Core, Informed, Outlook};

    fn outlook(
        sizes: &[u64],
        known: &[(u32, u64)],
        budget: u64,
        needs: impl Fn(u32) -> (u64, f64),
    ) -> Outlook {
        let ranks: Vec<_> = sizes.iter().map(|&size| (Can::PROGRAM, Some(size))).collect();
        let informed = Informed { known: known.to_vec(), largest_first: true, ..Informed::default() };
        Core::new(Machine::new(budget, 2).limits, &ranks).informed(&informed).outlook(needs)
    }

    #[test]
    fn as_many_as_fit_the_largest_first() {
        let known = [(0, 40), (1, 60), (2, 50), (3, 10)];
        let seen = outlook(&[0; 4], &known, 100, |rank| (known[rank as usize].1, 10.0));
        // Beside the largest the next does not fit, but the one after that does.
        assert_eq!(seen.order, [1, 0, 2, 3]);
        assert_eq!(seen.needed, [(0.0, 100), (10.0, 60), (20.0, 0)]);
        assert_eq!((seen.time, seen.at_once), (20.0, 2));
    }

    /// One that is larger than there is runs alone; it is not made smaller.
    #[test]
    fn one_larger_than_the_budget_is_alone() {
        let known = [(0, 150), (1, 20)];
        let seen = outlook(&[0; 2], &known, 100, |rank| (known[rank as usize].1, 1.0));
        assert_eq!((seen.order, seen.at_once, seen.time), (vec![0, 1], 1, 2.0));
        assert_eq!(seen.needed, [(0.0, 150), (1.0, 20), (2.0, 0)]);
    }

    /// While nothing is known of sizes the largest goes alone, and tells what to expect of the others.
    #[test]
    fn sizes_are_learned_from_the_first() {
        let sizes = [3, 5, 4, 1, 1, 1, 1, 1, 1];
        let seen = outlook(&sizes, &[], 120, |rank| (10 * sizes[rank as usize], 1.0));
        assert_eq!((seen.order[0], seen.order.len(), seen.needed[0]), (1, 9, (0.0, 50)));
        assert!(seen.needed[1..].iter().all(|at| at.1 <= 120), "{seen:?}");
        assert_eq!(seen.needed.last().map(|at| at.1), Some(0));
    }

    #[test]
    fn nobody_in_line_is_no_mistake() {
        assert_eq!(outlook(&[], &[], 100, |_| (1, 1.0)).time, 0.0);
    }
}
