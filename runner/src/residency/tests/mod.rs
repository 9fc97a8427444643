//! The core against hand-made event sequences. Random jobs are in `sim/tests.rs`.

mod admission;
mod bench;
mod earlier;
mod explained;
mod known;
mod measured;
mod remnants;
mod told;

use super::*;

fn done(rank: Rank, outcome: Outcome) -> Event {
    Event::Done { rank, outcome }
}

fn started(rank: Rank) -> Event {
    done(rank, Outcome::Started)
}

fn exited(rank: Rank) -> Event {
    Event::Exited { rank, peak: 0, next: Next::Over }
}
