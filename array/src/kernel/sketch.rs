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
/// The sum of all elements, which a sketch has too, is finite if they are so much smaller: a power of two, so
/// that nothing is rounded.
const SCALE: f64 = 1.0 / 18_446_744_073_709_551_616.0;
/// Bytes of a sketch at most, as text: of each sign so many bins, each a number of up to 20 digits, and what
/// is said of them.
const BYTES: usize = 2 * 21 * BINS as usize + 4096;
/// Words of a state: how many bytes a sketch has, how many values were none, and the sketch.
pub(crate) const STATE: usize = 2 + BYTES.div_ceil(8);

fn config() -> Config {
    Config::new(ACCURACY, BINS, 1e-300)
}

fn state(sketch: Option<&DDSketch>, none: i64) -> Result<Block, Failure> {
    let bytes = sketch.map_or(Ok(Vec::new()), serde_json::to_vec)?;
    if bytes.len() > BYTES {
        return Err(failure(format!("a sketch of {} bytes: a defect of bdrun-array", bytes.len())));
    }
    let mut out = Block::zeros(DType::I64, &[STATE])?;
    let words = out.elements_mut::<i64>();
    (words[0], words[1]) = (bytes.len() as i64, none);
    out.bytes_mut()[16..16 + bytes.len()].copy_from_slice(&bytes);
    Ok(out)
}

/// None of no values: its bounds are no numbers in JSON.
fn of_state(block: &Block) -> Result<(Option<DDSketch>, i64), Failure> {
    let words = block.elements::<i64>();
    let bytes = &block.as_bytes()[16..16 + words[0] as usize];
    let sketch = if bytes.is_empty() { None } else { Some(serde_json::from_slice(bytes)?) };
    Ok((sketch, words[1]))
}

/// The sketch of a block of `f64`.
pub(super) fn sketch(input: &Block) -> Result<Block, Failure> {
    let mut sketch = DDSketch::new(config());
    let mut none = 0;
    for &x in input.elements::<f64>() {
        if x.is_finite() {
            sketch.add(x * SCALE);
        } else {
            none += 1;
        }
    }
    state(Some(&sketch).filter(|sketch| sketch.count() > 0), none)
}

/// Sketches as one.
pub(super) fn merge(inputs: &[Block]) -> Result<Block, Failure> {
    let (mut all, mut none): (Option<DDSketch>, i64) = (None, 0);
    for input in inputs {
        let (sketch, more) = of_state(input)?;
        none += more;
        match (&mut all, sketch) {
            (Some(all), Some(sketch)) => {
                let wrong = |_| failure("sketches of two kinds: a defect of bdrun-array".into());
                all.merge(&sketch).map_err(wrong)?;
            }
            (all, sketch) => *all = all.take().or(sketch),
        }
    }
    state(all.as_ref(), none)
}

/// The quantiles; not a number if a value was not finite, or there were none.
pub(super) fn quantiles(
    probabilities: impl ExactSizeIterator<Item = f64>,
    input: &Block,
) -> Result<Block, Failure> {
    let (sketch, none) = of_state(input)?;
    let mut out = Block::zeros(DType::F64, &[probabilities.len()])?;
    for (to, q) in out.elements_mut::<f64>().iter_mut().zip(probabilities) {
        let found = sketch.as_ref().map_or(Ok(None), |sketch| sketch.quantile(q));
        let found = found.map_err(|error| failure(error.to_string()))?;
        *to = found.filter(|_| none == 0).map_or(f64::NAN, |x| x / SCALE);
    }
    Ok(out)
}
