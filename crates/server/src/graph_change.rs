//! The results of loading changed graphs, for observers in this process such as `starling dev`.

use std::collections::BTreeMap;

use compose::ChangeCode;
use config::diagnostic::Diagnostic;
use graph::Supergraph;

/// The result of loading a changed graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GraphChange {
    /// A new graph serves.
    Replaced(GraphDifference),
    /// The graph is equal to the one that serves.
    Unchanged,
    /// The graph was not loaded, for these reasons; the previous one serves.
    Refused(Vec<Diagnostic>),
}

/// The difference between two graphs: subgraphs, and elements of the schema that clients see by their coordinates, such
/// as `Query.user(id:)`. Sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GraphDifference {
    /// The subgraphs and elements that only the new graph has. The members of a new type are not listed.
    pub added: Vec<String>,
    /// The subgraphs and elements that only the old graph had.
    pub removed: Vec<String>,
    /// The subgraphs with another URL or another endpoint of subscriptions, and the elements that changed otherwise.
    pub changed: Vec<String>,
}

impl GraphDifference {
    /// Compares the subgraphs and the schemas that clients see.
    pub(crate) fn between(old: &Supergraph, new: &Supergraph) -> Self {
        let mut difference = Self::default();
        for change in compose::diff(&old.api, &new.api) {
            difference.list_for(change.code).push(change.path);
        }
        let endpoints = |graph: &Supergraph| -> BTreeMap<String, (String, _)> {
            let subgraphs = graph.subgraphs.iter().cloned();
            subgraphs
                .map(|it| (format!("subgraph {}", it.name), (it.url.into(), it.subscription)))
                .collect()
        };
        let (before, after) = (endpoints(old), endpoints(new));
        for (name, endpoint) in &after {
            match before.get(name) {
                None => difference.added.push(name.clone()),
                Some(known) if known != endpoint => difference.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        let gone = before.into_keys().filter(|name| !after.contains_key(name));
        difference.removed.extend(gone);
        let Self { added, removed, changed } = &mut difference;
        for list in [added, removed, changed] {
            list.sort();
            // An element may have changed in several ways.
            list.dedup();
        }
        difference
    }

    /// Returns the list for changes of a kind.
    fn list_for(&mut self, code: ChangeCode) -> &mut Vec<String> {
        use ChangeCode as C;
        match code {
            C::TypeAdded
            | C::FieldAdded
            | C::RequiredArgAdded
            | C::OptionalArgAdded
            | C::RequiredInputFieldAdded
            | C::OptionalInputFieldAdded
            | C::ValueAddedToEnum
            | C::DirectiveAdded
            | C::RequiredDirectiveArgAdded
            | C::OptionalDirectiveArgAdded => &mut self.added,
            C::TypeRemoved
            | C::FieldRemoved
            | C::ArgRemoved
            | C::InputFieldRemoved
            | C::ValueRemovedFromEnum
            | C::DirectiveRemoved
            | C::DirectiveArgRemoved => &mut self.removed,
            _ => &mut self.changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(subgraph: &str, url: &str, fields: &str) -> Supergraph {
        graph_with_entry(&format!("@join__graph(name: \"{subgraph}\", url: \"{url}\")"), fields)
    }

    /// Returns a graph with one subgraph. Its entry in `enum join__Graph` has these directives.
    fn graph_with_entry(directives: &str, fields: &str) -> Supergraph {
        let sdl = format!(
            r#"
schema @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) {{ query: Query }}
enum join__Graph {{ A {directives} }}
type Query @join__type(graph: A) {{ {fields} }}
enum Colour @join__type(graph: A) {{ RED @join__enumValue(graph: A) }}
"#
        );
        Supergraph::from_sdl(&sdl, "supergraph.graphql").expect("a supergraph")
    }

    #[test]
    fn a_difference_names_subgraphs_and_elements() {
        let old =
            graph("a", "http://127.0.0.1:1", "x: Int y: [Int!] z(first: Int): Colour same: Colour");
        let new =
            graph("b", "http://127.0.0.1:1", "y: [Int!]! z(first: ID): Colour same: Colour w: Int");
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            GraphDifference::between(&old, &new),
            GraphDifference {
                added: names(&["Query.w", "subgraph b"]),
                removed: names(&["Query.x", "subgraph a"]),
                changed: names(&["Query.y", "Query.z(first:)"]),
            }
        );
        assert_eq!(GraphDifference::between(&old, &old), GraphDifference::default());

        let moved = graph(
            "b",
            "http://127.0.0.1:2",
            "y: [Int!]! z(first: ID, last: ID): Colour same: Colour w: Int",
        );
        assert_eq!(
            GraphDifference::between(&new, &moved),
            GraphDifference {
                added: names(&["Query.z(last:)"]),
                changed: names(&["subgraph b"]),
                ..GraphDifference::default()
            }
        );

        let changed = names(&["subgraph b"]);
        let over_events = graph_with_entry(
            "@join__graph(name: \"b\", url: \"http://127.0.0.1:2\") @starling__subscription(protocol: \"sse\")",
            "y: [Int!]! z(first: ID, last: ID): Colour same: Colour w: Int",
        );
        assert_eq!(
            GraphDifference::between(&moved, &over_events),
            GraphDifference { changed, ..GraphDifference::default() }
        );
    }
}
