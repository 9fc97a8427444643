//! The crate `bdrun-worker` as a stranger uses it: by `cargo new`, a dependency by path, and what the
//! documents say.
//!
//! What it depends on is built once, in a folder of `target` that stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Directory, LIMIT, bdrun_args, limited};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn target() -> PathBuf {
    // target/debug/bdrun
    let built = Path::new(env!("CARGO_BIN_EXE_bdrun")).ancestors().nth(2).expect("the target folder");
    built.join("stranger")
}

/// Runs cargo, without a network; what it said on standard error.
fn cargo(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).arg("--offline").current_dir(folder).env("CARGO_TARGET_DIR", target());
    // Nobody debugs it, and it is made once: half the time and a quarter of the space.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    let output = limited(&mut command, LIMIT);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "cargo {args:?}: {said}");
    said
}

/// The program of the page about ranks in Rust.
fn program_of_the_page() -> String {
    let text = fs::read_to_string(root().join("docs/rust-rank.md")).expect("the page");
    let (_, program) = text.split_once("```rust\n").expect("a program");
    program.split_once("```").expect("its end").0.to_owned()
}

/// What it prints: the sum over four ranks, or one, after each phase.
fn sums(words: u64, ranks: u64) -> String {
    let mut table: Vec<u64> = (0..words).collect();
    let phase = |phase: u64| {
        table.iter_mut().for_each(|x| *x = x.rotate_left(7) ^ phase);
        let sum = table.iter().fold(0u64, |a, b| a.wrapping_add(*b));
        format!("{:x}\n", sum.wrapping_mul(ranks))
    };
    (0..5).map(phase).collect()
}

/// An example in the documentation of a call: where it is, and its lines.
struct Example {
    place: String,
    body: String,
}

/// All of a file, but whole programs.
fn examples(path: &Path) -> Vec<Example> {
    let text = fs::read_to_string(path).expect("a source file");
    let (mut found, mut open): (Vec<Example>, Option<Example>) = (vec![], None);
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("///") else { continue };
        let comment = comment.strip_prefix(' ').unwrap_or(comment);
        match (&mut open, comment) {
            (None, "```") => {
                let name = path.file_name().expect("a name").to_string_lossy();
                open = Some(Example { place: format!("{name}:{number}"), body: String::new() });
            }
            (Some(_), "```") => found.extend(open.take()),
            (Some(example), comment) => {
                example.body += comment.strip_prefix("# ").unwrap_or(comment);
                example.body.push('\n');
            }
            (None, _) => {}
        }
    }
    found
}

fn sources() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("worker/src")).expect("the sources").flatten();
    let mut paths: Vec<PathBuf> = files.map(|file| file.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    paths
}

/// A program that runs them all, one after the other, in each rank.
fn all_examples() -> (usize, String) {
    let all: Vec<Example> = sources().iter().flat_map(|path| examples(path)).collect();
    let (mut functions, mut list) = (String::new(), String::new());
    for (number, Example { place, body }) in all.iter().enumerate() {
        // A process joins its job once.
        let body = body.replace("bdrun_worker::init()?", "world");
        functions +=
            &format!("fn example_{number}(world: &bdrun_worker::World) -> bdrun_worker::Result<()> {{\n");
        functions += &format!("{body}}}\n");
        list += &format!("        (\"{place}\", example_{number}),\n");
    }
    let program = format!(
        "#![allow(unused)]\n\
         type Example = fn(&bdrun_worker::World) -> bdrun_worker::Result<()>;\n\
         #[global_allocator]\n\
         static HEAP: bdrun_worker::SbHeap = bdrun_worker::SbHeap;\n\
         {functions}\
         fn main() -> bdrun_worker::Result<()> {{\n\
             let world = bdrun_worker::init()?;\n\
             let examples: &[(&str, Example)] = &[\n{list}];\n\
             for (place, example) in examples {{\n\
                 example(&world).inspect_err(|_| eprintln!(\"{{place}}\"))?;\n\
                 world.communicator().barrier()?;\n\
             }}\n\
             if world.communicator().rank() == 0 {{ println!(\"{{}} examples\", examples.len()); }}\n\
             Ok(())\n\
         }}\n"
    );
    (all.len(), program)
}

/// What fails on one rank.
const WRONG: &str = "
fn main() -> Result<(), bdrun_worker::Error> {
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    if comm.rank() == 3 {
        comm.send(7, 1, &[0u8])?;
    }
    comm.barrier()
}
";

#[test]
fn four_lines_make_a_rank() {
    const WORDS: u64 = 1 << 16;
    let home = Directory::new("stranger");
    cargo(home.path(), &["new", "--vcs", "none", "phases"]);
    let crate_ = home.path().join("phases");
    let worker = root().join("worker").display().to_string();
    cargo(&crate_, &["add", "bdrun-worker", "--path", &worker]);
    // The versions that are here.
    fs::copy(root().join("Cargo.lock"), crate_.join("Cargo.lock")).expect("the lock file");
    let program = program_of_the_page();
    // As large as it is there it takes 128 MiB for each rank.
    let smaller = program.replace("1 << 24", &WORDS.to_string());
    assert_ne!(smaller, program);
    fs::create_dir(crate_.join("src/bin")).expect("a folder");
    fs::write(crate_.join("src/main.rs"), smaller).expect("the program");
    fs::write(crate_.join("src/bin/wrong.rs"), WRONG).expect("a program that fails");
    let (count, examples) = all_examples();
    assert!(count > 45, "{count} examples were found");
    fs::write(crate_.join("src/bin/shown.rs"), examples).expect("the examples");
    cargo(&crate_, &["build"]);

    let built = target().join("debug");
    let job = |program: &str| {
        bdrun_args([std::ffi::OsStr::new("-np"), "4".as_ref(), built.join(program).as_os_str()])
    };
    assert_eq!(job("phases").succeed().stdout, sums(WORDS, 4));
    let alone = limited(&mut Command::new(built.join("phases")), LIMIT);
    assert_eq!(String::from_utf8_lossy(&alone.stdout), sums(WORDS, 1));
    // Of the documentation, which its own tests run with one rank.
    let outcome = job("shown").succeed();
    assert!(outcome.stdout.ends_with(&format!("{count} examples\n")), "{outcome:?}");
    let said = "Error: rank 3: send: there is no rank 7 in this communicator of 4 (the last is 3)\n";
    job("wrong").run().failed_with(1, &[said]);
}

/// Each call that the author of a rank may use is shown.
#[test]
fn every_call_has_an_example() {
    // A back end is not for them.
    const OTHERS: [&str; 1] = ["new(backend"];
    let (mut calls, mut without) = (0, vec![]);
    for name in ["world.rs", "communicator.rs", "collective.rs", "alltoall.rs"] {
        let text = fs::read_to_string(root().join("worker/src").join(name)).expect("a source file");
        let mut has_example = false;
        for line in text.lines().map(str::trim_start) {
            if let Some(comment) = line.strip_prefix("///") {
                has_example |= comment.trim() == "```";
            } else if let Some(call) = line.strip_prefix("pub fn ") {
                calls += 1;
                if !has_example && !OTHERS.iter().any(|other| call.starts_with(other)) {
                    without.push(format!("{name}: {call}"));
                }
                has_example = false;
            } else if !line.starts_with("#[") {
                has_example = false;
            }
        }
    }
    assert!(calls > 40, "{calls}");
    assert!(without.is_empty(), "{without:#?}");
}

/// What a registry asks for is there, and the crates can be packaged.
#[test]
fn the_crates_of_strangers_can_be_packaged() {
    let crates = ["bdrun-ipc", "sbmalloc", "bdrun-worker"];
    let mut args = vec!["package", "--no-verify", "--allow-dirty"];
    crates.iter().for_each(|name| args.extend(["-p", name]));
    let said = cargo(root(), &args);
    assert_eq!(said.matches("Packaged").count(), crates.len(), "{said}");
    for (name, folder) in crates.iter().zip(["ipc", "sbmalloc", "worker"]) {
        let list = limited(
            Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args(["package", "--list", "--allow-dirty", "--offline", "-p", name])
                .current_dir(root()),
            LIMIT,
        );
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        for file in ["Cargo.toml", "README.md", "src/lib.rs"] {
            assert!(list.lines().any(|line| line == file), "{name}: {file}: {list}");
        }
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).expect("a manifest");
        for key in ["description", "license", "rust-version", "readme", "keywords", "categories"] {
            assert!(manifest.lines().any(|line| line.starts_with(key)), "{name}: {key}");
        }
        assert!(!manifest.contains("publish"), "{name} may be published");
    }
}
