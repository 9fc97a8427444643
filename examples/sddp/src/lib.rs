//! Stochastic dual dynamic programming (Pereira & Pinto 1991) of a hydrothermal system: what water is worth,
//! and when to burn fuel instead.
//!
//! What it is: an example of hybrid ranks (`bdrun-hybrid`). Trajectories are split over ranks, and within
//! each rank over the threads of a Rayon pool; the ranks of a node share the opening tree and the pool of
//! cuts. Results are the same to the bit for any ranks, threads and back end.
//!
//! What it is not: a planning tool. One system, inflows independent from stage to stage, continuous
//! decisions, all cuts kept.
//!
//! | module | answers |
//! |---|---|
//! | [`case`] | what a system is; units |
//! | [`generate`] | systems of any size |
//! | [`noise`] | random numbers without communication; the opening tree |
//! | [`lp`] | the linear program of a stage |
//! | [`highs`] | the solver |
//! | [`basis`], [`workspace`] | where a solve begins, and why its bits do not depend on what a thread did before |
//! | [`pool`] | what the ranks of a node share |
//! | [`passes`] | forward and backward, within a rank |
//! | [`train`] | the algorithm, and all communication of it |
//! | [`bounds`] | estimates, gap, when to stop |
//! | [`simulate`] | what a policy costs |
//! | [`exact`] | the deterministic equivalent |
//! | [`policy`] | policies on disk |
//! | [`plot`] | the picture |

pub mod basis;
pub mod bounds;
pub mod case;
pub mod error;
pub mod exact;
pub mod generate;
pub mod highs;
pub mod lp;
pub mod noise;
pub mod passes;
pub mod plot;
pub mod policy;
pub mod pool;
pub mod simulate;
pub mod train;
pub mod workspace;
