//! Whose pages are spared. Pure.
//!
//! Several threads, each with memory of its own to go over, of which not all fits, drive out one another's
//! pages: all of them crawl, as one that could run, its pages being there, loses them like any other. So one
//! thread at a time has the *token*: what came for it stays, until it has what it needs and misses little.
//! Then it is the next one's turn, while the first still runs with what it has. ("Token-ordered LRU", Jiang
//! and Zhang, Performance Evaluation 60, 2005; there the threads are processes.)
//!
//! Time is measured in *periods*, in each of which a quarter as many pages come as there are.

use std::collections::HashMap;

/// Periods in which as many pages come as there are.
const TURN: u64 = 4;
/// It has the token no longer than so many periods.
const LONGEST: u64 = 4 * TURN;
/// It has what it needs when it misses less than this part of what threads miss on average.
const ENOUGH: f64 = 0.25;
/// It does not help a thread if this one still misses, of all misses, such a part of its part of all pages,
/// after one turn. Then nobody has the token for a while.
const USELESS: f64 = 0.6;
const REST: u64 = 4 * TURN;
/// Of all pages at most such a part is spared: one thread that has most of them is no reason to spare any.
const MOST: f64 = 0.7;
/// Threads that miss less than this part of all misses do not count.
const ACTIVE: f64 = 0.1;
/// After so many periods it is forgotten when a thread had the token.
const FORGOTTEN: u64 = 64 * TURN;

/// Nobody's: of what was there before.
pub(super) const NOBODY: u32 = 0;

#[derive(Debug, Default)]
pub(super) struct Token {
    holder: Option<u32>,
    /// Pages that are there, by the thread for which they came.
    owned: HashMap<u32, usize>,
    /// The period, and what it has brought so far: pages, and misses by thread.
    period: u64,
    came: usize,
    missed: HashMap<u32, usize>,
    /// It has its holder since then.
    since: u64,
    /// Nobody gets it before.
    rests: u64,
    /// When a thread got it last.
    held: HashMap<u32, u64>,
}

impl Token {
    /// Pages have come for a thread.
    pub fn entered(&mut self, by: u32, pages: usize) {
        *self.owned.entry(by).or_default() += pages;
        if by != NOBODY {
            self.came += pages;
        }
    }

    /// They have left.
    pub fn left(&mut self, by: u32, pages: usize) {
        if let Some(owned) = self.owned.get_mut(&by) {
            *owned -= pages;
            if *owned == 0 {
                self.owned.remove(&by);
            }
        }
    }

    /// The part of all pages that came for a thread.
    fn part(&self, by: u32, all: usize) -> f64 {
        self.owned.get(&by).copied().unwrap_or(0) as f64 / all.max(1) as f64
    }

    /// Who has it.
    pub const fn holder(&self) -> Option<u32> {
        self.holder
    }

    /// Whether what came for a thread stays, of so many pages in all.
    pub fn spares(&self, by: u32, all: usize) -> bool {
        self.holder == Some(by) && self.part(by, all) < MOST
    }

    /// A thread has waited for a page that was out, of so many that are there in all.
    pub fn missed(&mut self, by: u32, all: usize) {
        if by == NOBODY {
            return;
        }
        *self.missed.entry(by).or_default() += 1;
        if self.came >= (all / TURN as usize).max(1) {
            self.came = 0;
            self.period += 1;
            self.decide(all);
        }
    }

    /// Who has it in the next period.
    fn decide(&mut self, all: usize) {
        let missed = std::mem::take(&mut self.missed);
        let sum = missed.values().sum::<usize>() as f64;
        let is_active = |by: u32, count: usize| Some(by) == self.holder || count as f64 >= ACTIVE * sum;
        let active: Vec<(u32, usize)> =
            missed.into_iter().filter(|&(by, count)| is_active(by, count)).collect();
        if active.len() < 2 {
            self.holder = None;
            return;
        }
        if let Some(holder) = self.holder {
            let count = active.iter().find(|(by, _)| *by == holder).map_or(0, |(_, count)| *count) as f64;
            let has_enough = count < ENOUGH * sum / active.len() as f64;
            let had_it = self.period - self.since;
            if !has_enough && had_it < LONGEST {
                if had_it >= TURN && count / sum >= USELESS * self.part(holder, all) {
                    self.holder = None;
                    self.rests = self.period + REST;
                }
                return;
            }
        } else if self.period < self.rests {
            return;
        }
        // Whoever has not had it for longest; of these, who waits most.
        let turn = |&&(by, count): &&(u32, usize)| (self.held.get(&by).copied(), usize::MAX - count, by);
        self.holder = active.iter().min_by_key(turn).map(|(by, _)| *by);
        self.since = self.period;
        self.held.retain(|_, when| self.period - *when < FORGOTTEN);
        self.held.extend(self.holder.map(|by| (by, self.period)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that miss in these proportions for so many periods. Who has the token after each.
    fn run(token: &mut Token, misses: &[(u32, usize)], periods: usize) -> Vec<Option<u32>> {
        (0..periods)
            .map(|_| {
                let before = token.period;
                let all = token.owned.values().sum();
                for &(by, count) in misses {
                    token.came = 0;
                    (0..count).for_each(|_| token.missed(by, all));
                }
                token.came = all / 4;
                token.missed(misses[0].0, all);
                assert_eq!(token.period, before + 1);
                token.holder
            })
            .collect()
    }

    fn with(owned: &[(u32, usize)]) -> Token {
        let mut token = Token::default();
        owned.iter().for_each(|&(by, pages)| token.entered(by, pages));
        token
    }

    #[test]
    fn one_thread_alone_never_has_it() {
        let mut token = with(&[(NOBODY, 300), (7, 700)]);
        assert!(run(&mut token, &[(7, 100)], 50).iter().all(Option::is_none));
        // Nor does one that hardly misses anything make it two.
        assert!(run(&mut token, &[(7, 100), (8, 5)], 50).iter().all(Option::is_none));
        assert!(!token.spares(7, 1000) && !token.spares(NOBODY, 1000));
    }

    #[test]
    fn each_has_its_turn_when_another_has_enough() {
        let mut token = with(&[(NOBODY, 100), (1, 300), (2, 300), (3, 300)]);
        let mut had = vec![];
        for _ in 0..6 {
            let holder = run(&mut token, &[(1, 100), (2, 90), (3, 80)], 1)[0].expect("several miss");
            assert!((1..4).filter(|&by| token.spares(by, 1000)).eq([holder]));
            had.push(holder);
            // From here on it misses little.
            let misses = [(1, 100), (2, 100), (3, 100)].map(|(by, n)| (by, if by == holder { 1 } else { n }));
            let next = run(&mut token, &misses, 1)[0].expect("others wait");
            assert_ne!(next, holder);
            had.push(next);
            // And so on with that one.
            let misses = [(1, 100), (2, 100), (3, 100)].map(|(by, n)| (by, if by == next { 1 } else { n }));
            run(&mut token, &misses, 1);
        }
        assert!((1..4).all(|by| had.iter().filter(|&&one| one == by).count() >= 2), "{had:?}");
    }

    #[test]
    fn nobody_has_it_for_ever() {
        // Whoever has it misses less than others, but not little.
        let mut token = with(&[(1, 450), (2, 450), (NOBODY, 100)]);
        let mut longest = 0;
        let (mut last, mut count) = (None, 0);
        let mut misses = [(1, 100), (2, 100)];
        for _ in 0..200 {
            let holder = run(&mut token, &misses, 1)[0];
            misses = [1, 2].map(|by| (by, if Some(by) == holder { 30 } else { 100 }));
            count = if holder == last { count + 1 } else { 1 };
            last = holder;
            longest = longest.max(count);
        }
        assert!(last.is_some() && longest as u64 <= LONGEST, "{longest}");
    }

    #[test]
    fn where_it_does_not_help_it_rests() {
        let mut token = with(&[(1, 500), (2, 500)]);
        let holders = run(&mut token, &[(1, 100), (2, 100)], 200);
        let had = holders.iter().filter(|holder| holder.is_some()).count();
        assert!(had > 0 && had < 60, "{had}");
    }

    #[test]
    fn what_is_most_of_all_is_not_spared() {
        let mut token = with(&[(1, 200), (2, 800)]);
        let holders = run(&mut token, &[(1, 50), (2, 200)], 1);
        assert_eq!(holders, [Some(2)]);
        assert!(!token.spares(2, 1000));
        token.left(2, 400);
        assert!(token.spares(2, 600));
    }
}
