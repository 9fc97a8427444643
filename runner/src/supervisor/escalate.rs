//! When to ask ranks to end, and when to kill them: a state machine without clock or side effects.
//!
//! `now` is any monotonic time, for instance the time since the job began. The master feeds what happens,
//! carries out the effects, and calls again with [`Event::Tick`] at the time that [`Escalation::deadline`]
//! names.

use std::time::Duration;

/// Signals that arrive this soon after the first belong to it: `timeout` and terminals send to the process
/// and to its group.
const ECHO: Duration = Duration::from_millis(100);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The master received this signal.
    Signal(i32),
    /// The job has to end because something failed: be brief.
    Fail,
    /// The job has to end (a time limit): ask, then wait as after a signal.
    End,
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `Supervisor::signal_all` with this signal.
    SignalAll(i32),
    /// `Supervisor::kill_all`.
    KillAll,
    /// `Supervisor::pause`: stop the ranks and ourselves until continued.
    Pause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Asked to end; killed at the deadline. `since` is when a signal (or failure) first asked for it.
    Asked {
        since: Duration,
        deadline: Duration,
    },
    Killed,
}

/// The state of ending a job.
#[derive(Clone, Debug)]
pub struct Escalation {
    state: State,
    grace: Duration,
    failure_grace: Duration,
    /// The first signal that asked for the end.
    cause: Option<i32>,
}

impl Escalation {
    /// `grace` is what ranks get to end after a signal or a time limit, `failure_grace` after a failure.
    pub fn new(grace: Duration, failure_grace: Duration) -> Self {
        Self { state: State::Running, grace, failure_grace, cause: None }
    }

    /// The reaction to an event. Signals: the first that asks for an end is passed on (SIGHUP as SIGTERM),
    /// the second kills at once; SIGUSR1 and SIGUSR2 are passed on; SIGTSTP pauses.
    pub fn handle(&mut self, now: Duration, event: Event) -> Option<Effect> {
        let due = matches!(self.state, State::Asked { deadline, .. } if now >= deadline);
        if let Event::Signal(signal) = event
            && ![libc::SIGUSR1, libc::SIGUSR2, libc::SIGTSTP].contains(&signal)
        {
            self.cause.get_or_insert(signal);
        }
        match event {
            Event::Signal(signal @ (libc::SIGUSR1 | libc::SIGUSR2)) => Some(Effect::SignalAll(signal)),
            Event::Signal(libc::SIGTSTP) => (self.state == State::Running).then_some(Effect::Pause),
            _ if self.state == State::Killed => None,
            _ if due => self.kill(),
            Event::Signal(signal) => match self.state {
                State::Asked { since, .. } if now.saturating_sub(since) >= ECHO => self.kill(),
                // An echo of the signal, or one that coincides with a failure.
                State::Asked { .. } | State::Killed => None,
                State::Running => {
                    let signal = if signal == libc::SIGHUP { libc::SIGTERM } else { signal };
                    self.ask(now, self.grace, signal)
                }
            },
            // Ranks that end because they were asked to are no further failure: no haste.
            Event::Fail if self.state != State::Running => None,
            Event::Fail => self.ask(now, self.failure_grace, libc::SIGTERM),
            Event::End if self.state != State::Running => None,
            Event::End => self.ask(now, self.grace, libc::SIGTERM),
            Event::Tick => None,
        }
    }

    /// When to call again with [`Event::Tick`].
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Asked { deadline, .. } => Some(deadline),
            _ => None,
        }
    }

    /// Whether the job is being ended.
    pub fn ending(&self) -> bool {
        self.state != State::Running
    }

    /// The signal to the master that asked for the end, if one did.
    pub fn cause(&self) -> Option<i32> {
        self.cause
    }

    fn ask(&mut self, now: Duration, grace: Duration, signal: i32) -> Option<Effect> {
        if grace.is_zero() {
            return self.kill();
        }
        self.state = State::Asked { since: now, deadline: now.saturating_add(grace) };
        Some(Effect::SignalAll(signal))
    }

    fn kill(&mut self) -> Option<Effect> {
        self.state = State::Killed;
        Some(Effect::KillAll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);
    const BRIEF: Duration = Duration::from_millis(500);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn machine() -> Escalation {
        Escalation::new(GRACE, BRIEF)
    }

    #[test]
    fn a_signal_asks_and_the_grace_ends_with_a_kill() {
        for (received, sent) in [
            (libc::SIGTERM, libc::SIGTERM),
            (libc::SIGINT, libc::SIGINT),
            (libc::SIGQUIT, libc::SIGQUIT),
            (libc::SIGHUP, libc::SIGTERM),
        ] {
            let mut machine = machine();
            assert_eq!(machine.deadline(), None);
            assert_eq!(machine.handle(ms(1_000), Event::Signal(received)), Some(Effect::SignalAll(sent)));
            assert_eq!(machine.deadline(), Some(ms(6_000)));
            assert_eq!(machine.handle(ms(5_999), Event::Tick), None);
            assert_eq!(machine.handle(ms(6_000), Event::Tick), Some(Effect::KillAll));
            assert_eq!(machine.handle(ms(6_001), Event::Tick), None);
            assert_eq!(machine.handle(ms(9_000), Event::Signal(received)), None);
            assert_eq!(machine.deadline(), None);
            assert_eq!(machine.cause(), Some(received));
        }
    }

    #[test]
    fn a_second_signal_kills_but_an_echo_does_not() {
        let mut machine = machine();
        assert_eq!(machine.handle(ms(0), Event::Signal(2)), Some(Effect::SignalAll(2)));
        assert_eq!(machine.handle(ms(3), Event::Signal(2)), None);
        assert_eq!(machine.handle(ms(99), Event::Signal(15)), None);
        assert_eq!(machine.handle(ms(150), Event::Signal(2)), Some(Effect::KillAll));
        assert_eq!(machine.cause(), Some(2));
    }

    #[test]
    fn a_failure_is_brief_and_further_failures_do_not_matter() {
        let mut machine = machine();
        assert_eq!(machine.handle(ms(10), Event::Fail), Some(Effect::SignalAll(libc::SIGTERM)));
        assert_eq!(machine.handle(ms(11), Event::Fail), None);
        assert_eq!(machine.deadline(), Some(ms(510)));
        assert_eq!(machine.handle(ms(510), Event::Fail), Some(Effect::KillAll));
        assert!(machine.ending());
        assert_eq!(machine.cause(), None);
    }

    #[test]
    fn a_signal_after_a_failure_kills() {
        let mut machine = machine();
        machine.handle(ms(0), Event::Fail);
        assert_eq!(machine.handle(ms(50), Event::Signal(2)), None);
        assert_eq!(machine.handle(ms(200), Event::Signal(2)), Some(Effect::KillAll));
        // Also if they are to be killed by then: whoever waits for more is told.
        let mut machine = self::machine();
        machine.handle(ms(0), Event::Fail);
        assert_eq!(machine.handle(ms(600), Event::Signal(2)), Some(Effect::KillAll));
        assert_eq!(machine.cause(), Some(2));
    }

    #[test]
    fn no_grace_kills_at_once() {
        let mut machine = Escalation::new(GRACE, Duration::ZERO);
        assert_eq!(machine.handle(ms(0), Event::Fail), Some(Effect::KillAll));
    }

    #[test]
    fn other_signals_are_passed_on_or_pause() {
        let mut machine = machine();
        assert_eq!(machine.handle(ms(0), Event::Signal(10)), Some(Effect::SignalAll(10)));
        assert_eq!(machine.handle(ms(0), Event::Signal(libc::SIGTSTP)), Some(Effect::Pause));
        assert!(!machine.ending());
        machine.handle(ms(0), Event::End);
        assert_eq!(machine.handle(ms(1), Event::Signal(libc::SIGTSTP)), None);
    }

    /// Whatever is fed, in whatever order: a kill comes at most once, nothing but passed-on signals follows
    /// it, and once asked it is at the deadline at the latest.
    #[test]
    fn any_sequence_keeps_the_rules() {
        let events = [
            Event::Signal(2),
            Event::Signal(15),
            Event::Signal(10),
            Event::Signal(libc::SIGTSTP),
            Event::Fail,
            Event::End,
            Event::Tick,
        ];
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            let mut machine = machine();
            let (mut now, mut kills) = (ms(0), 0);
            for _ in 0..12 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                now += ms(random % 900);
                let before = machine.deadline();
                let effect = machine.handle(now, events[(random >> 32) as usize % events.len()]);
                kills += usize::from(effect == Some(Effect::KillAll));
                let passed_on = matches!(effect, Some(Effect::SignalAll(10)));
                assert!(kills == 0 || passed_on || matches!(effect, None | Some(Effect::KillAll)));
                if let (Some(before), Some(after)) = (before, machine.deadline()) {
                    assert_eq!(before, after, "the deadline never moves");
                }
                let late = machine.clone().deadline().is_some_and(|deadline| now >= deadline);
                assert!(!late || machine.handle(now, Event::Tick) == Some(Effect::KillAll));
            }
            assert!(kills <= 1);
        }
    }
}
