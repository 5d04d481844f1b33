//! Event subgraphs: the root fields that are bound to topics, and the check that binding directives are applied only
//! where they are allowed. The hub interprets their arguments.

use apollo_compiler::Schema;

use crate::event_role::BINDINGS;
use crate::{EventRole, SubgraphId, SubgraphKind, Supergraph, TypeId, errors::ErrorCollector};

fn is_of_event_family(name: &str) -> bool {
    name.starts_with("edfs__") || name.starts_with("events__")
}

/// Marks every subgraph that has no URL but event directives on its fields as an event subgraph.
pub(super) fn mark_event_subgraphs(supergraph: &mut Supergraph) {
    let mut event_subgraphs = crate::SubgraphSet::EMPTY;
    for field in &supergraph.fields {
        for directive in field.directives.iter().filter(|d| is_of_event_family(&d.name)) {
            event_subgraphs = event_subgraphs.union(directive.subgraphs);
        }
    }
    for (index, subgraph) in supergraph.subgraphs.iter_mut().enumerate() {
        if subgraph.url.is_empty() && event_subgraphs.contains(SubgraphId(index as u16)) {
            subgraph.kind = SubgraphKind::Events;
        }
    }
}

/// Checks the event directives of all fields. The kinds of all subgraphs must be known.
pub(super) fn check_event_fields(
    supergraph: &Supergraph,
    schema: &Schema,
    errors: &mut ErrorCollector<'_>,
) {
    for field in &supergraph.fields {
        let parent = supergraph.ty(field.parent);
        let place =
            || schema.type_field(&parent.name, &field.name).ok().and_then(|field| field.location());
        let coordinate = || format!("{}.{}", parent.name, field.name);
        for directive in field.directives.iter().filter(|d| is_of_event_family(&d.name)) {
            let Some(role) = EventRole::of_directive(&directive.name) else {
                let names: Vec<_> = BINDINGS.iter().map(|(name, _)| format!("@{name}")).collect();
                errors.push(
                    place(),
                    format!("`@{}` on `{}` is not supported", directive.name, coordinate()),
                    Some(&format!("supported are {}", names.join(", "))),
                );
                continue;
            };
            let parent = Some(field.parent);
            let (fits, wanted) = match role {
                EventRole::Subscribe => (parent == supergraph.subscription, "Subscription"),
                EventRole::Publish => (parent == supergraph.mutation, "Mutation"),
                EventRole::Request => (
                    field.parent == supergraph.query || parent == supergraph.mutation,
                    "Query or Mutation",
                ),
            };
            if !fits {
                errors.push(
                    place(),
                    format!("`@{}` is applied to `{}`", directive.name, coordinate()),
                    Some(&format!("it belongs on root fields of {wanted}")),
                );
            }
            for subgraph in directive.subgraphs.iter() {
                let subgraph = supergraph.subgraph(subgraph);
                if subgraph.kind != SubgraphKind::Events {
                    errors.push(
                        place(),
                        format!(
                            "`@{}` on `{}` is applied in subgraph `{}`, which has a server",
                            directive.name,
                            coordinate(),
                            subgraph.name
                        ),
                        Some(
                            "event directives belong in an event subgraph, one whose url is empty",
                        ),
                    );
                }
            }
        }
        let is_root = is_root(supergraph, field.parent);
        for subgraph in field.resolved_by.iter().filter(|_| is_root) {
            let is_bound = field
                .directives
                .iter()
                .any(|d| is_of_event_family(&d.name) && d.subgraphs.contains(subgraph));
            let subgraph = supergraph.subgraph(subgraph);
            if subgraph.kind == SubgraphKind::Events && !is_bound {
                errors.push(
                    place(),
                    format!(
                        "`{}` is a root field of event subgraph `{}` but is bound to no topic",
                        coordinate(),
                        subgraph.name
                    ),
                    Some("every root field of an event subgraph has a directive such as @edfs__natsSubscribe"),
                );
            }
        }
    }
}

fn is_root(supergraph: &Supergraph, ty: TypeId) -> bool {
    ty == supergraph.query || Some(ty) == supergraph.mutation || Some(ty) == supergraph.subscription
}
