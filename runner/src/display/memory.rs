//! What ranks were expected to need, and what they did (`-v`): the report of seed 000, from the account
//! alone.

use std::fmt::Write;

use crate::stats::{RankStats, Stats};
use crate::units::{Bytes, Count};

/// Lines of a histogram, characters of its longest bar, and ranks that are named.
const BINS: usize = 8;
const BAR: usize = 30;
const NAMED: usize = 5;

/// Numbers, in order.
struct Spread(Vec<f64>);

impl Spread {
    fn of(numbers: impl Iterator<Item = f64>) -> Option<Self> {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        (!numbers.is_empty()).then_some(Self(numbers))
    }

    fn quantile(&self, part: f64) -> f64 {
        let last = self.0.len() - 1;
        self.0[((last as f64 * part).round() as usize).min(last)]
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Lines with from, to, a bar, and how many.
    fn histogram(&self, text: &mut String, shown: impl Fn(f64) -> String) {
        let (least, most) = (self.quantile(0.0), self.quantile(1.0));
        let width = ((most - least) / BINS as f64).max(f64::MIN_POSITIVE);
        let mut bins = [0usize; BINS];
        for number in &self.0 {
            bins[(((number - least) / width) as usize).min(BINS - 1)] += 1;
        }
        let largest = bins.iter().copied().max().unwrap_or(0).max(1);
        for (at, count) in bins.into_iter().enumerate() {
            let bar = "█".repeat((count * BAR).div_ceil(largest));
            let edge = |at: usize| shown(least + width * at as f64);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {:>10} – {:>10} │{bar:<BAR$} {count}", edge(at), edge(at + 1));
            if most <= least {
                break;
            }
        }
    }
}

fn ratio(of: f64) -> String {
    format!("{of:.2} x")
}

fn name(rank: &RankStats) -> String {
    match &rank.part {
        Some(part) => format!("rank {} ({})", rank.rank, part.replace(['\t', '\n'], " ")),
        None => format!("rank {}", rank.rank),
    }
}

/// The report; nothing of a job whose ranks held nothing.
#[must_use]
pub fn report(stats: &Stats) -> String {
    let ended: Vec<&RankStats> =
        stats.ranks.iter().filter(|rank| rank.status == "ok" && rank.peak_bytes > 0).collect();
    let Some(peaks) = Spread::of(ended.iter().map(|rank| rank.peak_bytes as f64)) else {
        return String::new();
    };
    let mut text = String::from("bdrun: memory that was expected and needed\n");
    let budget = Bytes(stats.budget_bytes);
    if stats.available_bytes > 0 {
        let percent = 100.0 * stats.budget_bytes as f64 / stats.available_bytes as f64;
        let available = Bytes(stats.available_bytes);
        let _ = writeln!(text, "  available RAM {available}, budget {budget} ({percent:.0}%)");
    } else {
        let _ = writeln!(text, "  budget {budget}");
    }
    let _ = writeln!(
        text,
        "  at most {} ranks in RAM at once, {} running",
        stats.max_resident, stats.max_running
    );
    let shown = |bytes: f64| Bytes(bytes as u64).to_string();
    let _ = writeln!(
        text,
        "  peaks of {} ranks: mean {}, median {}, 95% {}, largest {}",
        Count(ended.len() as u64),
        shown(peaks.mean()),
        shown(peaks.quantile(0.5)),
        shown(peaks.quantile(0.95)),
        shown(peaks.quantile(1.0))
    );
    let by_size = |rank: &&RankStats| {
        rank.size.filter(|&size| size > 0).map(|size| rank.peak_bytes as f64 / size as f64)
    };
    if let Some(factors) = Spread::of(ended.iter().filter_map(by_size)) {
        let begun = |rank: &&&RankStats| rank.process.map_or(f64::INFINITY, |process| process.start);
        let sized = ended.iter().filter(|rank| by_size(rank).is_some());
        let first = sized.min_by(|a, b| begun(a).total_cmp(&begun(b))).and_then(by_size);
        let _ = writeln!(
            text,
            "  expansion factor (peak by declared size): seed {}, final 95% {}, largest {} (mean {}, median {})",
            first.map_or("-".into(), ratio),
            ratio(factors.quantile(0.95)),
            ratio(factors.quantile(1.0)),
            ratio(factors.mean()),
            ratio(factors.quantile(0.5))
        );
        factors.histogram(&mut text, ratio);
    } else {
        peaks.histogram(&mut text, shown);
    }
    by_reserve(&mut text, &ended);
    if let (Some(user), Some(proxy)) = (&stats.user_job, &stats.job_proxy) {
        let _ = writeln!(
            text,
            "  over their lives: {} GiB s set aside, {} needed; bdrun itself {} of {} estimated",
            gibibyte_seconds(user.cumulative_memory_reserve),
            gibibyte_seconds(user.cumulative_max_memory),
            Bytes(proxy.max_memory),
            Bytes(proxy.estimated_memory.unwrap_or(0))
        );
    }
    text
}

fn gibibyte_seconds(byte_seconds: f64) -> String {
    format!("{:.2}", byte_seconds / f64::from(1 << 30))
}

/// Those that needed most by what was set aside for them.
fn by_reserve(text: &mut String, ended: &[&RankStats]) {
    let by = |rank: &RankStats| rank.peak_bytes as f64 / rank.reserve_bytes as f64;
    let mut ranks: Vec<&RankStats> = ended.iter().copied().filter(|rank| rank.reserve_bytes > 0).collect();
    let over = ranks.iter().filter(|rank| rank.peak_bytes > rank.reserve_bytes).count();
    if ranks.is_empty() {
        return;
    }
    ranks.sort_by(|a, b| by(b).total_cmp(&by(a)));
    let _ = writeln!(
        text,
        "  {over} of {} ranks needed more than was set aside for them; most by that:",
        Count(ranks.len() as u64)
    );
    for rank in ranks.iter().take(NAMED) {
        let size = rank.size.map_or(String::new(), |size| format!(", size {size}"));
        let _ = writeln!(
            text,
            "    {}: {} ({} of {} set aside{size})",
            name(rank),
            ratio(by(rank)),
            Bytes(rank.peak_bytes),
            Bytes(rank.reserve_bytes)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(size: bool) -> Stats {
        let rank = |rank: u32| RankStats {
            rank,
            status: if rank == 9 { "exit 1" } else { "ok" }.into(),
            part: (rank == 3).then(|| "parts/x.bin\t7".to_owned()),
            peak_bytes: u64::from(rank + 1) << 20,
            reserve_bytes: 4 << 20,
            size: size.then_some(1 << 20),
            ..RankStats::default()
        };
        let ranks = (0..10).map(rank).collect();
        Stats {
            ranks,
            budget_bytes: 64 << 20,
            available_bytes: 128 << 20,
            max_resident: 4,
            ..Stats::default()
        }
    }

    #[test]
    fn what_was_expected_and_needed() {
        let text = report(&stats(true));
        for words in [
            "available RAM 128.0 MiB, budget 64.0 MiB (50%)",
            "at most 4 ranks in RAM at once",
            "peaks of 9 ranks: mean 5.0 MiB, median 5.0 MiB, 95% 9.0 MiB, largest 9.0 MiB",
            "final 95% 9.00 x, largest 9.00 x (mean 5.00 x, median 5.00 x)",
            "1.00 x –     2.00 x │███",
            "5 of 9 ranks needed more than was set aside for them",
            "rank 8: 2.25 x (9.0 MiB of 4.0 MiB set aside, size 1048576)",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("rank 9"), "who failed shows nothing: {text}");
        let text = report(&stats(false));
        assert!(text.contains("1.0 MiB –    2.0 MiB │███") && !text.contains("expansion"), "{text}");
        assert_eq!(report(&Stats::default()), "");
    }

    #[test]
    fn where_all_are_the_same_there_is_one_bar() {
        let mut stats = stats(false);
        stats.ranks.iter_mut().for_each(|rank| rank.peak_bytes = 7 << 20);
        let text = report(&stats);
        assert_eq!(text.matches('│').count(), 1, "{text}");
    }
}
