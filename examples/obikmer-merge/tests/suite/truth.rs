//! The bundled genomes against the ground truth, with one rank and several.

use crate::common::{check, files, merge, truth};
use obikmer_merge::MergeOptions;

fn bundled(k: usize, ranks: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("index");
    let options = MergeOptions { k: Some(k), out: out.clone(), ..MergeOptions::default() };
    let summary = merge(ranks, &options);
    assert_eq!(summary.partitions.count, ranks);
    check(&truth()["hpylori6"][format!("k{k}")], &summary, &out);
}

#[test]
fn hpylori6_k31_one_rank() {
    bundled(31, 1);
}

#[test]
fn hpylori6_k31_seven_ranks() {
    bundled(31, 7);
}

#[test]
fn hpylori6_k21_one_rank() {
    bundled(21, 1);
}

#[test]
fn hpylori6_k21_seven_ranks() {
    bundled(21, 7);
}

#[test]
fn threads_do_not_change_a_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = [Some(1), Some(3), None].map(|threads| {
        let out = dir.path().join(format!("{threads:?}"));
        let summary = merge(1, &MergeOptions { out: out.clone(), threads, ..MergeOptions::default() });
        (summary, files(&out))
    });
    assert!(made[0].1.len() == 3 + 3 && made.iter().all(|each| *each == made[0]));
}
