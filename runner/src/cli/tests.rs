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
    help::definition().debug_assert();
}

#[test]
fn ranks_in_every_spelling() {
    for option in ["-np 4", "-np4", "-np=4", "-n 4", "-n4", "-n=4", "--np 4", "--np=4"] {
        for (rest, args) in [("prog", &[][..]), ("prog arg", &["arg"]), ("-- prog -l", &["-l"])] {
            let line = format!("{option} {rest}");
            let options = parse(&line).expect(&line);
            assert_eq!((options.np, options.program()), (4, OsStr::new("prog")), "{line}");
            assert_eq!(options.args(), args, "{line}");
        }
    }
    let options = parse("-j=2 -x=A=1 --parts list prog a").unwrap();
    assert_eq!(
        (options.jobs, options.program(), options.args()),
        (Some(2), "prog".as_ref(), &["a".into()][..])
    );
    assert_eq!(options.env, [EnvSetting { name: "A".into(), value: Some("1".into()) }]);
    assert!(error("-np4=5 prog").contains("4=5"));
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

/// What is behind an option's `=` need not be text, and does not make the option a program.
#[test]
fn values_that_are_no_text() {
    let parse = |words: &[&[u8]]| {
        let words = words.iter().map(|word| OsStr::from_bytes(word));
        Options::from_args(std::iter::once(OsStr::new("bdrun")).chain(words))
    };
    let out = OsStr::from_bytes(b"out/\xff").to_owned();
    for words in [
        &[&b"--output-files=out/\xff"[..], b"--", b"tool"][..],
        &[b"--output-files", b"out/\xff", b"tool"],
        &[b"-np", b"1", b"--output-files=out/\xff", b"tool"],
    ] {
        let options = parse(words).unwrap();
        assert_eq!((options.program(), &options.launch.output_files), ("tool".as_ref(), &Some(out.clone())));
    }
    let options = parse(&[b"-x=A=\xff", b"-wdir=d\xff", b"a", b":", b"--env=B=\xff", b"b"]).unwrap();
    let value = Some(OsStr::from_bytes(b"\xff").to_owned());
    assert_eq!(options.env, [EnvSetting { name: "A".into(), value: value.clone() }]);
    assert_eq!(options.launch.chdir.as_deref(), Some(OsStr::from_bytes(b"d\xff")));
    assert_eq!(options.more[0].env, [EnvSetting { name: "B".into(), value }]);
    assert_eq!(parse(&[b"--out\xff=x", b"tool"]).unwrap_err().code(), 118, "an option, and none of ours");
    assert_eq!(parse(&[b"tool\xff"]).unwrap().program(), OsStr::from_bytes(b"tool\xff"));
}

#[test]
fn mpiexec_s_options_are_ours() {
    let setting = |name: &str, value: &str| EnvSetting { name: name.into(), value: Some(value.into()) };
    let options = parse("-n 2 -x A=1 -env B 2 -genv C=3 -wdir /d -l prog -env X").unwrap();
    assert_eq!((options.np, options.tag_output), (2, true));
    assert_eq!(options.env, [setting("A", "1"), setting("B", "2")]);
    assert_eq!(options.sections()[0].env, [setting("C", "3"), setting("A", "1"), setting("B", "2")]);
    assert_eq!(options.launch.chdir, Some("/d".into()));
    assert_eq!(options.args(), ["-env", "X"]);
    for line in ["--wdir /d p", "-wd /d p", "--wdir=/d p", "--chdir /d p"] {
        assert_eq!(parse(line).expect(line).launch.chdir, Some("/d".into()), "{line}");
    }
    let listed = parse("-envlist A,B -genvall p").unwrap().env;
    assert_eq!(
        listed.iter().map(|s| (&*s.name, &s.value)).collect::<Vec<_>>(),
        [(OsStr::new("A"), &None), (OsStr::new("B"), &None)]
    );
    for line in [
        "--oversubscribe --allow-run-as-root p",
        "--bind-to none p",
        "-bind-to none p",
        "--map-by slot:OVERSUBSCRIBE --rank-by core p",
        "--mca btl self,vader -mca pml ob1 p",
        "-np 2 -ppn 2 -host localhost:2,127.0.0.1 p",
        "-timeout 5 p",
    ] {
        let options = parse(line).expect(line);
        assert_eq!((options.program(), options.args().len()), (OsStr::new("p"), 0), "{line}");
    }
}

#[test]
fn what_of_mpiexec_cannot_be_had_is_said() {
    for (line, word) in [
        ("-hosts a,b p", "'-hosts a,b': this bdrun runs ranks on this machine only"),
        ("--host a:2 p", "this machine only"),
        ("-H a p", "this machine only"),
        ("-f hosts p", "this machine only"),
        ("--hostfile hosts p", "this machine only"),
        ("-machinefile hosts p", "this machine only"),
        ("--bind-to core p", "--processors"),
        ("--map-by ppr:2:node p", "--resident"),
        ("--map-by core:pe=2 p", "--processors"),
        ("-np 4 -ppn 2 p", "'-ppn 2'"),
        ("-ppn 2 p", "-np says"),
        ("-npernode x -np 1 p", "no number"),
        ("-genvnone p", "env -i"),
        ("-outfile-pattern o-%r p", "--output-files"),
        ("-env A", "needs a value"),
        ("-configfile x", "command line"),
        ("-foo p", "-f"),
    ] {
        let said = error(line);
        assert!(said.contains(word), "{line}: {said}");
    }
}

#[test]
fn parts_behind_three_colons() {
    let options = parse("gzip -k {} ::: a b a").unwrap();
    assert_eq!((options.program(), options.args()), ("gzip".as_ref(), &["-k".into(), "{}".into()][..]));
    assert_eq!(options.list.unwrap(), ["a", "b", "a"]);
    assert_eq!(parse("--literal echo ::: a").unwrap().args(), [":::", "a"]);
    assert!(error("--parts l echo ::: a").contains("one of them"));
    for line in ["a : -np 2 b ::: x y", "a ::: x : -np 2 b", "a : -np 2 b : -n 1 c ::: x"] {
        assert!(error(line).contains("for one program"), "{line}");
    }
    assert_eq!(parse("--literal a : -np 2 b ::: x").unwrap().more[0].command, ["b", ":::", "x"]);
    assert!(error("echo ::: a ::: b").contains("one ':::'"));
    assert!(error("-- ::: a").contains("no PROGRAM"));
}

/// A shell reads what it was given, also where that is no text.
#[test]
fn the_line_as_a_shell_reads_it() {
    let words = [&b"bdrun"[..], b"--output-files=o\xff1\xc3\xa9'\\\n$x", b"it's", b"\xe2\x82", b""];
    let words: Vec<OsString> = words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
    let line = for_the_shell(&words);
    assert_eq!(line, r#"bdrun $'--output-files=o\3771é\'\\\012$x' "it's" $'\342\202' ''"#);
    let options = Options::from_args(words[..2].iter().cloned().chain(["tool".into()])).unwrap();
    assert!(options.line_for_the_shell().ends_with(" tool"));
}

#[test]
fn several_programs_with_colons_between() {
    let line = "-np 2 --tag-output --genv G=1 --env A=1 a x : -np 3 -env B 2 --chdir /d b y : -x C=3 c : -n";
    let options = parse(line.strip_suffix(" : -n").unwrap()).unwrap();
    let sections = options.sections();
    let commands: Vec<Vec<&str>> =
        sections.iter().map(|s| s.command.iter().map(|w| w.to_str().unwrap()).collect()).collect();
    assert_eq!(commands, [vec!["a", "x"], vec!["b", "y"], vec!["c"]]);
    assert_eq!((options.np, sections[0].np, sections[1].np, sections[2].np), (6, Some(2), Some(3), None));
    let names = |n: usize| sections[n].env.iter().map(|s| s.name.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!((names(0), names(1), names(2)), (vec!["G", "A"], vec!["G", "B"], vec!["G", "C"]));
    assert_eq!((sections[0].chdir.clone(), sections[1].chdir.clone()), (None, Some("/d".into())));
    assert!(error(line).contains("-n"), "no program behind the last");

    // What no option follows, and what is behind --, is the program's.
    assert_eq!(parse("expr a : b").unwrap().args(), ["a", ":", "b"]);
    assert_eq!(parse("expr a : -z").unwrap().args(), ["a", ":", "-z"]);
    assert_eq!(parse("-- expr a : -np 2").unwrap().args(), ["a", ":", "-np", "2"]);
    // Nor is it one as the value of an option.
    for line in [
        "--parts l --colsep : --tag-output -np 2 -- a",
        "--parts l --colsep : -np 2 a",
        "--map-by core --parts l --colsep : -np 2 a",
        "-mca a b -genv A B --genv C=D -l --parts l --colsep : -np 2 a",
    ] {
        let options = parse(line).unwrap();
        assert_eq!((options.launch.colsep.as_str(), options.np), (":", 2), "{line}");
    }
    let options = parse("-wdir : -np 2 -- a").unwrap();
    assert_eq!((options.np, options.launch.chdir.clone()), (2, Some(":".into())));
    let options = parse("-np 2 a : --chdir : -np 3 b").unwrap();
    assert_eq!((options.np, options.more[0].chdir.clone()), (5, Some(":".into())));
    for (line, word) in [
        ("a : --memory 5M -np 1 b", "--memory is for the whole job"),
        ("a : -np 1 --memory 5M b", "--memory is for the whole job"),
        ("a : -np 1 --output-files x b", "--output-files"),
        ("--parts l a : -np 1 b", "--parts"),
        ("-np 65536 a : -np 1 b", "65537 ranks in all"),
        ("a : -np 1", "PROGRAM"),
        ("a : -hosts x b", "this machine only"),
    ] {
        assert!(error(line).contains(word), "{line}: {}", error(line));
    }
}

#[test]
fn all_options() {
    let line = "-np 256 --resident 16 --memory 700M --rank-memory 8MiB --scratch /s --scratch /t \
                --enforce --output json --stats /t/s.json --tag-output --timeout 1h30m --env A=1=2 --env B \
                --env C= --processors 3 --tracker uffd prog";
    let options = parse(line).unwrap();
    assert_eq!(options.resident_limit(), 16);
    assert_eq!(options.memory, Some(Memory::Bytes(700 << 20)));
    assert_eq!(parse("--memory auto --budget-fraction 0.25 prog").unwrap().budget_fraction, Some(0.25));
    assert_eq!(options.rank_memory, Some(8 << 20));
    assert_eq!(options.scratch, ["/s", "/t"].map(PathBuf::from));
    assert_eq!(options.output, OutputKind::Json);
    assert_eq!(options.stats, Some("/t/s.json".into()));
    assert!(options.enforce && options.tag_output);
    assert_eq!(options.timeout, Some(Duration::from_secs(5400)));
    assert_eq!(options.processor_count(), 3);
    assert_eq!(options.tracker, Tracker::Uffd);
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
                --error-files e --keep-order --keep-going --retry 2 --retry-memory 3 --rank-timeout 90 --delay 2 --rerun --literal --dry-run prog {}";
    let given = parse(line).unwrap().launch;
    let expected = LaunchOptions {
        parts: Some("list".into()),
        glob: Vec::new(),
        pipe: false,
        block: 1 << 20,
        recend: "\n".into(),
        colsep: ",".into(),
        null: false,
        header: true,
        size_column: Some(Column::Name("bytes".into())),
        literal: true,
        chdir: Some("d{rank}".into()),
        stdin: Some("{1}".into()),
        output_files: Some("o/{rank}".into()),
        error_files: Some("e".into()),
        keep_order: true,
        rerun: true,
        delay: Some(Duration::from_secs(2)),
        keep_going: true,
        halt: None,
        retry: 2,
        retry_memory: 3,
        rank_timeout: Some(Duration::from_secs(90)),
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
    for memory in ["700M", "50%"] {
        let said = error(&format!("--memory {memory} --budget-fraction 0.5 prog"));
        assert!(said.contains("--budget-fraction") && said.contains("one of them"), "{said}");
    }
    assert!(error("--memory lots prog").contains("1.5GiB"));
    assert!(error("--timeout soon prog").contains("1h30m"));
    assert!(error("--env =1 prog").contains("needs a name"));
    assert!(error("--no-such-flag 3 prog").contains("--no-such-flag"));
    assert!(error("--retry x --output-files o p").contains("it must be a whole number, 0 or more"));
    assert!(error("--retry -1 --output-files o p").contains("it must be a whole number, 0 or more"));
    assert!(error("--retry-memory 5000000000 --output-files o p").contains("more than 4294967295"));
    assert_eq!(parse("--halt -1 p").unwrap().launch.halt, "soon,success=1".parse().ok());
    assert!(error("-j 4 --resident 2 p").contains("give one of the two"));
    assert_eq!(parse("-j 2 --resident 2 p").unwrap().jobs, Some(2));
    assert!(error("-memory 5G p").contains("'-memory' has two dashes here: --memory"));
    for line in ["::: a", "-memory 5G p", "a : --memory 5M -np 1 b"] {
        assert!(!error(line).contains("\n\n\n"), "{line}: {}", error(line));
    }
    assert!(error("-np 4").contains("PROGRAM"));
    assert!(error("-np").contains("--np"));
    assert!(error("").contains("PROGRAM"));
}

/// The nearest of our options, and nothing about passing it on; what other launchers have, by its name here.
#[test]
fn unknown_options_are_told_the_nearest() {
    for (line, tip) in [
        ("--memroy 5G p", "'--memory'"),
        ("--keep-ordr p", "'--keep-order'"),
        ("--rank_memory 5G p", "'--rank-memory'"),
        ("--retries 3 p", "'--retry'"),
        ("-np 2 --residents 3 p --memroy 3", "'--resident'"),
        ("-k p", "--keep-order"),
        ("-P 3 p", "-j N"),
        ("--arg-file=x p", "--parts FILE"),
        ("--eta p", "live line"),
    ] {
        let said = error(line);
        assert!(said.contains("tip: ") && said.contains(tip), "{line}: {said}");
        assert!(!said.contains("as a value"), "{line}: {said}");
    }
    for line in ["--xyzzy p", "-y p"] {
        assert!(!error(line).contains("tip: "), "{line}: {}", error(line));
    }
    // Behind the program it is the program's, whatever it looks like.
    assert_eq!(parse("p --memroy 5G").unwrap().args(), ["--memroy", "5G"]);
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
