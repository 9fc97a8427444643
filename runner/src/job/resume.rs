//! What was done before the job began, what of it has ended, and what is left: the job's side of
//! [`crate::journal`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::ended::Tally;
use super::record::Record;
use super::setup::Setup;
use super::{Elsewhere, Job, Message};
use crate::cli::{self, Halt, Options};
use crate::exit::Ending;
use crate::in_use;
use crate::journal::{self, Done, Ended, Journal};
use crate::post::Post;
use crate::residency::{Event, Next};
use crate::stats::ProcessStats;
use crate::supervisor;

/// In the statistics, of a rank that was done before the job began.
pub(super) const EARLIER: &str = "earlier";

/// An option that was given and is for independent ranks.
fn for_those_alone(options: &Options) -> Option<&'static str> {
    let given = &options.launch;
    let asked = [
        ("--journal", options.journal.journal.is_some()),
        ("--resume", options.journal.resume.is_some()),
        ("--retry", given.retry > 0),
        ("--retry-memory", given.retry_memory > 0),
        ("--rank-timeout", given.rank_timeout.is_some()),
        ("--rerun", given.rerun),
        ("--keep-going", given.keep_going),
        ("--halt", given.halt.is_some_and(|halt| halt != Halt::FIRST)),
    ];
    asked.into_iter().find_map(|(option, asked)| asked.then_some(option))
}

/// How a rank that began ended, in a word.
pub(super) fn status(record: &Record) -> &str {
    let began = record.pid.is_some();
    record.status.as_deref().unwrap_or(if began { "stopped" } else { "unborn" })
}

fn not_alone(option: &str, who: &str) -> Ending {
    Ending::Usage(format!(
        "{option} is for independent ranks; {who} (of an MPI, or of bdrun's own runtime) may talk to one another, and what \
         one has done is nothing without the rest"
    ))
}

/// What was asked for is for independent ranks, if these are.
pub(super) fn check(options: &Options, alone: bool) -> Result<(), Ending> {
    match for_those_alone(options).filter(|_| !alone) {
        Some(option) => Err(not_alone(option, "those of this program")),
        None => Ok(()),
    }
}

/// The journal that was asked for, and who is done. Of ranks that are dealt out the first node's master has
/// it.
pub(super) fn open(
    options: &Options,
    setup: &Setup,
    is_first: bool,
    post: &Post<Message>,
) -> Result<(Journal, Vec<Done>), Ending> {
    if setup.deals && !is_first {
        return Ok((Journal::elsewhere(options), vec![]));
    }
    let post = post.clone();
    let here = if setup.segment.is_spread() { setup.segment.here() } else { 0..setup.launch.np() };
    Journal::open(options, &setup.launch, here, move |written| {
        // Nobody to hear it: the job has ended.
        let _ = post.leave(Message::Journal(written));
    })
}

impl Job<'_> {
    /// These need not run.
    pub(super) fn skip(&mut self, done: &[Done]) {
        for &Done { rank, peak, .. } in done {
            self.ranks[rank as usize].status = Some(EARLIER.into());
            self.supervisor.is_over(rank);
            // One that the core has not heard of yet is begun after that.
            if !self.core.was_done_before(rank, peak) {
                self.events.push(Event::Exited { rank, peak, next: Next::Over });
            }
            self.retire(rank);
        }
        if !done.is_empty() {
            let (done, np) = (done.len(), self.np());
            self.note(&format!("{done} of {np} ranks were done before, and are not run again"));
        }
        let mut changed = done.iter().filter(|done| done.changed);
        if let Some(path) = changed.next().and_then(|first| self.setup.launch.output(first.rank)) {
            let others = match changed.count() {
                0 => String::new(),
                count => format!(" (and {count} others)"),
            };
            self.note(&format!(
                "{}{others} was changed after its rank had written it, and is taken as it is: whoever removes it has it made again",
                path.display()
            ));
        }
    }

    /// A rank has turned out to be one of those that may talk to others: behind a script, say.
    pub(super) fn is_not_alone(&mut self, rank: u32) {
        if let Some(option) = for_those_alone(self.options) {
            self.end(not_alone(option, &format!("{} and others like it", self.who(rank))));
        }
    }

    /// The file that a rank writes for `path`, the name of its standard output, until it has ended well; and
    /// whether that is not `path` itself, as it is where that is no file of the rank's own (a device).
    pub(super) fn written_to(&self, rank: u32, path: PathBuf) -> (PathBuf, bool) {
        let output = self.journal.writes_aside().then(|| self.setup.launch.output(rank));
        let Some(output) = output.flatten() else { return (path, false) };
        let aside = journal::aside(&output);
        // A file of its own: what is left of an earlier try, of this job or of one that was killed a moment
        // ago, may still write to the one that is there. If there is none, or it cannot be removed, it is
        // made or emptied; if it is another job's, that is told when it is opened.
        if aside.symlink_metadata().is_ok() && in_use::first(std::iter::once(aside.clone())).is_none() {
            let _ = std::fs::remove_file(&aside);
        }
        (aside, true)
    }

    /// A rank has ended that lived since then.
    pub(super) fn write_down(
        &mut self,
        rank: u32,
        ending: supervisor::Ending,
        born: Option<Instant>,
        peak: u64,
    ) {
        let (exit, signal) = match ending {
            supervisor::Ending::Code(code) => (code, 0),
            supervisor::Ending::Signal { signal, .. } => (0, signal),
        };
        let lived = born.map_or(Duration::ZERO, |born| born.elapsed());
        let record = &self.ranks[rank as usize];
        let ended = Ended {
            exit,
            signal,
            // It was told to end, so what it says of itself does not count.
            stopped: self.escalation.ending() || record.overdue.is_some() || record.failed,
            began: SystemTime::now() - lived,
            lived,
            peak,
            file: record.output,
        };
        let start = ended.began.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let process = ProcessStats { start, end: start + lived.as_secs_f64(), exit_code: exit, signal };
        self.ranks[rank as usize].process = Some(process);
        self.try_has_ended(rank, ended);
    }

    /// What a rank is called.
    pub(super) fn who(&self, rank: u32) -> String {
        self.setup.launch.name(rank).unwrap_or_else(|| format!("rank {rank}"))
    }

    /// Of a job that did not come to its end: how far it came, and how it goes on.
    pub(super) fn say_what_is_left(&self) {
        let ended_well = self.ending.as_ref().is_some_and(Ending::is_success);
        let unread = matches!(self.ending, Some(Ending::Interrupted { signal: 13 }));
        let np = self.np();
        let is_first = self.elsewhere.as_ref().is_none_or(Elsewhere::is_first);
        if ended_well || unread || !self.setup.alone || np == 1 || (self.setup.deals && !is_first) {
            return;
        }
        let mut tally = self.ended.tally;
        for (_, record) in self.ranks.iter() {
            tally.add(self::status(record));
        }
        if let Some(dealt) = &self.dealt {
            // Whether those that others have had not told of had begun is not known here.
            (tally.well, tally.failed, tally.stopped) = (self.well, self.failures, dealt.given());
        }
        let Tally { earlier, failed, stopped, .. } = tally;
        let well = earlier + tally.well;
        let unborn = np.saturating_sub(well + failed + stopped);
        if unborn == np {
            return;
        }
        let known = if self.np_is_known { "" } else { " known so far" };
        let mut text = format!("of {np} ranks{known} {well} ended well");
        if earlier > 0 {
            text.push_str(&format!(" ({earlier} of them before)"));
        }
        for (count, what) in [(failed, "failed"), (stopped, "were stopped"), (unborn, "never began")] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        text.push_str(&match self.options.journal.path() {
            Some(_) => format!("; to go on: {}", going_on(self.options.line())),
            None => "; with --journal FILE it could go on from there".into(),
        });
        self.note(&text);
    }
}

/// The command line that goes on with a job: bdrun's own `--journal`, which is the first, is `--resume`
/// there. (The program's are its business.)
fn going_on(line: &[OsString]) -> String {
    let mut words = line.to_vec();
    let journal = |word: &OsString| {
        let value = word.as_bytes().strip_prefix(b"--journal")?;
        (value.is_empty() || value[0] == b'=').then(|| OsStr::from_bytes(value).to_owned())
    };
    let resumes = |word: &OsString| word == "--resume" || word.as_bytes().starts_with(b"--resume=");
    if let Some(word) = words.iter_mut().find(|word| resumes(word) || journal(word).is_some())
        && let Some(value) = journal(word)
    {
        *word = "--resume".into();
        word.push(value);
    }
    cli::for_the_shell(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_goes_on() {
        let line = |text: &str| going_on(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(line("bdrun --journal j --parts l wc {}"), "bdrun --resume j --parts l wc '{}'");
        assert_eq!(line("bdrun --journal=j wc"), "bdrun '--resume=j' wc");
        assert_eq!(line("bdrun --resume j wc"), "bdrun --resume j wc");
        let path = OsStr::from_bytes(b"--journal=j\xff").to_owned();
        assert_eq!(going_on(&["bdrun".into(), path, "wc".into()]), "bdrun $'--resume=j\\377' wc");
        let own = "bdrun --journal j -- tool --journal x";
        assert_eq!(line(own), "bdrun --resume j -- tool --journal x");
        assert_eq!(line(&own.replacen("journal", "resume", 1)), "bdrun --resume j -- tool --journal x");
    }
}
