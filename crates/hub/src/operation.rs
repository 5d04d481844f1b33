//! What a group runs on: everything of a subscription that depends on the graph. A reload replaces it under the
//! group, between two events.

use std::any::Any;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use events::Event;
use execute::{GraphqlError, LocalFuture, Payload, Sharing};
use plan::Variables;

use crate::{Filter, GroupId, Source};

/// Who shares a resolution: everything that the payload depends on beside the generation, which all groups that can
/// be joined have in common. Compared in full, never by hash alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupKey {
    /// Identity of the normalised operation on its graph.
    pub operation_id: u128,
    /// Values of its variables.
    pub variables: Arc<Variables>,
    /// What else a payload may depend on, on this graph or any later one: the headers and claims that are
    /// forwarded or decide about access, in a canonical form.
    pub partition: Box<[u8]>,
}

/// An operation on one graph, ready to resolve events.
#[derive(Clone)]
pub struct LiveOperation {
    /// Number of the generation that it was prepared for.
    pub generation: u64,
    /// What to listen to; see [`crate::Bindings::source`].
    pub source: Source,
    /// The coordinate of its root field, `Subscription.flightMoved`: cursors hold for that field alone.
    pub field: Arc<str>,
    /// Whose cursors: claims in a canonical form. Empty: anybody's.
    pub bound_to: Box<[u8]>,
    /// With whom to share.
    pub group: GroupKey,
    /// Which of the source's events concern it; `None`: all of them.
    pub filter: Option<Arc<Filter>>,
    /// How to resolve. The first member of a group brings the one that is used for all of them.
    pub resolve: Arc<dyn Resolve>,
}

impl std::fmt::Debug for LiveOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { generation, source, field, bound_to: _, group, filter, resolve: _ } = self;
        f.debug_struct("LiveOperation")
            .field("generation", generation)
            .field("source", source)
            .field("field", field)
            .field("group", group)
            .field("filter", filter)
            .finish_non_exhaustive()
    }
}

/// What becomes of a group's operation on the next graph: the same on that graph, or what its members are told.
pub type Renewal = (GroupId, Result<LiveOperation, Box<GraphqlError>>);

/// An event as a group resolves it.
#[derive(Clone, Debug)]
pub struct TriggerEvent {
    /// As the source sent it, the same for all groups of the trigger; without its payload, if that was too large.
    pub event: Arc<Event>,
    /// How many bytes its payload had, if those are more than [`crate::HubSettings::event_bytes_max`].
    pub too_large: Option<usize>,
    /// What all groups of the trigger share while they resolve this event, and nothing else does.
    pub sharing: Option<Arc<Sharing>>,
}

/// What all members of a group share: how an event becomes their payload. `Any`, so that whoever made it knows it
/// again when a graph is replaced.
pub trait Resolve: Any + Send + Sync {
    /// Resolves one event. Never fails: whatever goes wrong is in the payload. Runs on a core; dropping the
    /// future cancels it. Must end by itself, since later events of the group wait for it.
    fn resolve(self: Arc<Self>, event: TriggerEvent) -> LocalFuture<'static, Payload>;

    /// Do several events cost less together than each of them by itself?
    fn takes_batches(&self) -> bool {
        false
    }

    /// Resolves several events: what [`Resolve::resolve`] says of one holds for each. The payloads are in their order.
    fn resolve_batch(
        self: Arc<Self>,
        events: Vec<TriggerEvent>,
    ) -> LocalFuture<'static, Vec<Payload>> {
        Box::pin(async move {
            let mut payloads = Vec::with_capacity(events.len());
            for event in events {
                payloads.push(Arc::clone(&self).resolve(event).await);
            }
            payloads
        })
    }

    /// The client's name for the operation, for the operator.
    fn operation_name(&self) -> Option<&str> {
        None
    }

    /// Is there a current state, which whoever comes without a cursor gets first?
    fn has_state(&self) -> bool {
        false
    }

    /// Asks for the current state, as [`Resolve::resolve`] does for an event. `None`: there is nothing to tell.
    fn state(self: Arc<Self>) -> LocalFuture<'static, Option<Payload>> {
        Box::pin(std::future::ready(None))
    }
}

/// An operation, found by the key of its group.
#[derive(Clone, Debug)]
pub(crate) struct ByKey(pub(crate) Arc<LiveOperation>);

impl Borrow<GroupKey> for ByKey {
    fn borrow(&self) -> &GroupKey {
        &self.0.group
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.group == other.0.group
    }
}

impl Eq for ByKey {}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.group.hash(state);
    }
}
