//! `sddp`: train, simulate, generate, check. See the README.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use bdrun_hybrid::{Communicator, Hybrid, HybridConfig};
use bdrun_sddp::bounds::{Iteration, Stopping};
use bdrun_sddp::case::Case;
use bdrun_sddp::error::{Error, Result};
use bdrun_sddp::generate::{Size, generate};
use bdrun_sddp::highs::Library;
use bdrun_sddp::train::{Settings, train};
use bdrun_sddp::workspace::Space;
use bdrun_sddp::{exact, plot, policy, simulate};
use clap::{Args, Parser, Subcommand};

/// The whole heap may live on storage, but for HiGHS', which bdrun moves from outside.
#[global_allocator]
static HEAP: bdrun_worker::SbHeap = bdrun_worker::SbHeap;

/// Stochastic dual dynamic programming of a hydrothermal system.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Train a policy.
    Train(Train),
    /// Simulate a policy: mean cost with its 95 % confidence interval.
    Simulate(Simulate),
    /// Write a system of any size to standard output.
    Generate(Generate),
    /// Least cost of a small case, by one linear program over its whole scenario tree.
    BoundExact {
        /// The system (TOML).
        case: PathBuf,
    },
}

/// How a rank works, whatever it does.
#[derive(Args)]
struct Rank {
    /// Threads of each rank; else RAYON_NUM_THREADS, SLURM_CPUS_PER_TASK, 1.
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    /// Each rank has its own opening tree and pool of cuts: to see what sharing spares.
    #[arg(long)]
    no_share: bool,
}

#[derive(Args)]
struct Train {
    /// The system (TOML).
    case: PathBuf,
    /// At most so many iterations.
    #[arg(long, value_name = "N", default_value_t = 50)]
    iterations: u64,
    /// Trajectories of each forward pass, of all ranks together.
    #[arg(long, value_name = "N", default_value_t = 32)]
    forward: usize,
    /// Of the inflows that trajectories draw.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Stop once the upper end of the upper bound's 95 % interval is this close to the lower bound (0.01 is 1
    /// %).
    #[arg(long, value_name = "SHARE")]
    gap: Option<f64>,
    /// Stop once the lower bound grew by less than this share within --window iterations.
    #[arg(long, value_name = "SHARE")]
    stall: Option<f64>,
    /// Iterations for --stall.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    window: usize,
    /// Write the policy there.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Draw the bounds there.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    rank: Rank,
}

#[derive(Args)]
struct Simulate {
    /// The system (TOML).
    case: PathBuf,
    /// Trained for it.
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Trajectories.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    scenarios: usize,
    /// Of their inflows.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Inflows of the distribution itself instead of the opening tree, which is a sample of it.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    rank: Rank,
}

#[derive(Args)]
struct Generate {
    /// Reservoirs.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = at_least_one)]
    reservoirs: usize,
    /// Thermal plants.
    #[arg(long, value_name = "N", default_value_t = 8)]
    thermals: usize,
    /// Months.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = at_least_one)]
    stages: usize,
    /// Inflows of each month.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = at_least_one)]
    openings: usize,
    /// Another one makes another system.
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: u64,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".into()),
        other => other.map_err(|error: std::num::ParseIntError| error.to_string()),
    }
}

fn main() -> ExitCode {
    let result = match Command::parse().what {
        What::Train(arguments) => run(&arguments.rank, |hybrid| trained(hybrid, &arguments)),
        What::Simulate(arguments) => run(&arguments.rank, |hybrid| simulated(hybrid, &arguments)),
        What::Generate(Generate { reservoirs, thermals, stages, openings, seed }) => {
            let case = generate(Size { reservoirs, thermals, stages, openings }, seed);
            let text = toml::to_string(&case).expect("a case is a table");
            match std::io::stdout().write_all(text.as_bytes()) {
                // Whoever reads has seen enough.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                written => written.map_err(Error::file("standard output")),
            }
        }
        What::BoundExact { case } => Case::read(&case).and_then(|case| exact::solve(&case)).map(|cost| {
            println!("least cost  {cost:.6} M$");
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sddp: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Sets this rank up; what one rank fails at ends all of them.
fn run(rank: &Rank, work: impl FnOnce(&Hybrid<Space>) -> Result<()>) -> Result<()> {
    let config = HybridConfig { threads: rank.threads, ..HybridConfig::default() };
    let hybrid = Hybrid::init_with(config, |_| Space::new())?;
    hybrid.run(work);
    Ok(())
}

fn trained(hybrid: &Hybrid<Space>, arguments: &Train) -> Result<()> {
    let case = Case::read(&arguments.case)?;
    let settings = Settings {
        iterations: arguments.iterations,
        forward: arguments.forward,
        seed: arguments.seed,
        stopping: Stopping { gap: arguments.gap, stall: arguments.stall, window: arguments.window },
        share: !arguments.rank.no_share,
    };
    let comms = (hybrid.comm(), hybrid.node());
    let (speaks, began) = (hybrid.comm().rank() == 0, Instant::now());
    if speaks {
        arguments.policy.iter().chain(&arguments.plot).try_for_each(|path| policy::writable(path))?;
        // If there is none, who solves says so.
        let version = Library::get().map_or("?".to_owned(), Library::version);
        println!("{}, by HiGHS {version}", case.name);
        println!("iteration      lower bound      upper bound  ± 95 %        gap     cuts  seconds");
    }
    let tell = |iteration: &Iteration| {
        let Iteration { number, lower, upper, cuts } = iteration;
        let (mean, half, gap) = (upper.mean, upper.half_width(), 100.0 * iteration.gap());
        if speaks {
            let seconds = began.elapsed().as_secs_f64();
            println!("{number:9} {lower:16.6} {mean:16.6} {half:10.6} {gap:7.3} % {cuts:8} {seconds:8.1}");
        }
    };
    let done = train(comms, hybrid.workspaces(), &case, &settings, tell)?;
    if speaks {
        println!("{}; {} solves of rank 0 began again", done.stopped, done.again);
        if let Some(path) = &arguments.policy {
            policy::save(path, &case, settings.seed, &done.problem, &done.history)?;
        }
        if let Some(path) = &arguments.plot {
            policy::replace(path, |file| file.write_all(plot::svg(&case.name, &done.history).as_bytes()))?;
        }
    }
    Ok(())
}

fn simulated(hybrid: &Hybrid<Space>, arguments: &Simulate) -> Result<()> {
    let case = Case::read(&arguments.case)?;
    let (comm, share) = (hybrid.comm(), !arguments.rank.no_share);
    let (problem, history) = policy::load((comm, hybrid.node()), &case, &arguments.policy, share)?;
    let Simulate { scenarios, seed, fresh, .. } = *arguments;
    let (_, cost) =
        simulate::simulate(comm, hybrid.workspaces(), (&case, problem.view()), scenarios, (seed, fresh))?;
    if comm.rank() == 0 {
        println!("{}", case.name);
        println!(
            "cost         {:16.6} ± {:.6} M$ (95 %), {scenarios} scenarios",
            cost.mean,
            cost.half_width()
        );
        println!("deviation    {:16.6} M$", cost.deviation);
        if let Some(Iteration { lower, number, .. }) = history.last() {
            println!("lower bound  {lower:16.6} M$, after {number} iterations");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Command::command().debug_assert();
    }
}
