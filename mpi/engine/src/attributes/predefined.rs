//! Attributes that communicators have from the beginning (MPI-5.0, section 9.1.2). Their value is the address
//! of a number.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use crate::Mpi;
use crate::face::Meaning;
use crate::failure::{Answer, number};
use crate::groups::PROC_NULL;
use crate::messages::{ANY_SOURCE, MOST_TAG};

/// `MPI_ERR_LASTCODE`.
const LAST_CODE: i64 = 0x3fff;
/// `MPI_TAG_UB`, the first of them.
const FIRST: i64 = 501;

/// Where the numbers are.
#[derive(Debug)]
pub struct Predefined([AtomicI32; 7]);

impl Predefined {
    /// None was asked for.
    pub const fn new() -> Self {
        Self([const { AtomicI32::new(0) }; 7])
    }
}

impl Mpi {
    /// The value of a predefined attribute, if it is one.
    pub(super) fn predefined(&self, keyval: i64) -> Answer<Option<usize>> {
        let face = self.face();
        let value = match keyval - FIRST {
            0 => MOST_TAG as i32,
            // MPI_IO: everybody.
            1 => (face.number)(Meaning::Rank, ANY_SOURCE),
            // MPI_HOST: there is none.
            2 => (face.number)(Meaning::Rank, PROC_NULL),
            // MPI_WTIME_IS_GLOBAL: the clock is that of a machine.
            3 => {
                let link = self.link()?;
                let own = link.node_of(link.process());
                (0..link.processes()).all(|process| link.node_of(process) == own).into()
            }
            // MPI_APPNUM: which program of the line that started them.
            4 => std::env::var("BDRUN_APPNUM").ok().and_then(|number| number.parse().ok()).unwrap_or(0),
            5 => {
                let codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
                face.code(codes.last().map_or(LAST_CODE, number))
            }
            6 => self.link()?.processes() as i32,
            _ => return Ok(None),
        };
        let place = &self.attributes.0[(keyval - FIRST) as usize];
        place.store(value, SeqCst);
        Ok(Some(place.as_ptr() as usize))
    }
}
