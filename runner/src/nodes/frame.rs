//! What masters say to one another.

use bdrun_ipc::far::{Change, Range};
use bdrun_ipc::wire::{decode_value, encode_value};
use serde::{Deserialize, Serialize};

use crate::attach::About;
use crate::exit::Ending;
use crate::in_use::Owner;
use crate::journal::Ended;

/// What one master says to another; some have bytes besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// The first: who it is.
    Hello(Hello),
    /// A message for a rank, or a piece of it; its bytes, or a body. Pieces of one come in order, with
    /// nothing of another between them.
    Message {
        /// The rank that it is for.
        to: u32,
        /// Context, source, tag and note, as in an inbox.
        what: [u32; 4],
        /// Bytes of all of it.
        len: u64,
        /// Where these begin.
        offset: u64,
        /// Bytes of the body; 0: there is none.
        body: u64,
    },
    /// So many bytes of messages were delivered: as many more may come.
    Credit(u64),
    /// A communicator was made.
    Open {
        /// Its index.
        comm: u32,
        /// Its first context.
        context: u32,
        /// Its ranks.
        members: Vec<u32>,
        /// The rank that waits until it is open everywhere.
        asker: u32,
    },
    /// It is open here; for that rank.
    Opened(u32),
    /// All members here have given the communicator up.
    Closed(u32),
    /// Members have come to a collective; the beginnings of their parts are the bytes.
    Come {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
        /// Who, and with what.
        entries: Vec<Entry>,
    },
    /// All members here have left it.
    Left {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
    },
    /// Bytes of parts are wanted.
    Fetch {
        /// By this rank.
        asker: u32,
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
        /// Which.
        ranges: Vec<Range>,
    },
    /// These are they: its bytes, or a body.
    Fetched {
        /// For this rank.
        asker: u32,
        /// Bytes of the body; 0: there is none.
        body: u64,
    },
    /// The word of a communicator that is held there is changed; the answer is [`Frame::Fetched`].
    Word {
        /// By this rank.
        asker: u32,
        /// Index of the communicator.
        comm: u32,
        /// How.
        change: Change,
    },
    /// What the job's main thread there says.
    Said(Word),
    /// This master is there, and was when its clock said this, ns.
    Beat(u64),
    /// By the first, where ranks are dealt out: it has heard a [`Frame::Beat`] of then.
    Heard(u64),
    /// By the first, where ranks are dealt out: this node is lost, and the job goes on without it.
    Lost(u32),
    /// By the first master: is there anything that goes on?
    Probe(u64),
    /// The answer.
    Probed(Probed),
    /// Nothing goes on anywhere: whoever waits, waits for ever.
    Settled,
    /// The job ends.
    End(End),
    /// What a node's master says of it at the end; the bytes.
    Account,
    /// All is over at this node: it needs nothing more of others, though others may need something of it.
    Bye,
    /// All is over at all nodes: this master says nothing more.
    Last,
}

/// What the main threads of masters say to each other: of ranks that are dealt out ([`super::deal`]), and of
/// how the job is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// To the first: this node could begin more. See [`super::deal::Event::Asks`].
    Asks {
        /// How many.
        count: u32,
        /// How many of these at once.
        idle: u32,
        /// Bytes of its budget that are free.
        free: u64,
        /// Bytes of all of it.
        budget: u64,
    },
    /// By the first: these are to be run there.
    Yours(Vec<u32>),
    /// By the first: what of these was not begun is to come back. See [`super::deal::Effect::Recall`].
    Recall {
        /// These.
        ranks: Vec<u32>,
        /// All of it, and nobody else is begun.
        all: bool,
    },
    /// To the first: the answer.
    Back(Vec<u32>),
    /// To the first: a try of a rank has ended.
    Tried {
        /// The rank.
        rank: u32,
        /// How.
        ended: Ended,
    },
    /// To the first: a rank has ended for good.
    Over {
        /// The rank.
        rank: u32,
        /// How a job ends by that; nothing of one that ended well.
        failed: Option<Ending>,
    },
    /// Somebody looks at the job.
    Asked {
        /// Number of the question.
        id: u64,
        /// At whom.
        about: About,
    },
    /// The answer.
    Answer {
        /// To which question.
        id: u64,
        /// In JSON.
        answer: Vec<u8>,
    },
    /// By the first: nobody is given anything any more.
    AllOver {
        /// The job ends well, though ranks still run: they are ended.
        now: bool,
    },
}

/// Who a master is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of what lies in the segment, and of these frames.
    pub protocol: u32,
    /// Of `bdrun`.
    pub version: String,
    /// Ranks of the job.
    pub ranks: u32,
    /// What stands for the command line: all masters have the same.
    pub command: u64,
    /// What stands for the list of parts: what made it, `--glob` say, may find others on another node.
    pub parts: u64,
    /// What stands for the machine: masters on one have the same.
    pub machine: u64,
    /// What it is called.
    pub host: String,
    /// What its job would be called, if it was the first.
    pub owner: Owner,
}

/// A member at a collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The member.
    pub member: u32,
    /// Names of the collective, as hashes: see `bdrun_ipc::collective::FarComing`.
    pub names: [u64; 2],
    /// Bytes of its part.
    pub len: u64,
    /// So many of them are here.
    pub head: u32,
    /// Those that wait for it, though not for all.
    pub awaited_by: Vec<u32>,
}

/// What goes on at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Which question it answers.
    pub round: u64,
    /// Nothing has happened there for a while.
    pub quiet: bool,
    /// Frames about the job's work that were sent, and that came.
    pub sent: u64,
    /// See `sent`.
    pub came: u64,
}

/// Why a job ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The exit code.
    pub code: u8,
    /// In words.
    pub why: String,
    /// Ranks have the time to end that they have after a signal or a time limit.
    pub has_grace: bool,
}

impl Frame {
    /// Is it about the job's work, which [`Probed`] counts?
    #[must_use]
    pub fn is_work(&self) -> bool {
        !matches!(
            self,
            Self::Hello(_)
                | Self::Said(_)
                | Self::Beat(_)
                | Self::Heard(_)
                | Self::Lost(_)
                | Self::Probe(_)
                | Self::Probed(_)
                | Self::Settled
                | Self::End(_)
                | Self::Account
                | Self::Bye
                | Self::Last
        )
    }

    /// As it is sent, with bytes.
    #[must_use]
    pub fn encode(&self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = self.head(bytes.len());
        whole.extend(bytes);
        whole
    }

    /// The same with so many bytes that are written in their place.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn encode_with<E>(
        &self,
        bytes: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let mut whole = self.head(bytes);
        let head = whole.len();
        whole.resize(head + bytes, 0);
        write(&mut whole[head..])?;
        Ok(whole)
    }

    /// What stands before the bytes, with room for them.
    fn head(&self, bytes: usize) -> Vec<u8> {
        // Numbers, vectors and strings: nothing that cannot be encoded.
        let head = encode_value(self).unwrap_or_default();
        let mut whole = Vec::with_capacity(4 + head.len() + bytes);
        whole.extend((head.len() as u32).to_le_bytes());
        whole.extend(head);
        whole
    }

    /// What was sent so; `None` if that is nothing of ours.
    #[must_use]
    pub fn decode(whole: &[u8]) -> Option<(Self, &[u8])> {
        let (len, rest) = whole.split_first_chunk()?;
        let (head, bytes) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some((decode_value(head).ok()?, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive() {
        let entries = vec![Entry { member: 3, names: [9, 0], len: 1 << 40, head: 2, awaited_by: vec![1] }];
        for frame in [
            Frame::Message { to: 7, what: [1, 2, 3, 4], len: 5, offset: 0, body: 0 },
            Frame::Come { comm: 1, number: 2, entries },
            Frame::End(End { code: 3, why: "it is over".into(), has_grace: true }),
        ] {
            let whole = frame.encode(b"bytes");
            assert_eq!(Frame::decode(&whole), Some((frame.clone(), &b"bytes"[..])));
            assert_eq!(Frame::decode(&whole[..6]), None);
            let write = |into: &mut [u8]| -> Result<(), ()> {
                into.copy_from_slice(b"bytes");
                Ok(())
            };
            assert_eq!(frame.encode_with(5, write), Ok(whole.clone()));
        }
        assert_eq!(Frame::decode(b""), None);
    }
}
