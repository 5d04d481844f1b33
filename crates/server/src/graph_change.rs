//! The results of loading changed graphs, for observers in this process such as `starling dev`.

use std::collections::BTreeSet;

use config::diagnostic::Diagnostic;
use graph::{Supergraph, TypeKind, TypeRef, TypeRefShape};

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

/// The difference between two graphs: subgraphs, and fields as `Type.field`. Sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GraphDifference {
    /// The subgraphs and fields that only the new graph has.
    pub added: Vec<String>,
    /// The subgraphs and fields that only the old graph had.
    pub removed: Vec<String>,
    /// The fields with another type or other arguments.
    pub changed: Vec<String>,
}

impl GraphDifference {
    /// Compares the subgraphs and the fields that clients can select.
    pub(crate) fn between(old: &Supergraph, new: &Supergraph) -> Self {
        let (before, after) = (elements(old), elements(new));
        let names = |elements: &BTreeSet<(String, String)>| -> BTreeSet<String> {
            elements.iter().map(|(name, _)| name.clone()).collect()
        };
        let (names_before, names_after) = (names(&before), names(&after));
        let changed = after.difference(&before).map(|(name, _)| name);
        Self {
            added: names_after.difference(&names_before).cloned().collect(),
            removed: names_before.difference(&names_after).cloned().collect(),
            changed: changed.filter(|name| names_before.contains(*name)).cloned().collect(),
        }
    }
}

/// Returns the elements of a graph that clients can name, each with a text that differs if the element does.
fn elements(graph: &Supergraph) -> BTreeSet<(String, String)> {
    let subgraphs = graph.subgraphs.iter();
    let mut elements: BTreeSet<_> =
        subgraphs.map(|it| (format!("subgraph {}", it.name), it.url.to_string())).collect();
    for field in graph.fields.iter().filter(|field| !field.inaccessible) {
        let parent = graph.ty(field.parent);
        let signature = format!("{:?} {}", field.arguments, type_text(graph, &field.ty));
        elements.insert((format!("{}.{}", parent.name, field.name), signature));
    }
    for ty in graph.types.iter().filter(|ty| !ty.inaccessible) {
        if let TypeKind::Enum(values) = &ty.kind {
            let values = values.iter().map(|value| format!("{}.{value}", ty.name));
            elements.extend(values.map(|value| (value, String::new())));
        }
    }
    elements
}

/// Returns a type as GraphQL text.
fn type_text(graph: &Supergraph, ty: &TypeRef) -> String {
    let text = match &ty.shape {
        TypeRefShape::List(inner) => format!("[{}]", type_text(graph, inner)),
        TypeRefShape::Named(id) => graph.ty(*id).name.to_string(),
    };
    if ty.nullable { text } else { text + "!" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(subgraph: &str, fields: &str) -> Supergraph {
        let sdl = format!(
            r#"
schema @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) {{ query: Query }}
enum join__Graph {{ A @join__graph(name: "{subgraph}", url: "http://127.0.0.1:1") }}
type Query @join__type(graph: A) {{ {fields} }}
enum Colour @join__type(graph: A) {{ RED @join__enumValue(graph: A) }}
"#
        );
        Supergraph::from_sdl(&sdl, "supergraph.graphql").expect("a supergraph")
    }

    #[test]
    fn a_difference_names_subgraphs_and_fields() {
        let old = graph("a", "x: Int y: [Int!] z(first: Int): Colour same: Colour");
        let new = graph("b", "y: [Int!]! z(first: ID): Colour same: Colour w: Int");
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            GraphDifference::between(&old, &new),
            GraphDifference {
                added: names(&["Query.w", "subgraph b"]),
                removed: names(&["Query.x", "subgraph a"]),
                changed: names(&["Query.y", "Query.z"]),
            }
        );
        assert_eq!(GraphDifference::between(&old, &old), GraphDifference::default());
    }
}
