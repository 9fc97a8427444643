//! How fast memory moved, from when ranks were on their way and what they moved. Pure.
//!
//! A move takes some time whoever else moves (orders, threads that are woken, system calls), and then a share
//! of the disk for each byte. Both are fitted to what the moves of ranks that tell took; of others it is only
//! known how much moved in all.

use serde::{Deserialize, Serialize};

use crate::history::{Leg, On, Span};
use crate::residency::Activity;

/// So fast is what took no time beyond that of a move, bytes a second.
const FAST: f64 = 1e11;

/// How fast memory moved; all 0: nothing did.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Bytes a second, out.
    pub out: f64,
    /// The same, in.
    pub back: f64,
    /// Seconds that it takes beside, out.
    pub out_s: f64,
    /// The same, in.
    pub back_s: f64,
    /// Seconds from when a rank began to wait until it was told to leave: half of them took no longer.
    #[serde(default)]
    pub hears_s: f64,
}

/// How many were on their way, over time.
struct Crowd {
    /// Since when, how many, and the integral up to then.
    changes: Vec<(f64, f64, f64)>,
}

impl Crowd {
    fn of<'a>(spans: impl Iterator<Item = &'a Span>) -> Self {
        let mut ends: Vec<(f64, f64)> = spans.flat_map(|span| [(span.from, 1.0), (span.to, -1.0)]).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut changes = vec![(0.0, 0.0, 0.0)];
        for (t, change) in ends {
            let (since, many, sum) = changes[changes.len() - 1];
            changes.push((t, many + change, sum + many * (t - since)));
        }
        Self { changes }
    }

    fn up_to(&self, t: f64) -> f64 {
        let after = self.changes.partition_point(|change| change.0 <= t).max(1);
        let (since, many, sum) = self.changes[after - 1];
        sum + many * (t - since).max(0.0)
    }
}

impl Rates {
    /// Of ranks: when each did what, and what it moved in which of its waits; and bytes that left and came in
    /// all.
    #[must_use]
    pub fn of(ranks: &[(&[Span], &[Leg])], evicted: u64, restored: u64) -> Self {
        let moves = |span: &&Span| matches!(span.activity, Activity::Evicting | Activity::Restoring);
        let crowd = Crowd::of(ranks.iter().flat_map(|(spans, _)| spans.iter()).filter(moves));
        let [(out, out_s), (back, back_s)] =
            [(Activity::Evicting, 0, evicted), (Activity::Restoring, 1, restored)].map(
                |(activity, which, bytes)| {
                    let is_move = |span: &&Span| span.activity == activity && span.to > span.from;
                    let spans = || ranks.iter().flat_map(|(spans, _)| spans.iter()).filter(is_move);
                    let even: f64 = spans().map(|span| share(span, &crowd)).sum();
                    let even = if even > 0.0 { bytes as f64 / even } else { 0.0 };
                    let rows =
                        ranks.iter().flat_map(|(spans, legs)| rows(spans, legs, is_move, which, &crowd));
                    fit(rows).unwrap_or((even, 0.0))
                },
            );
        let mut heard: Vec<f64> = ranks.iter().flat_map(|(spans, legs)| heard(spans, legs)).collect();
        heard.sort_by(f64::total_cmp);
        let hears_s = heard.get(heard.len() / 2).copied().unwrap_or(0.0);
        Self { out, back, out_s, back_s, hears_s }
    }
}

/// How long after a rank began to wait it was told to leave.
fn heard<'a>(spans: &'a [Span], legs: &'a [Leg]) -> impl Iterator<Item = f64> + 'a {
    let waits = legs.iter().filter(|leg| matches!(leg.on, On::Collective { .. } | On::Message { .. }));
    waits.filter_map(|leg| {
        let after = spans.partition_point(|span| span.from < leg.began);
        let next = spans[after..].iter().take_while(|span| span.from <= leg.ran);
        let mut leaves = next.filter(|span| span.activity == Activity::Evicting);
        leaves.next().map(|span| span.from - leg.began)
    })
}

/// Seconds of the disk that it had, if all under way had equal shares.
fn share(span: &Span, crowd: &Crowd) -> f64 {
    let seconds = span.to - span.from;
    seconds / ((crowd.up_to(span.to) - crowd.up_to(span.from)) / seconds).max(1.0)
}

/// Of each wait in which a rank moved: how often, bytes times how many shared the disk, and the seconds it
/// took.
fn rows<'a>(
    spans: &'a [Span],
    legs: &'a [Leg],
    is_move: impl Fn(&&Span) -> bool + 'a,
    which: usize,
    crowd: &'a Crowd,
) -> impl Iterator<Item = [f64; 3]> + 'a {
    let mut rest = spans;
    legs.windows(2).filter_map(move |pair| {
        let begin = rest.partition_point(|span| span.from < pair[1].began - 1e-3);
        let end = rest.partition_point(|span| span.from <= pair[1].ran);
        let within = &rest[begin.min(end)..end];
        rest = &rest[end..];
        let (count, seconds, sum) =
            within.iter().filter(&is_move).fold((0.0, 0.0, 0.0), |(n, s, sum), span| {
                (n + 1.0, s + span.to - span.from, sum + crowd.up_to(span.to) - crowd.up_to(span.from))
            });
        let bytes = pair[1].moved[which].saturating_sub(pair[0].moved[which]) as f64;
        (count > 0.0 && bytes > 0.0).then(|| [count, bytes * (sum / seconds).max(1.0), seconds])
    })
}

/// Bytes a second and seconds beside that fit these best, and together take as long; none where there is
/// nothing to fit.
fn fit(rows: impl Iterator<Item = [f64; 3]>) -> Option<(f64, f64)> {
    let (mut aa, mut ab, mut bb, mut at, mut bt) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let (mut a_sum, mut b_sum, mut t_sum) = (0.0, 0.0, 0.0);
    for [a, b, t] in rows {
        // A tenth more or less is as much of a short one as of a long one.
        let weight = 1.0 / t.max(1e-4);
        let (wa, wb) = (a * weight, b * weight);
        (aa, ab, bb, at, bt) = (aa + wa * a, ab + wa * b, bb + wb * b, at + wa * t, bt + wb * t);
        (a_sum, b_sum, t_sum) = (a_sum + a, b_sum + b, t_sum + t);
    }
    if b_sum <= 0.0 || t_sum <= 0.0 {
        return None;
    }
    let det = aa * bb - ab * ab;
    let (mut beside, mut each) = ((at * bb - bt * ab) / det, (bt * aa - at * ab) / det);
    // Where all moves were alike nothing can be told apart.
    if det <= 1e-9 * aa * bb || beside < 0.0 {
        (beside, each) = (0.0, bt / bb);
    } else if each < 0.0 {
        (beside, each) = (at / aa, 0.0);
    }
    let scale = t_sum / (beside * a_sum + each * b_sum);
    let rate = if each > 0.0 { 1.0 / (each * scale) } else { FAST };
    Some((rate.min(FAST), beside * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(began: f64, ran: f64, left: u64) -> Leg {
        Leg { began, ran, moved: [left, 0, 0, 0, left], ..Leg::default() }
    }

    fn out(from: f64, to: f64) -> Span {
        Span { from, to, activity: Activity::Evicting }
    }

    #[test]
    fn a_disk_is_told_from_what_a_move_takes_beside() {
        // 10 ms and 1 GB/s: 100 MB, 200 MB, 50 MB, one after the other.
        let spans = [out(1.0, 1.11), out(2.0, 2.21), out(3.0, 3.06)];
        let legs = [
            leg(0.0, 0.5, 0),
            leg(0.9, 1.5, 100_000_000),
            leg(1.9, 2.5, 300_000_000),
            leg(2.9, 3.5, 350_000_000),
        ];
        let rates = Rates::of(&[(&spans, &legs)], 350_000_000, 0);
        assert!((rates.out / 1e9 - 1.0).abs() < 1e-6 && (rates.out_s - 0.01).abs() < 1e-6, "{rates:?}");
        assert_eq!((rates.back, rates.back_s), (0.0, 0.0));
    }

    #[test]
    fn two_at_once_share_a_disk() {
        let spans = [out(1.0, 1.2)];
        let legs = [leg(0.0, 0.5, 0), leg(0.9, 1.5, 100_000_000)];
        let rates = Rates::of(&[(&spans, &legs), (&spans, &legs)], 200_000_000, 0);
        assert!((rates.out / 1e9 - 1.0).abs() < 1e-6 && rates.out_s == 0.0, "{rates:?}");
    }

    #[test]
    fn of_strangers_it_is_known_how_much_moved_in_all() {
        let spans = [out(1.0, 2.0)];
        let rates = Rates::of(&[(&spans, &[]), (&spans, &[])], 3_000, 0);
        assert_eq!((rates.out, rates.out_s), (3000.0, 0.0));
    }
}
