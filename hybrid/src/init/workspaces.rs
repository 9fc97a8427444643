//! What each thread of the pool has for itself: solvers, buffers.

use std::sync::{Mutex, PoisonError, TryLockError};

/// One for each thread of the pool, made by that thread: its pages are near it.
#[derive(Debug)]
pub struct Workspaces<W>(Vec<Own<W>>);

/// By itself in its lines of cache, and the one beside them that processors fetch too.
#[repr(align(128))]
#[derive(Debug)]
struct Own<W>(Mutex<W>);

impl<W: Send> Workspaces<W> {
    /// By `make`, in each thread of the pool, with its number.
    pub(super) fn new(make: impl Fn(usize) -> W + Sync) -> Self {
        Self(rayon::broadcast(|thread| Own(Mutex::new(make(thread.index())))))
    }

    /// How many there are: as many as threads.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none: never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lends the calling thread its own. `work` must not wait for other tasks of the pool (`join`, parallel
    /// iterators): the thread would take another task meanwhile, which may want the same workspace.
    ///
    /// ```standalone_crate
    /// use bdrun_hybrid::{Hybrid, HybridConfig, Kind};
    /// use rayon::prelude::*;
    ///
    /// let config = HybridConfig { backend: Some(Kind::Local), threads: Some(2), ..HybridConfig::default() };
    /// let hybrid = Hybrid::init_with(config, |_| vec![0.0; 1_000])?;
    /// let workspaces = hybrid.workspaces(); // threads of the pool may have these, but not `hybrid`
    /// let sum: f64 = (0..100).into_par_iter().map(|scenario| {
    ///     workspaces.with(|buffer: &mut Vec<f64>| {
    ///         buffer.fill(f64::from(scenario));
    ///         buffer.iter().sum::<f64>()
    ///     })
    /// }).sum();
    /// assert_eq!(sum, 4_950.0 * 1_000.0);
    /// # Ok::<(), bdrun_hybrid::InitError>(())
    /// ```
    ///
    /// # Panics
    /// If the calling thread is none of the pool's, or has its workspace lent already.
    pub fn with<R>(&self, work: impl FnOnce(&mut W) -> R) -> R {
        let own = rayon::current_thread_index().and_then(|thread| self.0.get(thread));
        let Some(Own(own)) = own else { panic!("only threads of the pool have workspaces") };
        match own.try_lock() {
            Ok(mut own) => work(&mut own),
            // A task has panicked in it: what it left is the next one's to make right, as with a plain value.
            Err(TryLockError::Poisoned(own)) => work(&mut own.into_inner()),
            Err(TryLockError::WouldBlock) => {
                panic!("this thread has its workspace lent already: a task waits for others while it uses it")
            }
        }
    }

    /// Each in turn, while no thread uses its own.
    pub fn each(&mut self) -> impl Iterator<Item = &mut W> {
        self.0.iter_mut().map(|Own(own)| own.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}
