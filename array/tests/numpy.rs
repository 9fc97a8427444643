//! Random expressions, computed here in random blocks and budgets, and by NumPy.
//!
//! `ARRAY_CASES=10000` is how many, `ARRAY_SEED=1` where they begin. NumPy is that of the Python that
//! `BDRUN_SDDP_PYTHON` names, or else of `python3`.

#[path = "numpy/expression.rs"]
mod expression;
#[path = "numpy/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use bdrun_array::source::{Npy, NpyWriter, Sink, Source};
use bdrun_array::{Array, Block, DType, Error, Progress, Region, Settings, Threads};

use expression::{Expression, Pool};
use random::Random;

const SCRIPT: &str = include_str!("numpy/evaluate.py");

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn python() -> Option<String> {
    let python = std::env::var("BDRUN_SDDP_PYTHON").unwrap_or_else(|_| "python3".into());
    let is_there =
        Command::new(&python).args(["-c", "import numpy; assert numpy.__version__ > '2.1'"]).output();
    if is_there.is_ok_and(|output| output.status.success()) {
        Some(python)
    } else {
        bdrun_skipped::skipped("numpy", "there is no Python with NumPy 2.1");
        None
    }
}

/// A directory that is gone with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("bdrun-array-numpy-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn save(path: &Path, block: &Block) {
    let writer = NpyWriter::create(path, block.dtype(), block.shape(), None).unwrap();
    let region = Region { start: vec![0; block.shape().len()], shape: block.shape().to_vec() };
    writer.write(&region, block).unwrap();
    writer.finish().unwrap();
}

fn load(path: &Path) -> Block {
    let npy = Npy::open(path).unwrap();
    npy.read(&Region { start: vec![0; npy.shape().len()], shape: npy.shape().to_vec() }).unwrap()
}

/// Computes it within a budget between what any order takes and what two threads do.
fn compute(array: &Array, random: &mut Random, directory: &Path) -> Result<Block, Error> {
    let settings = Settings {
        threads: Threads { compute: 1 + random.below(2), transfer: 1 },
        scratch: directory.into(),
        ..Settings::default()
    };
    let held = bdrun_array::source::Held::new(array.dtype(), array.shape()).unwrap();
    let outputs = [(array.clone(), &held as &dyn Sink)];
    let prepared = settings.prepare(&outputs)?;
    let least = bdrun_graph::order::least(&prepared.graph);
    let budget = least + random.below((prepared.bound - least + 1) as usize) as u64;
    let settings = Settings { budget: Some(budget), ..settings };
    let report = settings.prepare(&outputs)?.run(&Progress::default())?;
    assert!(report.peak <= budget, "{} bytes of {budget}", report.peak);
    drop(prepared);
    Ok(held.into_block())
}

/// The class of NumPy's exception.
fn kind(error: &Error) -> Option<&'static str> {
    match error {
        Error::Shapes { .. } | Error::Value(_) | Error::Axis { .. } | Error::Run(_) => Some("ValueError"),
        Error::Type { .. } => Some("TypeError"),
        Error::Index { .. } => Some("IndexError"),
        Error::Overflow { .. } => Some("OverflowError"),
        Error::Unsupported(_) => None,
        other => panic!("{other}"),
    }
}

/// Whether a block is what NumPy says, up to rounding of numbers as large as `scale`, if that is finite.
fn check(ours: &Block, theirs: &Block, scale: f64, single: bool) -> Result<(), String> {
    if ours.dtype() != theirs.dtype() || ours.shape() != theirs.shape() {
        let text = |block: &Block| format!("{} {:?}", block.dtype(), block.shape());
        return Err(format!("{} instead of {}", text(ours), text(theirs)));
    }
    if scale.is_infinite() {
        return Ok(());
    }
    let precision = if single { 2e-5 } else { 1e-9 };
    let near = |x: f64, y: f64| {
        x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= precision * (x.abs().max(y.abs()).max(scale))
    };
    let differ = |at: usize| Err(format!("at {at}: {} instead of {}", ours.text(at), theirs.text(at)));
    for at in 0..ours.len() {
        let is_right = match ours.dtype() {
            DType::F32 => {
                let (x, y) = (ours.elements::<f32>()[at], theirs.elements::<f32>()[at]);
                // Beyond the largest number rounding decides.
                near(x.into(), y.into()) || (x.is_infinite() && y.abs() > 3e38)
            }
            DType::F64 => near(ours.elements::<f64>()[at], theirs.elements::<f64>()[at]),
            DType::C64 => {
                type C = bdrun_array::Complex;
                let (x, y) = (ours.elements::<C>()[at], theirs.elements::<C>()[at]);
                let is_finite = |x: C| x.re.is_finite() && x.im.is_finite();
                match (is_finite(x), is_finite(y)) {
                    (true, true) => (x - y).norm() <= precision * x.norm().max(y.norm()).max(scale) || x == y,
                    (one, other) => one == other,
                }
            }
            _ => {
                let size = ours.dtype().size();
                ours.as_bytes()[at * size..][..size] == theirs.as_bytes()[at * size..][..size]
            }
        };
        if !is_right {
            return differ(at);
        }
    }
    Ok(())
}

#[test]
fn random_expressions_are_numpys() {
    let Some(python) = python() else { return };
    let (cases, seed) = (number("ARRAY_CASES", 2000), number("ARRAY_SEED", 1));
    let directory = Directory::new();
    let mut random = Random::new(seed);
    let pool = Pool::new(&mut random);
    for (at, block) in pool.blocks.iter().enumerate() {
        save(&directory.0.join(format!("{at}.npy")), block);
    }
    let mut expressions = Vec::new();
    for case in 0..cases {
        // Each by its own seed, so that one can be looked at alone.
        let mut random = Random::new(seed.wrapping_mul(1_000_003) + case);
        expressions.push(Expression::random(&pool, &mut random));
    }
    let text: String = expressions.iter().map(|expression| format!("{}\n", expression.text)).collect();
    std::fs::write(directory.0.join("expressions"), text).unwrap();
    let output = Command::new(&python).arg("-c").arg(SCRIPT).arg(&directory.0).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count() as u64, cases);
    let (mut unsupported, mut errors, mut values, mut wrong) = (BTreeMap::new(), 0, 0, Vec::new());
    let mut lazy = 0;
    for (case, (expression, answer)) in expressions.iter().zip(answers.lines()).enumerate() {
        let mut random = Random::new(case as u64);
        let ours = match &expression.array {
            Ok(array) => compute(array, &mut random, &directory.0),
            Err(error) => Err(Error::Value(error.clone())),
        };
        let class = match (&ours, expression.kind) {
            (Ok(_), _) => Some("ok"),
            (Err(_), Some(kind)) => kind,
            (Err(error), None) => kind(error),
        };
        let told = |what: String| format!("case {case}: {}\n    {what}", expression.text);
        let Some(class) = class else {
            *unsupported.entry(answer.to_owned()).or_insert(0) += 1;
            continue;
        };
        match (answer.split_once(' '), &ours) {
            (Some(("ok", scale)), Ok(block)) => {
                let theirs = load(&directory.0.join(format!("r{case}.npy")));
                values += u64::from(scale != "inf");
                if let Err(what) = check(block, &theirs, scale.parse().unwrap(), expression.single) {
                    wrong.push(told(what));
                }
            }
            (Some(("error", theirs)), Err(_)) if theirs.split(' ').any(|theirs| theirs == class) => {
                errors += 1
            }
            // A power that cannot be is found when it is computed: by NumPy before it goes on, and here not
            // if nothing is asked for that it is part of.
            (Some(("error", theirs)), _)
                if theirs.starts_with("ValueError") && expression.text.contains("power") =>
            {
                lazy += 1;
            }
            _ => {
                let ours = ours.map_or_else(
                    |error| error.to_string(),
                    |block| format!("{} {:?}", block.dtype(), block.shape()),
                );
                wrong.push(told(format!("{class} ({ours}) instead of {answer}")));
            }
        }
    }
    println!("{cases} expressions: {values} results, {errors} errors of the same kind");
    println!("not supported, with what NumPy makes of it: {unsupported:?}");
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    let refused: u64 = unsupported.values().sum();
    assert!(refused < cases / 10, "{refused} of {cases} are not supported");
    assert!(values > cases / 2, "{values} results of {cases} could be compared");
    assert!(lazy < cases / 50, "{lazy} of {cases} are powers that cannot be");
    assert!(errors > 0 && errors < cases / 4, "{errors} of {cases} are errors");
}
