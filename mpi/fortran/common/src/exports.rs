//! What the libraries export.

use std::cell::UnsafeCell;
use std::ffi::c_void;

/// A `COMMON` block of which only the address is looked at. A program has one of its own by that name, and so
/// that is the address for all.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Common<const BYTES: usize>(UnsafeCell<[u8; BYTES]>);

// SAFETY: it is neither read nor written. The cell puts it where Fortran has its blocks.
unsafe impl<const BYTES: usize> Sync for Common<BYTES> {}

impl<const BYTES: usize> Default for Common<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const BYTES: usize> Common<BYTES> {
    /// One of zeros.
    #[must_use]
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; BYTES]))
    }

    /// The address of what is in it so many bytes from its start.
    #[must_use]
    pub const fn at(&self, offset: usize) -> *const c_void {
        self.0.get().cast_const().cast::<c_void>().wrapping_byte_add(offset)
    }
}

/// Functions under further names: each is a jump, whatever the arguments are.
#[macro_export]
macro_rules! exports {
    ($($name:ident $function:ident)*) => {
        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!("jmp {}", sym $function);
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!("b {}", sym $function);
            }
        )*
    };
}
