//! A gateway as another master sees it: what it says, and what it tells its own.

mod dealing;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bdrun_ipc::collective::{Coming, Comm};
use bdrun_ipc::far::{self, Range};
use bdrun_ipc::mail::{BLOCK, Mail};
use bdrun_ipc::segment::{Segment, Waiting};
use bdrun_ipc::spread::Spread;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::frame::{End, Frame, Probed};
use super::gateway::{FAREWELL, Gateway, Order, Shared, Told, WINDOW};
use super::tests::until;
use super::transport::threads::{Threads, connected};
use super::transport::{Body, Came, Result, Transport, TransportError};

/// At whatever time.
const BEAT: Frame = Frame::Beat(0);
/// How long masters may be silent so that it is never over.
const HOUR: Duration = Duration::from_secs(3600);

/// A master that the test is.
struct Other {
    carries: Threads,
    /// What has come to it, and was not looked at yet.
    come: VecDeque<Frame>,
}

impl Other {
    fn by(carries: Threads) -> Self {
        Self { carries, come: VecDeque::new() }
    }

    fn send(&mut self, to: u32, frame: &Frame, bytes: &[u8]) {
        self.carries.send(to, frame.encode(bytes)).unwrap();
    }

    /// What was said to it next, if it has come.
    fn hears(&mut self) -> Option<Frame> {
        let mut take = |_, came| {
            let Came::Frame(frame) = came else { panic!("a body") };
            self.come.push_back(Frame::decode(&frame).unwrap().0);
        };
        self.carries.receive(&mut take).unwrap();
        self.come.pop_front()
    }

    /// All that is said to it until one of these.
    fn hears_until(&mut self, last: &[Frame]) -> Vec<Frame> {
        let mut all = vec![];
        while !all.last().is_some_and(|said| last.contains(said)) {
            let frame = match until(|| self.hears()) {
                Frame::Beat(_) => BEAT,
                frame => frame,
            };
            if frame != BEAT || last.contains(&BEAT) {
                all.push(frame);
            }
        }
        all
    }
}

/// The second of two masters, as the first sees it.
struct Second {
    first: Other,
    node: u32,
    orders: Sender<Order>,
    told: Receiver<Told>,
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    gateway: JoinHandle<()>,
}

impl Second {
    fn begin() -> Self {
        Self::of(1, |gateway| gateway, |told| told)
    }

    /// The other way round if it is node 0; with a gateway made such, and what it tells seen before.
    fn of(
        node: u32,
        made: impl FnOnce(Gateway<Threads>) -> Gateway<Threads>,
        seen: impl Fn(Told) -> Told + Send + 'static,
    ) -> Self {
        let mut both = connected(2);
        let (own, first) = (both.remove(node as usize), both.remove(0));
        Self::by(own, first, made, seen)
    }

    /// By this transport, of as many as that says.
    fn by<T: Transport + Send + 'static>(
        own: T,
        first: Threads,
        made: impl FnOnce(Gateway<T>) -> Gateway<T>,
        seen: impl Fn(Told) -> Told + Send + 'static,
    ) -> Self {
        let (node, nodes) = (own.node(), own.nodes());
        let (orders, obeyed) = channel();
        let spread = Spread { ranks: nodes, nodes, node };
        let segment = Arc::new(Segment::create_spread(spread, 8 << 20, 4 << 20, 8).unwrap());
        let mail = Mail::create(memfd_create(c"spill", MFdFlags::MFD_CLOEXEC).unwrap()).unwrap();
        // Scratch that is full.
        let full = std::fs::File::options().read(true).write(true).open("/dev/full").unwrap();
        let mail = Mail::open_whole(mail.fds()[0].try_clone_to_owned().unwrap(), full.into());
        let shared = Arc::<Shared>::default();
        let (tell, told) = channel();
        let tell = Box::new(move |what| tell.send(seen(what)).expect("somebody listens"));
        let gateway = Gateway::new(own, spread, (segment.clone(), mail), shared.clone(), tell);
        // Nobody is lost for being late, unless a test is about that.
        let gateway = made(gateway.with_times(Some(HOUR), FAREWELL));
        let gateway = std::thread::spawn(move || gateway.run(vec![], &obeyed));
        Self { first: Other::by(first), node, orders, told, shared, segment, gateway }
    }

    fn send(&mut self, frame: &Frame) {
        self.first.send(self.node, frame, &[]);
    }

    /// What it tells its main thread next.
    fn tells(&self) -> Told {
        self.told.recv_timeout(Duration::from_secs(60)).expect("it tells something")
    }

    /// It has left.
    fn has_gone(self) {
        until(|| self.gateway.is_finished().then_some(()));
        self.gateway.join().unwrap();
    }

    /// All that it says until one of these.
    fn says(&mut self, last: &[Frame]) -> Vec<Frame> {
        self.first.hears_until(last)
    }

    /// The next frame that is looked for; others are passed over.
    fn says_such<R>(&mut self, such: impl Fn(Frame) -> Option<R>) -> R {
        until(|| self.first.hears().and_then(&such))
    }

    fn leave(mut self) {
        self.send(&Frame::Last);
        self.gateway.join().unwrap();
        self.first.carries.finish();
    }
}

/// A master that leaves has received all that was sent to it, and sends nothing to another that has left:
/// also what it answers when all is over at its own node.
#[test]
fn nothing_is_on_its_way_when_masters_leave() {
    let mut second = Second::begin();
    second.orders.send(Order::Bye(vec![])).unwrap();
    assert_eq!(second.says(&[Frame::Bye]), [Frame::Account, Frame::Bye]);
    // It was asked before the first master heard that.
    second.send(&Frame::Probe(3));
    assert!(second.told.try_recv().is_err(), "it is not over everywhere");
    second.send(&Frame::Bye);
    assert_eq!(second.told.recv().unwrap(), Told::Over(vec![]));
    second.orders.send(Order::Last).unwrap();
    let probed = Frame::Probed(Probed { round: 3, quiet: false, sent: 0, came: 0 });
    assert_eq!(second.says(&[Frame::Last]), [probed, Frame::Last]);
    assert!(!second.gateway.is_finished(), "the first has not said that nothing more comes");
    second.leave();
}

/// Of a job that ends by a failure the master that knows why leaves first: launchers kill all that are left.
#[test]
fn who_only_follows_stays_until_the_reason_is_told() {
    let soon = Duration::from_millis(100);
    let mut second = Second::of(1, |gateway| gateway.with_times(None, soon), |told| told);
    second.send(&Frame::End(End { code: 7, why: "it failed".into(), has_grace: false }));
    assert!(matches!(second.told.recv(), Ok(Told::Ended(0, End { code: 7, .. }))));
    second.orders.send(Order::Bye(vec![])).unwrap();
    second.says(&[Frame::Bye]);
    // The first takes long for its ranks.
    assert_eq!(second.told.recv().unwrap(), Told::Over(vec![]));
    second.orders.send(Order::Last).unwrap();
    second.says(&[Frame::Last]);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!second.gateway.is_finished(), "the first tells it now");
    second.send(&Frame::Bye);
    second.leave();
}

/// A rank that has been woken since the main thread looked at it is not taken for one that waits, however
/// late that looks again.
#[test]
fn who_was_woken_is_not_quiet_until_it_is_looked_at() {
    let mut second = Second::begin();
    let is_quiet = |second: &mut Second, round, came| {
        second.send(&Frame::Probe(round));
        let [yes, no] = [true, false].map(|quiet| Frame::Probed(Probed { round, quiet, sent: 0, came }));
        second.says(&[yes.clone(), no]).last() == Some(&yes)
    };
    second.segment.rank(1).publish(Waiting::Anything);
    assert!(!is_quiet(&mut second, 1, 0), "nobody has looked");
    let seen = second.shared.acted();
    second.shared.set_quiet(Some(seen));
    assert!(is_quiet(&mut second, 2, 0));
    second.send(&Frame::Message { to: 1, what: [0, 0, 5, 0], len: 0, offset: 0, body: 0 });
    assert!(!is_quiet(&mut second, 3, 1), "a message has come");
    second.shared.set_quiet(Some(seen));
    assert!(!is_quiet(&mut second, 4, 1), "it was looked at before that");
    second.shared.set_quiet(Some(second.shared.acted()));
    assert!(is_quiet(&mut second, 5, 1));
    second.shared.set_quiet(None);
    assert!(!is_quiet(&mut second, 6, 1));
    second.shared.set_over();
    assert!(is_quiet(&mut second, 7, 1));
    second.orders.send(Order::Bye(vec![])).unwrap();
    second.orders.send(Order::Last).unwrap();
    second.send(&Frame::Bye);
    second.says(&[Frame::Last]);
    second.leave();
}

/// Ranks elsewhere may wait for each other when all is over at the first node, which asks whether they do.
#[test]
fn a_deadlock_elsewhere_is_told_when_the_first_node_is_over() {
    let mut second = Second::of(0, |gateway| gateway, |told| told);
    second.shared.set_over();
    second.orders.send(Order::Bye(vec![])).unwrap();
    for round in 0..2 {
        second.says(&[Frame::Probe(round)]);
        second.send(&Frame::Probed(Probed { round, quiet: true, sent: 0, came: 0 }));
    }
    second.says(&[Frame::Settled]);
    assert_eq!(second.told.recv().unwrap(), Told::Settled);
    second.send(&Frame::End(End { code: 119, why: "deadlock".into(), has_grace: false }));
    second.send(&Frame::Bye);
    // It ends as it did there.
    assert!(matches!(second.told.recv(), Ok(Told::Ended(1, End { code: 119, .. }))));
    assert_eq!(second.told.recv().unwrap(), Told::Over(vec![]));
    second.orders.send(Order::Last).unwrap();
    second.says(&[Frame::Last]);
    second.leave();
}

/// Others may need something of a master that has said goodbye, and it has to hear how they end: until the
/// last word each looks whether the other is there.
#[test]
fn who_has_said_goodbye_is_still_heard_and_hears() {
    let limit = Some(Duration::from_millis(200));
    let mut second = Second::of(1, |gateway| gateway.with_times(limit, FAREWELL), |told| told);
    second.orders.send(Order::Bye(vec![])).unwrap();
    second.says(&[Frame::Bye]);
    // Its first word: only from now on nothing may be missing for long.
    second.send(&BEAT);
    second.says(&[BEAT]);
    second.says(&[BEAT]);
    assert!(matches!(second.told.recv(), Ok(Told::Broken(TransportError::Broken(_)))));
    // Who is lost is not waited for.
    assert_eq!(second.told.recv().unwrap(), Told::Over(vec![]));
    second.orders.send(Order::Last).unwrap();
    second.says(&[Frame::Last]);
    second.gateway.join().unwrap();
}

/// What goes wrong in a gateway ends the job everywhere, for this reason: it still tells and hears that.
#[test]
fn where_scratch_is_full_the_others_are_told() {
    let mut second = Second::begin();
    let len = 64 << 20;
    let piece = Frame::Message { to: 1, what: [0, 0, 5, 0], len, offset: 0, body: 0 };
    second.first.send(1, &piece, &[7; BLOCK as usize]);
    let full = TransportError::Full { rank: 1, need: BLOCK };
    assert_eq!(second.told.recv().unwrap(), Told::Broken(full));
    it_ends(second);
}

#[test]
fn a_gateway_that_panics_ends_the_job_everywhere() {
    let panics = |told| if told == Told::Settled { panic!("meant to") } else { told };
    let mut second = Second::of(1, |gateway| gateway, panics);
    second.send(&Frame::Settled);
    assert!(matches!(second.told.recv(), Ok(Told::Broken(TransportError::Broken(_)))));
    it_ends(second);
}

/// By a failure of its gateway, which the first is told.
fn it_ends(mut second: Second) {
    let end = End { code: 121, why: "scratch is full".into(), has_grace: false };
    second.orders.send(Order::End(end.clone())).unwrap();
    second.orders.send(Order::Bye(vec![])).unwrap();
    assert!(second.says(&[Frame::Bye]).contains(&Frame::End(end)));
    // What ranks still send does not matter.
    second.send(&Frame::Message { to: 1, what: [0, 0, 5, 0], len: 0, offset: 0, body: 0 });
    second.send(&Frame::Bye);
    assert_eq!(second.told.recv().unwrap(), Told::Over(vec![]));
    second.orders.send(Order::Last).unwrap();
    second.says(&[Frame::Last]);
    second.send(&Frame::Last);
    second.gateway.join().unwrap();
}

/// A transport of which nobody knows what is sent, until it is said.
struct Held {
    inner: Threads,
    goes: Arc<AtomicBool>,
    /// Who cannot be reached, until that was told.
    cut_off: Arc<Mutex<Option<u32>>>,
}

impl Transport for Held {
    fn node(&self) -> u32 {
        self.inner.node()
    }

    fn nodes(&self) -> u32 {
        self.inner.nodes()
    }

    fn send(&mut self, to: u32, frame: Vec<u8>) -> Result<u64> {
        self.inner.send(to, frame)
    }

    unsafe fn send_with(&mut self, to: u32, frame: Vec<u8>, body: Body) -> Result<u64> {
        // SAFETY: the caller's.
        unsafe { self.inner.send_with(to, frame, body) }
    }

    fn sent(&self, to: u32) -> u64 {
        if self.goes.load(SeqCst) { self.inner.sent(to) } else { 0 }
    }

    unsafe fn expect(&mut self, from: u32, into: *mut u8, len: usize) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.inner.expect(from, into, len) }
    }

    fn receive(&mut self, take: &mut dyn FnMut(u32, Came)) -> Result<bool> {
        if let Some(node) = self.cut_off.lock().unwrap().take() {
            return Err(TransportError::Lost { node, why: "it is cut off".into() });
        }
        self.inner.receive(take)
    }

    fn unsent(&self) -> usize {
        self.inner.unsent()
    }

    fn finish(&mut self) {
        self.inner.finish();
    }
}

/// However many ranks ask at a time: answers are copies, of which a few may be on their way.
#[test]
fn who_asks_waits_until_others_have_got_their_answers() {
    const LEN: u64 = far::MOST_WANTED;
    const ASKED: usize = 20;
    let mut both = connected(2);
    let (own, mut first) = (both.remove(1), both.remove(0));
    let goes = Arc::<AtomicBool>::default();
    let own = Held { inner: own, goes: goes.clone(), cut_off: Arc::default() };
    let spread = Spread { ranks: 2, nodes: 2, node: 1 };
    let segment = Arc::new(Segment::create_spread(spread, 8 << 20, 4 << 20, 8).unwrap());
    let mail = Mail::create(memfd_create(c"spill", MFdFlags::MFD_CLOEXEC).unwrap()).unwrap();
    let part = [&vec![7; LEN as usize][..]];
    let come =
        Coming { number: 0, rank: 1, name: 9, awaits: None, awaited_by: &[], combines: false, part: &part };
    Comm::WORLD.arrive(&segment, &mail, &come, &mut |_| ()).unwrap();
    let (orders, obeyed) = channel();
    let gateway = Gateway::new(own, spread, (segment, mail), Arc::default(), Box::new(|_| ()));
    let gateway = gateway.with_times(Some(HOUR), FAREWELL);
    let gateway = std::thread::spawn(move || gateway.run(vec![], &obeyed));
    for _ in 0..ASKED {
        let ranges = vec![Range { member: 1, offset: 0, len: LEN }];
        first.send(1, Frame::Fetch { asker: 0, comm: 0, number: 0, ranges }.encode(&[])).unwrap();
    }
    first.send(1, Frame::Probe(3).encode(&[])).unwrap();
    let mut answers = 0;
    let mut says = |last: &dyn Fn(&Frame, usize) -> bool| {
        until(|| {
            let mut found = false;
            let mut take = |_, came| {
                let Came::Frame(frame) = came else { panic!("a body that nobody expects") };
                let frame = Frame::decode(&frame).unwrap().0;
                answers += usize::from(frame == Frame::Fetched { asker: 0, body: LEN });
                found |= last(&frame, answers);
            };
            first.receive(&mut take).unwrap();
            found.then_some(())
        });
        answers
    };
    let before = says(&|frame, _| matches!(frame, Frame::Probed(probed) if !probed.quiet));
    assert_eq!(before as u64 * LEN, WINDOW, "what may be on its way");
    goes.store(true, SeqCst);
    says(&|_, answers| answers == ASKED);
    drop(orders);
    for frame in [Frame::Bye, Frame::Last] {
        first.send(1, frame.encode(&[])).unwrap();
    }
    gateway.join().unwrap();
}
