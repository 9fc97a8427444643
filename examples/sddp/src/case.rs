//! A hydrothermal system, as it stands in a file.
//!
//! Units, everywhere in this crate: storage in hm³ (10⁶ m³), flow in m³/s, power in MW, time in hours, prices
//! in $/MWh; what linear programs and results say of money is millions of $ (M$).

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::path::Path;

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::error::{Error, Result};

/// A flow of 1 m³/s for an hour, in hm³.
pub const HM3_PER_HOUR: f64 = 3600.0 * 1e-6;

/// A system, its horizon, and how uncertain the inflow is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// For output only.
    pub name: String,
    /// Price of energy that is not served, in $/MWh.
    pub deficit_cost: f64,
    /// Penalty of water that leaves over the limit of a spillway, in $/hm³: it keeps every stage feasible.
    pub excess_cost: f64,
    /// Per year of 8760 hours; 0.08 is 8 %.
    #[serde(default)]
    pub discount_rate: f64,
    /// Inflows that each stage after the first may bring, equally likely. The first stage's are its means.
    pub openings: usize,
    /// What the openings are drawn with.
    #[serde(default)]
    pub opening_seed: u64,
    /// Correlation of the inflows' logarithms between reservoirs; uncorrelated without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub correlation: Vec<Vec<f64>>,
    /// In the order in which inflows are listed.
    #[serde(rename = "reservoir")]
    pub reservoirs: Vec<Reservoir>,
    /// May be none.
    #[serde(default, rename = "thermal")]
    pub thermals: Vec<Thermal>,
    /// In order of time.
    #[serde(rename = "stage")]
    pub stages: Vec<Stage>,
}

/// A reservoir with its power station.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservoir {
    /// Unique.
    pub name: String,
    /// Least storage, hm³.
    pub minimum: f64,
    /// Most storage, hm³.
    pub maximum: f64,
    /// Storage when the first stage begins, hm³.
    pub initial: f64,
    /// Most flow through the turbines, m³/s.
    pub turbine: f64,
    /// Most flow over the spillway without penalty, m³/s.
    pub spill: f64,
    /// MW for each m³/s through the turbines.
    pub productivity: f64,
    /// Where turbined and spilled water arrives, in the same stage; without it leaves the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downstream: Option<String>,
}

/// A thermal plant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thermal {
    /// For messages.
    pub name: String,
    /// What it must generate, MW.
    #[serde(default)]
    pub minimum: f64,
    /// What it can generate, MW.
    pub maximum: f64,
    /// $/MWh.
    pub cost: f64,
}

/// A stretch of time within which all is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// How long it is.
    pub hours: f64,
    /// Mean load, MW.
    pub demand: f64,
    /// Mean incremental inflow of each reservoir, m³/s.
    pub inflow: Vec<f64>,
    /// Standard deviation of its logarithm (the inflow is log-normal with that mean).
    pub deviation: Vec<f64>,
}

impl Case {
    /// Reads a file and validates what is in it.
    ///
    /// # Errors
    /// If it cannot be read, is not such a TOML document, or [`validate`](Self::validate) refuses it.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::file(path))?;
        let syntax = |source| Error::Syntax { path: path.into(), source: Box::new(source) };
        let case: Self = toml::from_str(&text).map_err(syntax)?;
        case.validate()?;
        Ok(case)
    }

    /// That the numbers make a system of which every stage has a solution whatever its storage and inflow.
    ///
    /// # Errors
    /// [`Error::Case`] names the reservoir, plant or stage (from 1).
    pub fn validate(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::Case(text));
        if self.reservoirs.is_empty() || self.stages.is_empty() || self.openings == 0 {
            return refuse("it needs at least one reservoir, one stage and one opening".into());
        }
        let not_negative = [
            ("deficit_cost", self.deficit_cost),
            ("excess_cost", self.excess_cost),
            ("discount_rate", self.discount_rate),
        ];
        if let Some((name, value)) = not_negative.iter().find(|(_, value)| !is_amount(*value)) {
            return refuse(format!("{name} = {value} is not a number from 0"));
        }
        for Reservoir { name, minimum, maximum, initial, turbine, spill, productivity, .. } in
            &self.reservoirs
        {
            if ![minimum, maximum, initial, turbine, spill, productivity]
                .iter()
                .all(|value| is_amount(**value))
            {
                return refuse(format!("reservoir {name}: all its numbers are from 0"));
            }
            if !(minimum <= initial && initial <= maximum) {
                return refuse(format!("reservoir {name}: not minimum ≤ initial ≤ maximum"));
            }
        }
        self.downstream()?;
        for Thermal { name, minimum, maximum, cost } in &self.thermals {
            if ![minimum, maximum, cost].iter().all(|value| is_amount(**value)) || minimum > maximum {
                return refuse(format!("thermal {name}: not 0 ≤ minimum ≤ maximum, or a cost below 0"));
            }
        }
        let must: f64 = self.thermals.iter().map(|thermal| thermal.minimum).sum();
        for (number, stage) in (1..).zip(&self.stages) {
            let Stage { hours, demand, inflow, deviation } = stage;
            if !(is_amount(*hours) && *hours > 0.0 && is_amount(*demand)) {
                return refuse(format!("stage {number}: hours must be above 0, demand from 0"));
            }
            if must > *demand {
                return refuse(format!(
                    "stage {number}: plants must generate {must} MW, demand is {demand} MW"
                ));
            }
            if inflow.len() != self.reservoirs.len() || deviation.len() != self.reservoirs.len() {
                return refuse(format!("stage {number}: inflow and deviation list one number per reservoir"));
            }
            if !inflow.iter().chain(deviation).all(|value| is_amount(*value)) {
                return refuse(format!("stage {number}: inflows and deviations are numbers from 0"));
            }
        }
        self.cholesky().map(drop)
    }

    /// Of each reservoir the index of the one below it.
    ///
    /// # Errors
    /// If a name is not unique or not there, or water would run in a circle.
    pub fn downstream(&self) -> Result<Vec<Option<usize>>> {
        let mut index = BTreeMap::new();
        for (at, reservoir) in self.reservoirs.iter().enumerate() {
            if index.insert(reservoir.name.as_str(), at).is_some() {
                return Err(Error::Case(format!("there are two reservoirs {}", reservoir.name)));
            }
        }
        let find = |reservoir: &Reservoir| match &reservoir.downstream {
            None => Ok(None),
            Some(name) => index.get(name.as_str()).copied().map(Some).ok_or_else(|| {
                Error::Case(format!("reservoir {}: there is no {name} downstream", reservoir.name))
            }),
        };
        let below = self.reservoirs.iter().map(find).collect::<Result<Vec<_>>>()?;
        for start in 0..below.len() {
            let steps = std::iter::successors(Some(start), |at| below[*at]).take(below.len() + 1).count();
            if steps > below.len() {
                return Err(Error::Case(format!(
                    "below {} water runs in a circle",
                    self.reservoirs[start].name
                )));
            }
        }
        Ok(below)
    }

    /// The lower triangular factor of the correlation matrix, row by row (n × n).
    ///
    /// # Errors
    /// If the matrix is no correlation matrix: n × n, symmetric, ones on its diagonal, positive definite.
    pub fn cholesky(&self) -> Result<Vec<f64>> {
        let n = self.reservoirs.len();
        let given = &self.correlation;
        let mut factor = vec![0.0; n * n];
        if given.is_empty() {
            (0..n).for_each(|i| factor[i * n + i] = 1.0);
            return Ok(factor);
        }
        if given.len() != n || given.iter().any(|row| row.len() != n) {
            return Err(Error::Case(format!("correlation must have {n} rows of {n}")));
        }
        for i in 0..n {
            for j in 0..=i {
                if given[i][j] != given[j][i] || (i == j && given[i][j] != 1.0) {
                    return Err(Error::Case(
                        "correlation must be symmetric, with ones on its diagonal".into(),
                    ));
                }
                let known: f64 = (0..j).map(|k| factor[i * n + k] * factor[j * n + k]).sum();
                let rest = given[i][j] - known;
                factor[i * n + j] = if i == j { rest.sqrt() } else { rest / factor[j * n + j] };
                if i == j && (rest.is_nan() || rest <= 1e-12) {
                    return Err(Error::Case("correlation is not positive definite".into()));
                }
            }
        }
        Ok(factor)
    }

    /// What a M$ of the next stage is worth in this one (0-based).
    pub fn discount(&self, stage: usize) -> f64 {
        (1.0 + self.discount_rate).powf(-self.stages[stage].hours / 8760.0)
    }

    /// Storage of all reservoirs when the first stage begins, hm³.
    pub fn initial(&self) -> Vec<f64> {
        self.reservoirs.iter().map(|reservoir| reservoir.initial).collect()
    }

    /// 128 bits of everything in it, as 32 hexadecimal digits: a policy is of one case only.
    pub fn digest(&self) -> String {
        let text = serde_json::to_vec(self).expect("numbers, names and lists are JSON");
        let mut hasher = SipHasher13::new();
        hasher.write(&text);
        format!("{:032x}", hasher.finish128().as_u128())
    }
}

/// A finite number from 0.
fn is_amount(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        Case::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/tiny.toml")))
            .expect("the bundled case")
    }

    fn refused(change: impl FnOnce(&mut Case)) -> String {
        let mut case = case();
        change(&mut case);
        case.validate().expect_err("refused").to_string()
    }

    #[test]
    fn what_makes_no_system_is_refused_by_name() {
        assert!(refused(|case| case.reservoirs[0].downstream = Some("Nowhere".into())).contains("Nowhere"));
        let circle = |case: &mut Case| case.reservoirs[1].downstream = Some(case.reservoirs[0].name.clone());
        assert!(refused(circle).contains("circle"));
        assert!(refused(|case| case.reservoirs[1].name = case.reservoirs[0].name.clone()).contains("two"));
        assert!(refused(|case| case.reservoirs[0].initial = 1e9).contains("initial"));
        assert!(refused(|case| case.stages[1].demand = f64::NAN).contains("stage 2"));
        assert!(refused(|case| case.thermals[0].minimum = 1e5).contains("thermal"));
        assert!(refused(|case| case.stages[2].inflow = vec![]).contains("stage 3"));
        assert!(refused(|case| case.correlation = vec![vec![1.0, 1.0]; 2]).contains("positive definite"));
        assert!(refused(|case| case.correlation = vec![vec![1.0]]).contains("rows"));
        assert!(refused(|case| case.openings = 0).contains("opening"));
    }

    #[test]
    fn the_factor_times_itself_is_the_correlation() {
        let case = case();
        let (n, factor) = (case.reservoirs.len(), case.cholesky().expect("definite"));
        for i in 0..n {
            for j in 0..n {
                let product: f64 = (0..n).map(|k| factor[i * n + k] * factor[j * n + k]).sum();
                assert!((product - case.correlation[i][j]).abs() < 1e-15);
            }
        }
    }

    #[test]
    fn the_digest_knows_every_number() {
        let case = case();
        let mut other = case.clone();
        assert_eq!(case.digest(), other.digest());
        other.stages[2].deviation[1] += f64::EPSILON;
        assert_ne!(case.digest(), other.digest());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let case = case();
        let text = toml::to_string(&case).expect("TOML");
        assert_eq!(toml::from_str::<Case>(&text).expect("a case"), case);
    }
}
