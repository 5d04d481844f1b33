//! The supergraph as plain data, compiled once per schema. Reading it from SDL lives in
//! [`crate::sdl`]; what clients may see lives in [`crate::api`].

use std::collections::HashMap;

use crate::{ApiSchema, FieldId, ProgressiveOverride, SubgraphId, SubgraphSet, TypeId};

/// One loaded supergraph.
#[derive(Clone, Debug)]
pub struct Supergraph {
    /// In the order of `enum join__Graph`.
    pub subgraphs: Vec<Subgraph>,
    /// Every named type that clients or subgraphs know, join and link machinery left out; built-in scalars included.
    pub types: Vec<Type>,
    /// Every field of every object and interface type.
    pub fields: Vec<Field>,
    /// Name to type.
    pub type_names: HashMap<Box<str>, TypeId>,
    /// The query root.
    pub query: TypeId,
    /// The mutation root, if any.
    pub mutation: Option<TypeId>,
    /// The subscription root, if any.
    pub subscription: Option<TypeId>,
    /// The labels of progressive overrides, in the order they are met.
    pub override_labels: Vec<Box<str>>,
    /// What clients see.
    pub api: ApiSchema,
}

/// One subgraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subgraph {
    /// `join__graph(name:)`: the name in configuration, logs and metrics.
    pub name: Box<str>,
    /// `join__graph(url:)`; empty for an event subgraph.
    pub url: Box<str>,
    /// Does a server stand behind it, or brokers?
    pub kind: SubgraphKind,
}

/// What stands behind a subgraph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubgraphKind {
    /// A GraphQL server.
    Server,
    /// Broker topics bound by directives on its root fields; it has no server.
    Events,
}

/// One named type.
#[derive(Clone, Debug)]
pub struct Type {
    /// Its name.
    pub name: Box<str>,
    /// What it is.
    pub kind: TypeKind,
    /// Object and interface types: their fields, in schema order.
    pub fields: Vec<FieldId>,
    /// The object types a value of this type may have at run time, in schema order (an object type: itself).
    pub possible: Vec<TypeId>,
    /// Objects and interfaces: the interfaces it implements.
    pub implements: Vec<TypeId>,
    /// The subgraphs that define it.
    pub subgraphs: Vec<TypeInSubgraph>,
    /// Object types: the subgraphs that do not know the type but have an interface of it as an
    /// `@interfaceObject`, with that interface. At most one for each subgraph.
    pub interface_objects: Vec<(SubgraphId, TypeId)>,
    /// The contexts that its objects set (`@context`).
    pub contexts: Vec<Box<str>>,
    /// Is it hidden from clients?
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
    /// Interface or union: the type of the object is known at run time only.
    pub fn is_abstract(&self) -> bool {
        matches!(self, Self::Interface | Self::Union)
    }

    /// Does a field of this type need a selection set?
    pub fn is_composite(&self) -> bool {
        matches!(self, Self::Object | Self::Interface | Self::Union)
    }
}

/// What one subgraph says of a type (`@join__type`, `@join__unionMember`, `@join__implements`).
#[derive(Clone, Debug)]
pub struct TypeInSubgraph {
    /// Which subgraph.
    pub subgraph: SubgraphId,
    /// Its `@key`s there, in schema order.
    pub keys: Vec<Key>,
    /// `@interfaceObject`: an object type there, an interface in the supergraph.
    pub interface_object: bool,
    /// Abstract types: the object types that this subgraph can return for it; all, if it has an
    /// interface object, which does not know them.
    pub possible: Vec<TypeId>,
}

/// One `@key`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// Its fields.
    pub fields: FieldSet,
    /// May the router call `_entities` with it?
    pub resolvable: bool,
    /// True if the key stands on a type extension of Federation 1 (`@join__type(extension: true)`). External members
    /// of such a key are references to an object that the subgraph has, not values that it cannot give.
    pub is_extension: bool,
}

/// The parsed value of `fields:` in `@key`, `@requires` and `@provides`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldSet {
    /// In the order written.
    pub items: Vec<FieldSetItem>,
}

/// One member of a [`FieldSet`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldSetItem {
    /// A field, with what is wanted below it (empty for leaves).
    Field {
        /// Which field.
        field: FieldId,
        /// Arguments as written, canonical GraphQL text without the parentheses (`currency: EUR`); empty if none.
        arguments: Box<str>,
        /// Below it.
        fields: FieldSet,
    },
    /// `... on Type { … }`
    Fragment {
        /// The type condition.
        on: TypeId,
        /// What is wanted of it.
        fields: FieldSet,
    },
}

/// One field of an object or interface type.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: Box<str>,
    /// The type that has it.
    pub parent: TypeId,
    /// The type of its value.
    pub ty: TypeRef,
    /// Its arguments, in schema order.
    pub arguments: Vec<Argument>,
    /// What each subgraph that mentions it says of it; on object types also those that have it on an
    /// interface object ([`Type::interface_objects`]).
    pub subgraphs: Vec<FieldInSubgraph>,
    /// The subgraphs whose own schema says that they resolve it, progressive overrides left aside.
    pub(crate) declared_by: SubgraphSet,
    /// `@override(label:)`: who takes it over from whom.
    pub progressive: Vec<ProgressiveOverride>,
    /// The subgraphs that resolve it, after `@external` and `@override`. Fields of interfaces: for
    /// whatever object type the subgraph can return, without `@requires`.
    pub resolved_by: SubgraphSet,
    /// Directives applied in subgraphs and carried here by `@join__directive`, also unknown ones.
    pub directives: Vec<AppliedDirective>,
    /// Is it hidden from clients?
    pub inaccessible: bool,
}

/// An argument of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// Its name.
    pub name: Box<str>,
    /// Its type as GraphQL text, such as `[ID!]!`.
    pub ty: Box<str>,
    /// Its default as GraphQL text.
    pub default: Option<Box<str>>,
}

/// What one subgraph says of a field (`@join__field`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldInSubgraph {
    /// Which subgraph.
    pub subgraph: SubgraphId,
    /// Mentioned but not resolved there.
    pub external: bool,
    /// `@requires`: what its resolver needs of the object beside a key.
    pub requires: Option<FieldSet>,
    /// `@provides`: what this subgraph resolves below this field although it is external there.
    pub provides: Option<FieldSet>,
    /// Its type there, where that differs from the supergraph's.
    pub ty: Option<TypeRef>,
    /// Arguments that clients do not know: `@fromContext` fills them in. Such a field is asked for by
    /// entity requests only, so `requires` is there, if empty.
    pub context: Vec<ContextArgument>,
}

impl FieldInSubgraph {
    /// A mention that says nothing more than that the subgraph has the field.
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

/// An argument whose value is read from an object further up (`@fromContext`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextArgument {
    /// Its name.
    pub name: Box<str>,
    /// Its type as GraphQL text.
    pub ty: Box<str>,
    /// By type that sets the context ([`Type::contexts`]): what is read of it, one leaf.
    pub selections: Vec<(TypeId, FieldSet)>,
}

/// A directive applied to a field in some subgraphs.
#[derive(Clone, PartialEq, Debug)]
pub struct AppliedDirective {
    /// Where.
    pub subgraphs: SubgraphSet,
    /// Without the `@`.
    pub name: Box<str>,
    /// In the order written.
    pub arguments: Vec<(Box<str>, ConstValue)>,
}

impl AppliedDirective {
    /// The argument of that name.
    pub fn argument(&self, name: &str) -> Option<&ConstValue> {
        self.arguments.iter().find(|(key, _)| &**key == name).map(|(_, value)| value)
    }
}

/// A GraphQL value without variables.
#[derive(Clone, PartialEq, Debug)]
pub enum ConstValue {
    /// `null`
    Null,
    /// Exact text of an integer.
    Int(Box<str>),
    /// Exact text of a float.
    Float(Box<str>),
    /// Decoded text.
    String(Box<str>),
    /// `true` or `false`
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
    /// May it be null?
    pub nullable: bool,
    /// List or named type.
    pub shape: TypeRefShape,
}

/// List or named type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TypeRefShape {
    /// A list of that.
    List(Box<TypeRef>),
    /// A named type.
    Named(TypeId),
}

impl TypeRef {
    /// The named type inside all lists.
    pub fn named(&self) -> TypeId {
        match &self.shape {
            TypeRefShape::List(inner) => inner.named(),
            TypeRefShape::Named(id) => *id,
        }
    }
}

impl Supergraph {
    /// The type with that id.
    pub fn ty(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// The field with that id.
    pub fn field(&self, id: FieldId) -> &Field {
        &self.fields[id.0 as usize]
    }

    /// The subgraph with that id.
    pub fn subgraph(&self, id: SubgraphId) -> &Subgraph {
        &self.subgraphs[usize::from(id.0)]
    }

    /// The ids of all subgraphs.
    pub fn subgraph_ids(&self) -> impl Iterator<Item = SubgraphId> + use<> {
        (0..self.subgraphs.len()).map(|index| SubgraphId(index as u16))
    }

    /// The type of that name.
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        self.type_names.get(name).copied()
    }

    /// The field `name` of object or interface type `parent`.
    pub fn field_named(&self, parent: TypeId, name: &str) -> Option<FieldId> {
        self.ty(parent).fields.iter().copied().find(|&field| &*self.field(field).name == name)
    }
}
