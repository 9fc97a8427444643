//! What a collective of all ranks costs masters far beyond this machine (docs/hpc.md, *How far it goes*).
//! Books and frames are the real ones; what a frame costs is measured elsewhere, and a parameter here.
//!
//! `cargo test -p bdrun --lib at_scale -- --nocapture` prints the figures.

use std::time::Duration;

use bdrun_ipc::spread::Spread;
use twox_hash::XxHash3_64;

use super::book::{Book, Effect, Event};
use super::frame::{Entry, Frame};

/// Seconds: to send a frame, to take one, for its way.
#[derive(Clone, Copy)]
struct Costs {
    send: f64,
    take: f64,
    way: f64,
}

/// What masters of this spread tell others at a collective of all ranks, to which each comes with so many
/// bytes: frames of one master, and bytes of each.
fn told(spread: Spread, bytes: usize) -> (usize, usize) {
    let (mut book, mut effects) = (Book::new(spread), vec![]);
    book.handle(Event::AllCame { comm: 0, number: 3 }, &mut effects);
    book.handle(Event::AllLeft { comm: 0, number: 3 }, &mut effects);
    let mut most = 0;
    for effect in &effects {
        let frame = match effect {
            Effect::TellCome { comm, number, members, .. } => {
                let entry = |(member, awaited_by): &(u32, Vec<u32>)| Entry {
                    member: *member,
                    names: [7, 0],
                    len: bytes as u64,
                    head: bytes as u32,
                    awaited_by: awaited_by.clone(),
                };
                let entries: Vec<Entry> = members.iter().map(entry).collect();
                let heads = vec![0; entries.len() * bytes];
                Frame::Come { comm: *comm, number: *number, entries }.encode(&heads)
            }
            Effect::TellLeft { comm, number, .. } => Frame::Left { comm: *comm, number: *number }.encode(&[]),
            other => panic!("{other:?}"),
        };
        most = most.max(frame.len());
    }
    (effects.len(), most)
}

/// When masters, of whom each has come at one of these times, and then tells all others one after the other,
/// know of all; those that are looked at.
fn each_tells_all(come: &[f64], costs: Costs, looked_at: impl Iterator<Item = usize>) -> f64 {
    let n = come.len();
    let knows = |at: usize| {
        let heard = |from: usize| {
            let turn = (at + n - from) % n;
            come[from] + turn as f64 * costs.send + costs.way
        };
        let mut heard: Vec<f64> = (0..n).filter(|&from| from != at).map(heard).collect();
        heard.sort_by(f64::total_cmp);
        // It has told the others before it looks.
        let told = come[at] + (n - 1) as f64 * costs.send;
        heard.into_iter().fold(told, |now, heard| now.max(heard) + costs.take)
    };
    looked_at.map(knows).fold(0.0, f64::max)
}

/// The same if each tells one other what it knows, round after round twice as far away, and waits for one.
fn by_rounds(come: &[f64], costs: Costs) -> f64 {
    let n = come.len();
    let (mut now, mut far) = (come.to_vec(), 1);
    while far < n {
        now = (0..n)
            .map(|at| {
                let heard = now[(at + n - far) % n] + costs.send + costs.way;
                heard.max(now[at] + costs.send) + costs.take
            })
            .collect();
        far *= 2;
    }
    now.into_iter().fold(0.0, f64::max)
}

/// At which times masters come: all within so much.
fn random_times(n: usize, within: Duration) -> Vec<f64> {
    let part = |nth: usize| XxHash3_64::oneshot(&nth.to_le_bytes()) as u32;
    (0..n).map(|nth| f64::from(part(nth)) / f64::from(u32::MAX) * within.as_secs_f64()).collect()
}

/// Measured on two nodes of one machine, and the way through a network of a cluster.
const COSTS: Costs = Costs { send: 1.5e-6, take: 2.5e-6, way: 2e-6 };

#[test]
fn ten_thousand_masters_of_a_hundred_ranks() {
    for nodes in [2, 16, 128, 1000, 10_000] {
        let ranks = 100 * nodes;
        let spreads = [0, nodes / 2, nodes - 1].map(|node| Spread { ranks, nodes, node });
        let (frames, bytes) = told(spreads[0], 8);
        assert!(spreads.into_iter().all(|spread| told(spread, 8) == (frames, bytes)));
        // Who has come and who has left is told to each other node.
        assert_eq!(frames, 2 * (nodes as usize - 1));
        assert!(bytes < 100 * 64, "{bytes} for 100 ranks");
        let come = random_times(nodes as usize, Duration::from_micros(50));
        let step = (nodes as usize / 256).max(1);
        let all = each_tells_all(&come, COSTS, (0..nodes as usize).step_by(step));
        let rounds = by_rounds(&come, COSTS);
        println!(
            "{nodes} masters: {frames} frames of a master, {bytes} bytes at most, known after {:.3} ms; by rounds {:.3} ms",
            1e3 * all,
            1e3 * rounds
        );
        let least = (nodes - 1) as f64 * (COSTS.send + COSTS.take);
        assert!(all >= least && all <= least + 1e-4, "{all}");
        assert!(nodes < 128 || rounds < all / 4.0);
    }
}
