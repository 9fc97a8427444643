//! A line at the end that says what would have been better, with numbers. Pure, from the account alone, and
//! only where its figures prove it: nothing is said rather than something that may be wrong.

use crate::stats::{RankStats, Stats};
use crate::units::{Bytes, Span};

/// What advice is given for more memory leaves free: what is measured is never quite the same.
const MORE: f64 = 1.05;

/// A budget is said to be large from so many times what was in RAM on.
const LARGE: u64 = 4;

/// A job that takes less, seconds, is not worth a word about its budget.
const SHORT: f64 = 2.0;

/// The part of the time from which on paging is worth a word.
const WORTH: f64 = 0.1;

/// Ranks are of one size if the smallest has so much of the largest.
const EVEN: f64 = 0.8;

/// What would have been better.
#[must_use]
pub fn hint(stats: &Stats) -> Option<String> {
    // What was done to test the program, or to a job cut short, says nothing of it.
    if stats.chaos_evictions > 0 || stats.ranks.is_empty() || stats.budget_bytes == 0 {
        return None;
    }
    too_large(stats)
        .or_else(|| few_places(stats))
        .or_else(|| would_fit(stats))
        .or_else(|| far_too_much(stats))
}

/// As `--memory` takes it: in whole MiB, or GiB where that is near enough.
fn amount(bytes: f64) -> (String, u64) {
    let mib = (bytes / 1_048_576.0).ceil() as u64;
    let gib = mib.div_ceil(1024);
    if mib < 20 * 1024 { (format!("{mib}M"), mib << 20) } else { (format!("{gib}G"), gib << 30) }
}

/// More that would hold so many bytes, if that is there.
fn more(stats: &Stats, bytes: u64) -> Option<String> {
    let (text, bytes) = amount(bytes as f64 * MORE);
    (bytes <= stats.available_bytes).then_some(text)
}

fn name(rank: &RankStats) -> String {
    match &rank.part {
        Some(part) => format!("{} (rank {})", part.replace(['\t', '\n'], " "), rank.rank),
        None => format!("rank {}", rank.rank),
    }
}

/// One rank alone holds more than the budget, and was paged for that.
fn too_large(stats: &Stats) -> Option<String> {
    let largest = stats.ranks.iter().max_by_key(|rank| rank.peak_bytes)?;
    let (peak, budget) = (largest.peak_bytes, stats.most_budget());
    let was_paged = largest.evicted_bytes > 0 || stats.overdraft_rank == Some(largest.rank);
    if peak <= budget || !was_paged {
        return None;
    }
    let memory = more(stats, peak).map(|memory| format!("--memory {memory} would hold it"));
    // Of ranks that are parts of one whole, as far as their sizes show.
    let smallest = stats.ranks.iter().map(|rank| rank.peak_bytes).min().unwrap_or(0);
    let is_even = smallest as f64 >= EVEN * peak as f64;
    let divided = stats.measured.is_none() && largest.part.is_none() && stats.np > 1 && is_even;
    let times = (peak as f64 * MORE / budget as f64).ceil() as u32;
    let ranks = stats.np.checked_mul(times).filter(|_| divided && times > 1);
    let ranks = ranks.map(|np| {
        let share = if times == 2 { "half".into() } else { format!("1/{times}") };
        format!("-np {np} would, if each then has {share} of it")
    });
    let advice = match (memory, ranks) {
        (Some(memory), Some(ranks)) => format!("{memory}; {ranks}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return None,
    };
    Some(format!(
        "{} alone held {}, more than the budget of {}: {advice}",
        name(largest),
        Bytes(peak),
        Bytes(budget)
    ))
}

/// Ranks had to leave because of `--resident`, although there was memory for all.
fn few_places(stats: &Stats) -> Option<String> {
    let limited = stats.resident_limit < stats.np && stats.max_resident == stats.resident_limit;
    let fits = stats.demand_bytes > 0 && stats.demand_bytes <= stats.budget_bytes;
    (limited && fits && stats.measured.is_none() && stats.evicted_bytes > 0).then(|| {
        format!(
            "{} were paged out because of --resident {}, although all that ranks held, {}, fits the budget of {}: leave --resident out",
            Bytes(stats.evicted_bytes),
            stats.resident_limit,
            Bytes(stats.demand_bytes),
            Bytes(stats.budget_bytes)
        )
    })
}

/// There was memory for all that ranks held, and not in the budget. Of ranks that all live at once: of others
/// more would have been begun.
fn would_fit(stats: &Stats) -> Option<String> {
    let paging: f64 = stats.ranks.iter().map(|rank| rank.paging_s).sum();
    let running: f64 = stats.ranks.iter().map(|rank| rank.running_s).sum();
    let all_live = stats.measured.is_none() && stats.ranks.iter().all(|rank| rank.status == "ok");
    let by_memory = stats.resident_limit >= stats.np && stats.demand_bytes > stats.budget_bytes;
    if !all_live || !by_memory || stats.evicted_bytes == 0 || paging < WORTH * running.max(stats.wall_s) {
        return None;
    }
    let memory = more(stats, stats.demand_bytes)?;
    Some(format!(
        "ranks moved memory for {}, and computed for {}: --memory {memory} would hold all of it, and {} were there",
        Span(paging),
        Span(running),
        Bytes(stats.available_bytes)
    ))
}

/// The budget that was named is far from what was needed: others could have the memory.
fn far_too_much(stats: &Stats) -> Option<String> {
    let in_ram = stats.measured.as_ref().map_or(0, |measured| measured.measured_peak_bytes);
    let in_ram = in_ram.max(stats.peak_resident_bytes);
    let all_seen = stats.ranks.iter().all(|rank| rank.status == "ok" && !rank.hardly_seen);
    let far = stats.budget_bytes / LARGE >= in_ram && in_ram >= 1 << 20;
    if !stats.budget_named || !far || !all_seen || stats.evicted_bytes > 0 || stats.wall_s < SHORT {
        return None;
    }
    // With twice as much the same ranks are begun at the same time.
    let (memory, _) = amount(2.0 * in_ram as f64);
    Some(format!(
        "at most {} of the budget of {} were in RAM: --memory {memory} would do",
        Bytes(in_ram),
        Bytes(stats.budget_bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::JobMeasured;

    const MIB: u64 = 1 << 20;

    /// Two ranks that work together, of so many MiB, which were paged.
    fn paged(sizes: [u64; 2], budget: u64) -> Stats {
        let rank = |rank: usize| RankStats {
            rank: rank as u32,
            status: "ok".into(),
            peak_bytes: sizes[rank] * MIB,
            evicted_bytes: 50 * MIB,
            running_s: 10.0,
            paging_s: 4.0,
            ..RankStats::default()
        };
        Stats {
            np: 2,
            wall_s: 20.0,
            budget_bytes: budget * MIB,
            resident_limit: 2,
            max_resident: 2,
            demand_bytes: (sizes[0] + sizes[1]) * MIB,
            peak_resident_bytes: budget * MIB,
            evicted_bytes: 100 * MIB,
            available_bytes: 1000 * MIB,
            ranks: vec![rank(0), rank(1)],
            ..Stats::default()
        }
    }

    fn independent(mut stats: Stats) -> Stats {
        stats.measured = Some(JobMeasured::default());
        stats
    }

    #[test]
    fn a_rank_larger_than_the_budget() {
        let stats = paged([300, 290], 200);
        let said = hint(&stats).unwrap();
        assert_eq!(
            said,
            "rank 0 alone held 300.0 MiB, more than the budget of 200.0 MiB: --memory 315M would hold it; -np 4 would, if \
             each then has half of it"
        );
        // Ranks of different sizes are not divided evenly, those that are parts not by their number.
        assert!(!hint(&paged([300, 100], 200)).unwrap().contains("-np"));
        assert!(!hint(&independent(stats.clone())).unwrap().contains("-np"));
        let there = Stats { available_bytes: 250 * MIB, ..stats.clone() };
        let said = hint(&there).unwrap();
        assert!(!said.contains("--memory") && said.contains("-np 4 would"), "{said}");
        assert_eq!(hint(&independent(there)), None, "nothing that could be done");
        let mut part = independent(stats.clone());
        part.ranks[0].part = Some("x.bin\t7".into());
        assert!(hint(&part).unwrap().starts_with("x.bin 7 (rank 0) alone held 300.0 MiB"));
        // It held that before others took a part of the budget (`--memory auto`).
        let mut shrunk = stats.clone();
        shrunk.set_most_budget(400 * MIB);
        assert!(!hint(&shrunk).unwrap_or_default().contains("alone held"), "{:?}", hint(&shrunk));
        // It was not paged for that.
        let mut unmoved = stats;
        unmoved.ranks.iter_mut().for_each(|rank| rank.evicted_bytes = 0);
        assert!(!hint(&unmoved).unwrap_or_default().contains("alone held"));
    }

    #[test]
    fn places_that_were_too_few() {
        let stats = Stats { resident_limit: 1, max_resident: 1, ..paged([60, 60], 200) };
        let said = hint(&stats).unwrap();
        assert!(said.starts_with("100.0 MiB were paged out because of --resident 1"), "{said}");
        // Without it memory would have been too little, or another reason is as likely.
        for stats in [
            Stats { demand_bytes: 201 * MIB, ranks: Vec::new(), ..stats.clone() },
            Stats { max_resident: 0, ..stats.clone() },
            Stats { evicted_bytes: 0, ..stats.clone() },
            Stats { chaos_evictions: 1, ..stats.clone() },
        ] {
            assert_eq!(hint(&stats), None, "{stats:?}");
        }
    }

    #[test]
    fn memory_that_was_there() {
        let stats = paged([150, 150], 200);
        assert_eq!(
            hint(&stats).unwrap(),
            "ranks moved memory for 8.0 s, and computed for 20.0 s: --memory 315M would hold all of it, and 1000.0 MiB were there"
        );
        assert_eq!(hint(&Stats { available_bytes: 310 * MIB, ..stats.clone() }), None);
        assert_eq!(hint(&independent(stats.clone())), None, "more would have been begun");
        let mut fast = stats.clone();
        fast.ranks.iter_mut().for_each(|rank| rank.paging_s = 0.1);
        assert_eq!(hint(&fast), None);
        let mut failed = stats;
        failed.ranks[1].status = "exit 1".into();
        assert_eq!(hint(&failed), None);
    }

    #[test]
    fn a_budget_far_too_large() {
        let mut stats = Stats { evicted_bytes: 0, budget_named: true, ..paged([40, 40], 800) };
        stats.peak_resident_bytes = 80 * MIB;
        assert_eq!(
            hint(&stats).unwrap(),
            "at most 80.0 MiB of the budget of 800.0 MiB were in RAM: --memory 160M would do"
        );
        let mut seen = stats.clone();
        seen.ranks[0].hardly_seen = true;
        for stats in [
            seen,
            Stats { budget_named: false, ..stats.clone() },
            Stats { peak_resident_bytes: 300 * MIB, ..stats.clone() },
            Stats { wall_s: 1.0, ..stats.clone() },
            Stats { peak_resident_bytes: 0, ..stats.clone() },
        ] {
            assert_eq!(hint(&stats), None, "{stats:?}");
        }
    }

    #[test]
    fn amounts_are_what_memory_takes() {
        assert_eq!(amount(1.5 * MIB as f64), ("2M".into(), 2 * MIB));
        assert_eq!(amount(19.9 * 1024.0 * MIB as f64).0, "20378M");
        assert_eq!(amount(100.2 * 1024.0 * MIB as f64), ("101G".into(), 101 << 30));
        assert_eq!(hint(&Stats::default()), None);
    }
}
