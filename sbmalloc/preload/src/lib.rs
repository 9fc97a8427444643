//! `libsbmalloc.so`: preloaded by `bdrun`, it serves a program's `malloc`, `new` and large anonymous `mmap`
//! from arenas, attaches the rank, and makes every allocation, and a few calls that programs make all the
//! time, a scheduling point: there the rank may be moved out of RAM and in again, in the middle of its life.
//!
//! It is not needed by programs on the `worker` crate, and does nothing there. Outside `bdrun` it is a plain
//! allocator. It cannot do anything for programs that are linked statically.
//!
//! | module | concept |
//! |---|---|
//! | `malloc` | the C functions |
//! | `cxx` | C++ `new` and `delete` |
//! | `map` | `mmap`, `munmap`, `mremap`, `madvise`, `mprotect`, `mlockall` |
//! | `calls` | other calls that are scheduling points: reading, writing, sleeping |
//! | `signals` | waits for signals: the pager's own is not among them |
//! | `deep` | lookups that pass us by: modules bound deeply, `dlsym` on glibc |
//! | `elf` | symbol tables of loaded objects |
//! | `start` | the first call of all; scheduling points; forks |
//! | `sys` | errno, bare system calls, the functions we stand in for |
//!
//! # What it may rely on
//! Nothing: the dynamic linker and constructors of other libraries call `malloc` before any constructor of
//! ours. So all state is in statics that need no construction, and the start is made by whichever call comes
//! first once the C library is ready. No function in here takes a lock that it holds while calling another
//! library, and a thread that waits at a scheduling point holds none.

mod calls;
mod cxx;
mod deep;
mod elf;
mod malloc;
mod map;
mod signals;
mod start;
mod sys;
