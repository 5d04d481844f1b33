//! Optimality of plans: plans of small random federations cost no more than the best possible plan, first in waves,
//! then in requests. An exhaustive search over all sets of requests, smallest first, finds the best.

use std::{collections::HashMap, fmt::Write as _, sync::Arc};

use federations::{LoadedCase, ObjectStore, Outcome, Random, Variables};
use graph::{FieldSet, FieldSetItem, SubgraphId, Supergraph, TypeId};
use plan::{FieldTarget, Limits, Operation, Selection, SelectionSet};
use prepare::{PrepareSettings, Preparer};

mod generated_federations;

/// The number of federations; each gets [`OPERATIONS`] operations.
const SEEDS: u64 = 150;
const OPERATIONS: u64 = 4;

/// A number of waves that no plan here exceeds.
const WAVES_MAX: u32 = 6;

/// The keys that a type may have in a subgraph: one or two, of one member, of two, nested.
const KEYS: [&[&str]; 7] = [
    &["id"],
    &["id"],
    &["id", "code"],
    &["code"],
    &["id code"],
    &["spot { x y }"],
    &["spot { x y }", "id"],
];

/// Generates a federation of up to four subgraphs, three entity types, and twelve fields in addition to the keys.
fn small(random: &mut Random) -> String {
    let subgraphs = 2 + random.below(3);
    let types = 1 + random.below(3);
    let mut sdl = generated_federations::subgraphs_and_query(subgraphs);
    sdl.push_str(" {\n");
    for root in 0..1 + random.below(2) {
        let _ = write!(sdl, "  root{root}: T{}", random.below(types));
        join(&mut sdl, &some(subgraphs, random), None);
    }
    sdl.push_str("}\ntype Spot");
    for s in 0..subgraphs {
        let _ = write!(sdl, " @join__type(graph: S{s})");
    }
    sdl.push_str(" { x: Int! y: Int! }\n");
    for t in 0..types {
        // Several keys, so that some jumps need members from a third subgraph.
        let keys: Vec<usize> = (0..subgraphs).map(|_| random.below(KEYS.len())).collect();
        let _ = write!(sdl, "type T{t}");
        for (s, key) in keys.iter().enumerate() {
            for name in KEYS[*key] {
                let _ = write!(sdl, " @join__type(graph: S{s}, key: \"{name}\")");
            }
        }
        sdl.push_str(" {\n");
        for (name, ty) in [("id", "ID!"), ("code", "ID!"), ("spot", "Spot!")] {
            let is_in = |key: &&str| key.split_whitespace().any(|word| word == name);
            let holds = |s: &usize| KEYS[keys[*s]].iter().any(is_in);
            let by: Vec<usize> = (0..subgraphs).filter(holds).collect();
            let by = if by.is_empty() { vec![0] } else { by };
            let _ = write!(sdl, "  {name}: {ty}");
            join(&mut sdl, &by, None);
        }
        for field in 0..1 + random.below(12 / types) {
            match random.below(4) {
                0 => {
                    let _ = write!(sdl, "  f{field}: T{}", random.below(types));
                    join(&mut sdl, &some(subgraphs, random), None);
                }
                1 if field > 0 && random.one_in(3) => {
                    let _ = write!(sdl, "  f{field}: Int");
                    join(&mut sdl, &[random.below(subgraphs)], Some("r"));
                }
                _ => {
                    let _ = write!(sdl, "  f{field}: Int");
                    join(&mut sdl, &some(subgraphs, random), None);
                }
            }
        }
        let _ = write!(sdl, "  r: Int");
        join(&mut sdl, &[random.below(subgraphs)], None);
        sdl.push_str("}\n");
    }
    sdl
}

fn some(subgraphs: usize, random: &mut Random) -> Vec<usize> {
    let mut by: Vec<usize> = (0..subgraphs).filter(|_| random.one_in(2)).collect();
    if by.is_empty() {
        by.push(random.below(subgraphs));
    }
    by
}

fn join(sdl: &mut String, by: &[usize], requires: Option<&str>) {
    for s in by {
        let _ = write!(sdl, " @join__field(graph: S{s}");
        if let Some(requires) = requires {
            let _ = write!(sdl, ", requires: \"{requires}\"");
        }
        sdl.push(')');
    }
    sdl.push('\n');
}

fn selections(graph: &Supergraph, on: TypeId, depth: u32, random: &mut Random) -> String {
    let fields = &graph.ty(on).fields;
    let mut out = String::from("{ ");
    for n in 0..1 + random.below(4) {
        let field = graph.field(fields[random.below(fields.len())]);
        let below = field.ty.named();
        if !graph.ty(below).kind.is_composite() {
            let _ = write!(out, "{} ", field.name);
        } else if depth > 0 {
            let inner = selections(graph, below, depth - 1, random);
            let _ = write!(out, "a{n}: {} {inner}", field.name);
        }
    }
    out.push_str("__typename }");
    out
}

/// A position of the operation: its type, and the position below each of its fields.
struct Position<'a> {
    ty: TypeId,
    set: Option<&'a SelectionSet>,
    parent: Option<(usize, graph::FieldId)>,
}

fn positions<'a>(graph: &Supergraph, set: &'a SelectionSet) -> Vec<Position<'a>> {
    let mut all = vec![Position { ty: graph.query, set: Some(set), parent: None }];
    let mut next = 0;
    while next < all.len() {
        if let Some(set) = all[next].set {
            for item in &set.items {
                if let Selection::Field(field) = item
                    && let (FieldTarget::Field(id), Some(below)) =
                        (field.target, &field.selection_set)
                {
                    let ty = graph.field(id).ty.named();
                    all.push(Position { ty, set: Some(below), parent: Some((next, id)) });
                }
            }
        }
        next += 1;
    }
    all
}

/// True if requests to exactly these subgraphs in these waves give all fields. Having an object earlier or in more
/// places is never worse, so this is the least fixpoint of "this subgraph has it in this wave".
fn suffices(
    graph: &Supergraph,
    positions: &[Position<'_>],
    requests: &[(SubgraphId, u32)],
) -> bool {
    // Maps (position, subgraph, `@requires` met by the request) to the earliest wave.
    type Holds = HashMap<(usize, SubgraphId, bool), u32>;
    let mut holds: Holds = HashMap::new();
    let at = |holds: &Holds, position: usize, field: graph::FieldId| -> Option<u32> {
        graph
            .field(field)
            .resolved_by
            .iter()
            .flat_map(|s| {
                let needs = graph.field_in(field, s).is_some_and(|there| there.requires.is_some());
                [false, true].into_iter().filter(move |met| *met || !needs).map(move |met| (s, met))
            })
            .filter_map(|(s, met)| holds.get(&(position, s, met)).copied())
            .min()
    };
    // Fields nested in a key belong to a value type that every subgraph with the field has completely.
    let set_at = |holds: &Holds, position: usize, set: &FieldSet| -> Option<u32> {
        set.items.iter().try_fold(0, |latest, item| match item {
            FieldSetItem::Field { field, .. } => Some(latest.max(at(holds, position, *field)?)),
            FieldSetItem::Fragment { .. } => None,
        })
    };
    let mut has_changed = true;
    while has_changed {
        has_changed = false;
        for (index, position) in positions.iter().enumerate() {
            let mut found: Vec<((usize, SubgraphId, bool), u32)> = Vec::new();
            for &(subgraph, wave) in requests {
                match position.parent {
                    None if wave == 1 => found.push(((index, subgraph, false), 1)),
                    None => {}
                    Some(_) => {
                        let key = graph
                            .keys_into(position.ty, subgraph)
                            .filter_map(|key| set_at(&holds, index, &key.fields))
                            .min();
                        let Some(key) = key.filter(|&key| key < wave) else { continue };
                        found.push(((index, subgraph, false), wave));
                        let Some(r) = graph.field_named(position.ty, "r") else { continue };
                        if at(&holds, index, r).is_some_and(|r| r.max(key) < wave) {
                            found.push(((index, subgraph, true), wave));
                        }
                    }
                }
            }
            if let Some((parent, field)) = position.parent {
                for subgraph in graph.field(field).resolved_by.iter() {
                    if let Some(&wave) = holds.get(&(parent, subgraph, false)) {
                        found.push(((index, subgraph, false), wave));
                    }
                }
            }
            for (fact, wave) in found {
                let known = holds.entry(fact).or_insert(u32::MAX);
                if wave < *known {
                    *known = wave;
                    has_changed = true;
                }
            }
        }
    }
    positions.iter().enumerate().all(|(index, position)| {
        position.set.iter().flat_map(|set| &set.items).all(|item| match item {
            Selection::Field(field) => match field.target {
                FieldTarget::Field(id) => at(&holds, index, id).is_some(),
                _ => true,
            },
            Selection::Fragment(_) => unreachable!("these operations have no fragments"),
        })
    })
}

/// Returns the minimal number of waves, and the minimal number of requests with that many waves.
fn best(graph: &Supergraph, operation: &Operation) -> Option<(u32, usize)> {
    let positions = positions(graph, &operation.selection_set);
    let subgraphs: Vec<SubgraphId> =
        (0..graph.subgraphs.len()).map(|s| SubgraphId(s as u16)).collect();
    let all = |waves: u32| -> Vec<(SubgraphId, u32)> {
        (1..=waves).flat_map(|wave| subgraphs.iter().map(move |&s| (s, wave))).collect()
    };
    let waves = (1..=WAVES_MAX).find(|&waves| suffices(graph, &positions, &all(waves)))?;
    // Requests without which no set suffices are in every set.
    let universe = all(waves);
    let (needed, optional): (Vec<_>, Vec<_>) = universe.iter().partition(|&&request| {
        let less: Vec<_> = universe.iter().copied().filter(|&other| other != request).collect();
        !suffices(graph, &positions, &less)
    });
    let mut chosen = needed.clone();
    for more in 0..=optional.len() {
        if extend(graph, &positions, &mut chosen, &optional, more) {
            return Some((waves, needed.len() + more));
        }
    }
    None
}

fn extend(
    graph: &Supergraph,
    positions: &[Position<'_>],
    chosen: &mut Vec<(SubgraphId, u32)>,
    optional: &[(SubgraphId, u32)],
    more: usize,
) -> bool {
    if more == 0 {
        return suffices(graph, positions, chosen);
    }
    (0..optional.len()).any(|at| {
        chosen.push(optional[at]);
        let found = extend(graph, positions, chosen, &optional[at + 1..], more - 1);
        chosen.pop();
        found
    })
}

#[test]
fn small_federations_are_planned_at_the_optimum() {
    let mut worse = Vec::new();
    let mut compared = 0;
    for seed in 1..=SEEDS {
        let mut random = Random::new(seed);
        let sdl = small(&mut random);
        let graph = match Supergraph::from_sdl(&sdl, "small.graphql") {
            Ok(graph) => Arc::new(graph),
            Err(errors) => panic!("seed {seed}: {errors}\n{sdl}"),
        };
        let checker = soundness::Checker::new(graph.clone());
        let preparer = Preparer::new(graph.clone(), 1, PrepareSettings::default());
        let data = ObjectStore::random(&graph, &mut Random::new(seed), false);
        let loaded = LoadedCase::load(&sdl, data, &[]).expect("composition could produce it");
        for number in 0..OPERATIONS {
            let text = selections(&graph, graph.query, 3, &mut random);
            let operation = match preparer.prepare_now(text.as_bytes(), None) {
                Ok(prepared) => prepared.operation.clone(),
                Err(prepare::PrepareError::Plan(_)) => continue,
                Err(error) => panic!("seed {seed}: {error}\n{text}"),
            };
            let plan = plan::plan(&graph, &operation, &Limits::default()).expect("a plan");
            assert_eq!(checker.check(&operation, &plan), Ok(()), "{text}");
            let response = loaded.compare(&text, &Variables::new());
            assert!(
                matches!(response, Ok(Outcome::Correct { .. })),
                "seed {seed}: {response:?}\n{text}"
            );
            if plan.fetches.is_empty() {
                continue;
            }
            let cost = (plan.waves().into_iter().max().unwrap_or(0), plan.fetches.len());
            let best = best(&graph, &operation).expect("an operation with a plan has a best plan");
            compared += 1;
            assert!(
                cost >= best,
                "seed {seed}: better than the best, {cost:?} for {best:?}\n{text}"
            );
            if cost != best {
                worse.push(format!(
                    "seed {seed}, operation {number}: {cost:?} instead of {best:?}\n{text}\n{sdl}\n{}",
                    plan.to_text(&graph)
                ));
            }
        }
    }
    assert!(compared > 300, "{compared} compared");
    assert!(
        worse.is_empty(),
        "{} of {compared} plans are worse than the best\n{}",
        worse.len(),
        worse.join("\n\n")
    );
}
