//! Lists of numbers, one for each row, in two arrays (compressed sparse rows).

/// For each row a list of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Csr {
    /// Where each row begins, and behind the last one the end.
    starts: Vec<u32>,
    entries: Vec<u32>,
}

impl Csr {
    /// No rows yet, with room for so many rows and entries.
    pub fn with_capacity(rows: usize, entries: usize) -> Self {
        let mut starts = Vec::with_capacity(rows + 1);
        starts.push(0);
        Self { starts, entries: Vec::with_capacity(entries) }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If there are 2^32 entries.
    pub fn push(&mut self, row: impl IntoIterator<Item = u32>) {
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.entries.extend(row);
        self.starts.push(u32::try_from(self.entries.len()).expect("fewer than 2^32 entries"));
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// How many entries all rows have together.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// A row's list.
    #[inline]
    pub fn row(&self, row: usize) -> &[u32] {
        &self.entries[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// The same lists, to be permuted.
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [u32] {
        &mut self.entries[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// For each number below `rows` the rows that have it, ascending.
    pub fn transposed(&self, rows: usize) -> Self {
        let mut starts = vec![0_u32; rows + 1];
        for &entry in &self.entries {
            starts[entry as usize + 1] += 1;
        }
        for row in 0..rows {
            starts[row + 1] += starts[row];
        }
        let mut next = starts.clone();
        let mut entries = vec![0; self.entries.len()];
        for row in 0..self.rows() {
            for &entry in self.row(row) {
                let at = &mut next[entry as usize];
                entries[*at as usize] = row as u32;
                *at += 1;
            }
        }
        Self { starts, entries }
    }

    /// Each row sorted, each number once in it.
    pub fn distinct(&self) -> Self {
        let mut distinct = Self::with_capacity(self.rows(), self.entries());
        let mut sorted = Vec::new();
        for row in 0..self.rows() {
            sorted.clear();
            sorted.extend_from_slice(self.row(row));
            sorted.sort_unstable();
            sorted.dedup();
            distinct.push(sorted.iter().copied());
        }
        distinct
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposed_twice_is_sorted() {
        let mut csr = Csr::default();
        csr.push([2, 0]);
        csr.push([]);
        csr.push([1, 2, 2]);
        let transposed = csr.transposed(3);
        assert_eq!(
            (transposed.row(0), transposed.row(1), transposed.row(2)),
            (&[0][..], &[2][..], &[0, 2, 2][..])
        );
        assert_eq!(csr.distinct().row(2), [1, 2]);
        assert_eq!(transposed.transposed(3).row(0), [0, 2]);
        assert_eq!((csr.rows(), csr.entries()), (3, 5));
    }
}
