//! Which processes descend from a rank, where there is no cgroup to say so.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;

use super::proc;

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) pid: i32,
    /// A letter: `R`, `S`, `T`, `Z`, …
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    pub(super) threads: u32,
    /// Processor time of children that were waited for, clock ticks.
    pub(super) children_ticks: u64,
    /// When it was started, clock ticks since boot: together with the number the same only for the same
    /// process.
    pub(super) start: u64,
}

/// One process; none if it has gone.
pub(super) fn entry(pid: i32) -> Option<Entry> {
    read(pid, &mut Vec::with_capacity(512))
}

/// Whether all threads of a process are stopped, traced or have ended.
pub(super) fn stands(pid: i32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    tasks.flatten().all(|task| {
        let text = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // Behind the name, which may hold anything. None: it has just gone.
        text.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't', 'Z', 'X']))
    })
}

/// All processes of the machine that we can see, found by any of their relations.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<i32, Entry>,
    by_parent: HashMap<i32, Vec<i32>>,
    by_group: HashMap<i32, Vec<i32>>,
    by_session: HashMap<i32, Vec<i32>>,
}

impl Table {
    pub(super) fn read() -> io::Result<Self> {
        let mut buffer = Vec::with_capacity(1024);
        let mut table = Self::default();
        for name in fs::read_dir("/proc")? {
            if let Some(pid) = name?.file_name().to_str().and_then(|name| name.parse().ok()) {
                table.extend(read(pid, &mut buffer));
            }
        }
        Ok(table)
    }
}

impl Extend<Entry> for Table {
    fn extend<T: IntoIterator<Item = Entry>>(&mut self, entries: T) {
        for entry in entries {
            let pid = entry.pid;
            self.by_parent.entry(entry.parent).or_default().push(pid);
            self.by_group.entry(entry.group).or_default().push(pid);
            self.by_session.entry(entry.session).or_default().push(pid);
            self.entries.insert(pid, entry);
        }
    }
}

fn read(pid: i32, buffer: &mut Vec<u8>) -> Option<Entry> {
    proc::read(pid, "stat", buffer)?;
    parse(pid, buffer)
}

fn parse(pid: i32, text: &[u8]) -> Option<Entry> {
    // The name, in brackets, may hold anything, spaces and brackets too.
    let after = text.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&text[after..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // Fields 16 and 17 of proc_pid_stat(5); the next is field 7.
    let user: i64 = fields.nth(9)?.parse().ok()?;
    let system: i64 = fields.next()?.parse().ok()?;
    // Fields 20 and 22.
    let threads = fields.nth(2)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    let children_ticks = u64::try_from(user.saturating_add(system)).unwrap_or(0);
    Some(Entry { pid, state, parent, group, session, threads, children_ticks, start })
}

impl Entry {
    /// It has ended and waits for its parent, so it holds nothing. A leader that has ended before its threads
    /// has not.
    pub(super) fn ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// The processes of a rank and what is remembered of them.
#[derive(Debug)]
pub(super) struct Tree {
    leader: i32,
    /// The leader's start; none if it has gone before it was seen.
    start: Option<u64>,
    /// Who was a member at the last look: still one when its parent has ended and it belongs to somebody
    /// else.
    known: HashSet<(i32, u64)>,
}

impl Tree {
    pub(super) fn new(leader: i32) -> Self {
        Self { leader, start: entry(leader).map(|entry| entry.start), known: HashSet::new() }
    }

    /// Its members in this table, by number.
    pub(super) fn members(&mut self, table: &Table) -> Vec<i32> {
        let same = |pid: i32, start: u64| table.entries.get(&pid).is_some_and(|entry| entry.start == start);
        let mut open: Vec<i32> =
            self.known.iter().filter(|(pid, start)| same(*pid, *start)).map(|(pid, _)| *pid).collect();
        // As long as its leader has not been reaped nobody else gets its number, nor its group's, nor its
        // session's.
        if self.start.is_some_and(|start| same(self.leader, start)) {
            open.push(self.leader);
            let related = [table.by_group.get(&self.leader), table.by_session.get(&self.leader)];
            open.extend(related.into_iter().flatten().flatten());
        }
        let mut members = BTreeSet::new();
        while let Some(pid) = open.pop() {
            if members.insert(pid) {
                open.extend(table.by_parent.get(&pid).into_iter().flatten());
            }
        }
        let found = members.iter().filter_map(|pid| table.entries.get(pid));
        self.known = found.clone().map(|entry| (entry.pid, entry.start)).collect();
        found.filter(|entry| !entry.ended()).map(|entry| entry.pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32, session: i32) -> Entry {
        let start = pid as u64;
        Entry { pid, state: b'S', parent, group, session, threads: 1, children_ticks: 0, start }
    }

    fn table(entries: &[Entry]) -> Table {
        let mut table = Table::default();
        table.extend(entries.iter().copied());
        table
    }

    fn tree(leader: i32) -> Tree {
        Tree { leader, start: Some(leader as u64), known: HashSet::new() }
    }

    #[test]
    fn a_line_of_stat_is_understood() {
        let line = b"42 (a ) b) S 7 42 40 0 -1 4194304 1 2 3 4 50 60 11 13 20 0 3 0 99887 1000 2 ...";
        let expected = Entry {
            pid: 42,
            state: b'S',
            parent: 7,
            group: 42,
            session: 40,
            threads: 3,
            children_ticks: 24,
            start: 99_887,
        };
        assert_eq!(parse(42, line), Some(expected));
        assert_eq!(parse(42, b"42 (x"), None);
        let own = entry(std::process::id() as i32).expect("we live");
        assert_eq!(own.parent, nix::unistd::getppid().as_raw());
    }

    #[test]
    fn descendants_group_and_session_belong() {
        let all = [
            process(1, 0, 1, 1),
            process(10, 1, 10, 1),
            // A child, its child in a session of its own, and one that has lost its parent but not its group.
            process(11, 10, 10, 1),
            process(12, 11, 12, 12),
            process(13, 1, 10, 1),
            process(20, 1, 20, 20),
        ];
        assert_eq!(tree(10).members(&table(&all)), [10, 11, 12, 13]);
    }

    #[test]
    fn whoever_was_a_member_stays_one() {
        let mut tree = tree(10);
        tree.members(&table(&[process(1, 0, 1, 1), process(10, 1, 10, 1), process(12, 10, 12, 12)]));
        // The leader has ended, its number belongs to somebody else; the child has a child by now.
        let stranger = Entry { start: 500, ..process(10, 1, 10, 10) };
        let now = [process(1, 0, 1, 1), stranger, process(12, 1, 12, 12), process(14, 12, 14, 14)];
        assert_eq!(tree.members(&table(&now)), [12, 14]);
        // Their numbers again, but other processes.
        let later = [process(1, 0, 1, 1), Entry { start: 900, ..process(12, 1, 12, 12) }];
        assert_eq!(tree.members(&table(&later)), [0; 0]);
    }
}
