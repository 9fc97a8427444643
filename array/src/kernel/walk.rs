//! Going over several blocks at once, row by row.

/// Places of a shape in C order, for each of `N` blocks the offset of its element there. Axes are merged
/// where all of them allow it, so that rows are as long as they can be.
pub(super) struct Walk<const N: usize> {
    outer: Vec<usize>,
    steps: Vec<[isize; N]>,
    /// Elements of a row. 0: there are no rows.
    pub(super) row: usize,
    /// How far apart those are.
    pub(super) step: [isize; N],
}

impl<const N: usize> Walk<N> {
    /// Of a shape, with the distance of neighbours along each axis in each block.
    pub(super) fn new(shape: &[usize], strides: [&[isize]; N]) -> Self {
        let mut axes: Vec<(usize, [isize; N])> = Vec::with_capacity(shape.len());
        for (axis, &length) in shape.iter().enumerate() {
            if length == 1 {
                continue;
            }
            let steps = strides.map(|strides| strides[axis]);
            match axes.last_mut() {
                Some((before, wide)) if (0..N).all(|of| wide[of] == steps[of] * length as isize) => {
                    *before *= length;
                    *wide = steps;
                }
                _ => axes.push((length, steps)),
            }
        }
        let (row, step) = axes.pop().unwrap_or((1, [0; N]));
        let is_empty = shape.contains(&0);
        let (outer, steps) = axes.into_iter().unzip();
        Self { outer, steps, row: if is_empty { 0 } else { row }, step }
    }

    /// Calls `each` with the offsets of each row's first elements.
    pub(super) fn rows(&self, from: [isize; N], mut each: impl FnMut([usize; N])) {
        if self.row == 0 {
            return;
        }
        let mut place = vec![0; self.outer.len()];
        let mut at = from;
        loop {
            each(at.map(|at| at as usize));
            let mut axis = self.outer.len();
            loop {
                let Some(before) = axis.checked_sub(1) else { return };
                axis = before;
                place[axis] += 1;
                at.iter_mut().zip(self.steps[axis]).for_each(|(at, step)| *at += step);
                if place[axis] < self.outer[axis] {
                    break;
                }
                let all = self.outer[axis] as isize;
                at.iter_mut().zip(self.steps[axis]).for_each(|(at, step)| *at -= step * all);
                place[axis] = 0;
            }
        }
    }
}

/// The distances of neighbours in a block of this shape in C order.
pub(super) fn dense(shape: &[usize]) -> Vec<isize> {
    crate::shape::strides(shape).into_iter().map(|stride| stride as isize).collect()
}

/// The same where the block stretches to a larger shape: 0 along axes that repeat.
pub(super) fn stretched(shape: &[usize], to: &[usize]) -> Vec<isize> {
    let skipped = to.len() - shape.len();
    let strides = dense(shape);
    (0..to.len())
        .map(|axis| if axis < skipped || shape[axis - skipped] == 1 { 0 } else { strides[axis - skipped] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_long_as_they_can_be() {
        let shape = [2, 1, 3, 4];
        let walk = Walk::new(&shape, [&dense(&shape), &stretched(&[3, 1], &shape)]);
        assert_eq!((walk.row, walk.step), (4, [1, 0]));
        let mut seen = Vec::new();
        walk.rows([0, 0], |at| seen.push(at));
        assert_eq!(seen, [[0, 0], [4, 1], [8, 2], [12, 0], [16, 1], [20, 2]]);
        let walk = Walk::new(&shape, [&dense(&shape), &dense(&shape)]);
        assert_eq!(walk.row, 24);
        let walk = Walk::new(&[], [&[]]);
        let mut count = 0;
        walk.rows([7], |at| count += at[0]);
        assert_eq!((walk.row, count), (1, 7));
        Walk::new(&[2, 0], [&[0, 0]]).rows([0], |_| panic!("there are no rows"));
    }
}
