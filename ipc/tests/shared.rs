//! The protocols of the segment under many threads that play ranks. (Processes do the same in the conformance
//! suite.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bdrun_ipc::collective::Comm;
use bdrun_ipc::inbox;
use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::{MAX_COMMS, Segment};

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
                        let _ = inbox::push(segment, mail, 0, 3, source, number, &data).unwrap();
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
        // Only the headers' own memory stays.
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
                    let arrival = comm.arrive(segment, mail, number, rank, 7, &[&part]).unwrap();
                    if arrival.last {
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
                    comm.leave(segment, mail, number);
                }
            });
        }
    });
    assert_eq!(completed.into_inner(), ROUNDS);
    // Every part was freed.
    assert_eq!(segment.header().pool.free(), 1 << 30);
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
    let (segment, _mail) = job(4, 1 << 20, 1 << 20);
    let mut contexts = std::collections::HashSet::new();
    // Many times more than there are places for.
    for round in 0..5000 {
        let members = [round % 4, (round + 1) % 4];
        let comm = Comm::create(&segment, &members).unwrap();
        assert!(contexts.insert(comm.context(&segment)), "a context number was used twice");
        assert_eq!(comm.ranks(&segment).collect::<Vec<_>>(), members);
        comm.release(&segment);
        comm.release(&segment);
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
        mail.get(&place, 0, &mut into[..bytes]).unwrap();
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
    assert!(!world.arrive(&segment, &mail, 0, 0, 1, &[b"small"]).unwrap().last);
    assert!(world.arrive(&segment, &mail, 0, 1, 1, &[b"small"]).unwrap().last);
    let stored = world.complete(&segment, &mail, 0, Some(Ok(&[0; 1000])));
    assert!(matches!(stored, Err(bdrun_ipc::Error::ScratchFull { bytes: 1000 })));
    assert!(world.is_complete(&segment, 0) && world.fold_failed(&segment, 0));
}
