//! Groups that an array is written into.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use bdrun_array::source::zarr::Compression;
use bdrun_array::source::{Sink, Source, Zarr};

use super::{Directory, alone, begin};

/// Who reads a store of version 2 would not find an array of version 3 in it, but what was never written.
#[test]
fn an_array_of_a_group_of_version_2_is_not_replaced() {
    let _alone = alone();
    let directory = Directory::new("zarr-old");
    let at = |name: &str| directory.0.join(name);
    const ARRAY: &str = r#"{"zarr_format": 2, "shape": [4, 6], "chunks": [4, 6], "dtype": "<f8",
 "compressor": null, "fill_value": 0.0, "filters": null, "order": "C"}"#;
    let group = r#"{"zarr_format": 2}"#;
    let copies = format!(
        r#"{{"metadata": {{".zgroup": {group}, "a/.zarray": {ARRAY}}}, "zarr_consolidated_format": 1}}"#
    );
    for (store, files) in [("group.zarr", vec![".zgroup"]), ("all.zarr", vec![".zgroup", ".zmetadata"])] {
        for folder in ["a", "b/a"] {
            std::fs::create_dir_all(at(store).join(folder)).unwrap();
            std::fs::write(at(store).join(folder).join(".zarray"), ARRAY).unwrap();
        }
        for file in files {
            std::fs::write(at(store).join(file), if file == ".zgroup" { group } else { &copies }).unwrap();
        }
        for folder in ["a", "b/a"] {
            let error = begin(&at(store).join(folder), &[2, 3], Compression::None).unwrap_err();
            assert!(error.contains("zarr migrate v3") && error.contains(store), "{error}");
            assert!(at(store).join(folder).join(".zarray").exists());
        }
    }
    // One that is in no group is replaced.
    std::fs::create_dir(at("alone")).unwrap();
    std::fs::write(at("alone/.zarray"), ARRAY).unwrap();
    begin(&at("alone"), &[2, 3], Compression::None).unwrap().finish().unwrap();
    assert_eq!(Zarr::open(&at("alone")).unwrap().shape(), [4, 6]);
}

const CONSOLIDATED: &str = r#"{"zarr_format": 3, "node_type": "group", "attributes": {},
 "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {}}}"#;

/// What a group above says is not passed over: it may have a copy of what is replaced.
#[test]
fn a_group_that_cannot_be_read_is_named_before_anything_is_computed() {
    let _alone = alone();
    let directory = Directory::new("zarr-unread");
    let at = |name: &str| directory.0.join(name);
    std::fs::create_dir_all(at("x.zarr/of")).unwrap();
    std::fs::write(at("x.zarr/zarr.json"), CONSOLIDATED).unwrap();
    // What is written with an escape is a copy as any other, but is not found in the text.
    let escaped = CONSOLIDATED.replace("dated_m", r"dated\u005fm");
    for (text, said) in [
        ("{", "EOF while parsing"),
        (escaped.as_str(), "cannot be taken away"),
        (r#"{"zarr_format": 3, "node_type": "array"}"#, "is an array, in which"),
    ] {
        std::fs::write(at("x.zarr/of/zarr.json"), text).unwrap();
        let error = begin(&at("x.zarr/of/a"), &[2, 3], Compression::None).unwrap_err();
        assert!(error.contains("x.zarr/of") && error.contains(said), "{error}");
    }
    let long = std::fs::File::create(at("x.zarr/of/zarr.json")).unwrap();
    long.set_len((64 << 20) + 1).unwrap();
    let error = begin(&at("x.zarr/of/a"), &[2, 3], Compression::None).unwrap_err();
    assert!(error.contains("x.zarr/of/zarr.json: zarr.json has 67108865 bytes"), "{error}");
    // Nor if it comes meanwhile.
    std::fs::remove_file(at("x.zarr/of/zarr.json")).unwrap();
    let sink = begin(&at("x.zarr/of/a"), &[2, 3], Compression::None).unwrap();
    assert_eq!(std::fs::read_to_string(at("x.zarr/zarr.json")).unwrap(), CONSOLIDATED);
    std::fs::write(at("x.zarr/of/zarr.json"), "{").unwrap();
    let error = sink.finish().unwrap_err().to_string();
    assert!(error.contains("x.zarr/of/zarr.json"), "{error}");
    std::fs::write(at("x.zarr/of/zarr.json"), CONSOLIDATED).unwrap();
    sink.finish().unwrap();
    for folder in ["x.zarr", "x.zarr/of"] {
        let text = std::fs::read_to_string(at(folder).join("zarr.json")).unwrap();
        assert_eq!(text, r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#);
        let hidden = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
        assert_eq!(std::fs::read_dir(at(folder)).unwrap().flatten().filter(hidden).count(), 0);
    }
}

/// Whatever else is above an array is none of its groups, and stops nobody: not above a directory without a
/// description, nor above a store if it cannot be read.
#[test]
fn what_is_above_groups_is_not_one_of_them() {
    let _alone = alone();
    let directory = Directory::new("zarr-above");
    let at = |name: &str| directory.0.join(name);
    let write = |name: &str| begin(&at(name), &[2, 3], Compression::None).unwrap().finish().unwrap();
    let refused = |name: &str| begin(&at(name), &[2, 3], Compression::None).unwrap_err();
    // A file of no Zarr at all, and what is no file.
    std::fs::create_dir(at("between")).unwrap();
    std::fs::write(at("zarr.json"), "").unwrap();
    write("between/x");
    write("new.zarr/of/x");
    assert!(refused("x.zarr").contains("zarr.json: EOF while parsing"));
    std::fs::remove_file(at("zarr.json")).unwrap();
    std::fs::create_dir(at("zarr.json")).unwrap();
    write("between/x");
    write("new.zarr/of/x");
    assert!(refused("x.zarr").contains("zarr.json: it is no file"));
    // Groups without such a name are groups all the same.
    std::fs::create_dir(at("of")).unwrap();
    std::fs::write(at("of/zarr.json"), CONSOLIDATED).unwrap();
    assert!(refused("of/x").contains("zarr.json: it is no file"));
    // One above that has the store is a group of it, and is one above those that are to be made.
    std::fs::remove_dir(at("zarr.json")).unwrap();
    std::fs::write(at("zarr.json"), CONSOLIDATED).unwrap();
    write("new.zarr/of/x");
    assert!(!std::fs::read_to_string(at("zarr.json")).unwrap().contains("consolidated"));
    std::fs::write(at("new.zarr/zarr.json"), CONSOLIDATED.replace("dated_m", r"dated\u005fm")).unwrap();
    assert!(refused("new.zarr/more/x").contains("cannot be taken away") && !at("new.zarr/more").exists());
    // What is above a gap stays as it is.
    std::fs::create_dir(at("new.zarr/gap")).unwrap();
    std::fs::write(at("new.zarr/zarr.json"), CONSOLIDATED).unwrap();
    write("new.zarr/gap/x");
    assert_eq!(std::fs::read_to_string(at("new.zarr/zarr.json")).unwrap(), CONSOLIDATED);
}

/// The same of one that cannot be written, by a user who may not do everything.
#[test]
fn a_group_that_cannot_be_written_is_named_before_anything_is_computed() {
    let _alone = alone();
    const NAME: &str = "groups::a_group_that_cannot_be_written_is_named_before_anything_is_computed";
    let directory = Directory::new("zarr-unwritten");
    if rustix::process::geteuid().is_root() {
        // Nobody may execute the program although its directories are ours. Copied by another process: one
        // that this one had open for writing could be so in a child of another test, and would not be
        // executed ("text file busy").
        let program = directory.0.join("tests");
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
        assert!(copied.unwrap().success());
        std::os::unix::fs::chown(&directory.0, Some(65_534), Some(65_534)).unwrap();
        let mut command = Command::new(&program);
        command.args([NAME, "--exact", "--nocapture"]).env("TMPDIR", &directory.0);
        let output = match command.uid(65_534).gid(65_534).output() {
            Ok(output) => output,
            Err(error) => {
                return bdrun_skipped::skipped("root", format!("cannot run as another user: {error}"));
            }
        };
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let group = directory.0.join("x.zarr");
    let set = |mode| std::fs::set_permissions(&group, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::create_dir_all(group.join("of")).unwrap();
    for name in ["zarr.json", "of/zarr.json"] {
        std::fs::write(group.join(name), CONSOLIDATED).unwrap();
    }
    set(0o555);
    let begun = begin(&group.join("of/a"), &[2, 3], Compression::None).map(drop);
    set(0o755);
    let error = begun.unwrap_err();
    assert!(error.contains("x.zarr/zarr.json: Permission denied"), "{error}");
    assert_eq!(std::fs::read_dir(group.join("of")).unwrap().count(), 1);
}

/// Threads that write the first arrays of a store make its groups at the same time; and what was killed while
/// it made one had the number that this process has now.
#[test]
fn groups_are_made_by_several_at_once() {
    let _alone = alone();
    let directory = Directory::new("zarr-at-once");
    let at = |name: String| directory.0.join(name);
    for number in 0..50 {
        let (begun, store) = (std::sync::Barrier::new(2), format!("{number}.zarr"));
        std::fs::create_dir(at(format!(".{store}.{}", std::process::id()))).unwrap();
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let (begun, path) = (&begun, at(format!("{store}/g/{name}")));
                scope.spawn(move || {
                    begun.wait();
                    begin(&path, &[2, 3], Compression::None).unwrap().finish().unwrap();
                });
            }
        });
        for name in ["a", "b"] {
            assert_eq!(Zarr::open(&at(format!("{store}/g/{name}"))).unwrap().shape(), [4, 6]);
        }
        assert_eq!(std::fs::read_dir(at(format!("{store}/g"))).unwrap().count(), 3);
    }
}

/// Where nothing came of it, for want of memory say, there is no store either; but what others have put
/// there stays.
#[test]
fn groups_that_were_made_in_vain_go() {
    let _alone = alone();
    let directory = Directory::new("zarr-vain");
    let at = |name: &str| directory.0.join(name);
    let count = |name: &str| std::fs::read_dir(at(name)).unwrap().count();
    drop(begin(&at("new.zarr/g/h/x"), &[2, 3], Compression::None).unwrap());
    assert_eq!(count("."), 0);
    // It is refused: another array is where a group would be.
    begin(&at("new.zarr"), &[2, 3], Compression::None).unwrap().finish().unwrap();
    begin(&at("new.zarr/g/x"), &[2, 3], Compression::None).unwrap_err();
    assert!(!at("new.zarr/g").exists());
    // What was there before stays, and so does what others have begun since, or have said.
    let first = begin(&at("a.zarr/g/x"), &[2, 3], Compression::None).unwrap();
    let second = begin(&at("a.zarr/g/y"), &[2, 3], Compression::None).unwrap();
    drop(first);
    second.finish().unwrap();
    drop(second);
    drop(begin(&at("a.zarr/h/x"), &[2, 3], Compression::None).unwrap());
    assert!(!at("a.zarr/h").exists() && count("a.zarr/g") == 2);
    let third = begin(&at("a.zarr/told/x"), &[2, 3], Compression::None).unwrap();
    std::fs::write(at("a.zarr/told/zarr.json"), CONSOLIDATED).unwrap();
    drop(third);
    assert_eq!(std::fs::read_to_string(at("a.zarr/told/zarr.json")).unwrap(), CONSOLIDATED);
}
