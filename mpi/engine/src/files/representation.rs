//! How elements lie in a file (MPI-5.0, section 14.5): as in memory, as "external32" says, or as functions of
//! the program's say.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bdrun_mpi_core::datatype::{Basic, Datatype as Tree, Type};
use bdrun_mpi_core::error::{Class, Code};

use crate::datatypes::Types;
use crate::datatypes::memory::Span;
use crate::face::{Face, Kind};
use crate::failure::{Answer, Failure, code};
use crate::handle::Datatype;

/// `MPI_Datarep_conversion_function`, and the form that counts further.
type Converts = unsafe extern "C" fn(*mut c_void, u64, c_int, *mut c_void, i64, *mut c_void) -> c_int;
type ConvertsMany = unsafe extern "C" fn(*mut c_void, u64, i64, *mut c_void, i64, *mut c_void) -> c_int;
/// `MPI_Datarep_extent_function`.
type Extends = unsafe extern "C" fn(u64, *mut i64, *mut c_void) -> c_int;

/// One that the program has added: its functions, by address.
#[derive(Debug)]
pub struct Made {
    pub name: Vec<u8>,
    /// 0: `MPI_CONVERSION_FN_NULL`.
    pub read: usize,
    pub write: usize,
    pub extent: usize,
    pub state: usize,
    /// They count in 64 bits.
    pub large: bool,
    pub face: &'static Face,
}

/// Of a view.
#[derive(Debug, Clone)]
pub enum Representation {
    /// "native" and "internal".
    Native,
    /// "external32".
    External,
    /// Of `MPI_Register_datarep`.
    Made(Arc<Made>),
}

/// Bytes that predefined datatypes have in the file, of those that a datatype is made of.
#[derive(Debug)]
pub struct Known(Vec<(Basic, i64)>);

impl Known {
    /// Of one of them.
    pub fn of(&self, basic: Basic) -> i64 {
        self.0.iter().find(|(known, _)| *known == basic).map_or(basic.size() as i64, |(_, bytes)| *bytes)
    }
}

/// Which elements of a program's memory are converted: those from `first` on of so many of the datatype.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub first: i64,
    pub count: i64,
}

impl Made {
    fn datatype(&self, datatype: Datatype) -> u64 {
        (self.face.handle)(Kind::Datatype, datatype.0)
    }

    /// What one of its functions has returned.
    fn well(&self, value: c_int, what: &str) -> Answer<()> {
        if code((self.face.error)(value)) == Some(Code::Success) {
            return Ok(());
        }
        let name = String::from_utf8_lossy(&self.name);
        let text = Some(format!("the {what} function of the data representation {name} returned {value}"));
        Err(Failure { text, ..Class::Conversion.into() })
    }

    fn size_of(&self, types: &Types, basic: Basic) -> Answer<i64> {
        let (datatype, mut extent) = (types.again(&Tree::basic(basic)), 0);
        // SAFETY: the program's word: such a function.
        let extends = unsafe { std::mem::transmute::<usize, Extends>(self.extent) };
        // SAFETY: as above; the extent is a local.
        let value = unsafe { extends(self.datatype(datatype), &raw mut extent, self.state as *mut c_void) };
        self.well(value, "extent")?;
        if extent > 0 { Ok(extent) } else { Err(Class::Conversion.into()) }
    }

    /// Has so many predefined datatypes converted that lie at `memory`, from the one with this number on.
    ///
    /// # Safety
    /// The memory is what the program said it is, nobody else uses it meanwhile, and the file's bytes are
    /// there.
    unsafe fn convert(
        &self,
        function: usize,
        (memory, datatype): (*mut u8, Datatype),
        (position, items): (i64, i64),
        bytes: *mut u8,
    ) -> Answer<()> {
        let (memory, bytes, state) = (memory.cast(), bytes.cast(), self.state as *mut c_void);
        let datatype = self.datatype(datatype);
        let value = if self.large {
            // SAFETY: the program's word: such a function, and the caller's.
            unsafe {
                let converts = std::mem::transmute::<usize, ConvertsMany>(function);
                converts(memory, datatype, items, bytes, position, state)
            }
        } else {
            let items = c_int::try_from(items).map_err(|_| Class::ValueTooLarge)?;
            // SAFETY: as above.
            unsafe {
                let converts = std::mem::transmute::<usize, Converts>(function);
                converts(memory, datatype, items, bytes, position, state)
            }
        };
        self.well(value, "conversion")
    }
}

impl Representation {
    /// The sizes of what a datatype is made of.
    pub fn sizes(&self, types: &Types, of: &Type) -> Answer<Known> {
        let size = |basic: Basic| {
            let bytes = match self {
                Self::Native => basic.size() as i64,
                Self::External => {
                    let (first, second) = basic.external_sizes();
                    (first + second) as i64
                }
                Self::Made(made) => made.size_of(types, basic)?,
            };
            Ok((basic, bytes))
        };
        of.basics().into_iter().map(size).collect::<Answer<_>>().map(Known)
    }

    /// A datatype as it lies in the file.
    pub fn stored(&self, types: &Types, of: &Type) -> Answer<Type> {
        if matches!(self, Self::Native) {
            return Ok(of.clone());
        }
        let sizes = self.sizes(types, of)?;
        Ok(Tree::stored(of, &|basic| sizes.of(basic))?)
    }

    /// How many bytes elements have in the file.
    pub fn bytes(&self, types: &Types, span: &Span) -> Answer<u64> {
        if matches!(self, Self::Native) {
            return Ok(span.bytes());
        }
        let sizes = self.sizes(types, span.of())?;
        let size = span.of().stored_size(&|basic| sizes.of(basic));
        let bytes = size.and_then(|size| size.checked_mul(span.count())).ok_or(Class::ValueTooLarge)?;
        Ok(bytes as u64)
    }

    /// What is written of elements.
    ///
    /// # Safety
    /// The memory is what the program said it is, nobody writes it meanwhile, and the handle is its
    /// datatype's.
    pub unsafe fn write(&self, span: &Span, datatype: Datatype, part: Part, bytes: &mut [u8]) -> Answer<()> {
        let of = span.part(part.first, part.count);
        match self {
            Self::Made(made) if made.write != 0 => {
                let items = of.of().items();
                let place = (part.first * items, part.count * items);
                // SAFETY: the caller's; the function gets as many bytes as the extents that it said.
                unsafe { made.convert(made.write, (span.at(), datatype), place, bytes.as_mut_ptr()) }
            }
            // Piece by piece, where it is moved.
            Self::External => Err(Class::Internal.into()),
            _ if of.bytes() == bytes.len() as u64 => {
                // SAFETY: the caller's.
                unsafe { of.pack(0, bytes) };
                Ok(())
            }
            _ => Err(Class::Conversion.into()),
        }
    }

    /// Puts what was read to where it belongs: so many predefined datatypes, which are `native` bytes there.
    ///
    /// # Safety
    /// As of [`write`](Self::write); nobody else uses the memory meanwhile.
    pub unsafe fn read(
        &self,
        (span, datatype): (&Span, Datatype),
        part: Part,
        (items, native): (i64, i64),
        bytes: &mut [u8],
    ) -> Answer<()> {
        let of = span.part(part.first, part.count);
        match self {
            Self::Made(made) if made.read != 0 => {
                let place = (part.first * of.of().items(), items);
                // SAFETY: the caller's; the function gets as many bytes as the extents that it said.
                unsafe { made.convert(made.read, (span.at(), datatype), place, bytes.as_mut_ptr()) }
            }
            Self::External => Err(Class::Internal.into()),
            _ if native as usize == bytes.len() => {
                // SAFETY: the caller's.
                unsafe { of.unpack(0, bytes) };
                Ok(())
            }
            _ => Err(Class::Conversion.into()),
        }
    }
}
