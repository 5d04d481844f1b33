//! Trials of authorization directives: the federation of one seed with random requirements, and operations of clients
//! that meet some of them only.

use graph::Supergraph;

use crate::{
    Case, Composed, Failure, FailureKind, LoadedCase, ObjectStore, Outcome, Random, Tally,
    TrialFailure, add_requirements, compose_federation, generate_federation, generate_operation,
};

/// The number of clients with different rights for each federation.
const CLIENTS: usize = 3;

/// Executes `operations` random operations for each of several clients on the federation of `seed`.
///
/// # Errors
/// A response of the router is wrong, or something was fetched that the client may not use.
///
/// # Panics
/// The generated federation does not compose for another reason than a field without a route.
pub fn run_access_trial(
    seed: u64,
    operations: usize,
    tally: &mut Tally,
) -> Result<(), Box<TrialFailure>> {
    let mut random = Random::new(seed);
    let subgraphs = 2 + random.below(3);
    let federation = generate_federation(&mut random, subgraphs);
    let composed = match compose_federation(&federation) {
        Ok(Composed::Supergraph(sdl)) => sdl,
        Ok(Composed::Unsatisfiable) => return Ok(()),
        Err(errors) => panic!("seed {seed}: {errors}\n{}", federation.subgraphs_text()),
    };
    let Some((supergraph, requirements)) = add_requirements(&composed, &mut random) else {
        panic!("seed {seed}: the supergraph does not parse\n{composed}")
    };
    let graph = match Supergraph::from_sdl(&supergraph, "supergraph.graphql") {
        Ok(graph) => graph,
        Err(errors) => panic!("seed {seed}: {errors}\n{supergraph}"),
    };
    let has_errors = random.one_in(3);
    let data = ObjectStore::random(&graph, &mut random, has_errors);
    tally.federations += 1;
    tally.composed += 1;
    for _ in 0..CLIENTS {
        let stated: Vec<String> =
            graph.access.requirements.iter().map(ToString::to_string).collect();
        let mut unmet: Vec<String> =
            requirements.iter().filter(|it| stated.contains(it)).cloned().collect();
        unmet.retain(|_| random.one_in(2));
        let load =
            || LoadedCase::load(&supergraph, data.clone(), &[])?.without(&supergraph, &unmet);
        let loaded = match load() {
            Ok(loaded) => loaded,
            Err(problem) => panic!("seed {seed}: {problem}\n{supergraph}"),
        };
        if let Err(problem) = loaded.check_visible_schema() {
            panic!("seed {seed}: without {unmet:?}: {problem}\n{supergraph}");
        }
        for _ in 0..operations {
            let generated = generate_operation(&graph, &mut random);
            for variables in &generated.variables {
                let found = |failure| {
                    let case = Case {
                        supergraph: supergraph.clone(),
                        operation: generated.text.clone(),
                        variables: variables.clone(),
                        labels: Vec::new(),
                        unmet: unmet.clone(),
                        data: data.clone(),
                    };
                    Box::new(TrialFailure { seed, case, failure })
                };
                match loaded.compare(&generated.text, variables).map_err(found)? {
                    Outcome::Correct { response, requests } => {
                        tally.correct += 1;
                        let is_denied = response.contains("UNAUTHORIZED_FIELD_OR_TYPE");
                        tally.denied += u64::from(is_denied);
                        tally.requests += requests.len() as u64;
                    }
                    Outcome::Refused(reason) => {
                        let message = format!("composition accepts what has no plan: {reason}");
                        return Err(found(Failure { kind: FailureKind::Composition, message }));
                    }
                    Outcome::Invalid(_) => {
                        tally.invalid += 1;
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}
