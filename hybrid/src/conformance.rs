//! What every back end must do, as one function over any of them.

use crate::transport::Transport;
use crate::{Cause, Error, ReduceOp, Result, SharedMemory, SharedRegion, TAG_MAX, Tag};

/// What the suite has seen: the same on all ranks, and on every back end for the same number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Of the bits of all results.
    pub digest: u64,
    /// Whether the ranks shared memory.
    pub shared: bool,
}

/// Makes all calls on `comm`, of whose ranks all must be on one node. With `tells`, also ranks that call
/// different collectives: back ends that notice say so, of an MPI that is undefined.
///
/// # Errors
/// What a call returns that must not fail.
///
/// # Panics
/// If a result is wrong.
pub fn suite<C: SharedMemory + Transport>(comm: &C, tells: bool) -> Result<Seen> {
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    crate::Communicator::barrier(comm)?;
    broadcasts(comm, &mut digest)?;
    reductions(comm, &mut digest)?;
    gathers(comm, &mut digest)?;
    splits_of_elements(comm, &mut digest)?;
    messages(comm, &mut digest)?;
    arguments(comm);
    let node = comm.split_local()?;
    assert_eq!((rank(&node), size(&node)), (rank(comm), size(comm)), "all ranks are on one node");
    contexts(comm, &node)?;
    let mut shared = node.create_shared_region::<f64>(3 * LONG)?;
    region(&node, &mut shared, &mut digest)?;
    assert!(node.create_shared_region::<u32>(0)?.as_slice().is_empty());
    // The same where nothing can be shared.
    regions_apart(&node)?;
    region(&node, &mut SharedRegion::copied(&node, 3 * LONG), &mut digest)?;
    if tells && size(comm) > 1 {
        mismatches(comm)?;
    }
    let mine = [digest.0];
    assert!(
        comm.allgather(&mine)?.iter().all(|digest| *digest == mine[0]),
        "ranks have seen different results"
    );
    Ok(Seen { digest: digest.0, shared: shared.is_shared() })
}

/// More elements than fit any buffer of the back ends.
const LONG: usize = 70_000;

fn rank(comm: &impl crate::Communicator) -> usize {
    comm.rank()
}

fn size(comm: &impl crate::Communicator) -> usize {
    comm.size()
}

/// Of numbers, in order (FNV-1a, 64 bits).
struct Digest(u64);

impl Digest {
    fn add(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for byte in numbers.into_iter().flat_map(u64::to_le_bytes) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// A number that depends on the order in which a sum takes it, for a rank and a place.
fn number(rank: usize, at: usize) -> f64 {
    let scale = [1.0, 1e16, -1e16, 1e-3][(rank + at) % 4];
    scale * (1.0 + (rank * 31 + at * 17) as f64 / 1024.0)
}

fn broadcasts<C: SharedMemory>(comm: &C, digest: &mut Digest) -> Result<()> {
    for root in 0..size(comm) {
        for len in [0, 1, 7, LONG] {
            let sent: Vec<f64> = (0..len).map(|at| number(root, at)).collect();
            let mut data = if rank(comm) == root { sent.clone() } else { vec![-1.0; len] };
            comm.broadcast(&mut data, root)?;
            assert_eq!(data, sent, "broadcast of {len} from {root}");
            digest.add(data.iter().map(|x| x.to_bits()));
        }
        let mut bytes = [0u8; 3];
        if rank(comm) == root {
            bytes = [1, 2, root as u8];
        }
        comm.broadcast(&mut bytes, root)?;
        assert_eq!(bytes, [1, 2, root as u8]);
    }
    Ok(())
}

fn reductions<C: SharedMemory>(comm: &C, digest: &mut Digest) -> Result<()> {
    let (me, ranks) = (rank(comm), size(comm));
    for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max] {
        for len in [0, 1, 3, 1_000, LONG] {
            let all: Vec<Vec<f64>> =
                (0..ranks).map(|rank| (0..len).map(|at| number(rank, at)).collect()).collect();
            let mut result = vec![0.0; len];
            comm.allreduce(&all[me], &mut result, op)?;
            for (at, got) in result.iter().enumerate() {
                let in_order = all.iter().map(|part| part[at]).reduce(|a, b| fold(a, b, op));
                assert_eq!(Some(got.to_bits()), in_order.map(f64::to_bits), "{op:?} of {len} at {at}");
            }
            digest.add(result.iter().map(|x| x.to_bits()));
        }
        let (mut bytes, mut wide) = ([0u8; 5], [0i128; 3]);
        comm.allreduce(&[me as u8, 200, 7, 0, 255 - me as u8], &mut bytes, op)?;
        comm.allreduce(&[me as i128 - 4, i128::MAX, 1 << 100], &mut wide, op)?;
        let expected = |each: &dyn Fn(u8) -> u8| match op {
            ReduceOp::Sum => (0..ranks as u8).fold(0, |sum: u8, rank| sum.wrapping_add(each(rank))),
            ReduceOp::Min => (0..ranks as u8).map(each).min().unwrap_or(0),
            ReduceOp::Max => (0..ranks as u8).map(each).max().unwrap_or(0),
        };
        assert_eq!(bytes[0], expected(&|rank| rank));
        assert_eq!(bytes[1], expected(&|_| 200));
        assert_eq!(bytes[4], expected(&|rank| 255 - rank));
        digest.add(bytes.map(u64::from));
        digest.add(wide.map(|number| number as u64));
    }
    let (mut least, mut most) = ([0.0], [0.0]);
    let mine = [if me == ranks / 2 { f32::NAN } else { me as f32 }];
    comm.allreduce(&mine, &mut least, ReduceOp::Min)?;
    comm.allreduce(&mine, &mut most, ReduceOp::Max)?;
    assert!(least[0].is_nan() && most[0].is_nan(), "one is no number");
    Ok(())
}

fn fold(a: f64, b: f64, op: ReduceOp) -> f64 {
    match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
    }
}

fn gathers<C: SharedMemory>(comm: &C, digest: &mut Digest) -> Result<()> {
    let (me, ranks) = (rank(comm), size(comm));
    for unit in [0, 1, 5, 70_000] {
        // Some ranks have nothing; parts lie backwards, with gaps between them.
        let counts: Vec<usize> = (0..ranks).map(|rank| unit * (rank % 3)).collect();
        let mut displs = vec![0; ranks];
        let mut end = 2;
        for rank in (0..ranks).rev() {
            displs[rank] = end;
            end += counts[rank] + 1;
        }
        let part = |rank: usize| (0..counts[rank]).map(move |at| (rank * 100_000 + at) as u32);
        let mut all = vec![u32::MAX; end];
        comm.allgatherv(&part(me).collect::<Vec<_>>(), &mut all, &counts, &displs)?;
        let mut expected = vec![u32::MAX; end];
        for rank in 0..ranks {
            part(rank).zip(&mut expected[displs[rank]..]).for_each(|(x, place)| *place = x);
        }
        assert!(all == expected, "parts of {unit}");
        digest.add(all.iter().map(|&x| x.into()));
    }
    let all = comm.allgather(&[me as u16, 7])?;
    assert!(all.chunks(2).enumerate().all(|(rank, pair)| pair == [rank as u16, 7]));
    Ok(())
}

/// The sum of the same elements in the same order, however they are split over the ranks.
fn splits_of_elements<C: SharedMemory>(comm: &C, digest: &mut Digest) -> Result<()> {
    let (me, ranks) = (rank(comm), size(comm));
    let all: Vec<f64> = (0..1_000).map(|at| number(at / 7, at)).collect();
    let in_order = all.iter().copied().reduce(|a, b| a + b);
    let even = |rank: usize| all.len() * rank / ranks;
    let uneven = |rank: usize| all.len() * rank * rank / (ranks * ranks);
    let last = |rank: usize| if rank < ranks { 0 } else { all.len() };
    for split in [&even as &dyn Fn(usize) -> usize, &uneven, &last] {
        let sum = comm.reduce_elements(&all[split(me)..split(me + 1)], ReduceOp::Sum)?;
        assert_eq!(sum.map(f64::to_bits), in_order.map(f64::to_bits));
    }
    digest.add(in_order.map(f64::to_bits));
    assert_eq!(comm.reduce_elements::<i64>(&[], ReduceOp::Max)?, None);
    Ok(())
}

fn messages<C: SharedMemory>(comm: &C, digest: &mut Digest) -> Result<()> {
    let (me, ranks) = (rank(comm), size(comm));
    // To itself, in the order of what is asked for.
    comm.send(&[1u32], me, 1)?;
    comm.send(&[2u32, 2], me, 2)?;
    comm.send(&[3u32], me, 1)?;
    let (mut one, mut two) = ([0u32], [0u32; 2]);
    comm.recv(&mut two, me, 2)?;
    comm.recv(&mut one, me, 1)?;
    assert_eq!((one, two), ([1], [2, 2]));
    comm.recv(&mut one, me, 1)?;
    assert_eq!(one, [3]);
    let never = comm.recv(&mut one, me, 1);
    assert!(matches!(never, Err(Error { cause: Cause::Never(_), call: "recv", .. })), "{never:?}");
    // Around a ring: who is even sends first.
    let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
    for (tag, len) in [(0, 0), (5, 1), (TAG_MAX, 1_000), (7, 100_000)] {
        if ranks == 1 {
            break;
        }
        let sent: Vec<u64> = (0..len).map(|at| (me * 1_000_000 + at) as u64).collect();
        let mut came = vec![0u64; len];
        // With an odd number of ranks the last two are both even; one of them waits for the other's turn.
        if me % 2 == 0 {
            comm.send(&sent, next, tag)?;
            comm.recv(&mut came, before, tag)?;
        } else {
            comm.recv(&mut came, before, tag)?;
            comm.send(&sent, next, tag)?;
        }
        assert!(came.iter().enumerate().all(|(at, x)| *x == (before * 1_000_000 + at) as u64));
    }
    // Short ones in another order than they were sent in, and one of a wrong length.
    let tags: [Tag; 3] = [11, 12, 13];
    for to in (0..ranks).filter(|&to| to != me) {
        tags.iter().try_for_each(|&tag| comm.send(&[me as u64, tag.into()], to, tag))?;
    }
    for from in (0..ranks).filter(|&from| from != me) {
        for tag in [13, 11] {
            let mut pair = [0u64; 2];
            comm.recv(&mut pair, from, tag)?;
            assert_eq!(pair, [from as u64, tag.into()]);
        }
        let short = comm.recv(&mut [0u64], from, 12);
        let is_right = |cause: &Cause| match *cause {
            Cause::Length { from: is, tag, bytes, room } => (is, tag, bytes, room) == (from, 12, 16, 8),
            _ => false,
        };
        assert!(short.as_ref().is_err_and(|error| is_right(&error.cause)), "{short:?}");
    }
    comm.barrier()?;
    digest.add([ranks as u64]);
    Ok(())
}

/// What one rank can see to be wrong is told by that rank, before anything is sent.
fn arguments<C: SharedMemory>(comm: &C) {
    let (me, ranks) = (rank(comm), size(comm));
    let nobody = |result: Result<()>, call: &str| match result {
        Err(Error { rank, call: is, cause: Cause::NoSuchRank { peer, size } }) => {
            assert_eq!((rank, is, peer, size), (me, call, ranks, ranks));
        }
        other => panic!("{call}: {other:?}"),
    };
    nobody(comm.broadcast(&mut [0u8], ranks), "broadcast");
    nobody(comm.send(&[0u8], ranks, 0), "send");
    nobody(comm.recv(&mut [0u8], ranks, 0), "recv");
    let wrong = |result: Result<()>, word: &str| match result {
        Err(Error { cause: Cause::Argument(why), .. }) => assert!(why.contains(word), "{why}"),
        other => panic!("{word}: {other:?}"),
    };
    wrong(comm.send(&[0u8], me, TAG_MAX + 1), "tag");
    wrong(comm.recv(&mut [0u8], me, TAG_MAX + 1), "tag");
    wrong(comm.allreduce(&[0u8; 2], &mut [0u8; 3], ReduceOp::Sum), "received");
    let (ones, places): (Vec<usize>, Vec<usize>) = (0..ranks).map(|rank| (1, rank)).unzip();
    let mut room = vec![0u8; ranks];
    wrong(comm.allgatherv(&[0], &mut room, &ones[1..], &places), "counts");
    wrong(comm.allgatherv(&[0, 0], &mut room, &ones, &places), "count of this rank");
    wrong(comm.allgatherv(&[0], &mut room[1..], &ones, &places), "outside");
    if ranks > 1 {
        wrong(comm.allgatherv(&[0], &mut room, &ones, &vec![0; ranks]), "overlap");
    }
}

/// What is sent on one communicator is not received on another.
fn contexts<C: SharedMemory>(comm: &C, node: &C) -> Result<()> {
    let (me, ranks) = (rank(comm), size(comm));
    for to in (0..ranks).filter(|&to| to != me) {
        comm.send(&[1u8], to, 3)?;
        node.send(&[2u8], to, 3)?;
    }
    for from in (0..ranks).filter(|&from| from != me) {
        let mut byte = [0u8];
        node.recv(&mut byte, from, 3)?;
        assert_eq!(byte, [2]);
        comm.recv(&mut byte, from, 3)?;
        assert_eq!(byte, [1]);
    }
    node.barrier()
}

/// Ranks that go over their regions in other orders are told, all of them.
fn regions_apart<C: SharedMemory>(node: &C) -> Result<()> {
    let (mut one, mut other) = (node.create_shared_region::<u32>(5)?, node.create_shared_region::<u32>(5)?);
    if size(node) > 1 {
        let first = if rank(node).is_multiple_of(2) { &mut one } else { &mut other };
        let told = first.update(|all| all.fill(1));
        assert!(matches!(told, Err(Error { cause: Cause::Mismatch(_), .. })), "{told:?}");
    }
    one.fence()?;
    other.fence()?;
    other.update(|all| all.fill(2))?;
    assert_eq!((other.as_slice(), one.len()), (&[2; 5][..], 5));
    Ok(())
}

fn region<C: SharedMemory>(node: &C, region: &mut SharedRegion<f64>, digest: &mut Digest) -> Result<()> {
    let len = region.len();
    assert_eq!((len, region.is_leader()), (3 * LONG, node.is_leader()));
    assert!(region.as_slice().iter().all(|x| x.to_bits() == 0), "it is zeros at first");
    for round in 0..3 {
        region.update(|all| all.iter_mut().enumerate().for_each(|(at, x)| *x = number(round, at)))?;
        assert!(region.as_slice().iter().enumerate().all(|(at, x)| *x == number(round, at)), "round {round}");
    }
    // Two parts, and what is between them stays.
    let mut writing = region.write()?;
    for range in [5..7, len - 2..len] {
        if let Some(part) = writing.range_mut(range) {
            part.fill(0.25);
        }
    }
    writing.fence()?;
    let expected = |at: usize| if (5..7).contains(&at) || at >= len - 2 { 0.25 } else { number(2, at) };
    assert!(region.as_slice().iter().enumerate().all(|(at, x)| *x == expected(at)));
    // Nobody writes.
    region.write()?.fence()?;
    region.fence()?;
    // A guard that was dropped: nobody reads before a fence.
    drop(region.write()?);
    assert!(matches!(region.write(), Err(Error { cause: Cause::Unfenced, .. })));
    assert!(region.try_as_slice().is_none(), "it is open");
    region.fence()?;
    digest.add(region.as_slice().iter().map(|x| x.to_bits()));
    // The leader cannot write while another still reads: each looks again after a while.
    for round in 0..8 {
        region.update(|all| all.fill(f64::from(round)))?;
        let seen = region.as_slice();
        if node.rank() % 2 == 1 {
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        assert!(seen.iter().all(|x| *x == f64::from(round)), "round {round}");
    }
    region.fence()
}

/// All are told that they do not make the same call, and the next one works.
fn mismatches<C: SharedMemory>(comm: &C) -> Result<()> {
    let is_told = |result: Result<()>, call: &str| {
        assert!(matches!(result, Err(Error { cause: Cause::Mismatch(_), .. })), "{call}: {result:?}");
    };
    if rank(comm) == 0 {
        is_told(comm.barrier(), "barrier");
    } else {
        is_told(comm.broadcast(&mut [0u8], 0), "broadcast");
    }
    comm.barrier()?;
    // Different lengths: whoever sees it says so.
    let mut data = vec![0u8; 1 + rank(comm)];
    let result = comm.broadcast(&mut data, 0);
    assert!(rank(comm) == 0 || result.is_err(), "{result:?}");
    comm.barrier()
}
