//! `bdrun --check`: what a program has left when it ends MPI.

use std::io::Write;
use std::sync::Arc;

use crate::Mpi;
use crate::collectives::of_all;
use crate::comm::{Communicator, Form, World};
use crate::failure::Answer;

/// How many of a kind are named.
const NAMED: usize = 3;
/// Contexts of a communicator; the first is the program's.
const CONTEXTS: u32 = 4;

/// `2 files`, with the names of the first ones; nothing of none.
fn counted(count: usize, (one, several): (&str, &str), names: &[String]) -> Option<String> {
    let named: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    let more = if names.len() > NAMED { ", …" } else { "" };
    let names = if named.is_empty() { String::new() } else { format!(" ({}{more})", named.join("; ")) };
    (count > 0).then(|| format!("{count} {}{names}", if count == 1 { one } else { several }))
}

impl Mpi {
    /// Says what is left, if that was asked for. All ranks come first: what they have sent is here then.
    pub(crate) fn check(&self, world: &World) -> Answer<()> {
        if std::env::var_os("BDRUN_CHECK").is_none() {
            return Ok(());
        }
        let whom = of_all(&world.all);
        let meeting = world.all.meet(&**self.link()?, ("MPI_Finalize", Form::Blocking), &whom, &[])?;
        self.wait_meeting(&*meeting)?;
        self.progress()?;
        let left = self.left(world);
        if !left.is_empty() {
            let (rank, left) = (world.all.rank, left.join(", "));
            // If nobody reads it that changes nothing.
            let _ = writeln!(std::io::stderr(), "MPI, rank {rank}: left at MPI_Finalize: {left}");
        }
        Ok(())
    }

    fn left(&self, world: &World) -> Vec<String> {
        let comms = self.comms.all();
        let name = |comm: &Arc<Communicator>| {
            let name = comm.with(|state| String::from_utf8_lossy(&state.name).into_owned());
            if name.is_empty() { format!("of {} ranks", comm.group.size()) } else { name }
        };
        let of = |context: u32| {
            let all = comms.iter().chain([&world.all, &world.own]);
            let mut all = all.filter(|comm| comm.place().is_ok_and(|place| place.context == context));
            all.next().map_or_else(|| "a communicator that was freed".into(), name)
        };
        let forgotten: Vec<String> = self
            .forgotten()
            .into_iter()
            .filter(|(context, _)| context.is_multiple_of(CONTEXTS))
            .map(|(context, of_it)| {
                format!("from rank {}, tag {}, on {}", of_it.source, of_it.tag, of(context))
            })
            .collect();
        let names: Vec<String> = comms.iter().map(name).collect();
        let received = ("message that nobody received", "messages that nobody received");
        [
            counted(self.requests.all().len(), ("request", "requests"), &[]),
            counted(names.len(), ("communicator", "communicators"), &names),
            counted(self.types.left(), ("datatype", "datatypes"), &[]),
            counted(self.windows.all().len(), ("window", "windows"), &[]),
            counted(self.files.all().len(), ("file", "files"), &[]),
            counted(forgotten.len(), received, &forgotten),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_counted_and_named() {
        let names = |count: usize| (0..count).map(|n| format!("c{n}")).collect::<Vec<_>>();
        let said = |count, names: &[String]| counted(count, ("file", "files"), names);
        assert_eq!(said(0, &[]), None);
        assert_eq!(said(1, &[]).as_deref(), Some("1 file"));
        assert_eq!(said(2, &names(2)).as_deref(), Some("2 files (c0; c1)"));
        assert_eq!(said(5, &names(5)).as_deref(), Some("5 files (c0; c1; c2, …)"));
    }
}
