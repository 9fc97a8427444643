//! What the tests of both libraries do: those include this.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use bdrun_mpi_table::{Constant, Value, constants};

/// A library for Fortran and the one of C that it calls: by the names that programs know, and that cargo
/// does.
pub struct Library {
    pub fortran: (&'static str, &'static str),
    pub c: (&'static str, &'static str),
    /// Constants that are another's in Fortran, and the `COMMON` blocks.
    pub header: String,
    /// The ABI's column of the table.
    pub column: fn(&Constant) -> &Option<Value>,
}

/// Beside the test: cargo has built it before.
fn built(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("own path");
    path.set_file_name(name);
    assert!(path.exists(), "{} is not there", path.display());
    path
}

fn said(command: &mut Command) -> String {
    let output = command.output().expect("it can be started");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {} {out}{err}", output.status);
    out.into_owned()
}

impl Library {
    /// A folder with both, by the names that programs know.
    fn folder(&self, name: &str) -> PathBuf {
        let (fortran, _) = self.fortran;
        let name = format!("{fortran}-{name}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, is_called) in [self.fortran, self.c] {
            symlink(built(is_called), folder.join(name)).expect("a link");
        }
        folder
    }

    /// It has these names, and others only if they begin so.
    pub fn exports(&self, wanted: &BTreeSet<String>, beginnings: &[&str]) {
        let mut nm = Command::new("nm");
        if nm.arg("--version").output().is_err() {
            return bdrun_skipped::skipped("gcc", "there is no nm");
        }
        let text = said(Command::new("nm").args(["-D", "--defined-only"]).arg(built(self.fortran.1)));
        let found: BTreeSet<String> =
            text.lines().filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned())).collect();
        let missing: Vec<_> = wanted.difference(&found).collect();
        assert!(missing.is_empty(), "missing: {missing:?}");
        let others: Vec<_> = found
            .iter()
            .filter(|name| !beginnings.iter().any(|beginning| name.to_lowercase().starts_with(beginning)))
            .collect();
        assert!(others.is_empty(), "what are {others:?}?");
    }

    /// All that it refers to is there when it is loaded.
    pub fn loads(&self) {
        let folder = self.folder("loads");
        let output = Command::new("true")
            .env("LD_LIBRARY_PATH", &folder)
            .env("LD_PRELOAD", folder.join(self.fortran.0))
            .env("LD_BIND_NOW", "1")
            .output()
            .expect("it can be started");
        // A library that is not found is only mentioned.
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert!(output.status.success(), "{}", output.status);
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    /// A header with all constants that are numbers, and what Fortran has to be told of names.
    fn header(&self) -> String {
        let mut text = "      integer MPI_ADDRESS_KIND, MPI_OFFSET_KIND, MPI_COUNT_KIND\n      parameter \
                        (MPI_ADDRESS_KIND=8, MPI_OFFSET_KIND=8, MPI_COUNT_KIND=8)\n"
            .to_owned();
        let mut number = |name: &str, number: i64| {
            writeln!(text, "      integer {name}\n      parameter ({name}={number})").expect("a string");
        };
        let constants = constants().expect("well-formed");
        for constant in &constants {
            let name = &*constant.name;
            let Some(Value::Number(value)) = *(self.column)(constant) else { continue };
            let is_address = constant.c_type.ends_with('*') || name.starts_with("MPI_ARGV");
            let is_said = self.header.contains(&format!(" {name}="));
            match name {
                // Places in a status are counted from one.
                "MPI_F_STATUS_SIZE" => number("MPI_STATUS_SIZE", value),
                "MPI_F_SOURCE" => number("MPI_SOURCE", value + 1),
                "MPI_F_TAG" => number("MPI_TAG", value + 1),
                "MPI_F_ERROR" => number("MPI_ERROR", value + 1),
                _ if is_address || is_said || name.starts_with("MPI_T_") => {}
                _ if i32::try_from(value).is_ok() => number(name, value),
                // A handle whose highest bit is set.
                _ => number(name, i64::from(value as i32)),
            }
        }
        text.push_str(&self.header);
        text.push_str(
            "      external MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, MPI_DUP_FN
      external MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN
      external MPI_COMM_DUP_FN, MPI_TYPE_DUP_FN
      external MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN
      external MPI_CONVERSION_FN_NULL
      double precision, external :: MPI_WTIME, MPI_WTICK
",
        );
        text
    }

    /// What a program does with it by itself, and in three processes of a job.
    pub fn runs(&self) {
        if Command::new("gfortran").arg("--version").output().is_err() {
            return bdrun_skipped::skipped("gfortran", "there is no gfortran");
        }
        let folder = self.folder("runs");
        fs::write(folder.join("mpif.h"), self.header()).expect("a file");
        let sources = ["functions.f90", "program.f90"]
            .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("../common/tests/programs").join(name));
        let bdrun = built(self.fortran.1).with_file_name("../bdrun");
        let (program, file) = (folder.join("program"), folder.join("file"));
        // Addresses in the program's own memory, and in copies; what a compiler does, and what it may do.
        for flags in [&["-fPIE", "-pie", "-O0"], &["-fno-pic", "-no-pie", "-O2"]] {
            said(
                Command::new("gfortran")
                    .args(flags)
                    .args(["-w", "-fallow-argument-mismatch", "-J"])
                    .arg(&folder)
                    .arg("-I")
                    .arg(&folder)
                    .args(&sources)
                    .arg("-o")
                    .arg(&program)
                    .arg(folder.join(self.fortran.0))
                    .arg(folder.join(self.c.0)),
            );
            let run = |command: &mut Command, processes: usize| {
                let _ = fs::remove_file(&file);
                let command = command.env("LD_LIBRARY_PATH", &folder).env("LD_BIND_NOW", "1");
                let text = said(command.env("FORTRAN_FILE", &file));
                let mut lines: Vec<_> = text.lines().collect();
                lines.sort_unstable();
                let expected: Vec<_> =
                    (0..processes).map(|rank| format!("rank {rank} of {processes}: 0 wrong")).collect();
                assert_eq!(lines, expected, "{flags:?}");
            };
            run(&mut Command::new(&program), 1);
            // A test of this package alone does not build it.
            if bdrun.exists() {
                run(Command::new(&bdrun).args(["-np", "3", "--mpi", "none"]).arg(&program), 3);
            }
        }
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
