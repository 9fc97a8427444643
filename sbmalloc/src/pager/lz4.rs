//! The codec: blocks of LZ4, by its C library. Nothing in here allocates: what the library works with is
//! given to it, because the pager runs in the middle of `malloc`.

use std::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    // Part of the library's stable interface, but not among what `lz4-sys` declares.
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        source: *const c_char,
        dest: *mut c_char,
        source_size: c_int,
        dest_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
}

/// What compression works with: a table of 16 KiB. Its content between calls means nothing.
#[repr(align(64))]
pub(crate) struct State([u8; State::SIZE]);

impl State {
    const SIZE: usize = (16 << 10) + 64;

    pub const fn new() -> Self {
        Self([0; Self::SIZE])
    }

    /// Whether it is large enough for the library, which could have been built otherwise.
    pub fn is_enough() -> bool {
        // SAFETY: no preconditions.
        usize::try_from(unsafe { LZ4_sizeofState() }).is_ok_and(|size| size <= Self::SIZE)
    }

    /// Compresses `from` into `to`: the bytes used of it, `None` if they are too few.
    pub fn compress(&mut self, from: &[u8], to: &mut [u8]) -> Option<usize> {
        let (len, room) = (c_int::try_from(from.len()).ok()?, c_int::try_from(to.len()).ok()?);
        let (state, from, to) = (self.0.as_mut_ptr(), from.as_ptr(), to.as_mut_ptr());
        // SAFETY: the slices have these lengths, the state is aligned to 8 bytes and as large as `is_enough`
        // says, which is asked before memory is packed at all; the library writes no more than `room` bytes.
        let used = unsafe { LZ4_compress_fast_extState(state.cast(), from.cast(), to.cast(), len, room, 1) };
        usize::try_from(used).ok().filter(|&used| used > 0)
    }
}

/// Decompresses `from`, which may be anything, into `to`, at most `room` bytes: how many there are; `None` if
/// it is no block of LZ4, or too long. All of `room` may have been written.
///
/// # Safety
/// `to` is writable for `room` bytes.
pub(super) unsafe fn decompress(from: &[u8], to: *mut u8, room: usize) -> Option<usize> {
    let (len, room) = (c_int::try_from(from.len()).ok()?, c_int::try_from(room).ok()?);
    // SAFETY: the slice has this length, `to` by this function's contract; the library checks every length it
    // finds against both.
    let used = unsafe { lz4_sys::LZ4_decompress_safe(from.as_ptr().cast(), to.cast(), len, room) };
    usize::try_from(used).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_state_is_large_enough() {
        assert!(State::is_enough());
        // SAFETY: no preconditions.
        assert!(unsafe { LZ4_sizeofState() } > 16 << 10, "16 KiB and a head");
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(
            words in prop::collection::vec(0u16..9, 1..20_000),
            room in 0usize..50_000,
        ) {
            let from: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let mut packed = vec![0; room];
            let mut state = State::new();
            if let Some(used) = state.compress(&from, &mut packed) {
                let mut back = vec![7; from.len() + 1];
                // SAFETY: the vector's length.
                let n = unsafe { decompress(&packed[..used], back.as_mut_ptr(), from.len()) };
                prop_assert_eq!(n, Some(from.len()));
                prop_assert!(back[..from.len()] == from && back[from.len()] == 7);
                // SAFETY: as above.
                let n = unsafe { decompress(&packed[..used], back.as_mut_ptr(), from.len() - 1) };
                prop_assert_eq!(n, None, "no room");
            } else {
                prop_assert!(room < from.len() + from.len() / 255 + 16);
            }
        }

        #[test]
        fn anything_may_be_decompressed(bytes in prop::collection::vec(any::<u8>(), 0..3000), room in 0usize..5000) {
            let mut to = vec![9u8; room + 64];
            // SAFETY: the vector's length.
            let n = unsafe { decompress(&bytes, to.as_mut_ptr(), room) };
            prop_assert!(n.is_none_or(|n| n <= room));
            prop_assert!(to[room..].iter().all(|&b| b == 9), "written beyond");
        }
    }
}
