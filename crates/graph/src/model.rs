//! The supergraph as plain data, compiled once per schema. [`crate::sdl`] reads it from SDL; [`crate::api`] derives the
//! schema that clients see.

use std::{collections::HashMap, sync::Arc};

use apollo_compiler::{Schema, validation::Valid};

use crate::{AccessRules, CacheHints, Costs, FieldId, SubgraphId, SubgraphSet, TypeId};

/// One loaded supergraph.
#[derive(Clone, Debug)]
pub struct Supergraph {
    /// The subgraphs, in the order of `enum join__Graph`.
    pub subgraphs: Vec<Subgraph>,
    /// All named types that clients or subgraphs know, including built-in scalars, without join and link machinery.
    pub types: Vec<Type>,
    /// All fields of all object and interface types.
    pub fields: Vec<Field>,
    /// The type of each name.
    pub type_names: HashMap<Box<str>, TypeId>,
    /// The query root.
    pub query: TypeId,
    /// The mutation root, if any.
    pub mutation: Option<TypeId>,
    /// The subscription root, if any.
    pub subscription: Option<TypeId>,
    /// The labels of progressive overrides, in the order of their first occurrence.
    pub override_labels: Vec<Box<str>>,
    /// The requirements that clients must meet for fields and types.
    pub access: Arc<AccessRules>,
    /// The weights and list sizes of the cost specification, if the supergraph has any.
    pub costs: Option<Arc<Costs>>,
    /// The hints of subgraphs about caching, if the supergraph has any.
    pub cache_hints: Option<Arc<CacheHints>>,
    /// The schema that clients see.
    pub api: ApiSchema,
}

/// The schema that clients see, in the form that the parser and validator of operations require. Join and link
/// machinery and everything `@inaccessible` are removed.
#[derive(Clone, Debug)]
pub struct ApiSchema(pub Arc<Valid<Schema>>);

/// One subgraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subgraph {
    /// The name in configuration, logs and metrics: `join__graph(name:)`.
    pub name: Box<str>,
    /// The URL of the subgraph's server, `join__graph(url:)`; empty for an event subgraph.
    pub url: Box<str>,
    /// Whether a server or a broker provides the subgraph.
    pub kind: SubgraphKind,
    /// How the subscriptions of the subgraph are reached, `@starling__subscription`, if the supergraph says it.
    pub subscription: Option<SubscriptionEndpoint>,
}

/// How the subscriptions of a subgraph are reached, as far as composition knows it. The configuration may say
/// otherwise.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct SubscriptionEndpoint {
    /// The protocol, one of [`SUBSCRIPTION_PROTOCOLS`].
    pub protocol: Option<Box<str>>,
    /// The URL; without one, that of the subgraph.
    pub url: Option<Box<str>>,
}

/// The protocols of subscriptions of subgraphs. The first three use a WebSocket.
pub const SUBSCRIPTION_PROTOCOLS: [&str; 7] =
    ["auto", "graphql_transport_ws", "graphql_ws", "sse", "sse_get", "multipart", "callback"];

impl SubscriptionEndpoint {
    /// True if a protocol uses a WebSocket.
    pub fn is_websocket_protocol(protocol: &str) -> bool {
        SUBSCRIPTION_PROTOCOLS[..3].contains(&protocol)
    }
}

/// The kind of a subgraph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubgraphKind {
    /// A GraphQL server.
    Server,
    /// Topics of a broker that directives bind to root fields; the subgraph has no server.
    Events,
}

/// One named type.
#[derive(Clone, Debug)]
pub struct Type {
    /// The type's name.
    pub name: Box<str>,
    /// The kind of type.
    pub kind: TypeKind,
    /// The fields of an object or interface type, in schema order; empty for other kinds.
    pub fields: Vec<FieldId>,
    /// The object types that a value of this type may have at run time, in schema order. An object type contains
    /// itself.
    pub possible: Vec<TypeId>,
    /// The interfaces that an object or interface type implements.
    pub implements: Vec<TypeId>,
    /// The subgraphs that define the type.
    pub subgraphs: Vec<TypeInSubgraph>,
    /// For object types: the subgraphs that do not know the type but have one of its interfaces as an
    /// `@interfaceObject`, with that interface. At most one entry for each subgraph.
    pub interface_objects: Vec<(SubgraphId, TypeId)>,
    /// The contexts that objects of this type set (`@context`).
    pub contexts: Vec<Box<str>>,
    /// True if the type is hidden from clients.
    pub inaccessible: bool,
}

/// The kind of a type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TypeKind {
    /// An object type.
    Object,
    /// An interface.
    Interface,
    /// A union.
    Union,
    /// A scalar, built in or custom.
    Scalar,
    /// An enum with the values that clients may see.
    Enum(Vec<Box<str>>),
    /// An input object.
    InputObject,
}

impl TypeKind {
    /// True for interfaces and unions: the type of an object is known only at run time.
    pub fn is_abstract(&self) -> bool {
        matches!(self, Self::Interface | Self::Union)
    }

    /// True if a field of this type needs a selection set.
    pub fn is_composite(&self) -> bool {
        matches!(self, Self::Object | Self::Interface | Self::Union)
    }
}

/// The definition of a type in one subgraph (`@join__type`, `@join__unionMember`, `@join__implements`).
#[derive(Clone, Debug)]
pub struct TypeInSubgraph {
    /// The subgraph of this definition.
    pub subgraph: SubgraphId,
    /// The `@key`s of the type in this subgraph, in schema order.
    pub keys: Vec<Key>,
    /// True for an `@interfaceObject`: an object type in the subgraph, an interface in the supergraph.
    pub interface_object: bool,
    /// For abstract types: the object types that this subgraph can return; all of them if it has an interface object,
    /// because such a subgraph does not know them.
    pub possible: Vec<TypeId>,
}

/// One `@key`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The fields of the key.
    pub fields: FieldSet,
    /// True if the router may call `_entities` with this key.
    pub resolvable: bool,
    /// True if the key is declared on a type extension of Federation 1 (`@join__type(extension: true)`). External
    /// members of such a key are references to an object that the subgraph has, not values that it cannot give.
    pub is_extension: bool,
}

/// The parsed value of `fields:` in `@key`, `@requires` and `@provides`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldSet {
    /// The items, in the order written.
    pub items: Vec<FieldSetItem>,
}

impl FieldSet {
    /// True if the set names `field`, at any depth.
    pub fn mentions(&self, field: FieldId) -> bool {
        self.items.iter().any(|item| match item {
            FieldSetItem::Field { field: named, fields, .. } => {
                *named == field || fields.mentions(field)
            }
            FieldSetItem::Fragment { fields, .. } => fields.mentions(field),
        })
    }
}

/// One member of a [`FieldSet`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldSetItem {
    /// A field, with the selection on its value (empty for leaves).
    Field {
        /// The selected field.
        field: FieldId,
        /// The arguments as written, as canonical GraphQL text without the parentheses (`currency: EUR`); empty if
        /// there are none.
        arguments: Box<str>,
        /// The selection on the field's value.
        fields: FieldSet,
    },
    /// An inline fragment, `... on Type { … }`.
    Fragment {
        /// The type condition.
        on: TypeId,
        /// The selection that applies to objects of that type.
        fields: FieldSet,
    },
}

/// One field of an object or interface type.
#[derive(Clone, Debug)]
pub struct Field {
    /// The field's name.
    pub name: Box<str>,
    /// The type that has the field.
    pub parent: TypeId,
    /// The type of the field's value.
    pub ty: TypeRef,
    /// The arguments, in schema order.
    pub arguments: Vec<Argument>,
    /// The mention of the field in each subgraph that has one; on object types also in subgraphs that have the field on
    /// an interface object ([`Type::interface_objects`]).
    pub subgraphs: Vec<FieldInSubgraph>,
    /// The subgraphs that resolve the field according to their own schemas, before progressive overrides.
    pub(crate) declared_by: SubgraphSet,
    /// The progressive overrides of the field, `@override(label:)`.
    pub progressive: Vec<ProgressiveOverride>,
    /// The subgraphs that resolve the field, after `@external` and `@override`. A field of an interface counts only
    /// where the subgraph resolves it for each object type that it can return, without `@requires`.
    pub resolved_by: SubgraphSet,
    /// The directives applied in subgraphs, also unknown ones, as `@join__directive` carries them.
    pub directives: Vec<AppliedDirective>,
    /// True if the field is hidden from clients.
    pub inaccessible: bool,
}

/// An argument of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// The argument's name.
    pub name: Box<str>,
    /// The type as GraphQL text, such as `[ID!]!`.
    pub ty: Box<str>,
    /// The default value as GraphQL text.
    pub default: Option<Box<str>>,
}

/// The mention of a field in one subgraph (`@join__field`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldInSubgraph {
    /// The subgraph that mentions the field.
    pub subgraph: SubgraphId,
    /// True if the subgraph mentions the field but does not resolve it.
    pub external: bool,
    /// `@requires`: the fields of the object that the resolver needs in addition to a key.
    pub requires: Option<FieldSet>,
    /// `@provides`: the fields below this one that the subgraph resolves here although they are external there.
    pub provides: Option<FieldSet>,
    /// The type of the field in this subgraph, if it differs from the supergraph's.
    pub ty: Option<TypeRef>,
    /// The arguments that clients do not know and that `@fromContext` fills in. Such a field is fetched by entity
    /// requests only, so `requires` is always set, even if empty.
    pub context: Vec<ContextArgument>,
}

impl FieldInSubgraph {
    /// Creates a mention that says only that the subgraph has the field.
    pub(crate) fn of(subgraph: SubgraphId) -> Self {
        Self {
            subgraph,
            external: false,
            requires: None,
            provides: None,
            ty: None,
            context: Vec::new(),
        }
    }
}

/// An argument with a value that is read from an object further up (`@fromContext`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextArgument {
    /// The argument's name.
    pub name: Box<str>,
    /// The type as GraphQL text.
    pub ty: Box<str>,
    /// The leaf to read, for each type that sets the context ([`Type::contexts`]).
    pub selections: Vec<(TypeId, FieldSet)>,
}

/// A field that moves to another subgraph while a label is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgressiveOverride {
    /// The label, an index into [`Supergraph::override_labels`].
    pub label: u8,
    /// The subgraph that resolves the field while the label is off.
    pub from: SubgraphId,
    /// The subgraph that resolves the field while the label is on.
    pub to: SubgraphId,
}

/// A directive applied to a field in some subgraphs.
#[derive(Clone, PartialEq, Debug)]
pub struct AppliedDirective {
    /// The subgraphs that apply the directive.
    pub subgraphs: SubgraphSet,
    /// The directive's name without the `@`.
    pub name: Box<str>,
    /// The arguments, in the order written.
    pub arguments: Vec<(Box<str>, ConstValue)>,
}

impl AppliedDirective {
    /// Returns the value of the argument `name`.
    pub fn argument(&self, name: &str) -> Option<&ConstValue> {
        self.arguments.iter().find(|(key, _)| &**key == name).map(|(_, value)| value)
    }
}

/// A GraphQL value without variables.
#[derive(Clone, PartialEq, Debug)]
pub enum ConstValue {
    /// The literal `null`.
    Null,
    /// An integer, as its exact text.
    Int(Box<str>),
    /// A float, as its exact text.
    Float(Box<str>),
    /// A string, decoded.
    String(Box<str>),
    /// The literal `true` or `false`.
    Boolean(bool),
    /// An enum value.
    Enum(Box<str>),
    /// A list.
    List(Vec<ConstValue>),
    /// An input object.
    Object(Vec<(Box<str>, ConstValue)>),
}

/// The type of a field's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeRef {
    /// True if the value may be null.
    pub nullable: bool,
    /// A list or a named type.
    pub shape: TypeRefShape,
}

/// The form of a type: a list or a named type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TypeRefShape {
    /// A list of the inner type.
    List(Box<TypeRef>),
    /// A named type.
    Named(TypeId),
}

impl TypeRef {
    /// Returns the named type inside all lists.
    pub fn named(&self) -> TypeId {
        match &self.shape {
            TypeRefShape::List(inner) => inner.named(),
            TypeRefShape::Named(id) => *id,
        }
    }
}

impl Supergraph {
    /// Returns the type with that id.
    pub fn ty(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// Returns the field with that id.
    pub fn field(&self, id: FieldId) -> &Field {
        &self.fields[id.0 as usize]
    }

    /// Returns the subgraph with that id.
    pub fn subgraph(&self, id: SubgraphId) -> &Subgraph {
        &self.subgraphs[usize::from(id.0)]
    }

    /// Returns the ids of all subgraphs.
    pub fn subgraph_ids(&self) -> impl Iterator<Item = SubgraphId> + use<> {
        (0..self.subgraphs.len()).map(|index| SubgraphId(index as u16))
    }

    /// Returns the id of the type with that name.
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        self.type_names.get(name).copied()
    }

    /// Returns the id of the field `name` of the object or interface type `parent`.
    pub fn field_named(&self, parent: TypeId, name: &str) -> Option<FieldId> {
        self.ty(parent).fields.iter().copied().find(|&field| &*self.field(field).name == name)
    }
}
