//! The normalised operation: what `prepare` hands to the planner. Named fragments are inlined,
//! static conditions decided, equal fields merged; type conditions that change nothing are gone.

use graph::{FieldId, TypeId};

/// Query, mutation or subscription.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OperationKind {
    /// Reads.
    Query,
    /// Writes, root fields one after the other.
    Mutation,
    /// A stream of payloads, exactly one root field.
    Subscription,
}

/// One operation, ready to be planned.
#[derive(Clone, PartialEq, Debug)]
pub struct Operation {
    /// What it does.
    pub kind: OperationKind,
    /// The client's name for it.
    pub name: Option<Box<str>>,
    /// In the order declared; [`VariableId`] is the index.
    pub variables: Vec<Variable>,
    /// The root selection set.
    pub selection_set: SelectionSet,
}

/// One declared variable. Its default is applied by `prepare` when values are coerced, so a plan never sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Without the `$`.
    pub name: Box<str>,
    /// As GraphQL text, such as `[ID!]!`.
    pub ty: Box<str>,
}

/// Index into [`Operation::variables`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VariableId(pub u16);

/// Selections on one type.
#[derive(Clone, PartialEq, Debug)]
pub struct SelectionSet {
    /// The type that they are selected on.
    pub on: TypeId,
    /// In the order of the client's document.
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

/// One selected field. Two with the same response key may stand side by side when their
/// conditions differ; the answer merges them.
#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    /// The key in the client's answer.
    pub response_key: Box<str>,
    /// What is selected.
    pub target: FieldTarget,
    /// In the order of the document. Literals are coerced to the argument's type already.
    pub arguments: Vec<(Box<str>, Value)>,
    /// When it is there at all.
    pub condition: Condition,
    /// What is selected below it; `None` for leaves.
    pub selection_set: Option<SelectionSet>,
}

/// What a field selects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldTarget {
    /// A field of the schema.
    Field(FieldId),
    /// `__typename`
    Typename,
    /// `__schema` or `__type` of the query root: `prepare` answers it, the planner steps over it,
    /// the shape prints it as it stands. It has no selection set here.
    Introspection,
}

/// `... on Type @include(if: $x) { … }`
#[derive(Clone, PartialEq, Debug)]
pub struct Fragment {
    /// The type that the object must have or implement; [`SelectionSet::on`] of `selection_set`.
    pub on: TypeId,
    /// When it is there at all.
    pub condition: Condition,
    /// What is selected then.
    pub selection_set: SelectionSet,
}

/// Conjunction of `@skip` and `@include`: every named variable must have the value beside it.
/// Empty: always.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Condition {
    /// Sorted by variable, without duplicates. A contradiction never gets here: such selections are dropped.
    pub all: Vec<(VariableId, bool)>,
}

impl Condition {
    /// True whatever the variables are.
    pub fn is_always(&self) -> bool {
        self.all.is_empty()
    }

    /// Does it hold for these variables? Conditions read `Boolean!` variables only, so coercion has
    /// made sure that there is a value; a missing one counts as false.
    pub fn holds(&self, variables: &crate::Variables) -> bool {
        self.all.iter().all(|&(variable, wanted)| variables.is_true(variable) == wanted)
    }
}

/// A value in an operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
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
    List(Vec<Value>),
    /// An input object.
    Object(Vec<(Box<str>, Value)>),
    /// A variable of the operation.
    Variable(VariableId),
}
