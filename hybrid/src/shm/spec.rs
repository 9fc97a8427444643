//! Which rank of which job this process is, by its environment.

use std::time::Duration;

use super::segment::MOST_RANKS;

/// What says so: the job's name, this rank, how many there are; and, if one minute is not right, for how many
/// seconds a rank waits for the others to be started.
pub const ENV: [&str; 4] = ["BDRUN_SHM_NAME", "BDRUN_SHM_RANK", "BDRUN_SHM_SIZE", "BDRUN_SHM_PATIENCE"];

/// It.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The job's name: the same in all its ranks, and in no other job of the user's that runs.
    pub name: String,
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// How long it waits for the others to be started.
    pub patience: Duration,
}

impl Spec {
    /// A rank that waits a minute for the others.
    #[must_use]
    pub fn new(name: impl Into<String>, rank: usize, size: usize) -> Self {
        Self { name: name.into(), rank, size, patience: Duration::from_secs(60) }
    }

    /// What the environment says ([`ENV`]), or why that is nothing.
    pub fn read(env: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let get = |name: &str| {
            env(name).ok_or_else(|| format!("{name} is not set ({} must be)", ENV[..3].join(", ")))
        };
        let number = |name: &str| -> Result<usize, String> {
            let text = get(name)?;
            text.parse().map_err(|_| format!("{name}={text} is no number"))
        };
        let (name, rank, size) = (get(ENV[0])?, number(ENV[1])?, number(ENV[2])?);
        let mut spec = Self::new(name, rank, size);
        if let Some(text) = env(ENV[3]) {
            let seconds: u16 =
                text.parse().map_err(|_| format!("{}={text}: seconds, up to 65535", ENV[3]))?;
            spec.patience = Duration::from_secs(seconds.into());
        }
        spec.check().map(|()| spec)
    }

    /// Whether there can be such a rank, or why not.
    pub fn check(&self) -> Result<(), String> {
        let Self { name, rank, size, .. } = self;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(format!("a job's name '{name}': letters, digits, - and _, up to 64"));
        }
        if *size == 0 || *size > MOST_RANKS {
            return Err(format!("{size} ranks: from 1 to {MOST_RANKS}"));
        }
        if rank >= size {
            return Err(format!("rank {rank}: there are {size} ranks"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_or_told_what_is_wrong() {
        let read = |values: [Option<&str>; 3]| {
            let values = values.map(|value| value.map(str::to_owned));
            Spec::read(&|name| ENV[..3].iter().position(|env| *env == name).and_then(|at| values[at].clone()))
        };
        assert_eq!(read([Some("job_1-a"), Some("2"), Some("4")]), Ok(Spec::new("job_1-a", 2, 4)));
        let patient = |seconds: &'static str| {
            let values = ["a", "0", "1", seconds];
            Spec::read(&move |name| ENV.iter().position(|env| *env == name).map(|at| values[at].to_owned()))
        };
        assert_eq!(patient("3").map(|spec| spec.patience), Ok(Duration::from_secs(3)));
        assert!(patient("long").is_err_and(|error| error.contains("BDRUN_SHM_PATIENCE=long")));
        for (values, word) in [
            ([None, Some("0"), Some("1")], "BDRUN_SHM_NAME is not set"),
            ([Some("a"), None, Some("1")], "BDRUN_SHM_RANK is not set"),
            ([Some("a"), Some("0"), None], "BDRUN_SHM_SIZE is not set"),
            ([Some("a/b"), Some("0"), Some("1")], "letters"),
            ([Some(""), Some("0"), Some("1")], "letters"),
            ([Some("a"), Some("x"), Some("1")], "BDRUN_SHM_RANK=x is no number"),
            ([Some("a"), Some("1"), Some("1")], "there are 1 ranks"),
            ([Some("a"), Some("0"), Some("0")], "from 1 to 128"),
            ([Some("a"), Some("0"), Some("129")], "from 1 to 128"),
        ] {
            let error = read(values).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
