//! HDF5 files as h5py writes and reads them.
//!
//! h5py is that of the Python that `BDRUN_SDDP_PYTHON` names, or else of `python3`; `BDRUN_HDF5` names the
//! library.

#[path = "numpy/alone.rs"]
#[expect(dead_code, reason = "another test uses it all")]
mod alone;

#[path = "numpy/random.rs"]
#[expect(dead_code, reason = "another test uses it all")]
mod random;

#[path = "hdf5/files.rs"]
mod files;

#[path = "hdf5/replaced.rs"]
mod replaced;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use alone::alone;
use bdrun_array::source::hdf5::Dataset;
use bdrun_array::source::{Hdf5, Hdf5Writer, Npy, Sink, Source, hdf5};
use bdrun_array::{Array, Block, DType, Progress, Region, Settings};
use random::Random;

/// The datasets that are read: name, and how it is made of the array.
const MAKE: &str = r#"
import sys, numpy as np, h5py
folder = sys.argv[1]
f = h5py.File(f"{folder}/x.h5", "w")
rng = np.random.default_rng(1)
real = rng.standard_normal((23, 31))
def put(name, values, expected=None, **how):
    f.create_dataset(name, data=values, **how)
    np.save(f"{folder}/{name}.npy", np.asarray(values if expected is None else expected))
put("chunked", real, chunks=(5, 7))
put("contiguous", real.astype("f4"))
put("zipped", (real * 100).astype("i4"), chunks=(8, 8), compression="gzip")
put("shuffled", real, chunks=(8, 8), shuffle=True, fletcher32=True)
put("swapped", real.astype(">f8"), real, chunks=(6, 6))
put("bytes", (real * 100).astype("u1"), (real * 100).astype("u1").astype("i4"))
put("words", (real * 1e9).astype("u4"), (real * 1e9).astype("u4").astype("i8"), chunks=(4, 31))
put("longs", (real * 1e12).astype("i8"), chunks=(23, 3))
put("truths", real > 0, chunks=(5, 5))
put("complex", real + 1j * real[::-1], chunks=(5, 5))
put("scalar", np.float64(2.5))
put("cube", rng.standard_normal((6, 7, 8)), chunks=(4, 3, 5))
put("line", np.arange(1000), chunks=(64,))
put("empty", np.zeros((0, 4)))
d = f.create_dataset("filled", (23, 31), "f8", chunks=(5, 7), fillvalue=1.5)
d[7:12, 3:20] = real[7:12, 3:20]
np.save(f"{folder}/filled.npy", d[...])
with h5py.File(f"{folder}/shifted.h5", "w", userblock_size=512) as g:
    g.create_dataset("chunked", data=real, chunks=(5, 7))
    g.create_dataset("contiguous", data=real.astype("f4"))
f.create_dataset("text", data="no numbers")
f.create_dataset("pairs", data=np.zeros(3, [("x", "f8"), ("y", "f8")]))
f.create_dataset("colours", data=np.zeros(3, "i1"), dtype=h5py.enum_dtype({"red": 5, "blue": 7}, basetype="i1"))
f.create_dataset("large", data=np.array([1], "u8"))
f["null"] = h5py.Empty("f8")
"#;

const CHECK: &str = r#"
import sys, numpy as np, h5py
for file, dataset, expected in (line.split() for line in sys.stdin):
    f = h5py.File(file)
    x, y = f[dataset][()], np.load(expected)
    assert x.dtype == y.dtype and x.shape == y.shape and np.array_equal(x, y), (file, x.dtype, y.dtype, x.shape)
    assert list(f) == [dataset]
print("all equal")
"#;

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A directory with files of h5py, and the Python that made them.
fn made(name: &str) -> Option<(Directory, String)> {
    let python = std::env::var("BDRUN_SDDP_PYTHON").unwrap_or_else(|_| "python3".into());
    let folder = std::env::temp_dir().join(format!("bdrun-array-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let directory = Directory(folder);
    let is_there = Command::new(&python).args(["-c", "import h5py"]).output();
    let has_library =
        !matches!(Hdf5::open(Path::new("/"), "x"), Err(error) if error.to_string().contains("libhdf5"));
    if !is_there.is_ok_and(|output| output.status.success()) || !has_library {
        bdrun_skipped::skipped("h5py", "there is no h5py, or no libhdf5");
        return None;
    }
    let output = Command::new(&python).args(["-c", MAKE]).arg(&directory.0).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((directory, python))
}

const READ: &[&str] = &[
    "chunked",
    "contiguous",
    "zipped",
    "shuffled",
    "swapped",
    "bytes",
    "words",
    "longs",
    "truths",
    "complex",
    "scalar",
    "cube",
    "line",
    "empty",
    "filled",
];

#[test]
fn regions_are_what_h5py_wrote() {
    let _alone = alone();
    let Some((Directory(folder), _)) = &made("read") else { return };
    let mut random = Random::new(7);
    let file = folder.join("x.h5");
    for &name in READ {
        let (ours, theirs) =
            (Hdf5::open(&file, name).unwrap(), Npy::open(&folder.join(format!("{name}.npy"))).unwrap());
        assert_eq!((ours.dtype(), ours.shape()), (theirs.dtype(), theirs.shape()), "{name}");
        let whole = Region { start: vec![0; ours.shape().len()], shape: ours.shape().to_vec() };
        let mut regions = vec![whole];
        for _ in 0..60 {
            let start: Vec<usize> = ours.shape().iter().map(|&length| random.below(length + 1)).collect();
            let shape =
                ours.shape().iter().zip(&start).map(|(length, start)| random.below(length - start + 1));
            let shape = shape.collect();
            regions.push(Region { start, shape });
        }
        for region in regions {
            let (x, y) = (ours.read(&region).unwrap(), theirs.read(&region).unwrap());
            assert_eq!(x.as_bytes(), y.as_bytes(), "{name} {region:?}");
        }
        // A program that is started meanwhile does not have the file, with the library's lock.
        let inherited = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
        let inherited = String::from_utf8_lossy(&inherited.stdout);
        assert!(inherited.contains("->") && !inherited.contains("x.h5"), "{name}: {inherited}");
    }
    // Behind other bytes: MATLAB's files are so.
    for name in ["chunked", "contiguous"] {
        let ours = Hdf5::open(&folder.join("shifted.h5"), name).unwrap();
        let whole = Region { start: vec![0, 0], shape: ours.shape().to_vec() };
        let theirs = Npy::open(&folder.join(format!("{name}.npy"))).unwrap();
        assert_eq!(ours.read(&whole).unwrap().as_bytes(), theirs.read(&whole).unwrap().as_bytes(), "{name}");
    }
    for (name, word) in [
        ("text", "type"),
        ("pairs", "type"),
        ("colours", "type"),
        ("large", "63 bits"),
        ("null", "no elements"),
        ("nothing", "no dataset nothing"),
    ] {
        let error = Hdf5::open(&file, name).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let error = Hdf5::open(&folder.join("line.npy"), "x").unwrap_err().to_string();
    assert!(error.contains("no HDF5 file"), "{error}");
    let error = Hdf5::open(&folder.join("none.h5"), "x").unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    // Damage is said, by whoever reads it.
    let cut = folder.join("cut.h5");
    std::fs::copy(&file, &cut).unwrap();
    let length = std::fs::metadata(&cut).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&cut).unwrap().set_len(length / 2).unwrap();
    let is_refused = Hdf5::open(&cut, "chunked").is_err();
    assert!(is_refused, "half of a file was opened");
}

#[test]
fn h5py_reads_what_is_written() {
    let _alone = alone();
    let Some((Directory(folder), python)) = &made("write") else { return };
    let mut lines = String::new();
    for name in
        ["chunked", "contiguous", "zipped", "longs", "truths", "complex", "scalar", "cube", "line", "empty"]
    {
        let theirs = folder.join(format!("{name}.npy"));
        let array = Array::from_source(Arc::new(Npy::open(&theirs).unwrap()));
        // Blocks that have nothing to do with the file's chunks.
        let chunk: Vec<usize> = (0..array.dimensions()).map(|axis| 7 + axis).collect();
        let array = array.rechunk_regular(&chunk).unwrap();
        let file = folder.join(format!("{name}.h5"));
        let unit: Vec<usize> = (0..array.dimensions()).map(|axis| 4 + axis).collect();
        let sink = {
            let (dtype, shape) = (array.dtype(), array.shape());
            Hdf5Writer::create(&file, Dataset { name: "/C", dtype, shape, chunk: &unit }, None).unwrap()
        };
        assert!(!file.exists());
        let prepared = Settings::default().prepare(&[(array, &sink as &dyn Sink)]).unwrap();
        prepared.run(&Progress::default()).unwrap();
        lines += &format!("{} C {}\n", file.display(), theirs.display());
    }
    let list = folder.join("list");
    std::fs::write(&list, lines).unwrap();
    let stdin = std::fs::File::open(list).unwrap();
    let output = Command::new(python).args(["-c", CHECK]).stdin(stdin).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), "all equal", "{}", String::from_utf8_lossy(&output.stderr));
    // What is given up leaves nothing, and what was there stays.
    let before = std::fs::read(folder.join("cube.h5")).unwrap();
    let count = std::fs::read_dir(folder).unwrap().count();
    let dataset = Dataset { name: "/C", dtype: DType::F64, shape: &[4, 4], chunk: &[2, 2] };
    let sink = Hdf5Writer::create(&folder.join("cube.h5"), dataset, None).unwrap();
    let block = Block::zeros(DType::F64, &[2, 2]).unwrap();
    sink.write(&Region { start: vec![0, 0], shape: vec![2, 2] }, &block).unwrap();
    drop(sink);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), count);
    assert_eq!(std::fs::read(folder.join("cube.h5")).unwrap(), before);
    // Whatever else is in a file is not lost with it, by neither way; what is no such file may be replaced.
    let x = folder.join("x.h5");
    let before = std::fs::read(&x).unwrap();
    for (name, identity) in [("/C", None), ("chunked", None), ("/C", Some(7))] {
        let error = Hdf5Writer::create(&x, Dataset { name, ..dataset }, identity).unwrap_err().to_string();
        assert!(error.contains("x.h5") && error.contains("would be lost"), "{error}");
    }
    assert!(std::fs::read(&x).unwrap() == before);
    let text = folder.join("text.h5");
    std::fs::write(&text, "text").unwrap();
    for _ in 0..2 {
        Hdf5Writer::create(&text, dataset, None).unwrap().finish().unwrap();
    }
    let sink = Hdf5Writer::create(&text, dataset, None).unwrap();
    std::fs::copy(&x, &text).unwrap();
    assert!(sink.finish().unwrap_err().to_string().contains("would be lost"));
    drop(sink);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), count + 1);
    assert_eq!(hdf5::split("a.h5::/x/y"), Some((Path::new("a.h5"), "/x/y")));
    // What was begun in other chunks, or another dataset, is not gone on with: regions would lie elsewhere.
    let begin = |name, chunk: &[usize]| {
        let dataset = Dataset { name, dtype: DType::F64, shape: &[4, 6], chunk };
        Hdf5Writer::create(&folder.join("begun.h5"), dataset, Some(7))
    };
    let sink = begin("/C", &[2, 3]).unwrap();
    let region = Region { start: vec![0, 0], shape: vec![2, 3] };
    sink.write(&region, &Block::zeros(DType::F64, &[2, 3]).unwrap()).unwrap();
    drop(sink);
    for (name, chunk) in [("/C", [3, 2]), ("/D", [2, 3])] {
        let error = begin(name, &chunk).unwrap_err().to_string();
        assert!(error.contains("something else"), "{error}");
    }
    assert!(begin("/C", &[2, 3]).unwrap().has(&region));
    let error = begin("/C", &[2]).unwrap_err().to_string();
    assert!(error.contains("chunks along 1 axes, of an array of 2"), "{error}");
}

/// A file of very many chunks is opened at once: where each lies is not looked for among all of them. (That
/// took as many looks as half the square of their number: minutes.)
#[test]
fn very_many_chunks_are_found() {
    let _alone = alone();
    const MANY: &str = r#"
import sys, numpy as np, h5py
with h5py.File(sys.argv[1], "w") as f:
    # All but one of them.
    d = f.create_dataset("x", (400, 1001), "i4", chunks=(2, 2), fillvalue=7)
    d[:, :1000] = np.arange(400_000).reshape(400, 1000)
"#;
    let Some((Directory(folder), python)) = &made("many") else { return };
    let file = folder.join("many.h5");
    let output = Command::new(python).args(["-c", MANY]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let source = Hdf5::open(&file, "x").unwrap();
    for (row, column) in [(0, 0), (399, 998), (123, 456), (7, 1000)] {
        let block = source.read(&Region { start: vec![row, column], shape: vec![1, 1] }).unwrap();
        let wanted = if column == 1000 { 7 } else { 1000 * row + column };
        assert_eq!(block.elements::<i32>(), [wanted as i32], "{row}, {column}");
    }
}

/// Chunks that nobody wrote, of datasets which do not say what is in them then: whatever reads them.
#[test]
fn what_has_no_fill_value_is_read() {
    let _alone = alone();
    const UNFILLED: &str = r#"
import sys, ctypes, numpy as np, h5py
names = [line.split()[-1] for line in open("/proc/self/maps") if "libhdf5" in line and "libhdf5_hl" not in line]
set_fill = ctypes.CDLL(names[0]).H5Pset_fill_value
set_fill.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
with h5py.File(sys.argv[1], "w") as f:
    for name, time, zipped in [("undefined", None, 0), ("undefined-zipped", None, 1), ("never", h5py.h5d.FILL_TIME_NEVER, 0), ("never-zipped", h5py.h5d.FILL_TIME_NEVER, 1)]:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((4,))
        if zipped:
            created.set_deflate(1)
        if time is None:
            assert set_fill(created.id, h5py.h5t.NATIVE_DOUBLE.id, None) >= 0
        else:
            created.set_fill_value(np.array(7.0))
            created.set_fill_time(time)
        made = h5py.h5d.create(f.id, name.encode(), h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((12,)), created)
        h5py.Dataset(made)[:8] = np.arange(8.0)
"#;
    let Some((Directory(folder), python)) = &made("unfilled") else { return };
    let file = folder.join("unfilled.h5");
    let output = Command::new(python).args(["-c", UNFILLED]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["undefined", "undefined-zipped", "never", "never-zipped"] {
        let source = Hdf5::open(&file, name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let block = source.read(&Region { start: vec![0], shape: vec![12] }).unwrap();
        let want = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(block.elements::<f64>(), want, "{name}");
    }
}

/// A few bytes may say that there are any number of elements, and of chunks.
#[test]
fn what_a_file_says_is_not_memory_that_is_taken() {
    let _alone = alone();
    const LARGE: &str = r#"
import sys, numpy as np, h5py
with h5py.File(sys.argv[1], "w") as f:
    f.create_dataset("chunks", (2**45,), "f8", chunks=(1024,), fillvalue=7)[2**44 + 5] = 3
    f.create_dataset("nothing", (0, 2**50), "f8", chunks=(1, 1024), maxshape=(None, 2**50))
    f.create_dataset("elements", (2**50,), "f8", chunks=(2**20,))
"#;
    let Some((Directory(folder), python)) = &made("large") else { return };
    let file = folder.join("large.h5");
    let output = Command::new(python).args(["-c", LARGE]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let source = Hdf5::open(&file, "chunks").unwrap();
    let block = source.read(&Region { start: vec![(1 << 44) + 4], shape: vec![3] }).unwrap();
    assert_eq!((source.shape(), block.elements::<f64>()), (&[1 << 45][..], &[7.0, 3.0, 7.0][..]));
    let nothing = Array::from_source(Arc::new(Hdf5::open(&file, "nothing").unwrap()));
    let computed = Settings::default().compute(&[&nothing.rechunk_regular(&[1, 1]).unwrap()]).unwrap();
    assert_eq!(computed[0].shape(), [0, 1 << 50]);
    let error = Hdf5::open(&file, "elements").unwrap_err().to_string();
    assert!(error.contains("larger than there can be"), "{error}");
}

/// What the library takes for itself while it reads is part of what is promised.
#[test]
fn copies_of_filtered_chunks_are_counted() {
    let _alone = alone();
    let Some((Directory(folder), _)) = &made("copies") else { return };
    // Bytes of a chunk, and whether it is unpacked and converted.
    for (name, chunk, unpacked, converted) in [
        ("zipped", 8 * 8 * 4, true, false),
        ("shuffled", 8 * 8 * 8, true, false),
        ("swapped", 6 * 6 * 8, false, true),
        ("words", 4 * 31 * 4, false, true),
        ("chunked", 5 * 7 * 8, false, false),
        ("contiguous", 23 * 31 * 4, false, false),
    ] {
        let source = Hdf5::open(&folder.join("x.h5"), name).unwrap();
        let whole = Region { start: vec![0, 0], shape: source.shape().to_vec() };
        let elements = (source.shape()[0] * source.shape()[1]) as u64;
        let want = 3 * chunk * u64::from(unpacked) + 8 * elements * u64::from(converted);
        assert_eq!(source.work(&whole), want, "{name}");
        // The same elements in memory: the difference is what the promise has for it.
        let peak = |array: Array| {
            let held = bdrun_array::source::Held::new(array.dtype(), array.shape()).unwrap();
            Settings::default().prepare(&[(array, &held as &dyn Sink)]).unwrap().peak
        };
        let npy = Npy::open(&folder.join(format!("{name}.npy"))).unwrap();
        let plain = peak(Array::from_source(Arc::new(npy)));
        assert_eq!(peak(Array::from_source(Arc::new(source))), plain + want, "{name}");
    }
}
