//! The protocols of the segment under many threads that play ranks. (Processes do the same in the conformance
//! suite.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bdrun_ipc::collective::{Arrival, Coming, Comm, PHASES};
use bdrun_ipc::futex::SharedFutex;
use bdrun_ipc::inbox;
use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::{MAX_COMMS, Segment, Waiting};
use bdrun_ipc::spread::Spread;
use bdrun_ipc::state::Pager;

/// A segment, and mail whose spill file is a memory file too: the kernel treats both alike.
fn job(np: u32, budget: u64, mail_limit: u64) -> (Segment, Mail) {
    let spill = rustix::fs::memfd_create("spill", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    (Segment::create(np, budget, mail_limit, 2).unwrap(), Mail::create(spill).unwrap())
}

fn payload(source: u32, number: u32) -> Vec<u8> {
    // Around the boundary between a node and mail, and some pages long.
    let len = (source * 7919 + number * 131) % 9000;
    (0..len).map(|i| (i ^ source ^ number) as u8).collect()
}

#[test]
fn messages_keep_the_order_of_each_sender_and_leave_nothing() {
    const SENDERS: u32 = 4;
    const EACH: u32 = 2000;
    for mail_limit in [0, 1 << 16, 1 << 30] {
        let (segment, mail) = job(SENDERS + 1, 1 << 30, mail_limit);
        thread::scope(|scope| {
            for source in 1..=SENDERS {
                let (segment, mail) = (&segment, &mail);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let data = payload(source, number);
                        let _ = inbox::push(segment, mail, 0, 3, source, (number, 0), &[&data]).unwrap();
                    }
                });
            }
            let mut next = [0; SENDERS as usize + 1];
            let mut arrived = Vec::new();
            while next.iter().sum::<u32>() < SENDERS * EACH {
                inbox::drain(&segment, 0, &mut arrived).unwrap();
                for message in arrived.drain(..) {
                    let expected = next[message.source as usize];
                    assert_eq!((message.context, message.tag), (3, expected), "overtaken");
                    next[message.source as usize] += 1;
                    let mut data = vec![0; message.len as usize];
                    let (source, tag) = (message.source, message.tag);
                    inbox::take(&segment, &mail, message, &mut data).unwrap();
                    assert_eq!(data, payload(source, tag));
                }
                thread::yield_now();
            }
        });
        assert!(inbox::is_empty(&segment, 0));
        let pool = &segment.header().pool;
        let (sent, spilled) = pool.messages();
        assert!(sent > 0 && (mail_limit > 0 || spilled > sent / 2) && (mail_limit < 1 << 30 || spilled == 0));
        // Only the headers' own memory stays, and what is kept for payloads to come.
        mail.give_spares_back(&segment);
        assert_eq!(pool.free(), (1 << 30) - pool.mail() as i64);
        assert!(pool.mail() <= u64::from(SENDERS * EACH) * 256 + inbox::HEADER_BLOCK, "{}", pool.mail());
        assert!(pool.resident_highest() <= 1 << 30);
    }
}

#[test]
fn collectives_one_after_the_other_never_mix() {
    const RANKS: u32 = 5;
    const ROUNDS: u64 = 3000;
    let (segment, mail) = job(RANKS, 1 << 30, 1 << 20);
    let completed = AtomicU64::new(0);
    thread::scope(|scope| {
        for rank in 0..RANKS {
            let (segment, mail, completed) = (&segment, &mail, &completed);
            scope.spawn(move || {
                let comm = Comm::at(segment, 0).unwrap();
                for number in 0..ROUNDS {
                    let part = payload(rank, number as u32);
                    let part = [&part[..]];
                    let coming = Coming {
                        number,
                        rank,
                        name: 7,
                        awaits: None,
                        awaited_by: &[],
                        combines: false,
                        part: &part,
                    };
                    // Nobody is further ahead of another than there are phases.
                    let arrival = comm.arrive(segment, mail, &coming, &mut |_| ()).unwrap();
                    if arrival == Arrival::Last {
                        let text = number.to_le_bytes();
                        comm.complete(segment, mail, number, Some(Ok(&text))).unwrap();
                        completed.fetch_add(1, Ordering::SeqCst);
                    }
                    while !comm.is_complete(segment, number) {
                        thread::yield_now();
                    }
                    assert_eq!(comm.missing(segment, number), 0);
                    assert_eq!(comm.names_differ(segment, number), None);
                    let mut folded = [0; 8];
                    comm.folded(segment, mail, number, 0, &mut folded).unwrap();
                    assert_eq!(u64::from_le_bytes(folded), number);
                    let other = (rank + number as u32) % RANKS;
                    let mut theirs = vec![0; comm.part_len(segment, number, other)];
                    comm.part(segment, mail, number, other, 0, &mut theirs).unwrap();
                    assert_eq!(theirs, payload(other, number as u32), "round {number}");
                    let past = comm.part(segment, mail, number, other, 1, &mut theirs);
                    assert!(past.is_err() || theirs.is_empty());
                    comm.leave(segment, mail, (number, rank), &mut |_| ()).unwrap();
                }
            });
        }
    });
    assert_eq!(completed.into_inner(), ROUNDS);
    // Every part was freed, or is kept for others to come.
    mail.give_spares_back(&segment);
    assert_eq!(segment.header().pool.free(), 1 << 30);
}

/// Every member comes with its part as soon as it may, waits only for those whose parts it wants, and sleeps
/// until it is woken for that: nothing is mixed up, and nobody sleeps for ever.
#[test]
fn who_wants_the_parts_of_some_waits_for_them_alone() {
    const RANKS: u32 = 6;
    const ROUNDS: u64 = 4000;
    // In round `number` this rank wants those of these: one's, all those before it, two neighbours', all.
    let wants = |number: u64, rank: u32| -> Option<Vec<u32>> {
        let root = (number / 4 % u64::from(RANKS)) as u32;
        match number % 4 {
            0 => Some(if rank == root { vec![] } else { vec![root] }),
            1 => Some((0..rank).collect()),
            2 => Some(vec![(rank + 1) % RANKS, (rank + 5) % RANKS]),
            _ => {
                if rank == root {
                    None
                } else {
                    Some(vec![])
                }
            }
        }
    };
    let (segment, mail) = job(RANKS, 1 << 30, 1 << 20);
    thread::scope(|scope| {
        for rank in 0..RANKS {
            let (segment, mail) = (&segment, &mail);
            scope.spawn(move || {
                let block = segment.rank(rank);
                assert!(block.word.birth());
                let mut wake = |other: u32| _ = segment.rank(other).word.wake(&SharedFutex);
                let sleep = |number: u64, until: &dyn Fn() -> bool| {
                    while !until() {
                        segment.falls_asleep(rank, Waiting::Collective { comm: 0, number });
                        block.word.wait(&SharedFutex, &mut InRam, until);
                        segment.is_awake(rank);
                    }
                };
                for number in 0..ROUNDS {
                    let (mine, part) = (wants(number, rank), payload(rank, number as u32));
                    let by = |other: &u32| wants(number, *other).is_some_and(|wants| wants.contains(&rank));
                    let awaited_by: Vec<u32> = (0..RANKS).filter(by).collect();
                    let awaits = mine.as_ref().map(|mine| mine.len() as u32);
                    let part = [&part[..]];
                    let coming = Coming {
                        number,
                        rank,
                        name: 7,
                        awaits,
                        awaited_by: &awaited_by,
                        combines: false,
                        part: &part,
                    };
                    let arrival = loop {
                        match Comm::WORLD.arrive(segment, mail, &coming, &mut wake).unwrap() {
                            Arrival::TooEarly => sleep(number, &|| Comm::WORLD.is_free(segment, number)),
                            arrival => break arrival,
                        }
                    };
                    if arrival == Arrival::Last {
                        Comm::WORLD.complete(segment, mail, number, None).unwrap();
                        Comm::WORLD.wake_all(segment, number, &mut wake);
                    }
                    sleep(number, &|| Comm::WORLD.is_enough(segment, number, rank));
                    for other in mine.unwrap_or_else(|| (0..RANKS).collect()) {
                        let mut theirs = vec![0; Comm::WORLD.part_len(segment, number, other)];
                        Comm::WORLD.part(segment, mail, number, other, 0, &mut theirs).unwrap();
                        assert_eq!(theirs, payload(other, number as u32), "round {number}");
                    }
                    Comm::WORLD.leave(segment, mail, (number, rank), &mut wake).unwrap();
                }
            });
        }
    });
    mail.give_spares_back(&segment);
    assert_eq!(segment.header().pool.free(), 1 << 30, "every part was freed, or is kept");
}

/// Who waits for nobody gets as far ahead as there are phases, and is woken when it can go on.
#[test]
fn who_is_too_early_is_woken() {
    let (segment, mail) = job(2, 1 << 30, 1 << 20);
    let world = Comm::WORLD;
    let mut woken = vec![];
    let come = |number: u64, rank: u32| {
        let coming = Coming {
            number,
            rank,
            name: 7,
            awaits: Some(0),
            awaited_by: &[],
            combines: false,
            part: &[&[1; 100]],
        };
        let arrival = world.arrive(&segment, &mail, &coming, &mut |_| panic!("nobody waits")).unwrap();
        if arrival == Arrival::Last {
            world.complete(&segment, &mail, number, None).unwrap();
        }
        arrival
    };
    for number in 0..PHASES {
        assert_eq!(come(number, 0), Arrival::Here);
        assert!(world.is_enough(&segment, number, 0));
        assert!(!world.leave(&segment, &mail, (number, 0), &mut |_| panic!("nobody is too early")).unwrap());
    }
    for round in 0..20 {
        let next = PHASES + round;
        assert!(!world.is_free(&segment, next));
        assert_eq!(come(next, 0), Arrival::TooEarly);
        assert_eq!(come(round, 1), Arrival::Last);
        assert!(world.leave(&segment, &mail, (round, 1), &mut |rank| woken.push(rank)).unwrap());
        assert_eq!(std::mem::take(&mut woken), [0], "round {round}");
        assert!(world.is_free(&segment, next));
        assert_eq!(come(next, 0), Arrival::Here);
        assert!(!world.leave(&segment, &mail, (next, 0), &mut |_| panic!("nobody is too early")).unwrap());
    }
}

/// A rank that never leaves RAM.
struct InRam;

impl Pager for InRam {
    fn is_whole(&self) -> bool {
        true
    }
    fn evict(&mut self) {}
    fn restore(&mut self) -> bool {
        true
    }
    fn blocked(&mut self) {}
    fn changed(&mut self) {}
}

#[test]
fn the_pool_is_never_overdrawn() {
    let (segment, _mail) = job(8, 1000, 400);
    let pool = &segment.header().pool;
    thread::scope(|scope| {
        for rank in 0..8u64 {
            scope.spawn(move || {
                for round in 0..20_000u64 {
                    let bytes = (rank * 37 + round * 11) % 300;
                    if round % 3 == 0 {
                        if pool.take_mail(bytes) {
                            assert!(pool.mail() <= 400);
                            pool.give_mail(bytes);
                        }
                    } else if pool.take(bytes) {
                        pool.give(bytes);
                    }
                }
            });
        }
    });
    assert_eq!((pool.free(), pool.mail()), (1000, 0));
    assert!(pool.resident_highest() <= 1000 && pool.resident_highest() > 250);
}

#[test]
fn communicators_come_and_go() {
    let (segment, mail) = job(4, 1 << 20, 1 << 20);
    let mut contexts = std::collections::HashSet::new();
    // Many times more than there are places for.
    for round in 0..5000 {
        let members = [round % 4, (round + 1) % 4];
        let comm = Comm::create(&segment, &members).unwrap();
        assert!(contexts.insert(comm.context(&segment)), "a context number was used twice");
        assert_eq!(comm.ranks(&segment).collect::<Vec<_>>(), members);
        comm.release(&segment, &mail, members[0]).unwrap();
        comm.release(&segment, &mail, members[0]).unwrap();
    }
    let held: Vec<Comm> = std::iter::from_fn(|| Comm::create(&segment, &[0]).ok()).collect();
    assert_eq!(held.len(), MAX_COMMS as usize - 1, "the table's size is the limit");
    assert!(Comm::at(&segment, MAX_COMMS).is_err());
}

#[test]
fn pages_of_messages_are_used_again_while_memory_is_ample_and_given_back_when_it_is_wanted() {
    const LEN: usize = 300 << 10;
    let (segment, mail) = job(1, 64 << 20, 32 << 20);
    let pool = &segment.header().pool;
    let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
    let mut into = vec![0; LEN];
    let mut pass = |bytes: usize| {
        let place = mail.put(&segment, &[&data[..bytes / 3], &data[bytes / 3..bytes]]).unwrap();
        let held = pool.mail();
        mail.get(&segment, &place, 0, &mut into[..bytes]).unwrap();
        assert_eq!(into[..bytes], data[..bytes]);
        mail.release(&segment, &place);
        held
    };
    let held = pass(LEN);
    assert_eq!(pool.mail(), held, "given back at once");
    // Smaller ones fit into it, in pieces; then they are too many.
    for bytes in [LEN, LEN / 2, LEN / 3, LEN / 2] {
        assert!(pass(bytes) <= 2 * held);
    }
    pool.wants.store(1, Ordering::SeqCst);
    pass(LEN);
    pool.wants.store(0, Ordering::SeqCst);
    assert!(mail.give_spares_back(&segment));
    assert!(!mail.give_spares_back(&segment));
    assert_eq!((pool.mail(), pool.free()), (0, 64 << 20));
    // Little of the budget is free: nothing is kept.
    assert!(pool.take(40 << 20));
    pass(LEN);
    assert_eq!(pool.mail(), 0);
    // What is kept is found for a message that has no other room.
    pool.give(40 << 20);
    pool.set_mail_limit(2 * LEN as u64);
    pass(LEN);
    assert!(pool.mail() > 0);
    let large = vec![7u8; 2 * LEN];
    let place = mail.put(&segment, &[&large]).unwrap();
    assert_eq!(pool.messages().1, 0, "written to scratch");
    mail.release(&segment, &place);
}

#[test]
fn a_folded_result_that_finds_no_room_is_missed_by_everybody() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let (segment, mail) = (Segment::create(2, 1 << 20, 0, 2).unwrap(), Mail::create(full.into()).unwrap());
    let world = Comm::WORLD;
    for (rank, expected) in [(0, Arrival::Here), (1, Arrival::Last)] {
        let coming = Coming {
            number: 0,
            rank,
            name: 1,
            awaits: None,
            awaited_by: &[],
            combines: false,
            part: &[b"small"],
        };
        assert_eq!(world.arrive(&segment, &mail, &coming, &mut |_| ()).unwrap(), expected);
    }
    let stored = world.complete(&segment, &mail, 0, Some(Ok(&[0; 1000])));
    assert!(matches!(stored, Err(bdrun_ipc::Error::ScratchFull { bytes: 1000 })));
    assert!(world.is_complete(&segment, 0) && world.fold_failed(&segment, 0));
}

/// Of several nodes each has numbers of its own, and the limit that is named is its.
#[test]
fn how_many_communicators_there_may_be_is_said_of_whom_it_is() {
    for (spread, of_whom) in [
        (Spread { ranks: 4, nodes: 1, node: 0 }, "too many communicators at one time (at most 1024)"),
        (
            Spread { ranks: 4, nodes: 3, node: 0 },
            "too many communicators made on this node at one time (at most 341)",
        ),
        (
            Spread { ranks: 4, nodes: 4, node: 3 },
            "too many communicators made on this node at one time (at most 255)",
        ),
    ] {
        let segment = Segment::create_spread(spread, 1 << 20, 1 << 20, 2).unwrap();
        let first = spread.first(spread.node);
        let mut made = 0;
        let error = loop {
            match Comm::create(&segment, &[first]) {
                Ok(_) => made += 1,
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(error, of_whom);
        // With the world, where all are this node's.
        let all = made + u32::from(spread.nodes == 1);
        assert!(error.contains(&format!("at most {all})")), "{made} could be made: {error}");
    }
}
