//! Composition: the schemas of subgraphs become one supergraph, or findings that say what to correct.
//!
//! ```
//! use compose::{Composition, SubgraphInput};
//!
//! let products = SubgraphInput {
//!     name: "products".into(),
//!     url: "http://products/graphql".into(),
//!     file: "products.graphql".into(),
//!     sdl: r#"
//!         extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key"])
//!         type Query { product(id: ID!): Product }
//!         type Product @key(fields: "id") { id: ID! name: String }
//!     "#
//!     .into(),
//!     subscription: None,
//! };
//! match compose::compose(&[products]) {
//!     Composition::Success { supergraph_sdl, hints } => {
//!         assert!(supergraph_sdl.contains("type Product"));
//!         assert!(hints.is_empty());
//!     }
//!     Composition::Failure { errors, .. } => panic!("{}", errors[0]),
//! }
//! ```
//!
//! # Phases
//!
//! Each phase is a module, and plain data lies between them. A phase reports all its errors; the next phase runs only
//! if there are none.
//!
//! 1. `parsing` turns SDL into the syntax tree of `apollo-compiler`, which keeps positions.
//! 2. `links` reads `@link`: the federation version, and the local names of directives and types. The directives
//!    themselves are in `federation_spec`. `validate::definitions` and `validate::graphql` check the syntax tree.
//! 3. `subgraph` holds the model of one subgraph: extensions applied, names resolved, roots renamed. Event subgraphs
//!    are completed by `events`, and their directives are in `event_spec`.
//! 4. `type_bases` checks extensions, and `federation_one` makes explicit what was implicit in Federation 1 subgraphs.
//! 5. `validate` checks the federation rules of each subgraph by itself.
//! 6. `merge` makes one `supergraph` of all models, in which every element records where it came from.
//! 7. `post_merge` checks the result as a whole: interfaces, keys, and what clients may see.
//! 8. `printing` writes the supergraph SDL.
//! 9. `satisfiability` loads that SDL as the router does, with [`graph::Supergraph`], and checks that every query can
//!    be planned.
//!
//! Errors and hints are [`Finding`]s with an established [`Code`] and the places in the subgraphs. [`render()`] shows
//! them to people, [`json()`] to programs. This crate reads no files and opens no connections.
//!
//! # Contracts
//!
//! `contract` runs after these phases: it hides the elements that clients of a part of the graph do not see.
//!
//! # Schema changes
//!
//! `diff` compares the API schemas of two graphs and finds the operations that the changes break. It starts from
//! [`graph::ApiSchema`] and shares nothing with the phases above.
//!
//! # Limits
//!
//! The size of a schema, the nesting of values and field sets, the number of findings and of the places of each are
//! bounded, so that hostile input costs time in proportion to its size.

mod cache_spec;
mod code;
mod contract;
mod diff;
mod event_spec;
mod events;
mod federation_one;
mod federation_spec;
mod finding;
mod input;
mod json;
mod links;
mod merge;
mod parsing;
mod post_merge;
mod printing;
mod render;
mod satisfiability;
mod similar_names;
mod source_text;
mod subgraph;
mod subgraph_names;
mod supergraph;
mod type_bases;
mod validate;

pub use code::{Code, CodeGroup};
pub use finding::{FINDINGS_MAX, Finding, Severity};
pub use input::SubgraphInput;
pub use json::{finding_json, json};
pub use parsing::SDL_BYTES_MAX;
pub use render::{Coloring, render};
pub use source_text::Place;
// Part of a subgraph's input.
pub use graph::SubscriptionEndpoint;

// Beside composition: contracts and changes of schemas.
pub use contract::ContractFilter;
pub use diff::{
    ChangeCode, ChangeUse, ClientOperation, ClientUse, CountedUsage, Criticality, DeprecatedUse,
    OperationFile, OperationPlace, OperationProblem, OperationsReport, SchemaChange,
    UncheckedOperation, UsageRules, check_operations, check_usage, diff, find_deprecated_uses,
    read_operations,
};

use apollo_compiler::ast::Document;
use finding::Findings;
use printing::Purposes;
use source_text::SourceText;
use subgraph::model::SubgraphModel;
use supergraph::SupergraphModel;

/// The result of composition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Composition {
    /// The subgraphs fit together.
    Success {
        /// The supergraph.
        supergraph_sdl: String,
        /// Differences between the subgraphs that are allowed.
        hints: Vec<Finding>,
    },
    /// The subgraphs do not fit together.
    Failure {
        /// All errors of the first phase that found any; never empty.
        errors: Vec<Finding>,
        /// The hints found so far.
        hints: Vec<Finding>,
    },
}

/// Composes `subgraphs` into a supergraph. The order of the subgraphs does not matter: the supergraph lists them by
/// name.
pub fn compose(subgraphs: &[SubgraphInput]) -> Composition {
    compose_with(subgraphs, None).0
}

/// Composes `subgraphs` into a supergraph in which everything outside the contract is `@inaccessible`. Also returns the
/// tags of the filter that no element has, which are usually misspelled.
pub fn compose_contract(
    subgraphs: &[SubgraphInput],
    filter: &ContractFilter,
) -> (Composition, Vec<String>) {
    compose_with(subgraphs, Some(filter))
}

fn compose_with(
    subgraphs: &[SubgraphInput],
    contract: Option<&ContractFilter>,
) -> (Composition, Vec<String>) {
    let mut inputs: Vec<&SubgraphInput> = subgraphs.iter().collect();
    inputs.sort_by(|a, b| a.name.cmp(&b.name));
    let sources: Vec<SourceText> = inputs.iter().map(|input| SourceText::new(input)).collect();
    let mut findings = Findings::new(&sources);
    let mut missing_tags = Vec::new();
    let sdl = run_phases(&inputs, &mut findings).map(|(mut merged, models)| {
        if let Some(filter) = contract.filter(|_| !findings.has_errors()) {
            missing_tags = contract::apply(&models, &mut merged, filter, &mut findings);
        }
        printing::print(&merged, Purposes::Written)
    });
    let (errors, hints) = findings.into_parts();
    let composition = match sdl {
        Some(supergraph_sdl) if errors.is_empty() => Composition::Success { supergraph_sdl, hints },
        _ => Composition::Failure { errors, hints },
    };
    (composition, missing_tags)
}

/// Runs the phases until one has errors.
fn run_phases(
    inputs: &[&SubgraphInput],
    findings: &mut Findings<'_>,
) -> Option<(SupergraphModel, Vec<SubgraphModel>)> {
    let graph_values = subgraph_names::check(inputs, findings);
    let parse = |(id, input): (usize, &&SubgraphInput)| parsing::parse(id, input, findings);
    let documents: Vec<_> = inputs.iter().enumerate().filter_map(parse).collect();
    if findings.has_errors() {
        return None;
    }
    let mut models = Vec::new();
    for (id, (input, document)) in inputs.iter().zip(&documents).enumerate() {
        let Some(model) = read_subgraph(id, input, document, findings) else { continue };
        // Federation 1 subgraphs are checked after their upgrade.
        if !model.is_federation_one() {
            validate::check_model(&model, findings);
        }
        models.push(model);
    }
    if findings.has_errors() {
        return None;
    }
    // The upgrade needs bases; without Federation 1 they are checked together with merging.
    let has_federation_one = models.iter().any(SubgraphModel::is_federation_one);
    if has_federation_one {
        type_bases::check(&models, findings);
    }
    federation_one::upgrade(&mut models, findings);
    if findings.has_errors() {
        return None;
    }
    for model in models.iter().filter(|it| it.is_federation_one()) {
        validate::check_model(model, findings);
    }
    if findings.has_errors() {
        return None;
    }
    federation_one::check_interface_keys(&models, findings);
    if findings.has_errors() {
        return None;
    }
    if !has_federation_one {
        type_bases::check(&models, findings);
    }
    let mut merged = merge::merge(&models, findings);
    merged.graphs = graph_values;
    for model in models.iter().filter(|model| model.is_event_subgraph) {
        if let Some(entry) = merged.graphs.get_mut(model.id) {
            entry.subscription = None;
        }
    }
    if !findings.has_errors() || !merged.types.is_empty() {
        post_merge::check(&models, &merged, findings);
    }
    if findings.has_errors() {
        return None;
    }
    post_merge::check_runtime_types(&models, &merged, findings);
    // The router refuses purposes that it does not enforce, which is no matter of composition.
    let planned = printing::print(&merged, Purposes::Omitted);
    satisfiability::check(&planned, &models, findings);
    Some((merged, models))
}

/// True if a schema is that of an event subgraph, which has no server; `None` if the text is not GraphQL.
pub fn is_event_subgraph(sdl: &str) -> Option<bool> {
    parsing::parse_text(sdl, "").ok().map(|document| event_spec::is_event_document(&document))
}

fn read_subgraph(
    id: usize,
    input: &SubgraphInput,
    document: &Document,
    findings: &mut Findings<'_>,
) -> Option<SubgraphModel> {
    let is_event_subgraph = event_spec::is_event_document(document);
    let links = links::Links::read(id, document, is_event_subgraph, findings)?;
    let before = findings.error_count();
    validate::check_document(id, document, &links, is_event_subgraph, findings);
    if findings.error_count() > before {
        return None;
    }
    Some(subgraph::reading::read(id, &input.name, document, links, is_event_subgraph))
}
