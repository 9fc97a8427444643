//! The mark by which an executable is known to bring its own runtime: an ELF note, which stays in the program
//! also when it is stripped. `bdrun` does not preload `libsbmalloc.so` into such programs, and the library,
//! where it got there by an `exec`, leaves them alone.

/// Name of the note, NUL included.
pub const NAME: [u8; 6] = *b"bdrun\0";
/// Its type.
pub const TYPE: u32 = 1;

/// The note, to be put into a program by `#[link_section = ".note.bdrun"]`.
#[repr(C, align(4))]
pub struct Note {
    name_len: u32,
    content_len: u32,
    kind: u32,
    name: [u8; 8],
    protocol: u32,
}

impl Note {
    /// That of this version.
    pub const OURS: Self = Self {
        name_len: NAME.len() as u32,
        content_len: 4,
        kind: TYPE,
        name: *b"bdrun\0\0\0",
        protocol: crate::control::PROTOCOL,
    };
}

/// Whether a segment of notes has ours among them.
pub fn is_in(notes: &[u8]) -> bool {
    protocol_in(notes).is_some()
}

/// The version of the protocol that our note in a segment of notes says the program speaks; `None` without
/// it.
pub fn protocol_in(mut notes: &[u8]) -> Option<u32> {
    let word = |bytes: &[u8], at: usize| {
        let four = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(four))
    };
    while let (Some(name), Some(content), Some(kind)) = (word(notes, 0), word(notes, 4), word(notes, 8)) {
        let (name, content) = (name as usize, content as usize);
        if kind == TYPE && notes.get(12..12 + name) == Some(&NAME[..]) {
            return word(notes, 12 + size_of_val(&Note::OURS.name));
        }
        let next = 12usize
            .saturating_add(name.saturating_add(3) & !3)
            .saturating_add(content.saturating_add(3) & !3);
        notes = notes.get(next..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_among_others() {
        let ours = |name: &[u8; 8], len: u32| {
            let mut note = Vec::new();
            for n in [len, 4, TYPE] {
                note.extend(n.to_ne_bytes());
            }
            note.extend(name);
            note.extend([1, 0, 0, 0]);
            note
        };
        let (other, own) = (ours(b"GNUx\0\0\0\0", 5), ours(b"bdrun\0\0\0", 6));
        assert!(is_in(&own));
        assert_eq!(protocol_in(&own), Some(1));
        assert!(is_in(&[other.clone(), own.clone()].concat()));
        assert!(!is_in(&other) && !is_in(&[]) && !is_in(&own[..17]) && !is_in(&[0xff; 64]));
    }
}
