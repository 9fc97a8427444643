//! The same where ranks are dealt out: who is lost, and to whom that is said.

use std::time::Instant;

use super::*;
use crate::nodes::frame::Word;
use crate::nodes::gateway::lease_clock;

/// How long masters may be silent so that it is soon over.
const SHORT: Duration = Duration::from_millis(300);

/// One of three masters, as the others see it.
struct OfThree {
    /// As the first of them does.
    by: Second,
    other: Other,
    /// Whom its transport cannot reach, until that was told.
    cut_off: Arc<Mutex<Option<u32>>>,
}

impl OfThree {
    fn begin(node: u32, silence: Duration) -> Self {
        Self::with_times(node, silence, FAREWELL)
    }

    fn with_times(node: u32, silence: Duration, farewell: Duration) -> Self {
        let mut all = connected(3);
        let own = all.remove(node as usize);
        let (other, first) = (Other::by(all.remove(1)), all.remove(0));
        let cut_off = Arc::<Mutex<Option<u32>>>::default();
        let own = Held { inner: own, goes: Arc::default(), cut_off: cut_off.clone() };
        let dealing = |gateway: Gateway<Held>| gateway.with_times(Some(silence), farewell).dealing(true);
        Self { by: Second::by(own, first, dealing, |told| told), other, cut_off }
    }

    /// Its transport cannot reach this node, and has said so.
    fn cut_off(&self, node: u32) {
        *self.cut_off.lock().unwrap() = Some(node);
        until(|| self.cut_off.lock().unwrap().is_none().then_some(()));
    }

    /// The other says this.
    fn send_of_other(&mut self, frame: &Frame) {
        self.other.send(self.by.node, frame, &[]);
    }

    /// It leaves, and the other says its last word too.
    fn leave(mut self) {
        self.by.orders.send(Order::Last).unwrap();
        self.other.hears_until(&[Frame::Last]);
        self.send_of_other(&Frame::Last);
        self.by.has_gone();
    }

    /// It leaves, and the others are silent.
    fn leave_alone(self) {
        self.by.orders.send(Order::Last).unwrap();
        self.by.has_gone();
    }
}

fn end(code: u8) -> End {
    End { code, why: "it failed".into(), has_grace: true }
}

/// Where ranks are dealt out the first goes on without one that is silent, tells it so and hears nothing more
/// of it; how long ago one was heard it says.
#[test]
fn the_first_goes_on_without_who_is_silent() {
    let mut first = OfThree::begin(0, SHORT);
    first.by.orders.send(Order::Say(1, Word::Yours(vec![5]))).unwrap();
    first.by.says(&[Frame::Said(Word::Yours(vec![5]))]);
    // From its first word on it is not to be silent for long: both come together.
    let waits = first.cut_off.lock().unwrap();
    first.by.send(&Frame::Beat(77));
    first.by.send(&Frame::Said(Word::Back(vec![3])));
    drop(waits);
    first.by.says(&[Frame::Heard(77)]);
    assert_eq!(first.by.tells(), Told::Said(1, Word::Back(vec![3])));
    assert!(matches!(first.by.tells(), Told::Lost(1, _)));
    let said = first.by.says_such(|frame| match frame {
        Frame::End(end) => Some(end.why),
        _ => None,
    });
    assert!(said.contains("others run its parts"), "{said}");
    first.by.send(&Frame::Said(Word::Back(vec![5])));
    first.by.orders.send(Order::Say(1, Word::Yours(vec![7]))).unwrap();
    first.by.orders.send(Order::Bye(vec![])).unwrap();
    first.send_of_other(&Frame::Bye);
    assert_eq!(first.by.tells(), Told::Over(vec![]), "what it says now counts no more");
    first.leave_alone();
}

/// A master that the first has not heard for a while begins nothing: what it was given others may run.
#[test]
fn who_is_not_heard_begins_nothing() {
    let mut second = Second::of(1, |gateway| gateway.dealing(true), |told| told);
    // At first it takes itself to be.
    until(|| second.shared.forget_heard().then_some(()));
    let then = second.says_such(|frame| match frame {
        Frame::Beat(then) => Some(then),
        _ => None,
    });
    assert!((1..=lease_clock()).contains(&then));
    // Of long ago: as if it had been under way since.
    second.send(&Frame::Heard(1));
    second.send(&Frame::Said(Word::Yours(vec![5])));
    assert_eq!(second.tells(), Told::Said(0, Word::Yours(vec![5])));
    assert!(!second.shared.is_heard());
    until(|| {
        second.send(&Frame::Heard(lease_clock()));
        second.shared.is_heard().then_some(())
    });
    second.orders.send(Order::Bye(vec![])).unwrap();
    second.send(&Frame::Bye);
    assert_eq!(second.tells(), Told::Over(vec![]));
    second.orders.send(Order::Last).unwrap();
    second.says(&[Frame::Last]);
    second.leave();
}

/// One that cannot be reached may be there, and begin what it was given as long as it may: others are not
/// given that before.
#[test]
fn who_is_cut_off_is_lost_only_when_its_lease_is_over() {
    let mut first = OfThree::begin(0, HOUR);
    first.by.send(&Frame::Beat(77));
    first.by.says(&[Frame::Heard(77)]);
    first.cut_off(1);
    // It is not heard any more, nor is anything said to it.
    first.by.send(&Frame::Said(Word::Back(vec![3])));
    first.by.orders.send(Order::Say(1, Word::Yours(vec![5]))).unwrap();
    first.by.orders.send(Order::Say(2, Word::Yours(vec![6]))).unwrap();
    first.other.hears_until(&[Frame::Said(Word::Yours(vec![6]))]);
    first.send_of_other(&Frame::Said(Word::Back(vec![4])));
    assert_eq!(first.by.tells(), Told::Said(2, Word::Back(vec![4])), "nothing of node 1");
    while let Some(frame) = first.by.first.hears() {
        assert!(matches!(frame, Frame::Beat(_)), "{frame:?}");
    }
    first.by.orders.send(Order::Bye(vec![])).unwrap();
    first.send_of_other(&Frame::Bye);
    assert_eq!(first.by.tells(), Told::Over(vec![]));
    // Others would wait for it in MPI, where this one does not come.
    first.by.orders.send(Order::Last).unwrap();
    assert_eq!(first.other.hears_until(&[Frame::Last])[..], [Frame::Bye, Frame::Lost(1), Frame::Last]);
    first.send_of_other(&Frame::Last);
    first.by.has_gone();
}

#[test]
fn who_is_cut_off_is_told_once_with_the_reason() {
    let mut first = OfThree::begin(0, SHORT);
    let begun = Instant::now();
    first.cut_off(1);
    // Also if it has not begun, of which more time would be expected.
    assert_eq!(first.by.tells(), Told::Lost(1, "it is cut off".into()));
    assert!(begun.elapsed() >= SHORT / 4 * 3, "{:?}", begun.elapsed());
    assert_eq!(first.other.hears_until(&[Frame::Lost(1)]), [Frame::Lost(1)], "others are told too");
    first.cut_off(1);
    first.by.orders.send(Order::Bye(vec![])).unwrap();
    first.send_of_other(&Frame::Bye);
    assert_eq!(first.by.tells(), Told::Over(vec![]));
    first.leave_alone();
}

/// Why the job ends is said to the first alone, which says it to all others: one that the first has lost
/// ends nobody.
#[test]
fn that_it_ends_is_told_by_the_first() {
    let mut first = OfThree::begin(0, HOUR);
    first.by.send(&Frame::End(end(7)));
    assert_eq!(first.other.hears_until(&[Frame::End(end(7))]), [Frame::End(end(7))]);
    assert_eq!(first.by.tells(), Told::Ended(1, end(7)));
    first.by.orders.send(Order::Bye(vec![])).unwrap();
    assert_eq!(first.by.says(&[Frame::Bye]), [Frame::Bye], "it has said that itself");
    first.by.send(&Frame::Bye);
    first.send_of_other(&Frame::Bye);
    assert_eq!(first.by.tells(), Told::Over(vec![]));
    first.by.send(&Frame::Last);
    first.leave();

    let mut third = OfThree::begin(2, HOUR);
    third.by.orders.send(Order::End(end(9))).unwrap();
    third.by.orders.send(Order::Bye(vec![])).unwrap();
    assert_eq!(third.by.says(&[Frame::Bye]), [Frame::End(end(9)), Frame::Account, Frame::Bye]);
    assert_eq!(third.other.hears_until(&[Frame::Bye]), [Frame::Bye]);
    // Node 0 passes on what another has said.
    third.by.send(&Frame::End(end(7)));
    assert_eq!(third.by.tells(), Told::Ended(0, end(7)));
    third.by.send(&Frame::Bye);
    third.send_of_other(&Frame::Bye);
    assert_eq!(third.by.tells(), Told::Over(vec![]));
    third.by.send(&Frame::Last);
    third.leave();
}

/// The first passes on that it ends, and has said all: who knows why may still be at its last words, and to
/// leave before would take them from it.
#[test]
fn who_knows_why_it_ends_is_waited_for_by_all() {
    let mut third = OfThree::with_times(2, HOUR, SHORT);
    third.by.send(&Frame::End(end(7)));
    assert_eq!(third.by.tells(), Told::Ended(0, end(7)));
    third.by.orders.send(Order::Bye(vec![])).unwrap();
    third.by.send(&Frame::Bye);
    third.by.orders.send(Order::Last).unwrap();
    third.by.says(&[Frame::Last]);
    third.by.send(&Frame::Last);
    std::thread::sleep(SHORT);
    assert!(!third.by.gateway.is_finished());
    third.send_of_other(&Frame::Bye);
    third.send_of_other(&Frame::Last);
    third.by.has_gone();
}

/// One that stands still for a while may be lost to another, but not to the first: then it is not lost.
#[test]
fn others_than_the_first_lose_nobody_for_good() {
    let mut third = OfThree::begin(2, SHORT);
    third.send_of_other(&BEAT);
    std::thread::sleep(3 * SHORT);
    third.send_of_other(&Frame::Said(Word::Back(vec![5])));
    assert_eq!(third.by.tells(), Told::Said(1, Word::Back(vec![5])));
    // At the end it is not waited for while it is silent.
    third.by.orders.send(Order::Bye(vec![])).unwrap();
    third.by.send(&Frame::Bye);
    until(|| third.by.told.try_iter().find(|told| *told == Told::Over(vec![])));
    third.leave_alone();
}

/// Else some would wait in MPI for one that others do not wait for.
#[test]
fn whom_the_first_has_lost_all_have_lost() {
    let mut third = OfThree::begin(2, HOUR);
    third.send_of_other(&Frame::Bye);
    third.send_of_other(&Frame::Last);
    third.send_of_other(&Frame::Said(Word::Back(vec![5])));
    assert_eq!(third.by.tells(), Told::Said(1, Word::Back(vec![5])));
    third.by.send(&Frame::Lost(1));
    third.by.send(&Frame::Said(Word::Yours(vec![6])));
    assert_eq!(third.by.tells(), Told::Said(0, Word::Yours(vec![6])));
    third.send_of_other(&Frame::Said(Word::Back(vec![7])));
    third.by.orders.send(Order::Bye(vec![])).unwrap();
    third.by.send(&Frame::Bye);
    assert_eq!(third.by.tells(), Told::Over(vec![]));
    third.by.orders.send(Order::Last).unwrap();
    third.by.says(&[Frame::Last]);
    third.by.send(&Frame::Last);
    until(|| third.by.gateway.is_finished().then_some(()));
    assert!(!third.by.shared.is_finishing(), "it does not wait in MPI");
    while let Some(frame) = third.other.hears() {
        assert!(matches!(frame, Frame::Beat(_)), "{frame:?}");
    }
    third.by.has_gone();
}

/// The first has ended without this one, to which nobody would say anything any more.
#[test]
fn who_is_left_by_the_first_is_told() {
    let mut second = Second::of(1, |gateway| gateway.dealing(true), |told| told);
    second.send(&Frame::Bye);
    second.send(&Frame::Last);
    let Told::Broken(error) = second.tells() else { panic!("told something else") };
    assert_eq!(error.to_string(), "the master of node 0 has left");
    second.orders.send(Order::Bye(vec![])).unwrap();
    assert_eq!(second.tells(), Told::Over(vec![]));
    second.orders.send(Order::Last).unwrap();
    second.has_gone();
}

/// One that has left runs nothing more of what it has, whatever made it leave.
#[test]
fn who_leaves_the_first_too_early_is_lost() {
    let mut first = Second::of(0, |gateway| gateway.dealing(true), |told| told);
    first.send(&Frame::Bye);
    first.send(&Frame::Last);
    assert_eq!(first.tells(), Told::Lost(1, "the master of node 1 has left".into()));
    first.orders.send(Order::Bye(vec![])).unwrap();
    assert_eq!(first.tells(), Told::Over(vec![]));
    first.orders.send(Order::Last).unwrap();
    first.has_gone();

    // In a job that has failed nobody is waited for for ever: it is still told how that ends.
    let mut first = Second::of(0, |gateway| gateway.dealing(true), |told| told);
    first.orders.send(Order::End(end(7))).unwrap();
    first.says(&[Frame::End(end(7))]);
    first.send(&Frame::Bye);
    first.send(&Frame::Last);
    first.orders.send(Order::Bye(vec![])).unwrap();
    first.says(&[Frame::Bye]);
    assert_eq!(first.tells(), Told::Over(vec![]));
    first.orders.send(Order::Last).unwrap();
    first.says(&[Frame::Last]);
    first.has_gone();
}
