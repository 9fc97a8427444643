//! The constants as a face that converts needs them: for each kind of handle and each meaning of a number two
//! functions, from the face's value to the standard's and back. Only of what is a number in that ABI.

use std::fmt::Write;

use crate::{Constant, Value};

/// Which ABI's values: a column of the table.
pub type Column = fn(&Constant) -> Option<&Value>;

/// Names of constants, and beginnings of names.
type Names = (&'static [&'static str], &'static [&'static str]);

/// What the constants of each meaning are called, without `MPI_`.
const MEANINGS: [(&str, Names); 24] = [
    ("rank", (&["ANY_SOURCE", "PROC_NULL", "ROOT", "UNDEFINED"], &[])),
    ("tag", (&["ANY_TAG"], &[])),
    ("error", (&["SUCCESS"], &["ERR_", "T_ERR_"])),
    (
        "keyval",
        (
            &[
                "KEYVAL_INVALID",
                "TAG_UB",
                "IO",
                "HOST",
                "WTIME_IS_GLOBAL",
                "APPNUM",
                "LASTUSEDCODE",
                "UNIVERSE_SIZE",
                "WIN_BASE",
                "WIN_DISP_UNIT",
                "WIN_SIZE",
                "WIN_CREATE_FLAVOR",
                "WIN_MODEL",
            ],
            &[],
        ),
    ),
    ("thread", (&[], &["THREAD_"])),
    ("order", (&[], &["ORDER_"])),
    ("distribution", (&["DISTRIBUTE_NONE", "DISTRIBUTE_BLOCK", "DISTRIBUTE_CYCLIC"], &[])),
    ("darg", (&["DISTRIBUTE_DFLT_DARG"], &[])),
    ("combiner", (&[], &["COMBINER_"])),
    ("typeclass", (&[], &["TYPECLASS_"])),
    ("comparison", (&["IDENT", "CONGRUENT", "SIMILAR", "UNEQUAL"], &[])),
    ("topology", (&["CART", "GRAPH", "DIST_GRAPH", "UNDEFINED"], &[])),
    ("splittype", (&["UNDEFINED"], &["COMM_TYPE_"])),
    ("locktype", (&[], &["LOCK_"])),
    ("assert", (&["MODE_NOCHECK", "MODE_NOPRECEDE", "MODE_NOPUT", "MODE_NOSTORE", "MODE_NOSUCCEED"], &[])),
    (
        "amode",
        (
            &[
                "MODE_APPEND",
                "MODE_CREATE",
                "MODE_DELETE_ON_CLOSE",
                "MODE_EXCL",
                "MODE_RDONLY",
                "MODE_RDWR",
                "MODE_SEQUENTIAL",
                "MODE_UNIQUE_OPEN",
                "MODE_WRONLY",
            ],
            &[],
        ),
    ),
    ("whence", (&[], &["SEEK_"])),
    ("displacement", (&["DISPLACEMENT_CURRENT"], &[])),
    ("flavor", (&[], &["WIN_FLAVOR_"])),
    ("verbosity", (&[], &["T_VERBOSITY_"])),
    ("bind", (&[], &["T_BIND_"])),
    ("scope", (&[], &["T_SCOPE_"])),
    ("pvarclass", (&[], &["T_PVAR_CLASS_"])),
    ("model", (&["WIN_UNIFIED", "WIN_SEPARATE"], &[])),
];

/// The meanings of which several are said at once, each by a bit.
const BITS: [&str; 2] = ["assert", "amode"];

/// Numbers that a face needs as they are in its ABI.
const PLAIN: [&str; 12] = [
    "MPI_BSEND_OVERHEAD",
    "MPI_VERSION",
    "MPI_SUBVERSION",
    "MPI_ERR_LASTCODE",
    "MPI_MAX_PROCESSOR_NAME",
    "MPI_MAX_ERROR_STRING",
    "MPI_MAX_OBJECT_NAME",
    "MPI_MAX_LIBRARY_VERSION_STRING",
    "MPI_MAX_INFO_KEY",
    "MPI_MAX_INFO_VAL",
    "MPI_MAX_PORT_NAME",
    "MPI_MAX_DATAREP_STRING",
];

fn has(constant: &Constant, (names, beginnings): Names) -> bool {
    let name = constant.name.strip_prefix("MPI_").unwrap_or(&constant.name);
    name != "ERR_LASTCODE" && (names.contains(&name) || beginnings.iter().any(|with| name.starts_with(with)))
}

/// What is a number in both ABIs: name, the face's value, the standard's.
fn pairs(
    constants: &[Constant],
    of: Column,
    which: impl Fn(&Constant) -> bool,
) -> impl Iterator<Item = (&str, i64, i64)> {
    constants.iter().filter(move |&constant| which(constant)).filter_map(move |constant| {
        match (of(constant), &constant.standard) {
            (Some(&Value::Number(face)), &Some(Value::Number(standard))) => {
                Some((&*constant.name, face, standard))
            }
            _ => None,
        }
    })
}

/// Of one meaning: name, the face's value, the standard's.
#[must_use]
pub fn meaning<'a>(constants: &'a [Constant], of: Column, meaning: &str) -> Vec<(&'a str, i64, i64)> {
    let names =
        MEANINGS.iter().find(|(name, _)| *name == meaning).map_or(Names::default(), |(_, names)| *names);
    pairs(constants, of, |constant| has(constant, names)).collect()
}

/// The handles of one type (`Comm`, …): name, the face's value, the standard's.
#[must_use]
pub fn handle<'a>(constants: &'a [Constant], of: Column, c_type: &str) -> Vec<(&'a str, i64, i64)> {
    pairs(constants, of, |constant| constant.c_type == c_type).collect()
}

/// The functions, `comm_in` and `comm_out` and so on, from `i64` to `Option<i64>`; those of bits, which are
/// all that are said, as lists; what is needed as it is, as constants.
#[must_use]
pub fn conversions(constants: &[Constant], of: Column) -> String {
    let mut text = String::new();
    for (kind, rust) in crate::rust::HANDLES {
        let pairs = handle(constants, of, rust);
        if !pairs.is_empty() {
            both(&mut text, if kind == "type" { "datatype" } else { kind }, &pairs);
        }
    }
    for (name, _) in MEANINGS {
        let pairs = meaning(constants, of, name);
        if BITS.contains(&name) {
            let list: Vec<String> =
                pairs.iter().map(|(_, face, standard)| format!("({face}, {standard})")).collect();
            let name = name.to_uppercase();
            let _ = writeln!(text, "pub const {name}: [(i64, i64); {}] = [{}];", list.len(), list.join(", "));
        } else {
            both(&mut text, name, &pairs);
        }
    }
    for constant in constants.iter().filter(|constant| PLAIN.contains(&&*constant.name)) {
        if let Some(Value::Number(number)) = of(constant) {
            let _ = writeln!(text, "pub const {}: i64 = {number};", constant.name);
        }
    }
    text
}

/// A value that has several names, in one ABI or the other, is converted to what the first one says.
fn both(text: &mut String, name: &str, pairs: &[(&str, i64, i64)]) {
    let function = |text: &mut String, way: &str, pairs: Vec<(i64, i64)>| {
        let _ = writeln!(
            text,
            "pub const fn {name}_{way}(value: i64) -> Option<i64> {{\n    Some(match value {{"
        );
        let mut said = std::collections::HashSet::new();
        for (from, to) in pairs.into_iter().filter(|(from, _)| said.insert(*from)) {
            let _ = writeln!(text, "        {from} => {to},");
        }
        text.push_str("        _ => return None,\n    })\n}\n");
    };
    function(text, "in", pairs.iter().map(|&(_, face, standard)| (face, standard)).collect());
    function(text, "out", pairs.iter().map(|&(_, face, standard)| (standard, face)).collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants;

    #[test]
    fn every_number_of_a_program_has_a_meaning_and_says_one_thing() {
        let all = constants().expect("well-formed");
        let columns: [Column; 2] = [|constant| constant.mpich.as_ref(), |constant| constant.openmpi.as_ref()];
        for of in columns {
            for (name, _) in MEANINGS {
                let pairs = meaning(&all, of, name);
                assert!(!pairs.is_empty(), "{name}");
                let (mut faces, mut standards): (Vec<_>, Vec<_>) =
                    pairs.iter().map(|&(_, face, standard)| (face, standard)).unzip();
                for values in [&mut faces, &mut standards] {
                    values.sort_unstable();
                    assert!(values.windows(2).all(|two| two[0] != two[1]), "{name}: {values:?}");
                }
                let is_bit = |value: &i64| value.count_ones() == 1;
                assert!(!BITS.contains(&name) || faces.iter().all(is_bit) && standards.iter().all(is_bit));
            }
        }
    }

    #[test]
    fn conversions_go_both_ways() {
        let text = conversions(&constants().expect("well-formed"), |constant| constant.mpich.as_ref());
        for says in [
            "pub const fn comm_in(value: i64) -> Option<i64> {\n",
            "        1140850688 => 257,\n",
            "        257 => 1140850688,\n",
            "pub const ASSERT: [(i64, i64); 5] = [(1024, 1024), ",
            "pub const MPI_ERR_LASTCODE: i64 = 1073741823;\n",
        ] {
            assert!(text.contains(says), "{says}");
        }
        // Of two names for one datatype there is one arm.
        assert_eq!(text.matches("        1275070528 => ").count(), 1);
    }
}
