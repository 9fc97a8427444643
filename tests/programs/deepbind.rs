//! Programs that load modules with `RTLD_DEEPBIND`, or ask the C library itself for its functions, with
//! `libsbmalloc.so` in front of them: such lookups pass by whatever is preloaded, and must find its `malloc`
//! and `mmap` nevertheless.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::chaos::{Chaos, PYTHON, args, compiles, plainly, python_with, source, text};
use crate::common::{Directory, LIMIT, limited};
use crate::preload::library;

fn same_under_chaos(command: impl Fn(usize) -> Vec<String>) {
    library();
    Chaos { np: 2, every: 10, least: 5, work: 1, preload: "always", nobody: false, limit: LIMIT }
        .same_output(command);
}

/// The standard output of a program with ours, and what else, preloaded, without bdrun.
fn preloaded(behind: Option<&Path>, program: &[String], environment: Option<(&str, &str)>) -> String {
    let mut preload = library().into_os_string();
    if let Some(behind) = behind {
        preload.push(":");
        preload.push(behind);
    }
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).env("LD_PRELOAD", preload).envs(environment);
    let output = limited(&mut command, LIMIT);
    assert!(output.status.success(), "{program:?}, {}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn php_with_its_modules() {
    if !compiles(Command::new("php").args(["-r", "echo 1;"])) {
        return;
    }
    let script = source("preload/modules.php");
    let with = |rounds: usize| args([&"/usr/bin/env", &"php", &script.display(), &rounds]);
    {
        assert_eq!(preloaded(None, &with(30), None), text(&plainly(&with(30)).stdout));
    }
    same_under_chaos(|work| with(60 * work));
}

/// The host, which finds its plug-ins by paths that depend on who asks for them, and a library to be
/// preloaded too.
struct Host {
    dir: Directory,
    program: PathBuf,
    behind: PathBuf,
}

impl Host {
    /// `None`, said, without a compiler.
    fn new() -> Option<Self> {
        let dir = Directory::new("deepbind");
        let at = |name: &str| dir.path().join(name);
        for folder in ["plugins/parts", "early/others"] {
            std::fs::create_dir_all(at(folder)).expect("make a directory");
        }
        let library = |to: &str, from: &str, more: &[String]| {
            let mut command = Command::new(if from.ends_with(".cc") { "g++" } else { "gcc" });
            command.args(["-O1", "-shared", "-fPIC", "-pthread", "-Wl,--enable-new-dtags"]);
            command.arg(source(&format!("preload/{from}"))).arg("-o").arg(at(to)).args(more);
            compiles(&mut command)
        };
        let run_path = |folder: &str| format!("-Wl,-rpath,$ORIGIN/{folder}");
        let parts = |folder: &str| [at("plugins/parts/libpart.so").display().to_string(), run_path(folder)];
        let there = library("plugins/parts/libpart.so", "deep_part.c", &["-Wl,-soname,libpart.so".into()])
            && library("plugins/first.so", "deep_plugin.c", &parts("parts"))
            && library("early/others/second.so", "deep_plugin.c", &parts("../../plugins/parts"))
            && library(
                "early/libearly.so",
                "deep_early.c",
                &["-Wl,-soname,libearly.so".into(), run_path("others")],
            )
            && library("libbehind.so", "deep_behind.c", &[]);
        if !there {
            return None;
        }
        // The host does without where there is no compiler of C++.
        library("plugins/cxx.so", "deep_plugin.cc", &["-std=c++17".into()]);
        let program = at("host");
        let mut command = Command::new("gcc");
        command.args(["-O1", "-rdynamic", "-pthread", "-Wl,--enable-new-dtags"]);
        command.arg(source("preload/deep_host.c")).arg("-o").arg(&program).arg(at("early/libearly.so"));
        command.args([run_path("plugins"), run_path("early")]);
        let behind = at("libbehind.so");
        compiles(&mut command).then_some(Self { dir, program, behind })
    }

    fn with(&self, rounds: usize) -> Vec<String> {
        assert!(self.program.starts_with(self.dir.path()));
        args([&self.program.display(), &rounds])
    }
}

/// Blocks and mappings go to and fro between the host and its plug-ins; equal names stay what they were.
#[test]
fn plug_ins() {
    let Some(host) = Host::new() else { return };
    {
        let plain = text(&plainly(&host.with(20)).stdout);
        assert!(plain.starts_with("asked: plug-in\n") && plain.ends_with("\nok\n"), "{plain}");
        for when in [None, Some(("LD_BIND_NOW", "1"))] {
            assert_eq!(preloaded(None, &host.with(20), when), plain);
        }
        // Ours, that one, glibc's: and not round in a circle.
        assert_eq!(preloaded(Some(&host.behind), &host.with(20), None), plain);
    }
    same_under_chaos(|work| host.with(200 * work));
}

/// What `strdup` has returned, freed by the function that was asked of glibc's handle.
#[test]
fn functions_of_the_handle_of_glibc() {
    if !python_with("ctypes") {
        return;
    }
    let lines = "import ctypes, sys\n\
                 c = ctypes.CDLL('libc.so.6')\n\
                 c.strdup.restype = c.realloc.restype = ctypes.c_void_p\n\
                 c.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]\n\
                 c.free.argtypes = [ctypes.c_void_p]\n\
                 held = []\n\
                 for i in range(int(sys.argv[1])):\n\
                 \x20   at = c.realloc(c.strdup(b'%d' % i * 50), 1000 + i % 5000)\n\
                 \x20   assert ctypes.string_at(at) == b'%d' % i * 50\n\
                 \x20   held.append(at)\n\
                 \x20   if i % 3: c.free(held.pop(i * 7919 % len(held)))\n\
                 print(len(held))\n";
    same_under_chaos(|work| args([&PYTHON, &"-c", &lines, &(30_000 * work)]));
}
