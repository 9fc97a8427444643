//! Singular values and histograms, beside what defines them.

use bdrun_array::{Array, Block, DType, Error, Settings};

fn random(rows: usize, columns: usize) -> Block {
    let mut state = 1_u64;
    let values: Vec<f64> = (0..rows * columns)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        })
        .collect();
    Block::from_slice(&[rows, columns], &values).unwrap()
}

fn compute(arrays: &[&Array]) -> Vec<Block> {
    Settings::default().compute(arrays).unwrap()
}

/// The largest element, whatever its sign.
fn largest(array: &Array) -> f64 {
    compute(&[&array.abs().unwrap().max(None).unwrap()])[0].elements::<f64>()[0]
}

/// U S Vᵀ is the matrix, U and V are orthonormal, singular values descend: in whatever blocks.
#[test]
fn factors_are_what_they_should_be() {
    for (rows, columns, chunk) in [
        (97, 8, [13, 3]),
        (40, 40, [7, 9]),
        (8, 97, [3, 20]),
        (5, 1, [2, 1]),
        (300, 5, [11, 5]),
        (6, 6, [6, 6]),
    ] {
        let a = Array::from_block(random(rows, columns)).rechunk_regular(&chunk).unwrap();
        let [u, s, vt] = a.svd().unwrap();
        let k = rows.min(columns);
        assert_eq!((u.shape(), s.shape(), vt.shape()), (&[rows, k][..], &[k][..], &[k, columns][..]));
        let again = (&u * &s).dot(&vt).unwrap();
        assert!(largest(&(&again - &a)) < 1e-12, "{rows} x {columns}");
        let unit = |q: &Array| {
            let mut one = vec![0.0; k * k];
            (0..k).for_each(|at| one[at * k + at] = 1.0);
            largest(&(q - Array::from_block(Block::from_slice(&[k, k], &one).unwrap())))
        };
        assert!(unit(&u.t().dot(&u).unwrap()) < 1e-12 && unit(&vt.dot(&vt.t()).unwrap()) < 1e-12);
        let s = compute(&[&s]);
        assert!(s[0].elements::<f64>().is_sorted_by(|x, y| x >= y && *y >= 0.0));
    }
    // A rank of 2, in single precision.
    let a = Array::from_block(random(50, 2));
    let b = Array::from_block(random(2, 9));
    let low = a.dot(&b).unwrap().astype(DType::F32).rechunk_regular(&[12, 4]).unwrap();
    let [_, s, _] = low.svd().unwrap();
    let s = compute(&[&s]);
    let s = s[0].elements::<f32>();
    assert!(s[1] > 0.1 && s[2] < 1e-5, "{s:?}");
    assert!(a.expand_dims(0).unwrap().svd().is_err() && a.astype(DType::C64).svd().is_err());
    assert!(matches!(a.expand_dims(0).unwrap().svd(), Err(Error::Unsupported(_))));
}

#[test]
fn elements_are_counted_once() {
    let values: Vec<f64> = (0..1000).map(|at| f64::from(at) / 10.0).chain([f64::NAN, 1e9, -5.0]).collect();
    let x = Array::from_block(Block::from_slice(&[values.len()], &values).unwrap())
        .rechunk_regular(&[70])
        .unwrap();
    let [counts, bounds] = x.histogram(10, Some((0.0, 100.0))).unwrap();
    let found = compute(&[&counts, &bounds]);
    assert_eq!(found[0].elements::<i64>(), [100; 10]);
    assert_eq!((found[1].elements::<f64>()[3], found[1].elements::<f64>()[10]), (30.0, 100.0));
    // The last bin has its upper bound; a range of no width is one of width 1; integers are counted too.
    let y = Array::from_block(Block::from_slice(&[5], &[1_i32, 2, 3, 3, 4]).unwrap());
    let found = compute(&[&y.histogram(3, None).unwrap()[0], &y.histogram(2, Some((3.0, 3.0))).unwrap()[0]]);
    assert_eq!((found[0].elements::<i64>(), found[1].elements::<i64>()), (&[1, 1, 3][..], &[0, 2][..]));
    let [_, bounds] = y.histogram(2, Some((3.0, 3.0))).unwrap();
    assert_eq!(compute(&[&bounds])[0].elements::<f64>(), [2.5, 3.0, 3.5]);
    assert!(y.histogram(0, None).is_err() && y.histogram(2, Some((2.0, 1.0))).is_err());
    assert!(Settings::default().compute(&[&x.histogram(3, None).unwrap()[0]]).is_err(), "a range with NaN");
}

#[test]
fn quantiles_are_near_elements_of_their_rank() {
    // Of both signs, over many sizes.
    let values: Vec<f64> = (0..50_001).map(|at| f64::from(at - 20_000).powi(3) * 1e-3).collect();
    let mut mixed = values.clone();
    for at in 0..mixed.len() {
        mixed.swap(at, at * 7919 % values.len());
    }
    let x = Array::from_block(Block::from_slice(&[mixed.len()], &mixed).unwrap())
        .rechunk_regular(&[777])
        .unwrap();
    let probabilities = [0.0, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0];
    let found = compute(&[&x.quantiles(&probabilities).unwrap()]);
    for (q, found) in probabilities.iter().zip(found[0].elements::<f64>()) {
        let place = q * (values.len() - 1) as f64;
        let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
        let away = 0.0051 * low.abs().max(high.abs());
        assert!((low - away..=high + away).contains(found), "{q}: {found}, not from {low} to {high}");
    }
    let none = Array::from_block(Block::from_slice(&[3], &[1.0, f64::NAN, 2.0]).unwrap());
    assert!(compute(&[&none.quantiles(&[0.5]).unwrap()])[0].elements::<f64>()[0].is_nan());
    assert!(x.quantiles(&[1.5]).is_err());
    // Infinities are elements, of which some are between others here.
    let mut infinite = vec![f64::NEG_INFINITY; 100];
    infinite.extend((1..=1000).map(f64::from).chain(std::iter::repeat_n(f64::INFINITY, 300)));
    let x = Array::from_block(Block::from_slice(&[1400], &infinite).unwrap()).rechunk_regular(&[77]).unwrap();
    let probabilities = [0, 99, 100, 101, 600, 1098, 1099, 1100, 1399].map(|rank| f64::from(rank) / 1399.0);
    let found = compute(&[&x.quantiles(&probabilities).unwrap()]);
    for (q, found) in probabilities.iter().zip(found[0].elements::<f64>()) {
        // What is rounded may be of the rank before.
        let near = |rank: f64| infinite[(rank as usize).min(1399)];
        let is_one = |want: f64| *found == want || (found / want - 1.0).abs() < 0.0051;
        assert!(is_one(near(q * 1399.0)) || is_one(near(q * 1399.0 - 1e-9)), "{q}: {found}");
    }
    // Blocks of nothing, or of no number; sums that are infinite.
    for (values, chunk, want) in [
        (&[][..], 1, f64::NAN),
        (&[f64::NAN, f64::NAN, 1.0, 2.0], 2, f64::NAN),
        (&[1e308, 1e308, 1.2e308, 1.2e308], 2, 1e308),
        (&[f64::NAN, f64::INFINITY, 1.0, 2.0], 2, f64::NAN),
        (&[3.0, f64::INFINITY], 1, 3.0),
    ] {
        let array = Array::from_block(Block::from_slice(&[values.len()], values).unwrap());
        let found = compute(&[&array.rechunk_regular(&[chunk]).unwrap().quantiles(&[0.0]).unwrap()]);
        let found = found[0].elements::<f64>()[0];
        assert!(found.is_nan() && want.is_nan() || (found / want - 1.0).abs() < 0.01, "{values:?}: {found}");
    }
}
