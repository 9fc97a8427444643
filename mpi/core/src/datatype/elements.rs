//! The elements of a datatype in the order of its type map.

use std::ops::ControlFlow;

use super::{Basic, Copies, Datatype, Map};

/// Predefined datatypes at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// Where the first is, bytes.
    pub at: i64,
    /// What they are.
    pub basic: Basic,
    /// How many.
    pub count: i64,
    /// From one to the next, bytes.
    pub stride: i64,
}

impl Datatype {
    /// Calls `f` with the elements of `count` of them, in order, until it breaks.
    pub fn each_element<B>(
        &self,
        count: i64,
        f: &mut dyn FnMut(Elements) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.copies(0, count, self.extent(), f)
    }

    fn copies<B>(
        &self,
        at: i64,
        count: i64,
        stride: i64,
        f: &mut dyn FnMut(Elements) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match &self.map {
            _ if count <= 0 => ControlFlow::Continue(()),
            Map::Basic(basic) => f(Elements { at, basic: *basic, count, stride }),
            Map::Same(of) => of.copies(at, count, stride, f),
            Map::Copies(list) => {
                for nth in 0..count {
                    for Copies { at: inside, count, stride: step, of } in list {
                        of.copies(at + nth * stride + inside, *count, *step, f)?;
                    }
                }
                ControlFlow::Continue(())
            }
        }
    }

    /// How many elements (of a pair, two) lie in the first `bytes` bytes of what is sent of it, as
    /// `MPI_Get_elements` tells; `None` if the last is not whole.
    #[must_use]
    pub fn elements_in(&self, bytes: i64) -> Option<i64> {
        if self.size == 0 {
            return (bytes == 0).then_some(0);
        }
        let (whole, mut left) = (bytes / self.size, bytes % self.size);
        let mut found = whole.checked_mul(self.elements)?;
        if left == 0 {
            return Some(found);
        }
        let _ = self.each_element(1, &mut |elements| {
            let (first, second) = elements.basic.elements();
            let size = elements.basic.size() as i64;
            let each = 1 + i64::from(second.is_some());
            let fit = elements.count.min(left / size);
            found += fit * each;
            left -= fit * size;
            if fit < elements.count {
                let first = first.size() as i64;
                if second.is_some() && left >= first {
                    found += 1;
                    left -= first;
                }
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        (left == 0).then_some(found)
    }

    /// The inverse: how many bytes so many elements have; `None` if that is too many to say.
    #[must_use]
    pub fn bytes_of(&self, elements: i64) -> Option<i64> {
        if self.elements == 0 {
            return (elements == 0).then_some(0);
        }
        let (whole, mut left) = (elements / self.elements, elements % self.elements);
        let mut bytes = whole.checked_mul(self.size)?;
        if left == 0 {
            return Some(bytes);
        }
        let _ = self.each_element(1, &mut |elements| {
            let (first, second) = elements.basic.elements();
            let each = 1 + i64::from(second.is_some());
            let fit = elements.count.min(left / each);
            bytes += fit * elements.basic.size() as i64;
            left -= fit * each;
            if fit < elements.count {
                bytes += left * first.size() as i64;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        Some(bytes)
    }
}
