//! Message headers and small payloads: per rank a stack of nodes that senders push to and the receiver takes
//! whole and turns round, which keeps the order of each sender (MPI's non-overtaking rule) whatever way a
//! payload went.
//!
//! Nodes come from one sparse pool; as many exist as messages were ever outstanding at once, and that memory
//! is counted against the budget for good. There is no inbox that can be full: a sender waits for nobody, but
//! it waits, once its message is delivered, until there is memory for new nodes (rarely: 256 come at a time
//! and all are used again).

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::lane;
use crate::mail::{Mail, Place};
use crate::pool::MOST_BYTES;
use crate::segment::{MAX_NODES, NODE_BYTES, Segment, Waiting};
use crate::{Error, Result};

/// Bytes of a payload that travel in the node itself.
pub const INLINE_BYTES: usize = NODE_BYTES - HEADER_WORDS * 8;

const HEADER_WORDS: usize = 6;
/// Nodes are paid for in blocks of this many bytes, so that asking for them is rare.
pub const HEADER_BLOCK: u64 = 64 << 10;
const NODES_PER_BLOCK: u64 = HEADER_BLOCK / NODE_BYTES as u64;

/// A message that arrived. It is the right to its node: taken once, it is gone.
///
/// ```compile_fail,E0382
/// use bdrun_ipc::{inbox, mail::Mail, segment::Segment};
/// fn twice(segment: &Segment, mail: &Mail, message: inbox::Arrived, into: &mut [u8]) {
///     let _ = inbox::take(segment, mail, message, into);
///     let _ = inbox::take(segment, mail, message, into);
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Context number of the communicator.
    pub context: u32,
    /// Sender's rank in the communicator.
    pub source: u32,
    /// Tag.
    pub tag: u32,
    /// What the sender's front says of it.
    pub note: u32,
    /// Bytes of the payload.
    pub len: u64,
    /// Where its sender's lane stood, if it has one.
    pub(crate) mark: Option<Mark>,
    held: Held,
}

/// What of a message there is to free.
#[derive(Debug, PartialEq, Eq)]
enum Held {
    /// Its node, and what that says.
    Node(u32),
    /// A payload, of a message that came by a lane: that of which rank, and which one.
    Mail(Place, [u32; 2]),
}

/// A position in a lane to the receiver: what was written before it was sent before the message ([`ring`]).
///
/// [`ring`]: crate::ring
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub lane: u32,
    pub at: u32,
}

impl Mark {
    /// Beside the kind of a place.
    fn to_bits(mark: Option<Self>) -> u64 {
        mark.map_or(0, |mark| u64::from(mark.at) << 32 | u64::from(mark.lane + 1) << 8)
    }

    fn from_bits(word: u64) -> Option<Self> {
        let lane = (word as u32 >> 8).checked_sub(1)?;
        Some(Self { lane, at: (word >> 32) as u32 })
    }
}

impl Arrived {
    /// One that came by a lane, whose payload lies there.
    pub(crate) fn by_lane(
        [context, source, tag, note]: [u32; 4],
        len: u64,
        place: Place,
        lane: [u32; 2],
    ) -> Self {
        Self { context, source, tag, note, len, mark: None, held: Held::Mail(place, lane) }
    }
}

struct Node<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Node<'a> {
    fn at(segment: &'a Segment, index: u32) -> Self {
        Self { words: segment.atomic_slice(segment.node_offset(index), HEADER_WORDS) }
    }

    fn next(&self) -> &AtomicU64 {
        &self.words[0]
    }
}

fn low(word: u64) -> u32 {
    word as u32
}

/// Take a node: a free one, else a fresh one; and bytes that the pool did not have for it.
fn take_node(segment: &Segment) -> Result<(u32, u64)> {
    let header = segment.header();
    let mut top = header.free_nodes.load(SeqCst);
    while low(top) != 0 {
        let index = low(top) - 1;
        if index >= MAX_NODES {
            return Err(Error::Damaged(format!("message node {index} on the free list")));
        }
        let below = u64::from(low(Node::at(segment, index).next().load(SeqCst)));
        let after = ((top >> 32).wrapping_add(1) << 32) | below;
        match header.free_nodes.compare_exchange(top, after, SeqCst, SeqCst) {
            Ok(_) => return Ok((index, 0)),
            Err(now) => top = now,
        }
    }
    let index = header.fresh_nodes.fetch_add(1, SeqCst);
    if index >= MAX_NODES {
        header.fresh_nodes.fetch_sub(1, SeqCst);
        return Err(Error::TooMany { what: "outstanding messages", most: u64::from(MAX_NODES) });
    }
    let unpaid = u64::from(index).is_multiple_of(NODES_PER_BLOCK) && !header.pool.grow_headers(HEADER_BLOCK);
    Ok((index, if unpaid { HEADER_BLOCK } else { 0 }))
}

fn free_node(segment: &Segment, index: u32) {
    let header = segment.header();
    let node = Node::at(segment, index);
    let mut top = header.free_nodes.load(SeqCst);
    loop {
        node.next().store(u64::from(low(top)), SeqCst);
        let after = ((top >> 32).wrapping_add(1) << 32) | u64::from(index + 1);
        match header.free_nodes.compare_exchange(top, after, SeqCst, SeqCst) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

/// Put a message into the inbox of `to` (a rank of the node). The caller then wakes `to` if [`concerns`] says
/// so. `source` is the sender's rank in the communicator; `note` is handed on with the tag. Returns bytes of
/// memory for headers that the pool did not have (mostly 0): the caller finds them before it goes on, see
/// [`crate::pool::Pool::grow_headers`].
pub fn push(
    segment: &Segment,
    mail: &Mail,
    to: u32,
    context: u32,
    source: u32,
    (tag, note): (u32, u32),
    data: &[&[u8]],
) -> Result<u64> {
    push_marked(segment, mail, to, [context, source, tag, note], data, None)
}

/// The same by a process that has a lane there.
pub(crate) fn push_marked(
    segment: &Segment,
    mail: &Mail,
    to: u32,
    [context, source, tag, note]: [u32; 4],
    data: &[&[u8]],
    mark: Option<Mark>,
) -> Result<u64> {
    let len: usize = data.iter().map(|piece| piece.len()).sum();
    let place = place_for(segment, mail, len, data)?;
    let what = [context, source, tag, note];
    let (index, unpaid) = fill_node(segment, mail, what, len as u64, data, place, mark)?;
    if !segment.is_here(to) {
        segment.header().outgoing.fetch_add(len as u64, SeqCst);
    }
    put(segment, &segment.rank(to).inbox, index);
    Ok(unpaid)
}

/// By the gateway: a message that was for another node has left.
pub fn free_sent(segment: &Segment, mail: &Mail, message: Arrived) {
    segment.header().outgoing.fetch_sub(message.len, SeqCst);
    free(segment, mail, message);
}

/// By a rank: do so many bytes wait to leave for other nodes that a message of so many more may as well come
/// later? What lies there long is in no cache any more.
pub fn is_ahead(segment: &Segment, bytes: u64) -> bool {
    const AHEAD: u64 = 2 << 20;
    segment.header().outgoing.load(SeqCst) > bytes.max(AHEAD)
}

/// By the gateway: puts a message whose payload lies in the mail already into the inbox of `to`, as [`push`]
/// does.
pub fn push_placed(segment: &Segment, mail: &Mail, to: u32, what: [u32; 4], place: Place) -> Result<u64> {
    let len = place.len();
    let (index, unpaid) = if len > INLINE_BYTES as u64 {
        fill_node(segment, mail, what, len, &[], place, None)?
    } else {
        // Of one that is so short everybody takes it that the node has it.
        let mut bytes = [0; INLINE_BYTES];
        let bytes = &mut bytes[..len as usize];
        let read = mail.get(segment, &place, 0, bytes);
        mail.release(segment, &place);
        read?;
        fill_node(segment, mail, what, len, &[bytes], Place::default(), None)?
    };
    put(segment, &segment.rank(to).inbox, index);
    Ok(unpaid)
}

/// Where a payload lies that is to be sent: in the mail if it does not fit a node.
fn place_for(segment: &Segment, mail: &Mail, len: usize, data: &[&[u8]]) -> Result<Place> {
    if len > INLINE_BYTES {
        return mail.put(segment, data);
    }
    segment.header().pool.count_message(len as u64, false);
    Ok(Place::default())
}

/// By a rank: a notice to the gateway.
pub(crate) fn push_notice(segment: &Segment, mail: &Mail, rank: u32, data: &[u8]) -> Result<u64> {
    let place = place_for(segment, mail, data.len(), &[data])?;
    let len = data.len() as u64;
    let (index, unpaid) = fill_node(segment, mail, [0, rank, 0, 0], len, &[data], place, None)?;
    put(segment, &segment.header().notices, index);
    Ok(unpaid)
}

/// By the gateway: are there any notices?
pub(crate) fn has_notices(segment: &Segment) -> bool {
    segment.header().notices.load(SeqCst) != 0
}

/// By the gateway: all notices, in the order of each rank.
pub(crate) fn drain_notices(segment: &Segment, out: &mut Vec<Arrived>) -> Result<()> {
    let top = segment.header().notices.swap(0, SeqCst);
    follow(segment, "of the gateway", top, out)?;
    out.reverse();
    Ok(())
}

/// A node that says all there is to say of a message, with the payload in it or `place`; after an error that
/// is freed.
fn fill_node(
    segment: &Segment,
    mail: &Mail,
    [context, source, tag, note]: [u32; 4],
    len: u64,
    data: &[&[u8]],
    place: Place,
    mark: Option<Mark>,
) -> Result<(u32, u64)> {
    let inline = len <= INLINE_BYTES as u64;
    let (index, unpaid) = match take_node(segment) {
        Ok(taken) => taken,
        Err(error) => {
            mail.release(segment, &place);
            return Err(error);
        }
    };
    let node = Node::at(segment, index);
    node.words[1].store(u64::from(context) << 32 | u64::from(source), SeqCst);
    node.words[2].store(u64::from(note) << 32 | u64::from(tag), SeqCst);
    node.words[3].store(len, SeqCst);
    let [kind, offset] = place.to_words();
    node.words[4].store(kind | Mark::to_bits(mark), SeqCst);
    node.words[5].store(offset, SeqCst);
    if inline {
        let payload = segment.bytes_at(segment.node_offset(index) + HEADER_WORDS * 8, INLINE_BYTES);
        let mut at = 0;
        for piece in data {
            // SAFETY: in bounds (checked by `bytes_at`, and all pieces fit); the node was just taken, so
            // nobody else touches its payload.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), payload.add(at), piece.len()) };
            at += piece.len();
        }
    }
    Ok((index, unpaid))
}

/// Does a message of this kind satisfy what the rank says it waits for?
pub fn concerns(waiting: Waiting, context: u32, source: u32, tag: u32) -> bool {
    match waiting {
        Waiting::Anything => true,
        Waiting::Message { context: c, source: s, tag: t } => {
            c == context && s.is_none_or(|s| s == source) && t.is_none_or(|t| t == tag)
        }
        _ => false,
    }
}

/// Is anything in the inbox of `rank`? Reads one word and allocates nothing.
pub fn is_empty(segment: &Segment, rank: u32) -> bool {
    segment.rank(rank).inbox.load(SeqCst) == 0
}

/// By the receiver: take what has arrived, in the order of each sender. After an error nothing was added.
pub fn drain(segment: &Segment, rank: u32, out: &mut Vec<Arrived>) -> Result<()> {
    let top = segment.rank(rank).inbox.swap(0, SeqCst);
    let first = out.len();
    let drained = follow(segment, &format!("of rank {rank}"), top, out);
    match drained {
        Ok(()) => out[first..].reverse(),
        Err(_) => out.truncate(first),
    }
    drained
}

/// By the receiver: puts a message back that it will not take, for whoever looks at the inbox later. One
/// that came by a lane is freed.
pub fn put_back(segment: &Segment, mail: &Mail, rank: u32, message: Arrived) {
    match message.held {
        Held::Node(index) => put(segment, &segment.rank(rank).inbox, index),
        Held::Mail(..) => free(segment, mail, message),
    }
}

/// On top of the stack.
fn put(segment: &Segment, inbox: &AtomicU64, index: u32) {
    let node = Node::at(segment, index);
    let mut top = inbox.load(SeqCst);
    loop {
        node.next().store(top, SeqCst);
        match inbox.compare_exchange(top, u64::from(index + 1), SeqCst, SeqCst) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

/// Adds the messages of a stack, the last first.
fn follow(segment: &Segment, whose: &str, top: u64, out: &mut Vec<Arrived>) -> Result<()> {
    // As many messages at most as nodes were ever used, so that a list that leads back into itself ends
    // before memory does.
    let most = u64::from(segment.header().fresh_nodes.load(SeqCst).min(MAX_NODES));
    let (mut at, mut followed) = (top, 0);
    while at != 0 {
        // Whatever another process left there: looked at before anything is computed from it.
        if at > most || followed == most {
            return Err(Error::Damaged(format!("message node {at} in the inbox {whose}")));
        }
        followed += 1;
        let index = low(at) - 1;
        let node = Node::at(segment, index);
        let [who, tag, len, bits] = [1, 2, 3, 4].map(|word| node.words[word].load(SeqCst));
        if len > MOST_BYTES {
            return Err(Error::Damaged(format!("a message of {len} bytes in the inbox {whose}")));
        }
        out.push(Arrived {
            context: (who >> 32) as u32,
            source: low(who),
            tag: low(tag),
            note: (tag >> 32) as u32,
            len,
            mark: Mark::from_bits(bits),
            held: Held::Node(index),
        });
        at = node.next().load(SeqCst);
    }
    Ok(())
}

/// By the receiver: copy the payload out (`into` has exactly its length) and free the message.
pub fn take(segment: &Segment, mail: &Mail, message: Arrived, into: &mut [u8]) -> Result<()> {
    read(segment, mail, &message, 0, into)?;
    free(segment, mail, message);
    Ok(())
}

/// By the receiver: copy bytes of the payload, from `offset` on.
pub fn read(segment: &Segment, mail: &Mail, message: &Arrived, offset: u64, into: &mut [u8]) -> Result<()> {
    if offset.checked_add(into.len() as u64).is_none_or(|end| end > message.len) {
        return Err(Error::Damaged(format!("read past a message of {} bytes", message.len)));
    }
    match (place_of(segment, message), &message.held) {
        (Some(place), _) | (None, &Held::Mail(place, _)) => mail.get(segment, &place, offset, into),
        (None, &Held::Node(node)) => {
            let payload = segment.bytes_at(segment.node_offset(node) + HEADER_WORDS * 8, INLINE_BYTES);
            // SAFETY: in bounds, as the whole payload is (checked above, and in `place_of`); the message was
            // taken out of the inbox, so this rank alone owns the node.
            unsafe {
                std::ptr::copy_nonoverlapping(payload.add(offset as usize), into.as_mut_ptr(), into.len());
            }
            Ok(())
        }
    }
}

/// By the receiver: where in memory these bytes of the payload are, if they are; until it is freed.
pub fn at(segment: &Segment, mail: &Mail, message: &Arrived, offset: u64, len: u64) -> Option<*const u8> {
    let place = place_of(segment, message)?;
    mail.at(segment, &place, offset, len).map(<*mut u8>::cast_const)
}

/// By the receiver: the message is not needed any more.
pub fn free(segment: &Segment, mail: &Mail, message: Arrived) {
    if let Some(place) = place_of(segment, &message) {
        mail.release(segment, &place);
    }
    match message.held {
        Held::Node(node) => free_node(segment, node),
        Held::Mail(place, lane) => lane::freed(segment, lane, place.len()),
    }
}

/// Where the payload lies, if not in the node.
fn place_of(segment: &Segment, message: &Arrived) -> Option<Place> {
    let node = match message.held {
        Held::Node(node) => node,
        Held::Mail(place, _) => return Some(place),
    };
    let words = &Node::at(segment, node).words;
    let place = [words[4].load(SeqCst), words[5].load(SeqCst)];
    (message.len > INLINE_BYTES as u64).then(|| Place::from_words(place, message.len))
}

#[cfg(test)]
mod tests;
