//! Policies on disk, and what is said of what cannot be.

use super::{bundled, command, complaint, has_highs, output, sddp, succeed, text};

#[test]
fn a_policy_is_of_one_case_and_whole() {
    if !has_highs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (case, policy) = (bundled("tiny.toml"), folder.path().join("policy.json"));
    succeed(&sddp(&["train", text(&case), "--iterations", "2", "--forward", "3", "--policy", text(&policy)]));
    let written = std::fs::read_to_string(&policy).expect("a policy");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
    let simulate = |case: &std::path::Path| {
        sddp(&["simulate", text(case), "--policy", text(&policy), "--scenarios", "10"])
    };
    succeed(&simulate(&case));
    // The case was changed by one number.
    let other = folder.path().join("other.toml");
    let text =
        std::fs::read_to_string(&case).expect("the case").replacen("demand = 190.0", "demand = 190.5", 1);
    std::fs::write(&other, text).expect("write");
    assert!(complaint(&simulate(&other)).contains("of another case ('tiny'"));
    for (wrong, why) in [
        (written.replace("\"version\":1", "\"version\":9"), "of version 9"),
        (written[..written.len() / 2].to_owned(), "no policy of this program"),
        (written.replace("\"cuts\":[[", "\"cuts\":[[0.5,"), "do not fit"),
        (String::new(), "no policy of this program"),
    ] {
        assert_ne!(wrong, written);
        std::fs::write(&policy, wrong).expect("write");
        let said = complaint(&simulate(&case));
        assert!(said.contains(why), "{why}: {said}");
    }
    std::fs::remove_file(&policy).expect("remove");
    assert!(complaint(&simulate(&case)).contains("policy.json: No such file"));
}

#[test]
fn a_policy_that_cannot_be_written_leaves_the_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("policy.json");
    std::fs::write(&path, "old").expect("write");
    let failed = bdrun_sddp::policy::replace(&path, |file| {
        file.write_all(b"half of it")?;
        Err(std::io::Error::other("the disk is full"))
    });
    assert!(failed.expect_err("an error").to_string().contains("the disk is full"));
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "old");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    bdrun_sddp::policy::replace(&path, |file| file.write_all(b"new")).expect("written");
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "new");
    // Behind a link it is what the link leads to.
    let link = folder.path().join("link.json");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    bdrun_sddp::policy::replace(&link, |file| file.write_all(b"newer")).expect("written");
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "newer");
}

/// What would not become a file is said before anything is computed, and stays what it is.
#[test]
fn a_policy_replaces_files_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let [pipe, link] = ["pipe", "link"].map(|name| folder.path().join(name));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    std::os::unix::fs::symlink(folder.path().join("nothing"), &link).expect("a link");
    for (path, why) in
        [(folder.path(), "directory"), (&pipe, "no regular file"), (&link, "a link that leads nowhere")]
    {
        let said = bdrun_sddp::policy::writable(path).expect_err("it cannot be").to_string();
        assert!(said.contains(why), "{said}");
        assert!(bdrun_sddp::policy::replace(path, |file| file.write_all(b"new")).is_err());
    }
    assert!(folder.path().is_dir() && link.is_symlink());
    let kind = std::fs::symlink_metadata(&pipe).expect("it is there").file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is left");
}

#[test]
fn what_is_missing_is_said() {
    let tiny = bundled("tiny.toml");
    let run = |arguments: &[&str]| {
        output(
            command(super::PROGRAM)
                .args(arguments)
                .env("BDRUN_HIGHS", "/nowhere/libhighs.so")
                .spawn()
                .expect("start"),
        )
    };
    for step in [&["train", text(&tiny)][..], &["bound-exact", text(&tiny)]] {
        let said = complaint(&run(step));
        assert!(
            said.contains("HiGHS cannot be loaded: /nowhere/libhighs.so") && said.contains("pip install"),
            "{said}"
        );
    }
    assert!(complaint(&run(&["train", "nowhere.toml"])).contains("nowhere.toml: No such file"));
    let said = complaint(&run(&["train", text(&tiny), "--forward", "0"]));
    assert!(said.contains("at least one iteration and one trajectory"), "{said}");
    let said = complaint(&run(&["train", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]));
    assert!(said.contains("Cargo.toml: TOML parse error"), "{said}");
}
