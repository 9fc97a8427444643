//! Where results are that are not in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::gaps::Gaps;
use super::scratch::{scratch_error, scratch_file};
use crate::graph::TaskId;

/// Keeps results of type `V` that are not in memory. Its calls come from several threads.
pub trait Store<V>: Sync {
    /// What a result is found by.
    type Place: Send + Sync;

    /// Writes a task's result.
    ///
    /// # Errors
    /// If it cannot be written.
    fn write(&self, task: TaskId, value: &V) -> io::Result<Self::Place>;

    /// Reads it. It may be read again.
    ///
    /// # Errors
    /// If it cannot be read.
    fn read(&self, task: TaskId, place: &Self::Place) -> io::Result<V>;

    /// It is not read any more.
    fn release(&self, place: Self::Place);
}

/// Keeps nothing: for executions within the budget, where nothing is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStore;

impl<V> Store<V> for NoStore {
    type Place = std::convert::Infallible;

    fn write(&self, _: TaskId, _: &V) -> io::Result<Self::Place> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "there is no scratch to write results to"))
    }

    fn read(&self, _: TaskId, place: &Self::Place) -> io::Result<V> {
        match *place {}
    }

    fn release(&self, place: Self::Place) {
        match place {}
    }
}

/// What can be written to a file: bytes, and a few words that stay in memory.
pub trait Spill: Sized {
    /// What is needed besides the bytes: shape and type, say.
    type Head: Clone + Send + Sync;

    /// Both.
    fn spill(&self) -> (Self::Head, &[u8]);

    /// The value again, of so many bytes, which `fill` puts where it is told to.
    ///
    /// # Errors
    /// What `fill` returns.
    fn restore(head: &Self::Head, len: usize, fill: &mut Fill<'_>) -> io::Result<Self>;
}

/// Puts the bytes of a value where it is told to.
pub type Fill<'a> = dyn FnMut(&mut [u8]) -> io::Result<()> + 'a;

impl Spill for std::sync::Arc<Vec<u8>> {
    type Head = ();

    fn spill(&self) -> ((), &[u8]) {
        ((), self)
    }

    fn restore(_: &(), len: usize, fill: &mut Fill<'_>) -> io::Result<Self> {
        let mut bytes = vec![0; len];
        fill(&mut bytes)?;
        Ok(Self::new(bytes))
    }
}

/// What processes can hand to each other: its bytes lie in memory that they share.
pub trait Lend: Spill {
    /// What is needed besides the bytes, as bytes.
    fn encode(head: &Self::Head) -> Vec<u8>;

    /// The same back.
    ///
    /// # Errors
    /// If it is none.
    fn decode(head: &[u8]) -> io::Result<Self::Head>;

    /// The value over these bytes, or over a copy of them.
    ///
    /// # Errors
    /// If there is no memory for a copy.
    fn borrow(head: &Self::Head, bytes: Lent) -> io::Result<Self>;
}

impl Lend for std::sync::Arc<Vec<u8>> {
    fn encode((): &()) -> Vec<u8> {
        Vec::new()
    }

    fn decode(head: &[u8]) -> io::Result<()> {
        if head.is_empty() { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn borrow((): &(), bytes: Lent) -> io::Result<Self> {
        Ok(Self::new(bytes.bytes().to_vec()))
    }
}

/// Bytes that somebody else keeps, and that nobody changes while this, or a clone of it, is there.
#[derive(Clone)]
pub struct Lent(std::sync::Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Lent {
    /// Those of a keeper, who gives the same each time.
    pub fn new(keeper: std::sync::Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self(keeper)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, lent", self.bytes().len())
    }
}

/// A file without a name, on a scratch directory: it is gone with the program, however that ends.
#[derive(Debug)]
pub struct FileStore {
    file: File,
    /// Where it is.
    directory: PathBuf,
    free: Mutex<Gaps>,
}

/// Where a value lies in a [`FileStore`].
#[derive(Clone, Debug)]
pub struct Extent<H> {
    offset: u64,
    len: usize,
    head: H,
}

impl FileStore {
    /// On a directory: [`scratch_directory`](super::scratch_directory), if none is named.
    ///
    /// # Errors
    /// If no file can be made there.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let file = scratch_file(directory)?;
        Ok(Self { file, directory: directory.into(), free: Mutex::default() })
    }

    /// Bytes of the file that hold values.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Gaps> {
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<V: Spill> Store<V> for FileStore {
    type Place = Extent<V::Head>;

    fn write(&self, _: TaskId, value: &V) -> io::Result<Self::Place> {
        let (head, bytes) = value.spill();
        let offset = self.lock().take(bytes.len() as u64);
        if let Err(error) = self.file.write_all_at(bytes, offset) {
            self.lock().give(offset, bytes.len() as u64);
            return Err(scratch_error(&self.directory, error));
        }
        Ok(Extent { offset, len: bytes.len(), head })
    }

    fn read(&self, _: TaskId, place: &Self::Place) -> io::Result<V> {
        let mut at = place.offset;
        V::restore(&place.head, place.len, &mut |bytes| {
            if at + bytes.len() as u64 > place.offset + place.len as u64 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "more bytes are asked for than were written",
                ));
            }
            self.file.read_exact_at(bytes, at).map_err(|error| scratch_error(&self.directory, error))?;
            at += bytes.len() as u64;
            Ok(())
        })
    }

    fn release(&self, place: Self::Place) {
        self.lock().give(place.offset, place.len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_is_written_is_read_and_room_is_used_again() {
        let store = FileStore::new(&std::env::temp_dir()).unwrap();
        let value = |byte: u8, len: usize| Arc::new(vec![byte; len]);
        let write = |value: &Arc<Vec<u8>>| store.write(TaskId(0), value).unwrap();
        let (one, two, three) = (write(&value(1, 100)), write(&value(2, 50)), write(&value(3, 70)));
        assert_eq!(store.used(), 220);
        let read = |place: &Extent<()>| -> Arc<Vec<u8>> { store.read(TaskId(0), place).unwrap() };
        assert_eq!((read(&one), read(&two), read(&three)), (value(1, 100), value(2, 50), value(3, 70)));
        let release = |place| Store::<Arc<Vec<u8>>>::release(&store, place);
        release(one);
        release(two);
        let four = write(&value(4, 150));
        assert_eq!(four.offset, 0);
        assert_eq!((read(&three), read(&four)), (value(3, 70), value(4, 150)));
        release(three);
        release(four);
        assert_eq!((store.used(), store.lock().end()), (0, 0));
        assert_eq!(read(&write(&value(0, 0))), value(0, 0));
    }

    #[test]
    fn what_goes_wrong_names_the_directory() {
        let directory = std::env::temp_dir();
        let store = FileStore::new(&directory).unwrap();
        let behind = Extent { offset: 1 << 20, len: 7, head: () };
        let error = Store::<Arc<Vec<u8>>>::read(&store, TaskId(0), &behind).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().starts_with(&format!("{}: ", directory.display())), "{error}");
        // One that cannot be written to.
        let file = File::open("/proc/self/exe").unwrap();
        let store = FileStore { file, directory: directory.clone(), free: Mutex::default() };
        let error = store.write(TaskId(0), &Arc::new(vec![1])).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}: ", directory.display())), "{error}");
        assert_eq!(store.used(), 0);
    }
}
