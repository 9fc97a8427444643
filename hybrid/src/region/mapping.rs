//! Memory of which another process of the node finds the file by the number of a process and of its
//! descriptor.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};

use crate::host;

/// Memory that is mapped until it is dropped.
#[derive(Debug)]
pub struct Mapping {
    map: MmapRaw,
    /// The page behind it, which all may write: how many have mapped it.
    users: MmapRaw,
    /// Whose it is: a child that this process forks has it too, and is not counted.
    process: u32,
}

/// How a rank maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To read and write.
    Leader,
    /// To read.
    Reader,
}

/// By which other processes find it, as long as this is there.
#[derive(Debug)]
pub struct Name {
    file: File,
    words: Words,
}

/// Host, process, descriptor; device and inode of the file.
pub type Words = [u64; 6];

impl Name {
    /// That of nothing.
    pub const NONE: Words = [0; 6];

    /// What to tell them.
    pub const fn words(&self) -> Words {
        self.words
    }

    fn of(file: File) -> io::Result<Self> {
        let [high, low] = host::identity()?;
        let process = u64::from(std::process::id());
        let number = file.as_raw_fd() as u64;
        let [device, inode] = identity(&file)?;
        Ok(Self { file, words: [high, low, process, number, device, inode] })
    }
}

fn identity(file: &File) -> io::Result<[u64; 2]> {
    let stat = fstat(file)?;
    Ok([stat.st_dev, stat.st_ino])
}

impl Mapping {
    /// So many bytes of zeros, for the leader.
    pub fn make(len: usize) -> io::Result<(Self, Name)> {
        let file = memfd_create("bdrun-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let file = File::from(file);
        file.set_len((behind(len) + PAGE) as u64)?;
        // Nobody makes it shorter under the others, who would die of SIGBUS.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let name = Name::of(file)?;
        Ok((Self::of(&name.file, len, Kind::Leader)?, name))
    }

    /// What another process has made.
    pub fn open(words: Words, len: usize, kind: Kind) -> io::Result<Self> {
        let [high, low, process, number, device, inode] = words;
        if host::identity()? != [high, low] {
            return Err(io::Error::other("it is on another host"));
        }
        let path = format!("/proc/{process}/fd/{number}");
        let file = File::options().read(true).write(true).open(path)?;
        // In another namespace of processes the number may be another one's.
        if identity(&file)? != [device, inode] || file.metadata()?.len() != (behind(len) + PAGE) as u64 {
            return Err(io::Error::other("it is another file"));
        }
        Self::of(&file, len, kind)
    }

    fn of(file: &File, len: usize, kind: Kind) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.len(len);
        let map = match kind {
            Kind::Leader => options.map_raw(file)?,
            Kind::Reader => options.map_raw_read_only(file)?,
        };
        let users = MmapOptions::new().offset(behind(len) as u64).len(PAGE).map_raw(file)?;
        let this = Self { map, users, process: std::process::id() };
        this.users().fetch_add(1, SeqCst);
        Ok(this)
    }

    fn users(&self) -> &AtomicU64 {
        // SAFETY: at the beginning of a page that is mapped as long as `self`, of which nobody uses more than
        // this atomic.
        unsafe { &*self.users.as_ptr().cast() }
    }

    /// Where it is: a whole page's beginning.
    pub fn at(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// This process has no use for it any more; was it the last one that had it mapped?
    pub fn leave(self) -> bool {
        self.process == std::process::id() && self.users().fetch_sub(1, SeqCst) == 1
    }
}

const PAGE: usize = 4096;

/// Where the page behind so many bytes begins.
const fn behind(len: usize) -> usize {
    len.next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_the_leader_writes_and_no_other_file() {
        let (leader, name) = Mapping::make(4096).unwrap();
        let reader = Mapping::open(name.words(), 4096, Kind::Reader).unwrap();
        // SAFETY: one byte of each mapping, of one thread.
        unsafe {
            leader.at().add(4095).write_volatile(7);
            assert_eq!(reader.at().add(4095).read_volatile(), 7);
        }
        let wrong = |at: usize| {
            let mut words = name.words();
            words[at] ^= 1;
            Mapping::open(words, 4096, Kind::Reader).unwrap_err().to_string()
        };
        assert!(wrong(0).contains("another host") && wrong(1).contains("another host"));
        assert!(wrong(4).contains("another file") && wrong(5).contains("another file"));
        assert!(Mapping::open(name.words(), 8192, Kind::Reader).is_err());
        assert!(Mapping::open(Name::NONE, 4096, Kind::Reader).is_err());
        assert!(!leader.leave() && reader.leave());
    }

    #[test]
    fn a_child_that_has_it_too_is_not_counted() {
        let (mut leader, name) = Mapping::make(4096).unwrap();
        let reader = Mapping::open(name.words(), 4096, Kind::Reader).unwrap();
        // As a child has it.
        leader.process += 1;
        assert!(!leader.leave() && !reader.leave(), "the leader's own one is still there");
    }

    #[test]
    fn nobody_can_make_it_shorter() {
        let (_leader, name) = Mapping::make(8192).unwrap();
        assert!(name.file.set_len(4096).is_err() && name.file.set_len(1 << 20).is_err());
    }
}
