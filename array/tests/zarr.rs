//! Arrays of Zarr as zarr-python writes and reads them.
//!
//! zarr-python is that of the Python that `BDRUN_SDDP_PYTHON` names, or else of `python3`.

#[path = "numpy/alone.rs"]
mod alone;

#[path = "numpy/random.rs"]
#[expect(dead_code, reason = "another test uses it all")]
mod random;

#[path = "zarr/groups.rs"]
mod groups;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use alone::{alone, beside};
use bdrun_array::source::zarr::{Compression, ZarrArray, is_zarr};
use bdrun_array::source::{Npy, Sink, Source, Zarr, ZarrWriter};
use bdrun_array::{Array, Block, DType, Element, Progress, Region, Settings};
use random::Random;

/// Arrays that are read: each with an array of NumPy beside it. Their names are printed.
const MAKE: &str = r#"
import sys, itertools, numpy as np, zarr
from zarr.codecs import *
folder = sys.argv[1]
rng = np.random.default_rng(1)
real = rng.standard_normal((23, 31))
def put(name, values, expected=None, written=None, **how):
    values = np.asarray(values)
    a = zarr.create_array(f"{folder}/{name}", shape=values.shape, dtype=values.dtype, **{"fill_value": None, **how})
    if written is None: a[...] = values
    else:
        a[written] = values[written]
        values = a[...]
    np.save(f"{folder}/{name}.npy", values if expected is None else values.astype(expected))
    print(name)
put("plain", real, chunks=(5, 7), compressors=None)
put("whole", real, chunks=(23, 31), compressors=None)
put("default", real, chunks=(8, 8))
put("zipped", (real * 100).astype("i4"), chunks=(8, 8), compressors=GzipCodec(level=5))
put("summed", real.astype("f4"), chunks=(8, 8), compressors=[GzipCodec(level=1), Crc32cCodec()])
put("twice", real, chunks=(8, 8), compressors=[Crc32cCodec(), ZstdCodec(level=3, checksum=True), GzipCodec()])
put("sum", real, chunks=(8, 8), compressors=Crc32cCodec())
put("big", real, chunks=(6, 6), serializer=BytesCodec(endian="big"), compressors=None)
put("turned", real, chunks=(5, 7), filters=TransposeCodec(order=(1, 0)), compressors=None)
put("cube", rng.standard_normal((6, 7, 8)), chunks=(4, 3, 5), filters=[TransposeCodec(order=(2, 0, 1)), TransposeCodec(order=(0, 2, 1))], compressors=ZstdCodec())
put("line", np.arange(1000), chunks=(64,))
put("scalar", np.float64(2.5))
put("empty", np.zeros((0, 4)), chunks=(1, 4))
put("nothing", np.zeros((0, 4)), chunks=(0, 4))
put("named", real, chunks=(5, 7), chunk_key_encoding={"name": "v2", "separator": "."}, dimension_names=["y", None], attributes={"units": "K"})
put("words", real, chunks=(5, 7), attributes={"x": float("nan"), "y": [float("inf"), -float("inf")], "z": 'NaN, "Infinity'})
put("dotted", real, chunks=(5, 7), chunk_key_encoding={"name": "default", "separator": "."})
put("pointed", np.float64(1.5), chunk_key_encoding={"name": "v2", "separator": "/"})
for kind, expected in [("bool", "bool"), ("i1", "i4"), ("i2", "i4"), ("i4", "i4"), ("i8", "i8"), ("u1", "i4"), ("u2", "i4"), ("u4", "i8"), ("f2", "f4"),
                       ("f4", "f4"), ("f8", "f8"), ("c8", "c16"), ("c16", "c16")]:
    values = real > 0 if kind == "bool" else (real + 1j * real[::-1]).astype(kind) if "c" in kind else (real * 50 + (60 if "u" in kind else 0)).astype(kind)
    put(f"of-{kind}", values, expected, chunks=(10, 10))
    if kind[1:] not in ("1", "ool"):
        put(f"big-{kind}", values, expected, chunks=(10, 10), serializer=BytesCodec(endian="big"), filters=TransposeCodec(order=(1, 0)))
for name, kind, fill in [("some", "f8", 1.5), ("none", "f4", float("nan")), ("much", "f8", float("-inf")), ("less", "i2", -7), ("true", "bool", True),
                         ("pair", "c16", 1 + 2j), ("half", "f2", 0.1), ("tenth", "f8", 0.1)]:
    kinds = {"i2": "i4", "f2": "f4"}
    put(f"filled-{name}", np.ones((23, 31), kind), kinds.get(kind), np.s_[7:12, 3:20], chunks=(5, 7), fill_value=fill, config={"write_empty_chunks": False})
for index, compressors in itertools.product(["start", "end"], [None, ZstdCodec()]):
    kind = "packed" if compressors else "plain"
    put(f"shards-{kind}-{index}", real, None, np.s_[2:20, 3:31], chunks=(2, 4), shards={"shape": (8, 12), "index_location": index}, compressors=compressors,
        fill_value=3.0, config={"write_empty_chunks": False})
put("shards-in-shards", real, chunks=(12, 16), compressors=None,
    serializer=ShardingCodec(chunk_shape=(6, 8), codecs=[ShardingCodec(chunk_shape=(2, 4), codecs=[BytesCodec(), GzipCodec()])]))
put("shards-packed-whole", real, chunks=(12, 16), compressors=ZstdCodec(), serializer=ShardingCodec(chunk_shape=(6, 8), codecs=[BytesCodec()]))
put("shards-plain-index", real, chunks=(12, 16), compressors=None,
    serializer=ShardingCodec(chunk_shape=(6, 8), codecs=[TransposeCodec(order=(1, 0)), BytesCodec(endian="big")], index_codecs=[BytesCodec(endian="big")]))
smooth = np.cumsum(rng.integers(-3, 4, 40_000)).reshape(200, 200)
for cname, shuffle, kind in itertools.product(["lz4", "lz4hc", "zlib", "zstd"], ["noshuffle", "shuffle", "bitshuffle"], ["u1", "i4", "f8"]):
    values = smooth.astype("i4") % 250 if kind == "u1" else smooth
    expected = "i4" if kind == "u1" else kind
    for size in [(200, 200), (33, 77), (1, 5)] if kind == "f8" and shuffle != "noshuffle" else [(101, 99)]:
        put(f"blosc-{cname}-{shuffle}-{kind}-{size[0]}", values[:60, :100].astype(kind) if size[0] == 1 else values.astype(kind), expected, chunks=size,
            compressors=BloscCodec(cname=cname, clevel=5, shuffle=shuffle))
put("blosc-random", rng.integers(0, 256, (300, 300)).astype("u1"), "i4", chunks=(300, 300), compressors=BloscCodec(cname="lz4", clevel=1, shuffle="bitshuffle"))
put("blosc-blocks", smooth, chunks=(200, 200), compressors=BloscCodec(cname="lz4", clevel=9, shuffle="shuffle", blocksize=4096))
"#;

/// Arrays that are refused, each with what is said of it.
const REFUSED: &str = r#"
import sys, json, os, numpy as np, zarr
from zarr.codecs import *
folder = sys.argv[1]
def put(name, dtype="f8", **how):
    zarr.create_array(f"{folder}/{name}", shape=(4, 4), dtype=dtype, **{"chunks": (2, 2), **how})[...] = np.ones((4, 4), dtype)
def changed(name, change):
    put(name)
    path = f"{folder}/{name}/zarr.json"
    text = json.load(open(path)); change(text); json.dump(text, open(path, "w"))
def member(name, value): return lambda text: text.__setitem__(name, value)
put("large", "u8"); print("large|uint64")
zarr.create_array(f"{folder}/lz", shape=(64, 64), chunks=(64, 64), dtype="f8", compressors=BloscCodec(cname="blosclz", clevel=5))[...] = 1; print("lz|blosclz, which is not supported")
changed("extended", member("colours", {"name": "x"})); print("extended|the extension colours is not supported")
changed("ignored", member("colours", {"name": "x", "must_understand": False})); print("ignored|")
changed("grid", member("chunk_grid", {"name": "rectilinear", "configuration": {}})); print("grid|the grid of chunks rectilinear is not supported")
changed("codec", member("codecs", [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "numcodecs.lzma"}])); print("codec|the codec numcodecs.lzma is not supported")
changed("no-bytes", member("codecs", [{"name": "gzip"}])); print("no-bytes|the codec gzip cannot be where it is")
changed("none", member("codecs", [])); print("none|no codec makes bytes of elements")
changed("zero", member("chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [0, 2]}})); print("zero|no chunks of [0, 2]")
changed("huge", member("chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [2**40, 2**40]}})); print("huge|no chunks of")
changed("axes", member("shape", [4])); print("axes|no chunks of [2, 2] of an array of [4]")
changed("negative", member("shape", [4, -4])); print("negative|-4 is no length")
changed("fill", member("fill_value", "x")); print('fill|its fill value "x" is none of its type')
changed("four", member("zarr_format", 4)); print("four|version 4 of Zarr is not known")
changed("stored", member("storage_transformers", [{"name": "moved"}])); print("stored|the storage transformer moved is not supported")
changed("often", member("codecs", [{"name": "bytes", "configuration": {"endian": "little"}}] + 5 * ["crc32c"])); print("often|more than four times")
changed("wide", member("shape", [2**30, 2**30])); print("wide|more elements than are known here")
changed("endless", member("shape", [0, 2**62])); print("endless|more elements than are known here")
changed("typeless", lambda text: text.pop("data_type")); print("typeless|there is no data_type")
put("little", compressors=None); text = json.load(open(f"{folder}/little/zarr.json")); text["codecs"] = ["bytes"]; json.dump(text, open(f"{folder}/little/zarr.json", "w")); print("little|")
put("linked"); os.remove(f"{folder}/linked/c/0/1"); os.symlink("nowhere", f"{folder}/linked/c/0/1"); print("linked|a link to nothing")
put("piped"); os.remove(f"{folder}/piped/c/0/1"); os.mkfifo(f"{folder}/piped/c/0/1"); print("piped|it is no file")
zarr.create_array(f"{folder}/old", shape=(4,), dtype="f8", zarr_format=2); print("old|zarr migrate v3")
zarr.create_group(f"{folder}/group").create_array("inside", shape=(4,), dtype="f8"); print("group|in it are inside")
os.mkdir(f"{folder}/nothing"); print("nothing|it has no zarr.json")
print("nowhere|No such file")
def chunk(name, change, **how):
    put(name, **how)
    path = f"{folder}/{name}/c/0/1"
    data = bytearray(open(path, "rb").read()); data = change(data); open(path, "wb").write(data)
chunk("shorter", lambda data: data[:-1], compressors=None); print("shorter|chunk c/0/1: 31 bytes instead of 32")
chunk("longer", lambda data: data + b"x", compressors=None); print("longer|chunk c/0/1: 33 bytes instead of 32")
chunk("cut", lambda data: data[:-3]); print("cut|chunk c/0/1: zstd")
chunk("other", lambda data: b"nothing that was compressed", compressors=GzipCodec()); print("other|chunk c/0/1: gzip")
chunk("damaged", lambda data: data[:7] + bytes([data[7] ^ 1]) + data[8:], compressors=Crc32cCodec()); print("damaged|chunk c/0/1: crc32c: damaged")
chunk("nothing-in-it", lambda data: b""); print("nothing-in-it|chunk c/0/1")
import gzip
chunk("more", lambda data: gzip.compress(bytes(40)), compressors=GzipCodec()); print("more|chunk c/0/1: gzip: more bytes than the 32")
chunk("fewer", lambda data: gzip.compress(bytes(24)), compressors=GzipCodec()); print("fewer|chunk c/0/1: gzip: fewer bytes than the 32")
def shard(name, change):
    put(name, chunks=(1, 1), shards=(2, 2), compressors=None)
    path = f"{folder}/{name}/c/0/1"
    data = bytearray(open(path, "rb").read()); data = change(data); open(path, "wb").write(data)
shard("index", lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]); print("index|chunk c/0/1: damaged")
shard("short", lambda data: data[:10]); print("short|chunk c/0/1: shorter than the index")
import google_crc32c
def beyond(data):
    index = bytearray(data[-68:-4]); index[0:8] = (1000).to_bytes(8, "little")
    return data[:-68] + index + google_crc32c.value(bytes(index)).to_bytes(4, "little")
shard("beyond", beyond); print("beyond|chunk c/0/1: the index of a shard says that a chunk is beyond its end")
"#;

const CHECK: &str = r#"
import sys, numpy as np, zarr
for path, expected in (line.split() for line in sys.stdin):
    a, y = zarr.open_array(path, mode="r"), np.load(expected)
    x = a[...]
    assert x.dtype == y.dtype and x.shape == y.shape and np.array_equal(x, y), (path, x.dtype, y.dtype, x.shape)
print("all equal")
"#;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bdrun-array-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a script of zarr-python prints, and the Python.
fn made(script: &str, folder: &Path) -> Option<(String, String)> {
    let python = std::env::var("BDRUN_SDDP_PYTHON").unwrap_or_else(|_| "python3".into());
    let is_there = Command::new(&python).args(["-c", "import zarr.codecs"]).output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        bdrun_skipped::skipped("zarr", "there is no zarr-python of version 3");
        return None;
    }
    let output = Command::new(&python).args(["-W", "ignore", "-c", script]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((String::from_utf8(output.stdout).unwrap(), python))
}

fn whole(shape: &[usize]) -> Region {
    Region { start: vec![0; shape.len()], shape: shape.to_vec() }
}

#[test]
fn regions_are_what_zarr_python_wrote() {
    let _beside = beside();
    let directory = Directory::new("zarr-read");
    let folder = &directory.0;
    let Some((names, _)) = made(MAKE, folder) else { return };
    let mut random = Random::new(7);
    assert!(names.lines().count() > 90, "{names}");
    for name in names.lines() {
        let (ours, theirs) = (Zarr::open(&folder.join(name)), Npy::open(&folder.join(format!("{name}.npy"))));
        let (ours, theirs) = (ours.unwrap_or_else(|error| panic!("{name}: {error}")), theirs.unwrap());
        assert_eq!((ours.dtype(), ours.shape()), (theirs.dtype(), theirs.shape()), "{name}");
        let mut regions = vec![whole(ours.shape())];
        for _ in 0..40 {
            let start: Vec<usize> = ours.shape().iter().map(|&length| random.below(length + 1)).collect();
            let shape =
                ours.shape().iter().zip(&start).map(|(length, start)| random.below(length - start + 1));
            let shape = shape.collect();
            regions.push(Region { start, shape });
        }
        for region in regions {
            let x = ours.read(&region).unwrap_or_else(|error| panic!("{name} {region:?}: {error}"));
            assert_eq!(x.as_bytes(), theirs.read(&region).unwrap().as_bytes(), "{name} {region:?}");
        }
    }
    let unit = |name: &str| Zarr::open(&folder.join(name)).unwrap().unit();
    assert_eq!(unit("plain"), [5, 7]);
    assert_eq!(unit("shards-packed-end"), [2, 4]);
    assert_eq!(unit("shards-in-shards"), [2, 4]);
    assert_eq!(unit("shards-packed-whole"), [12, 16]);
    // Bytes that are taken beside the block: of what lies as it does in memory none.
    let work = |name: &str| {
        let source = Zarr::open(&folder.join(name)).unwrap();
        source.work(&whole(source.shape()))
    };
    // What is packed, unpacked, and what the decoder holds, whose tables grow with it.
    let packed = |bytes: u64| 3 * bytes + 6 * bytes + (64 << 10);
    let index = 3 * 4 * 16 + 4;
    assert_eq!((work("plain"), work("big"), work("of-i2")), (0, 6 * 6 * 8, packed(10 * 10 * 2)));
    assert_eq!((work("shards-plain-end"), work("shards-packed-end")), (index, packed(2 * 4 * 8) + index));
}

#[test]
fn what_is_not_known_and_what_is_damaged_is_refused() {
    let _beside = beside();
    let directory = Directory::new("zarr-refused");
    let folder = &directory.0;
    let Some((lines, _)) = made(REFUSED, folder) else { return };
    assert!(lines.lines().count() >= 30, "{lines}");
    for line in lines.lines() {
        let (name, said) = line.split_once('|').unwrap();
        let read = Zarr::open(&folder.join(name)).map_err(|error| error.to_string());
        let read = read.and_then(|array| array.read(&whole(&[4, 4])).map_err(|error| error.to_string()));
        match read {
            Ok(block) if said.is_empty() => assert_eq!(block.elements::<f64>(), [1.0; 16], "{name}"),
            Ok(_) => panic!("{name} was read"),
            Err(error) => assert!(!said.is_empty() && error.contains(said), "{name}: {error}"),
        }
    }
}

/// A file of a chunk, any of them.
fn a_chunk(folder: &Path, random: &mut Random) -> Option<PathBuf> {
    let mut at = folder.to_owned();
    loop {
        let inside = std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path());
        let mut inside: Vec<PathBuf> = inside.filter(|path| !path.ends_with("zarr.json")).collect();
        inside.sort_unstable();
        at = (!inside.is_empty()).then(|| inside.swap_remove(random.below(inside.len())))?;
        if at.is_file() {
            return Some(at);
        }
    }
}

/// Whatever bytes are in a chunk: an error, or other elements.
#[test]
fn damage_ends_no_program() {
    let _beside = beside();
    let directory = Directory::new("zarr-damage");
    let folder = &directory.0;
    let Some((names, _)) = made(MAKE, folder) else { return };
    let mut random = Random::new(11);
    let (mut refused, mut all) = (0, 0);
    for name in names.lines() {
        let source = Zarr::open(&folder.join(name)).unwrap();
        for _ in 0..40 {
            let Some(path) = a_chunk(&folder.join(name), &mut random) else { break };
            let bytes = std::fs::read(&path).unwrap();
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(damaged.len().max(1));
                match random.below(5) {
                    0 => damaged.truncate(at),
                    1 => damaged.extend_from_within(at..),
                    // Headers, more often than they would be.
                    2 if !damaged.is_empty() => {
                        let first = random.below(damaged.len().min(20));
                        damaged[first] = random.below(256) as u8;
                    }
                    _ if !damaged.is_empty() => damaged[at] ^= 1 << random.below(8),
                    _ => {}
                }
            }
            std::fs::write(&path, &damaged).unwrap();
            let read = source.read(&whole(source.shape()));
            refused += u32::from(read.is_err());
            all += 1;
            if let Ok(block) = read {
                assert_eq!(block.shape(), source.shape(), "{name}");
            }
            std::fs::write(&path, &bytes).unwrap();
        }
    }
    assert!(all > 2000 && refused > all / 4, "{refused} of {all}");
}

/// An array of NumPy's beside, in blocks that have nothing to do with chunks, is stored; those that are
/// compressed in blocks that have.
fn store(path: &Path, array: &Array, chunk: &[usize], compression: Compression) {
    let array = if compression == Compression::None { array.clone() } else { array.aligned(chunk).unwrap() };
    let (dtype, shape) = (array.dtype(), array.shape());
    let sink = ZarrWriter::create(path, ZarrArray { dtype, shape, chunk, compression }, None).unwrap();
    let prepared = Settings::default().prepare(&[(array.clone(), &sink as &dyn Sink)]).unwrap();
    prepared.run(&Progress::default()).unwrap();
}

#[test]
fn zarr_python_reads_what_is_written() {
    let _beside = beside();
    let directory = Directory::new("zarr-write");
    let folder = &directory.0;
    let Some((_, python)) = made(MAKE, folder) else { return };
    let mut lines = String::new();
    for name in ["plain", "of-i4", "of-f4", "of-bool", "of-c16", "scalar", "cube", "line", "empty"] {
        let theirs = folder.join(format!("{name}.npy"));
        let array = Array::from_source(Arc::new(Npy::open(&theirs).unwrap()));
        let lengths = |first: usize| (0..array.dimensions()).map(|axis| first + axis).collect::<Vec<_>>();
        let array = array.rechunk_regular(&lengths(7)).unwrap();
        for compression in [Compression::None, Compression::Gzip(6), Compression::Zstd] {
            let path = folder.join(format!("{name}-{compression:?}.zarr"));
            // What was there is replaced, by an array in other chunks too.
            store(&path, &Array::full(&[9, 9], 7.0, DType::F64), &[2, 9], Compression::Gzip(1));
            store(&path, &array, &lengths(4), compression);
            let written = Zarr::open(&path).unwrap();
            let (x, y) = (written.read(&whole(array.shape())), Npy::open(&theirs).unwrap());
            assert_eq!(x.unwrap().as_bytes(), y.read(&whole(array.shape())).unwrap().as_bytes(), "{path:?}");
            lines += &format!("{} {}\n", path.display(), theirs.display());
        }
    }
    let list = folder.join("list");
    std::fs::write(&list, lines).unwrap();
    let stdin = std::fs::File::open(list).unwrap();
    let output = Command::new(&python).args(["-c", CHECK]).stdin(stdin).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), "all equal", "{}", String::from_utf8_lossy(&output.stderr));
    // Copies of descriptions in a group are of what was there before: others would read by them.
    const CONSOLIDATE: &str = r#"
import sys, numpy as np, zarr
group = zarr.open_group(sys.argv[1], mode="a")
if len(sys.argv) > 2:
    group.create_array("a", shape=(9, 9), chunks=(2, 9), dtype="i8")[...] = 1
    group.create_array("b", shape=(9,), chunks=(9,), dtype="i8", attributes={"x": float("nan")})[...] = 1
    group.attrs.update({"x": float("nan"), "y": -float("inf"), "z": "NaN", "large": 10**30})
    zarr.consolidate_metadata(sys.argv[1])
    assert zarr.open_group(sys.argv[1], mode="r").metadata.consolidated_metadata is not None
else:
    assert (group["a"][...] == 7).all() and group["a"].dtype == "f8" and (group["b"][...] == 1).all()
    assert str(dict(group.attrs)) == "{'x': nan, 'y': -inf, 'z': 'NaN', 'large': 1000000000000000000000000000000}", dict(group.attrs)
    assert group.metadata.consolidated_metadata is None and np.isnan(group["b"].attrs["x"])
"#;
    let consolidate = |more: &[&str]| {
        let path = folder.join("store.zarr");
        let output =
            Command::new(&python).args(["-W", "ignore", "-c", CONSOLIDATE]).arg(path).args(more).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    consolidate(&["make"]);
    let seven = Array::full(&[9, 9], 7.0, DType::F64);
    store(&folder.join("store.zarr/a"), &seven, &[2, 9], Compression::None);
    consolidate(&[]);
    // Groups in a store are made, and found.
    let array = Array::full(&[9, 9], 7.0, DType::F64);
    store(&folder.join("new.zarr/of/it"), &array, &[2, 9], Compression::None);
    store(&folder.join("new.zarr/of/them"), &array, &[9, 9], Compression::None);
    const GROUPS: &str = r#"
import sys, zarr
store = zarr.open_group(sys.argv[1], mode="r")
assert sorted(store["of"].array_keys()) == ["it", "them"] and (store["of/it"][...] == 7).all()
"#;
    let output = Command::new(&python).args(["-c", GROUPS]).arg(folder.join("new.zarr")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let array = ZarrArray { dtype: DType::F64, shape: &[9], chunk: &[9], compression: Compression::None };
    let error = ZarrWriter::create(&folder.join("none/x"), array, None).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    // Nothing is left beside them.
    let hidden = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    assert_eq!(std::fs::read_dir(folder).unwrap().flatten().filter(hidden).count(), 0);
}

fn block<T: Element>(shape: &[usize], elements: &[T]) -> Block {
    Block::from_slice(shape, elements).unwrap()
}

fn begin(path: &Path, chunk: &[usize], compression: Compression) -> Result<ZarrWriter, String> {
    let array = ZarrArray { dtype: DType::F64, shape: &[4, 6], chunk, compression };
    ZarrWriter::create(path, array, Some(7)).map_err(|error| error.to_string())
}

#[test]
fn what_is_interrupted_is_gone_on_with() {
    let _alone = alone();
    let directory = Directory::new("zarr-begun");
    let path = directory.0.join("x.zarr");
    let regions: Vec<Region> =
        [0, 3].map(|column| Region { start: vec![0, column], shape: vec![2, 3] }).to_vec();
    for compression in [Compression::None, Compression::Gzip(1), Compression::Zstd] {
        let sink = begin(&path, &[2, 3], compression).unwrap();
        sink.write(&regions[0], &block(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
        // Only one at a time.
        let error = begin(&path, &[2, 3], compression).unwrap_err();
        assert!(error.contains("another run"), "{error}");
        drop(sink);
        assert!(!path.exists() || compression != Compression::None);
        // What was begun in other chunks, or is compressed in another way, is not gone on with.
        let other = if compression == Compression::None { Compression::Zstd } else { Compression::None };
        for (chunk, compression) in [([3, 2], compression), ([2, 3], other)] {
            let error = begin(&path, &chunk, compression).unwrap_err();
            assert!(error.contains("something else"), "{error}");
        }
        // Others that look what is there see no array before it is whole. One that was interrupted just then
        // is gone on with, too.
        let part = directory.0.join(".x.zarr.part");
        assert!(part.is_dir() && !part.join("zarr.json").exists());
        if compression == Compression::Zstd {
            std::fs::rename(part.join(".zarr.json"), part.join("zarr.json")).unwrap();
        }
        let sink = begin(&path, &[2, 3], compression).unwrap();
        assert!(sink.has(&regions[0]) && !sink.has(&regions[1]));
        sink.write(&regions[1], &block(&[2, 3], &[7.0; 6])).unwrap();
        sink.finish().unwrap();
        drop(sink);
        let read = Zarr::open(&path).unwrap().read(&whole(&[4, 6])).unwrap();
        let rows = [[1.0, 2.0, 3.0, 7.0, 7.0, 7.0], [4.0, 5.0, 6.0, 7.0, 7.0, 7.0], [0.0; 6], [0.0; 6]];
        assert_eq!(read.elements::<f64>(), rows.as_flattened());
        assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 1, "something is left");
    }
}

/// Whatever else is in a directory is not lost.
#[test]
fn nothing_but_an_array_is_replaced() {
    let _alone = alone();
    let directory = Directory::new("zarr-replaced");
    let at = |name: &str| directory.0.join(name);
    std::fs::create_dir(at("mine")).unwrap();
    std::fs::write(at("mine/thesis"), "all of it").unwrap();
    std::fs::create_dir(at("group")).unwrap();
    std::fs::write(at("group/zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    std::fs::write(at("file"), "of mine").unwrap();
    for (name, said) in [("mine", "no array of Zarr"), ("group", "GROUP/ARRAY"), ("file", "no array of Zarr")]
    {
        let error = begin(&at(name), &[2, 3], Compression::None).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    // Nor if it comes meanwhile.
    let sink = begin(&at("x"), &[2, 3], Compression::None).unwrap();
    std::fs::create_dir(at("x")).unwrap();
    std::fs::write(at("x/thesis"), "all of it").unwrap();
    assert!(sink.finish().is_err());
    assert_eq!(std::fs::read(at("mine/thesis")).unwrap(), b"all of it");
    assert_eq!(std::fs::read(at("x/thesis")).unwrap(), b"all of it");
    // What is compressed is written in whole chunks.
    let sink = begin(&at("y"), &[2, 3], Compression::Zstd).unwrap();
    let part = Region { start: vec![0, 1], shape: vec![2, 3] };
    let error = sink.write(&part, &block(&[2, 3], &[0.0; 6])).unwrap_err().to_string();
    assert!(error.contains("whole chunks"), "{error}");
    assert!(sink.work(&part) > 2 * 6 * 8 && !sink.has(&part));
    let error = begin(&at("z"), &[2], Compression::None).unwrap_err();
    assert!(error.contains("chunks along 1 axes, of an array of 2"), "{error}");
    assert!(is_zarr(&at("group")) && is_zarr(Path::new("x.zarr")) && is_zarr(Path::new("x.zarr/of/it")));
    assert!(!is_zarr(&at("mine")) && !is_zarr(Path::new("x.h5")) && !is_zarr(Path::new("x.zarr/y.npy")));
}

/// Without its description what was written is no array.
#[test]
fn what_has_lost_its_description_is_not_put_in_its_place() {
    let _alone = alone();
    let directory = Directory::new("zarr-lost");
    let path = directory.0.join("x.zarr");
    let sink = begin(&path, &[2, 3], Compression::None).unwrap();
    std::fs::remove_file(directory.0.join(".x.zarr.part/.zarr.json")).unwrap();
    let error = sink.finish().unwrap_err();
    assert!(error.kind() == std::io::ErrorKind::NotFound && !path.exists(), "{error}");
}

/// Other axes may be of any length: they are not cut.
#[test]
fn what_has_no_elements_takes_no_memory() {
    let _alone = alone();
    let directory = Directory::new("zarr-nothing");
    let path = directory.0.join("x.zarr");
    let (dtype, compression) = (DType::F64, Compression::None);
    let array = ZarrArray { dtype, shape: &[0, 1 << 50], chunk: &[1, 1], compression };
    ZarrWriter::create(&path, array, None).unwrap().finish().unwrap();
    let array = Array::from_source(Arc::new(Zarr::open(&path).unwrap()));
    let computed = Settings::default().compute(&[&array.rechunk_regular(&[1, 1]).unwrap()]).unwrap();
    assert_eq!(computed[0].shape(), [0, 1 << 50]);
}

/// An array is another one when a chunk of it is written again.
#[test]
fn a_chunk_that_is_written_again_changes_the_stamp() {
    let _alone = alone();
    let directory = Directory::new("zarr-stamp");
    let path = directory.0.join("x.zarr");
    store(&path, &Array::full(&[4, 6], 7.0, DType::F64), &[2, 3], Compression::None);
    let source = Zarr::open(&path).unwrap();
    let (stamp, array) = (source.stamp(), Array::from_source(Arc::new(Zarr::open(&path).unwrap())));
    let identity = array.identity();
    assert_eq!((source.stamp(), array.identity()), (stamp.clone(), identity));
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(path.join("c/0/1"), [0; 48]).unwrap();
    assert!(source.stamp() != stamp && array.identity() != identity);
}
