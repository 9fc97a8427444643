//! What a rank asks the gateway of its node, about ranks of others.

use std::sync::{Mutex, PoisonError};

use bdrun_ipc::far::{MOST_WANTED, Notice, Range, tell};
use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::Segment;

/// One question at a time.
static ASKING: Mutex<()> = Mutex::new(());

/// Asks, and takes what is answered, which is as many bytes as `into` has. `wait` returns when what it is
/// given says so, or earlier.
pub(crate) fn ask(
    (segment, mail, rank): (&Segment, &Mail, u32),
    notice: &Notice,
    into: &mut [&mut [u8]],
    wait: &dyn Fn(&dyn Fn() -> bool),
) -> bdrun_ipc::Result<()> {
    let _one = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = segment.answer(rank);
    let before = answer.count();
    tell(segment, mail, rank, notice)?;
    while answer.count() == before {
        wait(&|| answer.count() != before);
    }
    answer.take(segment, mail, into)
}

/// Bytes of a member's part, and where they go.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub member: u32,
    pub offset: u64,
    pub into: &'a mut [u8],
}

/// Cuts what is wanted into questions, in order. What is empty is left out.
pub(crate) fn questions<'a>(wanted: Vec<Wanted<'a>>) -> Vec<Vec<Wanted<'a>>> {
    let mut all: Vec<Vec<Wanted<'a>>> = vec![];
    let mut room = 0;
    for Wanted { member, mut offset, mut into } in wanted {
        while !into.is_empty() {
            if room == 0 {
                all.push(vec![]);
                room = MOST_WANTED as usize;
            }
            let (now, later) = into.split_at_mut(room.min(into.len()));
            let len = now.len();
            if let Some(question) = all.last_mut() {
                question.push(Wanted { member, offset, into: now });
            }
            (offset, into, room) = (offset + len as u64, later, room - len);
        }
    }
    all
}

/// What the gateway is asked for them.
pub(crate) fn ranges(question: &[Wanted<'_>]) -> Vec<Range> {
    let range = |w: &Wanted<'_>| Range { member: w.member, offset: w.offset, len: w.into.len() as u64 };
    question.iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_cut_into_questions() {
        let most = MOST_WANTED as usize;
        let mut bytes = [vec![0; most / 2], vec![], vec![0; 3 * most]];
        let wanted = bytes.iter_mut().zip(5..).map(|(into, member)| Wanted { member, offset: 9, into });
        let cut: Vec<Vec<Range>> = questions(wanted.collect()).iter().map(|q| ranges(q)).collect();
        let (half, whole) = (MOST_WANTED / 2, MOST_WANTED);
        let range = |member, offset, len| Range { member, offset, len };
        assert_eq!(
            cut,
            [
                vec![range(5, 9, half), range(7, 9, half)],
                vec![range(7, 9 + half, whole)],
                vec![range(7, 9 + half + whole, whole)],
                vec![range(7, 9 + half + 2 * whole, half)]
            ]
        );
    }
}
