//! Memory that lives on storage.
//!
//! An *arena* is a large range of addresses with a scratch file beside it. What was put into it can be moved
//! out of RAM and in again by the process itself, at a moment of the runtime's choosing ([`pager::evict`],
//! [`pager::restore`]; in part [`pager::evict_to`], [`pager::restore_for`]), with large direct transfers of
//! what changed, of what was used the last times. While it is out it stays legal to touch, for threads and
//! for system calls: the kernel reads it back from the file page by page, and keeps what is written. On
//! arenas there are a general heap ([`SbHeap`], for `#[global_allocator]`), an allocator for collections
//! ([`SbAlloc`]), a vector ([`SbVec`]) and a box ([`SbBox`]). Every byte committed is charged to an
//! [`Account`] first. What is known of the content can be told: [`discard`], [`advise`].
//!
//! ```
//! use sbmalloc::{SbVec, pager};
//! let mut table: SbVec<u64> = (0..1 << 20).collect(); // 8 MiB
//! // SAFETY: only threads write to what is moved.
//! let out = unsafe { pager::evict() }?;
//! assert!(out.freed_or_filled >= 8 << 20); // bytes of RAM given back
//! assert_eq!(table[12_345], 12_345); // out, and legal to touch
//! table[0] = 7;
//! // SAFETY: as above.
//! unsafe { pager::restore() }?;
//! assert_eq!((table[0], table[1]), (7, 1));
//! # Ok::<(), pager::PagerError>(())
//! ```
//!
//! Under `bdrun` the runtime calls the pager while the program waits in a communication call; a program calls
//! it itself only if it runs without.
//!
//! It is *not* a swap daemon: nothing is moved unless somebody calls the pager, and nothing of a process but
//! its arenas is moved (stacks, static data and memory of other allocators stay). It is not persistent:
//! scratch files are unlinked from birth. It does not decide who is evicted; the runtime does.
//!
//! # What must be known
//! - Sizes are in bytes. Moving goes by granules of 2 MiB ([`GRANULE`]), what changed is told by blocks of 64
//!   KiB ([`CHUNK`]), charging goes by pages of 4 KiB ([`PAGE`]).
//! - Pointers stay valid: memory never changes its address by being moved.
//! - All other threads stand still while memory is moved; one that blocks all signals makes moving
//!   impossible, which is reported and changes nothing ([`pager::PagerError::ThreadsBusy`]).
//! - **Transfers that no thread waits for are not seen**: while the kernel reads into arena memory by
//!   io_uring, `io_submit` or similar, that memory must not be moved, or what it reads is lost. Wait for them
//!   before a blocking call of the runtime, or give them buffers of another allocator. `read(2)`, `recv(2)`
//!   and the like are always right.
//!
//! # Modules
//! | module | concept |
//! |---|---|
//! | `arena` | the range of addresses: reservation, runs of 64 KiB chunks, discarding, handles, statistics |
//! | `set` | the arenas that move together |
//! | `account` | who pays |
//! | `heap` | small blocks (mimalloc on an arena) and large runs; [`SbHeap`], [`raw`] |
//! | [`mapping`] | memory that a program maps itself, for the preloaded library; `protection`: guard pages and the like in it |
//! | [`fork`] | what a process with threads does around a fork: the place of every lock |
//! | `alloc_api`, `collections`, `boxed` | [`SbAlloc`], [`SbVec`], [`SbBox`] |
//! | `advice` | [`discard`], [`advise`] |
//! | [`pager`] | evict and restore: `plan` and `history` decide, `own` carries out, `out` and `back` transfer, `look` and `pagemap` see what was touched, `fault` says why a touch ended the process, `fork` |
//! | [`other`] | the memory of other processes, moved from outside |
//! | `tracker` | which blocks may be dirty: `hash`, `uffd`; `choose`: which of them |
//! | `store` | the scratch file: direct, buffered, in memory; `queue`: transfers beside hashing and verifying |
//! | `staging` | memory that is filled beside and moved over its place |
//! | `threads`, `status` | stopping the other threads |
//! | `config`, `lock`, `sys` | settings, a lock that never allocates, system calls |
//!
//! # Forks
//! A child that only execs is fine. Before any other fork (`pthread_atfork`) what is out of the process is
//! brought in, over the budget if need be: a child that goes on then gets a scratch file of its own at its
//! first evict. What cannot be brought in then, the child brings in for itself while its parent waits, or
//! ends (122). Arenas of other sets are not: a child of a process of which some were out reads its parent's
//! scratch file, would see what the parent writes there later, and has its evicts refused. Restore such sets
//! before forking.

#![cfg(target_os = "linux")]

/// Its example is a test too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod account;
mod advice;
mod alloc_api;
mod arena;
mod boxed;
mod checksum;
mod collections;
mod config;
pub mod fork;
mod heap;
mod lock;
pub mod mapping;
pub mod pager;
mod protection;
mod scan;
pub mod raw {
    //! The heap by address, for those who export it as `malloc`.
    pub use crate::heap::{
        alloc, alloc_zeroed, free, free_owned, give_back_at_once, owns, realloc, trim, usable_size,
    };
}
mod set;
mod staging;
mod status;
mod store;
mod sys;
mod threads;
mod tracker;

pub use account::{Account, Denied, held_bytes, resident_bytes, set_account};
pub use advice::{Advice, NotOurs, advise, discard};
pub use alloc_api::SbAlloc;
pub use arena::{Arena, ArenaError, ArenaOptions, ArenaStats, DEFAULT_RESERVE, HugePolicy};
pub use boxed::SbBox;
pub use collections::{OutOfMemory, SbVec};
pub use config::{Compression, Config, ConfigError, configure};
pub use heap::{SbHeap, trim};
pub use pager::other;
pub use set::{ArenaSet, MAX_ARENAS, PROCESS};
pub use store::{Store, StoreKind};
pub use sys::{CHUNK, Errno, GRANULE, PAGE};
pub use tracker::{Costs, TrackerChoice, TrackerKind, measure_trackers};
