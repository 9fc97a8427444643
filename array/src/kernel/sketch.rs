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
/// Words of a state: how many bytes a sketch has, how many values are not in it, and the sketch.
pub(crate) const STATE: usize = 1 + 3 + BYTES.div_ceil(8);
/// Where it begins.
const SKETCH: usize = 8 * (1 + 3);

fn config() -> Config {
    Config::new(ACCURACY, BINS, 1e-300)
}

/// Values that are not in a sketch: infinities, which are beyond all others, and what is no number.
#[derive(Clone, Copy, Default)]
struct Beside {
    below: i64,
    above: i64,
    none: i64,
}

fn state(sketch: Option<&DDSketch>, beside: Beside) -> Result<Block, Failure> {
    let bytes = sketch.map_or(Ok(Vec::new()), serde_json::to_vec)?;
    if bytes.len() > BYTES {
        return Err(failure(format!("a sketch of {} bytes: a defect of bdrun-array", bytes.len())));
    }
    let mut out = Block::zeros(DType::I64, &[STATE])?;
    out.elements_mut::<i64>()[..4].copy_from_slice(&[
        bytes.len() as i64,
        beside.below,
        beside.above,
        beside.none,
    ]);
    out.bytes_mut()[SKETCH..SKETCH + bytes.len()].copy_from_slice(&bytes);
    Ok(out)
}

/// None of no values: its bounds are no numbers in JSON.
fn of_state(block: &Block) -> Result<(Option<DDSketch>, Beside), Failure> {
    let words = block.elements::<i64>();
    let bytes = &block.as_bytes()[SKETCH..SKETCH + words[0] as usize];
    let sketch = if bytes.is_empty() { None } else { Some(serde_json::from_slice(bytes)?) };
    Ok((sketch, Beside { below: words[1], above: words[2], none: words[3] }))
}

/// The sketch of a block of `f64`.
pub(super) fn sketch(input: &Block) -> Result<Block, Failure> {
    let mut sketch = DDSketch::new(config());
    let mut beside = Beside::default();
    for &x in input.elements::<f64>() {
        if x.is_finite() {
            sketch.add(x * SCALE);
        } else if x.is_nan() {
            beside.none += 1;
        } else if x < 0.0 {
            beside.below += 1;
        } else {
            beside.above += 1;
        }
    }
    state(Some(&sketch).filter(|sketch| sketch.count() > 0), beside)
}

/// Sketches as one.
pub(super) fn merge(inputs: &[Block]) -> Result<Block, Failure> {
    let (mut all, mut beside): (Option<DDSketch>, Beside) = (None, Beside::default());
    for input in inputs {
        let (sketch, more) = of_state(input)?;
        beside.below += more.below;
        beside.above += more.above;
        beside.none += more.none;
        match (&mut all, sketch) {
            (Some(all), Some(sketch)) => {
                let wrong = |_| failure("sketches of two kinds: a defect of bdrun-array".into());
                all.merge(&sketch).map_err(wrong)?;
            }
            (all, sketch) => *all = all.take().or(sketch),
        }
    }
    state(all.as_ref(), beside)
}

/// The quantiles; not a number if a value was none, or there were none.
pub(super) fn quantiles(
    probabilities: impl ExactSizeIterator<Item = f64>,
    input: &Block,
) -> Result<Block, Failure> {
    let (sketch, Beside { below, above, none }) = of_state(input)?;
    let finite = sketch.as_ref().map_or(0, |sketch| sketch.count() as i64);
    let all = below + finite + above;
    let mut out = Block::zeros(DType::F64, &[probabilities.len()])?;
    for (to, q) in out.elements_mut::<f64>().iter_mut().zip(probabilities) {
        // As the sketch has it.
        let rank = (q * (all - 1) as f64) as i64;
        *to = match &sketch {
            _ if none > 0 || all == 0 => f64::NAN,
            _ if rank < below => f64::NEG_INFINITY,
            Some(sketch) if rank < below + finite => {
                // Of the finite ones; in the middle between two ranks, so that rounding does not matter, but
                // for the first and the last one, which it has as they are.
                let last = finite - 1;
                let within = match rank - below {
                    0 => 0.0,
                    rank if rank == last => 1.0,
                    rank => (rank as f64 + 0.5) / last as f64,
                };
                let found = sketch.quantile(within).map_err(|error| failure(error.to_string()))?;
                found.map_or(f64::NAN, |x| x / SCALE)
            }
            _ => f64::INFINITY,
        };
    }
    Ok(out)
}
