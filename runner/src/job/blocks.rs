//! Where in the shared segment a rank is. In a job of ranks that may talk to one another each has the place
//! of its number. In a *wide* one, of more ranks than there are places or of nobody knows how many, they need
//! not each other, and those that live have the places.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bdrun_ipc::segment::{RankBlock, Segment};
use std::sync::atomic::Ordering::SeqCst;

/// The places of a wide job; so many of its ranks live at one moment, less one.
pub(super) const PLACES: u32 = 1 << 14;

/// See the module's text.
#[derive(Clone)]
pub(super) struct Blocks {
    segment: Arc<Segment>,
    places: Option<Arc<Mutex<Places>>>,
}

#[derive(Default)]
struct Places {
    of: HashMap<u32, u32>,
    free: Vec<u32>,
    used: u32,
}

impl Blocks {
    pub fn new(segment: Segment, wide: bool) -> Self {
        Self { segment: Arc::new(segment), places: wide.then(Arc::default) }
    }

    /// Its ranks are none of those that may talk to one another.
    pub fn is_wide(&self) -> bool {
        self.places.is_some()
    }

    pub fn shared(&self) -> Arc<Segment> {
        Arc::clone(&self.segment)
    }

    fn places(&self) -> Option<MutexGuard<'_, Places>> {
        Some(self.places.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A rank begins.
    pub fn enter(&self, rank: u32) {
        let Some(mut places) = self.places() else { return };
        if places.of.contains_key(&rank) {
            return;
        }
        let place = places.free.pop().unwrap_or_else(|| {
            // No more live than there are places.
            places.used = (places.used + 1).min(self.segment.np() - 1);
            places.used - 1
        });
        places.of.insert(rank, place);
    }

    /// It is over: its place is another's, which begins with nothing.
    pub fn leave(&self, rank: u32) {
        let Some(mut places) = self.places() else { return };
        let Some(place) = places.of.remove(&rank) else { return };
        let block = self.segment.rank(place);
        for sum in
            [&block.peak, &block.evicted, &block.restored, &block.written, &block.read, &block.running_ns]
        {
            sum.store(0, SeqCst);
        }
        block.evictions.store(0, SeqCst);
        block.paging_ns.store(0, SeqCst);
        places.free.push(place);
    }

    /// That of a rank; in a wide job that of nobody, if it does not live.
    pub fn rank(&self, rank: u32) -> &RankBlock {
        let place = self.places().map(|places| places.of.get(&rank).copied());
        match place {
            None => self.segment.rank(rank),
            Some(place) => self.segment.rank(place.unwrap_or(self.segment.np() - 1)),
        }
    }
}

impl Deref for Blocks {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        &self.segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_live_have_the_places_of_a_wide_job() {
        let blocks = Blocks::new(Segment::create(4, 1 << 20, 1 << 18, 2).unwrap(), true);
        let at = |rank| std::ptr::from_ref(blocks.rank(rank));
        let nobody = std::ptr::from_ref(blocks.segment.rank(3));
        assert_eq!(at(1_000_000), nobody);
        for rank in [7, 1_000_000, 8] {
            blocks.enter(rank);
            blocks.enter(rank);
            blocks.rank(rank).peak.store(rank.into(), SeqCst);
            blocks.rank(rank).paging_ns.store(rank.into(), SeqCst);
        }
        assert_eq!(blocks.rank(1_000_000).peak.load(SeqCst), 1_000_000);
        let was = at(1_000_000);
        blocks.leave(1_000_000);
        blocks.leave(1_000_000);
        assert_eq!(at(1_000_000), nobody);
        blocks.enter(9);
        assert_eq!((at(9), blocks.rank(9).peak.load(SeqCst)), (was, 0));
        assert_eq!(blocks.rank(9).paging_ns.load(SeqCst), 0);
        assert_eq!((blocks.rank(7).peak.load(SeqCst), blocks.rank(8).peak.load(SeqCst)), (7, 8));
        let plain = Blocks::new(Segment::create(4, 1 << 20, 1 << 18, 2).unwrap(), false);
        assert!(std::ptr::eq(plain.rank(3), plain.segment.rank(3)));
    }
}
