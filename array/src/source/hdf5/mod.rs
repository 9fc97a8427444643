//! Datasets of HDF5 files, named `FILE::/DATASET`.
//!
//! The library says where the chunks lie in the file, and what is neither filtered nor converted is then read
//! and written there without it: by several threads at a time, in and out of blocks at once. A file that is
//! written is whole before the first element is in it, so that to be killed meanwhile leaves a file that can
//! be opened; it is put in its place when all is written.

mod layout;
mod library;
mod object;

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Sink, Source};
use crate::block::Block;
use crate::dtype::DType;
use crate::error::Error;
use crate::shape::Region;
use layout::Layout;
use library::Locked;
use object::{Object, dataset_type, ids, properties};

fn wrong(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// A file and the name of a dataset in it, as they are written behind each other.
pub fn split(name: &str) -> Option<(&Path, &str)> {
    let (file, dataset) = name.rsplit_once("::")?;
    Some((Path::new(file), dataset))
}

/// A dataset to read from.
pub struct Hdf5 {
    path: PathBuf,
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    unit: Vec<usize>,
    /// Where elements are, if they lie in the file as they do in memory.
    plain: Option<(File, Layout)>,
    /// The dataset, and the file that it is in.
    open: Option<[Object; 2]>,
    locked: &'static Locked,
}

impl Drop for Hdf5 {
    fn drop(&mut self) {
        let _lock = self.locked.enter();
        self.open = None;
    }
}

impl std::fmt::Debug for Hdf5 {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Hdf5({})", Source::name(self))
    }
}

impl Hdf5 {
    /// Opens it.
    ///
    /// # Errors
    /// If there is no `libhdf5`, no such file or dataset, or its elements are of a type that there is not
    /// here.
    pub fn open(path: &Path, dataset: &str) -> Result<Self, Error> {
        Self::open_dataset(path, dataset).map_err(|error| Error::file(path, error))
    }

    fn open_dataset(path: &Path, name: &str) -> io::Result<Self> {
        let locked = library::get().map_err(io::Error::other)?;
        let library = &locked.library;
        let _lock = locked.enter();
        // The kernel's reason is better than the library's.
        let plain = File::open(path)?;
        let file = Object::open_file(locked, path)?;
        let dataset = Object::open_dataset(locked, &file, name)?;
        let (shape, dtype) = (object::shape(locked, &dataset)?, object::dtype(locked, &dataset)?);
        let created = Object::properties_of(locked, &dataset)?;
        let mut layout = None;
        // SAFETY: `created` is a property list.
        let (kind, filters) =
            unsafe { ((library.H5Pget_layout)(created.id), (library.H5Pget_nfilters)(created.id)) };
        let mut unit = vec![1; shape.len()];
        if kind == object::CHUNKED {
            let mut chunk = vec![0_u64; shape.len()];
            // SAFETY: it writes as many numbers as it is told.
            let count = unsafe { (library.H5Pget_chunk)(created.id, chunk.len() as i32, chunk.as_mut_ptr()) };
            if count != chunk.len() as i32 {
                return Err(wrong("its chunks have another number of axes than it has"));
            }
            unit = chunk.iter().map(|&length| length as usize).collect();
        }
        if filters == 0 && object::is_native(locked, &dataset, dtype)? {
            layout = match kind {
                object::CHUNKED => Some(layout::chunked(locked, &dataset, &created, dtype, &shape, &unit)?),
                object::CONTIGUOUS => layout::contiguous(locked, &dataset),
                _ => None,
            };
        }
        let plain = layout.map(|layout| (plain, layout));
        Ok(Self {
            path: path.into(),
            name: name.into(),
            dtype,
            shape,
            unit,
            plain,
            open: Some([dataset, file]),
            locked,
        })
    }

    /// By the library, which converts and filters.
    fn read_by_library(&self, region: &Region) -> io::Result<Block> {
        let mut block = Block::zeros(self.dtype, &region.shape)?;
        if block.is_empty() {
            return Ok(block);
        }
        let library = &self.locked.library;
        let _lock = self.locked.enter();
        let here = Object::space(self.locked, &region.shape)?;
        let there = Object::space(self.locked, &self.shape)?;
        if !region.shape.is_empty() {
            let [start, count] =
                [&region.start, &region.shape].map(|of| of.iter().map(|&at| at as u64).collect::<Vec<_>>());
            let none = std::ptr::null();
            // SAFETY: both have as many numbers as the space has axes; a stride and block of null are ones.
            let code = unsafe {
                (library.H5Sselect_hyperslab)(there.id, 0, start.as_ptr(), none, count.as_ptr(), none)
            };
            if code < 0 {
                return Err(wrong("the region cannot be selected"));
            }
        }
        let memory = dataset_type(self.locked, self.dtype, true)?;
        let [dataset, _] = self.open.as_ref().ok_or_else(|| wrong("it is closed"))?;
        let bytes = block.bytes_mut();
        // SAFETY: the block has as many elements of the type as the region.
        let code = unsafe {
            (library.H5Dread)(
                dataset.id,
                memory.id(),
                here.id,
                there.id,
                0,
                bytes.as_mut_ptr().cast::<c_void>(),
            )
        };
        if code < 0 { Err(wrong("H5Dread failed: a filter that is not there, or damage")) } else { Ok(block) }
    }
}

impl Source for Hdf5 {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn unit(&self) -> Vec<usize> {
        self.unit.clone()
    }

    fn name(&self) -> String {
        format!("{}::{}", self.path.display(), self.name)
    }

    fn read(&self, region: &Region) -> io::Result<Block> {
        let Some((file, layout)) = &self.plain else { return self.read_by_library(region) };
        let mut block = Block::zeros(self.dtype, &region.shape)?;
        let size = self.dtype.size();
        layout.rows(&self.shape, region, size, |rows| {
            layout::read(file, layout, size, rows, block.bytes_mut())
        })?;
        Ok(block)
    }
}

/// A dataset of a new file that an array is written to.
pub struct Hdf5Writer {
    path: PathBuf,
    name: String,
    aside: PathBuf,
    shape: Vec<usize>,
    unit: Vec<usize>,
    layout: Layout,
    file: File,
    is_finished: AtomicBool,
}

impl std::fmt::Debug for Hdf5Writer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Hdf5Writer({})", Sink::name(self))
    }
}

impl Hdf5Writer {
    /// Begins a file with one dataset of this type and shape, in such chunks. A file that is there is not
    /// written to: to be killed meanwhile might damage it. It is replaced when all is written.
    ///
    /// # Errors
    /// If there is no `libhdf5`, or the file cannot be made.
    pub fn create(
        path: &Path,
        dataset: &str,
        dtype: DType,
        shape: &[usize],
        chunk: &[usize],
    ) -> Result<Self, Error> {
        Self::begin(path, dataset, dtype, shape, chunk).map_err(|error| Error::file(path, error))
    }

    fn begin(path: &Path, name: &str, dtype: DType, shape: &[usize], chunk: &[usize]) -> io::Result<Self> {
        let locked = library::get().map_err(io::Error::other)?;
        let dataset_name = name.trim_start_matches('/');
        if dataset_name.is_empty() || dataset_name.contains('/') {
            return Err(wrong(format!("{name} is no name of a dataset in the root of a file, such as /C")));
        }
        let file_name = path.file_name().ok_or_else(|| wrong("it names no file"))?.to_string_lossy();
        let aside = path.with_file_name(format!(".{file_name}.{}", std::process::id()));
        let unit: Vec<usize> =
            chunk.iter().zip(shape).map(|(&chunk, &length)| chunk.clamp(1, length.max(1))).collect();
        // Made by the kernel first, for its reason if that cannot be.
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&aside)?;
        let made = (|| {
            let _lock = locked.enter();
            let there = Object::create_file(locked, &aside)?;
            let space = Object::space(locked, shape)?;
            let kind = dataset_type(locked, dtype, false)?;
            let created = properties(locked, &unit)?;
            let dataset = Object::create_dataset(locked, &there, dataset_name, &kind, &space, &created)?;
            if shape.is_empty() {
                layout::contiguous(locked, &dataset)
                    .ok_or_else(|| wrong("a scalar without a place in the file"))
            } else {
                layout::chunked(locked, &dataset, &created, dtype, shape, &unit)
            }
        })();
        // What was begun in vain is not left behind.
        let layout = made.inspect_err(|_| _ = std::fs::remove_file(&aside))?;
        let is_finished = AtomicBool::new(false);
        let (path, name, shape) = (path.into(), name.into(), shape.to_vec());
        Ok(Self { path, name, aside, shape, unit, layout, file, is_finished })
    }
}

impl Sink for Hdf5Writer {
    fn name(&self) -> String {
        format!("{}::{}", self.path.display(), self.name)
    }

    fn unit(&self, _: &[usize]) -> Vec<usize> {
        self.unit.clone()
    }

    fn write(&self, region: &Region, block: &Block) -> io::Result<()> {
        let size = block.dtype().size();
        self.layout.rows(&self.shape, region, size, |rows| {
            layout::write(&self.file, &self.layout, rows, block.as_bytes())
        })
    }

    fn finish(&self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.aside, &self.path)?;
        self.is_finished.store(true, Ordering::Relaxed);
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Hdf5Writer {
    fn drop(&mut self) {
        if !self.is_finished.load(Ordering::Relaxed) {
            // What was not finished is no array. That it cannot be removed is no reason to fail once more.
            _ = std::fs::remove_file(&self.aside);
        }
    }
}

/// The number of ids that are open: for tests.
#[doc(hidden)]
pub fn open_ids() -> usize {
    ids()
}
