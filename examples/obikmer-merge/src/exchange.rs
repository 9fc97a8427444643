//! One all-to-all round of 32-bit words that also tells whether a rank has failed meanwhile, so that agreeing on
//! errors costs no round of its own.

use bdrun_worker::Communicator;

use crate::error::{Error, Result, agree};

const GOOD: u32 = 0;
const FAILED: u32 = 1;

/// Words for every rank.
pub struct Outgoing(Vec<Vec<u32>>);

impl Outgoing {
    /// Nothing yet for any of `ranks`.
    pub fn new(ranks: usize) -> Self {
        Self(vec![vec![GOOD]; ranks])
    }

    /// What goes to `rank`.
    pub fn to(&mut self, rank: usize) -> &mut Vec<u32> {
        &mut self.0[rank]
    }
}

/// Words that came, by rank.
pub struct Incoming {
    words: Vec<u32>,
    offsets: Vec<usize>,
}

impl Incoming {
    /// What came from `rank`.
    pub fn from(&self, rank: usize) -> &[u32] {
        &self.words[self.offsets[rank] + 1..self.offsets[rank + 1]]
    }
}

/// Exchange, or, if `outgoing` is an error here or elsewhere, stop on every rank.
pub fn exchange(comm: &Communicator, outgoing: Result<Outgoing>) -> Result<Incoming> {
    let (parts, mine) = match outgoing {
        Ok(outgoing) => (outgoing.0, Ok(())),
        Err(Error::Communication(error)) => return Err(error.into()),
        Err(error) => (vec![vec![FAILED]; comm.size()], Err(error)),
    };
    let counts: Vec<usize> = parts.iter().map(Vec::len).collect();
    let (words, counts) = comm.alltoallv(&parts.concat(), &counts)?;
    drop(parts);
    let mut offsets = vec![0];
    let mut failed = false;
    for count in counts {
        let at = offsets[offsets.len() - 1];
        failed |= count == 0 || words[at] != GOOD;
        offsets.push(at + count);
    }
    if failed {
        agree(comm, mine)?;
        return Err(Error::Internal("a rank failed without an error".into()));
    }
    Ok(Incoming { words, offsets })
}

/// Take part in an exchange of the others with an error of this rank.
pub fn failed(comm: &Communicator, error: Error) -> Error {
    match exchange(comm, Err(error)) {
        Err(error) => error,
        Ok(_) => Error::Internal("an exchange with a rank that failed succeeded".into()),
    }
}
