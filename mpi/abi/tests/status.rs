//! `docs/mpi-status.md` says what is so: each function is called, and those that nobody has written say that
//! they are not supported. To write the page anew: `BDRUN_WRITE=1 cargo test -p bdrun-mpi-abi --test status`.

mod compiled;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use bdrun_mpi_table::{Function, functions, status};
use compiled::Result;

/// A child makes each call, as it may go wrong in any way: all numbers and handles are 0, and whatever is
/// read or written is. A call that is not implemented looks at none of it, and is known by what it gives or
/// by what an error handler is told.
const PROGRAM: &str = "\
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UNSUPPORTED = 55 };
static long long room[1 << 16];

static void told(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    if (*code == MPI_ERR_UNSUPPORTED_OPERATION)
        _exit(UNSUPPORTED);
}

int main(void)
{
    MPI_Errhandler handler;
    MPI_Init(NULL, NULL);
    MPI_Comm_create_errhandler(told, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    for (int i = 0;; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            int code = 0;
            if (!freopen(\"/dev/null\", \"w\", stderr))
                _exit(1);
            alarm(600);
            switch (i) {
CALLS            default:
                _exit(99);
            }
            _exit(code == MPI_ERR_UNSUPPORTED_OPERATION ? UNSUPPORTED : 0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 99)
            break;
        if (WIFEXITED(status) && WEXITSTATUS(status) == UNSUPPORTED)
            printf(\"%d\\n\", i);
    }
    printf(\"end\\n\");
    return 0;
}
";

/// A call with nothing in it; of those that make processes, which look at that first, with a communicator and
/// hints that there are.
fn call(function: &Function) -> String {
    let declaration = function.declaration("MPI_", false);
    let inside = declaration.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    let given = inside.map_or("", |(inside, _)| inside).split(", ").filter_map(|argument| match argument {
        "void" | "..." => None,
        _ if argument.contains(['*', '[']) => Some("(void *)room"),
        "MPI_Comm comm" if function.chapter == "processes" => Some("MPI_COMM_SELF"),
        "MPI_Info info" if function.chapter == "processes" => Some("MPI_INFO_NULL"),
        _ => Some("0"),
    });
    let given: Vec<_> = given.collect();
    let keeps = if function.result.is_none() { "code = " } else { "" };
    format!("{keeps}MPI_{}({})", function.name, given.join(", "))
}

/// What is not implemented.
fn unsupported(functions: &[Function]) -> Result<Option<BTreeSet<String>>> {
    let mut calls = String::new();
    for (nth, function) in functions.iter().enumerate() {
        writeln!(
            calls,
            "            case {nth}:\n                {};\n                break;",
            call(function)
        )?;
    }
    let folder = compiled::folder("status")?;
    let path = folder.join("program.c");
    std::fs::write(&path, PROGRAM.replace("CALLS", &calls))?;
    let Some(ran) = compiled::run(&folder, &path, &["-w"])? else { return Ok(None) };
    let said = String::from_utf8(ran.stdout)?;
    let numbers = said.strip_suffix("end\n").ok_or("the program did not come to its end")?;
    let named = numbers.lines().map(|line| Ok(functions[line.parse::<usize>()?].name.clone()));
    named.collect::<Result<_>>().map(Some)
}

#[test]
fn the_page_is_true() -> Result<()> {
    let functions = functions()?;
    let Some(unsupported) = unsupported(&functions)? else { return Ok(()) };
    assert!(unsupported.contains("Comm_spawn"), "nobody starts processes");
    assert!(["Send", "Wtime", "Comm_toint", "Finalize"].iter().all(|name| !unsupported.contains(*name)));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mpi-status.md");
    let page = std::fs::read_to_string(&path)?;
    let (by_hand, generated) = page.split_once(status::MARK).ok_or("the page has no mark")?;
    let now = status::chapters(&functions, &unsupported);
    if std::env::var_os("BDRUN_WRITE").is_some() {
        std::fs::write(&path, format!("{by_hand}{}{now}", status::MARK))?;
        return Ok(());
    }
    let change = generated.lines().zip(now.lines()).find(|(before, after)| before != after);
    assert!(generated == now, "BDRUN_WRITE=1 cargo test -p bdrun-mpi-abi --test status; first: {change:?}");
    Ok(())
}
