//! Whether a journal is of this job, and who of it is done.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use twox_hash::XxHash3_64;

use super::Done;
use super::record::{Contents, End, Stamp};
use crate::exit::Ending;
use crate::launch::{Given, Launch};

/// What makes a job the one it is, option by option; parts may be added to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub job: Vec<(String, String)>,
}

impl Identity {
    pub fn of(launch: &Launch) -> Result<Self, Ending> {
        let here = std::env::current_dir()
            .map_err(|error| Ending::Setup(format!("where bdrun is cannot be said: {error}")))?;
        let mut job = launch.described();
        job.push(("the directory it runs in".into(), here.display().to_string()));
        Ok(Self { job })
    }

    /// Which ranks need not run, and what they wrote.
    ///
    /// # Errors
    /// [`Ending::Usage`] if it is another job, with the first difference.
    pub fn done(
        &self,
        contents: &Contents,
        launch: &Launch,
        option: &str,
        path: &Path,
    ) -> Result<Vec<(Done, Option<Stamp>)>, Ending> {
        let Some(header) = &contents.header else { return Ok(Vec::new()) };
        if let Some(difference) = difference(&header.job, &self.job) {
            return Err(Ending::Usage(format!(
                "{option}: {} is of another job: {difference}; name another journal to begin anew",
                path.display()
            )));
        }
        // Who wrote each output last: what others had written under that name is gone.
        let well = contents.ends.iter().filter(|end| end.is_well());
        let last: HashMap<u64, &End> = well.filter_map(|end| Some((end.output?, end))).collect();
        let lasts = |end: &End| {
            let last = end.output.and_then(|output| last.get(&output));
            last.is_none_or(|last| (Key::of_end(last), last.given) == (Key::of_end(end), end.given))
        };
        let mut ended: HashMap<Key<'_>, Vec<&End>> = HashMap::new();
        for end in &contents.ends {
            let of_part = ended.entry(Key::of_end(end)).or_default();
            if end.is_well() && !lasts(end) {
                continue;
            } else if end.is_well() {
                of_part.push(end);
            } else if end.revoked {
                take(of_part, end.given);
            }
        }
        let mut done = Vec::new();
        let mut left = Vec::new();
        for rank in 0..launch.np() {
            // Of parts that are there several times, as many as have ended.
            let Some(of_part) = ended.get_mut(&Key::of(launch.part(rank), rank)) else { continue };
            match take(of_part, hash_of(&launch.given(rank))) {
                Some(end) => done.push((Done { rank, peak: end.peak, changed: false }, end.wrote)),
                None => left.push(rank),
            }
        }
        for rank in left {
            if let Some(end) = ended.get(&Key::of(launch.part(rank), rank)).and_then(|ends| ends.first()) {
                return Err(Ending::Usage(format!(
                    "{option}: {} has {} as rank {}, and now it is rank {rank}, on which its command, environment or files depend \
                     ({{rank}}, {{#}}, {{size}}): put new parts behind the others, or name files by the part",
                    path.display(),
                    launch.name(rank).unwrap_or_else(|| format!("rank {rank}")),
                    end.rank,
                )));
            }
        }
        Ok(done)
    }
}

/// Takes the first that was given the same.
fn take<'a>(ends: &mut Vec<&'a End>, given: u64) -> Option<&'a End> {
    let at = ends.iter().position(|end| end.given == given)?;
    Some(ends.remove(at))
}

/// By what a part is known again: its text, else its number.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    Part(Cow<'a, str>),
    Rank(u32),
}

impl<'a> Key<'a> {
    fn of(part: Option<impl Into<Cow<'a, str>>>, rank: u32) -> Self {
        part.map_or(Self::Rank(rank), |part| Self::Part(part.into()))
    }

    fn of_end(end: &'a End) -> Self {
        Self::of(end.part.as_deref(), end.rank)
    }
}

/// The first option that is not as it was, in words.
fn difference(then: &[(String, String)], now: &[(String, String)]) -> Option<String> {
    let value = |of: &[(String, String)], name: &str| {
        of.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    };
    let names = then.iter().chain(now).map(|(name, _)| name);
    let quoted = |value: Option<String>| value.map_or("nothing".into(), |value| format!("\"{value}\""));
    names.into_iter().find_map(|name| {
        let (then, now) = (value(then, name), value(now, name));
        (then != now).then(|| format!("{name} was {}, and is {}", quoted(then), quoted(now)))
    })
}

/// A hash of the name of an output, the same on any machine and for ever.
pub(super) fn hash_of_name(path: &Path) -> u64 {
    XxHash3_64::oneshot(path.as_os_str().as_bytes())
}

/// A hash of all that a rank is given, the same on any machine and for ever.
pub(super) fn hash_of(given: &Given) -> u64 {
    let mut bytes = Vec::new();
    let mut add = |text: Option<&OsStr>| {
        // Lengths keep texts apart; what is not there has one that nothing has.
        let text = text.map(OsStrExt::as_bytes);
        bytes.extend_from_slice(&text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text.unwrap_or_default());
    };
    add(Some(&given.program));
    given.args.iter().for_each(|arg| add(Some(arg)));
    add(None);
    given.env.iter().for_each(|(name, value)| [name, value].into_iter().for_each(|text| add(Some(text))));
    add(None);
    for path in [&given.directory, &given.stdin, &given.stdout, &given.stderr] {
        add(path.as_deref().map(Path::as_os_str));
    }
    XxHash3_64::oneshot(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::record::{Header, VERSION};

    fn launch(parts: &[&str], command: &str) -> Launch {
        crate::launch::tests::of_parts(&parts.join("\n"), command).unwrap()
    }

    fn end(launch: &Launch, rank: u32, exit: i32) -> End {
        let given = hash_of(&launch.given(rank));
        let part = launch.part(rank);
        let peak = 7 + u64::from(rank);
        let (signal, stopped, revoked) = (0, false, false);
        let (begin, seconds, output, wrote) = (1.0, 1.0, launch.output(rank).map(|p| hash_of_name(&p)), None);
        End { rank, part, given, exit, signal, stopped, revoked, begin, seconds, peak, output, wrote }
    }

    fn revoked(launch: &Launch, rank: u32) -> End {
        End::revocation(rank, launch.part(rank), hash_of(&launch.given(rank)))
    }

    fn journal(launch: &Launch, ends: Vec<End>) -> Contents {
        let job = Identity::of(launch).unwrap().job;
        Contents { header: Some(Header { bdrun_journal: VERSION, job }), ends, len: 0 }
    }

    fn done(contents: &Contents, launch: &Launch) -> Result<Vec<u32>, String> {
        let done = Identity::of(launch).unwrap().done(contents, launch, "--resume", Path::new("j"));
        done.map(|done| done.iter().map(|(done, _)| done.rank).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn who_ended_well_is_done_whatever_was_added_and_moved() {
        let before = launch(&["a", "b", "c"], "wc {}");
        let contents = journal(&before, vec![end(&before, 2, 0), end(&before, 1, 3), end(&before, 0, 0)]);
        assert_eq!(done(&contents, &before).unwrap(), [0, 2]);
        assert_eq!(done(&contents, &launch(&["z", "c", "d", "a"], "wc {}")).unwrap(), [1, 3]);
        assert!(done(&Contents::default(), &before).unwrap().is_empty());
    }

    #[test]
    fn who_failed_first_and_was_run_again_is_done() {
        let job = launch(&["a"], "wc {}");
        assert_eq!(done(&journal(&job, vec![end(&job, 0, 1), end(&job, 0, 0)]), &job).unwrap(), [0]);
    }

    #[test]
    fn the_same_part_twice_is_done_as_often_as_it_ended() {
        let job = launch(&["a", "a", "a"], "wc {}");
        assert_eq!(done(&journal(&job, vec![end(&job, 1, 0), end(&job, 2, 0)]), &job).unwrap(), [0, 1]);
    }

    #[test]
    fn who_was_to_run_again_is_done_from_its_next_end_on() {
        let job = launch(&["a", "b"], "wc {}");
        let mut ends = vec![end(&job, 0, 0), end(&job, 1, 0), revoked(&job, 0)];
        assert_eq!(done(&journal(&job, ends.clone()), &job).unwrap(), [1]);
        ends.push(end(&job, 0, 1));
        assert_eq!(done(&journal(&job, ends.clone()), &job).unwrap(), [1]);
        ends.push(end(&job, 0, 0));
        assert_eq!(done(&journal(&job, ends), &job).unwrap(), [0, 1]);
    }

    /// Of two that wrote one file, one after the other, the last one's is there.
    #[test]
    fn who_wrote_what_another_has_written_since_is_not_done() {
        let [first, second] = ["a 1", "a 2"].map(|part| end(&launch(&[part], "wc {}"), 0, 0));
        let job = launch(&["a 1"], "wc {}");
        let of = |ends: &[&End]| {
            let ends = ends.iter().map(|&end| End { output: Some(7), ..end.clone() }).collect();
            done(&journal(&job, ends), &job)
        };
        let failed = End { exit: 1, ..second.clone() };
        assert_eq!(of(&[&first]).unwrap(), [0]);
        assert_eq!(of(&[&first, &failed]).unwrap(), [0]);
        assert!(of(&[&first, &second]).unwrap().is_empty());
        assert_eq!(of(&[&first, &second, &first]).unwrap(), [0]);
    }

    /// Files by the rank: it is the rank whose file is there that is done.
    #[test]
    fn of_the_same_part_twice_each_is_known_by_what_it_was_given() {
        let job = launch(&["a", "a", "a"], "wc {} {rank}");
        let mut ends = vec![end(&job, 1, 0), end(&job, 2, 0)];
        assert_eq!(done(&journal(&job, ends.clone()), &job).unwrap(), [1, 2]);
        ends.push(revoked(&job, 2));
        assert_eq!(done(&journal(&job, ends), &job).unwrap(), [1]);
    }

    #[test]
    fn another_job_is_refused_with_the_difference() {
        let before = launch(&["a", "b"], "wc -c {}");
        let contents = journal(&before, vec![end(&before, 0, 0)]);
        let error = done(&contents, &launch(&["a", "b"], "wc -l {}")).unwrap_err();
        assert!(error.contains("the command was \"wc -c '{}'\", and is \"wc -l '{}'\""), "{error}");
        let numbered = launch(&["a", "b"], "wc {} {rank}");
        let contents = journal(&numbered, vec![end(&numbered, 0, 0)]);
        let error = done(&contents, &launch(&["z", "a"], "wc {} {rank}")).unwrap_err();
        assert!(error.contains("rank 0, and now it is rank 1"), "{error}");
    }

    #[test]
    fn all_that_is_given_counts() {
        let given = launch(&["a"], "wc {}").given(0);
        let mut seen = std::collections::HashSet::from([hash_of(&given)]);
        for change in [
            |given: &mut Given| given.args.push("".into()),
            |given: &mut Given| given.env.push(("A".into(), "".into())),
            |given: &mut Given| given.stdin = Some("".into()),
            |given: &mut Given| given.stdout = Some("".into()),
            |given: &mut Given| given.directory = Some("x".into()),
            |given: &mut Given| given.program = "w".into(),
        ] {
            let mut other = given.clone();
            change(&mut other);
            assert!(seen.insert(hash_of(&other)), "{other:?}");
        }
        assert_eq!(hash_of(&given), 16_185_689_131_059_762_565, "the same for ever");
    }
}
