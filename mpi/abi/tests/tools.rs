//! `bdcc`, `bdcxx` and the pkg-config file find header and library wherever they lie together.

#[allow(dead_code, reason = "other tests use the rest")]
mod compiled;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use compiled::{Result, folder, library};

const MPI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Copies the tools and the header to `tools` and, beside it, `include`; where nobody has placed others.
fn copied(root: &Path, tools: &str) -> Result<PathBuf> {
    let tools = root.join(tools);
    let include = tools.with_file_name("include");
    std::fs::create_dir_all(&tools)?;
    std::fs::create_dir_all(&include)?;
    // By another process: what this one has open for writing children of other tests have open too, for a
    // moment, and so long nobody can execute it ("text file busy").
    let copied = Command::new("cp").arg(Path::new(MPI).join("tools/bdcc")).arg(&tools).status()?;
    assert!(copied.success());
    symlink("bdcc", tools.join("bdcxx"))?;
    for header in ["mpi.h", "bdrun.h"] {
        std::fs::copy(Path::new(MPI).join("include").join(header), include.join(header))?;
    }
    Ok(tools)
}

/// A prefix with all that would be installed there.
fn installed(name: &str) -> Result<PathBuf> {
    // Nothing may break at a space or a quote.
    let root = folder(name)?.join("a user's prefix");
    copied(&root, "bin")?;
    std::fs::create_dir_all(root.join("lib/bdrun/mpi"))?;
    symlink(library()?, root.join("lib/bdrun/mpi/libmpi_abi.so.1"))?;
    Ok(root)
}

/// The program that other runtimes are compared with.
fn phases() -> PathBuf {
    Path::new(MPI).join("../benches/tools/phases.c")
}

/// Runs a tool as a user would.
fn tool(tool: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(tool);
    for name in ["BDRUN_CC", "BDRUN_CXX", "BDRUN_MPI", "CARGO_TARGET_DIR", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    Ok(command.args(arguments).output()?)
}

fn is_there(need: &str, program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        bdrun_skipped::skipped(need, format!("there is no {program}"));
    }
    there
}

/// Compiles `phases.c` and runs it by itself, with nothing set.
fn computes(tools: &Path) -> Result<()> {
    let program = tools.join("phases");
    let compiled =
        tool(&tools.join("bdcc"), &["-O1", "-o", &program.to_string_lossy(), &phases().to_string_lossy()])?;
    assert!(compiled.status.success(), "{compiled:?}");
    let ran =
        Command::new(&program).args(["1", "2", "rw", "4", "1"]).env_remove("LD_LIBRARY_PATH").output()?;
    let said = String::from_utf8_lossy(&ran.stderr);
    // As under MPICH 5.0.2.
    assert!(ran.status.success() && said.trim_end().ends_with(" check=ac945b1e3f867200"), "{said}");
    Ok(())
}

#[test]
fn where_they_are_installed() -> Result<()> {
    if is_there("gcc", "cc") {
        computes(&installed("installed")?.join("bin"))?;
    }
    Ok(())
}

#[test]
fn where_cargo_builds() -> Result<()> {
    if !is_there("gcc", "cc") {
        return Ok(());
    }
    let root = folder("built")?;
    let tools = copied(&root, "mpi/tools")?;
    let refused = tool(&tools.join("bdcc"), &["-show"])?;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("cargo build -p bdrun-mpi-abi"), "{said}");
    std::fs::create_dir_all(root.join("target/debug"))?;
    std::fs::copy(library()?, root.join("target/debug/libmpi_abi.so"))?;
    for _ in 0..2 {
        computes(&tools)?;
    }
    // Beside bdrun, which has made the folder.
    std::fs::rename(root.join("target/debug"), root.join("mpi/beside"))?;
    for script in ["bdcc", "bdcxx"] {
        std::fs::rename(tools.join(script), root.join("mpi/beside").join(script))?;
    }
    computes(&root.join("mpi/beside"))
}

#[test]
fn a_command_is_shown_and_can_be_pasted() -> Result<()> {
    let root = installed("shown")?;
    let shown = tool(&root.join("bin/bdcc"), &["-show", "-DNAME=\"it's\"", "a b.c"])?;
    let line = String::from_utf8(shown.stdout)?;
    assert!(line.starts_with("cc -I '") && line.contains("libmpi_abi.so.1"), "{line}");
    let words = Command::new("sh").args(["-c", &format!("printf '%s\\n' {}", line.trim_end())]).output()?;
    let words = String::from_utf8(words.stdout)?;
    for word in ["-DNAME=\"it's\"", "a b.c", &root.join("include").to_string_lossy()] {
        assert!(words.lines().any(|line| line == word), "{word} in {words}");
    }
    let compiles = tool(&root.join("bin/bdcc"), &["-show", "-c", "x.c"])?;
    assert!(!String::from_utf8(compiles.stdout)?.contains("-L"), "nothing is linked");
    let other = Command::new(root.join("bin/bdcc"))
        .args(["-c", "x.c"])
        .env("BDRUN_CC", "echo some compiler")
        .env("BDRUN_MPI", root.join("lib/bdrun/mpi"))
        .output()?;
    assert!(String::from_utf8(other.stdout)?.starts_with("some compiler -I"), "BDRUN_CC");
    let other =
        Command::new(root.join("bin/bdcxx")).arg("x.cc").env("BDRUN_CXX", "echo c++ it is").output()?;
    assert!(String::from_utf8(other.stdout)?.starts_with("c++ it is -I"), "BDRUN_CXX");
    let lost = Command::new(root.join("bin/bdcc")).arg("x.c").env("BDRUN_MPI", "/nowhere").output()?;
    assert!(!lost.status.success() && String::from_utf8_lossy(&lost.stderr).contains("/nowhere"));
    Ok(())
}

/// A program in C++, which uses both headers.
const CXX: &str = "\
#include <bdrun.h>
#include <mpi.h>
#include <cstdio>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int size = 0;
    bdrun_local_size(MPI_COMM_WORLD, &size);
    std::printf(\"%d\\n\", size);
    return MPI_Finalize();
}
";

#[test]
fn programs_in_cxx() -> Result<()> {
    if !is_there("g++", "c++") {
        return Ok(());
    }
    let root = installed("cxx")?;
    let (source, program) = (root.join("one.cc"), root.join("one"));
    std::fs::write(&source, CXX)?;
    let arguments =
        ["-Wall", "-Wextra", "-Werror", "-o", &program.to_string_lossy(), &source.to_string_lossy()];
    let compiled = tool(&root.join("bin/bdcxx"), &arguments)?;
    assert!(compiled.status.success(), "{compiled:?}");
    assert_eq!(Command::new(program).env_remove("LD_LIBRARY_PATH").output()?.stdout, b"1\n");
    Ok(())
}

#[test]
fn pkg_config_knows_it() -> Result<()> {
    if !is_there("pkg-config", "pkg-config") || !is_there("gcc", "cc") {
        return Ok(());
    }
    let root = folder("packaged")?;
    let tools = copied(&root, "bin")?;
    for folder in ["lib/bdrun/mpi", "lib/pkgconfig"] {
        std::fs::create_dir_all(root.join(folder))?;
    }
    symlink(library()?, root.join("lib/bdrun/mpi/libmpi_abi.so.1"))?;
    let text = std::fs::read_to_string(Path::new(MPI).join("tools/bdrun-mpi.pc.in"))?;
    std::fs::write(
        root.join("lib/pkgconfig/bdrun-mpi.pc"),
        text.replace("@VERSION@", env!("CARGO_PKG_VERSION")),
    )?;
    let asks = |option: &[&str]| -> Result<String> {
        let output = Command::new("pkg-config")
            .args(option)
            .arg("bdrun-mpi")
            .env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"))
            .output()?;
        assert!(output.status.success(), "{output:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    assert_eq!(asks(&["--modversion"])?.trim_end(), env!("CARGO_PKG_VERSION"));
    let program = tools.join("phases");
    let compiled = Command::new("cc")
        .arg(phases())
        .args(asks(&["--cflags", "--libs"])?.split_whitespace())
        .arg("-o")
        .arg(&program)
        .output()?;
    assert!(compiled.status.success(), "{compiled:?}");
    let ran = Command::new(program).args(["1", "1", "ro", "1"]).env_remove("LD_LIBRARY_PATH").output()?;
    assert!(ran.status.success() && String::from_utf8_lossy(&ran.stderr).contains(" check="), "{ran:?}");
    Ok(())
}
