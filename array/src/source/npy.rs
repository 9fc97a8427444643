//! NumPy's files (`.npy`, NEP 1: versions 1 to 3), and those of elements alone; in C order and little-endian.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::aside::{Aside, Identity, any};
use super::{Sink, Source, rows};
use crate::block::Block;
use crate::dtype::DType;
use crate::error::{Error, shape_text};
use crate::shape::{Region, count, is_possible};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// A file that holds an array.
#[derive(Debug)]
pub struct Npy {
    file: File,
    path: PathBuf,
    dtype: DType,
    shape: Vec<usize>,
    /// Where the elements begin.
    data: u64,
}

fn wrong(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

impl Npy {
    /// Opens it.
    ///
    /// # Errors
    /// If it cannot be read, is no such file, is shorter than it says, or has elements of another type or
    /// order than is known here.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::read_header(path).map_err(|error| Error::file(path, error))
    }

    fn read_header(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut start = [0; 8];
        file.read_exact(&mut start).map_err(|_| wrong("it is no .npy file: shorter than its header"))?;
        if start[..6] != *MAGIC || !(1..=3).contains(&start[6]) {
            return Err(wrong("it is no .npy file of version 1 to 3"));
        }
        let (length, before) = if start[6] == 1 {
            let mut length = [0; 2];
            file.read_exact(&mut length)?;
            (u32::from(u16::from_le_bytes(length)), 10)
        } else {
            let mut length = [0; 4];
            file.read_exact(&mut length)?;
            (u32::from_le_bytes(length), 12)
        };
        if length > 1 << 20 {
            return Err(wrong("its header has more than 1 MiB"));
        }
        let mut text = vec![0; length as usize];
        file.read_exact(&mut text)?;
        let text = String::from_utf8(text).map_err(|_| wrong("its header is no text"))?;
        let (dtype, shape) = parse(&text)?;
        let data = u64::from(length) + before;
        Self::of_elements(file, path, dtype, shape, data)
    }

    /// Opens a file without a header: elements of a type, in C order and little-endian, from an offset on.
    ///
    /// # Errors
    /// If it cannot be read, or is shorter than the shape says.
    pub fn open_raw(path: &Path, dtype: DType, shape: &[usize], offset: u64) -> Result<Self, Error> {
        let opened = File::open(path);
        let opened = opened.and_then(|file| Self::of_elements(file, path, dtype, shape.into(), offset));
        opened.map_err(|error| Error::file(path, error))
    }

    fn of_elements(file: File, path: &Path, dtype: DType, shape: Vec<usize>, data: u64) -> io::Result<Self> {
        if !is_possible(&shape, dtype.size()) {
            return Err(wrong(format!("its shape is larger than there can be: {shape:?}")));
        }
        let bytes = (count(&shape) * dtype.size()) as u64;
        let there = file.metadata()?.len().saturating_sub(data);
        if there < bytes {
            return Err(wrong(format!("it has {there} bytes of elements, and its shape says {bytes}")));
        }
        Ok(Self { file, path: path.into(), dtype, shape, data })
    }
}

/// Type and shape from the header, a Python dictionary.
fn parse(text: &str) -> io::Result<(DType, Vec<usize>)> {
    let after = |key: &str| {
        let quoted = [format!("'{key}'"), format!("\"{key}\"")];
        let at = quoted.iter().find_map(|quoted| Some(text.find(quoted.as_str())? + quoted.len()));
        let rest = at.and_then(|at| text[at..].trim_start().strip_prefix(':'));
        rest.map(str::trim_start).ok_or_else(|| wrong(format!("its header has no {key}")))
    };
    let descr = after("descr")?;
    let quoted = descr.strip_prefix(['\'', '"']).and_then(|rest| rest.split(['\'', '"']).next());
    let dtype = match quoted {
        Some("|b1" | "?") => DType::Bool,
        Some("<i4") => DType::I32,
        Some("<i8") => DType::I64,
        Some("<f4") => DType::F32,
        Some("<f8") => DType::F64,
        Some("<c16") => DType::C64,
        other => {
            let other = other.unwrap_or("a record");
            let known = "|b1 <i4 <i8 <f4 <f8 <c16";
            return Err(wrong(format!(
                "its elements are {other}; known are {known}: `x.astype(…)` makes one of them"
            )));
        }
    };
    if after("fortran_order")?.starts_with("True") {
        return Err(wrong("it is in Fortran's order: `np.save(path, np.ascontiguousarray(x))` makes it C's"));
    }
    let shape = after("shape")?;
    let inner = shape.strip_prefix('(').and_then(|rest| rest.split(')').next());
    let lengths = inner.ok_or_else(|| wrong("its header has no shape"))?.split(',').map(str::trim);
    let lengths = lengths.filter(|length| !length.is_empty());
    let shape = lengths.map(|length| length.parse().map_err(|_| wrong(format!("a shape with {length}"))));
    Ok((dtype, shape.collect::<io::Result<_>>()?))
}

impl Source for Npy {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn stamp(&self) -> String {
        format!("{}:{}", super::stamp(&self.file), self.data)
    }

    fn read(&self, region: &Region) -> io::Result<Block> {
        let mut block = Block::zeros(self.dtype, &region.shape)?;
        let (to, size) = (block.bytes_mut(), self.dtype.size());
        rows(&self.shape, region, |at, put, row| {
            self.file.read_exact_at(&mut to[put * size..][..row * size], self.data + (at * size) as u64)
        })?;
        Ok(block)
    }
}

/// A file that an array is written to: beside its place, where it is put when all is written.
pub struct NpyWriter {
    to: Aside,
    path: PathBuf,
    shape: Vec<usize>,
    data: u64,
}

impl NpyWriter {
    /// Begins a file of this type and shape; with an identity, one that can be gone on with if it is
    /// interrupted, or goes on with it.
    ///
    /// # Errors
    /// If none can be made there, or what is there is of another identity.
    pub fn create(
        path: &Path,
        dtype: DType,
        shape: &[usize],
        identity: Option<Identity>,
    ) -> Result<Self, Error> {
        Self::begin(path, dtype, shape, identity, true).map_err(|error| Error::file(path, error))
    }

    /// The same without a header.
    ///
    /// # Errors
    /// As [`NpyWriter::create`].
    pub fn create_raw(
        path: &Path,
        dtype: DType,
        shape: &[usize],
        identity: Option<Identity>,
    ) -> Result<Self, Error> {
        Self::begin(path, dtype, shape, identity, false).map_err(|error| Error::file(path, error))
    }

    fn begin(
        path: &Path,
        dtype: DType,
        shape: &[usize],
        identity: Option<Identity>,
        has_header: bool,
    ) -> io::Result<Self> {
        let bytes = shape.iter().try_fold(dtype.size(), |bytes, &length| bytes.checked_mul(length));
        let bytes = bytes.filter(|&bytes| bytes < isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| wrong("more elements than a file can have"))? as u64;
        let format = if has_header { "npy".into() } else { format!("raw {} {shape:?}", dtype.name()) };
        let (to, is_there) = Aside::begin(path, identity, &format, any())?;
        let data = if is_there && !has_header {
            Npy::of_elements(to.file.try_clone()?, path, dtype, shape.into(), 0)?.data
        } else if is_there {
            let before = Npy::read_header(&to.aside)?;
            if (before.dtype, &before.shape[..]) != (dtype, shape) {
                return Err(wrong("what was begun has another type or shape"));
            }
            before.data
        } else {
            let header = if has_header { header(dtype, shape)? } else { Vec::new() };
            (&to.file).write_all(&header)?;
            let data = header.len() as u64;
            to.file.set_len(data + bytes)?;
            to.ready()?;
            data
        };
        Ok(Self { to, path: path.into(), shape: shape.to_vec(), data })
    }
}

fn header(dtype: DType, shape: &[usize]) -> io::Result<Vec<u8>> {
    let descr = match dtype {
        DType::Bool => "|b1",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c16",
    };
    let shape_text = shape_text(shape);
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape_text}, }}");
    // Elements begin at a multiple of 64.
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let spaces = length - header.len() - 1;
    header.extend(std::iter::repeat_n(' ', spaces));
    header.push('\n');
    let short = u16::try_from(length).map_err(|_| wrong("a shape of too many axes"))?;
    Ok([&MAGIC[..], &[1, 0], &short.to_le_bytes(), header.as_bytes()].concat())
}

impl Sink for NpyWriter {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn has(&self, region: &Region) -> bool {
        self.to.has(region)
    }

    fn write(&self, region: &Region, block: &Block) -> io::Result<()> {
        let (from, size) = (block.as_bytes(), block.dtype().size());
        rows(&self.shape, region, |at, put, row| {
            self.to.file.write_all_at(&from[put * size..][..row * size], self.data + (at * size) as u64)
        })?;
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
    fn what_is_written_is_read() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-npy-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x.npy");
        let values: Vec<i32> = (0..24).collect();
        let block = Block::from_slice(&[2, 3, 4], &values).unwrap();
        let writer = NpyWriter::create(&path, DType::I32, &[2, 3, 4], None).unwrap();
        for start in 0..3 {
            let region = Region { start: vec![0, start, 0], shape: vec![2, 1, 4] };
            let part = crate::source::Memory(block.clone()).read(&region).unwrap();
            writer.write(&region, &part).unwrap();
        }
        assert!(!path.exists());
        writer.finish().unwrap();
        let npy = Npy::open(&path).unwrap();
        assert_eq!((npy.dtype(), npy.shape(), npy.data % 64), (DType::I32, &[2, 3, 4][..], 0));
        let region = Region { start: vec![1, 0, 1], shape: vec![1, 3, 2] };
        assert_eq!(npy.read(&region).unwrap().elements::<i32>(), [13, 14, 17, 18, 21, 22]);
        let unfinished = NpyWriter::create(&folder.join("y.npy"), DType::F64, &[2], None).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        drop(unfinished);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn elements_alone() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-raw-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x.f32");
        let block = Block::from_slice(&[3, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let all = Region { start: vec![0, 0], shape: vec![3, 2] };
        let create = || NpyWriter::create_raw(&path, DType::F32, &[3, 2], Some(7)).unwrap();
        let interrupted = create();
        assert!(!interrupted.has(&all));
        interrupted.write(&all, &block).unwrap();
        drop(interrupted);
        let again = create();
        assert!(again.has(&all) && !path.exists());
        again.finish().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 24);
        let raw = Npy::open_raw(&path, DType::F32, &[2, 2], 8).unwrap();
        let region = Region { start: vec![0, 1], shape: vec![2, 1] };
        assert_eq!(raw.read(&region).unwrap().elements::<f32>(), [4.0, 6.0]);
        let error = Npy::open_raw(&path, DType::F64, &[2, 2], 0).unwrap_err().to_string();
        assert!(error.contains("24 bytes") && error.contains("32"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn headers_say_what_is_wrong() {
        let ok = parse("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }").unwrap();
        assert_eq!(ok, (DType::F64, vec![3]));
        assert_eq!(
            parse("{\"shape\": (), 'descr': '|b1', 'fortran_order': False}").unwrap(),
            (DType::Bool, vec![])
        );
        for (text, word) in [
            ("{'descr': '>f8', 'fortran_order': False, 'shape': (3,)}", ">f8"),
            ("{'descr': [('x', '<f8')], 'fortran_order': False, 'shape': (3,)}", "a record"),
            ("{'descr': '<f8', 'fortran_order': True, 'shape': (3,)}", "Fortran"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (-3,)}", "-3"),
            ("{'descr': '<f8', 'fortran_order': False}", "no shape"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
