//! The normalised operation, which `prepare` passes to the planner. Named fragments are inlined, static conditions
//! decided, equal fields merged, and type conditions without effect removed.

use std::sync::Arc;

use graph::{ConstValue, DeniedAccess, FieldId, TypeId};

use crate::variables::{VariableId, Variables};

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OperationKind {
    /// A query, which reads.
    Query,
    /// A mutation, whose root fields run one after the other.
    Mutation,
    /// A subscription: a stream of payloads with exactly one root field.
    Subscription,
}

/// One operation, ready to be planned.
#[derive(Clone, PartialEq, Debug)]
pub struct Operation {
    /// The kind of the operation.
    pub kind: OperationKind,
    /// The name that the client gave the operation.
    pub name: Option<Box<str>>,
    /// The variables, in the order declared; [`VariableId`] is the index.
    pub variables: Vec<Variable>,
    /// The root selection set.
    pub selection_set: SelectionSet,
    /// The fields and types that the client may not use. They are planned as null, and nothing is fetched for them.
    pub denied: Arc<DeniedAccess>,
}

/// One declared variable. A plan contains no defaults: `prepare` applies them when it coerces values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// The name without the `$`.
    pub name: Box<str>,
    /// The type as GraphQL text, such as `[ID!]!`.
    pub ty: Box<str>,
}

/// Selections on one type.
#[derive(Clone, PartialEq, Debug)]
pub struct SelectionSet {
    /// The type on which the items are selected.
    pub on: TypeId,
    /// The items, in the order of the client's document.
    pub items: Vec<Selection>,
}

/// A field, or a fragment that narrows the type or carries a condition.
#[derive(Clone, PartialEq, Debug)]
pub enum Selection {
    /// A field.
    Field(Field),
    /// An inline fragment.
    Fragment(Fragment),
}

/// One selected field. Several fields with the same response key may occur when their conditions differ; the response
/// merges them.
#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    /// The key in the client's response.
    pub response_key: Box<str>,
    /// The selected field.
    pub target: FieldTarget,
    /// The arguments, in the order of the document. Literals are already coerced to the argument's type.
    pub arguments: Vec<(Box<str>, Value)>,
    /// The condition under which the field is selected.
    pub condition: Condition,
    /// The selections below the field; `None` for leaves.
    pub selection_set: Option<SelectionSet>,
}

/// The target of a selected field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldTarget {
    /// A field of the schema.
    Field(FieldId),
    /// The meta field `__typename`.
    Typename,
    /// The meta field `__schema` or `__type` of the query root. `prepare` resolves it, the planner skips it, and the
    /// shape prints it unchanged. It has no selection set here.
    Introspection,
}

/// An inline fragment, `... on Type @include(if: $x) { … }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Fragment {
    /// The type that the object must have or implement; equal to [`SelectionSet::on`] of `selection_set`.
    pub on: TypeId,
    /// The condition under which the fragment applies.
    pub condition: Condition,
    /// The selections of the fragment.
    pub selection_set: SelectionSet,
}

/// A conjunction of `@skip` and `@include`: every listed variable must have the listed value. An empty condition always
/// holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Condition {
    /// The required values, sorted by variable, without duplicates. Contradictions do not occur: such selections are
    /// dropped.
    pub all: Vec<(VariableId, bool)>,
}

impl Condition {
    /// True if the condition holds for all values of variables.
    pub fn is_always(&self) -> bool {
        self.all.is_empty()
    }

    /// True if the condition holds for these variables. Conditions read `Boolean!` variables only, so coercion has
    /// ensured that there is a value; a missing one counts as false.
    pub fn holds(&self, variables: &Variables) -> bool {
        self.all.iter().all(|&(variable, wanted)| variables.is_true(variable) == wanted)
    }
}

/// A value in an operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
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
    List(Vec<Value>),
    /// An input object.
    Object(Vec<(Box<str>, Value)>),
    /// A variable of the operation.
    Variable(VariableId),
}

impl From<ConstValue> for Value {
    fn from(value: ConstValue) -> Self {
        match value {
            ConstValue::Null => Self::Null,
            ConstValue::Int(text) => Self::Int(text),
            ConstValue::Float(text) => Self::Float(text),
            ConstValue::String(text) => Self::String(text),
            ConstValue::Boolean(value) => Self::Boolean(value),
            ConstValue::Enum(name) => Self::Enum(name),
            ConstValue::List(items) => Self::List(items.into_iter().map(Self::from).collect()),
            ConstValue::Object(members) => Self::Object(
                members.into_iter().map(|(name, value)| (name, Self::from(value))).collect(),
            ),
        }
    }
}
