//! Frames over the MPI that started the masters: its library is loaded when it is needed, and asked for what
//! every MPI has (`MPI_Isend`, `MPI_Irecv`, `MPI_Improbe`, `MPI_Mrecv`). One thread calls it
//! (`MPI_THREAD_FUNNELED`). Bodies have a tag of their own, so that they go from where they lie to where they
//! are expected.
//!
//! Libraries differ in their binary interface. Of the three that there are it needs these:
//!
//! | | MPICH's (`libmpi.so.12`, `libmpich.so.12`) | Open MPI's (`libmpi.so.40`) | the standard's (`libmpi_abi.so`) |
//! |---|---|---|---|
//! | handles | numbers | addresses of exported objects | small numbers in pointers |
//! | `MPI_COMM_WORLD`, `MPI_BYTE` | 0x44000000, 0x4c00010d | `ompi_mpi_comm_world`, `ompi_mpi_byte` | 0x101, 0x247 |
//! | `MPI_ANY_SOURCE`, `MPI_ANY_TAG` | −2, −1 | −1, −1 | −1, −2 |
//! | source in a status | word 2 | word 0 | word 0 |

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;

use super::transport::{Body, Came, Result, Transport, TransportError};

/// Tags: of frames, of bodies.
const FRAME: c_int = 0x6264;
const BODY: c_int = FRAME + 1;
const FUNNELED: c_int = 1;
/// Frames and bodies that MPI is given at a time for one node; the rest waits here.
const UNDER_WAY: usize = 64;

/// A handle of any of the interfaces: a pointer, of which those with numbers take the lower half.
type Handle = *mut c_void;
/// Long enough for a status of any of them.
type Status = [c_int; 16];

type InitThread = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Ask = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type Isend = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Irecv = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Test = unsafe extern "C" fn(*mut Handle, *mut c_int, *mut Status) -> c_int;
type Improbe = unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut Handle, *mut Status) -> c_int;
type Mrecv = unsafe extern "C" fn(*mut c_void, c_int, Handle, *mut Handle, *mut Status) -> c_int;
type GetCount = unsafe extern "C" fn(*const Status, Handle, *mut c_int) -> c_int;

struct Functions {
    init_thread: InitThread,
    finalize: Finalize,
    comm_rank: Ask,
    comm_size: Ask,
    isend: Isend,
    irecv: Irecv,
    test: Test,
    improbe: Improbe,
    mrecv: Mrecv,
    get_count: GetCount,
}

/// An interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Abi {
    Mpich,
    OpenMpi,
    Standard,
}

/// Where libraries are looked for, with their interface.
const LIBRARIES: [(&str, Abi); 5] = [
    ("libmpi.so.40", Abi::OpenMpi),
    ("libmpi.so.12", Abi::Mpich),
    ("libmpich.so.12", Abi::Mpich),
    ("libmpi_abi.so.0", Abi::Standard),
    ("libmpi_abi.so.1", Abi::Standard),
];

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

struct Library {
    functions: Functions,
    abi: Abi,
    world: Handle,
    byte: Handle,
    name: String,
}

fn error(text: String) -> TransportError {
    TransportError::Broken(text)
}

fn last_error() -> String {
    // SAFETY: a text that lasts until the next call, or none.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

impl Library {
    /// The first of these that can be loaded.
    fn load(wanted: Option<&str>, abis: &[Abi]) -> Result<Self> {
        let mut tried = vec![];
        let by_interface = |abi: &Abi| {
            let is_of = |known: &&(&str, Abi)| known.1 == *abi;
            LIBRARIES.iter().filter(is_of).map(|known| known.0.to_owned()).collect::<Vec<_>>()
        };
        let names: Vec<String> = match wanted {
            Some(path) => vec![path.to_owned()],
            None => abis.iter().flat_map(by_interface).collect(),
        };
        for name in names {
            let path = CString::new(name.as_str()).map_err(|_| error(format!("{name:?} is no library")))?;
            // SAFETY: an MPI's library, whose constructors are as safe as those of any; loaded for all, as
            // its parts look for each other's symbols.
            let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            if library.is_null() {
                tried.push(last_error());
                continue;
            }
            match Self::of(library, &name) {
                Some(found) => return Ok(found),
                None => tried.push(format!("{name} lacks functions of MPI-3")),
            }
        }
        let tried = tried.join("; ");
        Err(error(format!("no MPI library could be loaded ({tried}): name it with BDRUN_MPI_LIBRARY=PATH")))
    }

    fn of(library: *mut c_void, name: &str) -> Option<Self> {
        let find = |symbol: &CStr| {
            // SAFETY: of a library that stays loaded.
            let found = unsafe { libc::dlsym(library, symbol.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        macro_rules! function {
            ($name:literal, $type:ty) => {
                // SAFETY: MPI's functions of these names have these types, but for handles: numbers in lower
                // halves of registers, which those that expect numbers do not look beyond.
                unsafe { std::mem::transmute::<*mut c_void, $type>(find($name)?) }
            };
        }
        let functions = Functions {
            init_thread: function!(c"MPI_Init_thread", InitThread),
            finalize: function!(c"MPI_Finalize", Finalize),
            comm_rank: function!(c"MPI_Comm_rank", Ask),
            comm_size: function!(c"MPI_Comm_size", Ask),
            isend: function!(c"MPI_Isend", Isend),
            irecv: function!(c"MPI_Irecv", Irecv),
            test: function!(c"MPI_Test", Test),
            improbe: function!(c"MPI_Improbe", Improbe),
            mrecv: function!(c"MPI_Mrecv", Mrecv),
            get_count: function!(c"MPI_Get_count", GetCount),
        };
        let (abi, world, byte) = match find(c"ompi_mpi_comm_world") {
            Some(world) => (Abi::OpenMpi, world, find(c"ompi_mpi_byte")?),
            None if find(c"MPI_Abi_get_version").is_some() && find(c"MPIR_Process").is_none() => {
                (Abi::Standard, 0x101 as Handle, 0x247 as Handle)
            }
            None => (Abi::Mpich, 0x4400_0000 as Handle, 0x4c00_010d as Handle),
        };
        Some(Self { functions, abi, world, byte, name: name.to_owned() })
    }
}

/// A frame or a body that MPI was given.
struct Sending {
    /// Where MPI reads until it is done.
    bytes: Body,
    tag: c_int,
    request: Handle,
}

/// What goes to a node and comes from it.
#[derive(Default)]
struct Peer {
    under_way: VecDeque<Sending>,
    waiting: VecDeque<(c_int, Body)>,
    /// Bodies to be sent, and sent.
    given: u64,
    sent: u64,
    /// Requests for bodies that have not come.
    expected: VecDeque<Handle>,
}

/// See the module's text.
pub struct Mpi {
    library: Library,
    node: u32,
    nodes: u32,
    peers: Vec<Peer>,
    unsent: usize,
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
        // SAFETY: called once, by the thread that makes all calls; arguments are of the right types.
        let codes = unsafe {
            [
                (f.init_thread)(null_mut(), null_mut(), FUNNELED, &raw mut provided),
                (f.comm_rank)(library.world, &raw mut node),
                (f.comm_size)(library.world, &raw mut nodes),
            ]
        };
        let name = &library.name;
        if codes != [0; 3] || provided < FUNNELED {
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
        Ok(Self { node: node as u32, nodes: nodes as u32, library, peers, unsent: 0 })
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
            peer.sent += u64::from(first.tag == BODY);
            peer.under_way.pop_front();
        }
        Ok(())
    }

    /// Gives MPI what it may have, and forgets what is done.
    fn push(&mut self, to: usize) -> Result<()> {
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
            self.peers[to].under_way.push_back(Sending { bytes, tag, request });
            self.check("MPI_Isend", code)?;
        }
        Ok(())
    }
}

impl Transport for Mpi {
    fn node(&self) -> u32 {
        self.node
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn send(&mut self, to: u32, frame: Vec<u8>) -> Result<()> {
        self.unsent += frame.len();
        self.peers[to as usize].waiting.push_back((FRAME, Body::Owned(frame)));
        self.push(to as usize)
    }

    unsafe fn send_with(&mut self, to: u32, frame: Vec<u8>, body: Body) -> Result<u64> {
        self.unsent += frame.len() + body.bytes().1;
        let peer = &mut self.peers[to as usize];
        peer.waiting.extend([(FRAME, Body::Owned(frame)), (BODY, body)]);
        peer.given += 1;
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
            while let Some(mut request) = self.peers[from].expected.front().copied() {
                let done = self.is_done(&mut request)?;
                if !done {
                    break;
                }
                self.peers[from].expected.pop_front();
                take(from as u32, Came::Body);
                any = true;
            }
        }
        let f = &self.library.functions;
        let (any_source, world, byte) = match self.library.abi {
            Abi::Mpich => (-2, self.library.world, self.library.byte),
            Abi::OpenMpi | Abi::Standard => (-1, self.library.world, self.library.byte),
        };
        for _ in 0..UNDER_WAY {
            let (mut found, mut message, mut status): (c_int, Handle, Status) = (0, null_mut(), [0; 16]);
            // SAFETY: all arguments are of the right types, and a status is never longer than ours.
            let code = unsafe {
                (f.improbe)(any_source, FRAME, world, &raw mut found, &raw mut message, &raw mut status)
            };
            self.check("MPI_Improbe", code)?;
            if found == 0 {
                break;
            }
            any = true;
            let source = match self.library.abi {
                Abi::Mpich => status[2],
                Abi::OpenMpi | Abi::Standard => status[0],
            };
            let mut len = 0;
            // SAFETY: the status that was just filled.
            let code = unsafe { (f.get_count)(&raw const status, byte, &raw mut len) };
            self.check("MPI_Get_count", code)?;
            let mut frame = vec![0u8; usize::try_from(len).unwrap_or_default()];
            // SAFETY: the message that was just found, into as many bytes as it has.
            let code =
                unsafe { (f.mrecv)(frame.as_mut_ptr().cast(), len, byte, &raw mut message, &raw mut status) };
            self.check("MPI_Mrecv", code)?;
            take(source as u32, Came::Frame(frame));
        }
        Ok(any)
    }

    fn unsent(&self) -> usize {
        self.unsent
    }

    fn finish(&mut self) {
        // SAFETY: the last call of this thread.
        unsafe { (self.library.functions.finalize)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Option<(&'static str, u32)> {
        let variable = |name: &str| {
            let value = variables.iter().find(|(known, _)| *known == name)?.1;
            Some(value.to_owned())
        };
        launcher(&variable).map(|launcher| (launcher.name, launcher.nodes))
    }

    #[test]
    fn launchers_are_known_by_what_they_say() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("PMI_SIZE", "4"), ("PMI_RANK", "0")]), Some(("MPICH's mpiexec", 4)));
        assert_eq!(found(&[("PMI_SIZE", "1")]), None);
        assert_eq!(found(&[("OMPI_COMM_WORLD_SIZE", "2")]), Some(("Open MPI's mpiexec", 2)));
        let batch = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")];
        assert_eq!(found(&batch), None, "a batch script");
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "3"), ("SLURM_PROCID", "2")];
        assert_eq!(found(&step), Some(("srun", 3)));
    }

    #[test]
    fn ranks_do_not_have_what_launchers_say() {
        for name in ["PMI_RANK", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "HYDI_CONTROL_FD"] {
            assert!(is_launchers(name), "{name}");
        }
        for name in
            ["PATH", "SLURM_JOB_ID", "MPI4PY_MPIABI", "BDRUN_RANK", "OMPI_MCA_btl", "MPIR_CVAR_DEBUG_HOLD"]
        {
            assert!(!is_launchers(name), "{name}");
        }
    }
}
