//! What is there is replaced where nothing is lost with it, and where that can be seen.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use bdrun_array::DType;
use bdrun_array::source::hdf5::Dataset;
use bdrun_array::source::{Hdf5Writer, Sink};

use super::{Directory, alone, made};

/// Files with no more than `C`, or nothing, in them, but for what their names say.
const MAKE: &str = r#"
import sys, os, numpy as np, h5py
os.chdir(sys.argv[1])
def file(name, dataset="C", **how):
    f = h5py.File(name, "w", **how)
    if dataset:
        f[dataset] = np.zeros(4)
    return f
file("same.h5")
file("empty.h5", None)
file("described.h5")["C"].attrs["units"] = "K"
file("other.h5", "D")
file("group.h5", None).create_group("C")
file("attributes.h5").attrs["run"] = 1
file("nothing-but-attributes.h5", None).attrs["run"] = 1
file("block.h5", userblock_size=512).close()
with open("block.h5", "r+b") as f:
    f.write(b"MATLAB 7.3 MAT-file")
open("zeros", "w").close()
with open("long.txt", "w") as f:
    f.write("text " * 1000)
for at in 0, 512, 2048:
    with open(f"damaged-{at}.h5", "wb") as f:
        f.write(bytes(at) + b"\x89HDF\r\n\x1a\n" + b"damage" * 1000)
# Its writer is gone without having closed it.
f = file("killed.h5", libver="latest")
f.flush()
os._exit(0)
"#;

fn create(path: &Path) -> Result<Hdf5Writer, String> {
    let dataset = Dataset { name: "/C", dtype: DType::F64, shape: &[4], chunk: &[2] };
    Hdf5Writer::create(path, dataset, None).map_err(|error| error.to_string())
}

fn make(name: &str) -> Option<Directory> {
    let (directory, python) = made(name)?;
    let output = Command::new(python).args(["-c", MAKE]).arg(&directory.0).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(directory)
}

#[test]
fn what_may_have_more_in_it_stays() {
    let _alone = alone();
    let Some(Directory(folder)) = &make("replaced") else { return };
    let count = || std::fs::read_dir(folder).unwrap().count();
    let all = count();
    for (name, said) in [
        ("other.h5", "more in it than C"),
        ("group.h5", "more in it than C"),
        ("attributes.h5", "attributes of its own"),
        ("nothing-but-attributes.h5", "attributes of its own"),
        ("block.h5", "user block"),
        ("killed.h5", "cannot be opened"),
        ("damaged-0.h5", "cannot be opened"),
        ("damaged-512.h5", "cannot be opened"),
        ("damaged-2048.h5", "cannot be opened"),
    ] {
        let path = folder.join(name);
        let before = std::fs::read(&path).unwrap();
        let error = create(&path).err().unwrap_or_else(|| panic!("{name} is replaced"));
        assert!(error.contains(name) && error.contains(said) && !error.contains("  "), "{error}");
        assert!(error.contains("would be lost; name another one, or remove this one"), "{error}");
        assert!(std::fs::read(&path).unwrap() == before, "{name}");
    }
    for name in ["same.h5", "empty.h5", "described.h5", "zeros", "long.txt", "new.h5"] {
        create(&folder.join(name)).unwrap().finish().unwrap();
    }
    assert_eq!(count(), all + 1);
}

/// By this program or another one: what it has written is not in the file yet, and it would go on in one that
/// has no name any more.
#[test]
fn what_somebody_writes_to_is_not_replaced() {
    let _alone = alone();
    let Some(Directory(folder)) = &make("written") else { return };
    for name in ["same.h5", "zeros"] {
        let path = folder.join(name);
        let writer = File::options().write(true).open(&path).unwrap();
        writer.lock().unwrap();
        let error = create(&path).err().unwrap_or_else(|| panic!("{name} is replaced"));
        assert!(error.contains("somebody writes to it"), "{error}");
        // Nor if it is opened meanwhile.
        writer.unlock().unwrap();
        let begun = create(&path).unwrap();
        writer.lock().unwrap();
        let error = begun.finish().unwrap_err().to_string();
        assert!(error.contains("somebody writes to it"), "{error}");
        // Who reads it goes on with what it was.
        writer.unlock().unwrap();
        writer.lock_shared().unwrap();
        begun.finish().unwrap();
    }
}

#[test]
fn what_cannot_be_read_is_not_replaced() {
    let _alone = alone();
    let Some(Directory(folder)) = &make("unread") else { return };
    const NOBODY: u32 = 65534;
    let path = folder.join("other.h5");
    std::fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o200)).unwrap();
    let try_it = || {
        // SAFETY: it changes as whom this thread opens files, and nothing else. Who is not root stays who he
        // is.
        unsafe { libc::setfsuid(NOBODY) };
        File::open(&path).is_err().then(|| create(&path).err())
    };
    let tried = std::thread::scope(|scope| scope.spawn(try_it).join().unwrap());
    let Some(error) = tried else {
        return bdrun_skipped::skipped("root", "what may not be read is read");
    };
    let error = error.expect("it is replaced");
    assert!(error.contains("cannot be seen (Permission denied"), "{error}");
}
