//! The representation "external32" (MPI-5.0, section 14.5.2): big-endian, with sizes of its own.

use std::ops::ControlFlow;

use super::{Datatype, Elements, Scalar};

impl Datatype {
    /// Bytes of one in this representation; `None` if that is too many to say.
    #[must_use]
    pub fn external_size(&self) -> Option<i64> {
        self.weighed(&|basic| {
            let (first, second) = basic.external_sizes();
            (first + second) as i64
        })
    }

    /// Adds `count` of them at `buffer` to `into`.
    ///
    /// # Safety
    /// What the datatype says of `count` of them at `buffer` can be read, and nobody writes it meanwhile.
    pub unsafe fn pack_external(&self, buffer: *const u8, count: i64, into: &mut Vec<u8>) {
        let mut all = |bytes: &mut Vec<u8>| {
            into.append(bytes);
            true
        };
        // SAFETY: the caller's promise.
        unsafe { self.each_external(buffer, count, PIECE, &mut all) };
    }

    /// Calls `f` with the bytes of `count` of them at `buffer`, hardly more than `most` at a time, until it
    /// wants no more.
    ///
    /// # Safety
    /// As of [`pack_external`](Self::pack_external).
    pub unsafe fn each_external(
        &self,
        buffer: *const u8,
        count: i64,
        most: usize,
        f: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) {
        let mut packed = vec![];
        let all = self.each_element::<()>(count, &mut |elements| {
            each_number(elements, |at, scalar, bytes| {
                let mut native = [0; 32];
                let native = &mut native[..scalar.size()];
                // SAFETY: the caller's promise.
                unsafe { copy(buffer.wrapping_offset(at as isize), native.as_mut_ptr(), native.len()) };
                write(scalar, native, bytes, &mut packed);
                if packed.len() >= most {
                    let goes_on = f(&mut packed);
                    packed.clear();
                    return if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
                }
                ControlFlow::Continue(())
            })
        });
        if all.is_continue() && !packed.is_empty() {
            f(&mut packed);
        }
    }

    /// Puts as many as `bytes` has of `count` of them to where they belong at `buffer`; how many bytes were
    /// used.
    ///
    /// # Safety
    /// What the datatype says of `count` of them at `buffer` can be written, and nobody else uses it
    /// meanwhile.
    pub unsafe fn unpack_external(&self, buffer: *mut u8, count: i64, bytes: &[u8]) -> usize {
        let mut left = bytes;
        let mut more = |into: &mut [u8]| {
            let (next, rest) = left.split_at(into.len().min(left.len()));
            into[..next.len()].copy_from_slice(next);
            left = rest;
            next.len()
        };
        // SAFETY: the caller's promise.
        unsafe { self.fill_external(buffer, count, bytes.len().clamp(1, PIECE), &mut more) }
    }

    /// The same of what `more` puts to where it is told, `most` bytes at a time; where those are fewer there
    /// is no more.
    ///
    /// # Safety
    /// As of [`unpack_external`](Self::unpack_external).
    pub unsafe fn fill_external(
        &self,
        buffer: *mut u8,
        count: i64,
        most: usize,
        more: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> usize {
        // What was got, from where on it was not used, and whether there may be more.
        let (mut got, mut at, mut is_all) = (vec![], 0, false);
        let mut used = 0;
        let _ = self.each_element::<()>(count, &mut |elements| {
            each_number(elements, |place, scalar, size| {
                if got.len() - at < size && !is_all {
                    got.drain(..at);
                    let had = got.len();
                    got.resize(had + most.max(size), 0);
                    let come = more(&mut got[had..]);
                    is_all = had + come < got.len();
                    got.truncate(had + come);
                    at = 0;
                }
                let Some(external) = got.get(at..at + size) else { return ControlFlow::Break(()) };
                let mut native = [0; 32];
                let native = &mut native[..scalar.size()];
                read(scalar, external, native);
                (at, used) = (at + size, used + size);
                // SAFETY: the caller's promise.
                unsafe { copy(native.as_ptr(), buffer.wrapping_offset(place as isize), native.len()) };
                ControlFlow::Continue(())
            })
        });
        used
    }
}

/// So many bytes are converted at a time where all are there.
const PIECE: usize = 64 << 10;

/// # Safety
/// As of [`std::ptr::copy_nonoverlapping`].
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Each number, where it is, and its size in this representation, until `f` breaks.
fn each_number(
    elements: Elements,
    mut f: impl FnMut(i64, Scalar, usize) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Elements { at, basic, count, stride } = elements;
    let ((first, second), sizes) = (basic.elements(), basic.external_sizes());
    for nth in 0..count {
        let at = at + nth * stride;
        f(at, first, sizes.0)?;
        if let Some(second) = second {
            f(at + basic.second_at() as i64, second, sizes.1)?;
        }
    }
    ControlFlow::Continue(())
}

/// A number of this machine to one of `bytes` bytes.
fn write(scalar: Scalar, native: &[u8], bytes: usize, into: &mut Vec<u8>) {
    for word in native.chunks(scalar.word()) {
        let mut big = word.to_vec();
        if is_extended(scalar) {
            big = quad(word).to_le_bytes().to_vec();
        }
        if cfg!(target_endian = "little") {
            big.reverse();
        }
        // What is narrower there loses its highest bytes.
        let narrower = big.len().saturating_sub(bytes);
        into.extend(&big[narrower..]);
    }
}

/// The inverse.
fn read(scalar: Scalar, external: &[u8], native: &mut [u8]) {
    let words = native.len() / scalar.word();
    let signed = matches!(scalar, Scalar::Int(_));
    for (word, big) in native.chunks_mut(scalar.word()).zip(external.chunks(external.len() / words)) {
        // What is wider here is extended, by its sign if it has one.
        let fill = if signed && big[0] & 0x80 != 0 { 0xff } else { 0 };
        let mut wide = vec![fill; word.len() - big.len()];
        wide.extend(big);
        if cfg!(target_endian = "little") {
            wide.reverse();
        }
        if is_extended(scalar) {
            let bytes: [u8; 16] = wide[..].try_into().expect("sixteen bytes");
            wide = extended(u128::from_le_bytes(bytes)).to_vec();
        }
        word.copy_from_slice(&wide);
    }
}

/// `long double` of x86: 80 bits, with an explicit first bit.
fn is_extended(scalar: Scalar) -> bool {
    cfg!(target_arch = "x86_64") && matches!(scalar, Scalar::Float(16) | Scalar::Complex(32))
}

/// One of 80 bits as one of IEEE's 128.
fn quad(extended: &[u8]) -> u128 {
    let fraction = u64::from_le_bytes(extended[..8].try_into().expect("eight bytes"));
    let high = u16::from_le_bytes([extended[8], extended[9]]);
    // The first bit is implied there; both count exponents from the same.
    (u128::from(high) << 112) | (u128::from(fraction & !(1 << 63)) << 49)
}

/// The inverse; what does not fit is cut off.
fn extended(quad: u128) -> [u8; 16] {
    let high = (quad >> 112) as u16;
    let mut fraction = ((quad << 16) >> 65) as u64 & !(1 << 63);
    let is_normal = high & 0x7fff != 0;
    // No number stays none: without a fraction it would be infinity.
    if high & 0x7fff == 0x7fff && fraction == 0 && quad << 16 != 0 {
        fraction = 1 << 62;
    }
    let fraction = fraction | (u64::from(is_normal) << 63);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&fraction.to_le_bytes());
    bytes[8..10].copy_from_slice(&high.to_le_bytes());
    bytes
}
