//! Quantiles from sketches (DDSketch: Masson, Rim, Lee 2019): each value that is found is within half a per
//! cent of one of the rank that was asked for.

use sketches_ddsketch::{Config, DDSketch};

use super::{Failure, failure};
use crate::block::Block;
use crate::dtype::DType;

/// Of values, relatively.
const ACCURACY: f64 = 0.005;
/// What is further apart than this many steps of that accuracy (a factor of 10^17) is not told apart.
const BINS: u32 = 4096;
/// Bytes of a sketch at most, as text: of each sign so many bins, each a number of up to 20 digits, and what
/// is said of them.
const BYTES: usize = 2 * 21 * BINS as usize + 4096;
/// Words of a state: how many bytes a sketch has, how many values were none, and the sketch.
pub(crate) const STATE: usize = 2 + BYTES.div_ceil(8);

fn config() -> Config {
    Config::new(ACCURACY, BINS, 1e-300)
}

fn state(sketch: &DDSketch, none: i64) -> Result<Block, Failure> {
    let bytes = serde_json::to_vec(sketch)?;
    if bytes.len() > BYTES {
        return Err(failure(format!("a sketch of {} bytes: a defect of bdrun-array", bytes.len())));
    }
    let mut out = Block::zeros(DType::I64, &[STATE])?;
    let words = out.elements_mut::<i64>();
    (words[0], words[1]) = (bytes.len() as i64, none);
    out.bytes_mut()[16..16 + bytes.len()].copy_from_slice(&bytes);
    Ok(out)
}

fn of_state(block: &Block) -> Result<(DDSketch, i64), Failure> {
    let words = block.elements::<i64>();
    let bytes = &block.as_bytes()[16..16 + words[0] as usize];
    Ok((serde_json::from_slice(bytes)?, words[1]))
}

/// The sketch of a block of `f64`.
pub(super) fn sketch(input: &Block) -> Result<Block, Failure> {
    let mut sketch = DDSketch::new(config());
    let mut none = 0;
    for &x in input.elements::<f64>() {
        if x.is_finite() {
            sketch.add(x);
        } else {
            none += 1;
        }
    }
    state(&sketch, none)
}

/// Sketches as one.
pub(super) fn merge(inputs: &[Block]) -> Result<Block, Failure> {
    let (mut all, mut none) = of_state(&inputs[0])?;
    for input in &inputs[1..] {
        let (sketch, more) = of_state(input)?;
        all.merge(&sketch).map_err(|_| failure("sketches of two kinds: a defect of bdrun-array".into()))?;
        none += more;
    }
    state(&all, none)
}

/// The quantiles; not a number if a value was not finite, or there were none.
pub(super) fn quantiles(
    probabilities: impl ExactSizeIterator<Item = f64>,
    input: &Block,
) -> Result<Block, Failure> {
    let (sketch, none) = of_state(input)?;
    let mut out = Block::zeros(DType::F64, &[probabilities.len()])?;
    for (to, q) in out.elements_mut::<f64>().iter_mut().zip(probabilities) {
        let found = sketch.quantile(q).map_err(|error| failure(error.to_string()))?;
        *to = found.filter(|_| none == 0).unwrap_or(f64::NAN);
    }
    Ok(out)
}
