use super::*;
use rustix::fs::{MemfdFlags, memfd_create};

/// Three messages from rank 1 lie in the inbox of rank 0.
fn with_three() -> (Segment, Mail) {
    let segment = Segment::create(2, 1 << 24, 1 << 20, 2).unwrap();
    let mail = Mail::create(memfd_create("spill", MemfdFlags::CLOEXEC).unwrap()).unwrap();
    for tag in 0..3 {
        push(&segment, &mail, 0, 7, 1, (tag, 5), &[b"wh", b"ole"]).unwrap();
    }
    (segment, mail)
}

fn is_damaged(segment: &Segment) -> bool {
    let mut out = vec![];
    let drained = drain(segment, 0, &mut out);
    assert!(out.is_empty(), "{out:?}");
    matches!(drained, Err(Error::Damaged(text)) if text.contains("inbox of rank 0"))
}

/// No word that another process leaves in an inbox makes a rank compute an index from it, or panic: it is
/// told.
#[test]
fn a_damaged_inbox_is_told() {
    let past = u64::from(MAX_NODES) + 1;
    // The low halves are 0 (nothing could be taken off it), in range, out of range; a node that was never
    // used.
    let words = [1 << 32, 1 << 63, 1 << 32 | 1, past, u64::from(u32::MAX), u64::MAX, 4, u64::from(MAX_NODES)];
    for word in words {
        let (segment, _mail) = with_three();
        segment.rank(0).inbox.store(word, SeqCst);
        assert!(is_damaged(&segment), "{word:#x} at the top");
        // The same further down.
        let (segment, _mail) = with_three();
        Node::at(&segment, 1).next().store(word, SeqCst);
        assert!(is_damaged(&segment), "{word:#x} below");
        assert!(is_empty(&segment, 0));
    }
}

/// Nor does a list that leads back into itself, or a length that nothing has, take all memory.
#[test]
fn a_list_without_end_ends() {
    for to in 1..=3 {
        let (segment, _mail) = with_three();
        Node::at(&segment, 0).next().store(to, SeqCst);
        assert!(is_damaged(&segment), "back to {to}");
    }
    let (segment, _mail) = with_three();
    Node::at(&segment, 2).words[3].store(MOST_BYTES + 1, SeqCst);
    assert!(is_damaged(&segment));
}

#[test]
fn what_is_put_back_is_there_again() {
    let (segment, mail) = with_three();
    let mut out = vec![];
    drain(&segment, 0, &mut out).unwrap();
    let first = out.remove(0);
    out.into_iter().for_each(|message| put_back(&segment, &mail, 0, message));
    free(&segment, &mail, first);
    let mut left = vec![];
    drain(&segment, 0, &mut left).unwrap();
    assert_eq!(left.iter().map(|m| m.tag).collect::<Vec<_>>(), [1, 2]);
    assert!(is_empty(&segment, 0));
    let mut bytes = [0; 5];
    take(&segment, &mail, left.remove(0), &mut bytes).unwrap();
    assert_eq!(&bytes, b"whole");
}

#[test]
fn a_whole_inbox_is_taken_in_order() {
    let (segment, mail) = with_three();
    let mut out = vec![];
    drain(&segment, 0, &mut out).unwrap();
    assert_eq!(
        out.iter().map(|m| (m.context, m.source, m.tag, m.note)).collect::<Vec<_>>(),
        [(7, 1, 0, 5), (7, 1, 1, 5), (7, 1, 2, 5)]
    );
    for message in out {
        let mut bytes = [0; 5];
        take(&segment, &mail, message, &mut bytes).unwrap();
        assert_eq!(&bytes, b"whole");
    }
}

/// One that the gateway was sent in pieces lies in the mail, however short it is.
#[test]
fn a_short_one_that_lies_in_the_mail_is_whole_and_leaves_nothing_there() {
    for mail_limit in [1 << 20, 0] {
        let segment = Segment::create(2, 1 << 24, mail_limit, 2).unwrap();
        let mail = Mail::create(memfd_create("spill", MemfdFlags::CLOEXEC).unwrap()).unwrap();
        let take_one = |len: usize| {
            let mut out = vec![];
            drain(&segment, 0, &mut out).unwrap();
            assert_eq!((out.len(), out[0].len), (1, len as u64));
            let mut bytes = vec![0; len];
            take(&segment, &mail, out.remove(0), &mut bytes).unwrap();
            bytes
        };
        // What the next node holds of another message.
        push(&segment, &mail, 0, 7, 1, (0, 0), &[&[9; INLINE_BYTES]]).unwrap();
        assert_eq!(take_one(INLINE_BYTES), [9; INLINE_BYTES]);
        for len in [1, 100, INLINE_BYTES, INLINE_BYTES + 1] {
            let place = mail.reserve(&segment, len as u64);
            mail.write(&segment, &place, 0, &[&vec![1; len]]).unwrap();
            push_placed(&segment, &mail, 0, [7, 1, 0, 0], place).unwrap();
            assert_eq!(take_one(len), vec![1; len]);
        }
        mail.give_spares_back(&segment);
        let pool = &segment.header().pool;
        assert_eq!(pool.mail(), HEADER_BLOCK, "what is left are headers");
        assert_eq!(pool.free(), (1 << 24) - HEADER_BLOCK as i64);
        let sent = 2 * INLINE_BYTES as u64 + 1 + 100 + INLINE_BYTES as u64 + 1;
        assert_eq!(pool.messages().0, sent, "each is counted once");
    }
}
