//! Programs that know nothing of it are moved out and in at random moments, by a thread of another process,
//! and must not notice.
//!
//! The programs are in this binary: it runs itself again with `OUTSIDE` set to the name of one.

mod calls;
mod content;
mod driver;
#[path = "../model/mod.rs"]
mod model;
mod programs;
mod refused;
mod waits;

mod death;
mod faults;
mod moving;
mod refusals;
mod timeouts;

/// Not a test: where the programs begin.
#[test]
fn program() {
    if let Ok(name) = std::env::var("OUTSIDE") {
        programs::run(&name);
    }
}
