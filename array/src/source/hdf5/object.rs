//! What the library gives ids for, each closed once.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::files::keep_from_children;
use super::library::{Id, Library, Locked};
use super::wrong;
use crate::dtype::DType;

/// `H5D_CONTIGUOUS`, `H5D_CHUNKED` and `H5D_VIRTUAL`.
pub(super) const CONTIGUOUS: c_int = 1;
pub(super) const CHUNKED: c_int = 2;
pub(super) const VIRTUAL: c_int = 3;

type Close = unsafe extern "C" fn(Id) -> c_int;

/// Something that is closed when it is dropped, with the library's lock held.
pub(super) struct Object {
    pub(super) id: Id,
    close: Close,
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the id is open, of the kind that this closes, and nobody else's.
        unsafe { (self.close)(self.id) };
    }
}

fn text(text: &[u8]) -> io::Result<CString> {
    CString::new(text).map_err(|_| wrong("a name with a zero in it"))
}

impl Object {
    pub(super) fn file(library: &Library, id: Id, what: impl FnOnce() -> String) -> io::Result<Self> {
        let file = Self::new(id, library.H5Fclose, what)?;
        keep_from_children(library, &file);
        Ok(file)
    }

    fn new(id: Id, close: Close, what: impl FnOnce() -> String) -> io::Result<Self> {
        if id < 0 {
            return Err(wrong(what()));
        }
        Ok(Self { id, close })
    }

    pub(super) fn open_file(Locked { library, .. }: &Locked, path: &Path) -> io::Result<Self> {
        let name = text(path.as_os_str().as_bytes())?;
        // SAFETY: the name ends in 0. Read only, default properties.
        let id = unsafe { (library.H5Fopen)(name.as_ptr(), 0, 0) };
        Self::file(library, id, || "it is no HDF5 file, or somebody writes to it".into())
    }

    pub(super) fn create_file(Locked { library, .. }: &Locked, path: &Path) -> io::Result<Self> {
        let name = text(path.as_os_str().as_bytes())?;
        // SAFETY: the name ends in 0. `H5F_ACC_TRUNC`, default properties.
        let id = unsafe { (library.H5Fcreate)(name.as_ptr(), 2, 0, 0) };
        Self::file(library, id, || "H5Fcreate failed".into())
    }

    /// Without a cache of chunks: what is kept there would be counted by nobody, and blocks are made of whole
    /// chunks.
    pub(super) fn open_dataset(Locked { library, .. }: &Locked, file: &Self, name: &str) -> io::Result<Self> {
        let c_name = text(name.as_bytes())?;
        // SAFETY: the class is the library's.
        let id = unsafe { (library.H5Pcreate)(library.H5P_CLS_DATASET_ACCESS_ID_g) };
        let access = Self::new(id, library.H5Pclose, || "H5Pcreate failed".into())?;
        // SAFETY: the list is open. As many places as there are else, and no bytes.
        if unsafe { (library.H5Pset_chunk_cache)(access.id, usize::MAX, 0, -1.0) } < 0 {
            return Err(wrong("H5Pset_chunk_cache failed"));
        }
        // SAFETY: the file and the list are open, the name ends in 0.
        let id = unsafe { (library.H5Dopen2)(file.id, c_name.as_ptr(), access.id) };
        Self::new(id, library.H5Dclose, || format!("it has no dataset {name}"))
    }

    pub(super) fn create_dataset(
        Locked { library, .. }: &Locked,
        file: &Self,
        name: &str,
        kind: &Kind,
        space: &Self,
        created: &Self,
    ) -> io::Result<Self> {
        let name = text(name.as_bytes())?;
        // SAFETY: all ids are open, of the kinds that are asked for; the name ends in 0.
        let id =
            unsafe { (library.H5Dcreate2)(file.id, name.as_ptr(), kind.id(), space.id, 0, created.id, 0) };
        Self::new(id, library.H5Dclose, || "H5Dcreate failed: no space, or too large a chunk".into())
    }

    pub(super) fn properties_of(Locked { library, .. }: &Locked, dataset: &Self) -> io::Result<Self> {
        // SAFETY: the dataset is open.
        let id = unsafe { (library.H5Dget_create_plist)(dataset.id) };
        Self::new(id, library.H5Pclose, || "H5Dget_create_plist failed".into())
    }

    pub(super) fn space(Locked { library, .. }: &Locked, shape: &[usize]) -> io::Result<Self> {
        let lengths: Vec<u64> = shape.iter().map(|&length| length as u64).collect();
        let id = if shape.is_empty() {
            // SAFETY: `H5S_SCALAR`.
            unsafe { (library.H5Screate)(0) }
        } else {
            // SAFETY: there are as many lengths as it is told; the largest ones are the same.
            unsafe { (library.H5Screate_simple)(lengths.len() as c_int, lengths.as_ptr(), std::ptr::null()) }
        };
        Self::new(id, library.H5Sclose, || "H5Screate failed".into())
    }
}

/// Whether the file begins with somebody else's bytes (MATLAB's do): versions of the library differ in
/// whether they count those in places.
pub(super) fn is_shifted(Locked { library, .. }: &Locked, file: &Object) -> io::Result<bool> {
    // SAFETY: the file is open.
    let id = unsafe { (library.H5Fget_create_plist)(file.id) };
    let created = Object::new(id, library.H5Pclose, || "H5Fget_create_plist failed".into())?;
    let mut bytes = 0;
    // SAFETY: it writes a number.
    let code = unsafe { (library.H5Pget_userblock)(created.id, &raw mut bytes) };
    if code < 0 { Err(wrong("H5Pget_userblock failed")) } else { Ok(bytes > 0) }
}

/// `H5G_info_t`: how many links a group has, among what is of no concern here.
#[repr(C)]
#[derive(Default)]
pub(super) struct Group {
    storage: c_int,
    links: u64,
    largest_order: i64,
    /// `hbool_t`, which has had one byte or four.
    is_mounted: u32,
}

/// How many things there are in the root of a file.
pub(super) fn count(Locked { library, .. }: &Locked, file: &Object) -> io::Result<u64> {
    let mut group = Group::default();
    // SAFETY: the file is open, and stands for its root; it writes one of these.
    let code = unsafe { (library.H5Gget_info)(file.id, &raw mut group) };
    if code < 0 { Err(wrong("H5Gget_info failed")) } else { Ok(group.links) }
}

/// Whether something is said of a file (of its root) beside what is in it.
pub(super) fn has_attributes(Locked { library, .. }: &Locked, file: &Object) -> io::Result<bool> {
    extern "C" fn found(_: Id, _: *const c_char, _: *const c_void, _: *mut c_void) -> c_int {
        // That is enough.
        1
    }
    let (none, nobody) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the file is open, and stands for its root. `H5_INDEX_NAME`, `H5_ITER_INC`, from the first one
    // on; what is called uses nothing.
    match unsafe { (library.H5Aiterate2)(file.id, 0, 0, none, found, nobody) } {
        code if code < 0 => Err(wrong("H5Aiterate2 failed")),
        code => Ok(code > 0),
    }
}

/// `H5S_NULL`, which is told to have no axes, as one element has none.
const NULL_SPACE: c_int = 2;

/// How many elements a dataset has along each axis.
pub(super) fn shape(Locked { library, .. }: &Locked, dataset: &Object) -> io::Result<Vec<usize>> {
    // SAFETY: the dataset is open.
    let id = unsafe { (library.H5Dget_space)(dataset.id) };
    let space = Object::new(id, library.H5Sclose, || "H5Dget_space failed".into())?;
    // SAFETY: the space is open.
    if unsafe { (library.H5Sget_simple_extent_type)(space.id) } == NULL_SPACE {
        return Err(wrong("it is empty (a null dataspace): it has no elements, and no shape"));
    }
    // SAFETY: the space is open.
    let axes = unsafe { (library.H5Sget_simple_extent_ndims)(space.id) };
    let mut lengths = vec![0_u64; usize::try_from(axes).map_err(|_| wrong("it has no shape"))?];
    // SAFETY: there are as many numbers as axes.
    let code =
        unsafe { (library.H5Sget_simple_extent_dims)(space.id, lengths.as_mut_ptr(), std::ptr::null_mut()) };
    if code < 0 {
        return Err(wrong("it has no shape"));
    }
    Ok(lengths.into_iter().map(|length| length as usize).collect())
}

fn type_of(library: &Library, dataset: &Object) -> io::Result<Object> {
    // SAFETY: the dataset is open.
    let id = unsafe { (library.H5Dget_type)(dataset.id) };
    Object::new(id, library.H5Tclose, || "H5Dget_type failed".into())
}

/// Bytes of an element in the file.
pub(super) fn stored_size(Locked { library, .. }: &Locked, dataset: &Object) -> io::Result<usize> {
    let kind = type_of(library, dataset)?;
    // SAFETY: the type is open.
    Ok(unsafe { (library.H5Tget_size)(kind.id) })
}

/// The type that holds a dataset's elements.
pub(super) fn dtype(locked: &Locked, dataset: &Object) -> io::Result<DType> {
    let library = &locked.library;
    let kind = type_of(library, dataset)?;
    // SAFETY: the type is open.
    let (class, size) = unsafe { ((library.H5Tget_class)(kind.id), (library.H5Tget_size)(kind.id)) };
    match (class, size) {
        (0, _) => {
            // SAFETY: it is an integer.
            let is_signed = unsafe { (library.H5Tget_sign)(kind.id) } == 1;
            match size {
                1 | 2 => Ok(DType::I32),
                4 if is_signed => Ok(DType::I32),
                4 => Ok(DType::I64),
                8 if is_signed => Ok(DType::I64),
                _ => Err(wrong("its elements are integers of more than 63 bits, which there are not here")),
            }
        }
        (1, 2 | 4) => Ok(DType::F32),
        (1, 8) => Ok(DType::F64),
        // Other pairs of numbers and other names for two values are not these.
        (6, 16) if is_native(locked, dataset, DType::C64)? => Ok(DType::C64),
        (8, 1) if is_native(locked, dataset, DType::Bool)? => Ok(DType::Bool),
        _ => Err(wrong(format!(
            "its elements (class {class}, {size} bytes) are of a type that there is not here"
        ))),
    }
}

/// A type of the library's, or one that was made.
pub(super) enum Kind {
    Given(Id),
    Made(Object),
}

impl Kind {
    pub(super) fn id(&self) -> Id {
        match self {
            Self::Given(id) => *id,
            Self::Made(object) => object.id,
        }
    }
}

/// The type of elements in memory, and of files that are written: complex numbers and truth values as h5py
/// has them. Truth values are read as integers.
pub(super) fn dataset_type(locked: &Locked, dtype: DType, is_memory: bool) -> io::Result<Kind> {
    let library = &locked.library;
    let made = |id: Id| Object::new(id, library.H5Tclose, || "a type cannot be made".into());
    let check = |code: c_int| if code < 0 { Err(wrong("a type cannot be made")) } else { Ok(()) };
    Ok(match dtype {
        DType::I32 => Kind::Given(library.H5T_NATIVE_INT32_g),
        DType::I64 => Kind::Given(library.H5T_NATIVE_INT64_g),
        DType::F32 => Kind::Given(library.H5T_NATIVE_FLOAT_g),
        DType::F64 => Kind::Given(library.H5T_NATIVE_DOUBLE_g),
        DType::Bool if is_memory => Kind::Given(library.H5T_NATIVE_INT8_g),
        DType::Bool => {
            // SAFETY: of an integer type; each value is one byte, as that type has.
            unsafe {
                let kind = made((library.H5Tenum_create)(library.H5T_NATIVE_INT8_g))?;
                for (name, value) in [(c"FALSE", 0_i8), (c"TRUE", 1)] {
                    check((library.H5Tenum_insert)(
                        kind.id,
                        name.as_ptr(),
                        (&raw const value).cast::<c_void>(),
                    ))?;
                }
                Kind::Made(kind)
            }
        }
        DType::C64 => {
            // SAFETY: `H5T_COMPOUND` of two doubles behind each other.
            unsafe {
                let kind = made((library.H5Tcreate)(6, 16))?;
                for (name, offset) in [(c"r", 0), (c"i", 8)] {
                    check((library.H5Tinsert)(kind.id, name.as_ptr(), offset, library.H5T_NATIVE_DOUBLE_g))?;
                }
                Kind::Made(kind)
            }
        }
    })
}

/// Whether a dataset's elements lie in the file as they do in memory.
pub(super) fn is_native(locked: &Locked, dataset: &Object, dtype: DType) -> io::Result<bool> {
    let library = &locked.library;
    let (there, here) = (type_of(library, dataset)?, dataset_type(locked, dtype, false)?);
    // SAFETY: both are open.
    Ok(unsafe { (library.H5Tequal)(there.id, here.id()) } > 0)
}

/// The properties of a dataset that is to be written: its chunks have their places from the start, and are
/// not written until they are.
pub(super) fn properties(Locked { library, .. }: &Locked, chunk: &[usize]) -> io::Result<Object> {
    // SAFETY: the class is the library's.
    let id = unsafe { (library.H5Pcreate)(library.H5P_CLS_DATASET_CREATE_ID_g) };
    let list = Object::new(id, library.H5Pclose, || "H5Pcreate failed".into())?;
    let lengths: Vec<u64> = chunk.iter().map(|&length| length as u64).collect();
    // SAFETY: the list is open; there are as many lengths as it is told. `H5D_ALLOC_TIME_EARLY`,
    // `H5D_FILL_TIME_NEVER`.
    let codes = unsafe {
        let is_chunked = !chunk.is_empty();
        let chunked = if is_chunked {
            (library.H5Pset_chunk)(list.id, lengths.len() as c_int, lengths.as_ptr())
        } else {
            0
        };
        [chunked, (library.H5Pset_alloc_time)(list.id, 1), (library.H5Pset_fill_time)(list.id, 1)]
    };
    if codes.iter().any(|&code| code < 0) {
        Err(wrong("a chunk is too large for HDF5 (4 GiB)"))
    } else {
        Ok(list)
    }
}
