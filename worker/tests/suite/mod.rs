//! What every back end of the communicator must do. Run by `tests/local.rs` on threads and, as the program
//! `conformance` (in `examples/ranks`), on processes under `bdrun`, with and without memory for all of them.

use bdrun_worker::{Communicator, Error, Received, Source, TagSel, wait_any};

/// Every check, one after the other; panics where one fails. Any number of ranks.
pub fn all(comm: &Communicator) {
    let checks: [fn(&Communicator); 10] = [
        point_to_point,
        order_is_kept_whatever_the_size,
        posted_receives,
        any_source,
        collectives,
        reductions_are_in_rank_order,
        values,
        split_and_duplicate,
        errors,
        many_messages,
    ];
    for check in checks {
        check(comm);
        // So that a fast neighbour's next check does not send into this one.
        comm.barrier().unwrap();
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u32> {
    let mut x = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u32
        })
        .collect()
}

/// Lengths around every boundary: empty, inline in a node, a page, many pages.
const LENGTHS: [usize; 9] = [0, 1, 51, 52, 53, 1023, 1024, 1025, 300_000];

fn point_to_point(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    for (tag, len) in LENGTHS.into_iter().enumerate() {
        comm.send(right, tag as u32, &pattern(rank + len, len)).unwrap();
        let status = comm.probe(left, tag as u32).unwrap();
        assert_eq!((status.source, status.tag, status.bytes), (left, tag as u32, 4 * len));
        let (got, status) = comm.recv::<u32>(left, tag as u32).unwrap();
        assert_eq!(status.source, left);
        assert_eq!(got, pattern(left + len, len));
    }
    comm.barrier().unwrap();
    assert_eq!(comm.iprobe(Source::Any, TagSel::Any).unwrap(), None);
    comm.barrier().unwrap();
    let (echo, _) = comm.sendrecv(right, &[rank as u64], left, 1).unwrap();
    assert_eq!(echo, [left as u64]);
    let mut buffer = [0u16; 8];
    comm.send(rank, 3, &[7u16, 8, 9]).unwrap();
    let status = comm.recv_into(rank, 3, &mut buffer).unwrap();
    assert_eq!((status.bytes, &buffer[..4]), (6, &[7, 8, 9, 0][..]));
}

fn order_is_kept_whatever_the_size(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let to = (rank + size / 2) % size;
    let from = (rank + size - size / 2) % size;
    for round in 0..3 * LENGTHS.len() {
        comm.send(to, 0, &pattern(round, LENGTHS[round % LENGTHS.len()])).unwrap();
    }
    for round in 0..3 * LENGTHS.len() {
        let (got, _) = comm.recv::<u32>(from, TagSel::Any).unwrap();
        assert_eq!(got, pattern(round, LENGTHS[round % LENGTHS.len()]), "message {round} overtook another");
    }
}

fn posted_receives(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    // Posted before anything was sent; the second of a kind gets the second message.
    let first = comm.irecv::<u32>(left, 5).unwrap();
    let second = comm.irecv::<u32>(left, 5).unwrap();
    let other = comm.irecv::<u32>(left, 6).unwrap();
    assert!(first.test().unwrap().is_none() || size > 1);
    comm.barrier().unwrap();
    comm.isend(right, 6, &[60u32]).unwrap().wait();
    comm.isend(right, 5, &[50u32]).unwrap().wait();
    comm.isend(right, 5, &pattern(9, 5000)).unwrap().wait();
    assert_eq!(second.wait().unwrap().0, pattern(9, 5000));
    assert_eq!(first.wait().unwrap().0, [50]);
    assert_eq!(other.wait().unwrap().0, [60]);
    // A cancelled receive takes nothing away from later ones.
    drop(comm.irecv::<u32>(left, 7).unwrap());
    comm.send(right, 7, &[70u32]).unwrap();
    assert_eq!(comm.recv::<u32>(left, 7).unwrap().0, [70]);
    // Whichever comes first.
    let requests = [comm.irecv::<u32>(left, 8).unwrap(), comm.irecv::<u32>(left, 9).unwrap()];
    comm.send(right, 9, &[90u32]).unwrap();
    assert_eq!(wait_any(&requests).unwrap(), 1);
    comm.barrier().unwrap();
    comm.send(right, 8, &[80u32]).unwrap();
    for (request, expected) in requests.into_iter().zip([80, 90]) {
        assert_eq!(request.wait().unwrap().0, [expected]);
    }
}

fn any_source(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    if rank == 0 {
        let mut seen = vec![0; size];
        for _ in 1..size {
            let (got, status) = comm.recv::<u64>(Source::Any, 11).unwrap();
            assert_eq!(got, [status.source as u64 * 3]);
            seen[status.source] += 1;
        }
        assert!(seen[1..].iter().all(|&n| n == 1));
    } else {
        comm.send(0, 11, &[rank as u64 * 3]).unwrap();
    }
    comm.barrier().unwrap();
}

fn collectives(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let root = size - 1;
    for len in [0, 3, 10, 11, 40_000] {
        let mut data = if rank == root { pattern(1, len) } else { vec![1, 2, 3] };
        comm.broadcast(root, &mut data).unwrap();
        assert_eq!(data, pattern(1, len));
        let all = comm.allgather(&pattern(rank, len % 977)).unwrap();
        let expected: Vec<u32> = (0..size).flat_map(|r| pattern(r, len % 977)).collect();
        assert_eq!(all, expected);
        assert_eq!(comm.gather(0, &pattern(rank, len % 977)).unwrap(), (rank == 0).then_some(expected));
    }
    // Parts of different lengths, some empty; longer and shorter ones than those that are joined for
    // everybody.
    for most in [1, 40, 3000, 30_000] {
        let part = |r: usize| pattern(r, most * (r * 37 % 100) * (r % 3) / 200);
        let (all, counts) = comm.allgatherv(&part(rank)).unwrap();
        assert_eq!(counts, (0..size).map(|r| part(r).len()).collect::<Vec<_>>());
        assert_eq!(all, (0..size).flat_map(part).collect::<Vec<_>>());
    }
    let part = |r: usize| pattern(r, (r * 37) % 100 * (r % 3));
    let (all, counts) = comm.allgatherv(&part(rank)).unwrap();
    assert_eq!(counts, (0..size).map(|r| part(r).len()).collect::<Vec<_>>());
    assert_eq!(all, (0..size).flat_map(part).collect::<Vec<_>>());
    let gathered = comm.gatherv(root, &part(rank)).unwrap();
    assert_eq!(gathered.is_some(), rank == root);

    let between = |from: usize, to: usize| pattern(from * 1000 + to, (from * 7 + to * 13) % 50);
    let counts: Vec<usize> = (0..size).map(|to| between(rank, to).len()).collect();
    let data: Vec<u32> = (0..size).flat_map(|to| between(rank, to)).collect();
    let (got, got_counts) = comm.alltoallv(&data, &counts).unwrap();
    assert_eq!(got, (0..size).flat_map(|from| between(from, rank)).collect::<Vec<_>>());
    assert_eq!(got_counts, (0..size).map(|from| between(from, rank).len()).collect::<Vec<_>>());
    exchanges(comm);
    let square = comm.alltoall(&(0..size).map(|to| (rank * size + to) as u64).collect::<Vec<_>>()).unwrap();
    assert_eq!(square, (0..size).map(|from| (from * size + rank) as u64).collect::<Vec<_>>());

    let cut: Vec<usize> = (0..size).map(|r| part(r).len()).collect();
    let whole: Vec<u32> = (0..size).flat_map(part).collect();
    let mine = comm.scatterv(root, (rank == root).then_some((&whole[..], &cut[..]))).unwrap();
    assert_eq!(mine, part(rank));
    let even: Vec<u64> = (0..size as u64 * 2).collect();
    assert_eq!(comm.scatter(0, (rank == 0).then_some(&even[..])).unwrap(), even[2 * rank..2 * rank + 2]);
}

/// Exchanges one after the other into the same memory: long parts, short ones, few, none, and of each a
/// mixture.
fn exchanges(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let mut received = Received::new();
    // The longest part, in words, and one of how many is not empty.
    for (round, (most, of)) in
        [(3000, 1), (3000, 3), (12, 1), (12, 2), (1, 1), (1, 7), (0, 1), (200, 1), (2000, 11), (0, 1), (1, 4)]
            .into_iter()
            .enumerate()
    {
        let between = |from: usize, to: usize| {
            let mixed = (from * 7919 + to * 104_729 + round * 31) % 1009;
            pattern(
                from * 1000 + to + round,
                if mixed.is_multiple_of(of) { most * mixed / 1009 + most.min(1) } else { 0 },
            )
        };
        let parts: Vec<Vec<u32>> = (0..size).map(|to| between(rank, to)).collect();
        comm.alltoallv_into(parts.iter().map(Vec::as_slice), &mut received).unwrap();
        for from in 0..size {
            assert_eq!(received.from(from), between(from, rank), "round {round}, from {from}");
        }
        assert_eq!(received.data(), (0..size).flat_map(|from| between(from, rank)).collect::<Vec<_>>());
        assert!(received.parts().eq((0..size).map(|from| received.from(from))));
        let (data, counts) =
            comm.alltoallv(&parts.concat(), &parts.iter().map(Vec::len).collect::<Vec<_>>()).unwrap();
        assert_eq!((data, counts), received.clone().into_vec());
    }
    // A wrong number of parts is refused at once; parts that are no whole elements where they arrive, after
    // the exchange.
    assert!(comm.alltoallv_into(vec![&[1u32][..]; size + 1], &mut received).is_err());
    assert!(comm.alltoallv_into(vec![&[1u32][..]; size - 1], &mut received).is_err());
    if size > 1 {
        let result = if rank == 0 {
            comm.alltoallv(&vec![1u8; size], &vec![1; size]).map(|_| ())
        } else {
            comm.alltoallv(&vec![1u32; size], &vec![1; size]).map(|_| ())
        };
        let odd = matches!(result, Err(Error::ElementSize { call: "alltoallv", from: 0, bytes: 1, size: 4 }));
        assert!(odd || rank == 0 && result.is_ok(), "{result:?}");
    }
}

/// Composition of maps x → a·x + b does not commute, so the order of combining shows.
fn reductions_are_in_rank_order(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let map = |r: usize| [r as u64 * 2 + 3, r as u64 + 1];
    let compose =
        |f: [u64; 2], g: [u64; 2]| [f[0].wrapping_mul(g[0]), f[0].wrapping_mul(g[1]).wrapping_add(f[1])];
    let prefix = |n: usize| (1..n).fold(map(0), |total, r| compose(total, map(r)));
    assert_eq!(comm.allreduce(&[map(rank)], compose).unwrap(), [prefix(size)]);
    assert_eq!(comm.scan(&[map(rank)], compose).unwrap(), [prefix(rank + 1)]);
    assert_eq!(comm.reduce(0, &[map(rank)], compose).unwrap(), (rank == 0).then_some(vec![prefix(size)]));
    let long: Vec<f64> = (0..5000).map(|i| 1.0 / (i + rank + 1) as f64).collect();
    let total = comm.allreduce(&long, |a, b| a + b).unwrap();
    let expected: Vec<f64> = (0..5000)
        .map(|i| (1..size).fold(1.0 / (i + 1) as f64, |t, r| t + 1.0 / (i + r + 1) as f64))
        .collect();
    assert_eq!(total, expected, "a sum depends on timing");
}

fn values(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let value = |r: usize| (format!("rank {r}"), vec![Some(r); r % 5]);
    let got = comm.broadcast_value(0, (rank == 0).then(|| value(42))).unwrap();
    assert_eq!(got, value(42));
    assert_eq!(comm.allgather_value(&value(rank)).unwrap(), (0..size).map(value).collect::<Vec<_>>());
    assert_eq!(
        comm.gather_value(size / 2, &value(rank)).unwrap(),
        (rank == size / 2).then(|| (0..size).map(value).collect::<Vec<_>>())
    );
    comm.send_value(size - 1 - rank, 13, &value(rank)).unwrap();
    let (got, _) = comm.recv_value::<(String, Vec<Option<usize>>)>(size - 1 - rank, 13).unwrap();
    assert_eq!(got, value(size - 1 - rank));
}

fn split_and_duplicate(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let twin = comm.duplicate().unwrap();
    assert_eq!((twin.rank(), twin.size()), (rank, size));
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    // The same source and tag on two communicators do not mix.
    twin.send(right, 1, &[2u32]).unwrap();
    comm.send(right, 1, &[1u32]).unwrap();
    assert_eq!(comm.recv::<u32>(left, 1).unwrap().0, [1]);
    assert_eq!(twin.recv::<u32>(left, 1).unwrap().0, [2]);
    // Nor do receives of which one is waited for.
    let requests = [comm.irecv::<u32>(left, 2).unwrap(), twin.irecv::<u32>(left, 2).unwrap()];
    twin.send(right, 2, &[4u32]).unwrap();
    assert_eq!(wait_any(&requests).unwrap(), 1);
    comm.barrier().unwrap();
    let [first, second] = requests;
    assert_eq!(second.wait().unwrap().0, [4]);
    comm.send(right, 2, &[3u32]).unwrap();
    assert_eq!(first.wait().unwrap().0, [3]);
    // Three groups, ordered backwards; some rank may be left out.
    for _ in 0..3 {
        let color = (rank % 4 != 3).then_some((rank % 4) as u32);
        let part = comm.split(color, -(rank as i64)).unwrap();
        assert_eq!(part.is_some(), color.is_some());
        if let Some(part) = part {
            let members: Vec<usize> = (0..size).rev().filter(|r| r % 4 == rank % 4).collect();
            assert_eq!(part.size(), members.len());
            assert_eq!(members[part.rank()], rank);
            let all = part.allgather(&[rank as u64]).unwrap();
            assert_eq!(all, members.iter().map(|&m| m as u64).collect::<Vec<_>>());
        }
    }
    twin.barrier().unwrap();
}

fn errors(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    assert!(matches!(comm.send(size, 0, &[0u8]), Err(Error::NoSuchRank { rank, .. }) if rank == size));
    comm.send(rank, 20, &[0u8; 7]).unwrap();
    assert!(matches!(comm.recv::<u32>(rank, 20), Err(Error::ElementSize { bytes: 7, size: 4, .. })));
    // What did not fit is still there, and what is no whole number of elements.
    assert!(matches!(
        comm.recv_into(rank, 20, &mut [0u8; 3]),
        Err(Error::Truncated { bytes: 7, room: 3, .. })
    ));
    let mut untouched = [5u32; 2];
    assert!(matches!(
        comm.recv_into(rank, 20, &mut untouched),
        Err(Error::ElementSize { call: "recv_into", bytes: 7, size: 4, .. })
    ));
    assert_eq!((comm.recv::<u8>(rank, 20).unwrap().0, untouched), (vec![0; 7], [5; 2]));
    assert!(comm.alltoallv(&[0u8; 3], &vec![1; size + 1]).is_err());
    if size > 1 {
        // Different collectives at once: everybody is told, and the next one works.
        let result = if rank == 0 { comm.barrier() } else { comm.scan(&[0u8], |a, _| a).map(|_| ()) };
        assert!(matches!(result, Err(Error::Mismatch { .. })), "{result:?}");
        let result = comm.allreduce(&vec![0u8; 1 + rank], |a, _| a);
        assert!(result.is_err(), "parts of different lengths were combined");
    }
    comm.barrier().unwrap();
}

/// Every rank to every rank, in many sizes, received in an order of its own.
fn many_messages(comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let rounds = (2000 / size).clamp(2, 40);
    let len = |from: usize, to: usize, round: usize| (from * 31 + to * 17 + round * 7919) % 3000;
    for round in 0..rounds {
        for to in 0..size {
            comm.send(to, (round % 3) as u32, &pattern(from_to(rank, to, round), len(rank, to, round)))
                .unwrap();
        }
    }
    for tag in [2, 0, 1] {
        for from in (0..size).map(|i| (i + rank) % size).rev() {
            for round in (0..rounds).filter(|r| r % 3 == tag) {
                let (got, _) = comm.recv::<u32>(from, tag as u32).unwrap();
                assert_eq!(got, pattern(from_to(from, rank, round), len(from, rank, round)));
            }
        }
    }
    comm.barrier().unwrap();
    assert_eq!(comm.iprobe(Source::Any, TagSel::Any).unwrap(), None);
}

fn from_to(from: usize, to: usize, round: usize) -> usize {
    (from * 1009 + to) * 64 + round
}
