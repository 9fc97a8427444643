//! The linear program of a stage, as data.
//!
//! Of n reservoirs and m plants, in a stage of h hours (c = 0.0036 h hm³ for each m³/s):
//!
//! | columns | what | unit | bounds | cost in M$ |
//! |---|---|---|---|---|
//! | v, n | storage at the end | hm³ | minimum … maximum | 0 |
//! | q, n | through turbines | m³/s | 0 … turbine | 0 |
//! | s, n | over the spillway | m³/s | 0 … spill | 0 |
//! | e, n | over the spillway's limit | m³/s | 0 … | c · excess_cost / 10⁶ |
//! | g, m | thermal generation | MW | minimum … maximum | h · cost / 10⁶ |
//! | d, 1 | deficit | MW | 0 … | h · deficit_cost / 10⁶ |
//! | θ, 1 | cost of all later stages | M$ | 0 … (0 in the last) | discount |
//!
//! | rows | what |
//! |---|---|
//! | n | vᵢ + c(qᵢ + sᵢ + eᵢ) − c Σ(qⱼ + sⱼ + eⱼ) over those right above = storage before + c · inflow |
//! | 1 | Σ productivityᵢ qᵢ + Σ g + d = demand |
//! | a cut each | θ − βv ≥ α |
//!
//! All costs are from 0, so θ ≥ 0 is a bound before there are cuts.

use crate::case::{Case, HM3_PER_HOUR};
use crate::error::Result;

/// A linear program: minimise `cost · x`, rows and columns within their bounds, rows in compressed form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lp {
    /// Of each column.
    pub cost: Vec<f64>,
    /// Least value of each column.
    pub lower: Vec<f64>,
    /// Greatest value of each column.
    pub upper: Vec<f64>,
    /// Least value of each row.
    pub row_lower: Vec<f64>,
    /// Greatest value of each row.
    pub row_upper: Vec<f64>,
    /// Where each row begins in `index` and `value`, without the end of the last.
    pub start: Vec<i32>,
    /// Columns.
    pub index: Vec<i32>,
    /// Coefficients.
    pub value: Vec<f64>,
}

impl Lp {
    /// Adds a row.
    pub fn row(&mut self, lower: f64, upper: f64, entries: impl IntoIterator<Item = (usize, f64)>) {
        self.start.push(self.index.len() as i32);
        self.row_lower.push(lower);
        self.row_upper.push(upper);
        for (column, value) in entries {
            self.index.push(column as i32);
            self.value.push(value);
        }
    }

    /// Adds a column.
    pub fn column(&mut self, cost: f64, lower: f64, upper: f64) {
        self.cost.push(cost);
        self.lower.push(lower);
        self.upper.push(upper);
    }

    /// Forgets all rows from this one on.
    pub fn truncate(&mut self, rows: usize) {
        if let Some(&entries) = self.start.get(rows) {
            self.index.truncate(entries as usize);
            self.value.truncate(entries as usize);
        }
        self.start.truncate(rows);
        self.row_lower.truncate(rows);
        self.row_upper.truncate(rows);
    }
}

/// What of a stage's program does not change: all but right-hand sides and cuts.
pub struct StageLp {
    /// Reservoirs.
    n: usize,
    /// hm³ for each m³/s.
    volume: f64,
    /// Without cuts; the balances' right-hand sides are 0.
    base: Lp,
}

impl StageLp {
    /// Of a stage (from 0) of a validated case.
    ///
    /// # Errors
    /// If the cascade is none ([`Case::downstream`]).
    pub fn new(case: &Case, stage: usize) -> Result<Self> {
        let below = case.downstream()?;
        let n = case.reservoirs.len();
        let of = &case.stages[stage];
        let volume = HM3_PER_HOUR * of.hours;
        let energy = |price: f64| price * of.hours * 1e-6;
        let mut base = Lp::default();
        case.reservoirs.iter().for_each(|reservoir| base.column(0.0, reservoir.minimum, reservoir.maximum));
        case.reservoirs.iter().for_each(|reservoir| base.column(0.0, 0.0, reservoir.turbine));
        case.reservoirs.iter().for_each(|reservoir| base.column(0.0, 0.0, reservoir.spill));
        (0..n).for_each(|_| base.column(volume * case.excess_cost * 1e-6, 0.0, f64::INFINITY));
        case.thermals.iter().for_each(|plant| base.column(energy(plant.cost), plant.minimum, plant.maximum));
        base.column(energy(case.deficit_cost), 0.0, f64::INFINITY);
        let is_last = stage + 1 == case.stages.len();
        base.column(case.discount(stage), 0.0, if is_last { 0.0 } else { f64::INFINITY });
        for i in 0..n {
            let released = |j: usize, sign: f64| (1..4).map(move |kind| (kind * n + j, sign * volume));
            let above = (0..n).filter(|j| below[*j] == Some(i)).flat_map(|j| released(j, -1.0));
            base.row(0.0, 0.0, std::iter::once((i, 1.0)).chain(released(i, 1.0)).chain(above));
        }
        let hydro = (0..n).map(|i| (n + i, case.reservoirs[i].productivity));
        let other = (4 * n..=4 * n + case.thermals.len()).map(|column| (column, 1.0));
        base.row(of.demand, of.demand, hydro.chain(other));
        Ok(Self { n, volume, base })
    }

    /// How many columns; the last is θ.
    pub fn columns(&self) -> usize {
        self.base.cost.len()
    }

    /// How many rows there are before the cuts'.
    pub fn rows(&self) -> usize {
        self.base.start.len()
    }

    /// Without cuts.
    pub fn base(&self) -> &Lp {
        &self.base
    }

    /// The program with cuts, written over `lp`, whose memory is used again. `cuts`: α, β₁ … βₙ each, in
    /// parts.
    pub fn with_cuts<'a>(&self, cuts: impl IntoIterator<Item = &'a [f64]>, lp: &mut Lp) {
        lp.clone_from(&self.base);
        let theta = self.columns() - 1;
        for cut in cuts.into_iter().flat_map(|part| part.chunks_exact(self.n + 1)) {
            let slopes = cut[1..].iter().enumerate().filter(|(_, slope)| **slope != 0.0);
            let entries = slopes.map(|(column, slope)| (column, -slope)).chain([(theta, 1.0)]);
            lp.row(cut[0], f64::INFINITY, entries);
        }
    }

    /// Right-hand sides of the first n rows: `storage` before the stage in hm³, `inflow` in m³/s.
    pub fn balances(&self, storage: &[f64], inflow: &[f64], sides: &mut [f64]) {
        for ((side, storage), inflow) in sides.iter_mut().zip(storage).zip(inflow) {
            *side = storage + self.volume * inflow;
        }
    }

    /// Storage at the end of the stage, of a solution: within its bounds, which a solver meets but for 1e-9.
    pub fn storage(&self, solution: &[f64], storage: &mut [f64]) {
        for (i, storage) in storage.iter_mut().enumerate() {
            *storage = solution[i].clamp(self.base.lower[i], self.base.upper[i]);
        }
    }

    /// Cost of this stage alone in M$, of a solution.
    pub fn immediate(&self, solution: &[f64]) -> f64 {
        let columns = self.columns() - 1;
        self.base.cost[..columns].iter().zip(solution).map(|(cost, value)| cost * value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn case() -> Case {
        Case::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/tiny.toml")))
            .expect("the bundled case")
    }

    fn dense(lp: &Lp, row: usize) -> Vec<f64> {
        let end = lp.start.get(row + 1).map_or(lp.index.len(), |end| *end as usize);
        let mut coefficients = vec![0.0; lp.cost.len()];
        for at in lp.start[row] as usize..end {
            coefficients[lp.index[at] as usize] += lp.value[at];
        }
        coefficients
    }

    #[test]
    fn a_stage_is_what_its_table_says() {
        let stage = StageLp::new(&case(), 1).expect("a stage");
        let c = 0.0036 * 730.0;
        let lp = stage.base();
        assert_eq!((stage.columns(), stage.rows()), (12, 3));
        let close = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(close(dense(lp, 0), vec![1.0, 0.0, c, 0.0, c, 0.0, c, 0.0, 0.0, 0.0, 0.0, 0.0]));
        assert!(close(dense(lp, 1), vec![0.0, 1.0, -c, c, -c, c, -c, c, 0.0, 0.0, 0.0, 0.0]));
        assert!(close(dense(lp, 2), vec![0.0, 0.0, 0.9, 0.45, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]));
        assert_eq!((lp.row_lower[2], lp.row_upper[2]), (205.0, 205.0));
        assert!((lp.cost[8] - 45.0 * 730e-6).abs() < 1e-12 && (lp.cost[6] - c * 2e-3).abs() < 1e-12);
        assert!((lp.cost[11] - 1.05f64.powf(-730.0 / 8760.0)).abs() < 1e-15);
        assert_eq!((lp.lower[8], lp.upper[8], lp.upper[11]), (5.0, 60.0, f64::INFINITY));
        assert_eq!(StageLp::new(&case(), 3).expect("the last").base().upper[11], 0.0);
        let mut sides = [0.0; 2];
        stage.balances(&[100.0, 50.0], &[10.0, 20.0], &mut sides);
        assert_eq!(sides, [100.0 + c * 10.0, 50.0 + c * 20.0]);
    }

    #[test]
    fn cuts_are_rows_behind_it_and_go_again() {
        let stage = StageLp::new(&case(), 1).expect("a stage");
        let mut lp = Lp::default();
        stage.with_cuts([&[7.0, -2.0, 0.0][..], &[9.0, -1.0, -3.0]], &mut lp);
        assert_eq!(dense(&lp, 3), [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(dense(&lp, 4), [1.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!((lp.row_lower[4], lp.row_upper[4]), (9.0, f64::INFINITY));
        lp.truncate(3);
        assert_eq!(&lp, stage.base());
    }
}
