//! Functions in Fortran that C calls where it passes nothing of the program's along: for each there is a
//! function here that only calls that one. A program has few; one that is given again is the same.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// So many functions of a kind can be known.
pub const MOST: usize = 256;

/// The functions of a kind.
#[derive(Debug)]
pub struct Pool([AtomicPtr<c_void>; MOST]);

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; MOST])
    }

    /// The place of a function, unless there are too many.
    #[must_use]
    pub fn place(&self, function: *mut c_void) -> Option<usize> {
        self.0.iter().position(|place| {
            let free = ptr::null_mut();
            match place.compare_exchange(free, function, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => true,
                Err(other) => other == function,
            }
        })
    }

    /// The function of a place.
    #[must_use]
    pub fn get(&self, place: usize) -> *mut c_void {
        self.0[place].load(Ordering::Acquire)
    }
}

/// A module with a pool of functions of these arguments. `of` gives, for one in Fortran, what C is given.
#[macro_export]
macro_rules! pool {
    ($name:ident($($argument:ident: $type:ty),*) |$function:ident| $body:block) => {
        mod $name {
            #[allow(unused_imports, reason = "what the arguments are made of")]
            use super::*;

            static POOL: $crate::pool::Pool = $crate::pool::Pool::new();

            type Call = unsafe extern "C" fn($($type),*);

            unsafe extern "C" fn call<const PLACE: usize>($($argument: $type),*) {
                let $function = POOL.get(PLACE);
                $body
            }

            const CALLS: [[Call; 16]; 16] = $crate::pool!(rows call);

            /// What C is given instead of a function.
            pub fn of(function: *mut std::ffi::c_void) -> Option<*mut std::ffi::c_void> {
                POOL.place(function).map(|place| CALLS[place / 16][place % 16] as *mut std::ffi::c_void)
            }
        }
    };
    (rows $call:ident) => {
        [
            $crate::pool!(row $call 0), $crate::pool!(row $call 1), $crate::pool!(row $call 2),
            $crate::pool!(row $call 3), $crate::pool!(row $call 4), $crate::pool!(row $call 5),
            $crate::pool!(row $call 6), $crate::pool!(row $call 7), $crate::pool!(row $call 8),
            $crate::pool!(row $call 9), $crate::pool!(row $call 10), $crate::pool!(row $call 11),
            $crate::pool!(row $call 12), $crate::pool!(row $call 13), $crate::pool!(row $call 14),
            $crate::pool!(row $call 15),
        ]
    };
    (row $call:ident $row:literal) => {
        [
            $call::<{ $row * 16 }>, $call::<{ $row * 16 + 1 }>, $call::<{ $row * 16 + 2 }>,
            $call::<{ $row * 16 + 3 }>, $call::<{ $row * 16 + 4 }>, $call::<{ $row * 16 + 5 }>,
            $call::<{ $row * 16 + 6 }>, $call::<{ $row * 16 + 7 }>, $call::<{ $row * 16 + 8 }>,
            $call::<{ $row * 16 + 9 }>, $call::<{ $row * 16 + 10 }>, $call::<{ $row * 16 + 11 }>,
            $call::<{ $row * 16 + 12 }>, $call::<{ $row * 16 + 13 }>, $call::<{ $row * 16 + 14 }>,
            $call::<{ $row * 16 + 15 }>,
        ]
    };
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;

    crate::pool! {
        sums(to: *mut c_int, by: c_int) |function| {
            // SAFETY: the test's: that is its type.
            let function: extern "C" fn(*mut c_int, *const c_int) = unsafe { std::mem::transmute(function) };
            function(to, &raw const by);
        }
    }

    extern "C" fn adds(to: *mut c_int, by: *const c_int) {
        // SAFETY: the test's: numbers.
        unsafe { *to += *by }
    }

    extern "C" fn takes(to: *mut c_int, by: *const c_int) {
        // SAFETY: the test's: numbers.
        unsafe { *to -= *by }
    }

    #[test]
    fn each_function_is_called_by_one_of_its_own() {
        let place = |function: extern "C" fn(*mut c_int, *const c_int)| sums::of(function as *mut _);
        let (first, second) = (place(adds).expect("room"), place(takes).expect("room"));
        assert_ne!(first, second);
        assert_eq!(place(adds), Some(first));
        let mut number = 10;
        for (function, by) in [(first, 5), (second, 7), (first, 1)] {
            // SAFETY: the type of the pool's functions.
            let function: unsafe extern "C" fn(*mut c_int, c_int) = unsafe { std::mem::transmute(function) };
            // SAFETY: a number.
            unsafe { function(&raw mut number, by) };
        }
        assert_eq!(number, 9);
    }

    #[test]
    fn there_is_an_end() {
        let pool = super::Pool::new();
        let at = |number: usize| std::ptr::without_provenance_mut(number);
        for number in 1..=super::MOST {
            assert_eq!(pool.place(at(number)), Some(number - 1));
        }
        assert_eq!((pool.place(at(7)), pool.place(at(9999)), pool.get(6)), (Some(6), None, at(7)));
    }
}
