//! Records by bucket, in little memory: what is too much for it goes to a file that has no name, so that
//! nothing is left of it however the program ends.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{Context, Result};

/// Records of a bucket that are held at least, however little memory there is.
const LEAST: usize = 16;

/// Records that are put into buckets, and taken out a bucket at a time.
pub struct Spill<T> {
    buckets: Vec<Bucket<T>>,
    /// Records of a bucket that are held at most.
    most: usize,
    file: Option<File>,
    /// Bytes in the file.
    at: u64,
}

struct Bucket<T> {
    held: Vec<T>,
    /// Where the others lie in the file, and how many.
    chunks: Vec<(u64, usize)>,
}

impl<T: bytemuck::Pod> Spill<T> {
    /// So many buckets, which together hold no more than so many bytes in memory.
    pub fn new(buckets: usize, memory: usize) -> Self {
        let most = (memory / buckets.max(1) / size_of::<T>()).max(LEAST);
        let new = || Bucket { held: Vec::new(), chunks: Vec::new() };
        Self { buckets: std::iter::repeat_with(new).take(buckets).collect(), most, file: None, at: 0 }
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Put a record into a bucket.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn push(&mut self, bucket: usize, record: T) -> Result<()> {
        let bucket = &mut self.buckets[bucket];
        if bucket.held.len() == self.most {
            let file = match &self.file {
                Some(file) => file,
                None => self.file.insert(tempfile::tempfile().context(|| {
                    let dir = std::env::temp_dir();
                    format!("cannot make a file in {} (TMPDIR is another place for it)", dir.display())
                })?),
            };
            let bytes: &[u8] = bytemuck::cast_slice(&bucket.held);
            file.write_all_at(bytes, self.at).context(|| {
                let dir = std::env::temp_dir();
                format!("cannot write a file in {} (TMPDIR is another place for it)", dir.display())
            })?;
            bucket.chunks.push((self.at, bucket.held.len()));
            self.at += bytes.len() as u64;
            bucket.held.clear();
        }
        let held = &mut bucket.held;
        if held.len() == held.capacity() {
            // Never more than what is held at most, as a vector that grows by itself would have.
            held.reserve_exact(held.len().max(LEAST).min(self.most - held.len()));
        }
        held.push(record);
        Ok(())
    }

    /// Take what a bucket has, in the order in which it came.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn take(&mut self, bucket: usize) -> Result<Vec<T>> {
        let Bucket { held, chunks } = &mut self.buckets[bucket];
        let (held, chunks) = (std::mem::take(held), std::mem::take(chunks));
        let Some(file) = self.file.as_ref().filter(|_| !chunks.is_empty()) else { return Ok(held) };
        let count = held.len() + chunks.iter().map(|chunk| chunk.1).sum::<usize>();
        let mut all = vec![T::zeroed(); count];
        let mut at = 0;
        for (offset, count) in chunks {
            let bytes = bytemuck::cast_slice_mut(&mut all[at..at + count]);
            file.read_exact_at(bytes, offset).context(|| "cannot read a temporary file".into())?;
            at += count;
        }
        all[at..].copy_from_slice(&held);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::minimizer::order;

    #[test]
    fn what_goes_in_comes_out_in_order_from_memory_and_file() {
        for (buckets, memory) in [(1, 0), (1, 1 << 20), (7, 0), (7, 7 * 200 * 16)] {
            let mut spill = Spill::<[u64; 2]>::new(buckets, memory);
            let mut expected = vec![Vec::new(); buckets];
            for i in 0..5000 {
                let bucket = order(i) as usize % buckets;
                spill.push(bucket, [i, order(i)]).expect("kept");
                expected[bucket].push([i, order(i)]);
            }
            assert_eq!(spill.file.is_some(), memory < 1 << 20);
            assert_eq!(spill.len(), buckets);
            for (bucket, expected) in expected.into_iter().enumerate() {
                assert_eq!(spill.take(bucket).expect("read"), expected);
                assert!(spill.take(bucket).expect("nothing").is_empty());
            }
        }
    }
}
