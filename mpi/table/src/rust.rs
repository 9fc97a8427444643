//! The functions as Rust has them: a trait of the calls of each chapter, in terms of no ABI, and for each
//! face the functions that programs call, which only convert.
//!
//! | kind | in C | in the trait |
//! |---|---|---|
//! | a handle | the face's | `Comm`, `Datatype`, … |
//! | several handles | pointer | `Handles<Comm>`, read and written one by one |
//! | numbers, small or large | `int`, `MPI_Aint`, `MPI_Count` | `i64`; several: `Ints`, `IntsOut` |
//! | `rank`, `tag` and numbers that mean something else in each ABI | `int` | the standard's ABI's value |
//! | a buffer | pointer | `Buffer` |
//! | everything else | pointer | the pointer |
//!
//! What is written to one place (`out int *flag`) is what a call returns, in order, and is written by the
//! face if the call succeeded. Calls that complete something ([`COMPLETING`]) return it with a failure of
//! what they have completed (`Told`): the program must know that it is complete, or it would ask once more.

use crate::{Argument, Flow, Function, snake};
use std::fmt::Write;

/// What becomes of an argument.
struct Shape {
    /// Its type in the functions that programs call.
    c: String,
    /// Its type in the trait, if it is an argument there.
    taken: Option<(String, String)>,
    /// Its type in the trait, if it is returned, and how it is written; `{at}` is where, `{value}` what.
    given: Option<(String, String)>,
}

pub(crate) const HANDLES: [(&str, &str); 11] = [
    ("comm", "Comm"),
    ("type", "Datatype"),
    ("group", "Group"),
    ("op", "Op"),
    ("request", "Request"),
    ("win", "Win"),
    ("file", "File"),
    ("info", "Info"),
    ("errhandler", "Errhandler"),
    ("message", "Message"),
    ("session", "Session"),
];

/// Numbers that each ABI has others for.
const MEANINGS: [&str; 21] = [
    "rank",
    "tag",
    "error",
    "keyval",
    "thread",
    "order",
    "distribution",
    "darg",
    "combiner",
    "typeclass",
    "comparison",
    "topology",
    "splittype",
    "locktype",
    "assert",
    "amode",
    "whence",
    "verbosity",
    "bind",
    "scope",
    "pvarclass",
];

/// Calls that have completed something also if they fail.
const COMPLETING: [&str; 16] = [
    "Wait",
    "Test",
    "Waitany",
    "Testany",
    "Waitsome",
    "Testsome",
    "Testall",
    "Request_free",
    "Request_get_status",
    "Request_get_status_any",
    "Request_get_status_all",
    "Request_get_status_some",
    "Mrecv",
    "Recv",
    "Sendrecv",
    "Sendrecv_replace",
];

fn completes(function: &Function) -> bool {
    COMPLETING.contains(&function.name.as_str())
}

fn handle(kind: &str) -> Option<&'static str> {
    HANDLES.iter().find(|(name, _)| *name == kind).map(|(_, rust)| *rust)
}

fn number(kind: &str) -> Option<&'static str> {
    match kind {
        "int" | "flag" => Some("c_int"),
        "aint" | "count" | "offset" | "displacement" => Some("i64"),
        _ => None,
    }
}

fn shape(argument: &Argument, large: bool) -> Shape {
    let kind = &argument.kind;
    let said = kind.large.as_ref().filter(|_| large).unwrap_or(&kind.small).as_str();
    let name = &argument.name;
    let plain = |c: &str, taken: &str, how: String| Shape {
        c: c.into(),
        taken: Some((taken.into(), how)),
        given: None,
    };
    let given = |c: &str, rust: &str, how: &str| Shape {
        c: c.into(),
        taken: None,
        given: Some((rust.into(), how.into())),
    };
    if let Some(rust) = handle(said) {
        return match (kind.array, kind.flow) {
            (true, Flow::In) => plain(
                &format!("*const face::{rust}"),
                &format!("Handles<{rust}>"),
                format!("face::handles({name})"),
            ),
            (true, _) => plain(
                &format!("*mut face::{rust}"),
                &format!("Handles<{rust}>"),
                format!("face::handles({name})"),
            ),
            (false, Flow::In) => {
                plain(&format!("face::{rust}"), rust, format!("face::{}_in({name})?", snake(rust)))
            }
            (false, Flow::Out) => given(
                &format!("*mut face::{rust}"),
                rust,
                &format!("{{at}}.write(face::{}_out({{value}}))", snake(rust)),
            ),
            (false, Flow::InOut) => Shape {
                c: format!("*mut face::{rust}"),
                taken: Some((rust.into(), format!("face::{}_in(read({name})?)?", snake(rust)))),
                given: Some((rust.into(), format!("{{at}}.write(face::{}_out({{value}}))", snake(rust)))),
            },
        };
    }
    if MEANINGS.contains(&said) || number(said).is_some() {
        let c = number(said).unwrap_or("c_int");
        let means = MEANINGS.contains(&said) || said == "displacement";
        let large = c == "i64";
        return match (kind.array, kind.flow) {
            (true, Flow::In) if means => {
                plain("*const c_int", "Meant", format!("Meant::new({name}, face::{said}_in)"))
            }
            (true, Flow::In) => plain(
                &format!("*const {c}"),
                "Ints",
                format!("Ints::{}({name})", if large { "large" } else { "small" }),
            ),
            (true, _) if means => {
                plain("*mut c_int", "IntsOut", format!("IntsOut::meant({name}, face::{said}_out)"))
            }
            (true, _) => plain(
                &format!("*mut {c}"),
                "IntsOut",
                format!("IntsOut::{}({name})", if large { "large" } else { "small" }),
            ),
            (false, Flow::In) if means => plain(c, "i64", format!("face::{said}_in({name})?")),
            (false, Flow::In) if said == "flag" => plain(c, "bool", format!("{name} != 0")),
            (false, Flow::In) if large => plain(c, "i64", name.clone()),
            (false, Flow::In) => plain(c, "i64", format!("i64::from({name})")),
            (false, flow) => {
                let (rust, how) = match said {
                    "flag" => ("bool", "{at}.write(c_int::from({value}))".to_owned()),
                    _ if means => ("i64", format!("{{at}}.write(face::{said}_out({{value}}))")),
                    _ if large => ("i64", "{at}.write({value})".to_owned()),
                    // What has a large form for it is not an error in the small one.
                    _ if flow == Flow::Out && kind.large.as_deref() == Some("count") => {
                        ("i64", "{at}.write(fit_or_undefined({value}))".to_owned())
                    }
                    _ => ("i64", "{at}.write(fit({value})?)".to_owned()),
                };
                Shape {
                    c: format!("*mut {c}"),
                    taken: (flow == Flow::InOut).then(|| {
                        // Tools need not want to know the length of a string.
                        let may_be_null = argument.name == "name_len" || argument.name == "desc_len";
                        let read = if may_be_null { format!("at({name})") } else { format!("read({name})?") };
                        let how = match () {
                            () if means => format!("face::{said}_in({read})?"),
                            () if large => read,
                            () => format!("i64::from({read})"),
                        };
                        ("i64".to_owned(), how)
                    }),
                    given: Some((rust.into(), how)),
                }
            }
        };
    }
    match said {
        "buffer" if kind.flow == Flow::In => {
            plain("*const c_void", "Buffer", format!("face::buffer({name})"))
        }
        "buffer" => plain("*mut c_void", "Buffer", format!("face::buffer({name})")),
        "address" => plain("*mut c_void", "*mut c_void", name.clone()),
        "text" if kind.flow == Flow::In => plain("*const c_char", "*const c_char", name.clone()),
        "text" => plain("*mut c_char", "*mut c_char", name.clone()),
        "status" if kind.flow == Flow::In => {
            plain("*const face::Status", "Status", format!("face::status_in({name})"))
        }
        "status" if kind.array => plain("*mut face::Status", "Statuses", format!("face::statuses({name})")),
        "status" if kind.flow == Flow::InOut => Shape {
            c: "*mut face::Status".into(),
            taken: Some(("Status".into(), format!("face::status_in({name})"))),
            given: Some(("Status".into(), "face::status_out({at}, &{value})".into())),
        },
        "status" => given("*mut face::Status", "Status", "face::status_out({at}, &{value})"),
        "weights" if kind.flow == Flow::In => {
            plain("*const c_int", "Weights", format!("face::weights({name})"))
        }
        "weights" => plain("*mut c_int", "Weights", format!("face::weights({name})")),
        "errcodes" => plain("*mut c_int", "IntsOut", format!("IntsOut::meant({name}, face::error_out)")),
        "range" => plain("*const [c_int; 3]", "*const [c_int; 3]", name.clone()),
        "argc" => plain("*mut c_int", "*mut c_int", name.clone()),
        // Strings of programs, functions, objects of the interface for tools.
        _ => plain("*mut c_void", "*mut c_void", name.clone()),
    }
}

/// The trait's method: its name is the function's, in small letters.
fn method(function: &Function) -> String {
    let (mut taken, mut given) = (vec![], vec![]);
    for argument in &function.arguments {
        let Shape { taken: is_taken, given: is_given, .. } = shape(argument, false);
        if let Some((rust, _)) = is_taken {
            taken.push(format!(", {}: {rust}", variable(&argument.name)));
        }
        given.extend(is_given.map(|(rust, _)| rust));
    }
    let result = match (given.as_slice(), function.result.as_deref()) {
        (_, Some(result)) => result_type(result).into(),
        ([one], None) => one.clone(),
        (several, None) => format!("({})", several.join(", ")),
    };
    let result = if completes(function) { format!("Told<{result}>") } else { result };
    let ignored: String = function
        .arguments
        .iter()
        .filter(|argument| shape(argument, false).taken.is_some())
        .map(|argument| format!("{}, ", variable(&argument.name)))
        .collect();
    if form_matters(function) {
        taken.push(", large: bool".into());
    }
    let ignored = if form_matters(function) { ignored + "large, " } else { ignored };
    let name = snake(&function.name);
    format!(
        "    /// `MPI_{}`.\n    unsafe fn {name}(&self{}) -> Answer<{result}> {{\n        let _ = ({ignored});\n        \
         Err(unsupported(\"MPI_{}\"))\n    }}\n",
        function.name,
        taken.concat(),
        function.name,
    )
}

/// Whether what is made remembers with which form: datatypes are asked for their arguments, and functions of
/// the program take arguments of either form.
fn form_matters(function: &Function) -> bool {
    let makes = |one: &Argument| one.kind.flow == Flow::Out && !one.kind.array && one.kind.small == "type";
    let calls = |one: &Argument| one.kind.large.as_ref().is_some_and(|large| large.ends_with("_function_c*"));
    function.has_large && function.arguments.iter().any(|one| makes(one) || calls(one))
}

fn result_type(result: &str) -> &str {
    match result {
        "double" => "f64",
        "int" | "MPI_Aint" | "MPI_Fint" => "i64",
        handle => handle.strip_prefix("MPI_").unwrap_or(handle),
    }
}

/// A word of Rust is no name of an argument.
pub(crate) fn variable(name: &str) -> String {
    match name {
        "type" | "fn" | "in" | "ref" | "move" => format!("r#{name}"),
        name => name.to_owned(),
    }
}

/// The traits of all calls, one for each chapter. What a library does not implement says so.
#[must_use]
pub fn calls(functions: &[Function]) -> String {
    let mut text = String::new();
    for chapter in functions.chunk_by(|a, b| a.chapter == b.chapter) {
        let name = &chapter[0].chapter;
        let _ = write!(text, "/// Calls: {name}.\npub trait {}{} {{\n", name[..1].to_uppercase(), &name[1..]);
        chapter.iter().for_each(|function| text.push_str(&method(function)));
        text.push_str("}\n");
    }
    text
}

/// The functions of a face: `MPI_` and `PMPI_`, both forms.
#[must_use]
pub fn functions(functions: &[Function]) -> String {
    let mut text = String::new();
    for function in functions {
        for large in [false, true] {
            if large && !function.has_large {
                continue;
            }
            for prefix in ["MPI_", "PMPI_"] {
                text.push_str(&wrapper(function, prefix, large));
            }
        }
    }
    text
}

/// One function of a face.
#[must_use]
pub fn wrapper(function: &Function, prefix: &str, large: bool) -> String {
    let (mut declared, mut passed, mut written, mut values) = (vec![], vec![], String::new(), vec![]);
    for argument in &function.arguments {
        let Shape { c, taken, given } = shape(argument, large);
        let name = variable(&argument.name);
        declared.push(format!("{name}: {c}"));
        if let Some((_, how)) = taken {
            passed.push(how);
        }
        if let Some((_, how)) = given {
            let value = format!("given_{}", values.len());
            let how = how.replace("{at}", &name).replace("{value}", &value);
            let _ = writeln!(written, "if !{name}.is_null() {{ {how}; }}");
            values.push(value);
        }
    }
    if form_matters(function) {
        passed.push(large.to_string());
    }
    let form = if large { "_c" } else { "" };
    let (name, method) = (&function.name, snake(&function.name));
    let attached = attached_to(function);
    let call = format!("calls().{method}({})", passed.join(", "));
    let head = format!(
        "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {prefix}{name}{form}({})",
        declared.join(", ")
    );
    let says = "    // SAFETY: the caller's, who has what the standard says that it has.\n";
    let Some(result) = function.result.as_deref() else {
        let pattern = match values.as_slice() {
            [one] => one.clone(),
            several => format!("({})", several.join(", ")),
        };
        let (pattern, end) = match completes(function) {
            true => (
                format!("Told {{ given: {pattern}, failure }}"),
                "match failure { None => Ok(()), Some(failure) => Err(failure) }",
            ),
            false => (pattern, "Ok(())"),
        };
        return format!(
            "{head} -> c_int {{\n{says}    unsafe {{ call(&\"MPI_{name}{form}\", {attached}, || {{ let {pattern} = {call}?;\n{written}{end} }}) }}\n}}\n"
        );
    };
    let (c, how) = match result {
        "double" => ("f64".to_owned(), "unwrap_or_default()".to_owned()),
        "MPI_Aint" => ("i64".to_owned(), "unwrap_or_default()".to_owned()),
        "int" => ("c_int".to_owned(), "unwrap_or_default() as c_int".to_owned()),
        _ => {
            let rust = result_type(result);
            let null = format!("face::{}_null", snake(rust));
            (format!("face::{rust}"), format!("map_or_else({null}, face::{}_out)", snake(rust)))
        }
    };
    format!("{head} -> {c} {{\n{says}    unsafe {{ answer(|| {call}).{how} }}\n}}\n")
}

/// Whose error handler is told: the first object that has one; of the interface for tools, nobody's. Where a
/// file is only named that is `MPI_FILE_NULL`, and not the communicator that opens it (MPI-5.0, section
/// 14.7).
fn attached_to(function: &Function) -> String {
    if function.chapter == "tools" {
        return "|| Object::Tools".into();
    }
    if function.arguments.iter().any(|argument| argument.name == "filename") {
        return "|| Object::File(bdrun_mpi::handle::File::NULL)".into();
    }
    for argument in &function.arguments {
        let is_one = argument.kind.flow != Flow::Out && !argument.kind.array;
        let name = variable(&argument.name);
        let value = if argument.kind.flow == Flow::InOut { format!("at({name})") } else { name };
        match argument.kind.small.as_str() {
            "comm" | "win" | "file" | "session" if is_one => {
                let kind = handle(&argument.kind.small).unwrap_or_default();
                return format!("|| face::on_{}({value})", snake(kind));
            }
            _ => {}
        }
    }
    "|| Object::Nothing".into()
}

#[cfg(test)]
mod tests {
    use crate::functions as all;

    fn said(text: &str, name: &str) -> String {
        let at = text.find(name).unwrap_or_else(|| panic!("{name} is not there"));
        text[at..].split("\n}\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_call_takes_what_is_read_and_returns_what_is_written() {
        let text = super::calls(&all().expect("well-formed"));
        assert!(said(&text, "fn send(").starts_with(
            "fn send(&self, buf: Buffer, count: i64, datatype: Datatype, dest: i64, tag: i64, comm: Comm) -> Answer<()> {"
        ));
        assert!(said(&text, "fn testany(").starts_with(
            "fn testany(&self, count: i64, array_of_requests: Handles<Request>) -> Answer<Told<(i64, bool, Status)>> {"
        ));
        assert!(
            said(&text, "fn comm_free(").starts_with("fn comm_free(&self, comm: Comm) -> Answer<Comm> {")
        );
        assert!(said(&text, "fn type_contiguous(").starts_with(
            "fn type_contiguous(&self, count: i64, oldtype: Datatype, large: bool) -> Answer<Datatype> {"
        ));
        assert!(
            said(&text, "fn op_create(")
                .contains("(&self, user_fn: *mut c_void, commute: bool, large: bool)")
        );
        assert!(said(&text, "fn wtime(").starts_with("fn wtime(&self) -> Answer<f64> {"));
    }

    #[test]
    fn a_function_of_a_face_only_converts() {
        let text = super::functions(&all().expect("well-formed"));
        // Ranks and codes differ from ABI to ABI in arrays too, and markers may stand where weights are
        // written.
        for (name, says) in [
            (
                "MPI_Group_translate_ranks",
                "face::group_in(group2)?, IntsOut::meant(ranks2, face::rank_out))?",
            ),
            // What the job exits with is no error code, whatever the ABI calls one of that number.
            ("MPI_Abort", "calls().abort(face::comm_in(comm)?, i64::from(errorcode))?"),
            // Their failures are the default file error handler's, which lets the call return.
            ("MPI_File_open", "call(&\"MPI_File_open\", || Object::File(bdrun_mpi::handle::File::NULL), ||"),
            (
                "MPI_File_delete",
                "call(&\"MPI_File_delete\", || Object::File(bdrun_mpi::handle::File::NULL), ||",
            ),
            ("MPI_File_close", "|| face::on_file("),
            ("MPI_Comm_spawn", "IntsOut::meant(array_of_errcodes, face::error_out))?"),
            ("MPI_Dist_graph_neighbors", "IntsOut::small(destinations), face::weights(destweights))?"),
        ] {
            assert!(said(&text, &format!("fn {name}(")).contains(says), "{name}");
        }
        assert_eq!(
            said(&text, "fn MPI_Get_count_c("),
            "fn MPI_Get_count_c(status: *const face::Status, datatype: face::Datatype, count: *mut i64) -> c_int { // SAFETY: the caller's, who has what the standard says that it has. unsafe { \
             call(&\"MPI_Get_count_c\", || Object::Nothing, || { let given_0 = calls().get_count(face::status_in(status), \
             face::datatype_in(datatype)?)?; if !count.is_null() { count.write(given_0); } Ok(()) }) }"
        );
        assert!(said(&text, "fn MPI_Get_count(").contains("count.write(fit_or_undefined(given_0))"));
        assert!(said(&text, "fn MPI_Op_create_c(").contains("op_create(user_fn, commute != 0, true)?"));
        assert!(said(&text, "fn MPI_Type_vector(").contains("face::datatype_in(oldtype)?, false)?"));
        assert_eq!(
            said(&text, "fn PMPI_Comm_free("),
            "fn PMPI_Comm_free(comm: *mut face::Comm) -> c_int { // SAFETY: the caller's, who has what the standard says that it has. unsafe { call(&\"MPI_Comm_free\", || face::on_comm(at(comm)), || { let \
             given_0 = calls().comm_free(face::comm_in(read(comm)?)?)?; if !comm.is_null() { \
             comm.write(face::comm_out(given_0)); } Ok(()) }) }"
        );
    }
}
