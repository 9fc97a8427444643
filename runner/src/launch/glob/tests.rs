//! Names, and directories that are made for it.

use std::os::unix::fs::symlink;
use std::time::Duration;

use proptest::prelude::*;

use super::super::awaited::Late;
use super::super::tests::Dir;
use super::*;

fn is_match(pattern: &str, name: &[u8]) -> bool {
    Names::parse(pattern.as_bytes()).expect(pattern).match_name(name)
}

#[test]
fn names_that_match_and_others() {
    for (pattern, name, matches) in [
        ("*.fa", &b"a.fa"[..], true),
        ("*.fa", b"a.fa.gz", false),
        ("*.fa", b".fa", false),
        (".*", b".fa", true),
        ("[.]*", b".fa", false),
        ("?fa", b".fa", false),
        ("a*b*c", b"abbcbc", true),
        ("a*b*c", b"abbcb", false),
        ("*a*", b"a", true),
        ("*", b"", true),
        ("?", "é".as_bytes(), true),
        ("??", "é".as_bytes(), false),
        ("?", b"\xff", true),
        ("a*", b"a\xff.txt", true),
        ("*\u{e9}", "aé".as_bytes(), true),
        ("[a-c]x", b"bx", true),
        ("[a-c]x", b"dx", false),
        ("[!a-c]x", b"dx", true),
        ("[^a-c]x", b"ax", false),
        ("[!a]", b"\xff", true),
        ("[à-é]", "è".as_bytes(), true),
        ("[à-é]", b"\xc3", false),
        ("[]]", b"]", true),
        ("[!]]", b"]", false),
        ("[a-]", b"-", true),
        ("[z-a]", b"m", false),
        ("[*]", b"*", true),
        ("[*]", b"x", false),
        ("x[[]y]", b"x[y]", true),
        ("A*", b"a", false),
    ] {
        assert_eq!(is_match(pattern, name), matches, "{pattern} {}", name.escape_ascii());
    }
    // Many stars are no more work than a few.
    assert!(!is_match(&"a*".repeat(60), &[b'a'; 59]));
    assert!(!is_match(&(format!("{}b", "*a".repeat(60))), &[b'a'; 255]));
}

#[test]
fn patterns_that_are_none() {
    for (pattern, component) in
        [("a/***", "***"), ("a**/b", "a**"), ("**b", "**b"), ("x/[a/y]", "[a"), ("[!]", "[!]"), ("[", "[")]
    {
        let error = matching(pattern.as_ref(), None).unwrap_err();
        assert!(matches!(error, GlobError::Pattern { .. }), "{pattern}: {error}");
        assert!(error.to_string().contains(&format!("'{component}'")), "{pattern}: {error}");
    }
}

/// Directories with files: names with a slash at their end are directories.
fn made(name: &str, paths: &[&[u8]]) -> Dir {
    let dir = Dir::new(name);
    for path in paths {
        let (path, is_directory) = (dir.0.join(OsStr::from_bytes(path)), path.ends_with(b"/"));
        let parent = if is_directory { &*path } else { path.parent().unwrap() };
        std::fs::create_dir_all(parent).unwrap();
        if !is_directory {
            std::fs::write(path, "").unwrap();
        }
    }
    dir
}

/// What matches below a directory, without that, sorted.
fn found(dir: &Dir, pattern: &str) -> Vec<String> {
    let root = dir.0.to_str().unwrap();
    let mut found: Vec<String> = matching(format!("{root}/{pattern}").as_ref(), None)
        .expect(pattern)
        .iter()
        .map(|path| path.as_os_str().as_bytes().escape_ascii().to_string())
        .map(|path| path.strip_prefix(root).expect("as it is spelled").strip_prefix('/').unwrap().to_owned())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn what_is_in_directories() {
    let dir = made(
        "glob-in",
        &[b"a.fa", b"b.fa", b".c.fa", b"x/a.fa", b"x/y/b.fa", b"x/.git/c.fa", b"z/", b"z.fa/"],
    );
    for (pattern, paths) in [
        ("*.fa", &["a.fa", "b.fa", "z.fa"][..]),
        ("*.fa/", &["z.fa"]),
        (".*", &[".c.fa"]),
        ("*/*.fa", &["x/a.fa"]),
        ("**/*.fa", &["a.fa", "b.fa", "x/a.fa", "x/y/b.fa", "z.fa"]),
        ("**/**/b.fa", &["b.fa", "x/y/b.fa"]),
        ("**/y/*", &["x/y/b.fa"]),
        ("**", &["x", "x/y", "z", "z.fa"]),
        ("**/", &["x", "x/y", "z", "z.fa"]),
        ("x/**", &["x/y"]),
        ("x/**/.git/*", &["x/.git/c.fa"]),
        ("x//[y]/./b.fa", &["x//y/./b.fa"]),
        ("*/y/..", &["x/y/.."]),
        ("a.fa", &["a.fa"]),
        ("a.fa/", &[]),
        ("x/", &["x"]),
        ("a.fa/*", &[]),
        ("no/*", &[]),
        ("*/no", &[]),
    ] {
        assert_eq!(found(&dir, pattern), paths, "{pattern}");
    }
    assert_eq!(matching("/".as_ref(), None).unwrap(), [Path::new("/")]);
    assert_eq!(matching("".as_ref(), None).unwrap(), Vec::<PathBuf>::new());
    let usr = matching("/us[r]".as_ref(), None).unwrap();
    assert_eq!(usr, [Path::new("/usr")]);
}

/// They were left out, and nobody was told.
#[test]
fn names_that_are_no_text_are_found() {
    let dir = made("glob-bytes", &[b"a\xff.txt", b"b.txt", b"\xfe/c.txt"]);
    assert_eq!(found(&dir, "*.txt"), ["a\\xff.txt", "b.txt"]);
    assert_eq!(found(&dir, "*/*.txt"), ["\\xfe/c.txt"]);
    assert_eq!(found(&dir, "**/c.txt"), ["\\xfe/c.txt"]);
    let pattern = [dir.0.as_os_str().as_bytes(), b"/a\xff*"].concat();
    assert_eq!(matching(OsStr::from_bytes(&pattern), None).unwrap().len(), 1);
}

#[test]
fn links_to_directories_are_gone_through_only_where_a_pattern_names_them() {
    let dir = made("glob-links", &[b"in/x.txt", b"in/sub/y.txt"]);
    symlink(".", dir.0.join("in/loop")).unwrap();
    symlink(".", dir.0.join("in/again")).unwrap();
    symlink("nowhere", dir.0.join("in/dangling.txt")).unwrap();
    symlink("self", dir.0.join("in/self")).unwrap();
    let all = ["in/dangling.txt", "in/sub/y.txt", "in/x.txt"];
    assert_eq!(found(&dir, "in/**/*.txt"), all);
    assert_eq!(found(&dir, "in/**"), ["in/sub"]);
    let through = ["in/again/x.txt", "in/loop/x.txt"];
    assert_eq!(found(&dir, "in/*/x.txt"), through);
    assert_eq!(found(&dir, "in/l*/*/y.txt"), ["in/loop/sub/y.txt"]);
    assert_eq!(found(&dir, "in/loop/**/x.txt"), ["in/loop/x.txt"]);
    assert_eq!(found(&dir, "in/*/"), ["in/again", "in/loop", "in/sub"]);
}

/// The one that may not be read has what a job needs.
#[test]
fn what_cannot_be_read_is_an_error() {
    let dir = Dir::new("glob-long");
    // No path may be so long: to read that directory fails, for root too.
    let pattern = format!("{}/{}*", dir.0.display(), "x/".repeat(3000));
    let error = matching(pattern.as_ref(), None).unwrap_err();
    assert!(matches!(error, GlobError::Read { .. }), "{error}");
    assert!(error.to_string().contains("cannot be read"), "{error}");
    let passed = Until::new(Some(Duration::ZERO));
    match matching("*".as_ref(), passed).unwrap_err() {
        GlobError::Read { source, .. } => assert_eq!(Late::limit(&source), Some(Duration::ZERO)),
        error => panic!("{error}"),
    }
}

/// What a pattern means, as slow as it may be.
fn plainly(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|at| plainly(rest, &name[at..])),
        Some((b'?', rest)) => !name.is_empty() && plainly(rest, &name[1..]),
        Some((byte, rest)) => name.first() == Some(byte) && plainly(rest, &name[1..]),
    }
}

proptest! {
    #[test]
    fn stars_take_what_they_can(pattern in "([ab?]|[*][ab?]){0,8}[*]?", name in "[ab]{0,12}") {
        let matches = Names::parse(pattern.as_bytes()).unwrap().match_name(name.as_bytes());
        prop_assert_eq!(matches, plainly(pattern.as_bytes(), name.as_bytes()));
    }

    /// Bytes that are no text, in any order, are what a pattern of the same bytes finds.
    #[test]
    fn a_name_matches_itself(name in proptest::collection::vec(any::<u8>(), 1..12)) {
        prop_assume!(!name.iter().any(|byte| b"*?[/".contains(byte)));
        prop_assert!(Names::parse(&name).unwrap().match_name(&name));
    }
}
