//! What ranks that tell did, wait by wait. Where that is too much, what is shortest counts for what comes
//! after it.

use serde::{Deserialize, Serialize};

use crate::residency::Rank;

/// So many are kept of all ranks together, where there are not very many ranks; and at least so many of each.
const MOST: usize = 1 << 18;
const EACH: usize = 8;

/// What a rank waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// It began, or ended.
    #[default]
    Nothing,
    /// A message of a rank, or of any.
    Message {
        /// Which.
        from: Option<Rank>,
    },
    /// A collective of a communicator.
    Collective {
        /// Which communicator.
        comm: u32,
        /// Which of its collectives.
        number: u64,
    },
    /// Memory of the budget.
    Memory,
    /// Something else, or some time to come.
    Other,
}

/// A wait, and what was before it. Times are seconds since the job began.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Leg {
    /// When it began to wait.
    pub began: f64,
    /// When somebody woke it, or it did itself.
    pub woken: f64,
    /// When it computed again.
    pub ran: f64,
    /// What it waited for.
    pub on: On,
    /// Who woke it.
    pub waker: Option<Rank>,
    /// It computes without a token.
    pub tokenless: bool,
    /// Bytes it held, and at most since the wait before.
    pub held: u64,
    /// See `held`.
    pub most: u64,
    /// Bytes that had to be in RAM for it to compute again; 0: all.
    pub need: u64,
    /// So far: bytes that left RAM, came back, were written, were read; and what of the budget was given back
    /// by leaving.
    pub moved: [u64; 5],
}

/// A leg as it is written: numbers, since there are many.
type Row = (f64, f64, f64, On, i64, bool, [u64; 3], [u64; 5]);

impl From<Row> for Leg {
    fn from((began, woken, ran, on, waker, tokenless, [held, most, need], moved): Row) -> Self {
        Self { began, woken, ran, on, waker: Rank::try_from(waker).ok(), tokenless, held, most, need, moved }
    }
}

impl From<Leg> for Row {
    fn from(leg: Leg) -> Self {
        let exact = |seconds: f64| (seconds * 1e7).round() / 1e7;
        let Leg { began, woken, ran, on, waker, tokenless, held, most, need, moved } = leg;
        let waker = waker.map_or(-1, i64::from);
        (exact(began), exact(woken), exact(ran), on, waker, tokenless, [held, most, need], moved)
    }
}

/// The legs of all ranks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Legs {
    ranks: Vec<Vec<Leg>>,
    count: usize,
    /// Waits and computing that together took less are not kept, seconds.
    shortest: f64,
}

impl Legs {
    /// Of so many ranks.
    #[must_use]
    pub fn new(np: u32) -> Self {
        Self { ranks: vec![Vec::new(); np as usize], count: 0, shortest: 0.0 }
    }

    /// What the rank did next.
    pub fn add(&mut self, rank: Rank, leg: Leg) {
        let Some(legs) = self.ranks.get_mut(rank as usize) else { return };
        legs.push(leg);
        self.count += 1;
        let most = MOST.max(EACH * self.ranks.len());
        while self.count > most && self.shortest < 1e6 {
            self.shortest = (self.shortest * 2.0).max(1e-5);
            self.compact();
        }
    }

    /// Adds what ranks did at another node, which began so many seconds later.
    pub fn join(&mut self, later: f64, other: Self) {
        for (own, legs) in self.ranks.iter_mut().zip(other.ranks) {
            self.count += legs.len();
            own.extend(legs.into_iter().map(|leg| Leg {
                began: leg.began + later,
                woken: leg.woken + later,
                ran: leg.ran + later,
                ..leg
            }));
        }
    }

    /// A try of it has ended, and it begins anew.
    pub fn forget(&mut self, rank: Rank) {
        if let Some(legs) = self.ranks.get_mut(rank as usize) {
            self.count -= std::mem::take(legs).len();
        }
    }

    /// Leaves out waits that were short and came soon after the one before: it computed all the time, for
    /// what is left. First and last stay.
    fn compact(&mut self) {
        self.count = 0;
        for legs in &mut self.ranks {
            let last = legs.len().saturating_sub(1);
            let mut kept: Vec<Leg> = Vec::new();
            let mut most = 0;
            for (at, leg) in legs.iter().enumerate() {
                let since = kept.last().map_or(f64::NEG_INFINITY, |kept| kept.ran);
                if at < last && leg.ran - since < self.shortest {
                    most = leg.most.max(most);
                    continue;
                }
                kept.push(Leg { most: leg.most.max(std::mem::take(&mut most)), ..*leg });
            }
            self.count += kept.len();
            *legs = kept;
        }
    }

    /// Those of a rank, in order.
    #[must_use]
    pub fn of(&self, rank: Rank) -> &[Leg] {
        self.ranks.get(rank as usize).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_there_are_few_are_kept_and_the_long_ones() {
        let mut legs = Legs::new(4);
        let mut t = [0.0; 4];
        for n in 0..MOST * 2 {
            let rank = n % 4;
            let long = if n % 50_000 < 4 { 0.5 } else { 3e-6 };
            let leg = Leg { began: t[rank] + 1e-6, ran: t[rank] + long, most: n as u64, ..Leg::default() };
            t[rank] = leg.ran;
            legs.add(rank as Rank, leg);
        }
        assert!(legs.count <= MOST, "{}", legs.count);
        for rank in 0..4 {
            let kept = legs.of(rank);
            assert!(kept.is_sorted_by(|a, b| a.ran <= b.ran));
            let long = kept.iter().filter(|leg| leg.ran - leg.began > 0.4).count();
            assert_eq!(long, (MOST * 2).div_ceil(50_000), "rank {rank}");
            assert_eq!(kept.last().unwrap().ran, t[rank as usize]);
        }
    }

    #[test]
    fn a_leg_is_written_as_numbers_and_read_back() {
        for on in [
            On::Nothing,
            On::Message { from: Some(3) },
            On::Collective { comm: 1, number: 1 << 40 },
            On::Memory,
        ] {
            let leg = Leg {
                began: 1.25,
                woken: 1.5,
                ran: 2.0,
                on,
                waker: Some(7),
                held: 5,
                moved: [1, 2, 3, 4, 5],
                ..Leg::default()
            };
            let text = serde_json::to_string(&leg).unwrap();
            assert!(text.starts_with("[1.25,1.5,2.0,"), "{text}");
            assert_eq!(serde_json::from_str::<Leg>(&text).unwrap(), leg);
        }
    }
}
