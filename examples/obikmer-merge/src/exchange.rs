//! One all-to-all round of 32-bit words that also tells whether a rank has failed meanwhile, so that agreeing
//! on errors costs no round of its own.

use bdrun_worker::Communicator;

use crate::error::{Error, Result, agree};

const GOOD: u32 = 0;
const FAILED: u32 = 1;

/// Words for every rank, their numbers unknown before.
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

/// Words for every rank, counted before: one buffer, which is sent as it is.
pub struct Counted {
    words: Vec<u32>,
    counts: Vec<usize>,
    /// Where the next word for each rank goes.
    next: Vec<usize>,
}

impl Counted {
    /// Room for so many words for each rank, all to be filled.
    pub fn new(counts: &[usize]) -> Self {
        let counts: Vec<usize> = counts.iter().map(|n| n + 1).collect();
        let mut total = 0;
        let next = counts.iter().map(|n| (total + 1, total += n).0).collect();
        // Room begins as zeros, and so does every part's status.
        const { assert!(GOOD == 0) };
        Self { words: vec![0; total], counts, next }
    }

    /// Number of all words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The next `n` words for `rank`.
    #[inline]
    pub fn room(&mut self, rank: usize, n: usize) -> &mut [u32] {
        let at = self.next[rank];
        self.next[rank] = at + n;
        &mut self.words[at..at + n]
    }
}

/// Words with a status word before those of each rank.
pub struct Parts {
    words: Vec<u32>,
    counts: Vec<usize>,
}

impl From<Outgoing> for Parts {
    fn from(outgoing: Outgoing) -> Self {
        Self { words: outgoing.0.concat(), counts: outgoing.0.iter().map(Vec::len).collect() }
    }
}

impl From<Counted> for Parts {
    fn from(counted: Counted) -> Self {
        Self { words: counted.words, counts: counted.counts }
    }
}

/// Words that came, by rank.
pub struct Incoming {
    words: Vec<u32>,
    offsets: Vec<usize>,
}

impl Incoming {
    /// Nothing from any of `ranks`.
    pub fn nothing(ranks: usize) -> Self {
        Self { words: vec![GOOD; ranks], offsets: (0..=ranks).collect() }
    }

    /// What came from `rank`.
    pub fn from(&self, rank: usize) -> &[u32] {
        &self.words[self.range(rank)]
    }

    /// Where that lies in all [words](Self::words). It never begins at 0.
    pub fn range(&self, rank: usize) -> std::ops::Range<usize> {
        self.offsets[rank] + 1..self.offsets[rank + 1]
    }

    /// All words, those of the status included.
    pub fn words(&self) -> &[u32] {
        &self.words
    }
}

/// Exchange, or, if `outgoing` is an error here or elsewhere, stop on every rank.
pub fn exchange(comm: &Communicator, outgoing: Result<impl Into<Parts>>) -> Result<Incoming> {
    let (Parts { words, counts }, mine) = match outgoing {
        Ok(outgoing) => (outgoing.into(), Ok(())),
        Err(Error::Communication(error)) => return Err(error.into()),
        Err(error) => {
            let size = comm.size();
            (Parts { words: vec![FAILED; size], counts: vec![1; size] }, Err(error))
        }
    };
    let sent = words;
    let (words, counts) = comm.alltoallv(&sent, &counts)?;
    drop(sent);
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
    match exchange(comm, Err::<Outgoing, _>(error)) {
        Err(error) => error,
        Ok(_) => Error::Internal("an exchange with a rank that failed succeeded".into()),
    }
}
