//! Random operations over the supergraphs of the planner's fixtures: planning never panics, and every plan is sound and
//! gives the response of the reference server. A failure names the seed.

use std::path::{Path, PathBuf};

use federations::{LoadedCase, ObjectStore, Outcome, Random, generate_operation_of};
use graph::Supergraph;
use plan::OperationKind;

/// The number of operations of each test for each supergraph and root; there are two tests for two cores.
const SEEDS: u64 = 50;

/// The number of operations that share a random object store.
const SEEDS_OF_STORE: u64 = 25;

fn supergraphs() -> Vec<PathBuf> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixtures = crate_folder.join("../../crates/plan/tests/fixtures");
    let mut files: Vec<PathBuf> = std::fs::read_dir(fixtures)
        .expect("fixtures are valid")
        .map(|entry| entry.expect("fixtures are valid").path().join("supergraph.graphql"))
        .filter(|path| path.exists())
        .collect();
    files.push(crate_folder.join("../../fixtures/federation-benchmark/supergraph.graphql"));
    files.sort();
    files
}

fn try_seeds(first_seed: u64) {
    let (mut correct, mut refused) = (0_u32, 0_u32);
    for file in supergraphs() {
        let sdl = std::fs::read_to_string(&file).expect("fixtures are valid");
        let graph = Supergraph::from_sdl(&sdl, "supergraph.graphql").expect("fixtures are valid");
        let kinds = [
            (OperationKind::Query, true),
            (OperationKind::Mutation, graph.mutation.is_some()),
            (OperationKind::Subscription, graph.subscription.is_some()),
        ];
        for first in (first_seed..first_seed + SEEDS).step_by(SEEDS_OF_STORE as usize) {
            let data = ObjectStore::random(&graph, &mut Random::new(first), false);
            let Ok(loaded) = LoadedCase::load(&sdl, data, &[]) else {
                // Composition would reject such a supergraph, so there is no expected response.
                break;
            };
            for seed in first..first + SEEDS_OF_STORE {
                for (kind, _) in kinds.iter().filter(|(_, has_root)| *has_root) {
                    let operation = generate_operation_of(&graph, *kind, &mut Random::new(seed));
                    for variables in &operation.variables {
                        match loaded.compare(&operation.text, variables) {
                            Ok(Outcome::Correct { .. }) => correct += 1,
                            Ok(Outcome::Refused(_)) => refused += 1,
                            // Selections of different members may disagree about nulls.
                            Ok(Outcome::Invalid(_)) => {}
                            Err(failure) => panic!(
                                "{} seed {seed}: {:?} {}\n{}",
                                file.display(),
                                failure.kind,
                                failure.message,
                                operation.text
                            ),
                        }
                    }
                }
            }
        }
    }
    assert!(correct > 500, "most operations are planned: {correct}, not {refused}");
}

#[test]
fn random_operations_have_sound_plans_and_correct_responses() {
    try_seeds(1);
}

#[test]
fn more_random_operations_have_sound_plans_and_correct_responses() {
    try_seeds(1_000);
}
