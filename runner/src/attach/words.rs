//! Why a rank waits, in sentences, with what would change it.

use super::{Answer, Limits, RankNow};
use crate::residency::{Activity, Hindrance, Situation};
use crate::units::{Bytes, Span};

/// What a rank is called.
pub(super) fn name(rank: &RankNow) -> String {
    match &rank.part {
        Some(part) => format!("rank {} ({})", rank.rank, part.replace(['\t', '\n'], " ")),
        None => format!("rank {}", rank.rank),
    }
}

/// A rank: what it does, why it does not run, and what would change that; a sentence a line.
pub(super) fn explain(answer: &Answer, rank: &RankNow) -> Vec<String> {
    let mut lines = vec![format!("{} {}", name(rank), does(rank))];
    if let Some(situation) = &rank.situation {
        // While everything fits the core is not told who waits.
        let waits = rank.activity == Some(Activity::Waiting) && situation.hindrance == Hindrance::Nothing;
        let situation =
            &if waits { Situation { hindrance: Hindrance::Others, ..*situation } } else { *situation };
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
        (Some(status), _) => {
            format!("has ended ({status}) after {lived}; it held {} at most", Bytes(rank.peak))
        }
        (None, None) => "has not begun".into(),
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
        let limits = Limits { budget: 1000 * MIB, used: 900 * MIB, resident: 4, processors: 2, np: 9 };
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
        let ended = RankNow { status: Some("exit 3".into()), situation: None, ..waits };
        assert_eq!(said(&ended), "rank 7 has ended (exit 3) after 1m30s; it held 300.0 MiB at most");
    }
}
