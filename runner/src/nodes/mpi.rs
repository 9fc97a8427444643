//! Frames over the MPI that started the masters: its library is loaded when it is needed, and asked for what
//! every MPI has (`MPI_Isend`, `MPI_Irecv`, `MPI_Improbe`, `MPI_Imrecv`). One thread calls it
//! (`MPI_THREAD_FUNNELED`), and nothing that waits for another master, which may be gone. Bodies have a tag
//! of their own, so that they go from where they lie to where they are expected.
//!
//! Errors are returned: one that cannot be reached must not end this process before the others are told.

mod library;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use super::transport::{Body, Came, Result, Transport, TransportError};
use library::{Abi, Handle, Library, Status, error};

/// Tags: of frames, of bodies.
const FRAME: c_int = 0x6264;
const BODY: c_int = FRAME + 1;
/// Frames and bodies that MPI is given at a time for one node; the rest waits here.
const UNDER_WAY: usize = 64;

/// What a launcher says of itself in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// What it is called.
    pub name: &'static str,
    /// How many masters it has started.
    pub nodes: u32,
    /// Interfaces of the library it belongs to, the most likely first.
    abis: &'static [Abi],
}

/// Whether a launcher has started several of this process.
#[must_use]
pub fn launcher(variable: &dyn Fn(&str) -> Option<String>) -> Option<Launcher> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    let found = if let Some(nodes) = number("OMPI_COMM_WORLD_SIZE") {
        Launcher { name: "Open MPI's mpiexec", nodes, abis: &[Abi::OpenMpi] }
    } else if let Some(nodes) = number("PMI_SIZE") {
        Launcher { name: "MPICH's mpiexec", nodes, abis: &[Abi::Mpich, Abi::Standard] }
    } else {
        // A batch script has most of Slurm's variables too, but is in no step.
        number("SLURM_STEP_ID")?;
        number("SLURM_PROCID")?;
        let nodes = number("SLURM_STEP_NUM_TASKS")?;
        Launcher { name: "srun", nodes, abis: &[Abi::Mpich, Abi::OpenMpi, Abi::Standard] }
    };
    (found.nodes > 1).then_some(found)
}

/// Names of variables by which launchers tell a process that it is one of an MPI job: ranks are no such
/// processes.
#[must_use]
pub fn is_launchers(name: &str) -> bool {
    ["PMI_", "PMIX_", "OMPI_COMM_WORLD_", "OMPI_MCA_orte_", "OMPI_MCA_ess_", "HYDI_", "MPI_LOCAL", "PRTE_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Descriptors by which launchers talk to those that they have started: ranks do not have them.
pub fn keep_from_ranks(variable: &dyn Fn(&str) -> Option<String>) {
    for name in ["PMI_FD", "HYDI_CONTROL_FD"] {
        let number = variable(name).and_then(|text| text.trim().parse::<c_int>().ok());
        if let Some(descriptor) = number.filter(|&number| number > libc::STDERR_FILENO) {
            // SAFETY: sets a flag of a descriptor, if it is one; nobody owns what a launcher has left open.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

/// What a process that MPICH's `mpiexec` has started lives at least.
const LEAST_LIFE: Duration = Duration::from_millis(500);

/// At the end of a process that began then. MPICH's `mpiexec` still writes to its proxies after they have
/// started their processes (the end of standard input, say). A proxy whose processes have all ended by then
/// is gone, and `mpiexec` is killed by SIGPIPE before it has shown what they printed: nobody is told why
/// (4.2; 40 of 588 wrong command lines with `< /dev/null`, beside thirty busy loops). So who ends at once,
/// stays a moment.
pub fn stay_for_launcher(begun: Instant) {
    if ["PMI_FD", "HYDI_CONTROL_FD"].iter().any(|name| std::env::var_os(name).is_some()) {
        std::thread::sleep(LEAST_LIFE.saturating_sub(begun.elapsed()));
    }
}

/// A frame or a body that MPI was given.
struct Sending {
    /// Where MPI reads until it is done.
    bytes: Body,
    request: Handle,
}

/// What goes to a node and comes from it.
#[derive(Default)]
struct Peer {
    under_way: VecDeque<Sending>,
    waiting: VecDeque<(c_int, Body)>,
    /// Frames and bodies to be sent, and sent.
    given: u64,
    sent: u64,
    /// Requests for bodies that have not come.
    expected: VecDeque<Handle>,
    /// Frames that have begun to come, with their requests.
    coming: VecDeque<(Vec<u8>, Handle)>,
    /// It cannot be reached, which was said.
    is_gone: bool,
}

/// See the module's text.
pub struct Mpi {
    library: Library,
    node: u32,
    nodes: u32,
    peers: Vec<Peer>,
    unsent: usize,
    /// Frames that have begun to come from any.
    coming: usize,
    /// Whom it cannot reach any more, which is still to be told.
    lost: VecDeque<TransportError>,
}

impl Drop for Mpi {
    /// MPI may still write where it was told to.
    fn drop(&mut self) {
        self.peers.iter_mut().for_each(|peer| std::mem::forget(std::mem::take(&mut peer.coming)));
    }
}

impl Mpi {
    /// Joins the masters that this launcher has started.
    ///
    /// # Errors
    /// There is no library, or it is not the launcher's.
    pub fn join(launcher: &Launcher, wanted: Option<&str>) -> Result<Self> {
        let library = Library::load(wanted, launcher.abis)?;
        let (mut provided, mut node, mut nodes) = (0, 0, 0);
        let f = &library.functions;
        let funneled = library.abi.funneled();
        // SAFETY: called once, by the thread that makes all calls; arguments are of the right types.
        let codes = unsafe {
            [
                (f.init_thread)(null_mut(), null_mut(), funneled, &raw mut provided),
                (f.set_errhandler)(library.world, library.errors_return),
                (f.comm_rank)(library.world, &raw mut node),
                (f.comm_size)(library.world, &raw mut nodes),
            ]
        };
        let name = &library.name;
        if codes != [0; 4] || provided < funneled {
            return Err(error(format!("{name} cannot be begun (codes {codes:?}, threads {provided})")));
        }
        if nodes as u32 != launcher.nodes {
            return Err(error(format!(
                "{} has started {} of bdrun, but {name} knows of {nodes}: it belongs to another MPI; name the right one with \
                 BDRUN_MPI_LIBRARY=PATH, or, if these are jobs that have nothing to do with each other, set BDRUN_NODES=1",
                launcher.name, launcher.nodes
            )));
        }
        let peers = (0..nodes).map(|_| Peer::default()).collect();
        Ok(Self {
            node: node as u32,
            nodes: nodes as u32,
            library,
            peers,
            unsent: 0,
            coming: 0,
            lost: VecDeque::new(),
        })
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        let name = &self.library.name;
        if code == 0 { Ok(()) } else { Err(error(format!("{call} of {name} failed (code {code})"))) }
    }

    /// Whether MPI is done with a request.
    fn is_done(&self, request: &mut Handle) -> Result<bool> {
        let (mut done, mut status) = (0, [0; 16]);
        // SAFETY: a request that was not yet seen to be done.
        let code = unsafe { (self.library.functions.test)(request, &raw mut done, &raw mut status) };
        self.check("MPI_Test", code)?;
        Ok(done != 0)
    }

    fn forget_what_is_sent(&mut self, to: usize) -> Result<()> {
        while let Some(mut request) = self.peers[to].under_way.front().map(|sending| sending.request) {
            let done = self.is_done(&mut request)?;
            let peer = &mut self.peers[to];
            let Some(first) = peer.under_way.front_mut() else { break };
            first.request = request;
            if !done {
                break;
            }
            self.unsent -= first.bytes.bytes().1;
            peer.sent += 1;
            peer.under_way.pop_front();
        }
        Ok(())
    }

    /// Gives MPI what it may have, and forgets what is done. That one cannot be reached is an error once.
    fn push(&mut self, to: usize) -> Result<()> {
        let pushed = self.push_to_who_is_there(to).map_err(|error| lost(to, error));
        if pushed.is_err() {
            let peer = &mut self.peers[to];
            peer.is_gone = true;
            let bytes = |body: &Body| body.bytes().1;
            self.unsent -= peer.under_way.iter().map(|sending| bytes(&sending.bytes)).sum::<usize>();
            self.unsent -= peer.waiting.drain(..).map(|(_, body)| bytes(&body)).sum::<usize>();
            // MPI may still read there.
            std::mem::forget(std::mem::take(&mut peer.under_way));
        }
        pushed
    }

    fn push_to_who_is_there(&mut self, to: usize) -> Result<()> {
        self.forget_what_is_sent(to)?;
        while self.peers[to].under_way.len() < UNDER_WAY {
            let Some((tag, bytes)) = self.peers[to].waiting.pop_front() else { return Ok(()) };
            let (at, len) = bytes.bytes();
            let len = c_int::try_from(len).map_err(|_| error("a frame of 2 GiB".into()))?;
            let (world, byte, mut request) = (self.library.world, self.library.byte, null_mut());
            // SAFETY: the bytes stay where they are, in an allocation of their own or by the promise of who
            // lent them, until the request is done.
            let code = unsafe {
                let isend = self.library.functions.isend;
                isend(at.cast(), len, byte, to as c_int, tag, world, &raw mut request)
            };
            self.peers[to].under_way.push_back(Sending { bytes, request });
            self.check("MPI_Isend", code)?;
        }
        Ok(())
    }
}

/// This one cannot be reached.
fn lost(node: usize, error: TransportError) -> TransportError {
    let why = format!("the master of node {node} cannot be reached: {error}");
    TransportError::Lost { node: node as u32, why }
}

impl Mpi {
    /// Bodies and frames of this node that have come; whether there is any.
    fn take_what_has_come(&mut self, from: usize, take: &mut dyn FnMut(u32, Came)) -> Result<bool> {
        let mut any = false;
        while let Some(mut request) = self.peers[from].expected.front().copied() {
            let done = self.is_done(&mut request)?;
            if !done {
                break;
            }
            self.peers[from].expected.pop_front();
            take(from as u32, Came::Body);
            any = true;
        }
        if self.coming > 0 {
            any |= self.take_frames(from, take)?;
        }
        Ok(any)
    }

    /// One that is gone says nothing more; MPI may still write where it was told to.
    fn forget_what_comes(&mut self, from: usize) {
        let peer = &mut self.peers[from];
        peer.expected.clear();
        self.coming -= peer.coming.len();
        std::mem::forget(std::mem::take(&mut peer.coming));
    }

    /// Begins to receive a frame that is there; of whom.
    fn begin_frame(&mut self) -> Result<Option<usize>> {
        let f = &self.library.functions;
        let (any_source, world, byte) = match self.library.abi {
            Abi::Mpich => (-2, self.library.world, self.library.byte),
            Abi::OpenMpi | Abi::Standard => (-1, self.library.world, self.library.byte),
        };
        let (mut found, mut message, mut status): (c_int, Handle, Status) = (0, null_mut(), [0; 16]);
        // SAFETY: all arguments are of the right types, and a status is never longer than ours.
        let code = unsafe {
            (f.improbe)(any_source, FRAME, world, &raw mut found, &raw mut message, &raw mut status)
        };
        self.check("MPI_Improbe", code)?;
        if found == 0 {
            return Ok(None);
        }
        let source = match self.library.abi {
            Abi::Mpich => status[2],
            Abi::OpenMpi | Abi::Standard => status[0],
        };
        let mut len = 0;
        // SAFETY: the status that was just filled.
        let code = unsafe { (f.get_count)(&raw const status, byte, &raw mut len) };
        self.check("MPI_Get_count", code)?;
        let mut frame = vec![0u8; usize::try_from(len).unwrap_or_default()];
        let mut request = null_mut();
        // SAFETY: the message that was just found, into as many bytes as it has, which stay where they are
        // until the request is done, or for good.
        let code =
            unsafe { (f.imrecv)(frame.as_mut_ptr().cast(), len, byte, &raw mut message, &raw mut request) };
        self.check("MPI_Imrecv", code)?;
        self.peers[source as usize].coming.push_back((frame, request));
        self.coming += 1;
        Ok(Some(source as usize))
    }

    /// Frames of this node that have come as a whole, in order; whether there is any.
    fn take_frames(&mut self, from: usize, take: &mut dyn FnMut(u32, Came)) -> Result<bool> {
        let mut any = false;
        while let Some(mut request) = self.peers[from].coming.front().map(|coming| coming.1) {
            let done = self.is_done(&mut request)?;
            if !done {
                break;
            }
            if let Some((frame, _)) = self.peers[from].coming.pop_front() {
                self.coming -= 1;
                take(from as u32, Came::Frame(frame));
                any = true;
            }
        }
        Ok(any)
    }
}

impl Transport for Mpi {
    fn node(&self) -> u32 {
        self.node
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn send(&mut self, to: u32, frame: Vec<u8>) -> Result<u64> {
        let peer = &mut self.peers[to as usize];
        if peer.is_gone {
            // Of a frame that is never sent.
            return Ok(peer.given + 1);
        }
        self.unsent += frame.len();
        peer.waiting.push_back((FRAME, Body::Owned(frame)));
        peer.given += 1;
        let number = peer.given;
        self.push(to as usize)?;
        Ok(number)
    }

    unsafe fn send_with(&mut self, to: u32, frame: Vec<u8>, body: Body) -> Result<u64> {
        let peer = &mut self.peers[to as usize];
        if peer.is_gone {
            // Of a body that is never sent.
            return Ok(peer.given + 1);
        }
        self.unsent += frame.len() + body.bytes().1;
        peer.waiting.extend([(FRAME, Body::Owned(frame)), (BODY, body)]);
        peer.given += 2;
        let number = peer.given;
        self.push(to as usize)?;
        Ok(number)
    }

    fn sent(&self, to: u32) -> u64 {
        self.peers[to as usize].sent
    }

    unsafe fn expect(&mut self, from: u32, into: *mut u8, len: usize) -> Result<()> {
        let (world, byte, mut request) = (self.library.world, self.library.byte, null_mut());
        let len = c_int::try_from(len).map_err(|_| error("a frame of 2 GiB".into()))?;
        // SAFETY: the memory is ours until the request is done.
        let code = unsafe {
            let irecv = self.library.functions.irecv;
            irecv(into.cast(), len, byte, from as c_int, BODY, world, &raw mut request)
        };
        self.check("MPI_Irecv", code)?;
        self.peers[from as usize].expected.push_back(request);
        Ok(())
    }

    fn receive(&mut self, take: &mut dyn FnMut(u32, Came)) -> Result<bool> {
        let mut any = false;
        if self.unsent > 0 {
            for to in 0..self.peers.len() {
                self.push(to)?;
            }
        }
        for from in 0..self.peers.len() {
            match self.take_what_has_come(from, take) {
                Ok(came) => any |= came,
                Err(error) => {
                    self.forget_what_comes(from);
                    self.lost.push_back(lost(from, error));
                }
            }
        }
        for _ in 0..UNDER_WAY {
            let Some(from) = self.begin_frame()? else { break };
            any = true;
            if let Err(error) = self.take_frames(from, take) {
                self.forget_what_comes(from);
                self.lost.push_back(lost(from, error));
            }
        }
        // The others by the next calls.
        self.lost.pop_front().map_or(Ok(any), Err)
    }

    fn unsent(&self) -> usize {
        self.unsent
    }

    fn finish(&mut self) {
        // SAFETY: the last call of this thread.
        unsafe { (self.library.functions.finalize)() };
    }
}
