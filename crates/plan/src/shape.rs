//! The response shape: what the client's answer looks like, field by field, with the types that
//! say what may be null. Execution walks it together with the data tree to repair nulls and print.

use crate::{Condition, Variables};

/// The shape of a whole answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Shape {
    /// Index = [`ObjectShapeId`]. Equal selections share one entry.
    pub objects: Vec<ObjectShape>,
    /// The operation's root.
    pub root: ObjectShapeId,
}

/// Index into [`Shape::objects`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ObjectShapeId(pub u32);

/// A selection set at a position: one variant per object type that the value may have.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectShape {
    /// The static type, for messages.
    pub type_name: Box<str>,
    /// Object type here: one variant and nobody looks at `__typename`. Abstract type: the data holds
    /// `__typename` under the key `__typename`, which chooses. Any other name is a subgraph's error.
    pub is_abstract: bool,
    /// By object type.
    pub variants: Vec<Variant>,
}

/// The fields for one object type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Variant {
    /// Name of the object type.
    pub type_name: Box<str>,
    /// In the order of the answer.
    pub fields: Vec<ShapeField>,
}

/// One field of the answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ShapeField {
    /// The key printed.
    pub response_key: Box<str>,
    /// The key in the data tree; differs from `response_key` only where the planner needed an internal alias.
    pub data_key: Box<str>,
    /// The field's name in the schema, for messages (`Product.name`).
    pub field_name: Box<str>,
    /// Printed if any of these holds; empty: always.
    pub any_of: Vec<Condition>,
    /// But not if any of these holds: then it stands further up. A field that the client has selected
    /// at several places under conditions belongs where it is first met.
    pub unless: Vec<Condition>,
    /// What its value must be.
    pub value: ValueShape,
}

impl ShapeField {
    /// Is it printed here?
    pub fn is_shown(&self, variables: &Variables) -> bool {
        let holds = |condition: &Condition| condition.holds(variables);
        (self.any_of.is_empty() || self.any_of.iter().any(holds)) && !self.unless.iter().any(holds)
    }
}

/// What a value must be.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ValueShape {
    /// May it be null?
    pub nullable: bool,
    /// What it is otherwise.
    pub kind: ValueKind,
}

/// What a value is when it is not null.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ValueKind {
    /// A list of that.
    List(Box<ValueShape>),
    /// An object with that selection.
    Object(ObjectShapeId),
    /// A leaf.
    Leaf(Leaf),
    /// `__typename`: the name of the variant, nothing is read.
    Typename,
    /// Printed as it stands: introspection.
    Verbatim,
}

/// The leaf types whose serialised form the specification fixes, and the rest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Leaf {
    /// `Int`: an integer of 32 bits.
    Int,
    /// `Float`: any number.
    Float,
    /// `String`
    String,
    /// `Boolean`
    Boolean,
    /// `ID`: a string; an integer is printed as a string.
    Id,
    /// An enum: one of these.
    Enum(std::sync::Arc<[Box<str>]>),
    /// A custom scalar: any JSON.
    Custom,
}
