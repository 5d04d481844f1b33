//! Random federations are answered as one server with all the data would answer. A failure names its
//! seed, is made smaller, and becomes a folder in `fixtures`. `cargo xtask fuzz federations` goes on
//! with other seeds.

use std::path::Path;

use federations::{Tally, trial};

/// Federations of each test; there are two tests for two cores.
const SEEDS: u64 = 100;

/// Operations for each of them.
const OPERATIONS: usize = 6;

fn try_seeds(first: u64) {
    let mut tally = Tally::default();
    for seed in first..first + SEEDS {
        if let Err(found) = trial(seed, OPERATIONS, &mut tally) {
            panic!("{}", found.write_down(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")));
        }
    }
    assert!(tally.right > tally.refused + tally.invalid, "most can be answered: {tally:?}");
}

#[test]
fn random_federations_answer_as_one_server() {
    try_seeds(1);
}

#[test]
fn more_random_federations_answer_as_one_server() {
    try_seeds(1_000_000);
}
