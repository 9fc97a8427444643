//! The mark by which an executable is known to bring its own runtime: an ELF note, which stays in the program also when
//! it is stripped. `bdrun` does not preload `libsbmalloc.so` into such programs, and the library, where it got there
//! by an `exec`, leaves them alone.

/// Name of the note, NUL included.
pub const NAME: [u8; 6] = *b"bdrun\0";
/// Its type.
pub const TYPE: u32 = 1;

#[repr(C, align(4))]
struct Note {
    name_len: u32,
    content_len: u32,
    kind: u32,
    name: [u8; 8],
    protocol: u32,
}

#[used]
#[unsafe(link_section = ".note.bdrun")]
static NOTE: Note = Note {
    name_len: NAME.len() as u32,
    content_len: 4,
    kind: TYPE,
    name: *b"bdrun\0\0\0",
    protocol: bdrun_ipc::control::PROTOCOL,
};
