//! Elements in a program's memory: what communication moves.

use bdrun_mpi_core::datatype::{Basic, Datatype as Tree, Type};
use bdrun_mpi_core::error::Class;

use crate::Mpi;
use crate::args::Buffer;
use crate::failure::Answer;
use crate::handle::Datatype;

/// So many elements of a datatype in the program's memory. The datatype lives as long as this, though its
/// handle may be freed.
#[derive(Debug, Clone)]
pub struct Span {
    at: *mut u8,
    count: u64,
    /// So many bytes of the first element are not meant.
    skips: u64,
    bytes: u64,
    of: Type,
}

// SAFETY: the program leaves its buffer alone until an operation is complete, and any thread may complete it.
unsafe impl Send for Span {}
// SAFETY: as above; of one operation at a time.
unsafe impl Sync for Span {}

impl Mpi {
    /// How far elements of a datatype are from each other.
    pub(crate) fn extent(&self, datatype: Datatype) -> Answer<i64> {
        Ok(self.types.committed(datatype)?.extent())
    }

    /// The elements that a call was given.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE`: the datatype is none, or not committed; `MPI_ERR_COUNT`: the count is negative;
    /// `MPI_ERR_BUFFER`: `MPI_IN_PLACE`, or nothing where something must be; `MPI_ERR_VALUE_TOO_LARGE`: more
    /// bytes than there are addresses.
    pub(crate) fn span(&self, buffer: Buffer, count: i64, datatype: Datatype) -> Answer<Span> {
        let of = self.types.committed(datatype)?;
        let count = u64::try_from(count).map_err(|_| Class::Count)?;
        let Buffer::At(at) = buffer else { return Err(Class::Buffer.into()) };
        let bytes = count.checked_mul(of.size() as u64).filter(|&bytes| i64::try_from(bytes).is_ok());
        let bytes = bytes.ok_or(Class::ValueTooLarge)?;
        // From MPI_BOTTOM on there are addresses, none of which is null.
        if at.is_null() && bytes > 0 && of.true_lower_bound() == 0 {
            return Err(Class::Buffer.into());
        }
        Ok(Span { at, count, skips: 0, bytes, of })
    }
}

impl Span {
    /// How many bytes are moved.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many elements.
    pub const fn count(&self) -> i64 {
        self.count as i64
    }

    /// Where the buffer is, from which the datatype counts.
    pub const fn at(&self) -> *mut u8 {
        self.at
    }

    /// The datatype.
    pub const fn of(&self) -> &Type {
        &self.of
    }

    /// Some of the elements.
    pub fn part(&self, from: i64, count: i64) -> Self {
        let by = from.wrapping_mul(self.of.extent());
        self.elsewhere(self.at.wrapping_offset(by as isize), count)
    }

    /// Some of the bytes, in the order in which they are moved. They may begin and end within an element.
    pub fn bytes_part(&self, from: u64, bytes: u64) -> Self {
        let size = self.of.size() as u64;
        let Some(first) = from.checked_div(size) else { return self.part(0, 0) };
        let skips = from % size;
        let count = (skips + bytes).div_ceil(size);
        Self { skips, bytes, ..self.part(first as i64, count as i64) }
    }

    /// So many elements of the same datatype somewhere else.
    pub fn elsewhere(&self, at: *mut u8, count: i64) -> Self {
        self.like(self.of.clone(), at, count.max(0) as u64)
    }

    /// So many elements of another datatype somewhere else.
    pub fn like(&self, of: Type, at: *mut u8, count: u64) -> Self {
        Self { at, count, skips: 0, bytes: count * of.size() as u64, of }
    }

    /// Bytes somewhere else.
    pub fn bytes_at(&self, at: *mut u8, bytes: u64) -> Self {
        self.like(Tree::basic(Basic::Byte), at, bytes)
    }

    /// Where all of its bytes are, if they lie one behind the other in the order in which they are moved:
    /// they need not be packed.
    pub fn contiguous(&self) -> Option<*mut u8> {
        let at = self.of.layout().contiguous(self.count)?;
        Some(self.at.wrapping_offset(at as isize).wrapping_add(self.skips as usize))
    }

    /// Copies the bytes from `from` on one behind the other into `into`; how many.
    ///
    /// # Safety
    /// The memory is what the program said it is, and nobody writes it meanwhile.
    pub unsafe fn pack(&self, from: u64, into: &mut [u8]) -> usize {
        // SAFETY: the caller's.
        unsafe { self.of.layout().pack(self.at, self.count, self.skips + from, into) }
    }

    /// Copies `bytes` to where the bytes from `from` on belong; how many.
    ///
    /// # Safety
    /// The memory is what the program said it is, and nobody else uses it meanwhile.
    pub unsafe fn unpack(&self, from: u64, bytes: &[u8]) -> usize {
        // SAFETY: the caller's.
        unsafe { self.of.layout().unpack(self.at, self.count, self.skips + from, bytes) }
    }
}
