use super::*;

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
