//! Random federations with random authorization directives: nothing that a client may not use is in a response or
//! fetched, and everything else is as without the restriction.

use std::path::Path;

use federations::{Tally, run_access_trial};

/// The number of federations.
const FEDERATIONS: u64 = 150;

/// The number of operations for each client.
const OPERATIONS: usize = 6;

#[test]
fn clients_get_and_cause_requests_for_what_they_may_use_and_nothing_else() {
    let mut tally = Tally::default();
    let seeds = match std::env::var("STARLING_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..FEDERATIONS,
    };
    let many = seeds.clone().count() > 1;
    for seed in seeds {
        if let Err(failure) = run_access_trial(seed, OPERATIONS, &mut tally) {
            let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
            panic!("{}", failure.write_case(&fixtures));
        }
    }
    assert!(!many || tally.correct > 1_000 && tally.denied > 300, "{tally:?}");
}
