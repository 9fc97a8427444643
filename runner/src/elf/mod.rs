//! ELF files, as far as it matters for starting a program: for which machine it is, what its notes say, and
//! what it is linked to ([`Search`]). A leaf: it reads files, and knows nothing of jobs.
//!
//! What is wrong with a file is told by whoever executes it; here it only has less to say.

mod cache;
mod search;

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub use search::Search;

/// Longest segment of notes, or of dynamic entries, that is looked at, in bytes.
const LONGEST: u64 = 1 << 20;
/// Longest name.
const LONGEST_NAME: usize = 4096;

/// `e_machine` of this machine.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// An ELF file.
#[derive(Debug)]
pub struct Elf {
    file: File,
    /// `None`: it is for another machine.
    segments: Option<Vec<Segment>>,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    len: u64,
}

/// What a file asks of the dynamic linker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// The libraries it is linked to, as it names them.
    pub needed: Vec<OsString>,
    /// Where they are looked for first; colons between.
    pub rpath: Option<OsString>,
    /// The same, behind `LD_LIBRARY_PATH`, and instead of the first.
    pub runpath: Option<OsString>,
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

impl Elf {
    /// `None` if it is none, or cannot be read.
    #[must_use]
    pub fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut header = [0u8; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        if !header.starts_with(b"\x7fELF") {
            return None;
        }
        // 64 bits, little-endian, this machine.
        if header[4] != 2 || header[5] != 1 || half(&header, 18) != MACHINE {
            return Some(Self { file, segments: None });
        }
        let (start, size, count) = (long(&header, 32), half(&header, 54), half(&header, 56));
        let segment = |i: u16| {
            let mut part = [0u8; 56];
            let at = start.checked_add(u64::from(i) * u64::from(size))?;
            file.read_exact_at(&mut part, at).ok()?;
            let (offset, address, len) = (long(&part, 8), long(&part, 16), long(&part, 32));
            Some(Segment { kind: word(&part, 0), offset, address, len })
        };
        let segments = (0..count).map(segment).collect::<Option<Vec<_>>>()?;
        Some(Self { file, segments: Some(segments) })
    }

    fn segments(&self, kind: u32) -> impl Iterator<Item = Segment> {
        self.segments.iter().flatten().copied().filter(move |segment| segment.kind == kind)
    }

    /// Whether the dynamic linker loads it, if it is executed.
    #[must_use]
    pub fn is_linked_dynamically(&self) -> bool {
        self.segments(libc::PT_INTERP).next().is_some()
    }

    /// Its segments of notes.
    pub fn notes(&self) -> impl Iterator<Item = Vec<u8>> {
        self.segments(libc::PT_NOTE).filter_map(|segment| self.content(segment))
    }

    fn content(&self, segment: Segment) -> Option<Vec<u8>> {
        let mut bytes = vec![0u8; usize::try_from(segment.len.min(LONGEST)).ok()?];
        self.file.read_exact_at(&mut bytes, segment.offset).ok()?;
        Some(bytes)
    }

    /// What it asks of the dynamic linker; `None` if that has nothing to do with it.
    #[must_use]
    pub fn dynamic(&self) -> Option<Dynamic> {
        let entries = self.content(self.segments(libc::PT_DYNAMIC).next()?)?;
        let entries = || {
            let entries = entries.chunks_exact(16).map(|entry| (long(entry, 0), long(entry, 8)));
            entries.take_while(|(tag, _)| *tag != 0)
        };
        let (_, strings) = entries().find(|(tag, _)| *tag == DT_STRTAB)?;
        let strings = self.offset_of(strings)?;
        let mut dynamic = Dynamic::default();
        for (tag, value) in entries().filter(|(tag, _)| [DT_NEEDED, DT_RPATH, DT_RUNPATH].contains(tag)) {
            let Some(text) = strings.checked_add(value).and_then(|at| self.text(at)) else { continue };
            match tag {
                DT_NEEDED => dynamic.needed.push(text),
                DT_RPATH => dynamic.rpath = Some(text),
                _ => dynamic.runpath = Some(text),
            }
        }
        Some(dynamic)
    }

    /// Where in the file that lies which has this address.
    fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments(libc::PT_LOAD).find_map(|Segment { offset, address: start, len, .. }| {
            let inside = address.checked_sub(start).filter(|&inside| inside < len)?;
            offset.checked_add(inside)
        })
    }

    fn text(&self, at: u64) -> Option<OsString> {
        let mut bytes = vec![0u8; LONGEST_NAME];
        let len = self.file.read_at(&mut bytes, at).ok()?;
        bytes.truncate(bytes[..len].iter().position(|&byte| byte == 0)?);
        Some(OsString::from_vec(bytes))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// A folder that is removed in the end, and a compiler that writes into it.
    pub(crate) struct Workshop(PathBuf);

    impl Workshop {
        /// None without a compiler, which is said.
        pub(crate) fn new(name: &str) -> Option<Self> {
            if Command::new("gcc").arg("--version").output().is_err() {
                bdrun_skipped::skipped("gcc", "there is no gcc");
                return None;
            }
            let dir = std::env::temp_dir().join(format!("bdrun-elf-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Some(Self(dir.canonicalize().unwrap()))
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        /// Makes a file in it of a program of no lines.
        pub(crate) fn gcc(&self, to: &str, args: &[&str]) -> PathBuf {
            let (source, to) = (self.path("empty.c"), self.path(to));
            std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            let mut gcc = Command::new("gcc");
            // What is linked to stays linked to, although nothing of it is used.
            gcc.arg("-Wl,--no-as-needed").arg(&source).arg("-o").arg(&to).args(args).current_dir(&self.0);
            let made = gcc.output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            to
        }

        /// A library of this name, linked to others.
        pub(crate) fn library(&self, to: &str, args: &[&str]) -> PathBuf {
            let name = Path::new(to).file_name().unwrap().to_str().unwrap().to_owned();
            let soname = format!("-Wl,-soname,{name}");
            self.gcc(to, &[&["-shared", "-fPIC", "-nostdlib", &soname], args].concat())
        }
    }

    impl Drop for Workshop {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_a_file_asks_for_is_read() {
        let Some(shop) = Workshop::new("read") else { return };
        shop.library("liba.so.3", &[]);
        let program = shop.gcc("p", &["./liba.so.3", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/x:/y"]);
        let elf = Elf::open(&program).unwrap();
        assert!(elf.is_linked_dynamically());
        let dynamic = elf.dynamic().unwrap();
        assert_eq!(dynamic.needed[0], "liba.so.3");
        assert!(dynamic.needed[1].to_str().unwrap().starts_with("libc.so"), "{dynamic:?}");
        assert_eq!((dynamic.runpath, dynamic.rpath), (Some("$ORIGIN/x:/y".into()), None));
        let old = shop.gcc("q", &["-Wl,--disable-new-dtags,-rpath,/z"]);
        assert_eq!(Elf::open(&old).unwrap().dynamic().unwrap().rpath, Some("/z".into()));
    }

    #[test]
    fn what_is_damaged_has_less_to_say() {
        let Some(shop) = Workshop::new("damaged") else { return };
        let whole = std::fs::read(shop.library("liba.so.3", &["-Wl,-rpath,/z"])).unwrap();
        let damaged = shop.path("damaged");
        for cut in [0, 3, 63, 64, 200, whole.len() / 2] {
            std::fs::write(&damaged, &whole[..cut]).unwrap();
            let _ = Elf::open(&damaged).and_then(|elf| elf.dynamic());
        }
        for at in (0..whole.len().min(2048)).step_by(3) {
            let mut other = whole.clone();
            other[at] = 0xff;
            std::fs::write(&damaged, &other).unwrap();
            let _ = Elf::open(&damaged).map(|elf| (elf.dynamic(), elf.notes().count()));
        }
        assert!(Elf::open(Path::new("/etc/passwd")).is_none());
    }
}
