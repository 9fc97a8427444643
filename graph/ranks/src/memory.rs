//! The memory that ranks share, and the scratch file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use bdrun_graph::run::{scratch_error, scratch_file};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use serde::{Deserialize, Serialize};

/// By which another process of the machine finds both, as long as rank 0 has them open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Names {
    memory: Name,
    scratch: Name,
    /// Where scratch is, for errors.
    directory: String,
    len: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Name {
    path: String,
    device: u64,
    inode: u64,
}

#[derive(Debug)]
pub(crate) struct Memory {
    map: MmapRaw,
    file: File,
    scratch: File,
    directory: String,
}

impl Memory {
    /// Room for so many bytes, of which none takes memory yet, and scratch on a directory.
    pub fn make(len: u64, scratch: &Path) -> io::Result<Self> {
        let file = memfd_create("bdrun-graph", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let file = File::from(file);
        file.set_len(len)?;
        // Nobody makes it shorter under the others, who would die of SIGBUS.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let on = scratch_file(scratch).map_err(|error| scratch_error(scratch, error))?;
        Self::of(file, on, scratch.display().to_string(), len)
    }

    /// What rank 0 has made.
    pub fn open(names: &Names) -> io::Result<Self> {
        let open = |name: &Name| {
            let file = File::options().read(true).write(true).open(&name.path)?;
            let meta = file.metadata()?;
            // In another namespace of processes the number may be another one's.
            if (meta.dev(), meta.ino()) != (name.device, name.inode) {
                return Err(io::Error::other(format!("{} is another file", name.path)));
            }
            Ok(file)
        };
        let file = open(&names.memory)?;
        if file.metadata()?.len() != names.len {
            return Err(io::Error::other("the memory has another length"));
        }
        Self::of(file, open(&names.scratch)?, names.directory.clone(), names.len)
    }

    fn of(file: File, scratch: File, directory: String, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let map = MmapOptions::new().len(len).no_reserve_swap().map_raw(&file)?;
        Ok(Self { map, file, scratch, directory })
    }

    /// Bytes that there is room for.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// An error of scratch, with the directory.
    fn on_scratch(&self, error: io::Error) -> io::Error {
        scratch_error(Path::new(&self.directory), error)
    }

    pub fn names(&self) -> io::Result<Names> {
        let name = |file: &File| {
            let meta = file.metadata()?;
            let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            Ok::<_, io::Error>(Name { path, device: meta.dev(), inode: meta.ino() })
        };
        let (memory, scratch) = (name(&self.file)?, name(&self.scratch)?);
        Ok(Names { memory, scratch, directory: self.directory.clone(), len: self.len() })
    }

    /// Where a place begins, if there is one so long.
    fn at(&self, at: u64, len: u64) -> io::Result<*mut u8> {
        let end = at.checked_add(len).filter(|&end| end <= self.len());
        // SAFETY: within the mapping.
        end.map(|_| unsafe { self.map.as_mut_ptr().add(at as usize) }).ok_or_else(|| {
            io::Error::other(format!("{len} bytes at {at} of shared memory, which ends before"))
        })
    }

    /// Copies bytes to a place that is this rank's alone.
    pub fn put(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let to = self.at(at, bytes.len() as u64)?;
        // SAFETY: `to` has room for them. Nobody else reads or writes there: the desk gives a place to one
        // order, and tells of it to no other before that is answered. `bytes` may lie in this memory, at
        // another place.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Copies the bytes of a place that nobody changes now.
    pub fn get(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let from = self.at(at, into.len() as u64)?;
        // SAFETY: as many bytes are there, which nobody writes: see `Piece`.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// The pages of a place go back to the kernel: they are zeros.
    pub fn give_back(&self, at: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len)?)
    }

    /// Writes a place to scratch.
    pub fn write(&self, at: u64, len: u64, to: u64) -> io::Result<()> {
        let from = self.at(at, len)?;
        // SAFETY: as many bytes are there, which nobody writes: see `Piece`.
        self.write_told(unsafe { std::slice::from_raw_parts(from, len as usize) }, to)
    }

    /// Reads from scratch to a place that is this rank's alone.
    pub fn read(&self, from: u64, len: u64, at: u64) -> io::Result<()> {
        let (to, mut done) = (self.at(at, len)?, 0);
        while done < len {
            // By the call itself: of memory that processes share there is no `&mut`.
            // SAFETY: so many bytes are there from `to + done` on, and nobody else uses them: see `put`.
            let got = unsafe {
                let to = to.add(done as usize).cast();
                libc::pread(self.scratch.as_raw_fd(), to, (len - done) as usize, (from + done) as libc::off_t)
            };
            match got {
                0 => return Err(self.on_scratch(io::ErrorKind::UnexpectedEof.into())),
                1.. => done += got as u64,
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(self.on_scratch(error)),
                },
            }
        }
        Ok(())
    }

    pub fn write_told(&self, bytes: &[u8], to: u64) -> io::Result<()> {
        self.scratch.write_all_at(bytes, to).map_err(|error| self.on_scratch(error))
    }

    pub fn read_told(&self, from: u64, into: &mut [u8]) -> io::Result<()> {
        self.scratch.read_exact_at(into, from).map_err(|error| self.on_scratch(error))
    }
}

/// Bytes of a place that a rank reads. While an order is under way nobody writes what it was given: the desk
/// gives a place to another only when all who were told of it have answered, and a rank answers when it has
/// no piece left ([`crate::perform`]).
#[derive(Debug)]
pub(crate) struct Piece {
    memory: Arc<Memory>,
    at: u64,
    len: u64,
}

impl Piece {
    pub fn new(memory: &Arc<Memory>, at: u64, len: u64) -> io::Result<Self> {
        memory.at(at, len)?;
        Ok(Self { memory: memory.clone(), at, len })
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: within the mapping (`new`), which lives as long as `self`; nobody writes there (above).
        unsafe {
            let from = self.memory.map.as_ptr().add(self.at as usize);
            std::slice::from_raw_parts(from, self.len as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_finds_it_and_scratch_keeps_it() {
        let here = Arc::new(Memory::make(1 << 30, &std::env::temp_dir()).unwrap());
        let there = Arc::new(Memory::open(&here.names().unwrap()).unwrap());
        here.put(1 << 20, b"shared").unwrap();
        assert_eq!(Piece::new(&there, 1 << 20, 6).unwrap().as_ref(), b"shared");
        there.write(1 << 20, 6, 100).unwrap();
        here.read(100, 6, 8192).unwrap();
        let mut bytes = [0; 6];
        there.get(8192, &mut bytes).unwrap();
        assert_eq!(&bytes, b"shared");
        here.give_back(0, 2 << 20).unwrap();
        assert_eq!(Piece::new(&there, 1 << 20, 6).unwrap().as_ref(), [0; 6]);
        assert!(here.put((1 << 30) - 1, b"no").is_err());
        // Who did not name the directory is told which it is, whoever writes or reads.
        let directory = format!("{}: ", std::env::temp_dir().display());
        for memory in [&here, &there] {
            for error in [memory.read(200, 1, 0), memory.read_told(200, &mut [0])] {
                let text = error.unwrap_err().to_string();
                assert!(text.starts_with(&directory), "{text}");
            }
        }
        assert!(Piece::new(&there, u64::MAX, 2).is_err());
        let mut wrong = here.names().unwrap();
        wrong.memory.inode += 1;
        assert!(Memory::open(&wrong).unwrap_err().to_string().contains("another file"));
    }
}
