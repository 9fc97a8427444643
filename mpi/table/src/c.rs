//! The functions as C declares them (MPI-5.0, annex A.3).

use crate::{Argument, Flow, Function};

/// The type of one element in C, in the small or the large form.
fn element(argument: &Argument, large: bool) -> String {
    let kind = &argument.kind;
    let name = match (&kind.large, large) {
        (Some(large), true) => large,
        _ => &kind.small,
    };
    match name.as_str() {
        "buffer" | "address" => "void".into(),
        "text" => "char".into(),
        "comm" => "MPI_Comm".into(),
        "type" => "MPI_Datatype".into(),
        "aint" => "MPI_Aint".into(),
        "count" => "MPI_Count".into(),
        "offset" | "displacement" => "MPI_Offset".into(),
        "group" | "op" | "request" | "win" | "file" | "info" | "errhandler" | "message" | "session"
        | "status" => {
            format!("MPI_{}{}", name[..1].to_uppercase(), &name[1..])
        }
        // What is only a number.
        "int" | "rank" | "tag" | "flag" | "error" | "keyval" | "thread" | "order" | "distribution"
        | "darg" | "combiner" | "typeclass" | "comparison" | "topology" | "splittype" | "locktype"
        | "assert" | "amode" | "whence" | "verbosity" | "bind" | "scope" | "pvarclass" | "weights"
        | "errcodes" | "range" | "argc" => "int".into(),
        other if other.starts_with("char") => other.trim_end_matches('*').into(),
        other => format!("MPI_{}", other.trim_end_matches('*')),
    }
}

/// An argument as C declares it.
fn argument(argument: &Argument, large: bool) -> String {
    let kind = &argument.kind;
    let (element, name) = (element(argument, large), &argument.name);
    let said = kind.large.as_ref().filter(|_| large).unwrap_or(&kind.small);
    let stars = said.len() - said.trim_end_matches('*').len();
    let is_in = kind.flow == Flow::In;
    match said.as_str() {
        "buffer" if is_in => format!("const void *{name}"),
        // `MPI_Get_address` alone is given where something lies that it does not write to.
        "address" if name == "location" => format!("const void *{name}"),
        "buffer" | "address" => format!("void *{name}"),
        "text" if is_in => format!("const char *{name}"),
        "text" => format!("char *{name}"),
        "status" if is_in => format!("const MPI_Status *{name}"),
        "weights" if is_in => format!("const int {name}[]"),
        "weights" | "errcodes" => format!("int {name}[]"),
        "range" => format!("int {name}[][3]"),
        "argc" => format!("int *{name}"),
        _ if kind.array && stars > 0 => format!("{element} {}{name}[]", "*".repeat(stars)),
        _ if kind.length.as_deref() == Some("1") => format!("{element} *{name}"),
        _ if kind.array => format!("{}{element} {name}[]", if is_in { "const " } else { "" }),
        _ if is_in && stars > 0 => format!("{element} {}{name}", "*".repeat(stars)),
        _ if is_in => format!("{element} {name}"),
        _ => format!("{element} *{name}"),
    }
}

impl Function {
    /// Its declaration, with `MPI_` or `PMPI_` before its name.
    #[must_use]
    pub fn declaration(&self, prefix: &str, large: bool) -> String {
        let mut arguments: Vec<String> = self.arguments.iter().map(|one| argument(one, large)).collect();
        if self.variadic {
            arguments.push("...".into());
        }
        if arguments.is_empty() {
            arguments.push("void".into());
        }
        let result = self.result.as_deref().unwrap_or("int");
        let form = if large { "_c" } else { "" };
        format!("{result} {prefix}{}{form}({});", self.name, arguments.join(", "))
    }
}

/// All declarations, both forms of each.
#[must_use]
pub fn declarations(functions: &[Function], prefix: &str) -> String {
    let mut text = String::new();
    for function in functions {
        for large in [false, true] {
            if !large || function.has_large {
                text.push_str(&function.declaration(prefix, large));
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::functions;

    #[test]
    fn declarations_are_as_the_standard_has_them() {
        let all = functions().expect("well-formed");
        let say = |name: &str, large| {
            all.iter().find(|function| function.name == name).expect("there").declaration("MPI_", large)
        };
        assert_eq!(
            say("Send", false),
            "int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);"
        );
        assert_eq!(
            say("Recv", true),
            "int MPI_Recv_c(void *buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, \
             MPI_Status *status);"
        );
        assert_eq!(
            say("Get_address", false),
            "int MPI_Get_address(const void *location, MPI_Aint *address);"
        );
        assert_eq!(say("Finalize", false), "int MPI_Finalize(void);");
        assert_eq!(say("Wtime", false), "double MPI_Wtime(void);");
        assert_eq!(say("Pcontrol", false), "int MPI_Pcontrol(int level, ...);");
        assert_eq!(
            say("Waitall", false),
            "int MPI_Waitall(int count, MPI_Request array_of_requests[], MPI_Status array_of_statuses[]);"
        );
        assert_eq!(
            say("Type_create_struct", true),
            "int MPI_Type_create_struct_c(MPI_Count count, const MPI_Count array_of_blocklengths[], const MPI_Count \
             array_of_displacements[], const MPI_Datatype array_of_types[], MPI_Datatype *newtype);"
        );
    }
}
