use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::*;
use crate::runtime::tests::handed;

fn in_vain(patience: &Patience) -> u64 {
    let begun = monotonic_ns();
    assert!(!patience.spin(1, &|| false));
    monotonic_ns() - begun
}

/// To a runtime in another library a kind is its number.
#[test]
fn each_kind_of_a_failure_has_a_number() {
    for kind in FailureKind::ALL {
        assert_eq!(kind_of(kind as u32), kind);
    }
    assert_eq!(kind_of(u32::MAX), FailureKind::Runtime);
}

#[test]
fn who_slept_too_short_looks_longer_so_often() {
    let patience = Patience::new();
    patience.slept(HASTY);
    assert_eq!(patience.longer.load(Relaxed), 0, "that was worth it");
    patience.slept(HASTY - 1);
    for left in (0..LONGER).rev() {
        assert!(in_vain(&patience) >= HASTY);
        assert_eq!((patience.longer.load(Relaxed), patience.halved.load(Relaxed)), (left, 0));
    }
    in_vain(&patience);
    assert_eq!(patience.halved.load(Relaxed), 1, "it is as before");
}

/// How often it was tried to wait as the rank.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// Another thread waits as the rank the first two times.
const IN_THE_WAY: u32 = 2;

extern "C" fn wait_at_last(
    _: &[u64; 2],
    _: u64,
    _: &[u64; 4],
    _: extern "C" fn(*const c_void) -> bool,
    _: *const c_void,
) -> bool {
    TRIED.fetch_add(1, SeqCst) == IN_THE_WAY
}

/// Who only looked could not be evicted, and a deadlock was not seen.
#[test]
fn who_could_not_wait_as_the_rank_for_a_moment_tries_it_again() {
    let handed = handed(2);
    let table = Table {
        protocol: control::PROTOCOL,
        rank: 0,
        descriptors: [-1; 3],
        wait: wait_at_last,
        out: sbmalloc::pager::out(),
        vouch_for,
        pay_for_headers,
        report,
    };
    let (segment, mail) = (Box::leak(Box::new(handed.segment)), Box::leak(Box::new(handed.mail)));
    let front = Front { segment, mail, table: Box::leak(Box::new(table)) };
    // So often it is looked at most, if it is not tried again.
    let looks = AtomicU32::new(0);
    let satisfied = || looks.fetch_add(1, SeqCst) > 1000;
    Rank(Box::leak(Box::new(front))).sleep(None, Waiting::Anything, satisfied);
    assert_eq!(TRIED.load(SeqCst), IN_THE_WAY + 1);
    assert!(looks.load(SeqCst) <= 1000, "it waited as the rank");
}
