//! What is more than there can be is an error, before memory is taken for it.

use std::io::ErrorKind;

use bdrun_array::{Array, DType, Error, Settings};

fn zeros(shape: &[usize]) -> Array {
    Array::full(shape, 0.0, DType::F64)
}

fn is_too_much(error: &Error, word: &str) {
    let Error::File { error: why, .. } = error else { panic!("{error}") };
    assert!(why.kind() == ErrorKind::OutOfMemory && error.to_string().contains(word), "{error}");
}

#[test]
fn what_multiplies_out_is_no_larger_than_what_is_read() {
    let (column, row) = (zeros(&[1 << 30, 1]), zeros(&[1, 1 << 30]));
    for made in [column.add(&row), column.dot(&row), column.matmul(&row), Array::select(&row, &column, 1.0)] {
        is_too_much(&made.unwrap_err(), "2^48");
    }
    let stack = (zeros(&[1 << 20, 1, 1 << 10, 1]), zeros(&[1, 1 << 20, 1, 1 << 10]));
    is_too_much(&stack.0.matmul(&stack.1).unwrap_err(), "2^48");
    let all: Vec<Array> = vec![zeros(&[1 << 47]); 3];
    is_too_much(&Array::concatenate(&all, 0).unwrap_err(), "2^48");
    is_too_much(&Array::stack(&all, 0).unwrap_err(), "2^48");
}

/// Each of them says which expression it is, and what helps.
#[test]
fn blocks_of_which_there_are_too_many_are_not_made() {
    let (column, row) = (zeros(&[1 << 24, 1]), zeros(&[1, 1 << 24]));
    let sum = column.add(&row).unwrap();
    let large = |array: &Array| array.abs().unwrap();
    // Blocks of one row, of which others of one column are put together.
    let rows = large(&zeros(&[1 << 13, 1 << 13]).rechunk_regular(&[1, 0]).unwrap());
    let columns = rows.rechunk_regular(&[0, 1]).unwrap();
    let single = |shape: &[usize]| large(&zeros(shape).rechunk_regular(&[1, 1]).unwrap());
    let product = single(&[1 << 9, 1 << 7]).dot(&single(&[1 << 7, 1 << 9]));
    for array in [sum.sum(None).unwrap(), columns.sum(None).unwrap(), product.unwrap().sum(None).unwrap()] {
        let error = Settings::default().compute(&[&array]).unwrap_err();
        is_too_much(&error, "larger blocks (`rechunk`");
        assert!(error.to_string().contains("limits.rs:"), "{error}");
    }
    is_too_much(&zeros(&[1 << 25]).rechunk_regular(&[1]).unwrap_err(), "2^24 at most");
}

/// Each is an array that there can be; bytes of all together are no number any more.
#[test]
fn bytes_of_all_blocks_together_are_counted() {
    let mut array = zeros(&[1 << 48]).rechunk_regular(&[0]).unwrap();
    for _ in 0..1 << 12 {
        array = array.abs().unwrap();
    }
    let error = Settings::default().compute(&[&array.sum(None).unwrap()]).unwrap_err();
    is_too_much(&error, "2^63");
}
