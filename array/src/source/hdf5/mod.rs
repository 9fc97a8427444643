//! Datasets of HDF5 files, named `FILE::/DATASET`.
//!
//! The library says where the chunks lie in the file, and what is neither filtered nor converted is then read
//! and written there without it: by several threads at a time, in and out of blocks at once. A file that is
//! written is whole before the first element is in it, so that to be killed meanwhile leaves a file that can
//! be opened; it is put in its place when all is written.

mod files;
mod layout;
mod library;
mod object;
mod replaced;

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::aside::{Aside, Identity};
use super::{Sink, Source, pieces};
use crate::block::Block;
use crate::dtype::DType;
use crate::error::Error;
use crate::shape::{Region, is_possible};
use layout::Layout;
use library::Locked;
use object::{Object, dataset_type, properties};

/// Of a chunk that is filtered: as it is stored, and from one filter to the next.
const COPIES: u64 = 3;
/// Bytes of elements that the library converts at a time, at most.
const CONVERTED: u64 = 1 << 20;

/// Of copies from so many bytes on the library and the allocator give back what they keep to use it again: up
/// to 64 MiB, for which nobody has room.
const KEPT: u64 = 1 << 20;

fn give_back(library: &library::Library) {
    // SAFETY: it changes nothing but what is free. What it says of that does not matter.
    unsafe { (library.H5garbage_collect)() };
    #[cfg(target_env = "gnu")]
    // SAFETY: the same.
    unsafe {
        libc::malloc_trim(0);
    }
}

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
    plain: Option<Layout>,
    /// Bytes that the library takes for a chunk that is filtered, while it is unpacked.
    unpacked: u64,
    /// Whether it converts elements.
    is_converted: bool,
    /// The one that it is in.
    file: File,
    /// The one that was named, if its dataset is a link to another one.
    named: Option<File>,
    /// Whether its elements are in others (virtual datasets, external storage).
    is_spread: bool,
    /// Whether the library opens some as it reads.
    is_virtual: bool,
    /// The dataset, and the file that was named.
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
        Self::open_dataset(path, dataset, || {}).map_err(|error| Error::file(path, error))
    }

    /// `between` is called whenever the kernel has opened it and the library has not.
    fn open_dataset(path: &Path, name: &str, between: impl FnMut()) -> io::Result<Self> {
        let locked = library::get().map_err(io::Error::other)?;
        let library = &locked.library;
        let _lock = locked.enter();
        let (plain_file, file) = open_both(locked, path, between)?;
        let (dataset, shape) = files::keep_new_from_children(|| {
            let dataset = Object::open_dataset(locked, &file, name)?;
            let shape = object::shape(locked, &dataset)?;
            io::Result::Ok((dataset, shape))
        })?;
        // Behind an external link, which may be anywhere in its name, places are those of another file.
        let (own, opened) = files::own(locked, &dataset)?;
        let is_file = opened.is_some();
        let (plain_file, named) = match opened {
            Some(opened) if !files::are_same(&opened, &plain_file)? => (opened, Some(plain_file)),
            _ => (plain_file, None),
        };
        let dtype = object::dtype(locked, &dataset)?;
        if !is_possible(&shape, dtype.size()) {
            return Err(wrong(format!("its shape is larger than there can be: {shape:?}")));
        }
        let created = Object::properties_of(locked, &dataset)?;
        let mut layout = None;
        // SAFETY: `created` is a property list.
        let (kind, filters) =
            unsafe { ((library.H5Pget_layout)(created.id), (library.H5Pget_nfilters)(created.id)) };
        let mut unit = vec![1; shape.len()];
        if kind == object::CHUNKED {
            unit = chunk_of(locked, &created, shape.len())?;
        }
        let is_native = object::is_native(locked, &dataset, dtype)?;
        if is_file && filters == 0 && is_native && !object::is_shifted(locked, &own)? {
            layout = match kind {
                // The library finds each by itself as it reads.
                object::CHUNKED if layout::takes_long(locked, &shape, &unit) => None,
                object::CHUNKED => layout::chunked(locked, &dataset, &created, dtype, &shape, &unit)?,
                object::CONTIGUOUS => layout::contiguous(locked, &dataset),
                _ => None,
            };
        }
        let mut unpacked = 0;
        if filters != 0 && kind == object::CHUNKED {
            let elements = crate::shape::count(&unit) as u64;
            unpacked =
                COPIES.saturating_mul(elements).saturating_mul(object::stored_size(locked, &dataset)? as u64);
        }
        // SAFETY: `created` is a property list.
        let externals = unsafe { (library.H5Pget_external_count)(created.id) };
        Ok(Self {
            path: path.into(),
            name: name.into(),
            dtype,
            shape,
            unit,
            plain: layout,
            unpacked,
            is_converted: !is_native,
            file: plain_file,
            named,
            // What the library does not read as a file may be anywhere.
            is_spread: kind == object::VIRTUAL || externals > 0 || !is_file,
            is_virtual: kind == object::VIRTUAL,
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
        let mut read = || {
            let to = bytes.as_mut_ptr().cast::<c_void>();
            // SAFETY: the block has as many elements of the type as the region.
            unsafe { (library.H5Dread)(dataset.id, memory.id(), here.id, there.id, 0, to) }
        };
        let code = if self.is_virtual { files::keep_new_from_children(read) } else { read() };
        if self.unpacked >= KEPT {
            give_back(library);
        }
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

    /// Of all files that say what its elements are.
    fn stamp(&self) -> String {
        let mut all = super::stamp(&self.file);
        let Some([dataset, _]) = &self.open else { return all };
        let _lock = self.locked.enter();
        if let Some(named) = &self.named {
            // Links between the two may lead elsewhere the next time.
            all += &format!(" {} {}", super::stamp(named), files::name(self.locked, dataset));
        }
        if self.is_spread {
            all += &files::keep_new_from_children(|| files::stamps(self.locked, dataset));
        }
        all
    }

    fn work(&self, region: &Region) -> u64 {
        let elements = crate::shape::count(&region.shape) as u64;
        let converted = if self.is_converted { elements.saturating_mul(8).min(CONVERTED) } else { 0 };
        if elements == 0 { 0 } else { self.unpacked.saturating_add(converted) }
    }

    fn read(&self, region: &Region) -> io::Result<Block> {
        let Some(layout) = &self.plain else { return self.read_by_library(region) };
        let mut block = Block::zeros(self.dtype, &region.shape)?;
        let size = self.dtype.size();
        layout.rows(&self.shape, region, size, |rows| layout.read(&self.file, rows, block.bytes_mut()))?;
        Ok(block)
    }
}

/// A file, by the kernel and by the library. If it is replaced before both have it, elements of one would be
/// looked for where those of the other lie: then it is opened again.
fn open_both(locked: &Locked, path: &Path, mut between: impl FnMut()) -> io::Result<(File, Object)> {
    for _ in 0..TRIES {
        // The kernel's reason is better than the library's.
        let plain = File::open(path)?;
        between();
        let file = Object::open_file(locked, path)?;
        // The first one is open, so that no other has its number: what still has its name is what the
        // library has opened meanwhile.
        if super::is_named(&plain, path)? {
            return Ok((plain, file));
        }
    }
    Err(wrong("it is replaced again and again while it is opened"))
}

const TRIES: usize = 100;

/// How many elements a chunk has along each axis.
fn chunk_of(locked: &Locked, created: &Object, axes: usize) -> io::Result<Vec<usize>> {
    let mut chunk = vec![0_u64; axes];
    // SAFETY: it writes as many numbers as it is told.
    let count = unsafe { (locked.library.H5Pget_chunk)(created.id, axes as i32, chunk.as_mut_ptr()) };
    if count != axes as i32 {
        return Err(wrong("its chunks have another number of axes than it has"));
    }
    Ok(chunk.iter().map(|&length| length as usize).collect())
}

/// A dataset of a new file that an array is written to.
pub struct Hdf5Writer {
    to: Aside,
    path: PathBuf,
    name: String,
    shape: Vec<usize>,
    layout: Layout,
}

/// What a dataset is to be.
#[derive(Clone, Copy, Debug)]
pub struct Dataset<'a> {
    /// Its name in the root of its file.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: DType,
    /// How many there are along each axis.
    pub shape: &'a [usize],
    /// How many a chunk has along each.
    pub chunk: &'a [usize],
}

impl std::fmt::Debug for Hdf5Writer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Hdf5Writer({})", Sink::name(self))
    }
}

impl Hdf5Writer {
    /// Begins a file with one dataset; with an identity, one that can be gone on with if it is interrupted,
    /// or goes on with it. A file that is there is not written to: to be killed meanwhile might damage it. It
    /// is replaced when all is written, unless there is more in it than a dataset of this name, or may be.
    ///
    /// # Errors
    /// If there is no `libhdf5`, there are more than 2^26 chunks, no file can be made, or what is there is
    /// of another identity, has more in it, is written to by others, or cannot be looked at.
    pub fn create(path: &Path, dataset: Dataset<'_>, identity: Option<Identity>) -> Result<Self, Error> {
        Self::begin(path, dataset, identity).map_err(|error| Error::file(path, error))
    }

    fn begin(path: &Path, dataset: Dataset<'_>, identity: Option<Identity>) -> io::Result<Self> {
        let Dataset { name, dtype, shape, chunk } = dataset;
        let inner = name.trim_start_matches('/');
        if inner.is_empty() || inner.contains('/') {
            return Err(wrong(format!("{name} is no name of a dataset in the root of a file, such as /C")));
        }
        if chunk.len() != shape.len() {
            let (given, axes) = (chunk.len(), shape.len());
            return Err(wrong(format!("chunks along {given} axes, of an array of {axes}")));
        }
        let unit: Vec<usize> =
            chunk.iter().zip(shape).map(|(&chunk, &length)| chunk.clamp(1, length.max(1))).collect();
        // Known before there is a file, in which the library makes room for all of them at once.
        if !layout::are_listed(shape, &unit) {
            let most = layout::LISTED;
            return Err(wrong(format!("chunks of {unit:?} are more than can be written, which are {most}")));
        }
        let locked = library::get().map_err(io::Error::other)?;
        // Made by the kernel first, for its reason if that cannot be.
        let format = format!("hdf5 {inner} {} {shape:?} {unit:?}", dtype.name());
        let own = inner.to_owned();
        let may = Box::new(move |path: &Path| replaced::can_be(locked, path, &own));
        let (to, is_there) = Aside::begin(path, identity, &format, may)?;
        let layout = {
            let _lock = locked.enter();
            let (file, there, created);
            if is_there {
                file = Object::open_file(locked, &to.aside)?;
                there = Object::open_dataset(locked, &file, inner)?;
                created = Object::properties_of(locked, &there)?;
                let begun = (object::shape(locked, &there)?, object::dtype(locked, &there)?);
                let is_same = begun == (shape.to_vec(), dtype)
                    && (shape.is_empty() || chunk_of(locked, &created, shape.len())? == unit);
                if !is_same {
                    return Err(wrong("what was begun has another type, shape or chunks"));
                }
            } else {
                file = Object::create_file(locked, &to.aside)?;
                let space = Object::space(locked, shape)?;
                let kind = dataset_type(locked, dtype, false)?;
                created = properties(locked, &unit)?;
                there = Object::create_dataset(locked, &file, inner, &kind, &space, &created)?;
            }
            if shape.is_empty() {
                layout::contiguous(locked, &there)
                    .ok_or_else(|| wrong("a scalar without a place in the file"))?
            } else {
                layout::chunked(locked, &there, &created, dtype, shape, &unit)?
                    .ok_or_else(|| wrong(format!("there is no memory to list chunks of {unit:?}")))?
            }
        };
        // The library has closed it.
        if !is_there {
            to.ready()?;
        }
        Ok(Self { to, path: path.into(), name: name.into(), shape: shape.to_vec(), layout })
    }
}

impl Sink for Hdf5Writer {
    fn name(&self) -> String {
        format!("{}::{}", self.path.display(), self.name)
    }

    fn has(&self, region: &Region) -> bool {
        self.to.has(region)
    }

    fn write(&self, region: &Region, block: &Block) -> io::Result<()> {
        let size = block.dtype().size();
        self.layout
            .rows(&self.shape, region, size, |rows| pieces::write(&self.to.file, rows, block.as_bytes()))?;
        self.to.wrote(region)
    }

    fn finish(&self) -> io::Result<()> {
        self.to.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_while_it_is_opened_is_read_as_what_it_is() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-hdf5-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [path, other] = ["x.h5", "other.h5"].map(|name| folder.join(name));
        let whole = Region { start: vec![0], shape: vec![6] };
        for (path, chunk, value) in [(&path, 6, 1.0), (&other, 2, 2.0)] {
            let dataset = Dataset { name: "/C", dtype: DType::F64, shape: &[6], chunk: &[chunk] };
            let sink = match Hdf5Writer::create(path, dataset, None) {
                Err(error) if error.to_string().contains("libhdf5") => {
                    std::fs::remove_dir_all(&folder).unwrap();
                    return bdrun_skipped::skipped("h5py", error);
                }
                sink => sink.unwrap(),
            };
            sink.write(&whole, &Block::from_slice(&[6], &[value; 6]).unwrap()).unwrap();
            sink.finish().unwrap();
        }
        let mut replaced = 0;
        let opened = Hdf5::open_dataset(&path, "C", || {
            replaced += usize::from(std::fs::rename(&other, &path).is_ok());
        });
        let block = opened.unwrap().read(&whole).unwrap();
        assert_eq!((replaced, block.elements::<f64>()), (1, &[2.0; 6][..]));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn more_chunks_than_are_listed_are_refused_before_there_is_a_file() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-hdf5-many-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (shape, identity) in [([1 << 40, 1], None), ([1 << 20, 65], Some(7))] {
            let dataset = Dataset { name: "/C", dtype: DType::F64, shape: &shape, chunk: &[1, 1] };
            let error = Hdf5Writer::create(&folder.join("x.h5"), dataset, identity).unwrap_err().to_string();
            assert!(error.contains("more than can be written, which are 67108864"), "{error}");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
