//! Command lines, good and bad.

use super::parse::*;
use super::*;

fn parse(line: &str) -> Result<Options, CliError> {
    Options::from_args(std::iter::once("bdrun").chain(line.split_whitespace()))
}

fn error(line: &str) -> String {
    let error = parse(line).expect_err(line);
    assert_eq!(error.code(), 118, "{line}");
    error.to_string()
}

#[test]
fn definition_is_consistent() {
    Options::command().debug_assert();
}

#[test]
fn ranks_in_every_spelling() {
    for line in
        ["-np 4 prog", "-np4 prog", "-np=4 prog", "-n 4 prog", "-n4 prog", "--np 4 prog", "--np=4 prog"]
    {
        let options = parse(line).expect(line);
        assert_eq!(options.np, 4, "{line}");
        assert_eq!(options.program(), "prog", "{line}");
        assert!(options.args().is_empty(), "{line}");
    }
    assert_eq!(parse("prog").unwrap().np, 1);
}

#[test]
fn everything_behind_the_program_is_its_own() {
    let options = parse("-np 2 --enforce prog -np 9 --resident x --help -- -n").unwrap();
    assert_eq!(options.np, 2);
    assert!(options.enforce);
    assert_eq!(options.program(), "prog");
    assert_eq!(options.args(), ["-np", "9", "--resident", "x", "--help", "--", "-n"]);

    let options = parse("-np 2 -- -odd --np 3").unwrap();
    assert_eq!((options.program(), options.np), (OsStr::new("-odd"), 2));
    assert_eq!(options.args(), ["--np", "3"]);
    assert_eq!(parse("--scratch /x -np 3 prog").unwrap().np, 3, "the value of an option is no program");
}

#[test]
fn all_options() {
    let line = "-np 256 --resident 16 --memory 700M --budget-fraction 0.25 --rank-memory 8MiB --scratch /s --scratch /t \
                --enforce --output json --stats /t/s.json --tag-output --timeout 1h30m --env A=1=2 --env B \
                --env C= --processors 3 --tracker uffd --frames pool prog";
    let options = parse(line).unwrap();
    assert_eq!(options.resident_limit(), 16);
    assert_eq!(options.memory, Some(Memory::Bytes(700 << 20)));
    assert_eq!(options.budget_fraction, Some(0.25));
    assert_eq!(options.rank_memory, Some(8 << 20));
    assert_eq!(options.scratch, ["/s", "/t"].map(PathBuf::from));
    assert_eq!(options.output, OutputKind::Json);
    assert_eq!(options.stats, Some("/t/s.json".into()));
    assert!(options.enforce && options.tag_output);
    assert_eq!(options.timeout, Some(Duration::from_secs(5400)));
    assert_eq!(options.processor_count(), 3);
    assert_eq!((options.tracker, options.frames), (Tracker::Uffd, Frames::Pool));
    assert_eq!(parse("prog").unwrap().tracker, Tracker::Hash);
    assert!(error("--tracker soft-dirty prog").contains("--tracker"));
    let setting =
        |name: &str, value: Option<&str>| EnvSetting { name: name.into(), value: value.map(Into::into) };
    assert_eq!(options.env, [setting("A", Some("1=2")), setting("B", None), setting("C", Some(""))]);
    assert_eq!(parse("-np 4 --resident 16 prog").unwrap().resident_limit(), 4);
    assert!(parse("prog").unwrap().processor_count() >= 1);
}

#[test]
fn what_ranks_are_given() {
    let plain = parse("prog").unwrap();
    assert_eq!((plain.given_np, plain.launch.colsep.as_str()), (None, "\t"));
    let line = "--parts list --header --colsep , --size-column bytes --chdir d{rank} --stdin {1} --output-files o/{rank} \
                --error-files e --keep-order --keep-going --rerun --literal --dry-run prog {}";
    let given = parse(line).unwrap().launch;
    let expected = LaunchOptions {
        parts: Some("list".into()),
        glob: Vec::new(),
        colsep: ",".into(),
        header: true,
        size_column: Some(Column::Name("bytes".into())),
        literal: true,
        chdir: Some("d{rank}".into()),
        stdin: Some("{1}".into()),
        output_files: Some("o/{rank}".into()),
        error_files: Some("e".into()),
        keep_order: true,
        rerun: true,
        keep_going: true,
        dry_run: true,
    };
    assert_eq!(given, expected);
    assert_eq!(parse("--parts - --size-column 3 p").unwrap().launch.size_column, Some(Column::Number(3)));
    assert_eq!(parse("--glob a --glob b* p").unwrap().launch.glob, ["a", "b*"]);
    assert_eq!(parse("--parts x --colsep \\t p").unwrap().launch.colsep, "\t");
    assert!(error("--parts x --glob y p").contains("--glob"));
    for line in ["--header p", "--colsep , p", "--size-column 1 p"] {
        assert!(error(line).contains("--parts"), "{line}");
    }
    assert!(error("--parts x --size-column 0 p").contains("counted from 1"));
    assert!(error("--parts x --colsep= p").contains("something between"));
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("4096", 4096),
        ("1k", 1 << 10),
        ("700M", 700 << 20),
        ("8G", 8 << 30),
        ("1.5GiB", 3 << 29),
        ("1.5 gb", 3 << 29),
        ("2T", 2 << 40),
        ("12B", 12),
        ("0.5K", 512),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in ["", "G", "x", "1.2.3M", "-1G", "5Q", "1ib", "0", "0.0001", "99999999999999999999", "9e9G"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
    assert!(parse_size("999999999T").unwrap_err().contains("16 EiB"));
    assert_eq!(parse_memory("50%"), Ok(Memory::Share(0.5)));
    assert_eq!(parse_memory("64G"), Ok(Memory::Bytes(64 << 30)));
    assert!(parse_memory("0%").is_err() && parse_memory("101%").is_err() && parse_memory("%").is_err());
}

#[test]
fn times() {
    for (text, milliseconds) in [
        ("90", 90_000),
        ("2.5", 2_500),
        ("1h30m", 5_400_000),
        ("1d", 86_400_000),
        ("500ms", 500),
        ("1m5s", 65_000),
    ] {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in ["", "0", "-3", "5x", "h", "1h30mm", "1e9"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn errors_name_the_flag() {
    assert!(error("-np 0 prog").contains("--np"));
    assert!(error("-np 65537 prog").contains("65536"));
    assert!(error("-np x prog").contains("--np"));
    assert!(error("--resident 0 prog").contains("--resident"));
    assert!(error("--budget-fraction 0 prog").contains("--budget-fraction"));
    assert!(error("--budget-fraction 1.01 prog").contains("fraction above 0"));
    assert!(error("--budget-fraction NaN prog").contains("--budget-fraction"));
    assert!(error("--memory lots prog").contains("1.5GiB"));
    assert!(error("--timeout soon prog").contains("1h30m"));
    assert!(error("--env =1 prog").contains("needs a name"));
    assert!(error("--no-such-flag 3 prog").contains("--no-such-flag"));
    assert!(error("-np 4").contains("PROGRAM"));
    assert!(error("-np").contains("--np"));
    assert!(error("").contains("PROGRAM"));
}

#[test]
fn help_lists_the_exit_codes_and_is_no_error() {
    let help = parse("--help").unwrap_err();
    assert_eq!(help.code(), 0);
    let text = help.to_string();
    assert!(text.contains("Usage: bdrun [OPTIONS] [--] PROGRAM [ARGS]..."), "{text}");
    assert!(text.contains("121    scratch is full"), "{text}");
    assert_eq!(parse("--version").unwrap_err().code(), 0);
}
