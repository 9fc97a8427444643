//! Datasets whose elements are in other files than the one that is named.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use bdrun_array::source::{Hdf5, Npy, Source};
use bdrun_array::{Array, Region};

use super::{Directory, alone, made};

/// In `master.h5`, where something else lies where they lie in theirs.
const MAKE: &str = r#"
import sys, os, numpy as np, h5py
os.chdir(sys.argv[1])
real = np.random.default_rng(1).standard_normal((23, 31))
other, line = h5py.File("other.h5", "w"), np.arange(40.0)
other.create_dataset("contiguous", data=real)
other.create_dataset("chunked", data=real, chunks=(5, 7))
other.create_dataset("zipped", data=real, chunks=(5, 7), compression="gzip")
other.create_dataset("group/inside", data=real, chunks=(6, 6))
other["soft"] = h5py.SoftLink("/chunked")
other.close()
with h5py.File("shifted.h5", "w", userblock_size=512) as f:
    f.create_dataset("contiguous", data=real)
with h5py.File("middle.h5", "w") as f:
    f["far"] = h5py.ExternalLink("other.h5", "/chunked")
with h5py.File("source.h5", "w") as f:
    f.create_dataset("line", data=line)
with h5py.File("linked.h5", "w") as f:
    f["line"] = h5py.ExternalLink("source.h5", "/line")
os.mkdir("deep")
with h5py.File("deep/source.h5", "w") as f:
    f.create_dataset("line", data=line)
with h5py.File("master.h5", "w") as f:
    f.create_dataset("before", data=np.full(5000, 7.5))
    for name in ("contiguous", "chunked", "zipped", "soft"):
        f[f"to-{name}"] = h5py.ExternalLink("other.h5", f"/{name}")
    f["to-shifted"] = h5py.ExternalLink("shifted.h5", "/contiguous")
    f["through"] = h5py.ExternalLink("other.h5", "/group")
    f["to-far"] = h5py.ExternalLink("middle.h5", "/far")
    f["round"] = h5py.SoftLink("/through/inside")
    f.create_dataset("stored", (40,), "f8", external=[("stored.bin", 0, 160), ("stored.bin", 480, 160)])[...] = line
    f.create_dataset("own", data=line)
    def put(name, *sources, shape=(40,)):
        layout = h5py.VirtualLayout((10 * len(sources),), "f8")
        for at, (file, dataset) in enumerate(sources):
            layout[10 * at : 10 * at + 10] = h5py.VirtualSource(file, dataset, shape)[:10]
        f.create_virtual_dataset(name, layout, fillvalue=-1)
    put("put-together", ("source.h5", "line"), (".", "own"), ("missing.h5", "line"), ("deep/source.h5", "line"))
    for at in range(3):
        with h5py.File(f"part-{at}.h5", "w") as part:
            part.create_dataset("line", data=np.arange(10.0) + 10 * at)
    endless = (h5py.h5s.UNLIMITED,)
    there, part = h5py.h5s.create_simple((30,), endless), h5py.h5s.create_simple((10,))
    there.select_hyperslab((0,), endless, (10,), (10,))
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_virtual(there, b"part-%b.h5", b"line", part)
    h5py.h5d.create(f.id, b"numbered", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((30,), endless), dcpl=created)
    put("again", (".", "put-together"))
    put("put-of-linked", ("linked.h5", "line"))
f = h5py.File("master.h5")
for name in sys.argv[2:]:
    np.save(name.replace("/", "-") + ".npy", f[name][...])
"#;

const READ: &[&str] = &[
    "to-contiguous",
    "to-chunked",
    "to-zipped",
    "to-soft",
    "to-shifted",
    "through/inside",
    "round",
    "to-far",
    "stored",
    "put-together",
    "again",
    "put-of-linked",
    "numbered",
];

fn make(folder: &Path, python: &str) {
    let output = Command::new(python).args(["-c", MAKE]).arg(folder).args(READ).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn they_are_read_from_those() {
    let _alone = alone();
    let Some((Directory(folder), python)) = &made("elsewhere") else { return };
    make(folder, python);
    for &name in READ {
        // The library looks for files of elements alone where the program is, which is elsewhere here.
        if name == "stored" {
            continue;
        }
        let ours = Hdf5::open(&folder.join("master.h5"), name).unwrap();
        let theirs = Npy::open(&folder.join(format!("{}.npy", name.replace('/', "-")))).unwrap();
        assert_eq!((ours.dtype(), ours.shape()), (theirs.dtype(), theirs.shape()), "{name}");
        let whole = Region { start: vec![0; ours.shape().len()], shape: ours.shape().to_vec() };
        let part = Region {
            start: whole.shape.iter().map(|length| length / 3).collect(),
            shape: whole.shape.iter().map(|length| length / 2).collect(),
        };
        for region in [whole, part] {
            let (x, y) = (ours.read(&region).unwrap(), theirs.read(&region).unwrap());
            assert_eq!(x.as_bytes(), y.as_bytes(), "{name} {region:?}");
        }
        // A program that is started meanwhile has none of them, with the library's lock.
        let inherited = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
        let inherited = String::from_utf8_lossy(&inherited.stdout);
        assert!(inherited.contains("->") && !inherited.contains(".h5"), "{name}: {inherited}");
    }
}

/// A run is not gone on with when elements may have changed, in whatever file they are.
#[test]
fn what_they_are_is_part_of_what_a_result_is_made_of() {
    let _alone = alone();
    let Some((Directory(folder), python)) = &made("stamps") else { return };
    make(folder, python);
    let file = |name: &str| folder.join(name);
    let identity = |name: &str| {
        let source = Hdf5::open(&file("master.h5"), name).unwrap();
        Array::from_source(std::sync::Arc::new(source)).identity()
    };
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
    let set_time = |name: &str| {
        std::fs::File::options().write(true).open(file(name)).unwrap().set_modified(then).unwrap();
    };
    // One element is another, at the same time by the clock.
    let change = |name: &str| {
        let opened = std::fs::File::options().write(true).open(file(name)).unwrap();
        let length = opened.metadata().unwrap().len();
        opened.write_all_at(&[1], length - 1).unwrap();
        set_time(name);
    };
    // The same file with other bytes, put in its place.
    let replace = |name: &str| {
        std::fs::copy(file(name), file("aside")).unwrap();
        std::fs::rename(file("aside"), file(name)).unwrap();
        set_time(name);
    };
    let remake = |name: &str| {
        std::fs::remove_file(file(name)).unwrap();
        std::fs::copy(file("source.h5"), file(name)).unwrap();
    };
    for name in
        ["other.h5", "middle.h5", "source.h5", "linked.h5", "deep/source.h5", "stored.bin", "part-1.h5"]
    {
        set_time(name);
    }
    type Change<'a> = (&'a str, &'a dyn Fn(&str), &'a str);
    let changes: [Change<'_>; 11] = [
        ("to-chunked", &replace, "other.h5"),
        ("through/inside", &replace, "other.h5"),
        ("to-contiguous", &replace, "master.h5"),
        ("to-far", &replace, "other.h5"),
        ("stored", &change, "stored.bin"),
        ("put-together", &replace, "source.h5"),
        ("put-together", &replace, "deep/source.h5"),
        ("again", &replace, "source.h5"),
        ("put-of-linked", &replace, "source.h5"),
        ("put-of-linked", &remake, "linked.h5"),
        ("numbered", &replace, "part-1.h5"),
    ];
    for (name, how, changed) in changes {
        let before = identity(name);
        assert_eq!(before, identity(name), "{name} has not changed");
        how(changed);
        assert_ne!(before, identity(name), "{name}: {changed}");
    }
    // What was not there may come.
    for (name, comes) in [("put-together", "missing.h5"), ("numbered", "part-3.h5")] {
        let before = identity(name);
        std::fs::copy(file("source.h5"), file(comes)).unwrap();
        assert_ne!(before, identity(name), "{name}: {comes}");
    }
}
