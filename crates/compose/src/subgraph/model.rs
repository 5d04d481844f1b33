//! The types of the model of a subgraph.

use apollo_compiler::{Name, Node, ast, parser::SourceSpan};
use indexmap::IndexMap;

use crate::{
    federation_spec::{FederationDirective, FederationVersion},
    finding::Spot,
    links::Links,
};

/// One subgraph.
#[derive(Debug)]
pub(crate) struct SubgraphModel {
    /// The index of the subgraph in the order of its value of `join__Graph`.
    pub(crate) id: usize,
    pub(crate) name: String,
    pub(crate) links: Links,
    pub(crate) types: IndexMap<Name, TypeDefinition>,
    pub(crate) directive_definitions: IndexMap<Name, Node<ast::DirectiveDefinition>>,
    pub(crate) schema_directives: Vec<AppliedDirective>,
    pub(crate) description: Option<Node<str>>,
    /// True if root fields are bound to topics of a broker.
    pub(crate) is_event_subgraph: bool,
}

/// The kind of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TypeKind {
    Scalar,
    Object,
    Interface,
    Union,
    Enum,
    InputObject,
}

/// One type with all its extensions.
#[derive(Clone, Debug)]
pub(crate) struct TypeDefinition {
    pub(crate) name: Name,
    pub(crate) kind: TypeKind,
    pub(crate) description: Option<Node<str>>,
    /// True if the subgraph has no base definition, or marks it `@extends`.
    pub(crate) is_extension: bool,
    /// True if the subgraph has a definition that is not written as `extend`.
    pub(crate) has_definition: bool,
    pub(crate) directives: Vec<AppliedDirective>,
    pub(crate) implements: Vec<Name>,
    /// The fields of an object or interface type.
    pub(crate) fields: IndexMap<Name, FieldDefinition>,
    /// The fields of an input object type.
    pub(crate) inputs: IndexMap<Name, InputDefinition>,
    /// The members of a union.
    pub(crate) members: Vec<Name>,
    pub(crate) values: IndexMap<Name, EnumValue>,
    pub(crate) keys: Vec<KeyDefinition>,
    pub(crate) is_interface_object: bool,
    /// True if one definition or extension has `@shareable` twice.
    pub(crate) is_shareable_twice: bool,
    /// True for an interface of Federation 1 with keys, which the upgrade removed.
    pub(crate) had_keys: bool,
}

/// One `@key`.
#[derive(Clone, Debug)]
pub(crate) struct KeyDefinition {
    pub(crate) fields: String,
    pub(crate) is_resolvable: bool,
    /// True if the key is on a type extension.
    pub(crate) is_on_extension: bool,
    pub(crate) place: Option<SourceSpan>,
}

/// One field of an object or interface type.
#[derive(Clone, Debug)]
pub(crate) struct FieldDefinition {
    pub(crate) name: Name,
    pub(crate) description: Option<Node<str>>,
    pub(crate) ty: ast::Type,
    pub(crate) arguments: IndexMap<Name, InputDefinition>,
    pub(crate) directives: Vec<AppliedDirective>,
    pub(crate) is_external: bool,
    pub(crate) is_shareable: bool,
    /// True if some `@provides` of the subgraph names the field, so that the subgraph resolves it on some paths.
    pub(crate) is_provided: bool,
    pub(crate) requires: Option<String>,
    pub(crate) provides: Option<String>,
    pub(crate) override_from: Option<OverrideSource>,
}

/// One `@override`.
#[derive(Clone, Debug)]
pub(crate) struct OverrideSource {
    pub(crate) from: String,
    pub(crate) label: Option<String>,
    pub(crate) place: Option<SourceSpan>,
}

/// An argument or a field of an input object type.
#[derive(Clone, Debug)]
pub(crate) struct InputDefinition {
    pub(crate) name: Name,
    pub(crate) description: Option<Node<str>>,
    pub(crate) ty: ast::Type,
    pub(crate) default: Option<Node<ast::Value>>,
    pub(crate) directives: Vec<AppliedDirective>,
    /// The text of `@fromContext(field:)`: clients do not see such an argument.
    pub(crate) from_context: Option<String>,
}

/// One value of an enum.
#[derive(Clone, Debug)]
pub(crate) struct EnumValue {
    pub(crate) name: Name,
    pub(crate) description: Option<Node<str>>,
    pub(crate) directives: Vec<AppliedDirective>,
}

/// A directive as applied.
#[derive(Clone, Debug)]
pub(crate) struct AppliedDirective {
    /// The directive of the federation specification, whatever its local name.
    pub(crate) known: Option<FederationDirective>,
    pub(crate) node: Node<ast::Directive>,
}

impl AppliedDirective {
    /// Returns the value of a string argument.
    pub(crate) fn text(&self, argument: &str) -> Option<&str> {
        self.node.specified_argument_by_name(argument)?.as_str()
    }
}

/// True if `directives` contain the federation directive.
pub(crate) fn has(directives: &[AppliedDirective], wanted: FederationDirective) -> bool {
    directives.iter().any(|it| it.known == Some(wanted))
}

/// Returns the applications of a federation directive.
pub(crate) fn all_of(
    directives: &[AppliedDirective],
    wanted: FederationDirective,
) -> impl Iterator<Item = &AppliedDirective> {
    directives.iter().filter(move |it| it.known == Some(wanted))
}

/// The names of the root types of every supergraph.
pub(crate) const ROOTS: [&str; 3] = ["Query", "Mutation", "Subscription"];

/// True if `name` is the name of a root type.
pub(crate) fn is_root(name: &str) -> bool {
    ROOTS.contains(&name)
}

impl SubgraphModel {
    /// Returns the spot of `name` in this subgraph.
    pub(crate) fn spot(&self, name: &Name) -> Spot {
        (self.id, name.location())
    }

    /// Returns the field of a type.
    pub(crate) fn field(&self, ty: &str, field: &str) -> Option<&FieldDefinition> {
        self.types.get(ty)?.fields.get(field)
    }

    /// True if the subgraph is one of Federation 1.
    pub(crate) fn is_federation_one(&self) -> bool {
        self.links.version == FederationVersion::One
    }

    /// Returns the object types that a value of type `ty` can have in this subgraph.
    pub(crate) fn possible_types<'a>(&'a self, ty: &'a TypeDefinition) -> Vec<&'a TypeDefinition> {
        match ty.kind {
            TypeKind::Object => vec![ty],
            TypeKind::Union => ty.members.iter().filter_map(|name| self.types.get(name)).collect(),
            TypeKind::Interface => {
                let implements = |it: &&TypeDefinition| {
                    it.kind == TypeKind::Object && it.implements.contains(&ty.name)
                };
                self.types.values().filter(implements).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl TypeKind {
    /// Returns the kind's name in messages.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Scalar => "a scalar",
            Self::Object => "an object type",
            Self::Interface => "an interface",
            Self::Union => "a union",
            Self::Enum => "an enum",
            Self::InputObject => "an input type",
        }
    }

    /// True if fields of this kind have a selection.
    pub(crate) fn is_composite(self) -> bool {
        matches!(self, Self::Object | Self::Interface | Self::Union)
    }
}

impl TypeDefinition {
    /// Creates a type without members.
    pub(crate) fn empty(name: Name, kind: TypeKind) -> Self {
        Self {
            name,
            kind,
            description: None,
            is_extension: false,
            has_definition: true,
            directives: Vec::new(),
            implements: Vec::new(),
            fields: IndexMap::new(),
            inputs: IndexMap::new(),
            members: Vec::new(),
            values: IndexMap::new(),
            keys: Vec::new(),
            is_interface_object: false,
            is_shareable_twice: false,
            had_keys: false,
        }
    }

    /// The kind of the type in the supergraph: an interface object is an interface there.
    pub(crate) fn supergraph_kind(&self) -> TypeKind {
        if self.is_interface_object { TypeKind::Interface } else { self.kind }
    }
}
