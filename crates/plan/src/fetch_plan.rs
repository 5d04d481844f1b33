//! The plan: fetches, their order, and the places in the data tree for their responses. The plan is pure data, and
//! execution interprets it without a schema.

use graph::{FieldId, SubgraphId};

use crate::{Condition, OperationKind, Shape, Value, VariableId};

/// The steps to execute one operation.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The kind of the operation.
    pub kind: OperationKind,
    /// The fetches in topological order: a fetch depends on earlier ones only. [`FetchId`] is the index.
    pub fetches: Vec<Fetch>,
    /// The source of the events of a subscription. The event's object is in the tree under `data_key` before any fetch
    /// runs.
    pub subscription: Option<SubscriptionRoot>,
    /// The shape of the response.
    pub shape: Shape,
}

/// The identity of a fetch: an index into [`Plan::fetches`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FetchId(pub u32);

/// One request to one subgraph.
#[derive(Clone, PartialEq, Debug)]
pub struct Fetch {
    /// The subgraph that receives the request.
    pub subgraph: SubgraphId,
    /// The content of the request.
    pub kind: FetchKind,
    /// The fetches whose responses must be in the tree first. For mutations this also determines the order of root
    /// fields.
    pub depends_on: Vec<FetchId>,
    /// The fetch is sent if any of these conditions holds, or always if there are none.
    pub any_of: Vec<Condition>,
    /// The maximum number of representations in one request; more are sent as several requests at the same time.
    pub representations_max: u32,
}

/// The content of a fetch.
#[derive(Clone, PartialEq, Debug)]
pub enum FetchKind {
    /// Root fields. The response's `data` merges into the root of the tree.
    Root {
        /// The operation that is sent.
        operation: SubgraphOperation,
        /// The keys of the response's `data`, without duplicates. Fields under conditions are included.
        data_keys: Vec<Box<str>>,
    },
    /// Query root fields for objects below other fields, such as a mutation's `payload { query { … } }`. All such
    /// objects are the same one, so the response's `data` merges into every object at the end of the path. The fetch is
    /// not sent if there is none.
    RootBelow {
        /// The operation that is sent.
        operation: SubgraphOperation,
        /// The path to the objects.
        target: Path,
    },
    /// `_entities`, once or under several aliases. Each object of a response merges into the objects with its
    /// representation.
    Entities {
        /// The operation that is sent; it declares one `[_Any!]!` variable for each batch in addition to the client's
        /// variables.
        operation: SubgraphOperation,
        /// The batches, one for each alias.
        batches: Vec<EntityBatch>,
    },
    /// A root field of an event subgraph that publishes (mutation). The result is `{data_key: {"success": …}}` at the
    /// root.
    Publish(EventField),
    /// A root field of an event subgraph that sends a request to a topic and waits for a reply (query or mutation). The
    /// reply is the value of the field, and is stored under `data_key` at the root like an event.
    Request(EventField),
}

impl FetchKind {
    /// Returns the entity batches of the fetch; empty for root fields and events.
    pub fn batches(&self) -> &[EntityBatch] {
        match self {
            Self::Entities { batches, .. } => batches,
            Self::Root { .. } | Self::RootBelow { .. } | Self::Publish(_) | Self::Request(_) => &[],
        }
    }

    /// Returns the keys that the fetch adds to the root of the data tree; empty for fetches for objects below it.
    pub fn root_keys(&self) -> &[Box<str>] {
        match self {
            Self::Root { data_keys, .. } => data_keys,
            Self::Publish(event) | Self::Request(event) => std::slice::from_ref(&event.data_key),
            Self::RootBelow { .. } | Self::Entities { .. } => &[],
        }
    }
}

/// An operation in the schema of a subgraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubgraphOperation {
    /// The document: compact, one operation, without defaults of variables.
    pub text: Box<str>,
    /// The kind of the operation: query, mutation or subscription.
    pub kind: OperationKind,
    /// The name of the operation in `text`, if it has one.
    pub name: Option<Box<str>>,
    /// The client's variables that `text` declares, with their names in it.
    pub variables: Vec<(Box<str>, VariableId)>,
}

/// The representations under one alias of `_entities`.
#[derive(Clone, PartialEq, Debug)]
pub struct EntityBatch {
    /// The response key of this `_entities` field.
    pub data_key: Box<str>,
    /// The name of the batch's variable, without the `$`.
    pub variable: Box<str>,
    /// The paths to the objects.
    pub targets: Vec<Path>,
    /// The representation of one object.
    pub representation: Representation,
    /// The keys in the data tree under which a response adds values to an object, for all of its types.
    pub data_keys: Vec<Box<str>>,
    /// The parts of the representation, other than its keys, that some of these fields require. A member that no field
    /// requires is treated like a key: the whole object depends on it.
    pub requirements: Vec<Requirement>,
    /// The conditions of this batch, in addition to those of the fetch: objects are fetched if any of them holds, or
    /// always if there are none. While none holds, the list of representations is empty, because their members may not
    /// have been fetched.
    pub any_of: Vec<Condition>,
    /// The operation with this alias alone, which is sent if the whole request fails; `None` if there is no other
    /// alias.
    pub alone: Option<SubgraphOperation>,
    /// Variables with values that are read from objects further up. Objects for which these values differ cannot be
    /// fetched in one request.
    pub context: Vec<ContextVariable>,
    /// The places where the request may know entities of this batch already, so that they are not fetched again.
    pub reuse: Vec<ReusePlace>,
}

/// Objects that an earlier fetch of the same subgraph has filled with every field of a batch. Whether the values exist
/// is known at run time only; entities of which a value is missing are fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReusePlace {
    /// The path to the objects.
    pub path: Path,
    /// The representation that an object of this place has in requests of the batch.
    pub representation: Representation,
    /// The values that replace the fields of the batch. All of them are leaves.
    pub values: Vec<ReusedValue>,
}

/// A value that is copied from a [`ReusePlace`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReusedValue {
    /// The key of the value in the objects of the place.
    pub data_key: Box<str>,
    /// The key of the value in the batch's response.
    pub response_key: Box<str>,
}

/// The part of an entity's representation that one of its fields requires (`@requires`). Requests contain
/// [`EntityBatch::representation`] only; this type determines which fields are null when a member is missing.
#[derive(Clone, PartialEq, Debug)]
pub struct Requirement {
    /// The field's key in the data tree.
    pub data_key: Box<str>,
    /// The required part of the representation.
    pub fields: Vec<RepresentationField>,
}

/// A variable that `@fromContext` fills in.
#[derive(Clone, PartialEq, Debug)]
pub struct ContextVariable {
    /// The name without the `$`.
    pub variable: Box<str>,
    /// The possible sources of the value. The first one that fits an object is used; if none fits, the value is null.
    pub sources: Vec<ContextSource>,
}

/// A value in an object above those of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextSource {
    /// The number of steps of a target's path that lead to the object.
    pub steps: u32,
    /// The object types to which the source applies, by `__typename`; empty if it applies to all.
    pub types: Vec<Box<str>>,
    /// The keys in the data tree from the object down to the value.
    pub data_keys: Vec<Box<str>>,
}

/// A path from the root of the tree. Lists on the path are walked element by element, at any nesting; nulls end the
/// walk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Path {
    /// The steps, from the root down.
    pub steps: Vec<PathStep>,
}

/// One step of a [`Path`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathStep {
    /// The key in the data tree.
    pub data_key: Box<str>,
    /// The object types, by `__typename`, to which the path continues after the key; empty if it continues to all.
    pub types: Vec<Box<str>>,
}

/// The representation of an object in requests to a subgraph.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Representation {
    /// The `__typename` that is sent: `Some` if it is fixed (object types, interface objects), `None` if the object's
    /// own `__typename` is sent.
    pub typename: Option<Box<str>>,
    /// The members, in the order sent.
    pub fields: Vec<RepresentationField>,
}

/// One member of a representation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RepresentationField {
    /// The key in the representation.
    pub name: Box<str>,
    /// The key in the data tree.
    pub data_key: Box<str>,
    /// True for members of keys, which must not be null: an object that lacks one is not fetched, and its fields from
    /// the subgraph are null. Required fields (`@requires`) may be null.
    pub key: bool,
    /// The object types, by `__typename`, for which the member is sent; empty if it is sent for all.
    pub types: Vec<Box<str>>,
    /// The members below this one; empty for leaves, which are copied unchanged.
    pub fields: Vec<RepresentationField>,
}

/// The source of the events of a subscription.
#[derive(Clone, PartialEq, Debug)]
pub enum SubscriptionRoot {
    /// A topic, which the field's directives determine.
    Event(EventField),
    /// A subscription of a subgraph.
    Upstream {
        /// The subgraph that provides the subscription.
        subgraph: SubgraphId,
        /// The operation that is sent.
        operation: SubgraphOperation,
    },
}

/// A root field of an event subgraph in one operation.
#[derive(Clone, PartialEq, Debug)]
pub struct EventField {
    /// The event subgraph.
    pub subgraph: SubgraphId,
    /// The field; its directives bind it to topics.
    pub field: FieldId,
    /// The field's key in the data tree.
    pub data_key: Box<str>,
    /// All arguments in schema order, with defaults filled in. Arguments that are neither given nor defaulted are left
    /// out.
    pub arguments: Vec<(Box<str>, Value)>,
}
