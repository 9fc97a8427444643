//! What launchers say, and what is done with what a library answers, in place of which these functions are.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::c_void;

use super::library::Functions;
use super::*;

/// What the library answers.
#[derive(Default)]
struct Answers {
    /// Nodes that cannot be reached.
    gone: HashSet<c_int>,
    /// Requests made so far, and those that are done.
    requests: usize,
    done: HashSet<usize>,
    /// Of which MPI says that they have failed.
    failed: HashSet<usize>,
    /// A frame that is there: of whom, and its bytes.
    there: Option<(c_int, Vec<u8>)>,
    /// Where frames are written to, by request.
    into: Vec<(usize, *mut u8, Vec<u8>)>,
    sends: usize,
}

thread_local! {
    static ANSWERS: RefCell<Answers> = RefCell::default();
}

fn with<T>(look: impl FnOnce(&mut Answers) -> T) -> T {
    ANSWERS.with_borrow_mut(look)
}

fn request(answers: &mut Answers) -> Handle {
    answers.requests += 1;
    std::ptr::without_provenance_mut(answers.requests)
}

unsafe extern "C" fn isend(
    _: *const c_void,
    _: c_int,
    _: Handle,
    to: c_int,
    _: c_int,
    _: Handle,
    made: *mut Handle,
) -> c_int {
    with(|answers| {
        answers.sends += 1;
        // SAFETY: the caller's.
        unsafe { *made = request(answers) };
        c_int::from(answers.gone.contains(&to))
    })
}

unsafe extern "C" fn irecv(
    _: *mut c_void,
    _: c_int,
    _: Handle,
    _: c_int,
    _: c_int,
    _: Handle,
    made: *mut Handle,
) -> c_int {
    // SAFETY: the caller's.
    with(|answers| unsafe { *made = request(answers) });
    0
}

unsafe extern "C" fn test(tested: *mut Handle, flag: *mut c_int, _: *mut Status) -> c_int {
    with(|answers| {
        // SAFETY: the caller's; and a frame comes to where the caller said it is to lie.
        unsafe {
            let number = (*tested).addr();
            if answers.failed.contains(&number) {
                return 1;
            }
            let is_done = answers.done.contains(&number);
            *flag = c_int::from(is_done);
            if is_done && let Some(at) = answers.into.iter().position(|(which, ..)| *which == number) {
                let (_, into, bytes) = answers.into.remove(at);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len());
            }
        }
        0
    })
}

unsafe extern "C" fn improbe(
    _: c_int,
    _: c_int,
    _: Handle,
    flag: *mut c_int,
    _: *mut Handle,
    status: *mut Status,
) -> c_int {
    with(|answers| {
        let there = answers.there.as_ref();
        // SAFETY: the caller's.
        unsafe {
            *flag = c_int::from(there.is_some());
            (*status)[2] = there.map_or(0, |(from, _)| *from);
        }
    });
    0
}

unsafe extern "C" fn get_count(_: *const Status, _: Handle, count: *mut c_int) -> c_int {
    let len = with(|answers| answers.there.as_ref().map_or(0, |(_, bytes)| bytes.len()));
    // SAFETY: the caller's.
    unsafe { *count = len as c_int };
    0
}

unsafe extern "C" fn imrecv(
    into: *mut c_void,
    _: c_int,
    _: Handle,
    _: *mut Handle,
    made: *mut Handle,
) -> c_int {
    with(|answers| {
        let handle = request(answers);
        let bytes = answers.there.take().map(|(_, bytes)| bytes).unwrap_or_default();
        answers.into.push((handle.addr(), into.cast(), bytes));
        // SAFETY: the caller's.
        unsafe { *made = handle };
    });
    0
}

unsafe extern "C" fn init_thread(_: *mut c_int, _: *mut c_void, _: c_int, _: *mut c_int) -> c_int {
    0
}

unsafe extern "C" fn finalize() -> c_int {
    0
}

unsafe extern "C" fn ask(_: Handle, _: *mut c_int) -> c_int {
    0
}

unsafe extern "C" fn set_errhandler(_: Handle, _: Handle) -> c_int {
    0
}

/// The first of three masters.
fn first() -> Mpi {
    let functions = Functions {
        init_thread,
        finalize,
        comm_rank: ask,
        comm_size: ask,
        isend,
        irecv,
        test,
        improbe,
        imrecv,
        set_errhandler,
        get_count,
    };
    let none: Handle = null_mut();
    let library = Library {
        functions,
        abi: Abi::Mpich,
        world: none,
        byte: none,
        errors_return: none,
        name: "none".into(),
    };
    let peers = (0..3).map(|_| Peer::default()).collect();
    Mpi { library, node: 0, nodes: 3, peers, unsent: 0, coming: 0, lost: VecDeque::new() }
}

/// The others have to be told, and errors of one that is gone must not end that.
#[test]
fn that_one_cannot_be_reached_is_said_once() {
    let mut mpi = first();
    with(|answers| answers.gone.insert(1));
    assert!(mpi.send(1, vec![0; 10]).is_err());
    assert_eq!(mpi.unsent(), 0, "nobody waits for what is never sent");
    let before = with(|answers| answers.sends);
    mpi.send(1, vec![0; 10]).expect("said already");
    // SAFETY: nothing is lent.
    let body = unsafe { mpi.send_with(1, vec![0; 10], Body::Owned(vec![0; 99])) }.expect("said already");
    assert!(body > mpi.sent(1), "it is never sent");
    assert_eq!((mpi.unsent(), with(|answers| answers.sends)), (0, before));
    let number = mpi.send(2, vec![0; 10]).expect("it is there");
    assert_eq!(mpi.unsent(), 10);
    with(|answers| answers.done.extend(0..=answers.requests));
    assert!(!mpi.receive(&mut |_, _| panic!("nothing has come")).expect("no error is left"));
    assert_eq!((mpi.unsent(), mpi.sent(2)), (0, number));
}

/// Of a frame that has begun to come, the rest may never do, if its sender has died.
#[test]
fn a_frame_is_taken_once_it_is_whole() {
    let mut mpi = first();
    let come = |mpi: &mut Mpi| {
        let mut all = vec![];
        mpi.receive(&mut |from, what| all.push((from, what))).expect("no error");
        all
    };
    with(|answers| answers.there = Some((2, vec![7; 100])));
    assert_eq!(come(&mut mpi), [], "it does not wait for it");
    with(|answers| answers.there = Some((1, vec![8; 3])));
    with(|answers| answers.done.insert(2));
    assert_eq!(come(&mut mpi), [(1, Came::Frame(vec![8; 3]))], "others are heard meanwhile");
    with(|answers| answers.done.insert(1));
    assert_eq!(come(&mut mpi), [(2, Came::Frame(vec![7; 100]))]);
    assert_eq!(come(&mut mpi), []);
}

/// It is the same to the others whether a frame fails as soon as it begins to come, or later.
#[test]
fn who_cannot_be_heard_is_lost() {
    for fails_at_once in [true, false] {
        let mut mpi = first();
        with(|answers| *answers = Answers { there: Some((2, vec![7; 100])), ..Answers::default() });
        if !fails_at_once {
            assert!(mpi.receive(&mut |_, _| panic!("it is not whole")).expect("it comes"));
        }
        with(|answers| answers.failed.insert(1));
        let failed = mpi.receive(&mut |_, _| panic!("nothing has come"));
        assert!(matches!(failed, Err(TransportError::Lost { node: 2, .. })), "{failed:?}");
        with(|answers| answers.there = Some((1, vec![8; 3])));
        with(|answers| answers.done.insert(2));
        let mut all = vec![];
        mpi.receive(&mut |from, what| all.push((from, what))).expect("it was said");
        assert_eq!(all, [(1, Came::Frame(vec![8; 3]))]);
    }
}

/// Two at once: each is said.
#[test]
fn all_who_cannot_be_heard_are_lost() {
    let mut mpi = first();
    for from in [1, 2] {
        with(|answers| answers.there = Some((from, vec![7; 100])));
        assert!(mpi.receive(&mut |_, _| panic!("it is not whole")).expect("it comes"));
    }
    with(|answers| answers.failed.extend([1, 2]));
    for from in [1, 2] {
        let failed = mpi.receive(&mut |_, _| panic!("nothing has come"));
        assert!(matches!(failed, Err(TransportError::Lost { node, .. }) if node == from), "{failed:?}");
    }
    assert!(!mpi.receive(&mut |_, _| panic!("nothing has come")).expect("it was said"));
}

/// Frames and bodies count alike: whoever lends one knows by its number when it is sent.
#[test]
fn what_is_sent_is_known_by_its_number() {
    let mut mpi = first();
    let frame = mpi.send(1, vec![0; 5]).expect("sent");
    // SAFETY: nothing is lent.
    let body = unsafe { mpi.send_with(1, vec![0; 5], Body::Owned(vec![0; 9])) }.expect("sent");
    let mut sent = |upto: usize| {
        with(|answers| answers.done.extend(0..=upto));
        mpi.receive(&mut |_, _| panic!("nothing has come")).expect("no error");
        mpi.sent(1)
    };
    assert!(sent(0) < frame);
    assert!((frame..body).contains(&sent(1)));
    assert!(sent(2) < body, "its frame has gone, and not the body");
    assert_eq!(sent(3), body);
}

#[test]
fn descriptors_of_launchers_do_not_reach_ranks() {
    use std::os::fd::AsRawFd;
    let (ours, theirs) = nix::unistd::pipe().unwrap();
    // SAFETY: a flag of a descriptor that is open.
    let flags = |number: c_int| unsafe { libc::fcntl(number, libc::F_GETFD) };
    let standard = flags(2);
    let variable = |name: &str| match name {
        "PMI_FD" => Some(ours.as_raw_fd().to_string()),
        "HYDI_CONTROL_FD" => Some("2".into()),
        _ => None,
    };
    keep_from_ranks(&variable);
    assert_eq!(flags(ours.as_raw_fd()), libc::FD_CLOEXEC);
    assert_eq!((flags(theirs.as_raw_fd()), flags(2)), (0, standard));
}

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
