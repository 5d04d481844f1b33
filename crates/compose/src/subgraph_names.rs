//! Names of subgraphs and their values in `enum join__Graph`.

use std::collections::HashMap;

use crate::{code::Code, finding::Findings, input::SubgraphInput, supergraph::GraphEntry};

/// Checks the names of all subgraphs and returns their entries of `enum join__Graph`, in the same order.
pub(crate) fn check(inputs: &[&SubgraphInput], findings: &mut Findings<'_>) -> Vec<GraphEntry> {
    if inputs.is_empty() {
        findings.error(
            Code::NO_QUERIES,
            [],
            "there are no subgraphs to compose",
            "name at least one subgraph",
        );
    }
    if inputs.len() > graph::SUBGRAPHS_MAX {
        findings.error(
            Code::INVALID_SUBGRAPH_NAME,
            [],
            format!(
                "there are {} subgraphs, and at most {} are supported",
                inputs.len(),
                graph::SUBGRAPHS_MAX
            ),
            "merge some of them",
        );
    }
    for (id, input) in inputs.iter().enumerate() {
        let name = &input.name;
        // The reference reserves the name `_` for the router itself.
        if name.trim().is_empty() || name == "_" {
            let message = format!("\"{name}\" cannot be the name of a subgraph");
            let advice = "choose a name that is not empty and not `_`";
            findings.error(Code::INVALID_SUBGRAPH_NAME, [(id, None)], message, advice);
        }
        if id > 0 && inputs[id - 1].name == *name {
            let message = format!("two subgraphs are named `{name}`");
            let advice = "names of subgraphs are unique: configuration, logs and metrics use them";
            findings.error(
                Code::INVALID_SUBGRAPH_NAME,
                [(id - 1, None), (id, None)],
                message,
                advice,
            );
        }
    }
    let values: Vec<_> = inputs.iter().map(|input| enum_value(&input.name)).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for value in &values {
        *counts.entry(value).or_default() += 1;
    }
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut entries = Vec::with_capacity(inputs.len());
    for (input, value) in inputs.iter().zip(&values) {
        let mut unique = value.clone();
        if counts.get(value.as_str()).is_some_and(|count| *count > 1) {
            let number = numbers.entry(value).or_default();
            *number += 1;
            unique = format!("{value}_{number}");
        }
        entries.push(GraphEntry {
            value: unique,
            name: input.name.clone(),
            url: input.url.clone(),
            subscription: input.subscription.clone(),
        });
    }
    entries
}

/// Returns the name as an enum value. A name that ends like a number of [`check`] gets an underscore, so that it cannot
/// collide with one.
fn enum_value(name: &str) -> String {
    let allowed =
        |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_uppercase() } else { '_' };
    let mut value: String = name.chars().map(allowed).collect();
    if !value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        value.insert(0, '_');
    }
    let ends_with_number = value
        .rsplit_once('_')
        .is_some_and(|(_, end)| !end.is_empty() && end.bytes().all(|it| it.is_ascii_digit()));
    if ends_with_number {
        value.push('_');
    }
    value
}
