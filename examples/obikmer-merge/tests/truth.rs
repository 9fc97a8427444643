//! The bundled genomes against the ground truth, with one rank and several.

mod common;

use std::path::PathBuf;

use common::{check, merge, truth};
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

/// Larger sets, where they are: `OBIKMER_GENOMES=DIR OBIKMER_SET=kleb8 OBIKMER_RANKS=7 cargo test --release --test
/// truth -- --ignored --nocapture`, after `get-genomes DIR`.
#[test]
#[ignore = "needs genomes that are not bundled"]
fn set_from_environment() {
    let get = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let (set, k) = (get("OBIKMER_SET", "kleb8"), get("OBIKMER_K", "31"));
    let genomes = PathBuf::from(get("OBIKMER_GENOMES", "/tmp/genomes")).join(&set);
    let mut inputs: Vec<PathBuf> =
        std::fs::read_dir(genomes).expect("genomes").map(|e| e.expect("an entry").path()).collect();
    inputs.sort();
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("index");
    let options = MergeOptions {
        k: k.parse().ok(),
        out: out.clone(),
        inputs,
        verbose: true,
        ..MergeOptions::default()
    };
    let summary = merge(get("OBIKMER_RANKS", "7").parse().expect("a number"), &options);
    println!("{summary}");
    check(&truth()[set][format!("k{k}")], &summary, &out);
}
