//! Handles, with the values that the standard's ABI has for what is predefined.

/// Handles of what a program makes begin here.
pub const MADE: u64 = 0x1000;

macro_rules! handles {
    ($($name:ident $null:literal $what:literal,)*) => {
        $(
            #[doc = concat!("A handle of ", $what, ".")]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub struct $name(pub u64);

            impl $name {
                /// Of nothing.
                pub const NULL: Self = Self($null);

                /// The place of what a program has made.
                #[must_use]
                pub const fn made(self) -> Option<usize> {
                    if self.0 < MADE { None } else { Some((self.0 - MADE) as usize) }
                }
            }

            impl Handle for $name {
                fn new(value: u64) -> Self {
                    Self(value)
                }

                fn value(self) -> u64 {
                    self.0
                }
            }
        )*
    };
}

/// Any of them.
pub trait Handle: Copy {
    /// The handle of this value.
    fn new(value: u64) -> Self;

    /// Its value.
    fn value(self) -> u64;
}

handles! {
    Op 0x20 "an operation",
    Comm 0x100 "a communicator",
    Group 0x108 "a group",
    Win 0x110 "a window",
    File 0x118 "a file",
    Session 0x120 "a session",
    Message 0x128 "a message that was matched",
    Info 0x130 "an info",
    Errhandler 0x140 "an error handler",
    Request 0x180 "a request",
    Datatype 0x200 "a datatype",
}

impl Comm {
    /// `MPI_COMM_WORLD`.
    pub const WORLD: Self = Self(0x101);
    /// `MPI_COMM_SELF`.
    pub const SELF: Self = Self(0x102);
}

impl Group {
    /// `MPI_GROUP_EMPTY`.
    pub const EMPTY: Self = Self(0x109);
}

impl Message {
    /// `MPI_MESSAGE_NO_PROC`.
    pub const NO_PROC: Self = Self(0x129);
}

impl Info {
    /// `MPI_INFO_ENV`.
    pub const ENV: Self = Self(0x131);
}

impl Errhandler {
    /// `MPI_ERRORS_ARE_FATAL`.
    pub const FATAL: Self = Self(0x141);
    /// `MPI_ERRORS_ABORT`.
    pub const ABORT: Self = Self(0x142);
    /// `MPI_ERRORS_RETURN`.
    pub const RETURN: Self = Self(0x143);
}
