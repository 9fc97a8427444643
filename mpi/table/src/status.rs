//! What `docs/mpi-status.md` says of each function.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::Function;

/// In the page, what is written by hand ends here.
pub const MARK: &str = "<!-- From here on generated: mpi/abi/tests/status.rs -->\n";

/// What a chapter is about.
fn title(chapter: &str) -> String {
    let mut letters = chapter.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Some functions by name.
fn names<'a>(functions: impl Iterator<Item = &'a Function>) -> String {
    let name = |function: &Function| {
        let large = if function.has_large { " (`_c`)" } else { "" };
        format!("`MPI_{}`{large}", function.name)
    };
    functions.map(name).collect::<Vec<_>>().join(", ")
}

/// The generated part: of each chapter what is implemented, and what is not.
#[must_use]
pub fn chapters(functions: &[Function], unsupported: &BTreeSet<String>) -> String {
    let is_missing = |function: &&Function| unsupported.contains(&function.name);
    let mut table = "| chapter | functions | implemented |\n|---|---|---|\n".to_owned();
    let mut text = String::new();
    for chapter in functions.chunk_by(|one, other| one.chapter == other.chapter) {
        let title = title(&chapter[0].chapter);
        let there = chapter.iter().filter(|one| !is_missing(one)).count();
        let _ = writeln!(table, "| {title} | {} | {there} |", chapter.len());
        let _ = writeln!(text, "\n## {title}");
        if there > 0 {
            let _ = writeln!(text, "Implemented: {}.", names(chapter.iter().filter(|one| !is_missing(one))));
        }
        if there < chapter.len() {
            let gap = if there > 0 { "\n" } else { "" };
            let _ = writeln!(text, "{gap}Not implemented: {}.", names(chapter.iter().filter(is_missing)));
        }
    }
    let (all, missing) = (functions.len(), functions.iter().filter(is_missing).count());
    let _ = writeln!(table, "| together | {all} | {} |", all - missing);
    table + &text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_is_said_to_be_there_or_not() {
        let all = crate::functions().expect("well-formed");
        let missing = ["Comm_spawn", "Send"].map(str::to_owned).into();
        let page = chapters(&all, &missing);
        for function in &all {
            let name = format!("`MPI_{}`", function.name);
            let lines: Vec<_> = page.lines().filter(|line| line.contains(&name)).collect();
            assert_eq!(lines.len(), 1, "{name}");
            assert_eq!(lines[0].starts_with("Not"), missing.contains(&function.name), "{name}");
        }
        assert!(page.contains("\nNot implemented: `MPI_Send` (`_c`).\n"));
        assert!(page.contains(&format!("| together | {} | {} |", all.len(), all.len() - 2)));
    }
}
