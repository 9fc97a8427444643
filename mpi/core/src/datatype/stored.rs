//! Datatypes in a file whose elements have other sizes than in memory (MPI-5.0, sections 14.3 and 14.5).
//!
//! What is asked is asked of each datatype that one is made of, once, and not of each element: a large
//! datatype need be no larger here than where it was made.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::bounds::Bounds;
use super::origin::Contents;
use super::{Basic, Combiner, Copies, Datatype, Map, Type, TypeError};

/// Bytes of a predefined datatype there.
pub type Sizes<'a> = &'a dyn Fn(Basic) -> i64;

/// The datatypes that one is made of and that have elements in it, each once, behind those that it is itself
/// made of; the last is the one asked for.
struct Parts<'a> {
    list: Vec<&'a Datatype>,
    places: HashMap<*const Datatype, usize>,
}

impl<'a> Parts<'a> {
    fn of(whole: &'a Datatype) -> Self {
        let mut parts = Self { list: vec![], places: HashMap::new() };
        parts.add(whole);
        parts
    }

    fn add(&mut self, part: &'a Datatype) {
        if self.places.contains_key(&std::ptr::from_ref(part)) {
            return;
        }
        match &part.map {
            Map::Basic(_) => {}
            Map::Same(of) => self.add(of),
            Map::Copies(list) => some(list).for_each(|copies| self.add(&copies.of)),
        }
        self.places.insert(part, self.list.len());
        self.list.push(part);
    }

    /// What was found of one of them.
    fn found<T: Clone>(&self, all: &[T], of: &Type) -> T {
        all[self.places[&std::sync::Arc::as_ptr(of)]].clone()
    }
}

/// Those of which there are any.
fn some(list: &[Copies]) -> impl Iterator<Item = &Copies> {
    list.iter().filter(|copies| copies.count > 0)
}

/// Where the elements of a datatype lie, up to multiples of a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    /// There are none.
    Nowhere,
    /// All so many bytes behind a multiple.
    Behind(i64),
    Anywhere,
}

impl Datatype {
    /// The sum of what predefined datatypes weigh; `None` if that is too much to say.
    pub(super) fn weighed(&self, weight: &dyn Fn(Basic) -> i64) -> Option<i64> {
        let parts = Parts::of(self);
        let mut all: Vec<Option<i64>> = vec![];
        for part in &parts.list {
            all.push(match &part.map {
                Map::Basic(basic) => Some(weight(*basic)),
                Map::Same(of) => parts.found(&all, of),
                Map::Copies(list) => some(list).try_fold(0_i64, |sum, copies| {
                    sum.checked_add(copies.count.checked_mul(parts.found(&all, &copies.of)?)?)
                }),
            });
        }
        all.pop()?
    }

    /// The predefined datatypes that it is made of, each once.
    #[must_use]
    pub fn basics(&self) -> Vec<Basic> {
        let mut found = vec![];
        for part in Parts::of(self).list {
            if let Map::Basic(basic) = part.map
                && !found.contains(&basic)
            {
                found.push(basic);
            }
        }
        found
    }

    /// How many predefined datatypes one has.
    #[must_use]
    pub fn items(&self) -> i64 {
        self.weighed(&|_| 1).unwrap_or(i64::MAX)
    }

    /// Bytes of one in the file; `None` if that is too many to say.
    #[must_use]
    pub fn stored_size(&self, sizes: Sizes<'_>) -> Option<i64> {
        self.weighed(sizes)
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
        let basics = of.basics();
        if basics.iter().all(|&basic| sizes(basic) == basic.extent() as i64) {
            return Ok(of.clone());
        }
        let parts = Parts::of(of);
        let bounds = [of.lower_bound(), of.lower_bound() + of.extent()];
        let only = match basics[..] {
            [basic] => Some((basic.extent() as i64, sizes(basic))),
            _ => None,
        };
        // What makes the elements of each part lie at multiples, so that these can be scaled.
        let scale = only.and_then(|(extent, size)| {
            let lies = parts.lie(extent);
            let is_portable = lies.last() == Some(&Lies::Behind(0));
            (is_portable && bounds.iter().all(|bytes| bytes % extent == 0)).then_some((extent, size, lies))
        });
        let scaled = |bytes: i64| match scale {
            Some((extent, size, _)) => (bytes / extent).checked_mul(size).ok_or(TypeError::TooLarge),
            None => Ok(bytes),
        };
        let behind = |part: &Type| match &scale {
            Some((.., lies)) => match parts.found(lies, part) {
                Lies::Behind(bytes) => bytes,
                _ => 0,
            },
            None => 0,
        };
        let byte = Self::basic(Basic::Byte);
        let mut all: Vec<Type> = vec![];
        for (nth, part) in parts.list.iter().enumerate() {
            all.push(match &part.map {
                Map::Basic(basic) => Self::row(sizes(*basic), 1, &byte)?,
                Map::Same(of) => parts.found(&all, of),
                Map::Copies(list) => {
                    let own = match scale.as_ref().map(|(.., lies)| lies[nth]) {
                        Some(Lies::Behind(bytes)) => bytes,
                        _ => 0,
                    };
                    let copies = |one: &Copies| {
                        let at = one.at.checked_add(behind(&one.of) - own).ok_or(TypeError::TooLarge)?;
                        let (at, of) = (scaled(at)?, parts.found(&all, &one.of));
                        let stride = if one.count > 1 { scaled(one.stride)? } else { 0 };
                        Ok(Copies { at, count: one.count, stride, of })
                    };
                    let list: Vec<Copies> = some(list).map(copies).collect::<Result<_, TypeError>>()?;
                    let bounds = Bounds::of_copies(&list)?;
                    Self::bounded(list, bounds, Combiner::Struct, Contents::default())?
                }
            });
        }
        let Some(made) = all.pop() else { return Ok(of.clone()) };
        let bounds = Bounds { set: Some((scaled(bounds[0])?, scaled(bounds[1])?)), ..made.bounds };
        Ok(Self::same(&made, bounds, Combiner::Resized, Contents::default()))
    }
}

impl Parts<'_> {
    /// Where the elements of each lie, up to multiples of so many bytes.
    fn lie(&self, extent: i64) -> Vec<Lies> {
        let mut all: Vec<Lies> = vec![];
        for part in &self.list {
            all.push(match &part.map {
                Map::Basic(_) => Lies::Behind(0),
                Map::Same(of) => self.found(&all, of),
                Map::Copies(list) => some(list).fold(Lies::Nowhere, |lies, copies| {
                    let one = match self.found(&all, &copies.of) {
                        Lies::Behind(_) if copies.count > 1 && copies.stride % extent != 0 => Lies::Anywhere,
                        Lies::Behind(bytes) => {
                            Lies::Behind((copies.at.rem_euclid(extent) + bytes).rem_euclid(extent))
                        }
                        other => other,
                    };
                    match (lies, one) {
                        (Lies::Nowhere, other) | (other, Lies::Nowhere) => other,
                        (lies, one) if lies == one => lies,
                        _ => Lies::Anywhere,
                    }
                }),
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    /// What is made of many is no larger for that.
    #[test]
    fn a_large_datatype_is_small_in_the_file_too() {
        fn kept(of: &Datatype) -> usize {
            Parts::of(of)
                .list
                .iter()
                .map(|part| if let Map::Copies(list) = &part.map { list.len() } else { 1 })
                .sum()
        }
        let long = Datatype::basic(Basic::Long);
        let vector = Datatype::vector(1 << 20, 1, 3, &long, Width::Small).unwrap();
        let rows = Datatype::hvector(3, 2, 8 << 30, &vector, Width::Small).unwrap();
        for of in [vector, rows] {
            let stored = Datatype::stored(&of, &external).unwrap();
            assert_eq!((stored.size(), stored.extent()), (of.size() / 2, of.extent() / 2));
            assert!(kept(&stored) < 10, "{}", kept(&stored));
        }
    }

    fn datatypes() -> impl Strategy<Value = Type> {
        let basic = |basic| Just(Datatype::basic(basic));
        let leaf = prop_oneof![4 => basic(Basic::Long), 1 => basic(Basic::Char)];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let at = || prop_oneof![3 => (-3_i64..4).prop_map(|n| 8 * n), 1 => -9_i64..10];
            let block = (0_i64..3, at(), inner.clone());
            let blocks = proptest::collection::vec(block, 0..3).prop_map(|blocks| {
                let blocks: Vec<_> =
                    blocks.into_iter().map(|(count, at, of)| (Block { count, at }, of)).collect();
                Datatype::structure(&blocks, Width::Small).unwrap()
            });
            let vector = (0_i64..4, 0_i64..3, at(), inner.clone()).prop_map(|(count, length, stride, of)| {
                Datatype::hvector(count, length, stride, &of, Width::Small).unwrap()
            });
            let resized = (at(), at(), inner)
                .prop_map(|(lower, extent, of)| Datatype::resized(&of, lower, extent, Width::Small).unwrap());
            prop_oneof![2 => blocks, 2 => vector, 1 => resized]
        })
    }

    proptest! {
        /// Element by element: where each is in the file.
        #[test]
        fn elements_lie_where_each_by_itself_would(of in datatypes()) {
            let mut all = vec![];
            let _ = of.each_element::<()>(1, &mut |elements| {
                all.extend((0..elements.count).map(|nth| (elements.at + nth * elements.stride, elements.basic)));
                ControlFlow::Continue(())
            });
            let bounds = [of.lower_bound(), of.lower_bound() + of.extent()];
            let is_portable = all.iter().all(|&(at, basic)| basic == Basic::Long && at % 8 == 0)
                && bounds.iter().all(|bound| bound % 8 == 0);
            let has_longs = all.iter().any(|&(_, basic)| basic == Basic::Long);
            let scaled = |at: i64| if is_portable && has_longs { at / 2 } else { at };
            let expected: Vec<i64> = all
                .iter()
                .flat_map(|&(at, basic)| scaled(at)..scaled(at) + external(basic))
                .collect();
            let stored = Datatype::stored(&of, &external).unwrap();
            let bytes: Vec<i64> = runs(&stored).into_iter().flat_map(|(at, n)| at..at + n as i64).collect();
            prop_assert_eq!(bytes, expected);
            prop_assert_eq!(
                [stored.lower_bound(), stored.lower_bound() + stored.extent()],
                bounds.map(scaled)
            );
            prop_assert_eq!(of.items(), all.len() as i64);
            prop_assert_eq!(of.stored_size(&external), Some(stored.size()));
        }
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
