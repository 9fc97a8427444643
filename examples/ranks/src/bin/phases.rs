//! A bulk-synchronous job to compare runtimes with: in each phase every rank goes through all of its memory,
//! then all meet in an allreduce and an all-to-all exchange. The same job as the plain MPI program
//! `benches/tools/phases.c`: the same arguments, collectives in the same order and the same arithmetic, so
//! the same `check=`, whatever the runtime, the budget and the number of evictions.
//!
//! `bdrun -np 8 --memory 768M phases 512 5 rw 512 1` prints `check=bdf88c6954e00000`. All arguments may be
//! left out from the end; their meanings are in [`Job`].
//!
//! It differs in three points: a wrong command line is an error and not a default, the last line is printed
//! on standard output, and the buffer of what was received is made by each exchange (`alltoallv` returns it)
//! and not once.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

const USAGE: &str = "usage: phases [MIB_PER_RANK [PHASES [rw|ro|q [MESSAGE_KIB [CHUNKS]]]]]";

/// What a phase does with the memory.
#[derive(Clone, Copy)]
enum Mode {
    /// Reads and modifies every word.
    ReadWrite,
    /// Only reads.
    ReadOnly,
    /// Reads everything and modifies the first quarter of each chunk.
    Quarter,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
            Self::Quarter => "q",
        }
    }
}

impl FromStr for Mode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::ReadWrite, Self::ReadOnly, Self::Quarter].into_iter().find(|m| m.name() == text).ok_or(())
    }
}

/// The command line.
struct Job {
    mib: usize,
    phases: u64,
    mode: Mode,
    /// Sent by each rank to each rank in the exchange of a phase; 0: there is none.
    message_kib: usize,
    /// The memory of a rank is this many allocations.
    chunks: usize,
}

impl Job {
    fn parse(args: &[String]) -> Option<Self> {
        fn nth<T: FromStr>(args: &[String], n: usize, default: T) -> Option<T> {
            args.get(n).map_or(Some(default), |text| text.parse().ok())
        }
        let job = Self {
            mib: nth(args, 0, 64)?,
            phases: nth(args, 1, 5)?,
            mode: nth(args, 2, Mode::ReadWrite)?,
            message_kib: nth(args, 3, 256)?,
            chunks: nth(args, 4, 1)?,
        };
        (args.len() <= 5 && job.chunks > 0).then_some(job)
    }
}

/// One phase over one chunk; the sum of what was seen.
fn pass(chunk: &mut [u64], mode: Mode, phase: u64) -> u64 {
    let (modified, read) = chunk.split_at_mut(match mode {
        Mode::ReadWrite => chunk.len(),
        Mode::ReadOnly => 0,
        Mode::Quarter => chunk.len() / 4,
    });
    let mut sum = 0u64;
    for word in modified {
        *word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(phase);
        sum = sum.wrapping_add(*word);
    }
    for word in read {
        sum = sum.wrapping_add(*word ^ phase);
    }
    sum
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + 1e-6 * time.tv_usec() as f64
}

fn run(job: &Job) -> bdrun_worker::Result<()> {
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    let (rank, ranks) = (comm.rank() as u64, comm.size());
    let begin = Instant::now();
    let words = (job.mib << 20) / 8 / job.chunks;
    let message = (job.message_kib << 10) / 8;
    let first = (rank + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut data: Vec<Vec<u64>> = (0..job.chunks)
        .map(|c| (c * words..(c + 1) * words).map(|i| first.wrapping_add(i as u64)).collect())
        .collect();
    let mut out = vec![0u64; ranks * message];
    let counts = vec![message; ranks];
    let mut acc = 0u64;
    comm.barrier()?;
    if rank == 0 {
        eprintln!("init {:.3} s", begin.elapsed().as_secs_f64());
    }

    for phase in 0..job.phases {
        let since = Instant::now();
        let sum = data.iter_mut().fold(0u64, |sum, chunk| sum.wrapping_add(pass(chunk, job.mode, phase)));
        // Empty messages have no pieces to fill.
        for (to, part) in out.chunks_exact_mut(message.max(1)).enumerate() {
            for (i, word) in part.iter_mut().enumerate() {
                *word = sum.wrapping_add(31 * to as u64 + i as u64);
            }
        }
        let total = comm.allreduce(&[sum], u64::wrapping_add)?[0];
        if message > 0 {
            let (received, _) = comm.alltoallv(&out, &counts)?;
            for word in received {
                acc = acc.wrapping_mul(1_099_511_628_211).wrapping_add(word);
            }
        }
        acc = acc.wrapping_add(total);
        world.progress("phases", phase + 1, job.phases);
        if rank == 0 {
            eprintln!("phase {phase} {:.3} s", since.elapsed().as_secs_f64());
        }
    }

    let check = comm.allreduce(&[acc], u64::wrapping_add)?[0];
    // Cannot fail with this argument; were it to, only what is told about the run would be missing.
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    let faults = usage.map_or([0; 2], |u| [u.major_page_faults(), u.minor_page_faults()]);
    let times = usage.map_or([0.0; 2], |u| [seconds(u.user_time()), seconds(u.system_time())]);
    let faults = comm.allreduce(&faults, |a: i64, b| a + b)?;
    let times = comm.allreduce(&times, |a: f64, b| a + b)?;
    if rank == 0 {
        println!(
            "RESULT np={ranks} mib={} K={} mode={} msg={}K chunks={} wall={:.3} majflt={} minflt={} utime={:.2} stime={:.2} check={check:016x}",
            job.mib,
            job.phases,
            job.mode.name(),
            job.message_kib,
            job.chunks,
            begin.elapsed().as_secs_f64(),
            faults[0],
            faults[1],
            times[0],
            times[1],
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(job) = Job::parse(&args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&job) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("phases: {error}");
            ExitCode::FAILURE
        }
    }
}
