//! Whether a run that was interrupted is gone on with: if its sources are what they were.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bdrun_array::source::{Npy, NpyWriter, Sink};
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
