//! Which pieces are left of many, in a bit and a half for each.

/// Which of the pieces are left, and how many of those are before each.
pub struct Left {
    bits: Vec<u64>,
    before: Vec<u32>,
}

impl Left {
    pub fn none(pieces: usize) -> Self {
        Self { bits: vec![0; pieces.div_ceil(64)], before: vec![0; pieces.div_ceil(64)] }
    }

    /// None of as many as these, or a few more.
    pub fn none_of(other: &Self) -> Self {
        Self::none(64 * other.bits.len())
    }

    pub fn insert(&mut self, piece: usize) {
        self.bits[piece / 64] |= 1 << (piece % 64);
    }

    pub fn has(&self, piece: usize) -> bool {
        self.bits[piece / 64] >> (piece % 64) & 1 != 0
    }

    /// To be called before [`place`](Self::place).
    pub fn count(&mut self) {
        let mut sum = 0;
        for (before, bits) in self.before.iter_mut().zip(&self.bits) {
            *before = sum;
            sum += bits.count_ones();
        }
    }

    /// The place of a piece among those that are left, if it is.
    #[inline]
    pub fn place(&self, piece: usize) -> Option<usize> {
        let bits = *self.bits.get(piece / 64)?;
        let bit = 1 << (piece % 64);
        let before = self.before[piece / 64] + (bits & (bit - 1)).count_ones();
        (bits & bit != 0).then_some(before as usize)
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.bits.iter().enumerate().flat_map(|(i, &bits)| {
            let mut bits = bits;
            std::iter::from_fn(move || {
                let lowest = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                (lowest < 64).then_some(64 * i + lowest)
            })
        })
    }
}
