//! Names beside the one that is written: where that is long, and where somebody has them already.

use std::path::{Path, PathBuf};

use bdrun_array::source::zarr::{Compression, ZarrArray};
use bdrun_array::source::{NpyWriter, Sink, ZarrWriter};
use bdrun_array::{Block, DType, Region};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bdrun-array-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn begin(path: &Path, is_folder: bool, identity: Option<u128>) -> Box<dyn Sink> {
    let (dtype, shape, compression) = (DType::F64, &[4][..], Compression::None);
    match is_folder {
        false => Box::new(NpyWriter::create(path, dtype, shape, identity).unwrap()),
        true => {
            let array = ZarrArray { dtype, shape, chunk: &[2], compression };
            Box::new(ZarrWriter::create(path, array, identity).unwrap())
        }
    }
}

/// What is written has a name that may be; that those beside it are longer is nobody's concern.
#[test]
fn a_name_may_be_as_long_as_names_may_be() {
    let directory = Directory::new("long");
    let half = Region { start: vec![0], shape: vec![2] };
    let block = Block::from_slice(&[2], &[1.0; 2]).unwrap();
    for (is_folder, ending) in [(false, ".npy"), (true, ".zarr")] {
        // Two that begin in the same way are two.
        let names = ["a", "b"].map(|last| format!("{}{last}{ending}", "ä".repeat(124)));
        assert!(names.iter().all(|name| name.len() >= 253));
        let paths = names.clone().map(|name| directory.0.join(name));
        begin(&paths[0], is_folder, None).finish().unwrap();
        assert_eq!(directory.names(), names[..1]);
        let begun = paths.each_ref().map(|path| begin(path, is_folder, Some(7)));
        begun[0].write(&half, &block).unwrap();
        drop(begun);
        let begun = paths.each_ref().map(|path| begin(path, is_folder, Some(7)));
        assert_eq!(begun.each_ref().map(|sink| sink.has(&half)), [true, false]);
        begun.iter().for_each(|sink| sink.finish().unwrap());
        drop(begun);
        assert_eq!(directory.names(), names);
        for path in &paths {
            if is_folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
        }
    }
}

/// Where others may make files, what a link leads to is not written to.
#[test]
fn a_link_with_the_name_of_what_is_begun_is_not_followed() {
    let directory = Directory::new("followed");
    let (path, victim) = (directory.0.join("x.npy"), directory.0.join("victim"));
    std::fs::write(&victim, "of somebody else").unwrap();
    for name in [".x.npy.part", ".x.npy.part.stored"] {
        std::os::unix::fs::symlink("victim", directory.0.join(name)).unwrap();
        assert!(NpyWriter::create(&path, DType::F64, &[4], Some(7)).is_err(), "{name}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "of somebody else", "{name}");
        for left in [".x.npy.part", ".x.npy.part.stored"] {
            _ = std::fs::remove_file(directory.0.join(left));
        }
    }
}
