//! Random federations have the responses of a single server with all the data. A failure names its seed, is shrunk, and
//! becomes a folder in `fixtures`. `cargo xtask fuzz federations` tries other seeds.

use std::path::Path;

use federations::{Tally, run_trial};

/// The number of federations of each test; there are two tests for two cores.
const SEEDS: u64 = 100;

/// The number of operations for each federation.
const OPERATIONS: usize = 6;

fn try_seeds(first: u64) {
    let mut tally = Tally::default();
    for seed in first..first + SEEDS {
        if let Err(failure) = run_trial(seed, OPERATIONS, &mut tally) {
            panic!(
                "{}",
                failure.write_case(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"))
            );
        }
    }
    assert!(tally.composed * 2 > tally.federations, "most federations compose: {tally:?}");
    assert!(
        tally.correct > tally.refused + tally.invalid,
        "most operations are planned: {tally:?}"
    );
}

#[test]
fn random_federations_have_the_responses_of_one_server() {
    try_seeds(1);
}

#[test]
fn more_random_federations_have_the_responses_of_one_server() {
    try_seeds(1_000_000);
}
