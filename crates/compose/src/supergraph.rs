//! The supergraph as plain data, between merging and printing. Every element records the subgraphs that it came from.

use std::collections::BTreeMap;

use apollo_compiler::{Name, Node, ast};
use graph::SubscriptionEndpoint;
use indexmap::IndexMap;

use crate::subgraph::model::TypeKind;

/// The merged graph.
#[derive(Debug, Default)]
pub(crate) struct SupergraphModel {
    pub(crate) graphs: Vec<GraphEntry>,
    pub(crate) types: BTreeMap<Name, MergedType>,
    /// Executable directives, and type system directives of `@composeDirective`.
    pub(crate) directive_definitions: BTreeMap<Name, Node<ast::DirectiveDefinition>>,
    /// The links of composed directives.
    pub(crate) composed_links: Vec<ComposedLink>,
    pub(crate) description: Option<String>,
    /// The names of federation directives that the subgraphs import under another name.
    pub(crate) directive_names: BTreeMap<&'static str, String>,
    /// Directives of the schema itself, such as tags.
    pub(crate) schema_directives: Vec<MergedDirective>,
}

/// One value of `enum join__Graph`.
#[derive(Debug)]
pub(crate) struct GraphEntry {
    pub(crate) value: String,
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) subscription: Option<SubscriptionEndpoint>,
}

/// The link of a specification with composed directives.
#[derive(Debug)]
pub(crate) struct ComposedLink {
    pub(crate) url: String,
    /// Pairs of the name in the specification and the name in the supergraph, with `@`.
    pub(crate) imports: Vec<(String, String)>,
}

/// One type.
#[derive(Debug)]
pub(crate) struct MergedType {
    pub(crate) name: Name,
    pub(crate) kind: TypeKind,
    pub(crate) description: Option<String>,
    pub(crate) join_types: Vec<JoinType>,
    /// The interfaces with the subgraphs in which the type implements them.
    pub(crate) implements: IndexMap<Name, Vec<usize>>,
    /// The members of a union with the subgraphs that have them.
    pub(crate) members: IndexMap<Name, Vec<usize>>,
    pub(crate) directives: Vec<MergedDirective>,
    pub(crate) fields: IndexMap<Name, MergedField>,
    pub(crate) inputs: IndexMap<Name, MergedInput>,
    pub(crate) values: IndexMap<Name, MergedEnumValue>,
}

/// One `@join__type`.
#[derive(Debug)]
pub(crate) struct JoinType {
    pub(crate) graph: usize,
    pub(crate) key: Option<String>,
    pub(crate) is_extension: bool,
    pub(crate) is_resolvable: bool,
    pub(crate) is_interface_object: bool,
}

/// One field of an object or interface type.
#[derive(Debug)]
pub(crate) struct MergedField {
    pub(crate) name: Name,
    pub(crate) description: Option<String>,
    pub(crate) ty: ast::Type,
    pub(crate) arguments: IndexMap<Name, MergedInput>,
    /// The mentions in subgraphs; none if every subgraph of the type resolves the field in the same way.
    pub(crate) join_fields: Vec<JoinField>,
    pub(crate) directives: Vec<MergedDirective>,
    /// The subgraphs that have the field.
    pub(crate) sources: Vec<usize>,
    /// The subgraphs that resolve the field, if there are several.
    pub(crate) shared_by: Vec<usize>,
}

/// One `@join__field`.
#[derive(Debug, Default)]
pub(crate) struct JoinField {
    /// `None` if an interface object alone resolves the field.
    pub(crate) graph: Option<usize>,
    pub(crate) requires: Option<String>,
    pub(crate) provides: Option<String>,
    pub(crate) ty: Option<String>,
    pub(crate) is_external: bool,
    pub(crate) override_from: Option<String>,
    pub(crate) is_used_overridden: bool,
    pub(crate) override_label: Option<String>,
    pub(crate) context_arguments: Vec<MergedContextArgument>,
}

/// An argument that clients do not see.
#[derive(Debug)]
pub(crate) struct MergedContextArgument {
    pub(crate) name: String,
    pub(crate) ty: String,
    pub(crate) context: String,
    pub(crate) selection: String,
}

/// An argument or a field of an input type.
#[derive(Debug)]
pub(crate) struct MergedInput {
    pub(crate) name: Name,
    pub(crate) description: Option<String>,
    pub(crate) ty: ast::Type,
    pub(crate) default: Option<Node<ast::Value>>,
    pub(crate) join_fields: Vec<JoinField>,
    pub(crate) directives: Vec<MergedDirective>,
}

/// One value of an enum.
#[derive(Debug)]
pub(crate) struct MergedEnumValue {
    pub(crate) name: Name,
    pub(crate) description: Option<String>,
    pub(crate) directives: Vec<MergedDirective>,
    pub(crate) sources: Vec<usize>,
}

/// A directive of the supergraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MergedDirective {
    pub(crate) name: String,
    pub(crate) arguments: Vec<(String, Node<ast::Value>)>,
    /// If the directive travels as `@join__directive`: the subgraphs that apply it.
    pub(crate) graphs: Option<Vec<usize>>,
}

impl MergedDirective {
    /// Creates a directive that is written under its own name.
    pub(crate) fn plain(name: &str, arguments: Vec<(String, Node<ast::Value>)>) -> Self {
        Self { name: name.to_owned(), arguments, graphs: None }
    }
}

/// True if `directives` contain one of that name, written under its own name.
pub(crate) fn has_directive(directives: &[MergedDirective], name: &str) -> bool {
    directives.iter().any(|it| it.graphs.is_none() && it.name == name)
}

impl SupergraphModel {
    /// Calls `visit` with the directives of every element.
    pub(crate) fn visit_directives(&self, visit: &mut impl FnMut(&MergedDirective)) {
        self.schema_directives.iter().for_each(&mut *visit);
        for ty in self.types.values() {
            ty.directives.iter().for_each(&mut *visit);
            for field in ty.fields.values() {
                field.directives.iter().for_each(&mut *visit);
                for argument in field.arguments.values() {
                    argument.directives.iter().for_each(&mut *visit);
                }
            }
            for input in ty.inputs.values() {
                input.directives.iter().for_each(&mut *visit);
            }
            for value in ty.values.values() {
                value.directives.iter().for_each(&mut *visit);
            }
        }
    }
}
