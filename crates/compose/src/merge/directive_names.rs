//! The names in the supergraph of federation directives that reach it. Subgraphs may import them under another name,
//! but all under the same one.

use std::collections::BTreeMap;

use crate::{
    code::Code,
    federation_spec::{FederationDirective as D, FederationVersion},
    finding::{Findings, Spot},
    subgraph::model::SubgraphModel,
};

/// The directives that the supergraph has under their own names.
const REACHING: [D; 8] = [
    D::Tag,
    D::Inaccessible,
    D::Authenticated,
    D::RequiresScopes,
    D::Policy,
    D::Context,
    D::Cost,
    D::ListSize,
];

/// Returns the local names that differ from the names in the specification.
pub(super) fn find(
    subgraphs: &[SubgraphModel],
    findings: &mut Findings<'_>,
) -> BTreeMap<&'static str, String> {
    let mut renamed = BTreeMap::new();
    for directive in REACHING {
        let name = directive.spec().name;
        let mut imported: Vec<(String, Spot)> = Vec::new();
        for subgraph in subgraphs {
            for spec in &subgraph.links.specs {
                let original = format!("@{name}");
                let import = spec.imports.iter().find(|(own, local)| {
                    *own == original
                        && subgraph.links.directive_named(local.trim_start_matches('@'))
                            == Some(directive)
                });
                if let Some((_, local)) = import {
                    let local = local.trim_start_matches('@').to_owned();
                    imported.push((local, (subgraph.id, spec.place)));
                }
            }
            // Federation 1 has no imports, so its tags have the usual name.
            if subgraph.links.version == FederationVersion::One
                && directive == D::Tag
                && uses_tags(subgraph)
            {
                imported.push((name.to_owned(), (subgraph.id, None)));
            }
        }
        let Some((first, _)) = imported.first() else { continue };
        if imported.iter().any(|(local, _)| local != first) {
            let mut names: Vec<_> =
                imported.iter().map(|(local, _)| format!("`@{local}`")).collect();
            names.sort();
            names.dedup();
            findings.error(
                Code::LINK_IMPORT_NAME_MISMATCH,
                imported.iter().map(|(_, spot)| *spot),
                format!("the subgraphs import `@{name}` under different names: {}", names.join(", ")),
                "the directive is in the supergraph under one name: import it under the same name everywhere",
            );
        } else if first != name {
            renamed.insert(name, first.clone());
        }
    }
    renamed
}

fn uses_tags(subgraph: &SubgraphModel) -> bool {
    let has_tag = |it: &crate::subgraph::model::AppliedDirective| it.known == Some(D::Tag);
    subgraph.types.values().any(|ty| {
        ty.directives.iter().any(has_tag)
            || ty.fields.values().any(|field| field.directives.iter().any(has_tag))
    })
}
