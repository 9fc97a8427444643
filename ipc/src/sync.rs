//! Atomics of the standard library, or loom's where the wake-up protocol is model-checked.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, Ordering, fence};
