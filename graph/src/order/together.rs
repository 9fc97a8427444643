//! Several looks at the same time.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// What each of them finds, in their order: the first one on this thread, each other one on a thread of its
/// own. Where the system has no thread left it is looked at on this one, afterwards.
pub(super) fn all_at_once<T: Sync, R: Send>(items: &[T], look: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let Some((first, others)) = items.split_first() else { return Vec::new() };
    let look = &look;
    scope(|scope| {
        let begin = |item| Builder::new().spawn_scoped(scope, move || look(item)).ok();
        let threads: Vec<_> = others.iter().map(begin).collect();
        let mut found = Vec::with_capacity(items.len());
        found.push(look(first));
        for (thread, item) in threads.into_iter().zip(others) {
            found.push(match thread {
                Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                None => look(item),
            });
        }
        found
    })
}
