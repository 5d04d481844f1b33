//! Composition of random federations.

use compose::{Code, Composition, SubgraphInput};

use crate::GeneratedFederation;

/// The result of composing a random federation.
#[derive(Clone, Debug)]
pub enum Composed {
    /// The subgraphs compose: every operation has a plan.
    Supergraph(String),
    /// No route leads to some field. The router loads such a supergraph as well, and refuses operations with the field.
    Unsatisfiable,
}

/// Composes the subgraphs of a federation.
///
/// # Errors
/// Composition reports an error other than an unreachable field: the generator or composition has a defect.
pub fn compose_federation(federation: &GeneratedFederation) -> Result<Composed, String> {
    let input = |(name, sdl): &(String, String)| SubgraphInput {
        name: name.clone(),
        url: format!("http://{name}"),
        file: format!("{name}.graphql"),
        sdl: sdl.clone(),
        subscription: None,
    };
    let subgraphs: Vec<_> = federation.subgraphs.iter().map(input).collect();
    match compose::compose(&subgraphs) {
        Composition::Success { supergraph_sdl, .. } => Ok(Composed::Supergraph(supergraph_sdl)),
        Composition::Failure { errors, .. } => {
            if errors.iter().all(|it| it.code == Code::SATISFIABILITY_ERROR) {
                return Ok(Composed::Unsatisfiable);
            }
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Err(errors.join("\n"))
        }
    }
}
