//! The conformance suite on ranks that are threads.

mod suite;

#[test]
fn threads_conform() {
    for size in [1, 2, 3, 4, 9] {
        bdrun_worker::local::run(size, |comm| suite::all(&comm));
    }
}

#[test]
fn alone_without_a_launcher() {
    let world = bdrun_worker::init().unwrap();
    assert!(!world.is_launched());
    suite::all(world.communicator());
    // Nobody can ever send: an error, not a hang.
    assert!(world.communicator().recv::<u8>(0, 99).is_err());
}
