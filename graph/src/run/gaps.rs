//! Bytes that are taken and given back.

use std::collections::BTreeMap;

/// Which bytes are free of a file, say, that is as long as it has to be.
#[derive(Debug, Default)]
pub struct Gaps {
    /// Gaps by offset, none beside another.
    gaps: BTreeMap<u64, u64>,
    end: u64,
}

impl Gaps {
    /// Bytes that are taken.
    pub fn used(&self) -> u64 {
        self.end - self.gaps.values().sum::<u64>()
    }

    /// Where the last byte that is taken ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Takes so many: of the first gap that is large enough, or at the end. Where they begin.
    pub fn take(&mut self, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let found = self.gaps.iter().find(|(_, size)| **size >= len).map(|(&offset, &size)| (offset, size));
        let Some((offset, size)) = found else {
            self.end += len;
            return self.end - len;
        };
        self.gaps.remove(&offset);
        if size > len {
            self.gaps.insert(offset + len, size - len);
        }
        offset
    }

    /// Gives back what was taken.
    pub fn give(&mut self, mut offset: u64, mut len: u64) {
        if len == 0 {
            return;
        }
        if let Some(after) = self.gaps.remove(&(offset + len)) {
            len += after;
        }
        if let Some((&before, &size)) = self.gaps.range(..offset).next_back()
            && before + size == offset
        {
            self.gaps.remove(&before);
            (offset, len) = (before, size + len);
        }
        if offset + len == self.end {
            self.end = offset;
        } else {
            self.gaps.insert(offset, len);
        }
    }
}
