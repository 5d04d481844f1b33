//! The tags of entity types and root fields by the schema (`@cacheTag`), compiled when a graph is loaded.
//!
//! A graph with a template that does not compile is refused. If it were served, either responses would be stored
//! without the tag, so that an invalidation would silently miss them, or not be stored at all, which is noticed only
//! under load. Composition reports such templates with their place, so only graphs of other composers can have them.

use std::collections::HashMap;

use cache::{TagTemplate, TemplateScope};
use execute::TypeTags;
use graph::{SubgraphId, Supergraph};

/// The tags of entity types in each subgraph, by the name of the type.
pub(crate) type EntityTags = HashMap<SubgraphId, HashMap<Box<str>, TypeTags>>;

/// Compiles the tags of a graph. Those of root fields are only checked: they are compiled again with each plan.
///
/// # Errors
/// A message about the first template that does not compile.
pub(crate) fn compile_tags(graph: &Supergraph) -> Result<EntityTags, String> {
    let Some(hints) = &graph.cache_hints else { return Ok(EntityTags::new()) };
    for (&(subgraph, id), element) in &hints.fields {
        let field = graph.field(id);
        let coordinate = format!("{}.{}", graph.ty(field.parent).name, field.name);
        // Tags of other fields have no effect.
        if field.parent == graph.query {
            compile(graph, subgraph, &coordinate, &element.tags, TemplateScope::RootField)?;
        }
    }
    let mut all = EntityTags::new();
    for (&(subgraph, id), element) in &hints.types {
        if element.tags.is_empty() {
            continue;
        }
        let ty = graph.ty(id);
        let templates = compile(graph, subgraph, &ty.name, &element.tags, TemplateScope::Entity)?;
        // The representation of an object may name its type or the interface.
        let possible = ty.possible.iter().map(|id| &graph.ty(*id).name);
        let own = [&ty.name].into_iter().filter(|_| !ty.possible.contains(&id));
        let by_type = all.entry(subgraph).or_default();
        for name in possible.chain(own) {
            by_type.entry(name.clone()).or_default().extend(templates.iter().cloned());
        }
    }
    Ok(all)
}

fn compile(
    graph: &Supergraph,
    subgraph: SubgraphId,
    coordinate: &str,
    formats: &[Box<str>],
    scope: TemplateScope,
) -> Result<TypeTags, String> {
    let compile = |format: &str| {
        TagTemplate::compile(format, scope).map_err(|error| {
            format!(
                "the `@cacheTag(format: \"{format}\")` of `{coordinate}` in subgraph `{}` is wrong: {error}",
                graph.subgraph(subgraph).name
            )
        })
    };
    formats.iter().map(|format| compile(format)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(on_type: &str, on_field: &str) -> Supergraph {
        let tag = |format: &str| {
            format!(
                r#"@join__directive(graphs: [A], name: "federation__cacheTag", args: {{format: "{format}"}})"#
            )
        };
        let text = format!(
            r#"schema @link(url: "https://specs.apollo.dev/link/v1.0")
                 @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
                 @link(url: "https://specs.apollo.dev/cacheTag/v0.1", for: EXECUTION) {{ query: Query }}
               enum join__Graph {{ A @join__graph(name: "a", url: "http://a") B @join__graph(name: "b", url: "http://b") }}
               type Query @join__type(graph: A) {{ node(id: ID!): Node {} }}
               interface Node @join__type(graph: A, key: "id") @join__type(graph: B, key: "id") {} {{ id: ID! }}
               type User implements Node @join__type(graph: A, key: "id") @join__type(graph: B, key: "id")
                 @join__implements(graph: A, interface: "Node") @join__implements(graph: B, interface: "Node") {} {{ id: ID! }}"#,
            tag(on_field),
            tag("node-{$key.id}"),
            tag(on_type),
        );
        Supergraph::from_sdl(&text, "test.graphql").expect("a supergraph")
    }

    #[test]
    fn an_entity_has_the_tags_of_its_type_and_of_its_interfaces_in_the_subgraph_that_gives_them() {
        let all = compile_tags(&graph("user-{$key.id}", "node-{$args.id}")).expect("templates");
        let count = |subgraph, name: &str| {
            all.get(&SubgraphId(subgraph)).and_then(|it| it.get(name)).map_or(0, Vec::len)
        };
        assert_eq!((count(0, "User"), count(0, "Node")), (2, 1));
        assert_eq!((count(1, "User"), count(1, "Node")), (0, 0));
    }

    #[test]
    fn a_template_that_does_not_compile_is_named_with_its_place() {
        for (graph, expected) in [
            (
                graph("user-{$args.id}", "node"),
                "the `@cacheTag(format: \"user-{$args.id}\")` of `User` in subgraph `a` is wrong: `$args` is not known \
                 here: on an entity type, values begin with `$key`",
            ),
            (
                graph("user", "node-{$key.id}"),
                "the `@cacheTag(format: \"node-{$key.id}\")` of `Query.node` in subgraph `a` is wrong: `$key` is not \
                 known here: on a root field, values begin with `$args`",
            ),
        ] {
            assert_eq!(compile_tags(&graph).expect_err("a mistake"), expected);
        }
    }
}
