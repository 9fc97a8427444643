//! MPI's calls, in terms of no ABI.
//!
//! Handles and numbers have the values of the standard's ABI (MPI-5.0, annex A.1) here: what is predefined
//! lies below [`handle::MADE`], what a program makes is counted from there. A face converts its own to these
//! and back, and says what depends on it ([`face`]).
//!
//! | question | module |
//! |---|---|
//! | what does a call take and give? | [`calls`] (generated from the table), [`args`], [`handle`] |
//! | what has gone wrong, and who is told? | [`failure`] |
//! | what is there beyond MPI? | [`extensions`] |
//! | what does a face provide? | [`face`]; the standard's: [`standard`] |
//! | what carries bytes to other processes? | [`link`]; between those of a node: `node` |

pub mod args;
mod asleep;
mod attributes;
pub mod calls;
mod collectives;
mod comm;
mod communicators;
mod datatypes;
pub mod entry;
mod environment;
mod errors;
pub mod extensions;
pub mod face;
pub mod failure;
mod files;
mod general;
mod groups;
pub mod handle;
pub mod handlers;
mod hints;
mod infos;
mod intercommunicators;
mod languages;
mod leaks;
pub mod link;
mod looks;
mod messages;
mod node;
mod operation;
mod operations;
mod partitioned;
mod processes;
mod requests;
mod sessions;
mod slab;
pub mod standard;
#[cfg(test)]
mod tests;
mod text;
mod tools;
mod topologies;
mod windows;

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};

pub use bdrun_worker::front::{Owns, preloaded_heap};

use bdrun_mpi_core::error::Codes;
use bdrun_mpi_core::group::Group;

use comm::{Communicator, World};
use environment::Life;
use face::Face;
use link::Link;
use slab::Slab;

/// This process's MPI.
#[derive(Debug)]
pub struct Mpi {
    face: OnceLock<&'static Face>,
    /// Error codes that the program has added.
    codes: Mutex<Codes>,
    life: Life,
    /// Whether it is in the critical section of its node, or waits for it.
    is_critical: AtomicBool,
    link: OnceLock<Arc<dyn Link>>,
    /// The same, if it is of the ranks of a node.
    node: OnceLock<Arc<node::Node>>,
    /// From the first call to the last, and longer.
    world: OnceLock<Arc<World>>,
    comms: Slab<Communicator>,
    comm_keys: attributes::Keys,
    /// What communicators have from the beginning.
    attributes: attributes::Predefined,
    buffers: messages::Buffers,
    claimed: Slab<Mutex<Option<messages::Claimed>>>,
    groups: Slab<Group>,
    requests: Slab<requests::Request>,
    tools: tools::Tools,
    traffic: Mutex<messages::Traffic>,
    /// How many messages were asked back of whose receivers nothing is heard yet.
    questions: AtomicUsize,
    handlers: Slab<handlers::Function>,
    infos: Slab<infos::Shared>,
    sessions: Slab<sessions::Session>,
    threads: operation::Threads,
    /// Collectives that were begun.
    open: operation::Open,
    ops: Slab<operations::Made>,
    types: datatypes::Types,
    unknown: partitioned::Unknown,
    files: Slab<files::Open>,
    /// Of files that are opened from now on, if the program has set it.
    file_handler: Mutex<Option<handlers::Handler>>,
    datareps: Mutex<Vec<Arc<files::representation::Made>>>,
    windows: Slab<windows::Window>,
    win_keys: attributes::Keys,
    /// What others ask of this process's memory.
    active: windows::Active,
}

impl Mpi {
    /// Not initialised.
    const fn new() -> Self {
        Self {
            face: OnceLock::new(),
            codes: Mutex::new(Codes::new()),
            life: Life::new(),
            is_critical: AtomicBool::new(false),
            link: OnceLock::new(),
            node: OnceLock::new(),
            world: OnceLock::new(),
            comms: Slab::new(),
            comm_keys: attributes::Keys::new(0),
            attributes: attributes::Predefined::new(),
            buffers: messages::Buffers::new(),
            claimed: Slab::new(),
            groups: Slab::new(),
            requests: Slab::new(),
            tools: tools::Tools::new(),
            traffic: Mutex::new(messages::Traffic::new()),
            questions: AtomicUsize::new(0),
            handlers: Slab::new(),
            infos: Slab::new(),
            sessions: Slab::new(),
            threads: operation::Threads::new(),
            open: operation::Open::new(),
            ops: Slab::new(),
            types: datatypes::Types::new(),
            unknown: partitioned::Unknown::new(),
            files: Slab::new(),
            file_handler: Mutex::new(None),
            datareps: Mutex::new(vec![]),
            windows: Slab::new(),
            win_keys: attributes::Keys::new(2),
            active: windows::Active::new(),
        }
    }

    fn face(&self) -> &'static Face {
        self.face.get().copied().unwrap_or(&standard::FACE)
    }
}
