use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

const PART: &str = "layer-000/part-00000.kmers";

fn index(dir: &Path, text: &str) {
    std::fs::create_dir_all(dir.join("layer-000")).expect("made");
    let says = format!("{{\"format\": \"obikmer-index\", \"text\": \"{text}\"}}");
    std::fs::write(dir.join(index::FILE), says).expect("written");
    std::fs::write(dir.join(PART), text).expect("written");
}

/// What the index says, if there is one; both of its files say the same.
fn content(dir: &Path) -> Option<String> {
    let says = std::fs::read_to_string(dir.join(index::FILE)).ok()?;
    let text = std::fs::read_to_string(dir.join(PART)).expect("whole");
    assert!(says.contains(&format!("\"{text}\"")), "{says} and {text}");
    Some(text)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("listed");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// As if the process had been killed there: nothing that it would have done is done.
fn killed(claim: Claim, exchange: bool, at: usize) -> (Vec<Step>, bool) {
    let mut steps = Vec::new();
    let (lock, partial) = (claim.out.with_extension("lock"), claim.partial.clone());
    // A dying process's directory is not removed by it, whoever drops what.
    let kept = partial.with_extension("kept");
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let mut before = |step| {
            steps.push(step);
            if steps.len() > at {
                if partial.exists() {
                    std::fs::rename(&partial, &kept).expect("kept");
                }
                std::panic::resume_unwind(Box::new("killed"));
            }
        };
        claim.publish_in_steps(exchange, &mut before).expect("published");
    }))
    .is_ok();
    if !ended {
        if kept.exists() {
            std::fs::rename(&kept, &partial).expect("as it was");
        }
        std::fs::write(lock, "").expect("its lock is left");
    }
    (steps, ended)
}

/// Killed before each of the steps: there is the old index or the new one, and the next job finds it and
/// clears away the rest.
#[test]
fn killed_before_any_step_one_whole_index_is_left() {
    use Step::{Aside, Exchange, In, Remove, Sync, SyncNames};
    for (there, exchange, all) in [
        (true, true, &[Sync, Exchange, SyncNames, Remove][..]),
        (true, false, &[Sync, Aside, In, SyncNames, Remove]),
        (false, true, &[Sync, In, SyncNames]),
    ] {
        for at in 0..=all.len() {
            let dir = tempfile::tempdir().expect("a directory");
            let out = dir.path().join("ix");
            if there {
                index(&out, "old");
            }
            let claim = Claim::new(&out).expect("claimed");
            index(claim.partial(), "new");
            let (steps, ended) = killed(claim, exchange, at);
            assert_eq!((&steps[..], ended), (&all[..all.len().min(at + 1)], at == all.len()));
            let found = content(&out);
            let moved = steps[..at].iter().any(|s| matches!(s, Exchange | In));
            let gap = steps[..at].last() == Some(&Aside);
            let expected = if moved { Some("new") } else { there.then_some("old") };
            assert_eq!(found.as_deref(), if gap { None } else { expected }, "{steps:?}");
            drop(Claim::new(&out).expect("claimed again"));
            assert_eq!(content(&out).as_deref(), expected, "{steps:?}");
            let left: &[&str] = if expected.is_some() { &["ix"] } else { &[] };
            assert_eq!(names(dir.path()), left, "{steps:?}");
        }
    }
}

#[test]
fn one_at_a_time_and_nothing_is_left_of_one_that_gives_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("deep/er/ix");
    let claim = Claim::new(&out).expect("claimed");
    index(claim.partial(), "first");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(out.parent().expect("a parent"), &link).expect("linked");
    for out in [out.clone(), link.join("ix"), link.join("ix/")] {
        let error = Claim::new(&out).map(|_| ()).expect_err("claimed already").to_string();
        assert!(error.contains("another job") && error.contains("ix.lock"), "{error}");
    }
    assert!(claim.partial().exists());
    drop(Claim::new(&dir.path().join("deep/er/other")).expect("another index"));
    drop(claim);
    assert_eq!(names(dir.path()), ["link"], "the directories made for it are gone too");
}

/// The index behind a link is replaced, and the link stays.
#[test]
fn links_are_followed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, link) = (dir.path().join("ix"), dir.path().join("link"));
    index(&out, "old");
    std::os::unix::fs::symlink("ix", &link).expect("linked");
    let claim = Claim::new(&link).expect("claimed");
    index(claim.partial(), "new");
    claim.publish().expect("published");
    assert_eq!(content(&out).as_deref(), Some("new"));
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(names(dir.path()), ["ix", "link"]);
}

/// What somebody else has made meanwhile under the name of a new index is not replaced.
#[test]
fn what_came_meanwhile_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("ix");
    let claim = Claim::new(&out).expect("claimed");
    index(claim.partial(), "new");
    let mut before = |step| {
        if step == Step::In {
            index(&out, "theirs");
        }
    };
    let error = claim.publish_in_steps(true, &mut before).expect_err("it is there").to_string();
    assert!(error.contains("ix"), "{error}");
    assert_eq!(content(&out).as_deref(), Some("theirs"));
    assert_eq!(names(dir.path()), ["ix"]);
}

/// What comes between the last look and the moment in which names are given stays, whether they can be
/// exchanged or not.
#[test]
fn what_came_at_the_last_moment_stays() {
    use Step::{Aside, Exchange, In};
    let thesis = |dir: &Path| std::fs::write(dir.join("thesis"), "mine").expect("written");
    for (exchange, at) in [(true, Exchange), (false, Aside), (false, In)] {
        for there in ["index", "empty"] {
            for comes in ["another", "thesis", "file", "index"] {
                let dir = tempfile::tempdir().expect("a directory");
                let (out, kept) = (dir.path().join("ix"), dir.path().join("ix-kept"));
                if there == "index" {
                    index(&out, "old")
                } else {
                    std::fs::create_dir(&out).expect("made")
                }
                let claim = Claim::new(&out).expect("claimed");
                index(claim.partial(), "new");
                let mut before = |step| {
                    if step != at {
                        return;
                    }
                    if step != In && comes != "thesis" {
                        std::fs::rename(&out, &kept).expect("moved");
                    } else if step == In && comes != "file" {
                        std::fs::create_dir(&out).expect("made");
                    }
                    match comes {
                        "file" => std::fs::write(&out, "mine").expect("written"),
                        "index" => index(&out, "theirs"),
                        "another" if step != In => std::fs::create_dir(&out).expect("made"),
                        "another" => {}
                        _ => thesis(&out),
                    }
                };
                let error =
                    claim.publish_in_steps(exchange, &mut before).expect_err("it is there").to_string();
                let what = format!("{exchange} {at:?} {there} {comes}: {error}");
                assert!(error.contains("/ix"), "{what}");
                match comes {
                    "file" => assert_eq!(std::fs::read(&out).expect("there"), b"mine", "{what}"),
                    "index" => assert_eq!(content(&out).as_deref(), Some("theirs"), "{what}"),
                    "thesis" => assert!(out.join("thesis").exists(), "{what}"),
                    _ => assert!(std::fs::read_dir(&out).expect("there").next().is_none(), "{what}"),
                }
                // What was there before is there still, and nothing of the new one.
                drop(Claim::new(&out));
                let left = names(dir.path());
                let others: Vec<&String> = left.iter().filter(|name| *name != "ix").collect();
                if at == In {
                    assert!(matches!(&others[..], [name] if name.starts_with("ix.kept-")), "{what} {left:?}");
                    assert!(error.contains(&others[0][..]), "{what}");
                } else {
                    assert_eq!(others.len(), usize::from(comes != "thesis"), "{what} {left:?}");
                }
                let old = others.first().map_or(out.clone(), |name| dir.path().join(name));
                if there == "index" {
                    let text = std::fs::read_to_string(old.join(PART)).expect("whole");
                    assert_eq!(text, "old", "{what}");
                }
            }
        }
    }
}

/// Removed is what is of an index, from its first moment on no index any more.
#[test]
fn only_what_is_of_an_index_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = dir.path().join("old");
    for (name, left) in
        [("thesis", &["thesis"][..]), ("layer-000/thesis", &["layer-000"]), ("layer-000", &[])]
    {
        index(&old, "old");
        std::fs::create_dir(old.join(crate::plan::SPOOL)).expect("made");
        std::fs::write(old.join(crate::plan::SPOOL).join("0"), "copy").expect("written");
        let theirs = old.join(name);
        if !theirs.exists() {
            std::fs::write(&theirs, "mine").expect("written");
        }
        let removed = remove(&old);
        assert_eq!(removed.is_ok(), left.is_empty(), "{name}");
        if let Err(error) = removed {
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(names(&old), left);
            assert_eq!(std::fs::read(&theirs).expect("there"), b"mine");
            std::fs::remove_dir_all(&old).expect("removed");
        }
        assert!(!old.exists());
    }
}

/// An old index that was to be replaced is not removed because somebody else has taken its name; what is left
/// of one that was being removed is no index that could be put back.
#[test]
fn what_was_put_aside_is_put_back_or_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, old) = (dir.path().join("ix"), dir.path().join("ix.old-0123456789abcdef"));
    index(&old, "old");
    std::fs::create_dir(&out).expect("made");
    drop(Claim::new(&out).expect("claimed"));
    assert_eq!(content(&old).as_deref(), Some("old"));
    std::fs::remove_dir(&out).expect("removed");
    drop(Claim::new(&out).expect("claimed"));
    assert_eq!((content(&out).as_deref(), old.exists()), (Some("old"), false));
    std::fs::rename(&out, &old).expect("renamed");
    std::fs::remove_file(old.join(index::FILE)).expect("removed");
    drop(Claim::new(&out).expect("claimed"));
    assert_eq!(names(dir.path()), Vec::<String>::new());
}
