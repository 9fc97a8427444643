//! Systems of any size, the same for the same numbers: cascades that end in a few rivers, seasons, plants
//! whose prices rise, and a load that water alone serves in wet months only.

use crate::case::{Case, HM3_PER_HOUR, Reservoir, Stage, Thermal};
use crate::noise::design;

/// How large a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Reservoirs, at least one.
    pub reservoirs: usize,
    /// Thermal plants.
    pub thermals: usize,
    /// Months, at least one.
    pub stages: usize,
    /// Inflows of each, at least one.
    pub openings: usize,
}

/// Hours of a twelfth of a year.
const MONTH: f64 = 730.0;

/// A system of that size.
pub fn generate(size: Size, seed: u64) -> Case {
    let Size { reservoirs: n, thermals, stages, openings } = size;
    let between =
        |what: u64, index: usize, low: f64, high: f64| low + (high - low) * design(seed, what, index);
    // Water runs to a reservoir of a higher number: there are no circles.
    let downstream = |i: usize| {
        let end = i + 1 == n || design(seed, 1, i) < 0.15;
        (!end).then(|| i + 1 + (between(2, i, 0.0, 3.0) as usize).min(n - i - 2))
    };
    let below: Vec<Option<usize>> = (0..n).map(downstream).collect();
    let own: Vec<f64> = (0..n).map(|i| between(3, i, 20.0, 200.0).round()).collect();
    let mut through = own.clone();
    (0..n).for_each(|i| below[i].iter().for_each(|down| through[*down] += through[i]));
    let name = |i: usize| format!("R{:02}", i + 1);
    let reservoirs: Vec<Reservoir> = (0..n)
        .map(|i| {
            // Storage of half a month to five months of what passes.
            let maximum = (through[i] * HM3_PER_HOUR * MONTH * between(4, i, 0.5, 5.0)).round();
            let (minimum, initial) = ((maximum * 0.15).round(), (maximum * between(5, i, 0.4, 0.7)).round());
            Reservoir {
                name: name(i),
                minimum,
                maximum,
                initial,
                turbine: (through[i] * between(6, i, 1.2, 1.8)).round(),
                spill: (through[i] * 6.0).round(),
                productivity: (between(7, i, 0.2, 1.0) * 1000.0).round() / 1000.0,
                downstream: below[i].map(name),
            }
        })
        .collect();
    let hydro: f64 = (0..n).map(|i| through[i] * reservoirs[i].productivity).sum();
    // Plants serve 60 % of what water does in the mean; both together the load, but in dry months.
    let plants = (0..thermals)
        .map(|k| {
            let maximum = (0.6 * hydro / thermals as f64 * between(8, k, 0.6, 1.4)).round().max(1.0);
            Thermal {
                name: format!("T{:02}", k + 1),
                minimum: (maximum * 0.1).round(),
                maximum,
                cost: (30.0 + 270.0 * (k as f64 + between(9, k, 0.1, 0.9)) / thermals as f64).round(),
            }
        })
        .collect();
    let stage = |t: usize| {
        let season = |shift: f64| (std::f64::consts::TAU * (t as f64 + shift) / 12.0).cos();
        Stage {
            hours: MONTH,
            demand: (1.15 * hydro * (1.0 + 0.1 * season(6.0))).round(),
            inflow: (0..n)
                .map(|i| (own[i] * (1.0 + 0.6 * season(between(10, i, 0.0, 2.0)))).round())
                .collect(),
            deviation: (0..n).map(|i| (between(11, i, 0.2, 0.5) * 100.0).round() / 100.0).collect(),
        }
    };
    Case {
        name: format!("{n} reservoirs, {thermals} plants, {stages} months, {openings} openings, seed {seed}"),
        deficit_cost: 1000.0,
        excess_cost: 5000.0,
        discount_rate: 0.08,
        openings,
        opening_seed: seed,
        // Rivers are the more alike the closer they are; such a matrix is positive definite.
        correlation: (0..n).map(|i| (0..n).map(|j| 0.6f64.powi(i.abs_diff(j) as i32)).collect()).collect(),
        reservoirs,
        thermals: plants,
        stages: (0..stages).map(stage).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_is_generated_is_a_case(
            reservoirs in 1..30usize, thermals in 0..9usize, stages in 1..30usize, openings in 1..9usize, seed in 0..i64::MAX as u64,
        ) {
            let case = generate(Size { reservoirs, thermals, stages, openings }, seed);
            prop_assert!(case.validate().is_ok(), "{:?}", case.validate());
            let text = toml::to_string(&case).unwrap();
            prop_assert_eq!(toml::from_str::<Case>(&text).unwrap(), case);
        }
    }
}
