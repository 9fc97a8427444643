//! From a command line to what each rank is given.

use std::path::PathBuf;

use super::*;

/// A directory that is removed in the end.
pub(super) struct Dir(pub(super) PathBuf);

impl Dir {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bdrun-launch-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn launch(args: &[&str]) -> Result<(Launch, Options), Ending> {
    let mut options = Options::from_args(std::iter::once("bdrun").chain(args.iter().copied())).unwrap();
    Launch::new(&mut options).map(|launch| (launch, options))
}

/// A job with the lines of a text as its parts.
pub(crate) fn of_parts(parts: &str, command: &str) -> Result<Launch, Ending> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = Dir::new(&format!("of-parts-{number}"));
    let list = dir.file("list", parts);
    let words = command.split(' ');
    let args: Vec<_> = ["--parts", &list].into_iter().chain(words).collect();
    launch(&args).map(|(launch, _)| launch)
}

fn command(launch: &Launch, rank: u32) -> Vec<String> {
    let given = launch.given(rank);
    std::iter::once(given.program).chain(given.args).map(|word| word.into_string().unwrap()).collect()
}

fn refused(args: &[&str], code: u8, words: &[&str]) {
    let ending = launch(args).expect_err(&format!("{args:?}"));
    assert_eq!(ending.code(), code, "{ending}");
    for word in words {
        assert!(ending.to_string().contains(word), "'{word}' is not said: {ending}");
    }
}

#[test]
fn without_parts_only_rank_and_size_are_replaced() {
    let (launch, options) =
        launch(&["-np", "3", "--env", "A={rank}{}", "t{rank}", "{rank}/{size}", "{}", "{1}"]).unwrap();
    assert_eq!((options.np, launch.np()), (3, 3));
    assert_eq!(command(&launch, 2), ["t2", "2/3", "{}", "{1}"]);
    assert_eq!(launch.given(1).env, [("A".into(), "1{}".into())]);
    assert_eq!((launch.given(1).part, launch.declared(1)), (None, None));
    assert!(launch.programs_differ() && launch.stdin_is_free());
}

#[test]
fn lines_become_ranks() {
    let dir = Dir::new("lines");
    let parts = dir.file("parts.tsv", "name\tsize\na b\t5M\n\nc\t\n");
    let args =
        ["--parts", &parts, "--header", "--size-column", "size", "tool", "--in={name}", "{2}", "{{1}}"];
    let (launch, options) = launch(&args).unwrap();
    assert_eq!(options.np, 2);
    assert_eq!(command(&launch, 0), ["tool", "--in=a b", "5M", "{1}"]);
    assert_eq!(command(&launch, 1), ["tool", "--in=c", "", "{1}"]);
    assert_eq!(launch.given(0).part, Some("a b\t5M".into()));
    assert_eq!((launch.declared(0), launch.declared(1)), (Some(5 << 20), None));
}

#[test]
fn the_line_is_appended_where_nothing_says_where_it_goes() {
    let dir = Dir::new("appended");
    let parts = dir.file("parts", "one\ntwo\n");
    let last = |args: &[&str]| {
        let (launch, _) = launch(&[&["--parts", &parts], args].concat()).unwrap();
        command(&launch, 1).pop().unwrap()
    };
    assert_eq!(last(&["tool", "-x"]), "two");
    assert_eq!(last(&["tool", "{print $1}"]), "two");
    assert_eq!(last(&["--env", "A={rank}", "tool"]), "two");
    let named = dir.0.join("{}").to_str().unwrap().to_owned();
    assert_eq!(last(&["--output-files", &named, "tool"]), "two");
    assert_eq!(last(&["tool", "{#}"]), "2", "as GNU parallel");
    assert_eq!(last(&["{}", "-x"]), "-x");
    assert_eq!(last(&["--env", "A={/.}", "tool"]), "tool");
    assert_eq!(last(&["--literal", "tool", "{}"]), "{}");
    assert_eq!(last(&["--literal", "tool"]), "tool");
}

#[test]
fn several_programs_have_ranks_in_their_order() {
    let line =
        ["-np", "2", "--genv", "G={rank}", "a", "{rank}/{size}", ":", "-np", "3", "-x", "B={rank}", "b"];
    let (launch, options) = launch(&line).unwrap();
    assert_eq!((options.np, launch.np()), (5, 5));
    assert_eq!(
        (command(&launch, 1), command(&launch, 2)),
        (vec!["a".into(), "1/5".into()], vec!["b".into()])
    );
    let numbers: Vec<_> = (0..5).map(|rank| launch.given(rank).number).collect();
    assert_eq!(numbers, [0, 0, 1, 1, 1]);
    assert_eq!(launch.given(1).env, [("G".into(), "1".into())]);
    assert_eq!(launch.given(4).env, [("G".into(), "4".into()), ("B".into(), "4".into())]);
    assert!(launch.programs_differ() && !launch.changes_directory(4));
    refused(
        &["a", ":", "-wdir", "/no/such/{rank}", "-np", "2", "b"],
        120,
        &["--chdir", "rank 1", "/no/such/1"],
    );
}

#[test]
fn paths_become_ranks_with_their_sizes() {
    let dir = Dir::new("glob");
    for (name, size) in [("b.bin", 7), ("a.bin", 5), ("c.txt", 1)] {
        dir.file(name, &"x".repeat(size));
    }
    std::fs::create_dir(dir.0.join("d.bin")).unwrap();
    let all = dir.0.join("*.bin").to_str().unwrap().to_owned();
    let one = dir.0.join("a.*").to_str().unwrap().to_owned();
    let (launch, _) = launch(&["--glob", &all, "--glob", &one, "tool", "{/}", "{/.}", "{1//}"]).unwrap();
    let directory = dir.0.to_str().unwrap();
    assert_eq!(launch.np(), 3, "each once");
    assert_eq!(command(&launch, 0), ["tool", "a.bin", "a", directory]);
    let sizes: Vec<_> = (0..3).map(|rank| launch.declared(rank)).collect();
    assert_eq!(sizes, [Some(5), Some(7), None]);
    let none = dir.0.join("*.none").to_str().unwrap().to_owned();
    refused(&["--glob", &none, "tool"], 120, &["nothing matches", "*.none"]);
    refused(&["--glob", "a***", "tool"], 118, &["--glob a***"]);
    refused(&["--timeout", "0.000000001", "--glob", &all, "tool"], 124, &["--timeout"]);
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_starts() {
    let dir = Dir::new("refused");
    let parts = dir.file("parts", "one\t1\ntwo\n");
    let file = dir.file("file", "");
    refused(&["--parts", "/no/such/parts", "tool"], 120, &["/no/such/parts", "--parts"]);
    refused(&["-np", "3", "--parts", &parts, "tool"], 118, &["-np 3", "has 2 parts"]);
    assert!(launch(&["-np", "2", "--parts", &parts, "tool"]).is_ok());
    refused(&["--parts", &parts, "tool", "{2}"], 120, &["line 2", "1 columns"]);
    refused(
        &["--parts", &parts, "--size-column", "bytes", "tool"],
        118,
        &["--size-column bytes", "--header"],
    );
    refused(&["--parts", &parts, "--size-column", "1", "tool"], 120, &["line 1", "'one' is not a size"]);
    refused(&["--chdir", "/no/such/{rank}", "tool"], 120, &["--chdir", "rank 0", "/no/such/0"]);
    refused(&["--chdir", &file, "tool"], 120, &["no directory"]);
    refused(&["--stdin", "/no/such", "tool"], 120, &["--stdin", "rank 0", "/no/such"]);
    refused(&["--output-files", "/etc/passwd/{rank}", "tool"], 120, &["/etc/passwd is no directory"]);
    refused(&["--error-files", "/", "tool"], 120, &["it is a directory"]);
    let both = dir.0.join("x").to_str().unwrap().to_owned();
    refused(&["-np", "2", "--output-files", &both, "tool"], 118, &["ranks 0 and 1 ", &both, "{rank}"]);
    let each = dir.0.join("{rank}").to_str().unwrap().to_owned();
    let other = format!("{}//./1{{rank}}", dir.0.display());
    refused(
        &["-np", "12", "--output-files", &each, "--error-files", &other, "tool"],
        118,
        &["ranks 0 and 10", dir.0.join("10").to_str().unwrap()],
    );
    refused(&["--stdin", &file, "--output-files", &file, "tool"], 118, &["rank 0 would write", "reads"]);
    let same = ["-np", "2", "--output-files", &each, "--error-files", &each, "tool"];
    assert!(launch(&same).is_ok(), "one file for both streams");
    assert!(launch(&["-np", "9", "--stdin", "/dev/null", "--output-files", "/dev/null", "tool"]).is_ok());
}

/// `latest` is a link to the directory of one of them.
#[test]
fn two_ranks_do_not_write_one_file_through_directories_that_are_links() {
    let dir = Dir::new("dir-links");
    std::fs::create_dir(dir.0.join("run3")).unwrap();
    std::os::unix::fs::symlink("run3", dir.0.join("latest")).unwrap();
    let list = |name: &str, lines: &[&str]| {
        let lines: String = lines.iter().map(|line| format!("{}/{line}\n", dir.0.display())).collect();
        dir.file(name, &lines)
    };
    let twice = list("twice", &["run3/x", "run4/x", "latest/x"]);
    refused(
        &["--parts", &twice, "--output-files", "{}.out", "tool"],
        118,
        &["ranks 0 and 2 ", "latest/x.out"],
    );
    let made = list("made", &["latest/new/x", "run3/y", "run3/new/x"]);
    refused(&["--parts", &made, "--output-files", "{}.out", "tool"], 118, &["ranks 0 and 2 "]);
    let read = list("read", &["latest/x"]);
    dir.file("run3/x", "");
    let out = format!("{}/run3/x", dir.0.display());
    refused(
        &["--parts", &read, "--stdin", "{}", "--output-files", &out, "tool"],
        118,
        &["rank 0 would write"],
    );
    let others = list("others", &["latest/x", "run3/y", "run4/x", "new/x"]);
    assert!(launch(&["--parts", &others, "--output-files", "{}.out", "tool"]).is_ok());
}

/// A program that is named by a path is found from where bdrun is, not from where the shell has gone.
#[test]
fn a_dry_run_that_changes_the_directory_names_the_program_from_the_root() {
    let dir = Dir::new("dry-chdir");
    let at = dir.0.to_str().unwrap();
    let shown = |command: &[&str]| {
        let (launch, _) = launch(command).unwrap();
        let mut shown = Vec::new();
        launch.show(&mut shown, [(0, None)]).unwrap();
        String::from_utf8(shown).unwrap()
    };
    let here = std::env::current_dir().unwrap();
    let tool = here.join("bin/tool");
    let expected = format!("cd {at} && {} x  # rank 0\n", tool.display());
    assert_eq!(shown(&["--chdir", at, "./bin/tool", "x"]), expected);
    assert_eq!(shown(&["--chdir", at, "tool", "x"]), format!("cd {at} && tool x  # rank 0\n"));
    assert_eq!(shown(&["./bin/tool", "x"]), "./bin/tool x  # rank 0\n");
}

/// `tool ::: "$A" "$B"`, one of which is empty: GNU parallel runs it, too.
#[test]
fn a_part_of_nothing_is_one_behind_three_colons() {
    let (launch, options) = launch(&["tool", "-x{}", ":::", "a", "", "b"]).unwrap();
    assert_eq!((options.np, command(&launch, 1)), (3, vec!["tool".into(), "-x".into()]));
    assert_eq!((launch.part(1), launch.name(1)), (Some(String::new()), None));
    refused(&["tool", ":::"], 120, &["nothing to run"]);
}

#[test]
fn a_dry_run_can_be_pasted_into_a_shell() {
    let dir = Dir::new("dry");
    let parts = dir.file("parts", "it's $HOME\t3M\nb\t\n");
    let at = dir.0.to_str().unwrap();
    let out = format!("{at}/{{rank}}.out");
    let args =
        ["--parts", &parts, "--size-column", "2", "--chdir", at, "--env", "A=x {2}", "--output-files", &out];
    let args = [&args[..], &["--error-files", &out, "printf", "<%s>", "{1}", "-"]].concat();
    let (launch, _) = launch(&args).unwrap();
    let mut shown = Vec::new();
    launch.show(&mut shown, (0..2).map(|rank| (rank, launch.declared(rank)))).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].ends_with("# rank 0, 3.0 MiB expected") && lines[1].ends_with("# rank 1"), "{shown}");
    let status = std::process::Command::new("sh").args(["-ec", &shown]).status().unwrap();
    assert!(status.success());
    assert_eq!(std::fs::read_to_string(dir.0.join("0.out")).unwrap(), "<it's $HOME><->");
    assert_eq!(std::fs::read_to_string(dir.0.join("1.out")).unwrap(), "<b><->");
}

#[test]
fn as_many_ranks_as_there_may_be_are_quick_to_ask() {
    let dir = Dir::new("many");
    let text: String = (0..crate::cli::MAX_RANKS).map(|rank| format!("p{rank}\t{rank}\n")).collect();
    let parts = dir.file("parts", &text);
    let to = dir.0.join("{1}").to_str().unwrap().to_owned();
    let (launch, _) =
        launch(&["--parts", &parts, "--output-files", &to, "--size-column", "2", "tool", "{2}"]).unwrap();
    assert_eq!(launch.np(), 65_536);
    assert_eq!(command(&launch, 65_535), ["tool", "65535"]);
    assert_eq!(launch.declared(65_535), Some(65_535));
}
