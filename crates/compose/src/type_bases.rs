//! Extensions of types: some subgraph must define the type that others extend.

use std::collections::HashSet;

use apollo_compiler::Name;

use crate::{
    code::Code,
    finding::Findings,
    subgraph::model::{SubgraphModel, TypeDefinition, is_root},
};

/// Reports extensions of types that no subgraph defines.
pub(crate) fn check(subgraphs: &[SubgraphModel], findings: &mut Findings<'_>) {
    let mut defined: HashSet<&Name> = HashSet::new();
    for subgraph in subgraphs {
        let bases = subgraph.types.values().filter(|ty| !is_only_extended(subgraph, ty));
        defined.extend(bases.map(|ty| &ty.name));
    }
    for subgraph in subgraphs {
        for ty in subgraph.types.values() {
            if is_root(&ty.name) || defined.contains(&ty.name) {
                continue;
            }
            findings.error(
                Code::EXTENSION_WITH_NO_BASE,
                [subgraph.spot(&ty.name)],
                format!("`{}` is extended, but no subgraph defines it", ty.name),
                format!("write `type {}` without `extend` in one subgraph", ty.name),
            );
        }
    }
}

/// True if the subgraph extends the type without defining it. `@extends` means an extension only in Federation 1.
fn is_only_extended(subgraph: &SubgraphModel, ty: &TypeDefinition) -> bool {
    if subgraph.is_federation_one() { ty.is_extension } else { !ty.has_definition }
}
