//! The bytes of a datatype in the order in which they are sent: runs, with loops kept.
//!
//! A run is bytes next to each other. What is made of runs next to each other is one run again, whatever it
//! was made of; copies at equal distances are one loop. So of the usual datatypes little remains: of a
//! contiguous one a run, of a row of a matrix or a face of a cube a loop or two. Of a datatype of irregular
//! ones of irregular ones each is there once ([`Step::Part`]): what is kept grows with the sum of their
//! lengths, and not with the product.

use std::sync::Arc;

use super::{Copies, Datatype, Map};

/// One step of the way through memory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// So many bytes from here.
    Run { at: i64, bytes: u64 },
    /// The same again and again.
    Loop { at: i64, count: u64, stride: i64, body: Arc<Steps> },
    /// Those of a datatype that others are made of too.
    Part { at: i64, of: Arc<Steps> },
}

/// So many steps of a part are copied to where it is, which may join them with what is beside them.
const FEW: usize = if cfg!(test) { 2 } else { 8 };

impl Step {
    fn bytes(&self) -> u64 {
        match self {
            Self::Run { bytes, .. } => *bytes,
            Self::Loop { count, body, .. } => count * body.bytes(),
            Self::Part { of, .. } => of.bytes(),
        }
    }

    fn shifted(self, by: i64) -> Self {
        match self {
            Self::Run { at, bytes } => Self::Run { at: at + by, bytes },
            Self::Loop { at, count, stride, body } => Self::Loop { at: at + by, count, stride, body },
            Self::Part { at, of } => Self::Part { at: at + by, of },
        }
    }
}

/// Steps, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Steps {
    list: Vec<Step>,
    /// Bytes up to the end of each.
    ends: Vec<u64>,
}

impl Steps {
    fn run(at: i64, bytes: u64) -> Self {
        let mut steps = Self::default();
        steps.push(Step::Run { at, bytes });
        steps
    }

    fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn push(&mut self, step: Step) {
        if step.bytes() == 0 {
            return;
        }
        if let (Some(Step::Run { at, bytes }), Step::Run { at: next, bytes: more }) =
            (self.list.last_mut(), &step)
            && i64::try_from(*bytes).is_ok_and(|bytes| *at + bytes == *next)
        {
            *bytes += more;
            *self.ends.last_mut().expect("as many as steps") += more;
            return;
        }
        self.ends.push(self.bytes() + step.bytes());
        self.list.push(step);
    }

    /// Behind these, so many copies of others.
    fn push_copies(&mut self, of: &Arc<Self>, (at, count, stride): (i64, u64, i64)) {
        match (count, &of.list[..]) {
            (0, _) | (_, []) => {}
            (1, few) if few.len() <= FEW => {
                few.iter().for_each(|step| self.push(step.clone().shifted(at)));
            }
            (1, _) => self.push(Step::Part { at, of: of.clone() }),
            (_, [Step::Run { at: first, bytes }]) if i64::try_from(*bytes) == Ok(stride) => {
                self.push(Step::Run { at: at + first, bytes: bytes * count });
            }
            // The inner loop ends where its next copy begins.
            (_, [Step::Loop { at: first, count: inner, stride: step, body }])
                if i64::try_from(*inner).ok().and_then(|inner| inner.checked_mul(*step)) == Some(stride) =>
            {
                let (at, body) = (at + first, body.clone());
                self.push(Step::Loop { at, count: count * inner, stride: *step, body });
            }
            _ => self.push(Step::Loop { at, count, stride, body: of.clone() }),
        }
    }

    /// Calls `f` with the runs of the bytes from `from` to `to`, which are within; the addresses relative to
    /// `base`.
    fn each(&self, base: i64, from: u64, to: u64, f: &mut impl FnMut(i64, u64)) {
        let first = self.ends.partition_point(|&end| end <= from);
        for (step, &end) in self.list.iter().zip(&self.ends).skip(first) {
            let begin = end - step.bytes();
            if begin >= to {
                return;
            }
            let (from, to) = (from.saturating_sub(begin), to.min(end) - begin);
            match step {
                Step::Run { at, .. } => f(base + at + from as i64, to - from),
                Step::Part { at, of } => of.each(base + at, from, to, f),
                Step::Loop { at, stride, body, .. } => {
                    let turn = body.bytes();
                    let mut at = base + at + (from / turn) as i64 * stride;
                    let mut from = from;
                    if let [Step::Run { at: first, .. }] = body.list[..]
                        && from % turn == 0
                        && to % turn == 0
                    {
                        // The usual case, without a call for each turn.
                        for _ in from / turn..to / turn {
                            f(at + first, turn);
                            at += stride;
                        }
                        continue;
                    }
                    while from < to {
                        let begin = from - from % turn;
                        body.each(at, from - begin, to.min(begin + turn) - begin, f);
                        at += stride;
                        from = begin + turn;
                    }
                }
            }
        }
    }
}

/// The bytes of a datatype, or of several one behind the other.
#[derive(Debug)]
pub struct Layout {
    steps: Arc<Steps>,
    extent: i64,
}

impl Layout {
    pub(super) fn of(datatype: &Datatype) -> Self {
        Self { steps: steps(datatype), extent: datatype.extent() }
    }

    /// Bytes of one.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.steps.bytes()
    }

    /// Where the bytes of `count` of them begin, if they lie one behind the other.
    #[must_use]
    pub fn contiguous(&self, count: u64) -> Option<i64> {
        match self.steps.list[..] {
            [] => Some(0),
            [Step::Run { at, bytes }] if count <= 1 || i64::try_from(bytes) == Ok(self.extent) => Some(at),
            _ => None,
        }
    }

    /// Calls `f` with the runs that hold the bytes from `from` to `to` of `count` of them, in order: where
    /// each is, and how long. What is behind the end is left out.
    pub fn each_run(&self, count: u64, from: u64, to: u64, mut f: impl FnMut(i64, u64)) {
        let all = self.bytes().saturating_mul(count);
        if from >= to.min(all) {
            return;
        }
        let to = to.min(all);
        if let Some(at) = self.contiguous(count) {
            return f(at + from as i64, to - from);
        }
        let one = self.bytes();
        for nth in from / one..to.div_ceil(one) {
            let begin = nth * one;
            let (from, to) = (from.saturating_sub(begin), to.min(begin + one) - begin);
            self.steps.each(nth as i64 * self.extent, from, to, &mut f);
        }
    }

    /// Copies the bytes from `from` on of `count` of them at `buffer` one behind the other into `into`; how
    /// many.
    ///
    /// # Safety
    /// What the datatype says of `count` of them at `buffer` can be read, and nobody writes it meanwhile.
    pub unsafe fn pack(&self, buffer: *const u8, count: u64, from: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        self.each_run(count, from, from.saturating_add(into.len() as u64), |at, bytes| {
            let bytes = bytes as usize;
            let into = into[done..done + bytes].as_mut_ptr();
            // SAFETY: the caller's promise; `into` is as long, and nobody else's.
            unsafe { copy(buffer.wrapping_offset(at as isize), into, bytes) };
            done += bytes;
        });
        done
    }

    /// Copies `bytes` to where the bytes from `from` on of `count` of them at `buffer` belong; how many.
    ///
    /// # Safety
    /// What the datatype says of `count` of them at `buffer` can be written, and nobody else uses it
    /// meanwhile.
    pub unsafe fn unpack(&self, buffer: *mut u8, count: u64, from: u64, bytes: &[u8]) -> usize {
        let mut done = 0;
        self.each_run(count, from, from.saturating_add(bytes.len() as u64), |at, len| {
            let len = len as usize;
            let source = bytes[done..done + len].as_ptr();
            // SAFETY: the caller's promise; `bytes` is as long, and no part of the buffer.
            unsafe { copy(source, buffer.wrapping_offset(at as isize), len) };
            done += len;
        });
        done
    }
}

/// Copies bytes; the sizes of elements without a call.
///
/// # Safety
/// As of [`std::ptr::copy_nonoverlapping`].
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            4 => std::ptr::copy_nonoverlapping(from, to, 4),
            8 => std::ptr::copy_nonoverlapping(from, to, 8),
            16 => std::ptr::copy_nonoverlapping(from, to, 16),
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

fn steps(datatype: &Datatype) -> Arc<Steps> {
    let steps = match &datatype.map {
        Map::Basic(basic) => {
            let (first, second) = basic.elements();
            let mut steps = Steps::run(0, first.size() as u64);
            if let Some(second) = second {
                steps.push(Step::Run { at: basic.second_at() as i64, bytes: second.size() as u64 });
            }
            steps
        }
        Map::Same(of) => return of.layout().steps.clone(),
        Map::Copies(list) => {
            let mut all = Steps::default();
            for Copies { at, count, stride, of } in list {
                all.push_copies(&of.layout().steps, (*at, u64::try_from(*count).unwrap_or(0), *stride));
            }
            all
        }
    };
    Arc::new(steps)
}
