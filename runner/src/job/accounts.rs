//! What independent ranks hold, and what of the budget is taken for them. Pure: what follows for the pool is answered.

use crate::scheduler::Rank;

/// Who writes a rank's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Owner {
    /// It has no process.
    #[default]
    Nobody,
    /// The master, by what it sees.
    Master,
    /// Its own runtime, from its hello on. It never changes again.
    Itself,
}

#[derive(Debug, Clone, Default)]
struct Account {
    owner: Owner,
    held: u64,
    out: u64,
    most_out: u64,
    taken: u64,
}

/// What is to be taken from the pool, and to be added to what is needed in all, bytes; given back and less if negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Change {
    pub taken: i64,
    pub needs: i64,
}

/// The accounts of all ranks.
#[derive(Debug)]
pub(super) struct Accounts {
    ranks: Vec<Account>,
    /// What a rank begins with, bytes.
    first: u64,
    held: u64,
    taken: u64,
    /// Some rank has an account of its own, and may take all that is free.
    shared: bool,
}

impl Accounts {
    /// For `np` ranks that have no process yet.
    pub fn new(np: u32, first: u64) -> Self {
        let ranks = (0..np).map(|_| Account::default()).collect();
        Self { ranks, first, held: 0, taken: 0, shared: false }
    }

    /// Bytes in RAM of all of them.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes of the pool that are taken for all of them.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes in RAM of one.
    pub fn held_by(&self, rank: Rank) -> u64 {
        self.ranks[rank as usize].held
    }

    /// Bytes on scratch of one, and the most that ever were.
    pub fn out_of(&self, rank: Rank) -> (u64, u64) {
        let account = &self.ranks[rank as usize];
        (account.out, account.most_out)
    }

    pub fn is_adopted(&self, rank: Rank) -> bool {
        self.ranks[rank as usize].owner == Owner::Itself
    }

    /// Some rank has an account of its own.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// It has a process. False if that is no news: its hello comes by another way, and may be there first.
    pub fn spawned(&mut self, rank: Rank) -> bool {
        let account = &mut self.ranks[rank as usize];
        if account.owner == Owner::Itself {
            return false;
        }
        account.owner = Owner::Master;
        true
    }

    /// It charges what it holds itself from now on; none if it does already.
    pub fn adopt(&mut self, rank: Rank) -> Option<Change> {
        if self.is_adopted(rank) {
            return None;
        }
        self.shared = true;
        self.ranks[rank as usize].owner = Owner::Itself;
        Some(self.set(rank, 0, 0, 0))
    }

    /// Its processes have ended.
    pub fn exited(&mut self, rank: Rank) -> Change {
        let account = &mut self.ranks[rank as usize];
        if account.owner == Owner::Master {
            account.owner = Owner::Nobody;
        }
        self.set(rank, 0, 0, 0)
    }

    /// It was seen to hold `held` bytes, and `out` are on scratch. `granted` are taken for it by the scheduler, for its start. None
    /// if that is not ours to write.
    pub fn charge(&mut self, rank: Rank, held: u64, out: u64, granted: u64) -> Option<Change> {
        if self.ranks[rank as usize].owner != Owner::Master {
            return None;
        }
        // Before its hello it cannot ask, so beside those that can its start is paid in advance.
        let least = if self.shared { self.first } else { 0 };
        Some(self.set(rank, held, out, held.max(least).saturating_sub(granted)))
    }

    fn set(&mut self, rank: Rank, held: u64, out: u64, taken: u64) -> Change {
        let account = &mut self.ranks[rank as usize];
        let needed = account.held + account.out;
        self.held = self.held - account.held + held;
        self.taken = self.taken - account.taken + taken;
        let change =
            Change { taken: taken as i64 - account.taken as i64, needs: (held + out) as i64 - needed as i64 };
        let most_out = account.most_out.max(out);
        *account = Account { owner: account.owner, held, out, most_out, taken };
        change
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
    }

    fn steps() -> impl Strategy<Value = Vec<(Rank, Step)>> {
        let step = prop_oneof![
            Just(Step::Spawned),
            Just(Step::Adopt),
            Just(Step::Exited),
            (0_u64..1000, 0_u64..1000).prop_map(|(held, out)| Step::Charge(held, out)),
            (0_u64..1000, 0_u64..1000).prop_map(|(held, out)| Step::Charge(held, out)),
        ];
        proptest::collection::vec((0_u32..4, step), 0..80)
    }

    proptest! {
        /// Whatever comes in whatever order: the pool is given back just what was taken, and for those that have an account of
        /// their own nothing is taken.
        #[test]
        fn what_was_taken_is_given_back(steps in steps(), granted in proptest::collection::vec(0_u64..200, 4)) {
            let mut accounts = Accounts::new(4, FIRST);
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
                }
                .unwrap_or_default();
                taken += change.taken;
                needs += change.needs;
                prop_assert_eq!(taken, accounts.taken() as i64);
                let sum: u64 = (0..4).map(|rank| accounts.held_by(rank)).sum();
                prop_assert_eq!(sum, accounts.held());
                for rank in (0..4).filter(|&rank| accounts.is_adopted(rank)) {
                    prop_assert_eq!((accounts.held_by(rank), accounts.out_of(rank).0), (0, 0));
                }
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
        let mut accounts = Accounts::new(2, FIRST);
        assert_eq!(accounts.adopt(0), Some(Change::default()));
        assert!(!accounts.spawned(0), "no news");
        assert_eq!(accounts.charge(0, 500, 0, 0), None, "it charges itself");
        assert_eq!(accounts.adopt(0), None, "once");
    }

    #[test]
    fn a_start_is_paid_in_advance_beside_those_that_may_take_all() {
        let mut accounts = Accounts::new(4, FIRST);
        let taken = |change: Option<Change>| change.expect("ours to write").taken;
        assert!(accounts.spawned(0) && accounts.spawned(1) && accounts.spawned(2));
        assert_eq!(taken(accounts.charge(1, 30, 0, 0)), 30, "nobody else takes anything");
        accounts.adopt(0);
        assert_eq!(taken(accounts.charge(1, 30, 0, 0)), 70);
        assert_eq!(taken(accounts.charge(1, 130, 0, 0)), 30);
        assert_eq!(taken(accounts.charge(2, 130, 0, 100)), 30, "of which the scheduler has paid 100");
        assert_eq!(accounts.exited(1), Change { taken: -130, needs: -130 });
        assert_eq!(accounts.adopt(2), Some(Change { taken: -30, needs: -130 }), "its reserve stays its own");
        assert_eq!((accounts.taken(), accounts.held()), (0, 0));
    }
}
