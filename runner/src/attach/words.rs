//! Why a rank waits, in sentences, with what would change it.

use super::{Answer, Limits, OVER, RankNow};
use crate::residency::{Activity, Hindrance, Situation};
use crate::units::{Bytes, Span};

/// What a rank is called.
pub(super) fn name(rank: &RankNow) -> String {
    match &rank.part {
        // Of one that is over the part may be kept no more.
        Some(part) if !part.is_empty() => format!("rank {} ({})", rank.rank, part.replace(['\t', '\n'], " ")),
        _ => format!("rank {}", rank.rank),
    }
}

/// Why it does not run. While everything fits the core is not told who waits.
fn hindrance(rank: &RankNow) -> Option<Hindrance> {
    let hindrance = rank.situation.as_ref()?.hindrance;
    let waits = rank.activity == Some(Activity::Waiting) && hindrance == Hindrance::Nothing;
    Some(if waits { Hindrance::Others } else { hindrance })
}

/// Where it stands among others, which are told of by what they wait for: what could be changed first.
pub(super) fn place(rank: &RankNow) -> u8 {
    match hindrance(rank) {
        Some(Hindrance::Memory { .. }) => 0,
        Some(Hindrance::Held { .. }) => 1,
        Some(Hindrance::Places { .. }) => 2,
        Some(Hindrance::Alive { .. }) => 3,
        Some(Hindrance::Processors { .. }) => 4,
        Some(Hindrance::Halted) => 5,
        Some(Hindrance::Turn) => 6,
        Some(Hindrance::Others) => 7,
        Some(Hindrance::Nothing) | None => 8,
    }
}

/// A rank: what it does, why it does not run, and what would change that; a sentence a line.
pub(super) fn explain(answer: &Answer, rank: &RankNow) -> Vec<String> {
    let mut lines = vec![format!("{} {}", name(rank), does(rank))];
    if let (Some(situation), Some(hindrance)) = (&rank.situation, hindrance(rank)) {
        let situation = &Situation { hindrance, ..*situation };
        lines.extend(why(situation, &answer.limits));
        lines.extend(remedy(situation, &answer.limits));
    }
    lines
}

fn does(rank: &RankNow) -> String {
    let lived = Span(rank.lived_s);
    let (held, out) = (Bytes(rank.held), Bytes(rank.out));
    let doing = |otherwise: &str| rank.doing.clone().unwrap_or_else(|| otherwise.to_owned());
    match (&rank.status, rank.activity) {
        (Some(status), _) if status == OVER => {
            "has ended; what it did is not kept (it is with --stats, -v, or a journal)".into()
        }
        (Some(status), _) => {
            format!("has ended ({status}) after {lived}; it held {} at most", Bytes(rank.peak))
        }
        (None, None) => doing("has not begun"),
        (None, Some(activity)) => match activity {
            Activity::Starting => "is being started".into(),
            Activity::Running => format!("runs: {}; {held} in RAM, since {lived}", doing("computing")),
            Activity::Waiting => format!("is in RAM with {held}, {}", doing("waiting")),
            Activity::Held => format!("is in RAM with {held}, and was made to stand still"),
            Activity::Evicting => {
                format!("is on its way out of RAM: {held} are still there, {out} out")
            }
            Activity::Out => {
                let doing = rank.doing.as_ref().map_or_else(String::new, |doing| format!("; {doing}"));
                format!("is out of RAM, with {out} on scratch{doing}")
            }
            Activity::Restoring => format!("is on its way back: {held} in RAM, {out} still out"),
        },
    }
}

/// Why it does not run.
fn why(situation: &Situation, limits: &Limits) -> Option<String> {
    let unborn = situation.activity.is_none();
    let ahead = match (situation.ahead, situation.first) {
        (0, _) | (_, None) => String::new(),
        (1, Some(first)) => format!("; rank {first} comes before it"),
        (ahead, Some(first)) => format!("; {ahead} ranks come before it, the first of them rank {first}"),
    };
    let used = |free: u64| {
        let used = format!("{} of the budget of {} are used", Bytes(limits.used), Bytes(limits.budget));
        // For what is in RAM, and as a margin: nobody is begun or brought in there.
        match limits.budget.saturating_sub(limits.used).saturating_sub(free) {
            0 => used,
            kept => format!("{used}, and {} are kept for growth", Bytes(kept)),
        }
    };
    Some(match situation.hindrance {
        Hindrance::Nothing => return None,
        Hindrance::Others => "it goes on by itself when that is there, and is brought in for it".into(),
        Hindrance::Halted => "no other rank is begun (--halt)".into(),
        Hindrance::Processors { active, wanted } => {
            format!(
                "{active} ranks run, as many as are wanted for {} processors ({wanted}){ahead}",
                limits.processors
            )
        }
        Hindrance::Alive { begun, most } => {
            let by = match limits.jobs {
                Some(jobs) if jobs <= most => format!("-j {jobs}"),
                _ => "by the open files there may be".into(),
            };
            format!("{begun} ranks have been begun and have not ended, as many as may ({by}){ahead}")
        }
        Hindrance::Places { taken } => {
            format!("{taken} ranks are in RAM, and may be {}{ahead}", limits.resident)
        }
        Hindrance::Memory { needs, free } => {
            let verb = if unborn { "is expected to need" } else { "needs" };
            let (needs, there, used) = (Bytes(needs), Bytes(free), used(free));
            format!("it {verb} {needs}, and {there} are free for it ({used}){ahead}")
        }
        Hindrance::Held { needs, free } => format!(
            "memory was short: it goes on when {} are free, and {} are ({}){ahead}",
            Bytes(needs),
            Bytes(free),
            used(free)
        ),
        Hindrance::Turn if situation.ahead > 0 => format!("there is room, and it is in line{ahead}"),
        Hindrance::Turn => return None,
    })
}

/// What would let it run.
fn remedy(situation: &Situation, limits: &Limits) -> Option<String> {
    match situation.hindrance {
        Hindrance::Memory { needs, free } | Hindrance::Held { needs, free } if needs > free => {
            let more = limits.budget.saturating_add(needs - free);
            Some(format!(
                "it would run now with --memory {}M, or when one of those in RAM ends",
                (more >> 20) + 1
            ))
        }
        Hindrance::Places { .. } => Some(format!(
            "it would be there with a larger --resident (now {}), or when one of those in RAM leaves",
            limits.resident
        )),
        Hindrance::Alive { most, .. } => Some(match limits.jobs {
            Some(jobs) if jobs <= most => {
                format!("it would begin with a larger -j (now {jobs}), or when one of those ends")
            }
            _ => "it would begin with more open files (ulimit -Hn), or when one of those ends".into(),
        }),
        Hindrance::Processors { .. } => Some(format!(
            "it would begin with more --processors (now {}), or when one of those ends",
            limits.processors
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn answer() -> Answer {
        let limits =
            Limits { budget: 1000 * MIB, used: 900 * MIB, resident: 4, processors: 2, jobs: None, np: 9 };
        let (line, now) = ("x".into(), String::new());
        Answer { line, elapsed_s: 5.0, now, limits, ranks: vec![], more: 0, node: None, others: vec![] }
    }

    fn rank(activity: Option<Activity>, hindrance: Hindrance, ahead: u32) -> RankNow {
        let situation = Situation {
            activity,
            holds: 5 * MIB,
            all: 300 * MIB,
            expected: 300 * MIB,
            hindrance,
            ahead,
            first: (ahead > 0).then_some(3),
        };
        RankNow {
            rank: 7,
            part: Some("reads/7.fa\t12".into()),
            status: None,
            activity,
            held: 5 * MIB,
            out: 295 * MIB,
            peak: 300 * MIB,
            lived_s: 90.0,
            doing: None,
            situation: Some(situation),
        }
    }

    #[test]
    fn sentences_have_numbers_and_what_would_change_them() {
        let said = |rank: &RankNow| explain(&answer(), rank).join("\n");
        let memory = Hindrance::Memory { needs: 300 * MIB, free: 100 * MIB };
        assert_eq!(
            said(&rank(None, memory, 2)),
            "rank 7 (reads/7.fa 12) has not begun\n\
             it is expected to need 300.0 MiB, and 100.0 MiB are free for it (900.0 MiB of the budget of 1000.0 MiB are used); \
             2 ranks come before it, the first of them rank 3\n\
             it would run now with --memory 1201M, or when one of those in RAM ends"
        );
        assert_eq!(
            said(&rank(Some(Activity::Out), Hindrance::Places { taken: 4 }, 1)),
            "rank 7 (reads/7.fa 12) is out of RAM, with 295.0 MiB on scratch\n\
             4 ranks are in RAM, and may be 4; rank 3 comes before it\n\
             it would be there with a larger --resident (now 4), or when one of those in RAM leaves"
        );
        let waits = RankNow {
            doing: Some("in MPI_Recv, waiting for rank 2, tag 7, on MPI_COMM_WORLD".into()),
            part: None,
            ..rank(Some(Activity::Waiting), Hindrance::Others, 0)
        };
        assert_eq!(
            said(&waits),
            "rank 7 is in RAM with 5.0 MiB, in MPI_Recv, waiting for rank 2, tag 7, on MPI_COMM_WORLD\n\
             it goes on by itself when that is there, and is brought in for it"
        );
        let held = Hindrance::Held { needs: 64 * MIB, free: 10 * MIB };
        assert!(said(&rank(Some(Activity::Held), held, 0)).contains(
            "64.0 MiB are free, and 10.0 MiB are (900.0 MiB of the budget of 1000.0 MiB are used, and 90.0 MiB are kept for growth)"
        ));
        let jobs = Limits { jobs: Some(2), ..answer().limits };
        let alive = rank(None, Hindrance::Alive { begun: 2, most: 2 }, 1);
        assert_eq!(
            explain(&Answer { limits: jobs, ..answer() }, &alive).join("\n"),
            "rank 7 (reads/7.fa 12) has not begun\n\
             2 ranks have been begun and have not ended, as many as may (-j 2); rank 3 comes before it\n\
             it would begin with a larger -j (now 2), or when one of those ends"
        );
        let files = said(&alive);
        assert!(files.contains("by the open files") && files.contains("ulimit -Hn"), "{files}");
        let ended = RankNow { status: Some("exit 3".into()), situation: None, ..waits };
        assert_eq!(said(&ended), "rank 7 has ended (exit 3) after 1m30s; it held 300.0 MiB at most");
    }

    /// Of very many parts only some are kept once they have ended, and not what they were.
    #[test]
    fn who_has_ended_is_not_said_not_to_have_begun() {
        let nothing =
            RankNow { part: Some(String::new()), situation: None, ..rank(None, Hindrance::Nothing, 0) };
        let said = |rank: &RankNow| explain(&answer(), rank).join("\n");
        assert_eq!(said(&nothing), "rank 7 has not begun");
        let over = RankNow { status: Some(OVER.into()), ..nothing.clone() };
        assert!(said(&over).starts_with("rank 7 has ended; what it did is not kept"), "{}", said(&over));
        // One that is to begin says what it waits for.
        let again = RankNow { doing: Some("has failed (exit 3), and is to be run again".into()), ..nothing };
        assert_eq!(said(&again), "rank 7 has failed (exit 3), and is to be run again");
    }

    #[test]
    fn those_that_wait_for_what_can_be_changed_come_first() {
        let free = Hindrance::Memory { needs: MIB, free: 0 };
        let waits = rank(Some(Activity::Waiting), Hindrance::Nothing, 0);
        let order = [
            rank(Some(Activity::Out), free, 0),
            rank(None, Hindrance::Alive { begun: 2, most: 2 }, 0),
            rank(Some(Activity::Out), Hindrance::Turn, 0),
            waits.clone(),
            RankNow { situation: None, ..waits },
        ];
        assert!(order.is_sorted_by(|one, other| place(one) < place(other)), "{order:?}");
    }
}
