//! Where arrays come from, and where they go.

mod aside;
pub mod hdf5;
mod ledger;
mod memory;
mod npy;
mod pieces;
pub mod zarr;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use aside::Identity;
pub use hdf5::{Hdf5, Hdf5Writer};
pub use memory::{Held, Memory};
pub use npy::{Npy, NpyWriter};
pub use zarr::{Zarr, ZarrWriter};

use crate::block::Block;
use crate::dtype::DType;
use crate::shape::Region;

/// An array in storage. Regions are read by several threads at a time. While an expression is computed it
/// does not change: what does not fit in memory is read again.
pub trait Source: Send + Sync {
    /// The type of its elements.
    fn dtype(&self) -> DType;

    /// How many there are along each axis.
    fn shape(&self) -> &[usize];

    /// In what pieces it lies in storage: 1 along each axis if any region is as good as another.
    fn unit(&self) -> Vec<usize> {
        vec![1; self.shape().len()]
    }

    /// What it is called in messages.
    fn name(&self) -> String;

    /// Something that changes if its elements do: when its file was written, say.
    fn stamp(&self) -> String;

    /// Bytes that are taken while a region is read, beside the block that it becomes.
    fn work(&self, region: &Region) -> u64 {
        _ = region;
        0
    }

    /// Reads a region.
    ///
    /// # Errors
    /// If it cannot be read.
    fn read(&self, region: &Region) -> io::Result<Block>;
}

/// Takes an array. Regions are written by several threads at a time, each element once.
pub trait Sink: Send + Sync {
    /// What it is called in messages.
    fn name(&self) -> String;

    /// Whether a run before, which was interrupted, has written a region.
    fn has(&self, region: &Region) -> bool {
        _ = region;
        false
    }

    /// Bytes that are taken while a region is written, beside its block.
    fn work(&self, region: &Region) -> u64 {
        _ = region;
        0
    }

    /// Writes a region.
    ///
    /// # Errors
    /// If it cannot be written.
    fn write(&self, region: &Region, block: &Block) -> io::Result<()>;

    /// All is written: it is put in its place.
    ///
    /// # Errors
    /// If that cannot be done.
    fn finish(&self) -> io::Result<()>;
}

/// Part of a name that nobody else has at the same time, here or on another machine, nor has left behind: the
/// number of a process may be that of one that was killed, in containers most of all. If somebody has it all
/// the same, there is another one the next time.
fn unique() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}.{:x}", std::process::id(), since.as_nanos())
}

/// What file systems have room for in a name, without an ending that it may get.
const LONGEST: usize = 250;

/// A file beside another one, hidden, whose name begins as its name does and has a suffix. Where that is too
/// long there is less of the name in it, and a number that stands for all of it.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let mut aside = [b".", name, suffix.as_bytes()].concat();
    if aside.len() > LONGEST {
        let hash = format!(".{:032x}", twox_hash::XxHash3_128::oneshot(name));
        let mut kept = LONGEST - 1 - hash.len() - suffix.len();
        // A letter is in it as a whole, or not.
        while kept > 0 && name[kept] & 0xc0 == 0x80 {
            kept -= 1;
        }
        aside = [b".", &name[..kept], hash.as_bytes(), suffix.as_bytes()].concat();
    }
    path.with_file_name(OsString::from_vec(aside))
}

fn other(text: String) -> io::Error {
    io::Error::other(text)
}

/// Which file it is, how long, and when it was written.
fn stamp(file: &std::fs::File) -> String {
    file.metadata().map_or_else(|_| never_again(), |data| told(&data))
}

/// Of what nobody can say whether it is the same the next time.
fn never_again() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}.{}", unique(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The same, of what is known of a file. The time of writing can be set, and is that of another file where
/// one is copied or unpacked with its time: the number of the file, and when anything of it was changed, are
/// no one else's. Devices have other numbers after a restart.
fn told(data: &std::fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    let (written, changed) = ((data.mtime(), data.mtime_nsec()), (data.ctime(), data.ctime_nsec()));
    format!("{}:{}:{}:{}:{}:{}", data.len(), written.0, written.1, data.ino(), changed.0, changed.1)
}

/// Whether a file that was opened still has this name. What has it may be another one.
fn is_named(file: &std::fs::File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let numbers = |data: std::fs::Metadata| (data.dev(), data.ino());
    match path.metadata() {
        Ok(there) => Ok(numbers(there) == numbers(file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Copies between a region of an array that lies in C order and a block, row by row: `each` is given where a
/// row of the region begins in the array, and where in the block, in elements, and how long it is.
fn rows(
    shape: &[usize],
    region: &Region,
    mut each: impl FnMut(usize, usize, usize) -> io::Result<()>,
) -> io::Result<()> {
    if region.is_empty() {
        return Ok(());
    }
    // Axes that are whole are one with the axis before them.
    let mut inner = shape.len();
    let mut row = 1;
    while inner > 0 {
        inner -= 1;
        row *= region.shape[inner];
        if region.shape[inner] != shape[inner] {
            break;
        }
    }
    let strides = crate::shape::strides(shape);
    let first: usize = strides.iter().zip(&region.start).map(|(stride, start)| stride * start).sum();
    for (number, place) in crate::shape::places(&region.shape[..inner]).enumerate() {
        let at: usize = strides.iter().zip(&place).map(|(stride, at)| stride * at).sum();
        each(first + at, number * row, row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beside_another_one_is_no_longer_than_names_may_be() {
        let aside = |name: &str, suffix| beside(Path::new("folder").join(name).as_path(), suffix);
        assert_eq!(aside("x.npy", ".part"), Path::new("folder/.x.npy.part"));
        for name in ["x".repeat(255), "ä".repeat(127), "\u{10000}".repeat(63), "x".repeat(242)] {
            for suffix in [".part", ".part.stored", ".4294967295.18446744073709551615"] {
                let made = aside(&name, suffix);
                let text = made.file_name().unwrap().to_str().expect("whole letters");
                assert!(text.len() <= LONGEST && text.ends_with(suffix), "{text}");
                assert_eq!(made, aside(&name, suffix));
                assert_ne!(made, aside(&format!("{}y", &name[..name.len() - 4]), suffix));
            }
        }
    }
}
