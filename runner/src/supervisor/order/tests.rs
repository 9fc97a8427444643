//! Everything in the order of the ranks, nothing lost, memory bounded.

use super::*;
use proptest::prelude::*;

fn order() -> Order {
    Order::new(Spool::nameless())
}

/// An [`Order`] with somebody who forwards.
struct Rig {
    order: Order,
    forwarded: Vec<u8>,
}

impl Rig {
    fn new() -> Self {
        Self { order: order(), forwarded: Vec::new() }
    }

    fn write(&mut self, rank: u32, bytes: &[u8]) {
        if self.order.is_due(rank) {
            self.forwarded.extend_from_slice(bytes);
        } else {
            self.order.keep(rank, Stream::Stdout, rank.into(), bytes).unwrap();
        }
    }

    fn forward(&mut self, rank: u32) {
        for (_, held) in self.order.take(rank) {
            self.order.play(held, |bytes| self.forwarded.extend_from_slice(bytes)).unwrap();
        }
    }

    fn end(&mut self, rank: u32) {
        for (rank, _) in self.order.ended(rank).unwrap() {
            self.forward(rank);
        }
    }
}

/// What a rank writes: so much of its own byte.
fn text(rank: u32, length: usize) -> Vec<u8> {
    (0..length).map(|at| (rank as u8).wrapping_mul(31).wrapping_add((at / 7) as u8)).collect()
}

#[test]
fn the_file_is_emptied_once_all_is_forwarded() {
    let mut rig = Rig::new();
    let long = text(1, 3 * CHUNK + 5);
    for piece in long.chunks(10_000) {
        rig.write(1, piece);
    }
    rig.order.keep(1, Stream::Stderr, 9, &text(2, CHUNK)).unwrap();
    assert!(rig.order.spool.usage().1 >= 3 * CHUNK as u64);
    assert!(rig.order.memory < CHUNK);
    rig.end(0);
    assert_eq!(rig.forwarded, [long, text(2, CHUNK)].concat());
    assert_eq!((rig.order.spool.usage(), rig.order.memory), ((0, 0), 0));
    assert!(rig.order.is_due(1) && !rig.order.is_due(2));
}

#[test]
fn many_streams_do_not_fill_memory() {
    let mut rig = Rig::new();
    let each = CHUNK / 2;
    let ranks = 1..u32::try_from(2 * MEMORY / each).unwrap();
    // All that a few hundred write at once, a little at a time.
    for begin in (0..each).step_by(1 << 10) {
        for rank in ranks.clone() {
            rig.write(rank, &text(rank, each)[begin..begin + (1 << 10)]);
            assert!(rig.order.memory <= MEMORY + (LEAST + (1 << 10)) * ranks.len());
        }
    }
    assert!(rig.order.memory < ranks.len() * each / 2 + MEMORY / 2, "some of it has gone to the file");
    assert!(rig.order.spool.usage().0 > 0);
    for rank in ranks.clone().rev() {
        rig.end(rank);
    }
    assert!(rig.forwarded.is_empty());
    rig.end(0);
    assert!(rig.forwarded == ranks.flat_map(|rank| text(rank, each)).collect::<Vec<_>>());
}

#[test]
fn a_rank_that_runs_again_is_forgotten_once() {
    let mut rig = Rig::new();
    rig.write(1, &text(1, CHUNK));
    rig.write(2, &text(2, CHUNK));
    for rank in [1, 0] {
        rig.order.forget(rank).unwrap();
    }
    assert!(rig.order.is_due(0) && !rig.order.is_due(1), "neither has ended for good");
    assert_eq!(rig.order.spool.usage().0, CHUNK as u64);
    rig.write(1, b"again ");
    (0..3).for_each(|rank| rig.end(rank));
    assert_eq!(rig.forwarded, [b"again ".to_vec(), text(2, CHUNK)].concat());
}

#[test]
fn a_file_that_cannot_be_written_is_one_error() {
    let full = std::fs::File::options().read(true).write(true).open("/dev/full").unwrap();
    let mut order = Order::new(Spool::new(full));
    let error = order.keep(1, Stream::Stdout, 2, &[0; CHUNK]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(order.keep(2, Stream::Stdout, 4, &[0; CHUNK]).is_ok());
}

proptest! {
    /// Whatever the ranks do in whatever order: what is forwarded is rank 0's, then rank 1's, and so on.
    #[test]
    fn all_in_order(
        writes in proptest::collection::vec((0_u32..5, 0_usize..90_000), 0..25),
        ends in Just((0_u32..5).collect::<Vec<_>>()).prop_shuffle(),
        when in proptest::collection::vec(0_usize..25, 5),
    ) {
        let mut rig = Rig::new();
        let mut expected = vec![Vec::new(); 5];
        let mut when = when;
        when.sort_unstable();
        let mut ended = Vec::new();
        for (step, (rank, length)) in writes.into_iter().enumerate() {
            while ended.len() < 5 && when[ended.len()] <= step {
                rig.end(ends[ended.len()]);
                ended.push(ends[ended.len()]);
            }
            if !ended.contains(&rank) {
                rig.write(rank, &text(rank, length));
                expected[rank as usize].extend(text(rank, length));
            }
        }
        for rank in rig.order.all_due() {
            rig.forward(rank);
        }
        prop_assert!(rig.forwarded == expected.concat());
        prop_assert_eq!((rig.order.memory, rig.order.spool.usage()), (0, (0, 0)));
    }
}
