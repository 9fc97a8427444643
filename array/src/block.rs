//! Blocks: what tasks compute.

use std::io;
use std::sync::Arc;

use bdrun_graph::run::{Fill, Lend, Lent, Spill};
use memmap2::MmapMut;

use crate::dtype::{DType, Element, with_type};
use crate::shape::count;

/// Bytes from which on memory comes from the kernel and goes back to it at once: the allocator would keep it,
/// and the budget would be exceeded by what it keeps.
const MAPPED: usize = 128 << 10;

/// Memory of elements of any type: aligned to 8 bytes.
#[derive(Debug)]
enum Memory {
    Words(Vec<u64>),
    Mapped(MmapMut),
    /// Somebody else's, to be read.
    Lent(Lent),
}

#[derive(Debug)]
struct Buffer {
    memory: Memory,
    len: usize,
}

impl Buffer {
    /// Zeros.
    fn new(len: usize) -> io::Result<Self> {
        let memory = if len < MAPPED {
            Memory::Words(vec![0; len.div_ceil(8)])
        } else {
            Memory::Mapped(MmapMut::map_anon(len).map_err(|error| lacks(len, error))?)
        };
        Ok(Self { memory, len })
    }

    fn bytes(&self) -> &[u8] {
        let all = match &self.memory {
            Memory::Words(words) => bytemuck::cast_slice(words),
            Memory::Mapped(map) => &map[..],
            Memory::Lent(lent) => lent.bytes(),
        };
        &all[..self.len]
    }

    /// To be written; none of what is lent.
    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let all = match &mut self.memory {
            Memory::Words(words) => bytemuck::cast_slice_mut(words),
            Memory::Mapped(map) => &mut map[..],
            Memory::Lent(_) => return None,
        };
        Some(&mut all[..self.len])
    }
}

/// The kernel has room for so many mappings of a process, and says of one more that there is no memory.
fn lacks(len: usize, error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return error;
    }
    let why = "no memory for a block of";
    let help =
        "if there is enough, blocks are too many: larger ones (`rechunk`), or a larger vm.max_map_count";
    io::Error::new(io::ErrorKind::OutOfMemory, format!("{why} {len} bytes; {help}"))
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Memory::Mapped(map) = &self.memory {
            // Where there are as many mappings as there can be, one that lies between others cannot be taken
            // out of them. Its pages go back all the same.
            // SAFETY: nobody reads it any more.
            _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }
}

/// Part of an array: elements of one type, in C order. Clones share the elements.
#[derive(Clone, Debug)]
pub struct Block {
    dtype: DType,
    shape: Arc<[usize]>,
    data: Arc<Buffer>,
}

impl Block {
    /// Zeros (of `Bool`: false).
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn zeros(dtype: DType, shape: &[usize]) -> io::Result<Self> {
        // What nobody can have is not asked for.
        let bytes = count(shape).checked_mul(dtype.size()).filter(|&bytes| bytes <= isize::MAX as usize);
        let data = Buffer::new(bytes.ok_or(io::ErrorKind::OutOfMemory)?)?;
        Ok(Self { dtype, shape: shape.into(), data: Arc::new(data) })
    }

    /// Of elements in C order.
    ///
    /// # Errors
    /// If there is no memory for it.
    ///
    /// # Panics
    /// If there are more or fewer elements than the shape has.
    pub fn from_slice<T: Element>(shape: &[usize], elements: &[T]) -> io::Result<Self> {
        let mut block = Self::zeros(T::DTYPE, shape)?;
        block.elements_mut().copy_from_slice(elements);
        Ok(block)
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many there are along each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.data.len / self.dtype.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.data.len == 0
    }

    /// Its elements in C order.
    ///
    /// # Panics
    /// If they are of another type.
    pub fn elements<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.dtype, "elements of a block are of its type");
        bytemuck::cast_slice(self.data.bytes())
    }

    /// Its elements in C order, to be written.
    ///
    /// # Panics
    /// If they are of another type, or a clone of the block is about.
    pub fn elements_mut<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(T::DTYPE, self.dtype, "elements of a block are of its type");
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// Its bytes, as they lie in memory.
    pub fn as_bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Its bytes, to be written.
    ///
    /// # Panics
    /// If a clone of the block is about, or its elements are lent.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let own = Arc::get_mut(&mut self.data).and_then(Buffer::bytes_mut);
        own.expect("who writes a block is the only one to have it")
    }

    /// Whether nobody else has its elements, so that they may be written.
    pub(crate) fn is_own(&mut self) -> bool {
        Arc::get_mut(&mut self.data).is_some_and(|data| data.bytes_mut().is_some())
    }

    /// The same elements in another shape.
    ///
    /// # Panics
    /// If that has more or fewer.
    #[must_use]
    pub fn reshaped(self, shape: &[usize]) -> Self {
        assert_eq!(self.len(), count(shape), "a shape of as many elements");
        Self { shape: shape.into(), ..self }
    }

    /// The element at a place in C order, as text.
    pub fn text(&self, at: usize) -> String {
        with_type!(self.dtype, T => format!("{:?}", self.elements::<T>()[at]))
    }
}

impl bdrun_graph::run::Block for Block {
    fn bytes(&self) -> u64 {
        self.data.len as u64
    }
}

impl Spill for Block {
    type Head = (DType, Arc<[usize]>);

    fn spill(&self) -> (Self::Head, &[u8]) {
        ((self.dtype, self.shape.clone()), self.data.bytes())
    }

    fn restore((dtype, shape): &Self::Head, len: usize, fill: &mut Fill<'_>) -> io::Result<Self> {
        let mut data = Buffer::new(len)?;
        data.bytes_mut().map_or(Ok(()), fill)?;
        Ok(Self { dtype: *dtype, shape: shape.clone(), data: Arc::new(data) })
    }
}

/// Bytes: what all elements are aligned to.
const ALIGNED: usize = 8;

impl Lend for Block {
    /// The type's number, then the lengths of the axes, in eight bytes each.
    fn encode((dtype, shape): &Self::Head) -> Vec<u8> {
        let words = std::iter::once(*dtype as u64).chain(shape.iter().map(|&length| length as u64));
        words.flat_map(u64::to_le_bytes).collect()
    }

    fn decode(head: &[u8]) -> io::Result<Self::Head> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "that is no type and shape of a block");
        let (words, rest) = head.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let number = words.next().filter(|_| rest.is_empty()).ok_or_else(wrong)?;
        let dtype = DType::ALL.get(number as usize).ok_or_else(wrong)?;
        Ok((*dtype, words.map(|length| length as usize).collect()))
    }

    fn borrow((dtype, shape): &Self::Head, bytes: Lent) -> io::Result<Self> {
        let len = bytes.bytes().len();
        let expected = count(shape).checked_mul(dtype.size());
        if expected != Some(len) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a block has the bytes of its shape"));
        }
        if !bytes.bytes().as_ptr().addr().is_multiple_of(ALIGNED) {
            // What is small is told in a message.
            return Self::restore(&(*dtype, shape.clone()), len, &mut |into| {
                into.copy_from_slice(bytes.bytes());
                Ok(())
            });
        }
        let data = Arc::new(Buffer { memory: Memory::Lent(bytes), len });
        Ok(Self { dtype: *dtype, shape: shape.clone(), data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_blocks_hold_what_is_put_there() {
        for count in [0, 5, 100_000] {
            let values: Vec<f64> = (0..count).map(f64::from).collect();
            let mut block = Block::from_slice(&[values.len(), 1], &values).unwrap();
            assert_eq!(block.elements::<f64>(), values);
            assert!(block.is_own());
            let other = block.clone().reshaped(&[1, values.len()]);
            assert!(!block.is_own());
            assert_eq!((other.len(), other.shape()[1]), (values.len(), values.len()));
        }
    }

    #[test]
    fn what_is_lent_is_read_and_never_written() {
        struct Keeper(Vec<u128>, usize);
        impl AsRef<[u8]> for Keeper {
            fn as_ref(&self) -> &[u8] {
                &bytemuck::cast_slice(&self.0)[self.1..][..24]
            }
        }
        let block = Block::from_slice(&[3, 1], &[1_i64, 2, 3]).unwrap();
        let head = Block::decode(&Block::encode(&block.spill().0)).unwrap();
        assert_eq!(head, block.spill().0);
        let keeper = |at: usize| {
            let mut words = vec![0_u128; 3];
            bytemuck::cast_slice_mut::<_, u8>(&mut words)[at..][..24].copy_from_slice(block.as_bytes());
            Arc::new(Keeper(words, at))
        };
        for (at, is_lent) in [(16, true), (3, false)] {
            let kept = keeper(at);
            let mut found = Block::borrow(&head, Lent::new(kept.clone())).unwrap();
            assert_eq!((found.elements::<i64>(), found.shape()), (&[1, 2, 3][..], &[3, 1][..]));
            assert_eq!((found.is_own(), Arc::strong_count(&kept) > 1), (!is_lent, is_lent), "at {at}");
        }
        let few = Block::borrow(&(DType::I64, [4].into()), Lent::new(keeper(0)));
        assert!(few.is_err() && Block::decode(&[9; 8]).is_err() && Block::decode(&[0; 9]).is_err());
    }
}
