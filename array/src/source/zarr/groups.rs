//! Groups that an array is in: they are made, and have no copies of what it was before.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::{beside, unique};
use super::{NAME, OLD_COPIES, OLD_GROUP, description, json, wrong};

const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}
"#;

/// Whether a directory is a store (its name ends in `.zarr`), or in one.
fn is_in_store(folder: &Path) -> bool {
    folder.ancestors().any(|folder| folder.extension().is_some_and(|ending| ending == "zarr"))
}

/// Groups that were made for an array. Those that nothing has come to be in are taken away again: where there
/// is no array in the end nobody asked for them.
#[derive(Default)]
pub(super) struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        while let Some(folder) = self.0.pop() {
            if !unmake(&folder) {
                break;
            }
        }
    }
}

/// Whether a group is gone that has nothing in it but its description, as it was made.
fn unmake(folder: &Path) -> bool {
    let name = folder.join(NAME);
    let is_alone = |entry: io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == NAME);
    let is_empty = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.all(is_alone));
    if !is_empty || std::fs::read_to_string(&name).is_ok_and(|text| text != GROUP) {
        return false;
    }
    _ = std::fs::remove_file(&name);
    let is_gone = std::fs::remove_dir(folder).is_ok();
    if !is_gone && folder.is_dir() {
        // Somebody was faster, and needs it.
        _ = std::fs::write(&name, GROUP);
    }
    is_gone
}

/// In a store the groups that an array is to be in are made.
pub(super) fn make(path: &Path) -> io::Result<Made> {
    let mut all = Made::default();
    let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        // What is missing above the store is as wrong as it is of other files.
        if !is_in_store(folder) {
            break;
        }
        // With its description, or not at all.
        let aside = loop {
            let aside = beside(folder, &format!(".{}", unique()));
            match std::fs::create_dir(&aside) {
                // Another thread's.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made?;
                    break aside;
                }
            }
        };
        let made = std::fs::write(aside.join(NAME), GROUP).and_then(|()| std::fs::rename(&aside, folder));
        match made {
            Ok(()) => all.0.push(folder.to_path_buf()),
            Err(error) => {
                std::fs::remove_dir_all(&aside)?;
                // Others make it, too.
                if !folder.is_dir() {
                    return Err(error);
                }
            }
        }
    }
    Ok(all)
}

/// What is wrong with a group's description: it is not that of the array that is written.
fn named(folder: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", folder.join(NAME).display()))
}

/// What a directory says of itself, as a text too; nothing if it does not say anything.
fn told(folder: &Path) -> io::Result<Option<(String, Value)>> {
    match description(folder) {
        Ok((text, _)) => match json::parse(&text) {
            Ok(value) => Ok(Some((text, value))),
            Err(error) => Err(named(folder, &error.into())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(named(folder, &error)),
    }
}

/// Whether a directory says that it is an array.
pub(super) fn is_array(folder: &Path) -> io::Result<bool> {
    Ok(told(folder)?.is_some_and(|(_, value)| value["node_type"] == "array"))
}

/// A directory above that says it is of version 2: in it an array of version 3 is not found.
pub(super) fn old_above(path: &Path) -> Option<&Path> {
    let is_old = |folder: &&Path| [OLD_GROUP, OLD_COPIES].iter().any(|name| folder.join(name).exists());
    path.ancestors().skip(1).find(is_old)
}

const COPIES: &str = "consolidated_metadata";

/// Groups above that have copies of descriptions of what is in them ("consolidated metadata"), by which
/// others would read an array as the one that it replaces. With their own descriptions without those.
fn consolidated(path: &Path) -> io::Result<Vec<(&Path, String)>> {
    let mut found = Vec::new();
    let has_store = path.parent().is_some_and(is_in_store);
    for folder in path.ancestors().skip(1) {
        let (text, mut value) = match told(folder) {
            Ok(Some(told)) => told,
            // One that is to be made, with a description.
            Ok(None) if !folder.exists() => continue,
            // There are no gaps between groups: none above knows of this array.
            Ok(None) => break,
            // Nor does what is above a store and is no description.
            Err(_) if has_store && !is_in_store(folder) => break,
            Err(error) => return Err(error),
        };
        if value["node_type"] == "array" {
            return Err(wrong(format!("{} is an array, in which there can be none", folder.display())));
        }
        let copies = value.as_object_mut().and_then(|members| members.remove(COPIES));
        if copies.is_none_or(|copies| copies.is_null()) {
            continue;
        }
        let text = json::without(&text, COPIES);
        if !json::parse(&text).is_ok_and(|rest| rest == value) {
            return Err(named(folder, &wrong(format!("its {COPIES} cannot be taken away"))));
        }
        found.push((folder, text));
    }
    Ok(found)
}

/// A new file beside a group's description.
fn aside(folder: &Path, text: &str) -> io::Result<PathBuf> {
    loop {
        let path = folder.join(format!(".{NAME}.{}", unique()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            // Another thread's.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(mut file) => match file.write_all(text.as_bytes()) {
                Ok(()) => return Ok(path),
                Err(error) => {
                    _ = std::fs::remove_file(path);
                    return Err(error);
                }
            },
        }
    }
}

/// That the groups above can forget their copies when the array is written, as far as can be known before.
pub(super) fn check(path: &Path) -> io::Result<()> {
    for (folder, text) in consolidated(path)? {
        aside(folder, &text).and_then(std::fs::remove_file).map_err(|error| named(folder, &error))?;
    }
    Ok(())
}

/// The groups above forget their copies.
pub(super) fn forget(path: &Path) -> io::Result<()> {
    for (folder, text) in consolidated(path)? {
        let put = |aside: PathBuf| {
            std::fs::rename(&aside, folder.join(NAME)).inspect_err(|_| {
                _ = std::fs::remove_file(&aside);
            })
        };
        aside(folder, &text).and_then(put).map_err(|error| named(folder, &error))?;
    }
    Ok(())
}
