//! A property over random federations, weights, list sizes, operations and data: no response costs more than its
//! estimate if no list is longer than estimated. `STARLING_SEEDS` is the number of seeds, `STARLING_SEED` plays one.

use std::sync::Arc;

use cost::CostSettings;
use federations::{
    Composed, LoadedCase, ObjectStore, Random, compose_federation, generate_federation,
    generate_operation,
};
use graph::{Costs, FieldCosts, FieldId, ListSize, Supergraph, TypeId, Weight};

/// The length of the longest list that the generator of data makes.
const LIST_LENGTH_MAX: u64 = 3;

/// The number of seeds in each run of the tests.
const SEEDS: u64 = 60;

/// The number of operations on each federation.
const OPERATIONS: usize = 12;

fn random_costs(graph: &Supergraph, random: &mut Random) -> Costs {
    let mut costs = Costs::default();
    let weight =
        |random: &mut Random| random.one_in(3).then(|| Weight(random.below(5_000) as i64 - 500));
    for index in 0..graph.types.len() {
        if let Some(weight) = weight(random) {
            costs.types.insert(TypeId(index as u32), weight);
        }
    }
    for (index, field) in graph.fields.iter().enumerate() {
        let arguments = field.arguments.iter();
        let arguments = arguments.filter_map(|it| Some((it.name.clone(), weight(random)?)));
        let cost = FieldCosts {
            arguments: arguments.collect(),
            weight: weight(random),
            list_size: random.one_in(3).then(|| ListSize {
                assumed_size: Some(LIST_LENGTH_MAX + random.below(3) as u64),
                ..ListSize::default()
            }),
        };
        costs.fields.insert(FieldId(index as u32), cost);
    }
    costs
}

/// Returns the number of measured responses, and of those with exactly their estimate.
fn play(seed: u64) -> (usize, usize) {
    let mut random = Random::new(seed);
    let federation = generate_federation(&mut random, 3);
    let Ok(Composed::Supergraph(sdl)) = compose_federation(&federation) else { return (0, 0) };
    let graph = Supergraph::from_sdl(&sdl, "supergraph.graphql").expect("composition is right");
    let data = ObjectStore::random(&graph, &mut random, false);
    let costs = random_costs(&graph, &mut random);
    let settings = CostSettings {
        list_size: LIST_LENGTH_MAX,
        subgraph_list_sizes: vec![LIST_LENGTH_MAX; graph.subgraphs.len()],
        stats: Arc::default(),
    };
    let loaded = LoadedCase::load_with_costs(&sdl, data, &[], costs, settings).expect("a case");
    let (mut measured, mut exact) = (0, 0);
    for _ in 0..OPERATIONS {
        let generated = generate_operation(&graph, &mut random);
        for variables in &generated.variables {
            let Some((estimated, actual)) = loaded.measure(&generated.text, variables) else {
                continue;
            };
            assert!(
                actual <= estimated,
                "seed {seed}: a response costs {actual}, and its estimate is {estimated}\n{}\n{variables:?}\n{sdl}",
                generated.text
            );
            measured += 1;
            exact += usize::from(actual == estimated);
        }
    }
    (measured, exact)
}

#[test]
fn no_response_costs_more_than_its_estimate() {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    if let Some(seed) = number("STARLING_SEED") {
        play(seed);
        return;
    }
    let results = (0..number("STARLING_SEEDS").unwrap_or(SEEDS)).map(play);
    let (measured, exact) = results.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert!(measured > 200, "only {measured} responses were measured");
    assert!(exact > 0 && exact < measured, "{exact} of {measured} estimates are exact");
}
