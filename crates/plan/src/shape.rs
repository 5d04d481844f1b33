//! The response shape: the fields of the client's response, with types that determine which values may be null.
//! Execution walks it together with the data tree to propagate nulls and print.

use crate::{Condition, Variables};

/// The shape of a whole response.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Shape {
    /// The objects, indexed by [`ObjectShapeId`]. Equal selections share one entry.
    pub objects: Vec<ObjectShape>,
    /// The shape of the operation's root.
    pub root: ObjectShapeId,
}

/// The identity of an object's shape: an index into [`Shape::objects`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ObjectShapeId(pub u32);

/// A selection set at a position, with one variant per object type that the value may have.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectShape {
    /// The static type, for messages.
    pub type_name: Box<str>,
    /// True if the type is abstract: the data contains `__typename` under the key `__typename`, which selects the
    /// variant, and any name without a variant is an error of the subgraph. An object type has one variant, and
    /// `__typename` is not read.
    pub is_abstract: bool,
    /// The variants, one per object type.
    pub variants: Vec<Variant>,
}

/// The fields for one object type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Variant {
    /// The name of the object type.
    pub type_name: Box<str>,
    /// The fields, in the order of the response.
    pub fields: Vec<ShapeField>,
    /// True if the client may not use objects of this type here: they are null, with an error.
    pub is_denied: bool,
}

/// One field of the response.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ShapeField {
    /// The printed key.
    pub response_key: Box<str>,
    /// The key in the data tree; differs from `response_key` only where the planner needed an internal alias.
    pub data_key: Box<str>,
    /// The field's name in the schema, for messages (`Product.name`).
    pub field_name: Box<str>,
    /// The field is printed if any of these conditions holds, or always if there are none.
    pub any_of: Vec<Condition>,
    /// The field is not printed here if any of these conditions holds, because it is printed further up then. A field
    /// that the client selected several times under conditions is printed at its first occurrence.
    pub unless: Vec<Condition>,
    /// The shape of the field's value.
    pub value: ValueShape,
}

impl ShapeField {
    /// True if the field is printed here.
    pub fn is_shown(&self, variables: &Variables) -> bool {
        let holds = |condition: &Condition| condition.holds(variables);
        (self.any_of.is_empty() || self.any_of.iter().any(holds)) && !self.unless.iter().any(holds)
    }
}

/// The shape of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ValueShape {
    /// True if the value may be null.
    pub nullable: bool,
    /// The kind of a value that is not null.
    pub kind: ValueKind,
}

/// The kind of a value that is not null.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ValueKind {
    /// A list of the inner shape.
    List(Box<ValueShape>),
    /// An object with that selection.
    Object(ObjectShapeId),
    /// A leaf.
    Leaf(Leaf),
    /// `__typename`: the name of the variant is printed, no data is read.
    Typename,
    /// A value printed unchanged: introspection.
    Verbatim,
    /// A value that the client may not use: no data is read, it is null with an error.
    Denied,
}

/// The leaf types with a serialised form that the specification fixes, and all others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Leaf {
    /// The type `Int`: an integer of 32 bits.
    Int,
    /// The type `Float`: any number.
    Float,
    /// The type `String`.
    String,
    /// The type `Boolean`.
    Boolean,
    /// The type `ID`: a string; an integer is printed as a string.
    Id,
    /// An enum with these values.
    Enum(std::sync::Arc<[Box<str>]>),
    /// A custom scalar: any JSON.
    Custom,
}
