//! What was measured of ranks, and what of the budget is taken for that. Pure: what follows for the pool is
//! answered.

use std::collections::HashMap;

use crate::residency::Rank;

/// Who writes a rank's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Owner {
    /// It has no process.
    #[default]
    Nobody,
    /// The master, by what it sees.
    Master,
    /// Its own runtime, from its hello on, of all that it asks for. What it holds besides the master sees. It
    /// never changes again.
    Itself,
}

#[derive(Debug, Clone, Default)]
struct Account {
    owner: Owner,
    held: u64,
    out: u64,
    most_out: u64,
    /// Of what it asked for itself, bytes that are out: others may use them until it comes back.
    lent: u64,
    taken: i64,
}

/// What is to be taken from the pool, and to be added to what is needed in all, bytes; given back and less if
/// negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Change {
    pub taken: i64,
    pub needs: i64,
}

/// The accounts of all ranks.
#[derive(Debug)]
pub(super) struct Accounts {
    /// Of those that have or had processes, and were not forgotten.
    ranks: HashMap<Rank, Account>,
    /// What the others are.
    none: Account,
    /// What a rank begins with, bytes.
    first: u64,
    held: u64,
    taken: i64,
    lent: u64,
    /// Some rank has an account of its own, and may take all that is free.
    shared: bool,
}

impl Accounts {
    /// For ranks that have no process yet. `own`: all of them will have accounts of their own.
    pub fn new(first: u64, own: bool) -> Self {
        let none = Account { owner: if own { Owner::Itself } else { Owner::Nobody }, ..Account::default() };
        Self { ranks: HashMap::new(), none, first, held: 0, taken: 0, lent: 0, shared: own }
    }

    fn account(&self, rank: Rank) -> &Account {
        self.ranks.get(&rank).unwrap_or(&self.none)
    }

    fn account_mut(&mut self, rank: Rank) -> &mut Account {
        self.ranks.entry(rank).or_insert_with(|| self.none.clone())
    }

    /// All of a rank is over, and it holds nothing.
    pub fn forget(&mut self, rank: Rank) {
        self.ranks.remove(&rank);
    }

    /// Bytes in RAM of all of them.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes of the pool that are taken for what is measured of all of them.
    pub fn measured(&self) -> u64 {
        self.taken.saturating_add_unsigned(self.lent).max(0).unsigned_abs()
    }

    /// Bytes in RAM of one.
    pub fn held_by(&self, rank: Rank) -> u64 {
        self.account(rank).held
    }

    /// Bytes on scratch of one, and the most that ever were.
    pub fn out_of(&self, rank: Rank) -> (u64, u64) {
        let account = self.account(rank);
        (account.out, account.most_out)
    }

    pub fn is_adopted(&self, rank: Rank) -> bool {
        self.account(rank).owner == Owner::Itself
    }

    /// Some rank has an account of its own.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// It has a process. False if that is no news: its hello comes by another way, and may be there first.
    pub fn spawned(&mut self, rank: Rank) -> bool {
        let account = self.account_mut(rank);
        if account.owner == Owner::Itself {
            return false;
        }
        account.owner = Owner::Master;
        true
    }

    /// It charges what it asks for itself from now on; none if it does already. What it holds besides is seen
    /// at the next look.
    pub fn adopt(&mut self, rank: Rank) -> Option<Change> {
        if self.is_adopted(rank) {
            return None;
        }
        self.shared = true;
        let account = self.account_mut(rank);
        account.owner = Owner::Itself;
        let out = account.out;
        Some(self.set(rank, 0, out, 0))
    }

    /// Its processes have ended.
    pub fn exited(&mut self, rank: Rank) -> Change {
        let account = self.account_mut(rank);
        if account.owner == Owner::Master {
            account.owner = Owner::Nobody;
        }
        let lent = std::mem::take(&mut account.lent);
        self.lent -= lent;
        self.set(rank, 0, 0, 0)
    }

    /// Of what it asked for so many bytes are out from now on.
    pub fn lend(&mut self, rank: Rank, bytes: u64) -> Change {
        let account = self.account_mut(rank);
        let before = std::mem::replace(&mut account.lent, bytes);
        let (held, out) = (account.held, account.out);
        self.lent = self.lent - before + bytes;
        self.set(rank, held, out, held as i64 - bytes as i64)
    }

    /// Of what it asked for, bytes that are out.
    pub fn lent_by(&self, rank: Rank) -> u64 {
        self.account(rank).lent
    }

    /// It was seen to hold `held` bytes, and `out` are on scratch. `granted` are taken for it for its start.
    /// None if that is not ours to write.
    pub fn charge(&mut self, rank: Rank, held: u64, out: u64, granted: u64) -> Option<Change> {
        let account = self.account(rank);
        let taken = match account.owner {
            Owner::Nobody => return None,
            Owner::Itself => held as i64 - account.lent as i64,
            Owner::Master => {
                // Before its hello it cannot ask, so beside those that can its start is paid in advance.
                let least = if self.shared { self.first } else { 0 };
                held.max(least).saturating_sub(granted) as i64
            }
        };
        Some(self.set(rank, held, out, taken))
    }

    fn set(&mut self, rank: Rank, held: u64, out: u64, taken: i64) -> Change {
        let account = self.account_mut(rank);
        let before = account.clone();
        *account = Account { held, out, most_out: before.most_out.max(out), taken, ..before };
        self.held = self.held - before.held + held;
        self.taken = self.taken - before.taken + taken;
        let needed = before.held + before.out;
        Change { taken: taken - before.taken, needs: (held + out) as i64 - needed as i64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIRST: u64 = 100;

    #[derive(Debug, Clone)]
    enum Step {
        Spawned,
        Adopt,
        Exited,
        Charge(u64, u64),
        Lend(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<(Rank, Step)>> {
        let step = prop_oneof![
            Just(Step::Spawned),
            Just(Step::Adopt),
            Just(Step::Exited),
            (0_u64..1000, 0_u64..1000).prop_map(|(held, out)| Step::Charge(held, out)),
            (0_u64..1000, 0_u64..1000).prop_map(|(held, out)| Step::Charge(held, out)),
            (0_u64..1000).prop_map(Step::Lend),
        ];
        proptest::collection::vec((0_u32..4, step), 0..80)
    }

    proptest! {
        /// Whatever comes in whatever order: the pool is given back just what was taken.
        #[test]
        fn what_was_taken_is_given_back(steps in steps(), granted in proptest::collection::vec(0_u64..200, 4)) {
            let mut accounts = Accounts::new(FIRST, false);
            let (mut taken, mut needs) = (0, 0);
            for (rank, step) in steps {
                let change = match step {
                    Step::Spawned => {
                        accounts.spawned(rank);
                        None
                    }
                    Step::Adopt => accounts.adopt(rank),
                    Step::Exited => Some(accounts.exited(rank)),
                    Step::Charge(held, out) => accounts.charge(rank, held, out, granted[rank as usize]),
                    Step::Lend(bytes) => accounts.is_adopted(rank).then(|| accounts.lend(rank, bytes)),
                }
                .unwrap_or_default();
                taken += change.taken;
                needs += change.needs;
                prop_assert_eq!(taken, accounts.taken);
                let sum: u64 = (0..4).map(|rank| accounts.held_by(rank)).sum();
                prop_assert_eq!(sum, accounts.held());
            }
            for rank in 0..4 {
                let change = accounts.exited(rank);
                taken += change.taken;
                needs += change.needs;
            }
            prop_assert_eq!((taken, needs, accounts.held()), (0, 0, 0));
        }
    }

    #[test]
    fn a_hello_may_be_there_first() {
        let mut accounts = Accounts::new(FIRST, false);
        assert_eq!(accounts.adopt(0), Some(Change::default()));
        assert!(!accounts.spawned(0), "no news");
        assert_eq!(accounts.charge(1, 500, 0, 0), None, "it has no process");
        assert_eq!(accounts.adopt(0), None, "once");
    }

    #[test]
    fn a_start_is_paid_in_advance_beside_those_that_may_take_all() {
        let mut accounts = Accounts::new(FIRST, false);
        let taken = |change: Option<Change>| change.expect("ours to write").taken;
        assert!(accounts.spawned(0) && accounts.spawned(1) && accounts.spawned(2));
        assert_eq!(taken(accounts.charge(1, 30, 0, 0)), 30, "nobody else takes anything");
        accounts.adopt(0);
        assert_eq!(taken(accounts.charge(1, 30, 0, 0)), 70);
        assert_eq!(taken(accounts.charge(1, 130, 0, 0)), 30);
        assert_eq!(taken(accounts.charge(2, 130, 0, 100)), 30, "of which 100 were paid when it was started");
        assert_eq!(accounts.exited(1), Change { taken: -130, needs: -130 });
        assert_eq!(accounts.adopt(2), Some(Change { taken: -30, needs: -130 }), "its reserve stays its own");
        assert_eq!((accounts.measured(), accounts.held()), (0, 0));
    }

    #[test]
    fn what_one_did_not_ask_for_counts_besides_and_what_it_asked_for_may_be_used_while_it_is_out() {
        let mut accounts = Accounts::new(FIRST, true);
        assert_eq!(accounts.charge(0, 70, 0, 500), Some(Change { taken: 70, needs: 70 }));
        assert_eq!(accounts.lend(0, 500), Change { taken: -500, needs: 0 });
        assert_eq!(accounts.measured(), 70);
        assert_eq!(accounts.charge(0, 5, 65, 500), Some(Change { taken: -65, needs: 0 }));
        assert_eq!(accounts.lend(0, 0), Change { taken: 500, needs: 0 });
        assert_eq!(accounts.exited(0), Change { taken: -5, needs: -70 });
    }
}
