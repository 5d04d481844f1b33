//! Federations of one type that refers to itself, with its fields in many overlapping subgraphs. The planner has a
//! choice of subgraphs at each of many positions, and searches for the smallest set of requests for all positions.

use super::GeneratedFederation;
use super::generator::FederationGenerator;
use super::model::{FieldModel, ObjectModel};
use crate::Random;

const NAME: &str = "Ant";

/// Returns a random federation with one self-referential type in `subgraphs` (2 to 8) overlapping subgraphs.
pub fn generate_wide_federation(random: &mut Random, subgraphs: usize) -> GeneratedFederation {
    let mut federation = FederationGenerator::new(random, subgraphs);
    federation.add_values();
    let all = federation.all_graphs();
    let mut fields = vec![FieldModel::new("id", "ID!", &all)];
    for number in 0..3 + federation.random.below(4) {
        let by = federation.random.some(&all);
        fields.push(FieldModel::new(format!("n{number}"), NAME, &by));
    }
    for number in 0..6 + federation.random.below(15) {
        let by = federation.random.some(&all);
        fields.push(FieldModel::new(format!("f{number}"), "String", &by));
    }
    federation.objects.push(ObjectModel {
        name: NAME.to_owned(),
        presence: all.iter().map(|&graph| (graph, vec!["id".to_owned()], true)).collect(),
        fields,
        implements: Vec::new(),
        contexts: Vec::new(),
        extensions: Vec::new(),
    });
    let by = federation.random.some(&all);
    federation.query.push(FieldModel::new("q0", NAME, &by));
    GeneratedFederation::of(&federation)
}
