//! Datatypes in a file whose elements have other sizes than in memory (MPI-5.0, sections 14.3 and 14.5).

use std::ops::ControlFlow;

use super::bounds::Bounds;
use super::origin::Contents;
use super::{Basic, Combiner, Copies, Datatype, Elements, Type, TypeError};

/// Bytes of a predefined datatype there.
pub type Sizes<'a> = &'a dyn Fn(Basic) -> i64;

impl Datatype {
    /// The predefined datatypes that it is made of, each once.
    #[must_use]
    pub fn basics(&self) -> Vec<Basic> {
        let mut found = vec![];
        let _ = self.each_element::<()>(1, &mut |elements| {
            if !found.contains(&elements.basic) {
                found.push(elements.basic);
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// How many predefined datatypes one has.
    #[must_use]
    pub fn items(&self) -> i64 {
        let mut items = 0;
        let _ = self.each_element::<()>(1, &mut |elements| {
            items += elements.count;
            ControlFlow::Continue(())
        });
        items
    }

    /// Bytes of one in the file; `None` if that is too many to say.
    #[must_use]
    pub fn stored_size(&self, sizes: Sizes<'_>) -> Option<i64> {
        let mut bytes = Some(0_i64);
        let _ = self.each_element(1, &mut |Elements { basic, count, .. }| {
            let more = count.checked_mul(sizes(basic));
            bytes = bytes.zip(more).and_then(|(bytes, more)| bytes.checked_add(more));
            if bytes.is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        bytes
    }

    /// Of the first `bytes` bytes of such in the file: how many predefined datatypes are whole, and how many
    /// bytes those have in memory.
    #[must_use]
    pub fn whole_in(&self, bytes: i64, sizes: Sizes<'_>) -> (i64, i64) {
        let Some(size @ 1..) = self.stored_size(sizes) else { return (0, 0) };
        let (turns, mut left) = (bytes / size, bytes % size);
        let (mut count, mut native) = (self.items() * turns, self.size() * turns);
        let _ = self.each_element(1, &mut |elements| {
            let each = sizes(elements.basic);
            let fit = if each == 0 { elements.count } else { elements.count.min(left / each) };
            count += fit;
            native += fit * elements.basic.size() as i64;
            left -= fit * each;
            if fit < elements.count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (count, native)
    }

    /// The bytes of the file that it names there. Where all displacements are multiples of its only
    /// predefined datatype's extent they are multiples of that one's size in the file: so it is with all
    /// portable datatypes. Else they are bytes in the file, as the program has said them.
    ///
    /// # Errors
    /// It would be larger than any address space.
    pub fn stored(of: &Type, sizes: Sizes<'_>) -> Result<Type, TypeError> {
        if of.basics().iter().all(|&basic| sizes(basic) == basic.extent() as i64) {
            return Ok(of.clone());
        }
        let mut all = vec![];
        let _ = of.each_element::<()>(1, &mut |elements| {
            all.push(elements);
            ControlFlow::Continue(())
        });
        let bounds = [of.lower_bound(), of.lower_bound() + of.extent()];
        let only = of.uniform().map(|basic| (basic.extent() as i64, sizes(basic))).filter(|&(extent, _)| {
            let said = all.iter().flat_map(|one| [one.at, one.stride]).chain(bounds);
            said.into_iter().all(|bytes| bytes % extent == 0)
        });
        let scaled = |bytes: i64| match only {
            Some((extent, size)) => (bytes / extent).checked_mul(size).ok_or(TypeError::TooLarge),
            None => Ok(bytes),
        };
        let byte = Self::basic(Basic::Byte);
        let copies = |one: &Elements| {
            let of = Self::row(sizes(one.basic), 1, &byte)?;
            Ok(Copies { at: scaled(one.at)?, count: one.count, stride: scaled(one.stride)?, of })
        };
        let list: Vec<Copies> = all.iter().map(copies).collect::<Result<_, TypeError>>()?;
        let set = Some((scaled(bounds[0])?, scaled(bounds[1])?));
        let bounds = Bounds { set, ..Bounds::of_copies(&list)? };
        Self::bounded(list, bounds, Combiner::Struct, Contents::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::{Block, Width};

    fn external(basic: Basic) -> i64 {
        let (first, second) = basic.external_sizes();
        (first + second) as i64
    }

    fn runs(of: &Type) -> Vec<(i64, u64)> {
        let mut runs = vec![];
        of.layout().each_run(1, 0, of.size() as u64, |at, len| runs.push((at, len)));
        runs
    }

    #[test]
    fn what_has_the_same_sizes_stays_what_it_is() {
        let int = Datatype::basic(Basic::Int);
        let vector = Datatype::vector(3, 2, 4, &int, Width::Small).unwrap();
        assert!(std::sync::Arc::ptr_eq(&vector, &Datatype::stored(&vector, &external).unwrap()));
    }

    #[test]
    fn displacements_of_portable_datatypes_are_scaled_and_no_others() {
        let long = Datatype::basic(Basic::Long);
        let stored = Datatype::stored(&long, &external).unwrap();
        assert_eq!((stored.size(), stored.extent()), (4, 4));
        let vector = Datatype::vector(3, 2, 4, &long, Width::Small).unwrap();
        let stored = Datatype::stored(&vector, &external).unwrap();
        assert_eq!(runs(&stored), [(0, 8), (16, 8), (32, 8)]);
        assert_eq!((stored.size(), stored.extent(), vector.extent()), (24, 40, 80));
        // Bytes that are no multiple of an element are meant as they are said.
        let bytes = Datatype::hindexed(&[Block { count: 1, at: 3 }], &long, Width::Small).unwrap();
        assert_eq!(runs(&Datatype::stored(&bytes, &external).unwrap()), [(3, 4)]);
    }

    #[test]
    fn what_is_whole_is_counted() {
        let long = Datatype::basic(Basic::Long);
        let char = Datatype::basic(Basic::Char);
        let one = |at, of: &Type| (Block { count: 1, at }, of.clone());
        let mixed = Datatype::structure(&[one(0, &char), one(8, &long)], Width::Small).unwrap();
        assert_eq!(mixed.stored_size(&external), Some(5));
        assert_eq!(
            [0, 1, 4, 5, 6, 14].map(|bytes| mixed.whole_in(bytes, &external)),
            [(0, 0), (1, 1), (1, 1), (2, 9), (3, 10), (5, 19)]
        );
    }
}
