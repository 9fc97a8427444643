//! Ranges dropped by calls of a parked thread, as many of them by one call as the kernel takes:
//! `process_madvise` on its own memory (Linux 6.14), else one by one.
//!
//! The list of ranges has to lie in the rank's memory: it is written to the lowest end of its main thread's
//! stack, which nothing of the rank reads while all stand, and what was there is put back. Those pages are
//! never moved (`Space::each_region`): what is copied while a list lies there would be the list.

use super::check;
use super::error::OtherError;
use super::inject::Session;
use super::space::Space;
use super::stop::Threads;
use super::writer::Drop;
use crate::sys::{self, PAGE};
use std::ops::Range;
use std::sync::OnceLock;

/// `PIDFD_SELF`: the calling thread.
const SELF: u64 = -10_000_i64 as u64;
/// Ranges of one call.
const MOST: usize = 512;
/// For fewer it does not pay.
const LEAST: usize = 4;
/// Bytes of their list.
pub(super) const DESK: u64 = (MOST * 16) as u64;

/// Whether the kernel can, tried on a page of this process.
pub(super) fn is_known() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let Ok(page) = sys::map_anon_aligned(PAGE, PAGE) else { return false };
        let list = [page as u64, PAGE as u64];
        // SAFETY: advice about a page that was made for it.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                SELF,
                list.as_ptr(),
                1_usize,
                libc::MADV_DONTNEED,
                0_usize,
            )
        };
        sys::unmap(page, PAGE);
        done == PAGE as i64
    })
}

/// Is told ranges that were dropped, and such as were refused, of which a part may have been.
type Answered<'f> = &'f mut dyn FnMut(&[Drop], bool) -> Result<(), OtherError>;

/// Ranges of one address space that are being dropped, while this thread does something else.
pub(super) struct Dropping {
    session: Session,
    ranges: Vec<Drop>,
    /// So many of them were answered, and so many are asked for.
    done: usize,
    asked: usize,
    /// What was where their list is.
    before: Vec<u8>,
    /// They go one by one, as the kernel cannot do otherwise.
    singly: bool,
    /// The next goes alone, as it may be the one that is refused.
    alone: bool,
}

impl Dropping {
    pub fn begin(threads: &Threads, space: &Space, ranges: Vec<Drop>) -> Result<Self, OtherError> {
        let session = Session::begin(threads, space)?;
        // Filters may have come since the rank was first held.
        let singly = !is_known() || check::filters_calls(space.caller);
        let mut dropping = Self { session, ranges, done: 0, asked: 0, before: vec![], singly, alone: false };
        dropping.ask(space)?;
        Ok(dropping)
    }

    /// Whether something is to be heard of the call under way.
    pub fn has_news(&self) -> bool {
        #[cfg(test)]
        if super::tests::IS_DEAF.get() {
            return false;
        }
        self.session.has_news()
    }

    fn ask(&mut self, space: &Space) -> Result<(), OtherError> {
        let rest = &self.ranges[self.done..];
        let count = rest.len().min(MOST);
        let alone = std::mem::take(&mut self.alone);
        if !self.singly
            && !alone
            && count >= LEAST
            && let Some(desk) = space.desk
        {
            let words =
                rest[..count].iter().flat_map(|Drop { range, .. }| [range.start, range.end - range.start]);
            let list: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
            self.before = vec![0; list.len()];
            if space.peek(desk, &mut self.before).is_ok() && space.poke(desk, &list).is_ok() {
                self.asked = count;
                let arguments = [SELF, desk, count as u64, libc::MADV_DONTNEED as u64, 0];
                return self.session.start(libc::SYS_process_madvise, arguments);
            }
            self.before = vec![];
        }
        let Some(Range { start, end }) = rest.first().map(|drop| drop.range.clone()) else { return Ok(()) };
        self.asked = 1;
        self.session.start(libc::SYS_madvise, [start, end - start, libc::MADV_DONTNEED as u64])
    }

    /// Waits for the call under way and begins the next. Whether any are left.
    pub fn on(&mut self, space: &Space, f: Answered<'_>) -> Result<bool, OtherError> {
        let result = self.session.finish()?.unwrap_or(-1);
        let asked = &self.ranges[self.done..self.done + std::mem::take(&mut self.asked)];
        let before = std::mem::take(&mut self.before);
        if !before.is_empty()
            && let Some(desk) = space.desk
        {
            space.poke(desk, &before).map_err(|e| space.failed("put back the stack of", e))?;
        }
        let dropped = if before.is_empty() {
            usize::from(result == 0)
        } else {
            let mut left = result.max(0) as u64;
            let is_whole = |Drop { range, .. }: &&Drop| {
                let len = range.end - range.start;
                let is_whole = left >= len;
                left = left.saturating_sub(len);
                is_whole
            };
            asked.iter().take_while(is_whole).count()
        };
        f(&asked[..dropped], true)?;
        if dropped == 0 && before.is_empty() {
            f(asked, false)?;
            self.done += asked.len();
        }
        self.alone = !before.is_empty() && dropped < asked.len();
        self.done += dropped;
        if self.done == self.ranges.len() {
            return Ok(false);
        }
        self.ask(space).map(|()| true)
    }

    /// Parks the thread as it was.
    pub fn park(self, space: &Space) -> Result<(), OtherError> {
        self.session.park(space)
    }
}
