//! Memory that lives on storage.
//!
//! An *arena* is a large range of addresses with a scratch file beside it. What was put into it can be moved out
//! of RAM and in again by the process itself, at a moment of the runtime's choosing ([`pager::evict`],
//! [`pager::restore`]; in part [`pager::evict_to`], [`pager::restore_for`]), with large direct transfers of what
//! changed, of what was used the last times. While it is out it stays legal to touch,
//! for threads and for system calls: the kernel reads it back from the file page by page, and keeps what is
//! written. On arenas there are a general heap ([`SbHeap`], for `#[global_allocator]`), an allocator for
//! collections ([`SbAlloc`]) and a vector ([`SbVec`]). Every byte committed is charged to an [`Account`] first.
//!
//! It is *not* a swap daemon: nothing is moved unless somebody calls the pager, and nothing of a process but its
//! arenas is moved (stacks, static data and memory of other allocators stay). It is not persistent: scratch
//! files are unlinked from birth. It does not decide who is evicted; the runtime does.
//!
//! # Modules
//! | module | concept |
//! |---|---|
//! | `arena` | the range of addresses: reservation, runs of 64 KiB chunks, discarding, handles |
//! | `set` | the arenas that move together |
//! | `account` | who pays |
//! | `heap` | small blocks (dlmalloc) and large runs; [`SbHeap`] |
//! | `alloc_api`, `collections` | [`SbAlloc`], [`SbVec`] |
//! | [`pager`] | evict and restore: `plan` and `history` decide, `own` carries out, `out` and `back` transfer, `look` and `pagemap` see what was touched, `fork` |
//! | `tracker` | which granules may be dirty: `hash`, `mprotect` |
//! | `store` | the scratch file: direct, buffered, in memory; `queue`: transfers beside hashing and verifying |
//! | `frames` | where restored memory comes from |
//! | `threads` | stopping the other threads |
//! | `config`, `lock`, `sys` | settings, a lock that never allocates, system calls |
//!
//! # Forks
//! A child that only execs is fine. Before any other fork (`pthread_atfork`) what is out of the process is brought
//! in, over the budget if need be: a child that goes on then gets a scratch file of its own at its first evict. Arenas
//! of other sets are not: a child of a process of which some were out reads its parent's scratch file, would see what the
//! parent writes there later, and has its evicts refused. Restore such sets before forking.

#![cfg(target_os = "linux")]

mod account;
mod alloc_api;
mod arena;
mod collections;
mod config;
mod frames;
mod heap;
mod lock;
pub mod pager;
mod set;
mod store;
mod sys;
mod threads;
mod tracker;

pub use account::{Account, Denied, held_bytes, resident_bytes, set_account};
pub use alloc_api::SbAlloc;
pub use arena::{Arena, ArenaError, ArenaOptions, HugePolicy};
pub use collections::{OutOfMemory, SbVec};
pub use config::{Config, ConfigError, configure};
pub use frames::FrameKind;
pub use heap::{SbHeap, trim};
pub use set::{ArenaSet, MAX_ARENAS, PROCESS};
pub use store::{Store, StoreKind};
pub use sys::{CHUNK, Errno, GRANULE, PAGE};
pub use tracker::TrackerKind;
