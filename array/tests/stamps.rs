//! Whether a run that was interrupted is gone on with: if its sources are what they were.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bdrun_array::source::zarr::{Compression, ZarrArray};
use bdrun_array::source::{Npy, NpyWriter, Sink, Source, Zarr, ZarrWriter};
use bdrun_array::{Array, Block, DType, Region};

fn save(path: &Path, value: f64) {
    let block = Block::from_slice(&[8], &[value; 8]).unwrap();
    let sink = NpyWriter::create(path, DType::F64, &[8], None).unwrap();
    sink.write(&Region { start: vec![0], shape: vec![8] }, &block).unwrap();
    sink.finish().unwrap();
}

/// `cp -p`, `rsync -a`, `tar -x`: other elements, as many and written at the same time.
#[test]
fn another_file_of_the_same_time_is_another_source() {
    let folder = std::env::temp_dir().join(format!("bdrun-array-stamps-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [path, other, result] = ["x.npy", "other.npy", "y.npy"].map(|name| folder.join(name));
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
    let set_time =
        |path: &Path| std::fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    let array = || Array::from_source(Arc::new(Npy::open(&path).unwrap()));
    let first = Region { start: vec![0], shape: vec![4] };
    let begin = || NpyWriter::create(&result, DType::F64, &[8], Some(array().identity()));
    let renamed = || std::fs::rename(&other, &path).unwrap();
    let copied = || {
        std::fs::write(&path, std::fs::read(&other).unwrap()).unwrap();
    };
    for replace in [&renamed as &dyn Fn(), &copied] {
        save(&path, 1.0);
        set_time(&path);
        let sink = begin().unwrap();
        sink.write(&first, &Block::from_slice(&[4], &[1.0; 4]).unwrap()).unwrap();
        drop(sink);
        assert!(begin().unwrap().has(&first), "the same is gone on with");
        save(&other, 100.0);
        set_time(&other);
        replace();
        set_time(&path);
        let error = begin().err().unwrap().to_string();
        assert!(error.contains("its sources have changed"), "{error}");
        for name in [".y.npy.part", ".y.npy.part.stored"] {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Chunks are read by their names: those of which no list can be had may be others the next time.
#[test]
fn what_cannot_be_listed_is_never_the_same() {
    let folder = std::env::temp_dir().join(format!("bdrun-array-unlisted-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("x.zarr");
    let array = ZarrArray { dtype: DType::F64, shape: &[4], chunk: &[2], compression: Compression::None };
    let sink = ZarrWriter::create(&path, array, None).unwrap();
    let whole = Region { start: vec![0], shape: vec![4] };
    sink.write(&whole, &Block::from_slice(&[4], &[1.0; 4]).unwrap()).unwrap();
    sink.finish().unwrap();
    drop(sink);
    let source = || Zarr::open(&path).unwrap();
    let identity = || Array::from_source(Arc::new(source())).identity();
    assert_eq!((source().stamp(), identity()), (source().stamp(), identity()));
    // It may be entered, and not read.
    let set = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    set(0o711);
    let look = || {
        const NOBODY: u32 = 65534;
        // SAFETY: it changes as whom this thread opens files, and nothing else. Who is not root stays who he
        // is.
        unsafe { libc::setfsuid(NOBODY) };
        std::fs::read_dir(&path)
            .is_err()
            .then(|| (source().stamp(), identity(), source().read(&whole).unwrap()))
    };
    if !rustix::process::geteuid().is_root() {
        set(0o311);
    }
    let looked = || std::thread::scope(|scope| scope.spawn(look).join().unwrap());
    let before = looked();
    std::fs::write(path.join("c/1"), 2.0_f64.to_le_bytes().repeat(2)).unwrap();
    let after = looked();
    set(0o700);
    match (before, after) {
        (Some(before), Some(after)) => {
            assert_eq!(after.2.elements::<f64>(), [1.0, 1.0, 2.0, 2.0]);
            assert!(before.0 != after.0 && before.1 != after.1, "{}", before.0);
        }
        _ => bdrun_skipped::skipped("root", "what may not be read is read"),
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
