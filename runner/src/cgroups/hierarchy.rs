//! Where the kernel has our process, and where that can be seen.

use std::path::{Path, PathBuf};

/// A tree of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    /// That of a controller of version 1.
    V1(&'static str),
    /// The unified one, of version 2.
    V2,
}

/// A place where one is mounted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Which cgroup is seen there.
    pub shows: String,
    /// The place.
    pub at: String,
}

/// The texts of `/proc/self/cgroup` and `/proc/self/mountinfo`. The error says which could not be read.
pub(crate) fn hierarchies() -> Result<(String, String), String> {
    hierarchies_under(Path::new("/"))
}

/// The same of the system whose root directory this is.
pub(crate) fn hierarchies_under(root: &Path) -> Result<(String, String), String> {
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).map_err(|error| format!("/{path}: {error}"));
    Ok((read("proc/self/cgroup")?, read("proc/self/mountinfo")?))
}

impl Hierarchy {
    fn name(self) -> String {
        match self {
            Self::V1(controller) => format!("v1 {controller}"),
            Self::V2 => "cgroup2".to_owned(),
        }
    }

    /// What it calls the group our process is in.
    pub fn group_in(self, cgroups: &str) -> Option<&str> {
        cgroups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
            let fits = match self {
                Self::V1(wanted) => controllers.split(',').any(|name| name == wanted),
                Self::V2 => number == "0" && controllers.is_empty(),
            };
            fits.then_some(group)
        })
    }

    /// Where it is mounted.
    pub fn mounts(self, mounts: &str) -> impl Iterator<Item = Mount> {
        mounts.lines().filter_map(move |line| {
            let (before, after) = line.split_once(" - ")?;
            let mut before = before.split(' ').skip(3);
            let (shows, at) = (unescape(before.next()?), unescape(before.next()?));
            let mut after = after.split(' ');
            let (kind, options) = (after.next()?, after.nth(1)?);
            let fits = match self {
                Self::V1(controller) => {
                    kind == "cgroup" && options.split(',').any(|option| option == controller)
                }
                Self::V2 => kind == "cgroup2",
            };
            fits.then_some(Mount { shows, at })
        })
    }

    /// The directory of the group our process is in, from the texts of [`hierarchies`].
    pub fn locate(self, cgroups: &str, mounts: &str) -> Result<PathBuf, String> {
        let group = self
            .group_in(cgroups)
            .ok_or_else(|| format!("/proc/self/cgroup does not name the {} hierarchy", self.name()))?;
        let mount = self.mounts(mounts).next();
        let mount = mount.ok_or_else(|| format!("the {} hierarchy is not mounted", self.name()))?;
        // A container may see only a part of the hierarchy: then the paths are relative to that part, or the
        // mount is the container's own group.
        let below = Path::new(group).strip_prefix(&mount.shows).unwrap_or(Path::new(""));
        Ok(Path::new(&mount.at).join(below.strip_prefix("/").unwrap_or(below)))
    }
}

/// Undoes the octal escapes (`\\040` for a space) of mount tables.
fn unescape(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let code = (first == b'\\')
            .then(|| behind.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code {
            Some(byte) => {
                plain.push(byte);
                rest = &behind[3..];
            }
            None => {
                plain.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn mount_points_may_contain_spaces() {
        assert_eq!(unescape(r"/a\040b\134c\09"), "/a b\\c\\09");
    }
}
