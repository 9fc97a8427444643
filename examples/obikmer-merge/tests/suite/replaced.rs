//! What a new index takes the place of: an index or an empty directory, and nothing that is not an index's.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::common::{run, said};

/// Two genomes, and the first as index `ix`.
fn prepared() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, sequence) in [
        ("a.fa", "ACGTTGCATGTCGCATGATGCATGAGAGCTACGTTGCATGTCGCATGATG"),
        ("b.fa", "TTGCAGGACCATTACGGATCAACGTAGGATTTACAGCACATTAGACCAGATTA"),
    ] {
        std::fs::write(dir.path().join(name), format!(">r\n{sequence}\n")).expect("written");
    }
    succeeds(dir.path(), "$O -k 21 --out ix a.fa");
    dir
}

fn succeeds(dir: &Path, script: &str) {
    let output = run(dir, script);
    assert!(output.status.success(), "{script}: {:?}", said(&output));
}

/// Refused with these words, in one line, and nothing is changed.
fn refused(dir: &Path, script: &str, words: &[&str]) {
    let before = said(&run(dir, "find . -type f -exec cksum {} + | sort; find . | sort")).0;
    let output = run(dir, script);
    let (_, error) = said(&output);
    assert_eq!(output.status.code(), Some(1), "{script}: {error}");
    assert_eq!(error.lines().count(), 1, "{script}: {error}");
    for word in words {
        assert!(error.contains(word), "{script}: {error} lacks {word}");
    }
    let after = said(&run(dir, "find . -type f -exec cksum {} + | sort; find . | sort")).0;
    assert_eq!(before, after, "{script}");
}

#[test]
fn only_what_says_that_it_is_an_index_is_replaced() {
    let dir = prepared();
    let dir = dir.path();
    std::fs::create_dir(dir.join("web")).expect("made");
    for text in ["{\"pages\": 3}", "no JSON", "{\"format\": \"obikmer-index-of-others\", \"version\": 1}"] {
        std::fs::write(dir.join("web/index.json"), text).expect("written");
        refused(dir, "$O -k 21 --force --out web a.fa", &["web", "not an index"]);
        refused(dir, "$O -k 21 --add --out web b.fa", &["web", "not an index"]);
    }
    // One of any version is.
    succeeds(dir, "sed -i 's/\"version\": 3/\"version\": 2/' ix/index.json");
    succeeds(dir, "$O -k 21 --force --out ix b.fa && $O info ix");
    // So is an empty directory.
    succeeds(dir, "mkdir empty && $O -k 21 --force --out empty b.fa && $O info empty");
}

#[test]
fn what_else_lies_in_an_index_is_named_and_stays() {
    let dir = prepared();
    let dir = dir.path();
    for name in [
        "notes.txt",
        "layer-000/part-00000.fa",
        "layer-000/part-0.kmers",
        "layer-x/part-00000.kmers",
        "layer-000/sub/index.json",
        "sub/index.json",
        "spool/0",
    ] {
        let path = dir.join("ix").join(name);
        let parent = path.parent().expect("a directory");
        std::fs::create_dir_all(parent).expect("made");
        std::fs::write(&path, "mine").expect("written");
        refused(dir, "$O -k 21 --force --out ix b.fa", &["ix", name.split('/').next().expect("a name")]);
        refused(dir, "$O -k 21 --add --out ix b.fa", &["ix", name.split('/').next().expect("a name")]);
        std::fs::remove_file(&path).expect("removed");
        let _ = std::fs::remove_dir(parent);
    }
    for out in ["ix/sub", "ix/layer-000/sub", "ix/new/sub"] {
        refused(dir, &format!("$O -k 21 --out {out} b.fa"), &["inside", "ix"]);
    }
    succeeds(dir, "$O -k 21 --add --out ix b.fa && $O -k 21 --force --out ix b.fa");
}

#[test]
fn a_lock_file_that_is_none_stays() {
    let dir = prepared();
    let dir = dir.path();
    std::fs::write(dir.join("poetry.lock"), "data").expect("written");
    std::fs::create_dir(dir.join("folder.lock")).expect("made");
    symlink("nowhere", dir.join("link.lock")).expect("linked");
    for name in ["poetry", "folder", "link"] {
        for input in ["nofile", "a.fa"] {
            let words = [&*format!("{name}.lock"), "not a lock of this program"];
            refused(dir, &format!("$O -k 21 --out {name} {input}"), &words);
        }
    }
}

/// An index that others may not read is made anew as one that they may not read, and never was.
#[test]
fn a_new_index_has_the_permissions_of_the_old_one() {
    let dir = prepared();
    let dir = dir.path();
    let ix = dir.join("ix");
    let root = rustix::process::geteuid().is_root();
    for (more, mode) in [("--force", 0o700), ("--add", 0o750), ("--force", 0o2775)] {
        if root {
            std::os::unix::fs::chown(&ix, Some(1234), Some(4321)).expect("given away");
        }
        std::fs::set_permissions(&ix, PermissionsExt::from_mode(mode)).expect("changed");
        let before = std::fs::metadata(&ix).expect("there");
        let name = format!("b{mode:o}.fa");
        succeeds(dir, &format!("cp b.fa {name} && $O -k 21 {more} --out ix {name}"));
        let after = std::fs::metadata(&ix).expect("there");
        assert_ne!(before.ino(), after.ino());
        assert_eq!(after.mode() & 0o7777, mode, "{more}");
        assert_eq!((before.uid(), before.gid()), (after.uid(), after.gid()), "{more}");
    }
}

#[test]
fn nothing_is_left_of_a_name_that_cannot_be_one() {
    let dir = prepared();
    let dir = dir.path();
    refused(dir, &format!("$O -k 21 --out q/w/{} a.fa", "n".repeat(252)), &["q/w/nnn"]);
    refused(dir, &format!("$O -k 21 --out q/{}/w a.fa", "n".repeat(300)), &["q/nnn"]);
    refused(dir, "$O -k 21 --out $'ix\\xff' a.fa", &["not UTF-8"]);
    refused(dir, "$O -k 21 --out $'q\\xff/ix' a.fa", &["not UTF-8"]);
    refused(dir, "$O -k 21 --out / a.fa", &["not a name"]);
}
