//! The functions and constants of MPI, in one place: `functions.txt` and `constants.txt`. Whatever says the
//! same of many functions is generated from them.

pub mod c;
pub mod convert;
pub mod fortran;
pub mod header;
pub mod rust;
pub mod status;

/// What an argument is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Of the plain form: `int`, `comm`, `buffer`, … .
    pub small: String,
    /// Of the form with `MPI_Count`, where it is another.
    pub large: Option<String>,
    /// There are several.
    pub array: bool,
    /// So many: another argument's name; or `peers` (as many as the communicator has ranks at the other end),
    /// or `sources` or `destinations` (of its topology).
    pub length: Option<String>,
    /// Whether the program's is read, and written.
    pub flow: Flow,
}

/// Which way an argument goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It is read.
    In,
    /// It is written.
    Out,
    /// Both.
    InOut,
}

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// As in the standard.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Without `MPI_`.
    pub name: String,
    /// What it is about, in one word.
    pub chapter: String,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
    /// It takes more, of which nothing is known (`MPI_Pcontrol`).
    pub variadic: bool,
    /// What it returns, if not an error code.
    pub result: Option<String>,
    /// There is a form with `MPI_Count`.
    pub has_large: bool,
    /// Since which version it should not be used any more.
    pub deprecated: Option<String>,
}

/// A constant in one of the ABIs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number, or a handle that is one.
    Number(i64),
    /// The address of an exported object.
    Object(String),
}

/// A constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// As in the standard.
    pub name: String,
    /// Its type in C, without `MPI_`.
    pub c_type: String,
    /// In the standard's ABI.
    pub standard: Option<Value>,
    /// In MPICH's.
    pub mpich: Option<Value>,
    /// In Open MPI's.
    pub openmpi: Option<Value>,
}

/// A line of the tables that says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of {table} cannot be understood: {text}")]
pub struct Malformed {
    table: &'static str,
    line: usize,
    text: String,
}

fn each<T>(table: &'static str, text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Malformed> {
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    let malformed = |line: usize, text: &str| Malformed { table, line: line + 1, text: text.into() };
    lines.map(|(nth, line)| parse(line).ok_or_else(|| malformed(nth, line))).collect()
}

/// A name in small letters, for Rust: those of MPI have a `_` where a word begins but for `Iallreduce` and
/// its like.
#[must_use]
pub fn snake(name: &str) -> String {
    name.to_lowercase()
}

/// All functions, by chapter, in the order of their names.
///
/// # Errors
/// A line of the table is malformed.
pub fn functions() -> Result<Vec<Function>, Malformed> {
    let chapter = std::cell::RefCell::new(String::new());
    let found = each("functions.txt", include_str!("../functions.txt"), |line| {
        if let Some(name) = line.strip_prefix("== ") {
            name.clone_into(&mut chapter.borrow_mut());
            return Some(None);
        }
        Some(Some(Function { chapter: chapter.borrow().clone(), ..function(line)? }))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// All constants.
///
/// # Errors
/// A line of the table is malformed.
pub fn constants() -> Result<Vec<Constant>, Malformed> {
    each("constants.txt", include_str!("../constants.txt"), constant)
}

fn function(line: &str) -> Option<Function> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, tail) = rest.split_once(')')?;
    let mut function = Function {
        name: name.into(),
        chapter: String::new(),
        arguments: vec![],
        variadic: false,
        result: None,
        has_large: false,
        deprecated: None,
    };
    for text in arguments.split(", ").filter(|text| !text.is_empty()) {
        if text == "..." {
            function.variadic = true;
            continue;
        }
        let (name, kind) = text.split_once(": ")?;
        function.arguments.push(Argument { name: name.into(), kind: kind_of(kind)? });
    }
    let mut words = tail.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "->" => function.result = Some(words.next()?.into()),
            "_c" => function.has_large = true,
            _ => function.deprecated = Some(word.strip_prefix("deprecated=")?.into()),
        }
    }
    Some(function)
}

fn kind_of(text: &str) -> Option<Kind> {
    let (flow, rest) = match text.split_once(' ') {
        Some(("out", rest)) => (Flow::Out, rest),
        Some(("inout", rest)) => (Flow::InOut, rest),
        Some(_) => return None,
        None => (Flow::In, text),
    };
    let (name, length) = match rest.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
        Some((name, length)) => (name, Some(length)),
        None => (rest, None),
    };
    let (small, large) = match name.split_once('|') {
        Some((small, large)) => (small, Some(large.to_owned())),
        None => (name, None),
    };
    let array = length.is_some();
    let length = length.filter(|length| !length.is_empty()).map(str::to_owned);
    Some(Kind { small: small.into(), large, array, length, flow })
}

fn constant(line: &str) -> Option<Constant> {
    let mut words = line.split_whitespace();
    let name = words.next()?.to_owned();
    let c_type = words.next()?.to_owned();
    let mut value = || {
        let word = words.next()?;
        let number = word.parse().map(Value::Number);
        Some((word != "-").then(|| number.unwrap_or_else(|_| Value::Object(word.into()))))
    };
    Some(Constant { name, c_type, standard: value()?, mpich: value()?, openmpi: value()? })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_line_is_understood_and_said_once() {
        let (functions, constants) = (functions().expect("well-formed"), constants().expect("well-formed"));
        let names: HashSet<&str> = functions.iter().map(|function| &*function.name).collect();
        assert_eq!(names.len(), functions.len());
        for chapter in functions.chunk_by(|a, b| a.chapter == b.chapter) {
            assert!(!chapter[0].chapter.is_empty());
            assert!(chapter.is_sorted_by(|a, b| a.name.to_lowercase() <= b.name.to_lowercase()));
        }
        let forms = functions.len() + functions.iter().filter(|function| function.has_large).count();
        assert_eq!(forms, 662, "as many as the header of the standard's ABI has");
        let names: HashSet<&str> = constants.iter().map(|constant| &*constant.name).collect();
        assert_eq!(names.len(), constants.len());
    }

    #[test]
    fn a_function_is_as_the_standard_has_it() {
        let all = functions().expect("well-formed");
        let find = |name: &str| all.iter().find(|function| function.name == name).expect("there");
        let send = find("Send");
        let kinds: Vec<&str> = send.arguments.iter().map(|argument| &*argument.kind.small).collect();
        assert_eq!(kinds, ["buffer", "int", "type", "rank", "tag", "comm"]);
        assert_eq!((send.arguments[1].kind.large.as_deref(), send.has_large), (Some("count"), true));
        assert_eq!(find("Wtime").result.as_deref(), Some("double"));
        assert!(find("Pcontrol").variadic);
        assert_eq!(find("Comm_free").arguments[0].kind.flow, Flow::InOut);
        assert_eq!(find("Attr_get").deprecated.as_deref(), Some("MPI-2.0"));
        // A kind `a|b` without a second form says nothing.
        let large = |function: &&Function| function.arguments.iter().any(|a| a.kind.large.is_some());
        assert!(all.iter().filter(large).all(|function| function.has_large));
    }

    #[test]
    fn what_is_converted_has_a_length() {
        const CONVERTED: &str = "comm type group op request win file info errhandler message session status distribution \
                                 darg";
        for function in functions().expect("well-formed") {
            for argument in function.arguments.iter().filter(|argument| argument.kind.array) {
                let length = argument.kind.length.as_deref();
                let is_known = |length: &str| {
                    ["1", "peers", "sources", "destinations"].contains(&length)
                        || function.arguments.iter().any(|other| other.name == length)
                };
                let must = CONVERTED.split(' ').any(|kind| kind == argument.kind.small)
                    && !function.name.starts_with("T_");
                assert!(length.map_or(!must, is_known), "{}: {}", function.name, argument.name);
            }
        }
    }

    #[test]
    fn constants_differ_where_they_must() {
        let all = constants().expect("well-formed");
        let find = |name: &str| all.iter().find(|constant| constant.name == name).expect("there");
        let int = find("MPI_INT");
        assert_eq!(int.standard, Some(Value::Number(0x209)));
        assert_eq!(int.mpich, Some(Value::Number(0x4c00_0405)));
        assert_eq!(int.openmpi, Some(Value::Object("ompi_mpi_int".into())));
        // A value is a handle's in one ABI only once.
        let mut handles = HashSet::new();
        for constant in all.iter().filter(|constant| matches!(constant.openmpi, Some(Value::Object(_)))) {
            if let Some(Value::Number(number)) = constant.standard {
                handles.insert(number);
            }
        }
        assert!(handles.len() > 60, "{}", handles.len());
    }
}
