//! Bytes from one file to another, and holes: what Python has no calls for.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use crate::guarded;

/// So much at a time: as disks like it.
const PIECE: usize = 1 << 20;
const ALIGNED: usize = 4096;

/// Copies `len` bytes from an offset of one file to an offset of another. 0, or the error's number, negative.
///
/// # Safety
/// The descriptors are open as long as it takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_copy(from: i32, from_offset: u64, to: i32, to_offset: u64, len: u64) -> i32 {
    guarded(-libc::EIO, || {
        // SAFETY: they are open, as is asked for, and are not closed here.
        let (from, to) =
            unsafe { (ManuallyDrop::new(File::from_raw_fd(from)), ManuallyDrop::new(File::from_raw_fd(to))) };
        // For files that are read or written past the kernel's cache.
        let mut buffer = vec![0; PIECE + ALIGNED];
        let begin = buffer.as_ptr().align_offset(ALIGNED);
        let buffer = &mut buffer[begin..][..PIECE];
        let mut at = 0;
        let mut copy = || -> io::Result<()> {
            while at < len {
                let piece = &mut buffer[..PIECE.min((len - at) as usize)];
                from.read_exact_at(piece, from_offset + at)?;
                to.write_all_at(piece, to_offset + at)?;
                at += piece.len() as u64;
            }
            Ok(())
        };
        Ok(copy().map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0))
    })
}

/// Gives the room of a part of a file back; the part reads as zeros from then on. 0, or the error's number,
/// negative.
#[unsafe(no_mangle)]
pub extern "C" fn bdrun_punch(file: i32, offset: u64, len: u64) -> i32 {
    if len == 0 {
        return 0; // the kernel refuses that
    }
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: it takes numbers alone.
    let done = unsafe { libc::fallocate(file, how, offset as libc::off_t, len as libc::off_t) };
    if done == 0 { 0 } else { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) }
}
