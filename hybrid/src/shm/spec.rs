//! Which rank of which job this process is, by its environment.

use super::segment::MOST_RANKS;

/// What says so.
pub const ENV: [&str; 3] = ["BDRUN_SHM_NAME", "BDRUN_SHM_RANK", "BDRUN_SHM_SIZE"];

/// It.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The job's name: the same in all its ranks, and in no other job of the user's that runs.
    pub name: String,
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
}

impl Spec {
    /// What the environment says, or why that is nothing.
    pub fn read(env: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let get =
            |name: &str| env(name).ok_or_else(|| format!("{name} is not set ({} must be)", ENV.join(", ")));
        let number = |name: &str| -> Result<usize, String> {
            let text = get(name)?;
            text.parse().map_err(|_| format!("{name}={text} is no number"))
        };
        let (name, rank, size) = (get(ENV[0])?, number(ENV[1])?, number(ENV[2])?);
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(format!("{}={name}: letters, digits, - and _, up to 64", ENV[0]));
        }
        if size == 0 || size > MOST_RANKS {
            return Err(format!("{}={size}: from 1 to {MOST_RANKS}", ENV[2]));
        }
        if rank >= size {
            return Err(format!("{}={rank}: there are {size} ranks", ENV[1]));
        }
        Ok(Self { name, rank, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_or_told_what_is_wrong() {
        let read = |values: [Option<&str>; 3]| {
            let values = values.map(|value| value.map(str::to_owned));
            Spec::read(&|name| ENV.iter().position(|env| *env == name).and_then(|at| values[at].clone()))
        };
        let spec = Spec { name: "job_1-a".into(), rank: 2, size: 4 };
        assert_eq!(read([Some("job_1-a"), Some("2"), Some("4")]), Ok(spec));
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
