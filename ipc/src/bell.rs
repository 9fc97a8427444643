//! How a rank gets the master's attention: its bit in a bitmap, then one futex wake if the master sleeps.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::futex;

const SILENT: u32 = 0;
const RUNG: u32 = 1;
/// The master sleeps: whoever rings wakes it.
const SLEEPS: u32 = 2;

/// The bell; lies in the segment's header.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Bell {
    state: AtomicU32,
}

impl Bell {
    /// Ring, after having set a bit in the bitmap, or left a message.
    pub fn ring(&self) {
        if self.state.swap(RUNG, SeqCst) == SLEEPS {
            futex::wake(&self.state, 1);
        }
    }

    /// By the master, and one thread of it: wait until somebody has rung, at most for `timeout`; was it rung?
    /// May also return before.
    pub fn wait(&self, timeout: Duration) -> bool {
        if !timeout.is_zero() && self.state.compare_exchange(SILENT, SLEEPS, SeqCst, SeqCst).is_ok() {
            futex::wait(&self.state, SLEEPS, Some(timeout));
        }
        self.state.swap(SILENT, SeqCst) == RUNG
    }
}

/// One bit per rank, of so many.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a>(pub &'a [AtomicU64], pub u32);

impl Attention<'_> {
    /// This rank has something to tell.
    pub fn set(&self, rank: u32) {
        if let Some(word) = self.0.get(rank as usize / 64) {
            word.fetch_or(1 << (rank % 64), SeqCst);
        }
    }

    /// Is any bit set?
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0.iter().any(|word| word.load(SeqCst) != 0)
    }

    /// All ranks whose bit is set, which clears it. Bits of ranks that do not exist say nothing: any process
    /// of the job may have written there.
    pub fn take(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut bits = word.swap(0, SeqCst);
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                (bit < 64).then(|| {
                    bits &= bits - 1;
                    i as u32 * 64 + bit
                })
            })
        });
        bits.filter(|&rank| rank < self.1)
    }
}
