//! Which bytes of a file a process sees, and in which order (MPI-5.0, section 14.3).

use bdrun_mpi_core::datatype::Type;

use super::representation::Representation;

/// A view: from `disp` on the filetype again and again, of whose bytes only those of its elements are seen.
#[derive(Debug, Clone)]
pub struct View {
    /// Bytes from the file's beginning.
    pub disp: i64,
    /// In units of which a program counts, as it lies in the file.
    pub etype: Type,
    /// What is seen, as it lies in the file.
    pub filetype: Type,
    /// How elements lie there.
    pub representation: Representation,
}

impl View {
    /// Bytes of one unit; nothing has less than one.
    pub fn unit(&self) -> i64 {
        self.etype.size().max(1)
    }

    fn whole(&self) -> Option<(i64, i64)> {
        let (size, extent) = (self.filetype.size(), self.filetype.extent());
        (size > 0).then_some((size, extent))
    }

    /// Calls `f` with the pieces of the file that hold the seen bytes from `from` to `to`, in order: where
    /// each is, and how long.
    pub fn each_piece(&self, from: u64, to: u64, mut f: impl FnMut(i64, u64)) {
        let Some((size, extent)) = self.whole() else { return };
        // Not from the first one on: what is skipped costs nothing.
        let first = from / size as u64;
        let base = self.disp + first as i64 * extent;
        let (from, to) = (from - first * size as u64, to - first * size as u64);
        let count = to.div_ceil(size as u64);
        self.filetype.layout().each_run(count, from, to, |at, len| f(base + at, len));
    }

    /// Where in the file a seen byte is.
    pub fn byte_at(&self, seen: u64) -> i64 {
        let mut found = self.disp;
        self.each_piece(seen, seen + 1, |at, _| found = at);
        found
    }

    /// How many seen bytes there are before some place in the file.
    pub fn seen_before(&self, place: i64) -> u64 {
        let Some((size, extent)) = self.whole() else { return 0 };
        let behind = place - self.disp;
        if behind <= 0 {
            return 0;
        }
        if extent <= 0 {
            return 0;
        }
        let mut seen = 0;
        self.filetype.layout().each_run(1, 0, size as u64, |at, len| {
            // Of each turn: how much of the run is before the place. What is seen may lie behind the end of
            // its turn, so that there are fewer of it than turns, or several that it is in the midst of.
            let (left, len) = (behind - at, len as i64);
            let whole = if left < len { 0 } else { (left - len) / extent + 1 };
            seen += (whole * len) as u64;
            seen +=
                (whole..).map(|turn| left - turn * extent).take_while(|&left| left > 0).sum::<i64>() as u64;
        });
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bdrun_mpi_core::datatype::{Basic, Block, Datatype, Width};
    use proptest::prelude::*;

    proptest! {
        /// What is seen is what a filetype names, byte by byte.
        #[test]
        fn pieces_are_those_of_the_filetype(
            disp in 0i64..50, count in 1i64..4, block in 1i64..4, stride in 0i64..5, from in 0u64..60, len in 1u64..60,
            behind in 0i64..20, nearer in 0i64..9,
        ) {
            let int = Datatype::basic(Basic::Int);
            let filetype = Datatype::vector(count, block, block + stride, &int, Width::Small).unwrap();
            // Some way behind where each turn begins; the next turn may begin before this one is over.
            let extent = (filetype.extent() - nearer).max(1);
            let filetype = Datatype::hindexed(&[Block { count: 1, at: behind }], &filetype, Width::Small).unwrap();
            let filetype = Datatype::resized(&filetype, 0, extent, Width::Small).unwrap();
            let disp_of_first = disp + behind;
            let view = View { disp, etype: int, filetype, representation: Representation::Native };
            // Every seen byte of the first turns, one after the other.
            let extent = view.filetype.extent();
            let all: Vec<i64> = (0..60).flat_map(|turn| {
                (0..count).flat_map(move |copy| {
                    let first = disp_of_first + turn * extent + copy * (block + stride) * 4;
                    (first..first + block * 4).collect::<Vec<_>>()
                })
            }).collect();
            let mut pieces = vec![];
            view.each_piece(from, from + len, |at, len| pieces.extend(at..at + len as i64));
            prop_assert_eq!(&pieces[..], &all[from as usize..(from + len) as usize]);
            prop_assert_eq!(view.byte_at(from), all[from as usize]);
            let place = disp + (from as i64);
            let before = all.iter().filter(|&&at| at < place).count() as u64;
            prop_assert_eq!(view.seen_before(place), before);
        }
    }
}
