//! When compressing pays: rules only, no clocks, no system calls.
//!
//! It pays while the time that the disk is spared is more than the time that the codec takes. Both are
//! measured in this process: the disk by transfers of what is not compressed, the codec by its own work.
//! Where it does not pay it is given up after [`TRIAL`] granules, and tried again after a pause that doubles
//! each time.

use crate::config::Compression;
use crate::sys::{CHUNK, GRANULE, PAGE};

/// What is written packed is smaller than it would be by this part at least: the eighth.
const SHRINKS_BY: usize = 8;
/// Bytes of a packed granule at most.
pub(super) const MOST: usize = GRANULE - GRANULE / SHRINKS_BY;
/// Bytes that are looked at before a granule is given up as one that does not shrink.
const GLANCE: usize = 8 * CHUNK;
/// Granules after which it is judged whether it pays.
const TRIAL: u32 = 4;
/// Granules that are written as they are after a trial that failed: at first, and at most.
const PAUSE: u32 = 64;
const LONGEST_PAUSE: u32 = 8192;
/// Bytes that the disk must have moved before its rate counts as known.
const KNOWN: u64 = 16 << 20;
/// Granules packed after which the disk's rate is measured again.
const MEASURE_AGAIN: u32 = 1024;
/// Sums are halved from here on, so that what is new counts most.
const MEMORY: u64 = 256 << 20;

/// Whether a packed granule that took `packed` bytes for the first `looked` is not worth going on with.
pub(super) fn is_hopeless(looked: usize, packed: usize) -> bool {
    looked >= GLANCE && packed > looked - looked / SHRINKS_BY
}

/// Whether `packed` bytes instead of `raw` are worth keeping.
pub(super) fn is_smaller(raw: usize, packed: usize) -> bool {
    packed.next_multiple_of(PAGE) <= raw - raw / SHRINKS_BY
}

/// What is known of the disk and the codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Judge {
    /// What the disk moved, and the nanoseconds it took.
    disk: (u64, u64),
    /// Bytes spared, and the nanoseconds that took.
    codec: (u64, u64),
    /// Granules tried since the last pause.
    tried: u32,
    /// Granules left of the pause.
    pause: u32,
    last_pause: u32,
    /// Granules packed since the disk was measured.
    packed: u32,
}

impl Judge {
    pub const fn new() -> Self {
        Self { disk: (0, 0), codec: (0, 0), tried: 0, pause: 0, last_pause: 0, packed: 0 }
    }

    /// Whether the next granule is to be packed, if it can be.
    pub fn wants(&mut self, how: Compression) -> bool {
        match how {
            Compression::None => false,
            Compression::Lz4 => true,
            Compression::Auto if self.disk.0 < KNOWN => false,
            Compression::Auto if self.pause > 0 => {
                self.pause -= 1;
                false
            }
            Compression::Auto => true,
        }
    }

    /// A granule was tried: so many bytes need not be written, and the codec took so long.
    pub fn tried(&mut self, spared: usize, ns: u64) {
        let (bytes, took) = &mut self.codec;
        (*bytes, *took) = (*bytes + spared as u64, *took + ns);
        if *bytes > MEMORY {
            (*bytes, *took) = (*bytes / 2, *took / 2);
        }
        self.tried = self.tried.saturating_add(1);
        if self.tried < TRIAL {
            return;
        }
        if self.pays() {
            self.last_pause = 0;
            self.packed += 1;
            if self.packed >= MEASURE_AGAIN {
                (self.packed, self.disk) = (0, (0, 0));
            }
        } else {
            self.last_pause = (self.last_pause * 2).clamp(PAUSE, LONGEST_PAUSE);
            (self.pause, self.tried, self.codec) = (self.last_pause, 0, (0, 0));
        }
    }

    /// The disk moved bytes that were not packed, with nothing else in its way.
    pub fn disk(&mut self, bytes: usize, ns: u64) {
        let (moved, took) = &mut self.disk;
        (*moved, *took) = (*moved + bytes as u64, *took + ns);
        if *moved > MEMORY {
            (*moved, *took) = (*moved / 2, *took / 2);
        }
    }

    /// Whether the disk would take longer for the bytes spared than the codec took.
    fn pays(&self) -> bool {
        let ((moved, disk), (spared, codec)) = (self.disk, self.codec);
        u128::from(spared) * u128::from(disk) > u128::from(codec) * u128::from(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Nanoseconds for bytes at a rate in MB/s.
    fn ns(bytes: u64, rate: u64) -> u64 {
        bytes * 1000 / rate
    }

    /// Sends granules through a process whose disk, codec and data are as given: how many were tried.
    fn tried(how: Compression, disk: u64, codec: u64, spared: usize, granules: usize) -> usize {
        let mut judge = Judge::new();
        let mut count = 0;
        for _ in 0..granules {
            if judge.wants(how) {
                count += 1;
                judge.tried(spared, ns(GRANULE as u64, codec));
            } else {
                judge.disk(GRANULE, ns(GRANULE as u64, disk));
            }
        }
        count
    }

    #[test]
    fn modes_are_kept() {
        assert_eq!(tried(Compression::None, 100, 10_000, GRANULE - PAGE, 1000), 0);
        assert_eq!(tried(Compression::Lz4, 10_000, 100, 0, 1000), 1000);
    }

    #[test]
    fn it_follows_the_disk() {
        let mut judge = Judge::new();
        let half = GRANULE / 2;
        judge.disk(1 << 30, ns(1 << 30, 200));
        for _ in 0..50 {
            assert!(judge.wants(Compression::Auto), "a slow disk");
            judge.tried(half, ns(GRANULE as u64, 1000));
        }
        for _ in 0..20 {
            judge.disk(1 << 28, ns(1 << 28, 5000));
        }
        let on = (0..1000).filter(|_| {
            let wants = judge.wants(Compression::Auto);
            if wants {
                judge.tried(half, ns(GRANULE as u64, 1000));
            }
            wants
        });
        assert!(on.count() <= 5 * TRIAL as usize, "a fast one");
    }

    proptest! {
        #[test]
        fn what_does_not_pay_is_given_up_soon_and_tried_again_rarely(
            disk in 50u64..8000, codec in 50u64..8000, shrinks in 0usize..1000, granules in 100usize..4000,
        ) {
            let spared = GRANULE / 1000 * shrinks;
            let (spares, takes) = (ns(spared as u64, disk), ns(GRANULE as u64, codec));
            let count = tried(Compression::Auto, disk, codec, spared, granules);
            if spares * 100 > takes * 101 {
                // All but the first, and those by which the disk is measured.
                prop_assert!(granules - count <= 8 * (1 + granules / 1024 + 1), "{} of {}", count, granules);
            } else if spares * 101 < takes * 100 {
                // Pauses double: 64, 128, ...
                let pauses = (granules / 64 + 1).ilog2() as usize + 1 + granules / LONGEST_PAUSE as usize;
                prop_assert!(count <= TRIAL as usize * (pauses + 1), "{} of {}", count, granules);
            }
        }

        #[test]
        fn what_is_kept_is_smaller_by_an_eighth(raw in 1usize..=GRANULE, packed in 0usize..=GRANULE) {
            if is_smaller(raw, packed) {
                prop_assert!(packed <= MOST && packed.next_multiple_of(PAGE) * 8 <= raw * 7 + 7);
            }
            if is_hopeless(raw, packed) {
                prop_assert!(!is_smaller(raw, packed), "given up, and yet kept at its end");
            }
        }
    }
}
