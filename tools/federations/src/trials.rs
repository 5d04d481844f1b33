//! Trials: the federation of one seed, operations on it, and equivalent variations of these operations.

use std::path::Path;

use graph::Supergraph;

use crate::{
    Case, Composed, Failure, FailureKind, GeneratedFederation, LoadedCase, ObjectStore, Outcome,
    Random, Variables, Variation, add_unused_subgraph, compose_federation, generate_federation,
    generate_operation, generate_wide_federation, generate_wide_operation, shrink,
};

/// The maximum number of runs for shrinking a case.
const TRIES_MAX: usize = 20_000;

/// Counts of the trials so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The number of federations.
    pub federations: u64,
    /// The number of federations that compose; the others have a field without a route.
    pub composed: u64,
    /// The number of correct responses.
    pub correct: u64,
    /// The number of requests to subgraphs for these responses.
    pub requests: u64,
    /// The number of operations that the planner refused.
    pub refused: u64,
    /// The number of invalid operations.
    pub invalid: u64,
    /// The number of correct responses with places that the client may not use.
    pub denied: u64,
    /// The number of variations with the same response.
    pub variations: u64,
}

/// A wrong response.
#[derive(Clone, Debug)]
pub struct TrialFailure {
    /// The seed of the federation.
    pub seed: u64,
    /// The case as it was found.
    pub case: Case,
    /// The difference from the expected response.
    pub failure: Failure,
}

impl TrialFailure {
    /// Shrinks the case, writes it to a folder in `fixtures`, and returns a message with the failure and the folder.
    pub fn write_case(&self, fixtures: &Path) -> String {
        let shrunk = shrink(&self.case, &self.failure, TRIES_MAX);
        let message = match shrunk.case.compare() {
            Ok(Err(failure)) => failure.message,
            _ => self.failure.message.clone(),
        };
        let folder = fixtures.join(format!("found_{}", self.seed));
        let written = match shrunk.case.write(&folder) {
            Ok(()) => folder.display().to_string(),
            Err(problem) => problem,
        };
        format!("seed {}, {:?}: {message}\n{written}", self.seed, self.failure.kind)
    }
}

/// Executes `operations` random operations on the federation of `seed`.
///
/// # Errors
/// A response of the router is wrong.
///
/// # Panics
/// The generated federation does not compose for another reason than a field without a route, or the supergraph is not
/// valid.
pub fn run_trial(seed: u64, operations: usize, tally: &mut Tally) -> Result<(), Box<TrialFailure>> {
    let mut random = Random::new(seed);
    let has_many = random.one_in(4);
    let subgraphs = 2 + random.below(if has_many { 7 } else { 3 });
    let is_wide = has_many && random.one_in(5);
    let federation = match is_wide {
        true => generate_wide_federation(&mut random, subgraphs),
        false => generate_federation(&mut random, subgraphs),
    };
    let TrialGraph { supergraph, larger, is_composed } = compose_trial(seed, &federation);
    let graph = match Supergraph::from_sdl(&supergraph, "supergraph.graphql") {
        Ok(graph) => graph,
        Err(errors) => panic!("seed {seed}: {errors}\n{supergraph}"),
    };
    let has_errors = random.one_in(3);
    let data = ObjectStore::random(&graph, &mut random, has_errors);
    let loaded_trials: Vec<LoadedTrial> = label_sets(&graph)
        .into_iter()
        .map(|labels| {
            let load = |sdl: &str| match LoadedCase::load(sdl, data.clone(), &labels) {
                Ok(loaded) => loaded,
                Err(problem) => panic!("seed {seed}: {problem}\n{sdl}"),
            };
            let loaded = load(&supergraph);
            let larger = larger.as_deref().map(load);
            LoadedTrial { loaded, larger, labels }
        })
        .collect();
    tally.federations += 1;
    tally.composed += u64::from(is_composed);
    for _ in 0..operations {
        let generated = match is_wide {
            true => generate_wide_operation(&graph, &mut random),
            false => generate_operation(&graph, &mut random),
        };
        for LoadedTrial { loaded, larger, labels } in &loaded_trials {
            let found = |text: &str, variables: &Variables, failure| {
                let case = Case {
                    supergraph: supergraph.clone(),
                    operation: text.to_owned(),
                    variables: variables.clone(),
                    labels: labels.clone(),
                    unmet: Vec::new(),
                    data: data.clone(),
                };
                Box::new(TrialFailure { seed, case, failure })
            };
            for variables in &generated.variables {
                let outcome = loaded.compare(&generated.text, variables);
                let outcome =
                    outcome.map_err(|failure| found(&generated.text, variables, failure))?;
                let (response, requests) = match &outcome {
                    Outcome::Correct { response, requests } => (response, requests),
                    Outcome::Refused(reason) if is_composed => {
                        let message = format!("composition accepts what has no plan: {reason}");
                        let failure = Failure { kind: FailureKind::Composition, message };
                        return Err(found(&generated.text, variables, failure));
                    }
                    Outcome::Refused(_) => {
                        tally.refused += 1;
                        break;
                    }
                    Outcome::Invalid(_) => {
                        tally.invalid += 1;
                        break;
                    }
                };
                tally.correct += 1;
                tally.requests += requests.len() as u64;
                if let Some(larger) = larger
                    && larger.compare(&generated.text, variables).as_ref() != Ok(&outcome)
                {
                    let message = "an unused subgraph changes the requests".to_owned();
                    let failure = Failure { kind: FailureKind::Variation, message };
                    return Err(found(&generated.text, variables, failure));
                }
                let variation = *random.pick(&Variation::ALL);
                let text = variation.of(&loaded.graph, &generated.text, &mut random);
                let Some(text) = text else { continue };
                let other = loaded.compare(&text, variables);
                let other = other.map_err(|failure| found(&text, variables, failure))?;
                if let Some(message) = variation.find_difference(response, requests.len(), &other) {
                    let message = format!("{variation:?}: {message}\n{text}");
                    let failure = Failure { kind: FailureKind::Variation, message };
                    return Err(found(&generated.text, variables, failure));
                }
                tally.variations += 1;
            }
        }
    }
    Ok(())
}

/// The supergraph of a trial.
struct TrialGraph {
    supergraph: String,
    /// The same with an unused subgraph.
    larger: Option<String>,
    /// False if a field has no route. Then the supergraph is that of the generator, and operations with the field must
    /// be refused.
    is_composed: bool,
}

/// Composes a federation, alone and with an unused subgraph.
fn compose_trial(seed: u64, federation: &GeneratedFederation) -> TrialGraph {
    let compose = |federation: &GeneratedFederation| match compose_federation(federation) {
        Ok(Composed::Supergraph(sdl)) => Some(sdl),
        Ok(Composed::Unsatisfiable) => None,
        Err(errors) => panic!("seed {seed}: {errors}\n{}", federation.subgraphs_text()),
    };
    match compose(federation) {
        Some(supergraph) => {
            let larger = compose(&federation.with_unused_subgraph());
            assert!(larger.is_some(), "seed {seed}: an unused subgraph makes a field unreachable");
            TrialGraph { supergraph, larger, is_composed: true }
        }
        None => TrialGraph {
            larger: add_unused_subgraph(&federation.supergraph),
            supergraph: federation.supergraph.clone(),
            is_composed: false,
        },
    }
}

/// A loaded federation while some of its labels are on.
struct LoadedTrial {
    loaded: LoadedCase,
    /// The same federation with an unused subgraph.
    larger: Option<LoadedCase>,
    labels: Vec<String>,
}

/// Returns the sets of labels to try: none, and all if there are any.
fn label_sets(graph: &Supergraph) -> Vec<Vec<String>> {
    let all: Vec<String> = graph.override_labels.iter().map(ToString::to_string).collect();
    if all.is_empty() { vec![Vec::new()] } else { vec![Vec::new(), all] }
}
