//! What a rank is doing, in words for error messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::SeqCst;

use bdrun_ipc::collective::{CONTEXTS, Comm};
use bdrun_ipc::critical;
use bdrun_ipc::inbox;
use bdrun_ipc::segment::{Segment, Waiting};
use bdrun_ipc::state::State;

use super::Job;
use super::record::Record;
use crate::units::Bytes;

/// How many groups of ranks a deadlock message describes.
const DESCRIBED: usize = 6;
/// How many ranges of ranks are listed.
const LISTED: usize = 8;

/// What a rank does or did last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Doing {
    before: String,
    /// The rank that it waits for, in the communicator.
    peer: Option<u32>,
    behind: String,
    /// Where its memory is, if not in RAM.
    place: Option<&'static str>,
}

impl From<String> for Doing {
    fn from(before: String) -> Self {
        Self { before, peer: None, behind: String::new(), place: None }
    }
}

impl Doing {
    fn text(&self, peers: &[u32]) -> String {
        let peers = if peers.is_empty() { String::new() } else { ranks(peers) };
        format!("{}{peers}{}", self.before, self.behind)
    }
}

/// Numbers of ranks, in words.
fn ranks(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let ranges: Vec<String> = sorted
        .chunk_by(|a, b| a + 1 == *b)
        .map(|range| match range {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    let more = if ranges.len() > LISTED { ", …" } else { "" };
    let word = if sorted.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}{more}", ranges[..ranges.len().min(LISTED)].join(", "))
}

/// What a rank does or did last; `None` if it never attached and nothing is known.
pub(super) fn doing(segment: &Segment, rank: u32) -> Option<String> {
    does(segment, rank).map(|doing| {
        let place = doing.place.map_or_else(String::new, |place| format!(" ({place})"));
        doing.text(doing.peer.as_slice()) + &place
    })
}

fn does(segment: &Segment, rank: u32) -> Option<Doing> {
    let block = segment.rank(rank);
    if block.attached.load(SeqCst) == 0 {
        return None;
    }
    let (word, waiting) = (block.word.load(), block.waiting());
    let mut doing = match (waiting, block.call()) {
        _ if word.runnable() => "waiting for its turn in memory".to_string().into(),
        (Waiting::Memory { bytes }, _) => format!("waiting for {} of memory", Bytes(bytes)).into(),
        (Waiting::Anything, _) if critical::waits(segment, rank) => {
            "waiting for the critical section".to_string().into()
        }
        (Waiting::Nothing, None) => "computing".to_string().into(),
        (Waiting::Nothing, Some(call)) if block.has_ended() => format!("in {call}").into(),
        // What it has done since nobody knows.
        (Waiting::Nothing, Some(call)) => format!("computing (in {call} when it last waited)").into(),
        (waiting, Some(call)) => waits_in_call(segment, &call, waiting),
        (waiting, None) => waits(segment, waiting),
    };
    doing.place = match word.state() {
        State::Evicting => Some("being evicted"),
        State::Evicted => Some("evicted"),
        State::Restoring => Some("being restored"),
        _ => None,
    };
    Some(doing)
}

/// Of a program written for bdrun.
fn waits(segment: &Segment, waiting: Waiting) -> Doing {
    let of = |context: u32| if context == 0 { String::new() } else { format!(" on communicator {context}") };
    match waiting {
        Waiting::Message { context, source, tag } => {
            let from = if source.is_none() { "any rank" } else { "" };
            let tag = tag.map_or(String::new(), |t| format!(", tag {t}"));
            let behind = format!("{tag}{}", of(context));
            Doing { before: format!("waiting for a message from {from}"), peer: source, behind, place: None }
        }
        Waiting::Collective { comm, number } => {
            let comm = Comm::at(segment, comm).ok();
            let absent = comm.map_or_else(Vec::new, |comm| comm.absent(segment, number));
            let context = comm.map_or(0, |comm| comm.context(segment));
            format!("waiting in collective {number}{}{}", of(context), not_come(&absent)).into()
        }
        _ => "waiting for one of several messages".to_string().into(),
    }
}

/// Of one written for MPI.
fn waits_in_call(segment: &Segment, call: &str, waiting: Waiting) -> Doing {
    match waiting {
        Waiting::Message { context, source, tag } => {
            let comm = name_of(segment, Comm::of_context(segment, context), context);
            let from = if source.is_none() { "any rank" } else { "" };
            // What MPI says to itself has tags of its own.
            let tag = match tag.filter(|_| context.is_multiple_of(CONTEXTS)) {
                Some(tag) => format!(", tag {tag},"),
                None if context.is_multiple_of(CONTEXTS) => ", any tag,".to_owned(),
                None => String::new(),
            };
            let before = format!("in {call}, waiting for {from}");
            Doing { before, peer: source, behind: format!("{tag} on {comm}"), place: None }
        }
        Waiting::Collective { comm, number } => {
            let comm = Comm::at(segment, comm).ok();
            let absent = comm.map_or_else(Vec::new, |comm| comm.absent(segment, number));
            let context = comm.map_or(0, |comm| comm.context(segment));
            let comm = name_of(segment, comm, context);
            format!("in {call} on {comm}{}", not_come(&absent)).into()
        }
        _ if call.starts_with("MPI_Wait") => format!("in {call}, waiting for one of several messages").into(),
        _ => format!("in {call}, waiting for others").into(),
    }
}

/// Who is missed in a collective.
fn not_come(absent: &[u32]) -> String {
    match absent.len() {
        0 => ", to which all have come".to_owned(),
        1 => format!(", to which {} has not come", ranks(absent)),
        _ => format!(", to which {} have not come", ranks(absent)),
    }
}

fn name_of(segment: &Segment, comm: Option<Comm>, context: u32) -> String {
    match comm.map(|comm| (comm.name(segment), comm.size(segment))) {
        Some((Some(name), _)) => name,
        Some((None, size)) => format!("communicator {} of {size} ranks", context / CONTEXTS),
        None => "a communicator of itself".to_owned(),
    }
}

/// Messages of one communicator and tag.
#[derive(Default)]
struct Unread {
    count: u64,
    bytes: u64,
    /// By their ranks in the communicator.
    from: BTreeSet<u32>,
    to: BTreeSet<u32>,
}

/// By communicator and tag.
fn said_of_unread(left: &BTreeMap<(u32, u32), Unread>) -> Option<String> {
    let list = |numbers: &BTreeSet<u32>| ranks(&numbers.iter().copied().collect::<Vec<_>>());
    let each = left.iter().take(DESCRIBED).map(|((context, tag), unread)| {
        let (from, to) = (list(&unread.from), list(&unread.to));
        let of = if *context == 0 { String::new() } else { format!(" on communicator {context}") };
        format!("{} with tag {tag}{of} ({}) from {from} to {to}", unread.count, Bytes(unread.bytes))
    });
    let mut said: Vec<String> = each.collect();
    let more: u64 = left.values().skip(DESCRIBED).map(|unread| unread.count).sum();
    if more > 0 {
        said.push(format!("{more} with other tags"));
    }
    let count: u64 = left.values().map(|unread| unread.count).sum();
    let (word, verb) = if count == 1 { ("message", "was") } else { ("messages", "were") };
    (count > 0).then(|| format!("{count} {word} {verb} never received: {}", said.join("; ")))
}

/// Ranks that do the same.
struct Group {
    ranks: Vec<u32>,
    /// Whom they wait for, all together.
    peers: Vec<u32>,
    /// Of how many the memory is elsewhere than in RAM, by where.
    places: BTreeMap<&'static str, usize>,
    doing: Doing,
}

impl Group {
    fn text(&self) -> String {
        let Self { ranks: numbers, peers, places, doing } = self;
        let is = if numbers.len() == 1 { "is" } else { "are" };
        let places: Vec<String> = places
            .iter()
            .map(|(place, &count)| match count == numbers.len() {
                true => (*place).to_owned(),
                false => format!("{count} of them {place}"),
            })
            .collect();
        let places = if places.is_empty() { String::new() } else { format!(" ({})", places.join(", ")) };
        format!("{} {is} {}{places}", ranks(numbers), doing.text(peers))
    }
}

/// Ranks that do the same, together; of many, those too that differ only in whom they wait for. Those of whom
/// there are few come first: it is for them that all others wait, as a rule.
fn groups(doing: &[(u32, Doing)]) -> Vec<String> {
    let together = |same: fn(&Doing, &Doing) -> bool| {
        let mut groups: Vec<Group> = Vec::new();
        for (rank, doing) in doing {
            let at = groups.iter().position(|group| same(doing, &group.doing)).unwrap_or_else(|| {
                let (ranks, peers, places) = (Vec::new(), Vec::new(), BTreeMap::new());
                groups.push(Group { ranks, peers, places, doing: doing.clone() });
                groups.len() - 1
            });
            groups[at].ranks.push(*rank);
            groups[at].peers.extend(doing.peer);
            if let Some(place) = doing.place {
                *groups[at].places.entry(place).or_default() += 1;
            }
        }
        groups
    };
    let mut all = together(|a, b| (&a.before, a.peer, &a.behind) == (&b.before, b.peer, &b.behind));
    if all.len() > DESCRIBED {
        all = together(|a, b| (&a.before, &a.behind) == (&b.before, &b.behind));
    }
    all.sort_by_key(|group| group.ranks.len());
    let more: usize = all.iter().skip(DESCRIBED).map(|group| group.ranks.len()).sum();
    let mut said: Vec<String> = all.iter().take(DESCRIBED).map(Group::text).collect();
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    said
}

impl Job<'_> {
    /// Those that have processes.
    pub(super) fn living(&self) -> impl Iterator<Item = u32> {
        let lives = |(_, record): &(u32, &Record)| record.pid.is_some() && record.status.is_none();
        self.ranks.iter().filter(lives).map(|(rank, _)| rank)
    }

    /// What a rank does or did last, as far as it tells.
    pub(super) fn doing(&self, rank: u32) -> Option<String> {
        if self.setup.segment.is_wide() { None } else { doing(&self.setup.segment, rank) }
    }

    /// For a deadlock: what ranks wait for, and who has gone without a word.
    pub(super) fn what_ranks_wait_for(&self) -> String {
        let segment = &self.setup.segment;
        let doing: Vec<_> = self.living().filter_map(|rank| Some((rank, does(segment, rank)?))).collect();
        let mut said = groups(&doing);
        said.extend(self.who_left());
        said.join("; ")
    }

    /// Messages between ranks of our runtime that nobody has received, once all ranks have ended: who ends
    /// puts them back. What another library's ranks leave it tells itself.
    pub(super) fn never_received(&self) -> Option<String> {
        let segment = &self.setup.segment;
        let mut left: BTreeMap<(u32, u32), Unread> = BTreeMap::new();
        for rank in segment.here().filter(|&rank| segment.rank(rank).call().is_none()) {
            let mut arrived = Vec::new();
            // Whatever is wrong there no longer matters.
            let _ = inbox::drain(segment, rank, &mut arrived);
            for message in arrived {
                let unread = left.entry((message.context, message.tag)).or_default();
                unread.count += 1;
                unread.bytes = unread.bytes.saturating_add(message.len);
                unread.from.insert(message.source);
                unread.to.insert(rank);
            }
        }
        said_of_unread(&left)
    }

    /// Those that have ended well, but in the middle of MPI.
    pub(super) fn who_left(&self) -> Option<String> {
        let segment = &self.setup.segment;
        let has_left = |(rank, record): &(u32, &Record)| {
            record.status.as_deref() == Some("ok") && segment.rank(*rank).begun.load(SeqCst) != 0
        };
        let left: Vec<u32> = self.ranks.iter().filter(has_left).map(|(rank, _)| rank).collect();
        (!left.is_empty()).then(|| format!("{} left without MPI_Finalize", ranks(&left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_for(rank: u32, peer: u32) -> (u32, Doing) {
        let before = "in MPI_Recv, waiting for ".into();
        (rank, Doing { before, peer: Some(peer), behind: ", tag 7".into(), place: None })
    }

    #[test]
    fn ranks_that_do_the_same_are_one_group() {
        let computes = (9, Doing::from("computing".to_owned()));
        assert_eq!(
            groups(&[waits_for(0, 3), waits_for(1, 3), waits_for(4, 5), waits_for(3, 3), computes]),
            [
                "rank 4 is in MPI_Recv, waiting for rank 5, tag 7",
                "rank 9 is computing",
                "ranks 0-1, 3 are in MPI_Recv, waiting for rank 3, tag 7"
            ]
        );
        // A ring.
        let ring: Vec<_> = (0..64).map(|rank| waits_for(rank, (rank + 63) % 64)).collect();
        assert_eq!(groups(&ring), ["ranks 0-63 are in MPI_Recv, waiting for ranks 0-63, tag 7"]);
        let out = |(rank, doing): (u32, Doing)| (rank, Doing { place: Some("evicted"), ..doing });
        assert_eq!(
            groups(&[waits_for(0, 3), out(waits_for(1, 3)), out(waits_for(2, 4))]),
            [
                "rank 2 is in MPI_Recv, waiting for rank 4, tag 7 (evicted)",
                "ranks 0-1 are in MPI_Recv, waiting for rank 3, tag 7 (1 of them evicted)"
            ]
        );
        let each: Vec<_> = (0..9).map(|rank| (rank, Doing::from(format!("{rank}")))).collect();
        assert_eq!(groups(&each).last().map(String::as_str), Some("and 3 more"));
    }

    /// Of 256 ranks one waits for something else, behind more kinds of waits than are told.
    #[test]
    fn those_for_whom_others_wait_are_told_first() {
        let mut doing: Vec<_> =
            (0..250).map(|rank| (rank, Doing::from(format!("in round {}", rank % 10)))).collect();
        doing.push(waits_for(250, 3));
        let said = groups(&doing);
        assert_eq!(said[0], "rank 250 is in MPI_Recv, waiting for rank 3, tag 7");
        assert_eq!((said.len(), said.last().map(String::as_str)), (DESCRIBED + 1, Some("and 125 more")));
    }

    #[test]
    fn what_nobody_has_received_is_said_by_tag() {
        let unread = |count, from: &[u32], to: &[u32]| {
            let set = |ranks: &[u32]| ranks.iter().copied().collect();
            Unread { count, bytes: 1024 * count, from: set(from), to: set(to) }
        };
        assert_eq!(said_of_unread(&BTreeMap::new()), None);
        let one = BTreeMap::from([((0, 7), unread(1, &[0], &[3]))]);
        let said = said_of_unread(&one).unwrap();
        assert_eq!(said, "1 message was never received: 1 with tag 7 (1.0 KiB) from rank 0 to rank 3");
        let two = BTreeMap::from([((0, 7), unread(3, &[0], &[1, 2, 3])), ((4, 8), unread(2, &[0, 1], &[2]))]);
        assert_eq!(
            said_of_unread(&two).unwrap(),
            "5 messages were never received: 3 with tag 7 (3.0 KiB) from rank 0 to ranks 1-3; 2 with tag 8 on \
             communicator 4 (2.0 KiB) from ranks 0-1 to rank 2"
        );
        let many = (0..10).map(|tag| ((0, tag), unread(2, &[0], &[1]))).collect();
        let said = said_of_unread(&many).unwrap();
        assert!(said.starts_with("20 messages") && said.ends_with("; 8 with other tags"), "{said}");
    }

    #[test]
    fn long_lists_end() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[5, 1, 2, 2]), "ranks 1-2, 5");
        let even: Vec<u32> = (0..40).map(|n| 2 * n).collect();
        assert_eq!(ranks(&even), "ranks 0, 2, 4, 6, 8, 10, 12, 14, …");
    }

    #[test]
    fn what_an_mpi_rank_waits_for_is_said_in_its_words() {
        let segment = Segment::create(3, 1 << 20, 1 << 18, 2).unwrap();
        let block = segment.rank(1);
        assert_eq!(doing(&segment, 1), None);
        block.attached.store(1, SeqCst);
        let said = |call: &str, waiting| {
            block.set_call(call);
            block.publish(waiting);
            doing(&segment, 1).unwrap()
        };
        let message = |context, source, tag| Waiting::Message { context, source, tag };
        assert_eq!(said("", message(0, Some(2), Some(7))), "waiting for a message from rank 2, tag 7");
        Comm::WORLD.set_name(&segment, "MPI_COMM_WORLD");
        let two = Comm::create(&segment, &[0, 1]).unwrap();
        let context = two.context(&segment);
        for (call, waiting, words) in [
            (
                "MPI_Recv",
                message(0, Some(2), Some(7)),
                "in MPI_Recv, waiting for rank 2, tag 7, on MPI_COMM_WORLD",
            ),
            (
                "MPI_Probe",
                message(0, None, None),
                "in MPI_Probe, waiting for any rank, any tag, on MPI_COMM_WORLD",
            ),
            ("MPI_Wait", message(context, Some(0), Some(1)), "rank 0, tag 1, on communicator 2 of 2 ranks"),
            ("MPI_Comm_dup", message(context + 1, Some(0), Some(1)), "rank 0 on communicator 2 of 2 ranks"),
            (
                "MPI_Barrier",
                Waiting::Collective { comm: 0, number: 0 },
                "in MPI_Barrier on MPI_COMM_WORLD, to which ranks 0-2 have not come",
            ),
            ("MPI_Waitany", Waiting::Anything, "in MPI_Waitany, waiting for one of several messages"),
            ("MPI_Win_lock", Waiting::Anything, "in MPI_Win_lock, waiting for others"),
            ("MPI_Send", Waiting::Nothing, "computing (in MPI_Send when it last waited)"),
            ("", Waiting::Nothing, "computing"),
            ("MPI_Send", Waiting::Memory { bytes: 1 << 20 }, "waiting for 1.0 MiB of memory"),
        ] {
            let said = said(call, waiting);
            assert!(said.ends_with(words), "{said}");
        }
        block.end_in(Some("MPI_Abort"));
        assert_eq!(said("MPI_Abort", Waiting::Nothing), "in MPI_Abort");
        two.set_name(&segment, "pair");
        assert!(said("MPI_Recv", message(context, Some(0), Some(1))).ends_with(" on pair"));
    }
}
