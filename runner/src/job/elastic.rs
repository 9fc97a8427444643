//! `--memory auto`: the budget follows what is there. The job's side of [`crate::elastic`].

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Job;
use super::setup::Setup;
use crate::budget;
use crate::cli::{Memory, Options};
use crate::elastic::{Elastic, Reading, pressure_in};
use crate::residency::{Event, Limits};
use crate::units::Bytes;

/// From one reading to the next.
const EVERY: Duration = Duration::from_secs(1);

/// What follows, and when it was last read.
pub(super) struct Follow {
    elastic: Elastic,
    /// Where it is read how long processes waited for memory.
    pressure: PathBuf,
    /// How many masters share what is there.
    masters: u32,
    read: Instant,
    /// The budget is said to have changed only if it has by so much since that was said last.
    said: u64,
    /// The most that it was.
    pub(super) most: u64,
}

impl Follow {
    /// If that was asked for, of a job that begins with `budget` bytes.
    pub fn start(options: &Options, setup: &Setup, masters: u32) -> Option<Self> {
        let Limits { budget, processors, .. } = setup.limits;
        let (independent, computing) = (setup.independent, processors.min(options.resident_limit()));
        let share = options.budget_fraction.unwrap_or_else(|| budget::share(independent));
        let least = budget::LEAST.saturating_mul(computing.into()).max(budget / 64);
        (options.memory == Some(Memory::Auto)).then(|| Self {
            elastic: Elastic::new(share, least, budget),
            pressure: budget::pressure_file(Path::new("/")),
            masters,
            read: Instant::now(),
            said: budget,
            most: budget,
        })
    }
}

impl Job<'_> {
    /// Reads what is there, if it is time to, and follows it.
    pub(super) fn follow(&mut self, now: Instant) {
        let Some(follow) = &mut self.follow else { return };
        if now.duration_since(follow.read) < EVERY {
            return;
        }
        follow.read = now;
        // What cannot be read now may be the next time.
        let Ok(available) = budget::available() else { return };
        let available = available.among(follow.masters);
        let pool = &self.setup.segment.header().pool;
        let held = (pool.budget() as i64 - pool.free() - self.kept_free as i64).max(0) as u64;
        let pressure = std::fs::read_to_string(&follow.pressure).map_or(0.0, |text| pressure_in(&text));
        let Some(bytes) = follow.elastic.read(Reading { available: available.bytes, held, pressure }) else {
            return;
        };
        pool.resize(bytes);
        follow.most = follow.most.max(bytes);
        let is_news = bytes.abs_diff(follow.said) > follow.said / 4;
        follow.said = if is_news { bytes } else { follow.said };
        self.setup.limits.budget = bytes;
        self.update_mail_limit();
        self.events.push(Event::LimitChanged { budget: bytes });
        if is_news {
            self.note(&format!("the budget is {} now (--memory auto: {})", Bytes(bytes), available.source));
        }
    }
}
