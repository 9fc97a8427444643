//! What is done to a member's memory: put, get, accumulate and the rest (MPI-5.0, section 12.3), once it is
//! known where that is. Here nothing is known of processes.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

use bdrun_mpi_core::datatype::{Basic, Type};
use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::operation::{Kernel, Operation};

use crate::failure::Answer;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Bytes are written.
    Put,
    /// Bytes are read.
    Get,
    /// Each element is combined with another, at once; what it was is told if it is wanted.
    Combine { operation: Operation, fetches: bool },
    /// An element becomes another, if it is a third.
    Swap,
}

/// Pieces of memory one behind the other in the order of elements, by their distance from some address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pieces {
    /// The elements of a deed that tells elements apart.
    pub basic: Option<Basic>,
    /// Where each is, and how many bytes, or how many elements.
    pub list: Vec<(i64, u64)>,
}

impl Pieces {
    /// The bytes of so many of a datatype.
    pub fn bytes(of: &Type, count: u64) -> Self {
        let mut list = vec![];
        of.layout().each_run(count, 0, u64::MAX, |at, bytes| list.push((at, bytes)));
        Self { basic: None, list }
    }

    /// Their elements, which must be alike.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE`: they are not.
    pub fn elements(of: &Type, count: u64) -> Answer<Self> {
        let basic = of.uniform().ok_or(Class::Type)?;
        let (extent, mut list) = (basic.extent() as i64, Vec::<(i64, u64)>::new());
        let _ = of.each_element::<()>(count as i64, &mut |some| {
            let is_dense = some.stride == extent || some.count == 1;
            let (pieces, each) = if is_dense { (1, some.count) } else { (some.count, 1) };
            for nth in 0..pieces {
                let at = some.at + nth * some.stride;
                match list.last_mut() {
                    Some((first, n)) if *first + *n as i64 * extent == at => *n += each as u64,
                    _ => list.push((at, each as u64)),
                }
            }
            ControlFlow::Continue(())
        });
        Ok(Self { basic: Some(basic), list })
    }

    /// Of bytes: no more of them than so many.
    pub fn cut(&mut self, bytes: u64) {
        let mut left = bytes;
        self.list.retain_mut(|(_, n)| {
            *n = left.min(*n);
            left -= *n;
            *n > 0
        });
    }

    /// From the first byte to behind the last one; none of nothing.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        let size = self.basic.map_or(1, |basic| basic.extent() as i64);
        let end = |&(at, n): &(i64, u64)| at.saturating_add((n as i64).saturating_mul(size));
        Some((self.list.iter().map(|piece| piece.0).min()?, self.list.iter().map(end).max()?))
    }

    /// Whether something is so of all of them: asked of each only where it is not so of all from the first
    /// byte on.
    pub fn all(&self, so: impl Fn(i64, i64) -> bool) -> bool {
        let size = self.basic.map_or(1, |basic| basic.extent() as i64);
        let is_so = |&(at, n): &(i64, u64)| so(at, at.saturating_add((n as i64).saturating_mul(size)));
        self.bounds().is_none_or(|(from, to)| so(from, to) || self.list.iter().all(is_so))
    }

    /// How many bytes are moved each way.
    pub fn total(&self) -> u64 {
        let size = self.basic.map_or(1, |basic| basic.size() as u64);
        self.list.iter().map(|piece| piece.1 * size).sum()
    }

    /// Does it to the pieces from `base` on, with the bytes that came for it; what is told of it, if anything
    /// is, goes behind `told`. `busy` keeps those apart who cannot do it to an element in one step.
    ///
    /// # Safety
    /// The pieces are memory that programs use as windows are used: others write there as this does, or not
    /// at the same time.
    pub unsafe fn apply(
        &self,
        deed: Deed,
        base: *mut u8,
        busy: &AtomicU64,
        came: &[u8],
        told: &mut Vec<u8>,
    ) -> Answer<()> {
        let mut came = came;
        let mut take = |n: usize| came.split_off(..n).ok_or(Class::Internal);
        for &(at, n) in &self.list {
            let (at, n) = (base.wrapping_offset(at as isize), n as usize);
            match deed {
                // SAFETY: the caller's: the piece is there.
                Deed::Put => unsafe { std::ptr::copy_nonoverlapping(take(n)?.as_ptr(), at, n) },
                Deed::Get => {
                    told.reserve(n);
                    // SAFETY: as above, and there is room.
                    unsafe {
                        std::ptr::copy_nonoverlapping(at, told.as_mut_ptr().add(told.len()), n);
                        told.set_len(told.len() + n);
                    }
                }
                Deed::Combine { operation, fetches } => {
                    let basic = self.basic.ok_or(Class::Internal)?;
                    let element = Element::new(basic);
                    let kernel = operation.kernel(basic).ok_or(Class::Op)?;
                    for nth in 0..n {
                        let at = at.wrapping_add(nth * basic.extent());
                        let operand = match operation {
                            Operation::Nothing => None,
                            _ => Some(element.unpacked(take(basic.size())?)),
                        };
                        // SAFETY: the caller's: the element is there.
                        let old = unsafe {
                            element.change(at, busy, &mut |new| {
                                if let Some(operand) = &operand {
                                    element.combine(kernel, operand, new);
                                }
                            })
                        };
                        if fetches {
                            element.pack(&old, told);
                        }
                    }
                }
                Deed::Swap => {
                    let element = Element::new(self.basic.ok_or(Class::Internal)?);
                    let size = element.basic.size();
                    for nth in 0..n {
                        let (new, expected) = (element.unpacked(take(size)?), element.unpacked(take(size)?));
                        let at = at.wrapping_add(nth * element.basic.extent());
                        // SAFETY: as above.
                        let old = unsafe {
                            element.change(at, busy, &mut |value| {
                                if *value == expected {
                                    *value = new;
                                }
                            })
                        };
                        element.pack(&old, told);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Room for the largest element.
type Value = [u64; 4];

/// Elements, one at a time.
struct Element {
    basic: Basic,
}

impl Element {
    const fn new(basic: Basic) -> Self {
        Self { basic }
    }

    /// Where its numbers are in memory, and as they are sent.
    fn parts(&self) -> [(usize, usize); 2] {
        let (first, second) = self.basic.elements();
        let second = second.map_or(0, |second| second.size());
        [(0, first.size()), (self.basic.second_at(), second)]
    }

    fn unpacked(&self, bytes: &[u8]) -> Value {
        let mut value = Value::default();
        let mut from = 0;
        for (at, n) in self.parts() {
            // SAFETY: an element fits into a value.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes[from..from + n].as_ptr(),
                    value.as_mut_ptr().cast::<u8>().add(at),
                    n,
                );
            }
            from += n;
        }
        value
    }

    fn pack(&self, value: &Value, to: &mut Vec<u8>) {
        for (at, n) in self.parts() {
            // SAFETY: as above.
            to.extend_from_slice(unsafe {
                std::slice::from_raw_parts(value.as_ptr().cast::<u8>().add(at), n)
            });
        }
    }

    fn combine(&self, kernel: Kernel, operand: &Value, with: &mut Value) {
        // SAFETY: both have room for an element.
        unsafe { kernel(operand.as_ptr().cast(), with.as_mut_ptr().cast(), 1) }
    }

    /// Changes an element so that nobody sees anything between; what it was.
    ///
    /// # Safety
    /// It is there, and others who write it do so here.
    unsafe fn change(&self, at: *mut u8, busy: &AtomicU64, f: &mut dyn FnMut(&mut Value)) -> Value {
        macro_rules! in_one_step {
            ($atomic:ident, $number:ty) => {{
                // SAFETY: the caller's: it is there, and aligned (below).
                let word = unsafe { $atomic::from_ptr(at.cast::<$number>()) };
                let mut old = word.load(SeqCst);
                loop {
                    let mut value = Value::default();
                    value[0] = u64::from(old);
                    f(&mut value);
                    match word.compare_exchange_weak(old, value[0] as $number, SeqCst, SeqCst) {
                        Ok(_) => break,
                        Err(now) => old = now,
                    }
                }
                let mut value = Value::default();
                value[0] = u64::from(old);
                value
            }};
        }
        let size = self.basic.extent();
        match size {
            1 => in_one_step!(AtomicU8, u8),
            2 if at.addr().is_multiple_of(2) => in_one_step!(AtomicU16, u16),
            4 if at.addr().is_multiple_of(4) => in_one_step!(AtomicU32, u32),
            8 if at.addr().is_multiple_of(8) => in_one_step!(AtomicU64, u64),
            _ => {
                let _alone = Alone::begin(busy);
                let mut old = Value::default();
                // SAFETY: the caller's; nobody else is here.
                unsafe { std::ptr::copy_nonoverlapping(at, old.as_mut_ptr().cast(), size) };
                let mut new = old;
                f(&mut new);
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(new.as_ptr().cast(), at, size) };
                old
            }
        }
    }
}

/// Until it is dropped nobody else changes an element that takes more than a step.
struct Alone<'a>(&'a AtomicU64);

impl<'a> Alone<'a> {
    fn begin(busy: &'a AtomicU64) -> Self {
        let mut times = 0;
        while busy.compare_exchange_weak(0, 1, SeqCst, SeqCst).is_err() {
            // It takes nanoseconds, unless who does it was stopped meanwhile.
            times += 1;
            if times < 100 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        }
        Self(busy)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}
