//! `--pipe`: standard input in blocks of whole records, one for each rank. Pure: from any reader to any
//! writer, with little of it in memory.

use std::io::{self, BufRead, Write};

use memchr::memmem;

/// What is cut into blocks.
#[derive(Debug)]
pub struct Splitter<R> {
    input: R,
    /// Bytes of a block, at least, but for the last.
    block: u64,
    /// What ends a record.
    end: Vec<u8>,
}

impl<R: BufRead> Splitter<R> {
    /// `end` is not empty.
    pub fn new(input: R, block: u64, end: &[u8]) -> Self {
        Self { input, block: block.max(1), end: end.to_vec() }
    }

    /// Whether anything is left.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn has_more(&mut self) -> io::Result<bool> {
        loop {
            match self.input.fill_buf() {
                Ok(buffer) => return Ok(!buffer.is_empty()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the next block: up to the first end of a record at which it is as large as it should be, or all
    /// that is left. The inner result is that of reading, the outer that of writing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn next(&mut self, out: &mut impl Write) -> io::Result<io::Result<()>> {
        let mut written = 0;
        // The last bytes written: an end may lie across what is read at once.
        let mut tail = Vec::new();
        loop {
            if written >= self.block && tail.ends_with(&self.end) {
                return Ok(Ok(()));
            }
            match self.has_more() {
                Ok(true) => {}
                Ok(false) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            }
            let buffer = match self.input.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) => return Ok(Err(error)),
            };
            let taken = if written < self.block {
                let missing = usize::try_from(self.block - written).unwrap_or(usize::MAX);
                buffer.len().min(missing)
            } else {
                let known = &tail[tail.len().saturating_sub(self.end.len() - 1)..];
                let most = buffer.len().min(self.end.len() - 1);
                // Across the border, or in what is new.
                let across = [known, &buffer[..most]].concat();
                let over = memmem::find(&across, &self.end).map(|at| at + self.end.len() - known.len());
                over.or_else(|| memmem::find(buffer, &self.end).map(|at| at + self.end.len()))
                    .unwrap_or(buffer.len())
            };
            out.write_all(&buffer[..taken])?;
            tail.extend_from_slice(&buffer[taken.saturating_sub(self.end.len())..taken]);
            tail.drain(..tail.len().saturating_sub(self.end.len()));
            written += taken as u64;
            self.input.consume(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    fn blocks(text: &[u8], capacity: usize, block: u64, end: &[u8]) -> Vec<Vec<u8>> {
        let mut splitter = Splitter::new(BufReader::with_capacity(capacity, text), block, end);
        let mut all = Vec::new();
        while splitter.has_more().unwrap() {
            let mut block = Vec::new();
            splitter.next(&mut block).unwrap().unwrap();
            all.push(block);
        }
        all
    }

    #[test]
    fn blocks_end_where_records_end() {
        let cut = |text: &str, block| {
            let all = blocks(text.as_bytes(), 4, block, b"\n");
            all.into_iter().map(|block| String::from_utf8(block).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(cut("ab\ncd\nef\n", 1), ["ab\n", "cd\n", "ef\n"]);
        assert_eq!(cut("ab\ncd\nef\n", 3), ["ab\n", "cd\n", "ef\n"]);
        assert_eq!(cut("ab\ncd\nef", 4), ["ab\ncd\n", "ef"]);
        assert_eq!(cut("a record longer than that\nb", 2), ["a record longer than that\n", "b"]);
        assert_eq!(cut("", 5), Vec::<String>::new());
    }

    proptest! {
        /// Nothing is lost or doubled, every block but the last ends with a record and is no shorter than it
        /// should be, and none could have ended before.
        #[test]
        fn whatever_is_read_at_once(
            text in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'\n')], 0..200),
            capacity in 1_usize..9, block in 1_u64..40,
            end in prop_oneof![Just("\n"), Just("ab"), Just("aab"), Just("\n\n")],
        ) {
            let end = end.as_bytes();
            let all = blocks(&text, capacity, block, end);
            prop_assert_eq!(all.concat(), text);
            for one in all.iter().rev().skip(1) {
                prop_assert!(one.ends_with(end) && one.len() as u64 >= block, "{:?}", one);
            }
            for one in &all {
                let ends = (0..one.len().saturating_sub(1)).filter(|&at| one[..=at].ends_with(end));
                prop_assert_eq!(ends.filter(|&at| at as u64 + 1 >= block).count(), 0);
            }
        }
    }
}
