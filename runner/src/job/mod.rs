//! A job from beginning to end: the shell around the pure core [`Core`], which says who is in RAM.
//!
//! One thread (the caller's) owns everything. Others only leave messages by its post: the supervisor's, one
//! that listens to the control sockets. It takes what there is, tells the core, carries out its orders, and
//! sleeps until the bell in the shared segment rings, which ranks ring themselves.
//!
//! | file | what |
//! |---|---|
//! | `setup.rs` | what must be there before the first rank: program, budget, segment |
//! | `scratch.rs` | the scratch directories |
//! | `happenings.rs` | what happens to processes |
//! | `ends.rs` | what the end of a rank does to the job |
//! | `listen.rs` | what it is told, and the thread that listens to the control sockets |
//! | `observe.rs` | what state words tell the core |
//! | `measured.rs`, `accounts.rs` | what looks at memory tell the core, and what of the budget is taken for that |
//! | `orders.rs` | who carries out an order: a rank's own runtime (`own.rs`), or a thread that holds it (`other.rs`, `shrink.rs`), or both (`besides.rs`) |
//! | `record.rs`, `watch.rs` | what is kept of each rank, and of all that are measured |
//! | `ended.rs` | what is kept of those that have ended |
//! | `blocks.rs` | where in the shared segment a rank is |
//! | `come.rs` | parts that come while the job runs |
//! | `preload.rs` | which programs `libsbmalloc.so` is put in front of |
//! | `mpi.rs`, `linked.rs` | our MPI, in front of the one that a program is linked to |
//! | `chaos.rs` | `--chaos`: evictions that nobody needs |
//! | `asked.rs` | what is answered to whoever looks at it |
//! | `describe.rs` | what a rank is doing, in words |
//! | `plan.rs` | `--dry-run` |
//! | `report.rs` | progress and the final account |
//! | `recorded.rs` | what happened when, and the files made of it |
//! | `elsewhere.rs` | the other nodes of the job |
//! | `dealt.rs` | ranks that are dealt out over them |
//! | `elastic.rs` | the budget that follows what is there |
//! | `resume.rs` | what was done before, what is left, and what of it is written down |
//! | `learned.rs` | what earlier runs say of it, and what it adds to that |
//! | `output.rs` | how long the end waits for whoever reads what ranks and bdrun have printed |
//!
//! This thread never waits for a reader: ranks' lines are written by the supervisor's threads, what bdrun
//! shows by that of [`Screen`], and where the end has to wait for them, signals and the time limit are heard.

mod accounts;
mod asked;
mod besides;
mod blocks;
mod chaos;
mod come;
mod dealt;
mod describe;
mod elastic;
mod elsewhere;
mod ended;
mod ends;
mod gone;
mod happenings;
mod learned;
mod linked;
mod listen;
mod measured;
mod mpi;
mod observe;
mod orders;
mod other;
mod output;
mod own;
mod plan;
mod preload;
mod record;
mod recorded;
mod report;
mod resume;
mod scratch;
mod setup;
mod shrink;
mod stdin;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant, SystemTime};

use bdrun_ipc::segment::monotonic_ns;

use crate::attach::Server;
use crate::cli::{MAX_RANKS, Options};
use crate::display::{self, Screen};
use crate::exit::Ending;
use crate::history::History;
use crate::journal::Journal;
use crate::launch::{Launch, Window};
use crate::post::{Letters, post};
use crate::residency::{Core, Effect, Event};
use crate::supervisor::{self, Escalation, EscalationEffect, EscalationEvent, Supervisor};
use chaos::Chaos;
use dealt::Dealt;
use elastic::Follow;
use elsewhere::{Elsewhere, Place};
use ended::Ended;
use gone::Gone;
use listen::{Listener, Message};
use output::Unwritten;
use record::Records;
use report::Finished;
use setup::Setup;
use watch::Watch;

/// What ranks get to end after a signal or a time limit.
const GRACE: Duration = Duration::from_secs(5);
/// What they get after another rank has failed.
const FAILURE_GRACE: Duration = Duration::from_millis(200);
/// How long the others may go on after a rank has failed by itself: where all of them have the error, one of
/// them prints it.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// How long nothing must have happened before a job is given up.
const SETTLE: Duration = Duration::from_millis(50);
/// Nothing has happened for so long, though ranks may compute: it is looked whether all that they told was
/// heard.
const STILL: Duration = Duration::from_secs(1);
/// How often the live line is drawn.
const TICK: Duration = Duration::from_millis(200);
/// No rank waits longer for its turn to begin (`--delay`).
const LONGEST_DELAY: Duration = Duration::from_secs(100 * 365 * 86_400);
/// How long the end of a job that was killed may take.
const KILLED_PATIENCE: Duration = Duration::from_secs(5);
type SharedOutput = Screen;

struct Job<'a> {
    options: &'a Options,
    setup: Setup,
    core: Core,
    supervisor: Supervisor,
    escalation: Escalation,
    listener: Listener,
    /// Whoever looks at the job asks there; none if there can be none.
    _server: Option<Server>,
    letters: Letters<Message>,
    output: SharedOutput,
    ranks: Records,
    ended: Ended,
    /// Of a list that is read while the job runs, how many parts may still be read; none once all are.
    coming: Option<Arc<Window>>,
    /// Of `--pipe`.
    piped: come::Piped,
    /// It was known how many ranks there are before the first began.
    np_is_known: bool,
    /// What the ranks that have not ended are known to take, seconds in all, and of how many that is known.
    known_left: (f64, u32),
    /// Events for the core, in order.
    events: Vec<Event>,
    /// The first thing that decided how the job ends.
    ending: Option<Ending>,
    /// When those that still live are asked to end.
    silence: Option<Instant>,
    /// When all were killed.
    killed: Option<Instant>,
    begin: Instant,
    /// The same by the clock that ranks share.
    began_ns: u64,
    alive: u32,
    most_alive: u32,
    most_resident: u32,
    largest_rank: u64,
    /// Ranks that failed (and others went on), and how the first of them did.
    failures: u32,
    /// Ranks that ended well.
    well: u32,
    /// Nobody else is begun.
    halted: bool,
    first_failure: Option<Ending>,
    /// What is measured of ranks.
    watch: Watch,
    /// Bytes of the pool that are taken for the growth of what is measured.
    kept_free: u64,
    /// Bytes that threads of ranks wait for beside those that wait as ranks.
    lacks: u64,
    /// It was said that more is used than there is, or that more ranks are in RAM than were to be.
    told_overdraft: bool,
    told_crowd: bool,
    journal: Journal,
    chaos: Chaos,
    meter: report::Meter,
    work: report::Work,
    /// The other nodes.
    elsewhere: Option<Elsewhere>,
    /// Where ranks are dealt out over them.
    dealt: Option<Dealt>,
    /// What was asked and other nodes have not answered.
    questions: asked::Questions,
    /// The budget follows what is there.
    follow: Option<Follow>,
    /// Ranks that are to begin, with what is set aside for them, and when the next may.
    delayed: VecDeque<(u32, u64)>,
    next_start: Option<Instant>,
    /// What happened when, if a picture of that was asked for.
    history: Option<History>,
}

/// Run a job; the exit code.
pub fn run(mut options: Options) -> u8 {
    let (begin, began) = (Instant::now(), SystemTime::now());
    supervisor::keep_ended_children();
    supervisor::outlive_file_limit();
    let screen = match Screen::start(display::new(options.output_kind(), options.verbose), || {
        display::is_read(std::io::stderr())
    }) {
        Ok(screen) => screen,
        Err(error) => {
            let ending = Ending::Setup(format!("cannot start a thread: {error}"));
            let stats = report::without_ranks(&options, &ending, begin);
            display::new(options.output_kind(), options.verbose).finish(&stats, &ending);
            return ending.code();
        }
    };
    let launch = Launch::new(&mut options).and_then(|launch| setup::know_all(launch, &mut options));
    let options = &options;
    let launch = if options.launch.dry_run {
        launch.and_then(|launch| plan::dry_run(launch, options))
    } else {
        launch
    };
    if options.launch.dry_run && launch.is_ok() {
        return Ending::Success.code();
    }
    // What is to be written at the end can be written: better said now.
    let writable = options.stats.as_deref().map_or(Ok(()), crate::stats::Stats::check);
    let writable = writable.map_err(|error| ("--stats", error)).and_then(|()| recorded::check(options));
    let started_well = writable.is_ok();
    let launch = launch.and_then(|launch| match writable {
        Ok(()) => Ok(launch),
        Err((option, error)) => Err(Ending::Setup(format!("{option}: {error}"))),
    });
    let mut met = None;
    let started = launch.and_then(|launch| Job::start(options, launch, screen.clone(), begin, &mut met));
    let Finished { mut stats, mut ending, until, history, is_first, elsewhere } = match started {
        Ok(mut job) => {
            job.drive();
            job.finish()
        }
        Err(ending) => {
            let stats = report::without_ranks(options, &ending, begin);
            Finished { stats, ending, until: None, history: None, is_first: true, elsewhere: met }
        }
    };
    let started_well = started_well && is_first;
    if started_well {
        for (option, error) in recorded::write(options, began, &stats, history.as_ref()) {
            let unwritten = Ending::Setup(format!("{option}: {error}"));
            if output::but_for(&mut ending, unwritten, |text| screen.note(text)) {
                stats.ended_by(&ending);
            }
        }
    }
    if let Some(path) = options.stats.as_deref().filter(|_| started_well)
        && let Err(unwritten) = output::write_stats(&stats, path, until)
    {
        let unwritten = match (unwritten, options.timeout) {
            (Unwritten::Unread, Some(limit)) => Ending::Timeout(limit),
            (unwritten, _) => Ending::Setup(unwritten.to_string()),
        };
        output::but_for(&mut ending, unwritten, |text| screen.note(text));
    }
    let code = ending.code();
    if is_first || !matches!(ending, Ending::Success | Ending::Elsewhere { .. }) {
        screen.finish(stats, ending, until);
    }
    if let Some(elsewhere) = elsewhere {
        elsewhere.go();
    }
    code
}

fn lock(screen: &SharedOutput) -> &Screen {
    screen
}

impl<'a> Job<'a> {
    /// If it cannot begin here, `elsewhere` is those that it has met, who are to be left once that was said.
    fn start(
        options: &'a Options,
        launch: Launch,
        output: SharedOutput,
        begin: Instant,
        elsewhere: &mut Option<Elsewhere>,
    ) -> Result<Self, Ending> {
        *elsewhere = elsewhere::meet(options, &launch)?;
        let started = Self::start_here(options, launch, output, begin, elsewhere);
        match started {
            Ok(mut job) => {
                job.elsewhere = elsewhere.take();
                job.skip_those_elsewhere();
                Ok(job)
            }
            Err(ending) => {
                if let Some(elsewhere) = elsewhere {
                    elsewhere.give_up(&ending);
                }
                Err(ending)
            }
        }
    }

    fn start_here(
        options: &'a Options,
        launch: Launch,
        output: SharedOutput,
        begin: Instant,
        elsewhere: &mut Option<Elsewhere>,
    ) -> Result<Self, Ending> {
        let place = Place::of(elsewhere.as_ref(), options.np);
        let mut setup = Setup::new(options, launch, place)?;
        for note in &setup.notes {
            lock(&output).note(note);
        }
        let (post, letters) = post(setup.segment.shared());
        if let Some(elsewhere) = elsewhere {
            elsewhere.begin(&setup, &post)?;
        }
        let is_first = elsewhere.as_ref().is_none_or(Elsewhere::is_first);
        if is_first {
            learned::check(options)?;
        }
        let (journal, done) = resume::open(options, &setup, is_first, &post)?;
        let around = output.clone();
        let config = supervisor::Config {
            tag_output: options.tag_output,
            pass_through: options.np == 1 && !setup.launch.streams(),
            keep_order: options.launch.keep_order,
            spool: Some(scratch::file_for_output(&setup.scratch_dirs)?),
            common_group: true,
            cgroup_limit: options.enforce.then_some(setup.cgroup_limit),
            rank_groups: setup.independent,
            catch_signals: supervisor::Catch::UntilExit,
            outputs: None,
            around_write: Some(Arc::new(move |write: &mut dyn FnMut()| around.lines(write))),
        };
        let supervisor =
            Supervisor::start(config, post.clone()).map_err(|error| Ending::Setup(error.to_string()))?;
        let watch = Watch::start(options, &mut setup, &supervisor, &post, &output)?;
        // A job that nobody can look at is still a job.
        let (server, unheard) = match Server::start(post.clone()) {
            Ok(server) => (Some(server), None),
            Err(error) => (None, Some(error)),
        };
        let coming = come::start(&mut setup.launch, &setup.scratch_dirs[0], &post)?;
        let listener = Listener::start(post)
            .map_err(|error| Ending::Setup(format!("cannot listen to the ranks: {error}")))?;
        let core = match &coming {
            Some(_) => Core::open(setup.limits, watch.stranger(options)),
            None if setup.deals => Core::shared_out(setup.limits, watch.stranger(options), options.np),
            None => Core::new(setup.limits, &watch.begin(options, &setup)),
        };
        let dealt = elsewhere.as_ref().filter(|_| setup.deals);
        let dealt = dealt.map(|elsewhere| Dealt::new(options, &setup, &done, elsewhere));
        let can = if setup.independent { watch.stranger(options) } else { watch.native(false) };
        let (coming, first) = match coming {
            Some((window, known)) => (Some(window), Some(Event::Came { ranks: known, more: true })),
            None => (None, None),
        };
        let all = options.np <= MAX_RANKS && coming.is_none();
        let mut job = Self {
            options,
            core: core.informed(&setup.known.informed),
            failures: 0,
            well: 0,
            halted: false,
            first_failure: None,
            watch,
            setup,
            supervisor,
            escalation: Escalation::new(GRACE, FAILURE_GRACE),
            listener,
            _server: server,
            letters,
            output,
            ranks: Records::default(),
            ended: Ended::new(all || options.wants_all_ranks()),
            np_is_known: coming.is_none(),
            coming,
            piped: come::Piped::default(),
            known_left: (0.0, 0),
            events: first.into_iter().collect(),
            ending: None,
            silence: None,
            killed: None,
            begin,
            began_ns: monotonic_ns().saturating_sub(begin.elapsed().as_nanos() as u64),
            alive: 0,
            most_alive: 0,
            most_resident: 0,
            largest_rank: 0,
            kept_free: 0,
            lacks: 0,
            told_overdraft: false,
            told_crowd: false,
            journal,
            chaos: Chaos::new(options.chaos.map(Duration::from_millis), begin),
            meter: report::Meter::default(),
            work: report::Work::default(),
            elsewhere: None,
            dealt,
            questions: asked::Questions::default(),
            follow: None,
            delayed: VecDeque::new(),
            next_start: None,
            history: recorded::begin(options),
        };
        if let Some(history) = &mut job.history {
            history.rules = Some((job.setup.limits, can));
        }
        job.follow = Follow::start(options, &job.setup, place.masters);
        job.known_left = job.setup.known.in_all();
        job.skip(&done);
        if let Some(error) = unheard {
            job.note(&format!("bdrun top and explain cannot ask this job: {error}"));
        }
        Ok(job)
    }

    /// Until every process has ended, or nothing more can be hoped for.
    fn drive(&mut self) {
        crate::urgent::schedule_first();
        self.begin_looks();
        let mut next_tick = Instant::now();
        let mut quiet_since: Option<Instant> = None;
        let mut still_since = Instant::now();
        loop {
            let happened = self.schedule();
            self.ask_for_parts();
            self.tell_elsewhere();
            let now = Instant::now();
            // Who is in an uninterruptible sleep (a disk that does not answer) does not die.
            let in_vain = self.killed.is_some_and(|killed| now - killed >= KILLED_PATIENCE);
            if self.ending.is_some() && (self.alive == 0 || in_vain) {
                return;
            }
            if self.silence.is_some_and(|silence| now >= silence) {
                self.silence = None;
                self.escalate(EscalationEvent::Fail);
            }
            if happened {
                still_since = now;
            } else if now.duration_since(still_since) >= STILL {
                still_since = now;
                self.tell_what_was_not_heard();
            }
            self.chaos();
            if now >= next_tick {
                self.tick();
                self.follow(now);
                next_tick = now + TICK;
            }
            let sample = self.record(now).unwrap_or(TICK).min(self.start_delayed(now));
            if happened || !self.core.is_quiet() {
                quiet_since = None;
                if let Some(elsewhere) = &self.elsewhere {
                    elsewhere.set_quiet(None);
                }
            } else {
                let since = *quiet_since.get_or_insert(now);
                if now.duration_since(since) >= SETTLE {
                    quiet_since = None;
                    let acted = self.elsewhere.as_ref().map(Elsewhere::acted);
                    if !self.observe_all() {
                        match self.elsewhere.as_ref().filter(|elsewhere| elsewhere.is_linked()) {
                            // The others may yet do something.
                            Some(elsewhere) => elsewhere.set_quiet(acted),
                            None => {
                                self.events.push(Event::Settled);
                                self.schedule();
                            }
                        }
                    }
                    if !self.events.is_empty() {
                        continue;
                    }
                }
            }
            let wait = if self.events.is_empty() {
                let settle =
                    quiet_since.map_or(TICK, |since| (since + SETTLE).saturating_duration_since(now));
                let silence = self.silence.map_or(TICK, |silence| silence.saturating_duration_since(now));
                let chaos = self.chaos.next.map_or(TICK, |next| next.saturating_duration_since(now));
                next_tick.saturating_duration_since(now).min(settle).min(silence).min(chaos).min(sample)
            } else {
                Duration::ZERO
            };
            let news = self.letters.wait(wait);
            // First what ranks have said: of those whose end is told that was before.
            if news.rung {
                self.observe_rung();
            }
            news.messages.into_iter().for_each(|message| self.take(message));
            if news.last {
                self.end(Ending::Internal("the supervisor's threads have ended".into()));
                return;
            }
        }
    }

    /// How many ranks there are, as far as they are known.
    fn np(&self) -> u32 {
        self.setup.launch.np()
    }

    /// It was told twice that a rank needs memory, and that was given it after the first time.
    fn is_granted(&self, event: Event) -> bool {
        let asks = |rank| self.setup.segment.rank(rank).request.load(SeqCst) > 0;
        matches!(event, Event::NeedsMemory { rank, .. } if !asks(rank))
    }

    /// Tell the core what has happened and carry out what it orders. Did anything happen, but for looks at
    /// memory?
    fn schedule(&mut self) -> bool {
        let news = |event: &Event| !matches!(event, Event::Sample { .. } | Event::Looked { .. });
        let (any, happened) = (!self.events.is_empty(), self.events.iter().any(news));
        let mut effects = Vec::new();
        let mut batch = std::mem::take(&mut self.events);
        // Once it is certain that the job ends no order is carried out, also while ranks have their last
        // words: what the core makes of that, and of the ends of ranks (an overdraft, say), would be wrong.
        if self.core.is_ended() || self.ending.is_some() || (!any && self.alive > 0) {
            return happened;
        }
        if self.core.wants_room() || !self.setup.segment.header().pool.is_ample() {
            self.setup.mail.give_spares_back(&self.setup.segment);
        }
        batch.insert(0, self.pool());
        let mut touched = Vec::new();
        self.touched(&batch, &mut touched);
        let mut gone = Gone::of(&batch);
        for event in batch {
            if self.is_granted(event) {
                continue;
            }
            gone.is_told(event);
            self.core.handle(event, &mut effects);
            if let Event::Chaos { rank } = event {
                let leaves =
                    |effect: &&Effect| matches!(effect, Effect::Evict { rank: other, .. } if *other == rank);
                self.chaos.evictions += effects.iter().filter(leaves).count() as u64;
            }
            for effect in effects.drain(..) {
                touched.extend(effect.rank());
                if !gone.has(effect) {
                    self.carry_out(effect);
                }
            }
        }
        self.record_ranks(&touched);
        self.keep_free();
        self.most_resident = self.most_resident.max(self.resident());
        self.update_wants();
        self.update_mail_limit();
        self.setup.segment.header().relief.store(u32::from(self.core.may_make_room()), SeqCst);
        // What was just ordered may make memory short sooner than was thought at the last look.
        self.watch.sampler.set_interval(self.core.next_look());
        happened
    }

    fn carry_out(&mut self, effect: Effect) {
        // By an effect of the same batch.
        if self.ending.is_some() {
            return;
        }
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.set_quiet(None);
        }
        match effect {
            Effect::Finish => {
                let failure = self.first_failure.take();
                if failure.is_some() && self.failures > 1 {
                    let text = format!("{} of {} ranks failed; the first of them:", self.failures, self.np());
                    lock(&self.output).note(&text);
                }
                self.ending.get_or_insert(failure.unwrap_or(Ending::Success));
                if let Some(elsewhere) = &mut self.elsewhere {
                    elsewhere.is_at_its_end();
                }
            }
            Effect::Fail(failure) => {
                let mut ending = Ending::from(failure);
                match &mut ending {
                    Ending::Deadlock { detail, .. } => *detail = Some(self.what_ranks_wait_for()),
                    Ending::ScratchFull { directory, .. } => {
                        *directory = scratch::fullest(&self.setup.scratch_dirs);
                    }
                    _ => {}
                }
                self.end(ending);
            }
            order => self.order(order),
        }
    }

    /// The job ends, for this reason unless it already had one.
    fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
        self.escalate(EscalationEvent::Fail);
    }

    fn escalate(&mut self, event: EscalationEvent) {
        match self.escalation.handle(self.begin.elapsed(), event) {
            Some(EscalationEffect::SignalAll(signal)) => {
                if self.escalation.ending() {
                    self.supervisor.cancel_pending();
                }
                self.supervisor.signal_all(signal);
                // To those that stand still the kernel gives it when they go on, or, at the end, nobody does.
                if self.escalation.ending() {
                    self.kill_those_held();
                }
            }
            Some(EscalationEffect::KillAll) => {
                self.killed.get_or_insert_with(Instant::now);
                self.supervisor.kill_all();
            }
            Some(EscalationEffect::Pause) => self.pause(),
            None => {}
        }
    }

    fn tick(&mut self) {
        self.escalate(EscalationEvent::Tick);
        self.end_overdue();
        if let Some(limit) = self.options.timeout.filter(|limit| self.begin.elapsed() >= *limit)
            && self.ending.is_none()
        {
            self.ending = Some(Ending::Timeout(limit));
            self.escalate(EscalationEvent::End);
        }
        // While everything fits, ranks that block tell nobody. If none computes, the core has to know why:
        // they may wait for each other for ever.
        if self.setup.segment.header().tokens.running() == 0 && !self.core.is_quiet() {
            self.observe_all();
        }
        self.reply();
        let snapshot = self.snapshot();
        self.output.progress(snapshot);
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Control(rank) => self.read_control(rank),
            Message::Came(came) => self.came(came),
            Message::Supervisor(happening) => self.take_happening(happening),
            Message::Measured(measured) => self.measured(&measured),
            Message::Journal(written) => {
                // It writes no more.
                self.journal.close();
                if let Err(error) = written {
                    if self.ending.as_ref().is_some_and(|ending| !ending.is_success()) {
                        self.note(&error);
                    }
                    self.end_though_well(Ending::Setup(error));
                }
            }
            Message::Nodes(told) => self.told(told),
            Message::Asked(asked) => self.answer(&asked),
            Message::Holder(rank, nth, report) => self.moved(rank, nth, report),
        }
    }
}
