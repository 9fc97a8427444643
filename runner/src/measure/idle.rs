//! How many processors nobody uses: whether it helps to run more ranks.
//!
//! What the looks see of ranks is not all of it: those that live shorter than from one look to the next are
//! not seen, and to make them takes bdrun's own time. Nor is it seen of these how long they waited for a
//! processor: while such ranks end, no more is idle than is on the whole machine, whoever uses it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::proc;

/// How often the machine is asked; it counts in ticks of a hundredth of a second.
const EVERY: Duration = Duration::from_millis(100);

/// Who lives shorter is hardly seen: looks are up to 0.1 s apart.
const SHORT: Duration = Duration::from_millis(500);
/// For so long that says something of the others.
const LATELY: Duration = Duration::from_secs(2);

/// See the module's text.
#[derive(Debug)]
pub struct Idle {
    stat: Option<File>,
    /// Processor seconds that the machine had not used, when it was last asked, and when that was.
    last: Option<(Instant, f64)>,
    /// Of the machine, processors.
    machine: Option<f64>,
    /// Processor time of this process at the last look.
    own: Duration,
    /// Of ranks that have ended since.
    ended: Duration,
    /// When one last ended that was hardly seen.
    unseen: Option<Instant>,
}

impl Idle {
    /// Where the machine cannot be asked, others are not counted.
    #[must_use]
    pub fn new() -> Self {
        Self {
            stat: File::open("/proc/stat").ok(),
            last: None,
            machine: None,
            own: own_cpu(),
            ended: Duration::ZERO,
            unseen: None,
        }
    }

    /// A rank has ended that lived so long, and used so much beyond what looks saw of it.
    pub fn ended(&mut self, lived: Duration, spent: Duration) {
        self.ended += spent;
        if lived < SHORT {
            self.unseen = Some(Instant::now());
        }
    }

    /// Of so many `processors` that ranks may use, those that nobody has used in the time `elapsed` since the
    /// last look, in which the ranks that live used `busy`.
    pub fn look(&mut self, elapsed: Duration, processors: u32, busy: f64) -> f64 {
        self.ask(Instant::now());
        self.free(elapsed, processors, busy, own_cpu())
    }

    /// The same, with the processor time of this process.
    fn free(&mut self, elapsed: Duration, processors: u32, busy: f64, own: Duration) -> f64 {
        let besides =
            own.saturating_sub(std::mem::replace(&mut self.own, own)) + std::mem::take(&mut self.ended);
        let besides = besides.as_secs_f64() / elapsed.as_secs_f64().max(1e-3);
        let idle = f64::from(processors) - busy - besides;
        let unseen = self.unseen.is_some_and(|at| at.elapsed() < LATELY);
        let machine = self.machine.filter(|_| unseen).unwrap_or(f64::INFINITY);
        idle.min(machine).max(0.0)
    }

    fn ask(&mut self, now: Instant) {
        if self.last.is_some_and(|(then, _)| now.duration_since(then) < EVERY) {
            return;
        }
        let Some(unused) = self.stat.as_ref().and_then(unused) else { return };
        if let Some((then, before)) = self.last {
            self.machine = Some((unused - before).max(0.0) / now.duration_since(then).as_secs_f64());
        }
        self.last = Some((now, unused));
    }
}

impl Default for Idle {
    fn default() -> Self {
        Self::new()
    }
}

fn own_cpu() -> Duration {
    proc::cpu(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or_default()
}

/// Processor seconds that the machine has not used since it began.
fn unused(stat: &File) -> Option<f64> {
    let mut text = [0_u8; 256];
    let length = stat.read_at(&mut text, 0).ok()?;
    // SAFETY: plain library call.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let ticks = u32::try_from(ticks).ok().filter(|&ticks| ticks > 0)?;
    Some(parse(std::str::from_utf8(&text[..length]).ok()?)? as f64 / f64::from(ticks))
}

/// Idle, and waiting for a disk, of all processors together, ticks. proc(5).
fn parse(text: &str) -> Option<u64> {
    let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().skip(3);
    let idle: u64 = fields.next()?.parse().ok()?;
    let waits: u64 = fields.next()?.parse().ok()?;
    Some(idle + waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_understood() {
        assert_eq!(parse("cpu  10 20 30 400 5 0 7 8 0 0\ncpu0 1 2 3 4\n"), Some(405));
        assert_eq!(parse("cpu0 10 20 30 400 5\n"), None);
        assert!(unused(&File::open("/proc/stat").unwrap()).is_some_and(|seconds| seconds > 0.0));
    }

    #[test]
    fn what_the_short_lived_and_bdrun_itself_use_is_not_idle() {
        let mut idle = Idle { stat: None, ..Idle::new() };
        let second = Duration::from_secs(1);
        let mut own = idle.own;
        // Of this process so much in each second.
        let mut free = |idle: &mut Idle, processors, busy| {
            own += Duration::from_millis(250);
            idle.free(second, processors, busy, own)
        };
        idle.ended(second, Duration::from_millis(1500));
        assert_eq!(free(&mut idle, 4, 1.0), 1.25);
        assert_eq!(free(&mut idle, 4, 1.0), 2.75, "once");
        assert_eq!(free(&mut idle, 1, 3.0), 0.0);
        idle.machine = Some(0.25);
        assert_eq!(free(&mut idle, 4, 0.0), 3.75, "what ranks wait for is seen, of those that are");
        idle.ended(Duration::from_millis(3), Duration::ZERO);
        // However late this thread looks.
        idle.unseen = Some(Instant::now() + Duration::from_secs(3600));
        assert_eq!(free(&mut idle, 4, 0.0), 0.25, "others use the rest");
        // This process has used some since it began.
        assert!((idle.look(second, 4, 0.0) - 0.25).abs() < 1e-9 && idle.own <= own_cpu());
    }
}
