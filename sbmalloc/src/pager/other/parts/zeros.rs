//! Private mappings of `/dev/zero` become anonymous ones.
//!
//! To the kernel they are the same but for a name; only userfaultfd takes them for files, of which there is
//! nothing, and places no page in them. So each that has something written to it is mapped anew in its place,
//! piece by piece, while all threads stand: copied, mapped, written back. The program cannot tell: protection
//! and advice are kept, what was never written is zeros in both, and also what is given up (`MADV_DONTNEED`)
//! is zeros again. Not so of files, where that brings back what is in the file; those are left alone.
//!
//! A mapping changes as a whole or not at all, as `mremap` takes no two of different kinds at once. It does
//! not where something of it cannot be had again as it is: pages that other processes have too, or that the
//! kernel writes meanwhile; flags for which there is no call. (How its memory is spread over nodes, `mbind`,
//! is not told, and is the process's own way afterwards.)

use super::Parts;
use crate::pager::other::error::OtherError;
use crate::pager::other::inject::Session;
use crate::pager::other::proc::{self, Remake};
use crate::pager::other::space::{Kind, RANGES, Space};
use crate::sys::{Errno, PAGE};
use std::ops::Range;

/// Bytes mapped anew at a time: there are no more stretches of pages in it than are copied by one call.
const PIECE: u64 = (RANGES * PAGE) as u64;

impl Parts {
    /// Makes mappings of zeros anonymous, as all threads stand.
    pub(super) fn make_zeros_anonymous(&self) -> Result<(), OtherError> {
        // Of pages that two processes have each would get a copy.
        let alone = self.threads.processes().len() > 1;
        for (_, space) in self.spaces.iter().filter(|(_, space)| space.caller != 0) {
            for (range, remake) in mappings(space)? {
                if !has_what_stays(space, &range, alone)? {
                    self.map_anew(space, &range, &remake)?;
                }
            }
        }
        Ok(())
    }

    /// While bytes are only here the rank stands, and if this process ends it ends too.
    fn map_anew(&self, space: &Space, range: &Range<u64>, remake: &Remake) -> Result<(), OtherError> {
        let mut session = Session::begin(&self.threads, space)?;
        let mut bytes = vec![0; PIECE as usize];
        let mut done = range.start;
        while done < range.end {
            let piece = done..(done + PIECE).min(range.end);
            let mut there = vec![];
            space.each_region(piece.clone(), false, &mut |region, _| {
                there.push(region);
                Ok(())
            })?;
            let len = there.iter().map(|region| region.end - region.start).sum::<u64>() as usize;
            complete(space, "read the memory of", len, space.copy_out(&there, &mut bytes[..len]))?;
            let (protection, flags) = (remake.protection as u64, remake.flags as u64);
            let arguments = [piece.start, piece.end - piece.start, protection, flags, u64::MAX, 0];
            let answer = session.call(libc::SYS_mmap, arguments)?;
            if answer != piece.start as i64 {
                // Since Linux 6.12 nothing has changed then; before, what was there may be gone.
                space
                    .peek(piece.start, &mut [0])
                    .map_err(|_| space.failed("map anew memory of", Errno(-answer as i32)))?;
                break;
            }
            complete(space, "write back the memory of", len, space.copy_in(&there, &bytes[..len]))?;
            done = piece.end;
        }
        for &advice in &remake.advice {
            if done > range.start {
                session.call(libc::SYS_madvise, [range.start, done - range.start, advice as u64])?;
            }
        }
        session.park(space)
    }
}

/// That all of it was copied.
fn complete(
    space: &Space,
    op: &'static str,
    len: usize,
    copied: Result<usize, Errno>,
) -> Result<(), OtherError> {
    match copied {
        Ok(copied) if copied == len => Ok(()),
        Ok(_) => Err(space.failed(op, Errno(libc::EFAULT))),
        Err(errno) => Err(space.failed(op, errno)),
    }
}

/// The mappings of an address space that may become anonymous.
fn mappings(space: &Space) -> Result<Vec<(Range<u64>, Remake)>, OtherError> {
    let (mut any, mut found) = (false, vec![]);
    proc::each_range(space.via(), &mut |vma| any |= vma.is_of_zero_device())
        .map_err(|e| space.not_listed(Errno::from(&e)))?;
    if any {
        // Which takes longer.
        space.each_vma(&mut |vma| found.extend(vma.remake().map(|remake| (vma.from..vma.to, remake))))?;
    }
    Ok(found)
}

fn has_what_stays(space: &Space, range: &Range<u64>, alone: bool) -> Result<bool, OtherError> {
    let mut stays = false;
    space.each_region(range.clone(), alone, &mut |_, kind| {
        stays |= kind == Kind::Stays;
        Ok(())
    })?;
    Ok(stays)
}
