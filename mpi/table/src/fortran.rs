//! The functions as Fortran calls them (MPI-3.1, section 17.1; annex A.4): every argument by its address, the
//! lengths of strings behind all others. They only convert, and call the functions of C.
//!
//! | kind | what becomes of it |
//! |---|---|
//! | a handle | a number: `Comm::of` and `number` of the library's types; several are copied |
//! | a buffer, weights, a status | as it is, unless its address stands for something |
//! | a string | ended instead of filled up with blanks |
//! | an index of a request | counted from one |
//! | everything else | as it is: truth values of C are those of Fortran's compilers |

use std::fmt::Write;

use crate::convert::Column;
use crate::rust::{HANDLES, variable};
use crate::{Argument, Constant, Flow, Function, Value, snake};

/// Functions that libraries have by hand (`mpi/fortran`): their arguments are others than in C, or mean
/// something else, or are functions.
pub const BY_HAND: [&str; 31] = [
    "Attr_get",
    "Attr_put",
    "Buffer_detach",
    "Comm_create_errhandler",
    "Comm_create_keyval",
    "Comm_detach_buffer",
    "Comm_get_attr",
    "Comm_set_attr",
    "Comm_spawn",
    "Comm_spawn_multiple",
    "File_create_errhandler",
    "Grequest_start",
    "Info_create_env",
    "Info_get",
    "Info_get_string",
    "Init",
    "Init_thread",
    "Keyval_create",
    "Op_create",
    "Pcontrol",
    "Register_datarep",
    "Session_create_errhandler",
    "Session_detach_buffer",
    "Session_get_nth_pset",
    "Type_create_keyval",
    "Type_get_attr",
    "Type_set_attr",
    "Win_create_errhandler",
    "Win_create_keyval",
    "Win_get_attr",
    "Win_set_attr",
];

/// What only Fortran has, or has still, and the functions that do it: by hand as well, or another's.
pub const MORE: [(&str, &str); 12] = [
    ("Address", "address"),
    ("Errhandler_create", "comm_create_errhandler"),
    ("Errhandler_get", "comm_get_errhandler"),
    ("Errhandler_set", "comm_set_errhandler"),
    ("F_sync_reg", "f_sync_reg"),
    ("Type_extent", "type_extent"),
    ("Type_hindexed", "type_hindexed"),
    ("Type_hvector", "type_hvector"),
    ("Type_lb", "type_lb"),
    ("Type_struct", "type_struct"),
    ("Type_ub", "type_ub"),
    ("Conversion_fn_null", "conversion_fn_null"),
];

/// What becomes of an argument.
#[derive(Debug, Default)]
struct Shape {
    /// Its type in C.
    c: String,
    /// Its type in Fortran, if it is there.
    fortran: String,
    /// It is a string: its length is an argument as well.
    is_text: bool,
    /// What is done before the call, if anything is.
    before: String,
    /// What C is given.
    passed: String,
    /// What is done after the call.
    after: String,
    /// The same, if the call has not failed.
    given: String,
}

/// Whether Fortran has it: what is only about C is not for it.
#[must_use]
pub fn is_in_fortran(function: &Function) -> bool {
    let name = &*function.name;
    let ends = ["_toint", "_fromint", "_c"];
    !(function.chapter == "tools" || name.starts_with("Abi_") || ends.iter().any(|end| name.ends_with(end)))
}

/// How many a handle's or status's array has.
fn length(argument: &Argument) -> String {
    match argument.kind.length.as_deref() {
        // Who sends what he receives has none to say.
        Some("peers") if argument.name == "sendtypes" => {
            "if face::is_in_place(sendbuf) { 0 } else { peers(comm) }".into()
        }
        Some("peers") => "peers(comm)".into(),
        Some("sources") => "neighbours(comm).0".into(),
        Some("destinations") => "neighbours(comm).1".into(),
        Some(name) => format!("len({name})"),
        None => "1".into(),
    }
}

fn handle(argument: &Argument, rust: &str, name: &str) -> Shape {
    let kind = &argument.kind;
    let several = kind.array && kind.length.as_deref() != Some("1");
    let (own, len) = (format!("own_{}", argument.name), length(argument));
    let mut shape = Shape { c: format!("*mut {rust}"), fortran: "*mut c_int".into(), ..Shape::default() };
    match (several, kind.flow) {
        (false, Flow::In) => {
            shape.c = rust.into();
            shape.passed = format!("{rust}::of(read({name}))");
        }
        (false, flow) => {
            let is_new = flow == Flow::Out;
            let from = if is_new { format!("{rust}::NOTHING") } else { format!("{rust}::of(read({name}))") };
            shape.before = format!("let mut {own} = {from};");
            shape.passed = format!("&raw mut {own}");
            let write = format!("{name}.write_unaligned({own}.number());");
            *if is_new { &mut shape.given } else { &mut shape.after } = write;
        }
        (true, Flow::Out) => {
            shape.before = format!("let mut {own} = vec![{rust}::NOTHING; {len}];");
            shape.passed = format!("{own}.as_mut_ptr()");
            shape.given = format!("write_given(&{own}, {name});");
        }
        (true, flow) => {
            shape.before = format!("let mut {own} = read_all::<{rust}>({name}, {len});");
            shape.passed = format!("{own}.as_mut_ptr()");
            if flow == Flow::InOut {
                shape.after = format!("write_all(&{own}, {name});");
            }
        }
    }
    shape
}

/// Numbers of requests, which Fortran counts from one: as many as `outcount` says, or one.
fn index(function: &Function, argument: &Argument) -> Option<Shape> {
    let chosen = ["any", "some"].iter().any(|end| function.name.ends_with(end));
    if function.chapter != "requests" || !chosen {
        return None;
    }
    let plain = Shape { c: "*mut c_int".into(), fortran: "*mut c_int".into(), ..Shape::default() };
    let name = &*argument.name;
    let own = format!("own_{name}");
    Some(match name {
        "indx" => Shape {
            before: format!("let mut {own} = UNDEFINED;"),
            passed: format!("&raw mut {own}"),
            after: format!("{name}.write_unaligned(from_one({own}));"),
            ..plain
        },
        "outcount" => Shape {
            before: format!("let mut {own} = 0;"),
            passed: format!("&raw mut {own}"),
            after: format!("{name}.write_unaligned({own});"),
            ..plain
        },
        "array_of_indices" => {
            Shape { passed: name.into(), after: format!("all_from_one({name}, own_outcount);"), ..plain }
        }
        _ => return None,
    })
}

fn shape(function: &Function, argument: &Argument) -> Shape {
    if let Some(shape) = index(function, argument) {
        return shape;
    }
    let kind = &argument.kind;
    let name = variable(&argument.name);
    let own = format!("own_{}", argument.name);
    if let Some((_, rust)) = HANDLES.iter().find(|(known, _)| *known == kind.small) {
        return handle(argument, rust, &name);
    }
    let pointer = |to: &str, passed: String| Shape {
        c: format!("*mut {to}"),
        fortran: format!("*mut {to}"),
        passed,
        ..Shape::default()
    };
    let is_in = kind.flow == Flow::In;
    match &*kind.small {
        "status" => Shape {
            c: "*mut Status".into(),
            fortran: "*mut c_int".into(),
            before: format!("let mut {own} = face::statuses({name}, {});", length(argument)),
            passed: format!("{own}.pointer()"),
            after: if is_in { String::new() } else { format!("{own}.write();") },
            ..Shape::default()
        },
        "text" if is_in => Shape {
            is_text: true,
            before: format!(
                "let {own} = text::taken({name}, len_{}, {});",
                argument.name,
                function.chapter == "infos"
            ),
            passed: format!("{own}.as_ptr().cast_mut().cast()"),
            ..pointer("c_void", String::new())
        },
        "text" => Shape {
            is_text: true,
            before: format!("let mut {own} = text::Room::new();"),
            passed: format!("{own}.pointer()"),
            given: format!("{own}.write({name}, len_{});", argument.name),
            ..pointer("c_void", String::new())
        },
        "address" if !is_in => pointer("c_void", name),
        "buffer" | "address" => pointer("c_void", format!("face::buffer({name})")),
        "weights" => pointer("c_int", format!("face::weights({name})")),
        "range" | "errcodes" | "argc" => pointer("c_int", name),
        small if small.ends_with('*') => pointer("c_void", name),
        small => {
            let c = match small {
                "aint" | "count" | "offset" | "displacement" => "i64",
                _ => "c_int",
            };
            match (kind.array || !is_in, small) {
                (true, _) => pointer(c, name),
                (false, "keyval") => {
                    Shape { c: c.into(), ..pointer(c, format!("face::keyval(read({name}))")) }
                }
                (false, _) => Shape { c: c.into(), ..pointer(c, format!("read({name})")) },
            }
        }
    }
}

fn result(function: &Function) -> &str {
    match function.result.as_deref() {
        Some("double") => "f64",
        Some("MPI_Aint") => "i64",
        _ => "c_int",
    }
}

/// C's functions of the small form: the one that is called `send` is `MPI_Send`, with this prefix instead.
#[must_use]
pub fn declarations(functions: &[Function], prefix: &str) -> String {
    let mut text = "unsafe extern \"C\" {\n".to_owned();
    for function in functions.iter().filter(|function| is_in_fortran(function)) {
        let arguments: Vec<String> = function
            .arguments
            .iter()
            .map(|one| format!("{}: {}", variable(&one.name), shape(function, one).c))
            .collect();
        let _ = writeln!(
            text,
            "#[link_name = \"{prefix}{}\"]\npub fn {}({}{}) -> {};",
            function.name,
            snake(&function.name),
            arguments.join(", "),
            if function.variadic { ", ..." } else { "" },
            result(function)
        );
    }
    text + "}\n"
}

/// What Fortran calls, under the names that they have here: `send`.
#[must_use]
pub fn functions(functions: &[Function]) -> String {
    let by_hand = |function: &&Function| BY_HAND.contains(&&*function.name);
    functions.iter().filter(|function| is_in_fortran(function) && !by_hand(function)).map(wrapper).collect()
}

/// Everything that Fortran calls: the name, and the function.
#[must_use]
pub fn names(functions: &[Function]) -> Vec<(String, String)> {
    let in_table = functions.iter().filter(|function| is_in_fortran(function));
    let more = MORE.iter().map(|(name, function)| ((*name).to_owned(), (*function).to_owned()));
    in_table.map(|function| (function.name.clone(), snake(&function.name))).chain(more).collect()
}

/// Exported names, each of which is one of those: `(name, its function)`. Most libraries have a dozen names
/// for one, as compilers spell them in their own ways.
#[must_use]
pub fn exports(names: impl IntoIterator<Item = (String, String)>) -> String {
    let mut text = "exports! {\n".to_owned();
    for (name, function) in names {
        let _ = writeln!(text, "    {name} {function}");
    }
    text + "}\n"
}

/// Numbers that the library looks at, as they are in C, without `MPI_`.
#[must_use]
pub fn numbers(constants: &[Constant], of: Column, names: &[&str]) -> String {
    let mut text = String::new();
    for constant in constants {
        let name = constant.name.trim_start_matches("MPI_");
        if let (true, Some(Value::Number(number))) = (names.contains(&name), of(constant)) {
            let _ = writeln!(text, "pub const {name}: c_int = {number};");
        }
    }
    text
}

/// A function.
fn wrapper(function: &Function) -> String {
    let (mut declared, mut hidden, mut passed) = (vec![], vec![], vec![]);
    let (mut before, mut after, mut given) = (String::new(), String::new(), String::new());
    for argument in &function.arguments {
        let shape = shape(function, argument);
        declared.push(format!("{}: {}", variable(&argument.name), shape.fortran));
        if shape.is_text {
            hidden.push(format!("len_{}: usize", argument.name));
        }
        passed.push(shape.passed);
        for (all, one) in [(&mut before, shape.before), (&mut after, shape.after), (&mut given, shape.given)]
        {
            if !one.is_empty() {
                let _ = writeln!(all, "{one}");
            }
        }
    }
    let (name, result) = (snake(&function.name), result(function));
    let call = format!("c::{name}({})", passed.join(", "));
    let says = "// SAFETY: the caller's, who has what the standard says that it has.\nunsafe {\n";
    if function.result.is_some() {
        return format!(
            "pub unsafe extern \"C\" fn {name}({}) -> {result} {{\n{says}{call}\n}}\n}}\n",
            declared.join(", ")
        );
    }
    declared.push("ierror: *mut c_int".into());
    declared.append(&mut hidden);
    if !given.is_empty() {
        given = format!("if code == 0 {{\n{given}}}\n");
    }
    format!(
        "pub unsafe extern \"C\" fn {name}({}) {{\n{says}{before}let code = {call};\n{after}{given}end(ierror, \
         code);\n}}\n}}\n",
        declared.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use crate::functions as all;

    fn said(name: &str) -> String {
        let text = super::functions(&all().expect("well-formed"));
        let at = text.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("{name} is not there"));
        let one = text[at..].split("\n}\n}\n").next().unwrap_or_default();
        let says = "// SAFETY: the caller's, who has what the standard says that it has.";
        one.replace(says, "").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_function_only_converts() {
        assert_eq!(
            said("recv"),
            "fn recv(buf: *mut c_void, count: *mut c_int, datatype: *mut c_int, source: *mut c_int, tag: *mut c_int, \
             comm: *mut c_int, status: *mut c_int, ierror: *mut c_int) { unsafe { let mut own_status = \
             face::statuses(status, 1); let code = c::recv(face::buffer(buf), read(count), Datatype::of(read(datatype)), \
             read(source), read(tag), Comm::of(read(comm)), own_status.pointer()); own_status.write(); end(ierror, \
             code);"
        );
        assert_eq!(
            said("comm_dup"),
            "fn comm_dup(comm: *mut c_int, newcomm: *mut c_int, ierror: *mut c_int) { unsafe { let mut own_newcomm = \
             Comm::NOTHING; let code = c::comm_dup(Comm::of(read(comm)), &raw mut own_newcomm); if code == 0 { \
             newcomm.write_unaligned(own_newcomm.number()); } end(ierror, code);"
        );
        assert_eq!(
            said("aint_add"),
            "fn aint_add(base: *mut i64, disp: *mut i64) -> i64 { unsafe { c::aint_add(read(base), read(disp))"
        );
    }

    #[test]
    fn requests_are_written_back_and_counted_from_one() {
        let some = said("waitsome");
        for says in [
            "let mut own_array_of_requests = read_all::<Request>(array_of_requests, len(incount));",
            "write_all(&own_array_of_requests, array_of_requests);",
            "face::statuses(array_of_statuses, len(incount))",
            "all_from_one(array_of_indices, own_outcount);",
        ] {
            assert!(some.contains(says), "{says}");
        }
        // A request that failed is gone as well.
        assert!(said("wait").contains("let mut own_request = Request::of(read(request));"));
        assert!(!said("wait").contains("if code == 0"));
    }

    /// Who sends what he receives may give one datatype that is none.
    #[test]
    fn datatypes_that_are_ignored_are_not_read() {
        for name in ["alltoallw", "ialltoallw", "alltoallw_init"] {
            let text = said(name);
            let sends = "let mut own_sendtypes = read_all::<Datatype>(sendtypes, if face::is_in_place(sendbuf) { 0 } \
                         else { peers(comm) });";
            let receives = "let mut own_recvtypes = read_all::<Datatype>(recvtypes, peers(comm));";
            assert!(text.contains(sends) && text.contains(receives), "{text}");
        }
        assert!(said("neighbor_alltoallw").contains("read_all::<Datatype>(sendtypes, neighbours(comm).1)"));
    }

    #[test]
    fn lengths_of_strings_are_behind_all_arguments() {
        assert!(said("file_open").starts_with(
            "fn file_open(comm: *mut c_int, filename: *mut c_void, amode: *mut c_int, info: *mut c_int, fh: *mut \
             c_int, ierror: *mut c_int, len_filename: usize)"
        ));
        // Blanks before a key are none of it; those before a name are.
        assert!(said("info_delete").contains("text::taken(key, len_key, true)"));
        assert!(said("comm_set_name").contains("text::taken(comm_name, len_comm_name, false)"));
    }

    #[test]
    fn names_and_numbers_are_those_that_are_wanted() {
        let names = ["mpi_send_", "PMPI_SEND"].map(|name| (name.to_owned(), "send".to_owned()));
        assert_eq!(super::exports(names), "exports! {\n    mpi_send_ send\n    PMPI_SEND send\n}\n");
        let constants = crate::constants().expect("well-formed");
        let numbers = super::numbers(&constants, |constant| constant.mpich.as_ref(), &["CART", "TAG_UB"]);
        assert_eq!(numbers, "pub const CART: c_int = 2;\npub const TAG_UB: c_int = 1681915905;\n");
    }

    #[test]
    fn c_is_declared_as_it_is() {
        let text = super::declarations(&all().expect("well-formed"), "PMPI_");
        assert!(text.contains(
            "#[link_name = \"PMPI_Waitall\"]\npub fn waitall(count: c_int, array_of_requests: *mut Request, \
             array_of_statuses: *mut Status) -> c_int;"
        ));
        assert!(text.contains("pub fn pcontrol(level: c_int, ...) -> c_int;"));
        assert!(!text.contains("type_toint"));
    }
}
