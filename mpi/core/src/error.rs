//! Error classes and codes (MPI-5.0, sections 9.4 and 9.5). Their numbers differ from ABI to ABI, and are the
//! faces' concern.

use std::collections::BTreeMap;

macro_rules! classes {
    ($($variant:ident $name:ident $text:literal,)*) => {
        /// A predefined error class.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Class {
            $(#[doc = concat!("`", stringify!($name), "`: ", $text, ".")] $variant,)*
        }

        impl Class {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in the standard.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($name),)* }
            }

            /// What it means.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

classes! {
    Buffer MPI_ERR_BUFFER "the buffer is not valid",
    Count MPI_ERR_COUNT "the count is not valid",
    Type MPI_ERR_TYPE "the datatype is not valid, or not committed",
    Tag MPI_ERR_TAG "the tag is not valid",
    Comm MPI_ERR_COMM "the communicator is not valid",
    Rank MPI_ERR_RANK "the rank is not valid",
    Request MPI_ERR_REQUEST "the request is not valid",
    Root MPI_ERR_ROOT "the root is not valid",
    Group MPI_ERR_GROUP "the group is not valid",
    Op MPI_ERR_OP "the operation is not valid, or not defined for this datatype",
    Topology MPI_ERR_TOPOLOGY "the communicator has no such topology",
    Dims MPI_ERR_DIMS "the dimensions are not valid",
    Arg MPI_ERR_ARG "an argument is not valid",
    Unknown MPI_ERR_UNKNOWN "unknown error",
    Truncate MPI_ERR_TRUNCATE "the message is longer than the buffer",
    Other MPI_ERR_OTHER "known error that has no class of its own",
    Internal MPI_ERR_INTERN "internal error of the library",
    Pending MPI_ERR_PENDING "the request has neither failed nor completed",
    InStatus MPI_ERR_IN_STATUS "the errors are in the statuses",
    Access MPI_ERR_ACCESS "permission denied",
    Amode MPI_ERR_AMODE "the access mode is not valid, or not the same everywhere",
    Assert MPI_ERR_ASSERT "the assertion is not valid",
    BadFile MPI_ERR_BAD_FILE "the file name is not valid",
    Base MPI_ERR_BASE "the base of a window is not valid",
    Conversion MPI_ERR_CONVERSION "data could not be converted",
    Disp MPI_ERR_DISP "the displacement is not valid",
    DupDatarep MPI_ERR_DUP_DATAREP "the data representation is defined already",
    FileExists MPI_ERR_FILE_EXISTS "the file exists",
    FileInUse MPI_ERR_FILE_IN_USE "the file is open elsewhere",
    File MPI_ERR_FILE "the file handle is not valid",
    InfoKey MPI_ERR_INFO_KEY "the key of an info is longer than MPI_MAX_INFO_KEY, or empty",
    InfoNoKey MPI_ERR_INFO_NOKEY "the info has no such key",
    InfoValue MPI_ERR_INFO_VALUE "the value of an info is longer than MPI_MAX_INFO_VAL",
    Info MPI_ERR_INFO "the info is not valid",
    Io MPI_ERR_IO "input or output failed",
    Keyval MPI_ERR_KEYVAL "the keyval is not valid",
    LockType MPI_ERR_LOCKTYPE "the lock type is not valid",
    Name MPI_ERR_NAME "the service name is not published",
    NoMemory MPI_ERR_NO_MEM "there is no memory left",
    NotSame MPI_ERR_NOT_SAME "a collective argument is not the same everywhere, or the calls differ",
    NoSpace MPI_ERR_NO_SPACE "there is no space left on the device",
    NoSuchFile MPI_ERR_NO_SUCH_FILE "the file does not exist",
    Port MPI_ERR_PORT "the port name is not valid",
    Quota MPI_ERR_QUOTA "the quota is exceeded",
    ReadOnly MPI_ERR_READ_ONLY "the file or file system is read-only",
    RmaAttach MPI_ERR_RMA_ATTACH "the memory cannot be attached",
    RmaConflict MPI_ERR_RMA_CONFLICT "accesses to the window conflict",
    RmaRange MPI_ERR_RMA_RANGE "the target memory is not part of the window",
    RmaShared MPI_ERR_RMA_SHARED "the memory cannot be shared",
    RmaSync MPI_ERR_RMA_SYNC "the calls to synchronise the window are in the wrong order",
    Service MPI_ERR_SERVICE "the service name is published already",
    Size MPI_ERR_SIZE "the size is not valid",
    Spawn MPI_ERR_SPAWN "processes could not be spawned",
    UnsupportedDatarep MPI_ERR_UNSUPPORTED_DATAREP "the data representation is not known",
    UnsupportedOperation MPI_ERR_UNSUPPORTED_OPERATION "the operation is not supported",
    Win MPI_ERR_WIN "the window is not valid",
    RmaFlavor MPI_ERR_RMA_FLAVOR "the window is of the wrong flavor",
    ProcessAborted MPI_ERR_PROC_ABORTED "a process has aborted",
    ValueTooLarge MPI_ERR_VALUE_TOO_LARGE "the value does not fit",
    Session MPI_ERR_SESSION "the session is not valid",
    ErrorHandler MPI_ERR_ERRHANDLER "the error handler is not valid",
    Abi MPI_ERR_ABI "the ABI does not fit",
    ToolCannotInit MPI_T_ERR_CANNOT_INIT "the interface for tools cannot be initialised",
    ToolNotAccessible MPI_T_ERR_NOT_ACCESSIBLE "the interface for tools is not accessible now",
    ToolNotInitialized MPI_T_ERR_NOT_INITIALIZED "the interface for tools is not initialised",
    ToolNotSupported MPI_T_ERR_NOT_SUPPORTED "the interface for tools does not support this",
    ToolMemory MPI_T_ERR_MEMORY "there is no memory left",
    ToolInvalid MPI_T_ERR_INVALID "an argument is not valid",
    ToolInvalidIndex MPI_T_ERR_INVALID_INDEX "the index is not valid",
    ToolInvalidItem MPI_T_ERR_INVALID_ITEM "the item is not valid",
    ToolInvalidSession MPI_T_ERR_INVALID_SESSION "the session is not valid",
    ToolInvalidHandle MPI_T_ERR_INVALID_HANDLE "the handle is not valid",
    ToolInvalidName MPI_T_ERR_INVALID_NAME "the name is not known",
    ToolOutOfHandles MPI_T_ERR_OUT_OF_HANDLES "there are no handles left",
    ToolOutOfSessions MPI_T_ERR_OUT_OF_SESSIONS "there are no sessions left",
    ControlNotNow MPI_T_ERR_CVAR_SET_NOT_NOW "the control variable cannot be set now",
    ControlNever MPI_T_ERR_CVAR_SET_NEVER "the control variable cannot be set",
    CounterNoWrite MPI_T_ERR_PVAR_NO_WRITE "the performance variable cannot be written",
    CounterNoStartStop MPI_T_ERR_PVAR_NO_STARTSTOP "the performance variable cannot be started or stopped",
    CounterNotAtomic MPI_T_ERR_PVAR_NO_ATOMIC "the performance variable cannot be read and reset at once",
}

/// An error code: a predefined class, or one that the program has added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// Success.
    Success,
    /// A predefined class, which is also a code.
    Class(Class),
    /// Added by the program: behind the last predefined one by so many.
    Added(u32),
}

#[derive(Debug, Clone)]
struct Added {
    /// `None`: it is a class itself.
    class: Option<Code>,
    text: String,
}

/// Why a code cannot be added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// `MPI_ERR_ARG`: there is no such class or code, or it is predefined.
    #[error("no error code or class that the program has added")]
    Unknown,
    /// `MPI_ERR_ARG`: what is removed is still used by a code or a text.
    #[error("the error class still has codes, or a text")]
    InUse,
}

/// What the program has added. Numbers of what was removed are not used again.
#[derive(Debug, Clone, Default)]
pub struct Codes {
    added: BTreeMap<u32, Added>,
    next: u32,
}

impl Codes {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self { added: BTreeMap::new(), next: 0 }
    }

    /// `MPI_Add_error_class`.
    pub fn add_class(&mut self) -> Code {
        self.add(None)
    }

    /// `MPI_Add_error_code`.
    ///
    /// # Errors
    /// There is no such class.
    pub fn add_code(&mut self, class: Code) -> Result<Code, CodeError> {
        if !self.is_class(class) {
            return Err(CodeError::Unknown);
        }
        Ok(self.add(Some(class)))
    }

    fn add(&mut self, class: Option<Code>) -> Code {
        let code = self.next;
        self.next += 1;
        self.added.insert(code, Added { class, text: String::new() });
        Code::Added(code)
    }

    /// `MPI_Add_error_string`: of one that was added, instead of any before.
    ///
    /// # Errors
    /// It is predefined, or unknown.
    pub fn set_text(&mut self, code: Code, text: &str) -> Result<(), CodeError> {
        self.find(code)?.text = text.into();
        Ok(())
    }

    /// `MPI_Remove_error_string`.
    ///
    /// # Errors
    /// It is predefined, unknown, or has no text.
    pub fn remove_text(&mut self, code: Code) -> Result<(), CodeError> {
        let added = self.find(code)?;
        if added.text.is_empty() {
            return Err(CodeError::Unknown);
        }
        added.text.clear();
        Ok(())
    }

    /// `MPI_Remove_error_class`, `MPI_Remove_error_code`.
    ///
    /// # Errors
    /// It is predefined, unknown, not of this kind, or still has codes or a text.
    pub fn remove(&mut self, code: Code, is_class: bool) -> Result<(), CodeError> {
        if self.find(code)?.class.is_none() != is_class {
            return Err(CodeError::Unknown);
        }
        let has_text = self.text(code).is_some_and(|text| !text.is_empty());
        if has_text || self.added.values().any(|added| added.class == Some(code)) {
            return Err(CodeError::InUse);
        }
        if let Code::Added(number) = code {
            self.added.remove(&number);
        }
        Ok(())
    }

    fn find(&mut self, code: Code) -> Result<&mut Added, CodeError> {
        match code {
            Code::Added(number) => self.added.get_mut(&number).ok_or(CodeError::Unknown),
            _ => Err(CodeError::Unknown),
        }
    }

    /// Whether a code is a class as well.
    #[must_use]
    pub fn is_class(&self, code: Code) -> bool {
        self.class(code) == Some(code)
    }

    /// `MPI_Error_class`; `None` if there is no such code.
    #[must_use]
    pub fn class(&self, code: Code) -> Option<Code> {
        match code {
            Code::Added(number) => self.added.get(&number).map(|added| added.class.unwrap_or(code)),
            code => Some(code),
        }
    }

    /// `MPI_Error_string`: empty if the program has not given any; `None` if there is no such code.
    #[must_use]
    pub fn text(&self, code: Code) -> Option<&str> {
        match code {
            Code::Success => Some("no error"),
            Code::Class(class) => Some(class.text()),
            Code::Added(number) => self.added.get(&number).map(|added| &*added.text),
        }
    }

    /// Of `MPI_LASTUSEDCODE`: the last one that was added, if any was. It never falls.
    #[must_use]
    pub fn last(&self) -> Option<Code> {
        self.next.checked_sub(1).map(Code::Added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_has_a_class_and_a_text() {
        let mut codes = Codes::default();
        assert_eq!(codes.last(), None);
        let class = codes.add_class();
        let code = codes.add_code(class).expect("a class");
        let other = codes.add_code(Code::Class(Class::Io)).expect("a class");
        assert_eq!((codes.class(class), codes.class(code)), (Some(class), Some(class)));
        assert_eq!(codes.class(other), Some(Code::Class(Class::Io)));
        assert_eq!(codes.add_code(code), Err(CodeError::Unknown));
        assert_eq!(codes.text(code), Some(""));
        codes.set_text(code, "the beam is off").expect("ours");
        assert_eq!(codes.text(code), Some("the beam is off"));
        assert_eq!(codes.set_text(Code::Class(Class::Io), "no"), Err(CodeError::Unknown));
        assert_eq!(codes.last(), Some(other));
    }

    #[test]
    fn what_is_removed_is_not_there_and_its_number_is_not_used_again() {
        let mut codes = Codes::default();
        let class = codes.add_class();
        let code = codes.add_code(class).expect("a class");
        assert_eq!(codes.remove(class, true), Err(CodeError::InUse));
        assert_eq!(codes.remove(code, true), Err(CodeError::Unknown));
        codes.remove(code, false).expect("a code");
        codes.remove(class, true).expect("a class");
        assert_eq!((codes.class(class), codes.text(code)), (None, None));
        assert_eq!(codes.last(), Some(code));
        assert_eq!(codes.add_class(), Code::Added(2));
    }

    #[test]
    fn each_class_has_a_name_of_its_own() {
        let names: std::collections::HashSet<_> = Class::ALL.iter().map(|class| class.name()).collect();
        assert_eq!(names.len(), Class::ALL.len());
        assert!(Class::ALL.iter().all(|class| !class.text().is_empty()));
    }
}
