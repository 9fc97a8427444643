//! What carries frames between masters.

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// In words, with what can be done about it.
    #[error("{0}")]
    Broken(String),
    /// One of the others cannot be reached.
    #[error("{why}")]
    Lost {
        /// Which.
        node: u32,
        /// In words.
        why: String,
    },
    /// Scratch has no room for what came of another node.
    #[error("scratch is full: rank {rank} was sent {need} bytes")]
    Full {
        /// By a message for this rank, or what it asked for.
        rank: u32,
        /// Bytes.
        need: u64,
    },
}

/// A result of a transport.
pub type Result<T> = std::result::Result<T, TransportError>;

/// Bytes that go beside a frame.
#[derive(Debug)]
pub enum Body {
    /// The transport's from now on.
    Owned(Vec<u8>),
    /// Where they are in memory, and how many.
    Lent(*const u8, usize),
}

impl Body {
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        match self {
            Self::Owned(bytes) => (bytes.as_ptr(), bytes.len()),
            &Self::Lent(at, len) => (at, len),
        }
    }
}

/// What has come of a node.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    /// A frame.
    Frame(Vec<u8>),
    /// Of the bodies that were expected of it and had not come, the first.
    Body,
}

/// Carries frames between masters, those of a pair in order. Used by one thread.
pub trait Transport {
    /// Which of them this is, from 0.
    fn node(&self) -> u32;

    /// How many there are.
    fn nodes(&self) -> u32;

    /// Sends a frame. Never waits for the receiver. Its number: see [`Transport::sent`].
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&mut self, to: u32, frame: Vec<u8>) -> Result<u64>;

    /// Sends a frame and a body, which the receiver, told by the frame, [expects](Self::expect). The body's
    /// number: see [`Transport::sent`].
    ///
    /// # Safety
    /// What is lent stays where and as it is until it is sent, or for good.
    ///
    /// # Errors
    /// The connection is broken.
    unsafe fn send_with(&mut self, to: u32, frame: Vec<u8>, body: Body) -> Result<u64>;

    /// The number of the last frame or body for this node that is sent, as all before it are; they count from
    /// 1.
    fn sent(&self, to: u32) -> u64;

    /// The next body of this node that is not expected yet is to lie here.
    ///
    /// # Safety
    /// The memory is the transport's until the body has come, or for good.
    ///
    /// # Errors
    /// The connection is broken.
    unsafe fn expect(&mut self, from: u32, into: *mut u8, len: usize) -> Result<()>;

    /// Takes in what has come; whether anything has. Never waits.
    ///
    /// # Errors
    /// The connection is broken.
    fn receive(&mut self, take: &mut dyn FnMut(u32, Came)) -> Result<bool>;

    /// Bytes that are on their way, or wait for it.
    fn unsent(&self) -> usize;

    /// The end, which all come to.
    fn finish(&mut self);
}

/// Masters that are threads of one process, for tests.
#[cfg(test)]
pub mod threads {
    use std::collections::VecDeque;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::{Body, Came, Result, Transport};

    enum Parcel {
        Frame(Vec<u8>),
        Body(Vec<u8>),
    }

    pub struct Threads {
        node: u32,
        to: Vec<Sender<(u32, Parcel)>>,
        from: Receiver<(u32, Parcel)>,
        /// Of each node: bodies, and where they are expected.
        bodies: Vec<VecDeque<Vec<u8>>>,
        expected: Vec<VecDeque<(*mut u8, usize)>>,
        given: Vec<u64>,
        sent: Vec<u64>,
    }

    // SAFETY: it is used by one thread, and so is the memory that it was given.
    unsafe impl Send for Threads {}

    impl Threads {
        fn parcel(&self, to: u32, parcel: Parcel) {
            self.to[to as usize].send((self.node, parcel)).expect("nothing is sent to who has left");
        }
    }

    pub fn connected(nodes: u32) -> Vec<Threads> {
        let (to, from): (Vec<_>, Vec<_>) = (0..nodes).map(|_| channel()).unzip();
        let all = from.into_iter().zip(0..);
        let each = |(from, node)| Threads {
            node,
            to: to.clone(),
            from,
            bodies: (0..nodes).map(|_| VecDeque::new()).collect(),
            expected: (0..nodes).map(|_| VecDeque::new()).collect(),
            given: vec![0; nodes as usize],
            sent: vec![0; nodes as usize],
        };
        all.map(each).collect()
    }

    impl Transport for Threads {
        fn node(&self) -> u32 {
            self.node
        }

        fn nodes(&self) -> u32 {
            self.to.len() as u32
        }

        fn send(&mut self, to: u32, frame: Vec<u8>) -> Result<u64> {
            self.parcel(to, Parcel::Frame(frame));
            self.given[to as usize] += 1;
            Ok(self.given[to as usize])
        }

        unsafe fn send_with(&mut self, to: u32, frame: Vec<u8>, body: Body) -> Result<u64> {
            self.send(to, frame)?;
            let (at, len) = body.bytes();
            // SAFETY: the caller's.
            let bytes = unsafe { std::slice::from_raw_parts(at, len) }.to_vec();
            self.parcel(to, Parcel::Body(bytes));
            self.given[to as usize] += 1;
            Ok(self.given[to as usize])
        }

        fn sent(&self, to: u32) -> u64 {
            self.sent[to as usize]
        }

        unsafe fn expect(&mut self, from: u32, into: *mut u8, len: usize) -> Result<()> {
            self.expected[from as usize].push_back((into, len));
            Ok(())
        }

        fn receive(&mut self, take: &mut dyn FnMut(u32, Came)) -> Result<bool> {
            let mut any = self.sent != self.given;
            // Later than it could be, for whoever does not ask.
            self.sent.clone_from(&self.given);
            while let Ok((from, parcel)) = self.from.try_recv() {
                match parcel {
                    Parcel::Frame(frame) => take(from, Came::Frame(frame)),
                    Parcel::Body(body) => self.bodies[from as usize].push_back(body),
                }
                any = true;
            }
            for (from, (bodies, expected)) in (0..).zip(self.bodies.iter_mut().zip(&mut self.expected)) {
                while let (false, Some(&(into, len))) = (bodies.is_empty(), expected.front()) {
                    let body = bodies.pop_front().unwrap_or_default();
                    expected.pop_front();
                    assert_eq!(body.len(), len);
                    // SAFETY: given for so many bytes.
                    unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), into, len) };
                    take(from, Came::Body);
                    any = true;
                }
            }
            Ok(any)
        }

        fn unsent(&self) -> usize {
            0
        }

        /// Complains of what nobody has taken, as MPI does.
        fn finish(&mut self) {
            assert!(self.from.try_recv().is_err(), "something came that was not received");
            assert!(self.expected.iter().all(VecDeque::is_empty));
            self.from = channel().1;
        }
    }
}
