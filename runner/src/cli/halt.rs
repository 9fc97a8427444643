//! `--halt`: when what has become of some ranks ends the job, as in GNU parallel. Pure.

use std::fmt;
use std::str::FromStr;

/// What is done once enough ranks have ended so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Nothing.
    Never,
    /// No other is begun; those that run go on.
    Soon,
    /// Those that run are ended.
    Now,
}

/// Which ranks count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Those that failed, and are not run again.
    Fail,
    /// Those that ended well.
    Success,
    /// Both.
    Done,
}

/// How many are enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enough {
    /// So many.
    Ranks(u32),
    /// So many of a hundred of all ranks of the job.
    Percent(u32),
}

/// One `--halt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Halt {
    /// What is done.
    pub when: When,
    /// Which ranks count.
    pub why: Why,
    /// How many of them.
    pub enough: Enough,
}

impl Halt {
    /// The first failure ends the job.
    pub const FIRST: Self = Self { when: When::Now, why: Why::Fail, enough: Enough::Ranks(1) };
    /// Whatever fails, the others go on.
    pub const NEVER: Self = Self { when: When::Never, ..Self::FIRST };

    /// Whether enough of `np` ranks have ended so.
    #[must_use]
    pub fn is_reached(&self, failed: u32, well: u32, np: u32) -> bool {
        let count = match self.why {
            Why::Fail => failed,
            Why::Success => well,
            Why::Done => failed.saturating_add(well),
        };
        let enough = match self.enough {
            Enough::Ranks(ranks) => count >= ranks,
            Enough::Percent(percent) => u64::from(count) * 100 >= u64::from(np) * u64::from(percent),
        };
        self.when != When::Never && count > 0 && enough
    }
}

impl FromStr for Halt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What GNU parallel had before it had words for it.
        let text = match text {
            "never" | "0" => return Ok(Self::NEVER),
            "1" => "soon,fail=1",
            "2" => "now,fail=1",
            "-1" => "soon,success=1",
            "-2" => "now,success=1",
            percent if percent.ends_with('%') && !percent.contains(',') => &format!("soon,fail={percent}"),
            words => words,
        };
        let wrong = || {
            "it is never, or WHEN,WHY=COUNT with soon or now, fail, success or done, and a number or N%: now,fail=1, soon,fail=10%"
                .to_owned()
        };
        let (when, rest) = text.split_once(',').ok_or_else(wrong)?;
        let (why, count) = rest.split_once('=').ok_or_else(wrong)?;
        let when = match when {
            "soon" => When::Soon,
            "now" => When::Now,
            _ => return Err(wrong()),
        };
        let why = match why {
            "fail" => Why::Fail,
            "success" => Why::Success,
            "done" => Why::Done,
            _ => return Err(wrong()),
        };
        let number = |text: &str| text.parse().ok().filter(|&number| number > 0).ok_or_else(wrong);
        let enough = match count.strip_suffix('%') {
            Some(percent) => Enough::Percent(number(percent)?),
            None => Enough::Ranks(number(count)?),
        };
        if matches!(enough, Enough::Percent(101..)) {
            return Err("more than all of them: at most 100%".into());
        }
        Ok(Self { when, why, enough })
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = match self.when {
            When::Never => return f.write_str("never"),
            When::Soon => "soon",
            When::Now => "now",
        };
        let why = match self.why {
            Why::Fail => "fail",
            Why::Success => "success",
            Why::Done => "done",
        };
        match self.enough {
            Enough::Ranks(ranks) => write!(f, "{when},{why}={ranks}"),
            Enough::Percent(percent) => write!(f, "{when},{why}={percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_shown() {
        for text in ["never", "now,fail=1", "soon,fail=10%", "now,success=3", "soon,done=100%"] {
            assert_eq!(text.parse::<Halt>().unwrap().to_string(), text);
        }
        for (text, words) in [
            ("0", "never"),
            ("1", "soon,fail=1"),
            ("2", "now,fail=1"),
            ("-1", "soon,success=1"),
            ("-2", "now,success=1"),
            ("20%", "soon,fail=20%"),
        ] {
            assert_eq!(text.parse::<Halt>().unwrap().to_string(), words);
        }
        let wrong = ["", "now", "now,fail", "now,fail=0", "later,fail=1", "now,fail=x%", "soon,fail=101%"];
        for text in wrong.into_iter().chain(["3", "-3", "0%", "101%", "x%"]) {
            assert!(text.parse::<Halt>().is_err(), "{text}");
        }
        assert_eq!("now,fail=1".parse(), Ok(Halt::FIRST));
    }

    #[test]
    fn when_it_is_enough() {
        let reached = |text: &str, failed, well| text.parse::<Halt>().unwrap().is_reached(failed, well, 30);
        assert!(reached("now,fail=2", 2, 0) && !reached("now,fail=2", 1, 9));
        assert!(reached("soon,success=1", 5, 1) && !reached("soon,success=1", 5, 0));
        assert!(reached("now,done=6", 4, 2) && !reached("now,done=6", 3, 2));
        assert!(reached("now,fail=10%", 3, 0) && !reached("now,fail=10%", 2, 9));
        assert!(!reached("never", 30, 0));
    }
}
