//! The table at the end: the job, and the ranks worth a look.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::stats::{JobMeasured, RankMeasured, RankStats, Stats};
use crate::units::{Bytes, Count, Span};

/// How many ranks are shown.
const SHOWN: usize = 5;

/// A measure of a rank, whose largest value makes it notable.
type Measure = fn(&RankStats) -> f64;

/// The columns of numbers, from that of the peak on.
type Column = (&'static str, fn(&RankStats) -> Cell);

/// Of a job whose ranks work with us.
const COOPERATIVE: &[Column] = &[
    ("peak", |rank| Cell::new(Bytes(rank.peak_bytes))),
    ("evicted", |rank| Cell::new(Bytes(rank.evicted_bytes))),
    ("restored", |rank| Cell::new(Bytes(rank.restored_bytes))),
    ("running", |rank| Cell::new(Span(rank.running_s))),
    ("waiting", |rank| Cell::new(Span(rank.waiting_s))),
    ("paging", |rank| Cell::new(Span(rank.paging_s))),
];

/// Of one whose ranks know nothing of us: they do not tell when they wait, but we know when they stood still.
const INDEPENDENT: &[Column] = &[
    ("peak", |rank| Cell::new(Bytes(rank.peak_bytes))),
    ("paged out", |rank| Cell::new(Bytes(rank.evicted_bytes))),
    ("back in", |rank| Cell::new(Bytes(rank.restored_bytes))),
    ("times", |rank| Cell::new(Count(rank.evictions))),
    ("running", |rank| Cell::new(Span(rank.running_s))),
    ("held", |rank| Cell::new(Span(measured(rank, |measured| measured.held_s)))),
    ("processor", |rank| Cell::new(Span(measured(rank, |measured| measured.cpu_s)))),
];

fn measured(rank: &RankStats, of: fn(&RankMeasured) -> f64) -> f64 {
    rank.measured.as_ref().map_or(0.0, of)
}

/// The measures, and what is said of the rank with the largest.
#[expect(
    clippy::cast_precision_loss,
    reason = "only compared; ranks that differ by a few bytes are the same"
)]
const EXTREMES: [(Measure, &str); 6] = [
    (|rank| rank.peak_bytes as f64, "largest peak"),
    (|rank| (rank.evicted_bytes + rank.restored_bytes) as f64, "most paged"),
    (|rank| rank.running_s, "ran longest"),
    (|rank| rank.waiting_s, "waited longest"),
    (|rank| rank.paging_s, "longest paging"),
    (|rank| measured(rank, |measured| measured.held_s), "held longest"),
];

/// Takes those out that no table will show, now that others are known.
pub(crate) fn keep_notable(ranks: &mut Vec<RankStats>) -> Vec<RankStats> {
    let mut keep = vec![false; ranks.len()];
    let failed = |at: &usize| is_failed(&ranks[*at]);
    (0..ranks.len()).filter(failed).take(SHOWN).for_each(|at| keep[at] = true);
    for (measure, _) in EXTREMES {
        let most = (0..ranks.len())
            .rev()
            .max_by(|&one, &other| measure(&ranks[one]).total_cmp(&measure(&ranks[other])));
        most.into_iter().for_each(|at| keep[at] = true);
    }
    let mut by_size: Vec<usize> = (0..ranks.len()).collect();
    by_size.sort_by_key(|&at| std::cmp::Reverse(ranks[at].peak_bytes));
    by_size.into_iter().take(SHOWN).for_each(|at| keep[at] = true);
    let mut at = 0..;
    ranks.extract_if(.., |_| !keep[at.next().unwrap_or(0)]).collect()
}

fn is_failed(rank: &RankStats) -> bool {
    rank.status == "timeout" || ["exit", "signal"].iter().any(|how| rank.status.starts_with(how))
}

/// What happened, as people read it: a sentence, and the table.
#[must_use]
pub fn summary(stats: &Stats) -> String {
    let mut text = sentence(stats);
    match &stats.measured {
        None => cooperative_line(&mut text, stats),
        Some(measured) => independent_line(&mut text, stats, measured),
    }
    text.push_str(&notices(stats));
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let columns = if stats.measured.is_some() { INDEPENDENT } else { COOPERATIVE };
    let titles = columns.iter().map(|(title, _)| *title);
    table.set_header(std::iter::once("").chain(titles).chain(std::iter::once("")));
    let row = |name: String, rank: &RankStats, why: &str| {
        let numbers = columns.iter().map(|(_, cell)| cell(rank));
        std::iter::once(Cell::new(name))
            .chain(numbers)
            .chain(std::iter::once(Cell::new(why)))
            .collect::<Vec<_>>()
    };
    table.add_row(row("job".into(), &of_job(stats), "all ranks; peak in RAM"));
    for (rank, why) in notable(stats) {
        table.add_row(row(format!("rank {}", rank.rank), rank, &why));
    }
    for column in table.column_iter_mut().skip(1).take(columns.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The job in a line, and what must be said besides.
pub(super) fn headline(stats: &Stats) -> String {
    sentence(stats) + &notices(stats)
}

fn sentence(stats: &Stats) -> String {
    let ranks = if stats.np == 1 { "1 rank".into() } else { format!("{} ranks", stats.np) };
    let most = stats.most_budget();
    let before =
        if most > stats.budget_bytes { format!(" (before that {})", Bytes(most)) } else { String::new() };
    let mut text = format!(
        "bdrun: {ranks}, {} after {}; budget {}{before}, demand {}",
        stats.status,
        Span(stats.wall_s),
        Bytes(stats.budget_bytes),
        Bytes(stats.demand_bytes)
    );
    if most > 0 {
        #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
        let times = stats.demand_bytes as f64 / most as f64;
        // Writing to a string cannot fail.
        let _ = write!(text, " ({times:.2} x)");
    }
    text.push('\n');
    text
}

/// Limits that could not be kept, and why.
fn notices(stats: &Stats) -> String {
    let mut text = String::new();
    if let Some(why) = stats.measured.as_ref().and_then(|measured| measured.paging_refused.as_ref()) {
        let _ = writeln!(text, "bdrun: ranks could not be paged out, only held: {why}");
    }
    if let Some(rank) = stats.overdraft_rank {
        let _ = writeln!(text, "bdrun: rank {rank} needed more than there was: the budget was exceeded");
    } else if stats.peak_resident_bytes > stats.most_budget() {
        let peak = Bytes(stats.peak_resident_bytes);
        let _ = writeln!(
            text,
            "bdrun: for a moment {peak} were in RAM, more than the budget: ranks grew, or forked, faster than they could be stopped"
        );
    }
    text
}

fn cooperative_line(text: &mut String, stats: &Stats) {
    let _ = writeln!(
        text,
        "bdrun: at most {} of {} resident, {} running; messages {}, of them {} through scratch",
        stats.max_resident,
        stats.resident_limit,
        stats.max_running,
        Bytes(stats.message_bytes),
        Bytes(stats.spilled_message_bytes)
    );
}

fn independent_line(text: &mut String, stats: &Stats, measured: &JobMeasured) {
    let _ = writeln!(
        text,
        "bdrun: at most {} running; most in RAM {} private, {} shared; most paged out {}; measured at least every {}",
        stats.max_running,
        Bytes(measured.private_bytes),
        Bytes(measured.shared_bytes),
        Bytes(measured.out_bytes),
        Span(measured.longest_gap_s)
    );
}

/// The row of all ranks together.
fn of_job(stats: &Stats) -> RankStats {
    let all = || stats.ranks.iter().chain([&stats.rest]);
    let sum = |time: fn(&RankStats) -> f64| all().map(time).sum::<f64>();
    RankStats {
        peak_bytes: stats.measured.as_ref().map_or(stats.peak_resident_bytes, |m| m.measured_peak_bytes),
        evicted_bytes: stats.evicted_bytes,
        restored_bytes: stats.restored_bytes,
        evictions: stats.evictions,
        running_s: sum(|rank| rank.running_s),
        waiting_s: sum(|rank| rank.waiting_s),
        paging_s: sum(|rank| rank.paging_s),
        measured: stats.measured.as_ref().map(|measured| RankMeasured {
            cpu_s: measured.cpu_s,
            held_s: sum(|rank| self::measured(rank, |measured| measured.held_s)),
            ..RankMeasured::default()
        }),
        ..RankStats::default()
    }
}

/// The ranks worth a look, each with the reasons: those that failed, the one that overdrew, and the extremes;
/// then the next largest, up to five.
fn notable(stats: &Stats) -> Vec<(&RankStats, String)> {
    let mut found: Vec<(&RankStats, String)> = Vec::new();
    let mut add = |rank: Option<&'_ RankStats>, why: &str| {
        let Some(rank) = rank.and_then(|rank| stats.ranks.iter().find(|one| one.rank == rank.rank)) else {
            return;
        };
        if let Some((_, reasons)) = found.iter_mut().find(|(known, _)| known.rank == rank.rank) {
            if !why.is_empty() {
                reasons.push_str(if reasons.is_empty() { "" } else { ", " });
                reasons.push_str(why);
            }
        } else if found.len() < SHOWN {
            found.push((rank, why.to_owned()));
        }
    };
    for rank in stats.ranks.iter().filter(|rank| is_failed(rank)).take(SHOWN) {
        add(Some(rank), &rank.status);
    }
    add(stats.ranks.iter().find(|rank| Some(rank.rank) == stats.overdraft_rank), "over budget");
    for (measure, why) in EXTREMES {
        // Of equals the first.
        let most = stats.ranks.iter().rev().max_by(|one, other| measure(one).total_cmp(&measure(other)));
        // Where all are the same there is no extreme.
        add(most.filter(|most| stats.ranks.iter().any(|rank| measure(rank) < measure(most))), why);
    }
    let mut by_size: Vec<&RankStats> = stats.ranks.iter().collect();
    by_size.sort_by_key(|rank| std::cmp::Reverse(rank.peak_bytes));
    for rank in by_size.into_iter().take(SHOWN) {
        add(Some(rank), "");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> Stats {
        let ranks = (0..8)
            .map(|rank| RankStats {
                rank,
                status: "ok".into(),
                peak_bytes: (20 + u64::from(rank)) << 20,
                evicted_bytes: if rank == 3 { 90 << 20 } else { 40 << 20 },
                restored_bytes: 40 << 20,
                running_s: 2.0,
                waiting_s: f64::from(10 - rank),
                paging_s: 0.25,
                evictions: 2,
                ..RankStats::default()
            })
            .collect();
        Stats {
            version: 1,
            status: "ok".into(),
            np: 8,
            wall_s: 62.0,
            budget_bytes: 50 << 20,
            resident_limit: 2,
            demand_bytes: 200 << 20,
            peak_resident_bytes: 49 << 20,
            evicted_bytes: 370 << 20,
            restored_bytes: 320 << 20,
            message_bytes: 3 << 20,
            max_running: 2,
            max_resident: 2,
            ranks,
            ..Stats::default()
        }
    }

    #[test]
    fn the_whole_text() {
        let text = summary(&stats());
        let expected = "\
bdrun: 8 ranks, ok after 1m02s; budget 50.0 MiB, demand 200.0 MiB (4.00 x)
bdrun: at most 2 of 2 resident, 2 running; messages 3.0 MiB, of them 0 B through scratch
             peak    evicted   restored  running  waiting  paging
 job     49.0 MiB  370.0 MiB  320.0 MiB   16.0 s   52.0 s   2.0 s  all ranks; peak in RAM
 rank 7  27.0 MiB   40.0 MiB   40.0 MiB    2.0 s    3.0 s   0.2 s  largest peak
 rank 3  23.0 MiB   90.0 MiB   40.0 MiB    2.0 s    7.0 s   0.2 s  most paged
 rank 0  20.0 MiB   40.0 MiB   40.0 MiB    2.0 s   10.0 s   0.2 s  waited longest
 rank 6  26.0 MiB   40.0 MiB   40.0 MiB    2.0 s    4.0 s   0.2 s
 rank 5  25.0 MiB   40.0 MiB   40.0 MiB    2.0 s    5.0 s   0.2 s
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn the_whole_text_of_an_independent_job() {
        let mut stats = stats();
        stats.evictions = 16;
        stats.measured = Some(JobMeasured {
            measured_peak_bytes: 48 << 20,
            private_bytes: 45 << 20,
            shared_bytes: 2 << 20,
            out_bytes: 150 << 20,
            cpu_s: 17.5,
            longest_gap_s: 0.012,
            paging_refused: Some("PTRACE_SEIZE of a child: Operation not permitted".into()),
            ..JobMeasured::default()
        });
        for rank in &mut stats.ranks {
            let held_s = f64::from(rank.rank % 4);
            rank.waiting_s = 0.0;
            rank.measured = Some(RankMeasured { cpu_s: 2.1, held_s, ..RankMeasured::default() });
        }
        let text = summary(&stats);
        let expected = "\
bdrun: 8 ranks, ok after 1m02s; budget 50.0 MiB, demand 200.0 MiB (4.00 x)
bdrun: at most 2 running; most in RAM 45.0 MiB private, 2.0 MiB shared; most paged out 150.0 MiB; measured at least every 0.012 s
bdrun: ranks could not be paged out, only held: PTRACE_SEIZE of a child: Operation not permitted
             peak  paged out    back in  times  running    held  processor
 job     48.0 MiB  370.0 MiB  320.0 MiB     16   16.0 s  12.0 s     17.5 s  all ranks; peak in RAM
 rank 7  27.0 MiB   40.0 MiB   40.0 MiB      2    2.0 s   3.0 s      2.1 s  largest peak
 rank 3  23.0 MiB   90.0 MiB   40.0 MiB      2    2.0 s   3.0 s      2.1 s  most paged, held longest
 rank 6  26.0 MiB   40.0 MiB   40.0 MiB      2    2.0 s   2.0 s      2.1 s
 rank 5  25.0 MiB   40.0 MiB   40.0 MiB      2    2.0 s   1.0 s      2.1 s
 rank 4  24.0 MiB   40.0 MiB   40.0 MiB      2    2.0 s     0 s      2.1 s
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn a_job_in_a_line() {
        let line = "bdrun: 8 ranks, ok after 1m02s; budget 50.0 MiB, demand 200.0 MiB (4.00 x)\n";
        assert_eq!(headline(&stats()), line);
        let exceeded = Stats { overdraft_rank: Some(2), ..stats() };
        assert!(headline(&exceeded).starts_with(line) && headline(&exceeded).contains("rank 2 needed more"));
    }

    #[test]
    fn failures_and_overdrafts_come_first() {
        let mut stats = stats();
        stats.overdraft_rank = Some(2);
        stats.ranks[4].status = "signal 11".into();
        stats.ranks[5].status = "timeout".into();
        let found: Vec<(u32, String)> =
            notable(&stats).into_iter().map(|(rank, why)| (rank.rank, why)).collect();
        let first = [(4, "signal 11".into()), (5, "timeout".into()), (2, "over budget".into())];
        assert_eq!(found[..3], first);
        assert_eq!(found.len(), SHOWN);
        assert!(summary(&stats).contains("rank 2 needed more than there was"));
    }

    #[test]
    fn a_budget_that_was_exceeded_is_told_whyever() {
        let mut stats = stats();
        assert!(!summary(&stats).contains("for a moment"));
        stats.peak_resident_bytes = stats.budget_bytes + (5 << 20);
        let text = summary(&stats);
        assert!(
            text.contains("for a moment 55.0 MiB were in RAM, more than the budget: ranks grew"),
            "{text}"
        );
    }

    /// What was in RAM while the budget was larger (`--memory auto`) did not exceed it.
    #[test]
    fn a_budget_that_was_taken_away_was_not_exceeded() {
        let mut stats = Stats { peak_resident_bytes: 90 << 20, ..stats() };
        stats.set_most_budget(100 << 20);
        let text = summary(&stats);
        assert!(!text.contains("for a moment"), "{text}");
        let first = "bdrun: 8 ranks, ok after 1m02s; budget 50.0 MiB (before that 100.0 MiB), demand 200.0 MiB (2.00 x)\n";
        assert!(text.starts_with(first), "{text}");
        stats.peak_resident_bytes = 101 << 20;
        assert!(summary(&stats).contains("for a moment 101.0 MiB were in RAM"));
    }

    /// Of very many ranks those that failed are kept, whatever they failed by.
    #[test]
    fn who_ran_out_of_time_is_notable() {
        let mut ranks = stats().ranks;
        ranks.extend((8..100).map(|rank| RankStats { rank, status: "ok".into(), ..RankStats::default() }));
        ranks[50].status = "timeout".into();
        keep_notable(&mut ranks);
        assert!(ranks.len() < 20 && ranks.iter().any(|rank| rank.rank == 50), "{ranks:?}");
    }

    #[test]
    fn nothing_to_say_about_nothing() {
        assert!(notable(&Stats::default()).is_empty());
    }
}
