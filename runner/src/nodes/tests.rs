//! Books that tell each other in random order, and gateways in threads.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use bdrun_ipc::collective::{Arrival, Coming, Comm, PHASES};
use bdrun_ipc::far::{self, Notice, Range};
use bdrun_ipc::inbox;
use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::{Segment, Waiting};
use bdrun_ipc::spread::Spread;
use nix::sys::memfd::{MFdFlags, memfd_create};
use proptest::prelude::*;

use super::book::{Book, Effect, Event};
use super::gateway::{Gateway, Order, Told};
use super::transport::threads::connected;

/// Nodes whose books tell each other. What is on its way arrives in any order, but for each pair of nodes in
/// that in which it was sent.
struct Books {
    spread: Spread,
    books: Vec<Book>,
    on_their_way: BTreeMap<(u32, u32), VecDeque<Event>>,
    /// Which communicator a number stands for on a node, counted over all.
    open: HashMap<(u32, u32), u64>,
    made: u64,
    /// Numbers that the node that made them may use.
    free: Vec<(u32, u32)>,
    answered: HashSet<u32>,
    /// Of node, communicator, number and member: how often it was told.
    told: HashMap<(u32, u64, u64, u32), u32>,
}

impl Books {
    fn new(nodes: u32) -> Self {
        let spread = Spread { ranks: 3 * nodes, nodes, node: 0 };
        let books = (0..nodes).map(|node| Book::new(Spread { node, ..spread })).collect();
        let free = (0..nodes).map(|node| (node, 1 + node)).collect();
        Self {
            spread,
            books,
            on_their_way: BTreeMap::new(),
            open: (0..nodes).map(|node| ((node, 0), 0)).collect(),
            made: 0,
            free,
            answered: HashSet::new(),
            told: HashMap::new(),
        }
    }

    fn handle(&mut self, node: u32, event: Event) {
        let mut effects = vec![];
        self.books[node as usize].handle(event, &mut effects);
        for effect in effects {
            let mut send = |to: u32, event: Event| {
                self.on_their_way.entry((node, to)).or_default().push_back(event);
            };
            match effect {
                Effect::TellOpen { node: to, comm, asker } => {
                    let members = (0..self.spread.ranks).collect();
                    send(to, Event::Open { node, comm, context: 7, members, asker });
                }
                Effect::Answer(asker) => assert!(self.answered.insert(asker)),
                Effect::Open { node: to, comm, asker, .. } => {
                    // What it was opened for may have waited in the book.
                    let newest = self.open[&(to, comm)];
                    assert!(self.open.insert((node, comm), newest).is_none_or(|before| before < newest));
                    send(to, Event::Opened(asker));
                }
                Effect::TellClosed { node: to, comm } => {
                    send(to, Event::Closed { node, comm });
                }
                Effect::Free(comm) => self.free.push((node, comm)),
                Effect::TellCome { node: to, comm, number, members } => {
                    for (member, _) in members {
                        *self.told.entry((to, self.open[&(node, comm)], number, member)).or_default() += 1;
                    }
                }
                Effect::TellLeft { .. } => {}
            }
        }
    }

    /// Something that is on its way arrives.
    fn arrive(&mut self, nth: usize) -> bool {
        let pairs: Vec<_> =
            self.on_their_way.iter().filter(|(_, all)| !all.is_empty()).map(|(p, _)| *p).collect();
        let Some(&pair) = pairs.get(nth % pairs.len().max(1)) else { return false };
        let Some(event) = self.on_their_way.get_mut(&pair).and_then(VecDeque::pop_front) else {
            return false;
        };
        self.handle(pair.1, event);
        true
    }
}

proptest! {
    /// However late nodes hear of each other: whoever makes a communicator is answered once all have opened
    /// it, each member is told to each node once, and a number is free once, when all have closed it.
    #[test]
    fn communicators_come_and_go_in_any_order(
        nodes in 2u32..5,
        order in proptest::collection::vec(any::<(u8, u16)>(), 40..400),
    ) {
        let mut books = Books::new(nodes);
        let mut asker = 0;
        // Those that were made and answered, and not closed yet: number, which, nodes that have closed it.
        let mut living: Vec<(u32, u64, u32)> = vec![];
        let mut asked: Vec<(u32, u32, u64)> = vec![];
        for (what, nth) in order {
            match what % 4 {
                0 if !books.free.is_empty() => {
                    let (node, comm) = books.free.swap_remove(nth as usize % books.free.len());
                    books.made += 1;
                    books.open.insert((node, comm), books.made);
                    asker += 1;
                    asked.push((asker, comm, books.made));
                    let members = (0..books.spread.ranks).collect();
                    books.handle(node, Event::Made { comm, members, asker });
                }
                1 if !living.is_empty() => {
                    let at = nth as usize % living.len();
                    let (comm, which, closed) = &mut living[at];
                    if *closed == 0 {
                        for node in 0..nodes {
                            let first = books.spread.first(node);
                            let awaited_by = vec![(first + 3) % books.spread.ranks];
                            let came = Event::Came { comm: *comm, number: 4, member: first, awaited_by };
                            books.handle(node, came);
                            books.handle(node, Event::AllCame { comm: *comm, number: 4 });
                            books.handle(node, Event::AllLeft { comm: *comm, number: 4 });
                        }
                        for to in 0..nodes {
                            for member in (0..books.spread.ranks).filter(|&r| books.spread.node_of(r) != to) {
                                prop_assert_eq!(books.told.get(&(to, *which, 4, member)), Some(&1));
                            }
                        }
                    }
                    books.handle(*closed, Event::ClosedHere(*comm));
                    *closed += 1;
                    if *closed == nodes {
                        living.swap_remove(at);
                    }
                }
                _ => _ = books.arrive(nth as usize),
            }
            let answered = std::mem::take(&mut books.answered);
            asked.retain(|&(asker, comm, which)| {
                let is_open = answered.contains(&asker);
                if is_open {
                    assert!((0..nodes).all(|node| books.open[&(node, comm)] == which));
                    living.push((comm, which, 0));
                }
                !is_open
            });
        }
        // To the end: all are closed, and all numbers are free again.
        while books.arrive(0) {}
        for (asker, comm, which) in asked {
            prop_assert!(books.answered.contains(&asker));
            living.push((comm, which, 0));
        }
        for (comm, _, closed) in living {
            (closed..nodes).for_each(|node| books.handle(node, Event::ClosedHere(comm)));
        }
        while books.arrive(0) {}
        prop_assert_eq!(books.free.len(), nodes as usize);
        prop_assert!(books.books.iter().all(Book::is_quiet));
    }
}

/// A node in this process.
#[derive(Clone)]
struct Node {
    segment: Arc<Segment>,
    mail: Arc<Mail>,
}

/// So many ranks on so many nodes, each a thread that does this; what it gives back, by rank.
fn on_nodes<T: Send>(ranks: u32, nodes: u32, budget: u64, run: impl Fn(&Node, u32) -> T + Sync) -> Vec<T> {
    let mut all = vec![];
    for (transport, node) in connected(nodes).into_iter().zip(0..) {
        let spread = Spread { ranks, nodes, node };
        let segment = Arc::new(Segment::create_spread(spread, budget, budget / 2, 8).unwrap());
        let mail = Mail::create(memfd_create(c"spill", MFdFlags::MFD_CLOEXEC).unwrap()).unwrap();
        let [ram, spill] = mail.fds().map(|fd| fd.try_clone_to_owned().unwrap());
        let node = Node { segment: segment.clone(), mail: Arc::new(mail) };
        let (orders, obeyed) = channel();
        let gateway = std::thread::spawn(move || {
            let tell = Box::new(|told| assert!(matches!(told, Told::Over(_)), "{told:?}"));
            let mail = Mail::open_whole(ram, spill);
            Gateway::new(transport, spread, (segment, mail), Arc::default(), tell).run(vec![], &obeyed)
        });
        all.push((node, orders, gateway));
    }
    let done = std::thread::scope(|scope| {
        let started: Vec<_> = (0..ranks)
            .map(|rank| {
                let node = all[Spread { ranks, nodes, node: 0 }.node_of(rank) as usize].0.clone();
                let run = &run;
                scope.spawn(move || run(&node, rank))
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (_, orders, _) in &all {
        orders.send(Order::Bye(vec![])).unwrap();
        orders.send(Order::Last).unwrap();
    }
    for (node, _, gateway) in all {
        gateway.join().unwrap();
        node.mail.give_spares_back(&node.segment);
        let left = node.segment.header().pool.mail() % inbox::HEADER_BLOCK;
        assert_eq!(left, 0, "payloads are left");
    }
    done
}

pub(super) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600_000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("nothing came within a minute");
}

/// Messages of all lengths, of which some are longer than what may be on its way, arrive whole and in order.
#[test]
fn messages_of_any_length_arrive_in_order() {
    const LENGTHS: [usize; 7] = [0, 1, 200, 300, 5000, 600_000, 9_000_000];
    let byte =
        |from: u32, to: u32, nth: usize, at: usize| (from * 31 + to * 7 + nth as u32 * 13 + at as u32) as u8;
    let ranks = 5;
    on_nodes(ranks, 3, 64 << 20, |node, rank| {
        let Node { segment, mail } = node;
        segment.rank(rank).publish(Waiting::Anything);
        for (nth, len) in LENGTHS.into_iter().enumerate() {
            for to in (0..ranks).filter(|&to| to != rank) {
                let data: Vec<u8> = (0..len).map(|at| byte(rank, to, nth, at)).collect();
                inbox::push(segment, mail, to, 3, rank, (nth as u32, 0), &[&data]).unwrap();
                segment.wake(rank, to);
            }
        }
        let mut next = vec![0; ranks as usize];
        for _ in 0..LENGTHS.len() * (ranks as usize - 1) {
            let mut come = vec![];
            until(|| {
                inbox::drain(segment, rank, &mut come).unwrap();
                (!come.is_empty()).then_some(())
            });
            for message in come {
                let (from, nth) = (message.source, message.tag as usize);
                assert_eq!(std::mem::replace(&mut next[from as usize], nth + 1), nth);
                let mut data = vec![0; message.len as usize];
                inbox::take(segment, mail, message, &mut data).unwrap();
                assert_eq!(data.len(), LENGTHS[nth]);
                assert!(data.iter().enumerate().all(|(at, &b)| b == byte(from, rank, nth, at)));
            }
            if next.iter().zip(0..).all(|(&nth, from)| nth == LENGTHS.len() || from == rank) {
                break;
            }
        }
    });
}

/// Collectives in which everybody waits for everybody, again and again; of long parts the beginning is
/// here, and the rest is fetched.
#[test]
fn parts_of_collectives_are_found_wherever_they_lie() {
    let len = |rank: u32, number: u64| (rank as usize * 7919 + number as usize * 104_729) % 30_000;
    let ranks = 5;
    on_nodes(ranks, 2, 64 << 20, |node, rank| {
        let Node { segment, mail } = node;
        let comm = Comm::WORLD;
        for number in 0..3 * PHASES {
            let part: Vec<u8> =
                (0..len(rank, number)).map(|at| (at as u64 + number + u64::from(rank)) as u8).collect();
            let part = [&part[..]];
            let coming =
                Coming { number, rank, name: 9, awaits: None, awaited_by: &[], combines: false, part: &part };
            until(|| match comm.arrive(segment, mail, &coming, &mut |_| ()).unwrap() {
                Arrival::TooEarly => None,
                Arrival::Here => Some(()),
                Arrival::Last => {
                    comm.complete(segment, mail, number, None).unwrap();
                    Some(())
                }
            });
            until(|| comm.is_complete(segment, number).then_some(()));
            for other in 0..ranks {
                let whole = len(other, number);
                assert_eq!(comm.part_len(segment, number, other), whole);
                let mut data = vec![0; whole];
                if comm.is_near(segment, number, other, 0, whole as u64) {
                    comm.part(segment, mail, number, other, 0, &mut data).unwrap();
                } else {
                    let before = segment.answer(rank).count();
                    let cut = whole as u64 / 3;
                    let range = |offset, len| Range { member: other, offset, len };
                    let ranges = vec![range(0, cut), range(cut, whole as u64 - cut)];
                    let wants = Notice::Wants { comm: comm.index(), number, ranges };
                    far::tell(segment, mail, rank, &wants).unwrap();
                    until(|| (segment.answer(rank).count() > before).then_some(()));
                    segment.answer(rank).take(segment, mail, &mut [&mut data]).unwrap();
                }
                let expected = (0..whole).map(|at| (at as u64 + number + u64::from(other)) as u8);
                assert!(data.iter().copied().eq(expected), "rank {rank} of {other}'s in {number}");
            }
            comm.leave(segment, mail, (number, rank), &mut |_| ()).unwrap();
        }
        // Until all have left everywhere, so that nothing is left in the mail.
        let last = 3 * PHASES - 1;
        until(|| comm.is_free(segment, last + PHASES).then_some(()));
    });
}

/// A master that has met all goes on at once: what it says then is no greeting to one that has not.
#[test]
fn what_comes_before_all_have_met_is_kept() {
    use super::frame::{Frame, Hello};
    use super::transport::{Came, Transport};
    use crate::in_use::Owner;
    let (version, host) = ("1".into(), "a".into());
    let [first, second] = [Owner::new(2, 0), Owner::new(3, 0)];
    let hello =
        Hello { protocol: 1, version, ranks: 9, command: 7, parts: 0, machine: 5, host, owner: second };
    let mut nodes = connected(3);
    let mut late = nodes.pop().unwrap();
    let mut slow = nodes.pop().unwrap();
    let mut fast = nodes.pop().unwrap();
    let greeting = std::thread::spawn({
        let hello = hello.clone();
        move || super::greet(&mut slow, &hello).map(|met| (met, slow))
    });
    for to in [1, 2] {
        fast.send(to, Frame::Hello(Hello { owner: first, ..hello.clone() }).encode(&[])).unwrap();
        fast.send(to, Frame::Beat(0).encode(&[])).unwrap();
        fast.send(to, Frame::Left { comm: 0, number: 1 }.encode(&[])).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    late.send(1, Frame::Hello(Hello { machine: 6, ..hello }).encode(&[])).unwrap();
    let (met, _) = greeting.join().unwrap().unwrap();
    assert_eq!((met.on_this_machine, met.first), (2, first));
    let frames = [Frame::Beat(0), Frame::Left { comm: 0, number: 1 }];
    assert_eq!(met.early, frames.map(|frame| (0, Came::Frame(frame.encode(&[])))));
}
