//! The plan: which fetches, in which order, and where their answers go. Pure data; execution
//! interprets it without looking at a schema.

use graph::{FieldId, SubgraphId};

use crate::{Condition, OperationKind, Shape, Value, VariableId};

/// How to answer one operation.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What the operation does.
    pub kind: OperationKind,
    /// Topologically sorted: a fetch depends on earlier ones only. [`FetchId`] is the index.
    pub fetches: Vec<Fetch>,
    /// Subscriptions: where events come from. The event's object is in the tree under `data_key`
    /// before any fetch runs.
    pub subscription: Option<SubscriptionRoot>,
    /// What the answer looks like.
    pub shape: Shape,
}

/// Index into [`Plan::fetches`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FetchId(pub u32);

/// One request to one subgraph.
#[derive(Clone, PartialEq, Debug)]
pub struct Fetch {
    /// To whom.
    pub subgraph: SubgraphId,
    /// What it asks.
    pub kind: FetchKind,
    /// Whose answers must be in the tree first. For mutations this also carries the order of root fields.
    pub depends_on: Vec<FetchId>,
    /// Sent if any of these holds; empty: always.
    pub any_of: Vec<Condition>,
    /// How many representations one request may have; more go as several requests at the same time.
    pub representations_max: u32,
}

/// What a fetch asks.
#[derive(Clone, PartialEq, Debug)]
pub enum FetchKind {
    /// Root fields. The answer's `data` merges into the root of the tree.
    Root(SubgraphOperation),
    /// Query root fields for objects below other fields, such as a mutation's `payload { query { … } }`. There is
    /// only one such object, wherever it stands, so the answer's `data` merges into every object that the path
    /// leads to. Not sent where it leads to none.
    RootBelow {
        /// What is sent.
        operation: SubgraphOperation,
        /// Where the objects are.
        target: Path,
    },
    /// `_entities`, once or under several aliases. Each object of an answer merges into the objects
    /// whose representation asked for it.
    Entities {
        /// What is sent; it declares one `[_Any!]!` variable for each batch beside the client's variables.
        operation: SubgraphOperation,
        /// One for each alias.
        batches: Vec<EntityBatch>,
    },
    /// A root field of an event subgraph that publishes (mutation). Its answer is
    /// `{data_key: {"success": …}}` at the root.
    Publish(EventField),
    /// A root field of an event subgraph that asks whoever listens to its topic (query or mutation). What is
    /// answered is the value of the field, and goes to `data_key` at the root as an event would.
    Request(EventField),
}

impl FetchKind {
    /// The entity batches of the fetch; none if it asks for root fields.
    pub fn batches(&self) -> &[EntityBatch] {
        match self {
            Self::Entities { batches, .. } => batches,
            Self::Root(_) | Self::RootBelow { .. } | Self::Publish(_) | Self::Request(_) => &[],
        }
    }
}

/// An operation in a subgraph's language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubgraphOperation {
    /// The document, compact, one operation without a default for any variable.
    pub text: Box<str>,
    /// Query or mutation.
    pub kind: OperationKind,
    /// Name of the operation in `text`, if it has one.
    pub name: Option<Box<str>>,
    /// The client's variables that `text` declares, with the name they have there.
    pub variables: Vec<(Box<str>, VariableId)>,
}

/// The representations behind one alias of `_entities`.
#[derive(Clone, PartialEq, Debug)]
pub struct EntityBatch {
    /// Response key of this `_entities` field.
    pub data_key: Box<str>,
    /// Name of its variable, without the `$`.
    pub variable: Box<str>,
    /// Where the objects are.
    pub targets: Vec<Path>,
    /// How one of them is represented.
    pub representation: Representation,
    /// The keys in the data tree under which an answer adds something to an object, whatever its type.
    pub data_keys: Vec<Box<str>>,
    /// What some of these need of the representation beside its keys. A member that is here for none of them is as good
    /// as a key's: the whole answer hangs on it.
    pub requirements: Vec<Requirement>,
    /// Objects are asked for if any of these holds, beside what the fetch needs; empty: always. While none
    /// does, the list is empty: what representations are made of may not have been fetched.
    pub any_of: Vec<Condition>,
    /// The operation with this alias only, for when the whole fails; `None` if there is no other alias.
    pub alone: Option<SubgraphOperation>,
    /// Further variables, whose values are read from objects further up. Objects for which these
    /// values differ cannot be asked for in one request.
    pub context: Vec<ContextVariable>,
}

/// What one field of an entity needs of its representation (`@requires`). Requests are made of
/// [`EntityBatch::representation`] alone; this says whom it concerns when a member is missing.
#[derive(Clone, PartialEq, Debug)]
pub struct Requirement {
    /// The field's key in the data tree.
    pub data_key: Box<str>,
    /// The part of the representation that it needs.
    pub fields: Vec<RepresentationField>,
}

/// A variable that `@fromContext` fills in.
#[derive(Clone, PartialEq, Debug)]
pub struct ContextVariable {
    /// Its name, without the `$`.
    pub variable: Box<str>,
    /// Where its value stands: the first that fits an object counts. None fits: the value is null.
    pub sources: Vec<ContextSource>,
}

/// A value in an object above those that a batch is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextSource {
    /// So many steps of a target's path lead to the object.
    pub steps: u32,
    /// Only if its `__typename` is one of these object types; empty: always.
    pub types: Vec<Box<str>>,
    /// Keys in the data tree, from the object down to the value.
    pub data_keys: Vec<Box<str>>,
}

/// A way down from the root of the tree. Lists on the way are walked element by element, whatever
/// their nesting; nulls end the walk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Path {
    /// From the root down.
    pub steps: Vec<PathStep>,
}

/// One step of a [`Path`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathStep {
    /// Key in the data tree.
    pub data_key: Box<str>,
    /// After the key: only objects whose `__typename` is one of these object types; empty: all.
    pub types: Vec<Box<str>>,
}

/// How an object is represented to a subgraph.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Representation {
    /// `__typename` that is sent: `Some` where it is fixed (object types, interface objects),
    /// `None`: as the object's own `__typename` says.
    pub typename: Option<Box<str>>,
    /// In the order sent.
    pub fields: Vec<RepresentationField>,
}

/// One member of a representation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RepresentationField {
    /// Key in the representation.
    pub name: Box<str>,
    /// Key in the data tree.
    pub data_key: Box<str>,
    /// Key members must not be null: an object that lacks one is not asked for, and what would have
    /// come from the subgraph is null. Required fields (`@requires`) may be null.
    pub key: bool,
    /// Only for objects whose `__typename` is one of these; empty: all.
    pub types: Vec<Box<str>>,
    /// Members below; empty for leaves, which are copied as they stand.
    pub fields: Vec<RepresentationField>,
}

/// Where the events of a subscription come from.
#[derive(Clone, PartialEq, Debug)]
pub enum SubscriptionRoot {
    /// A topic: the field's directives say which.
    Event(EventField),
    /// A subgraph's own subscription.
    Upstream {
        /// Whose.
        subgraph: SubgraphId,
        /// What is sent.
        operation: SubgraphOperation,
    },
}

/// A root field of an event subgraph as one operation uses it.
#[derive(Clone, PartialEq, Debug)]
pub struct EventField {
    /// The event subgraph.
    pub subgraph: SubgraphId,
    /// The field; its directives bind it to topics.
    pub field: FieldId,
    /// Its key in the data tree.
    pub data_key: Box<str>,
    /// All arguments in schema order, defaults filled in; those neither given nor defaulted are left out.
    pub arguments: Vec<(Box<str>, Value)>,
}
