//! The operation that a group runs: everything of a subscription that depends on the graph. A reload replaces it
//! between two events.

use std::any::Any;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bindings::{Filter, Source};
use bytes::Bytes;
use events::Event;
use execute::{GraphqlError, LocalFuture, Payload, Revision, Sharing};
use plan::Variables;
use telemetry::spans::RemoteParent;

use crate::{GroupId, GroupSpans};

/// The key of a group: everything that the payload depends on except the generation. Subscribers with equal keys share
/// each resolution. Compared in full, never by hash alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupKey {
    /// The identity of the normalised operation on its graph.
    pub operation_id: u128,
    /// The values of its variables.
    pub variables: Arc<Variables>,
    /// Everything else that a payload may depend on, on this graph or any later one: the headers and claims that are
    /// forwarded or decide about access, in a canonical form.
    pub partition: Box<[u8]>,
}

/// An operation on one graph, ready to resolve events.
#[derive(Clone)]
pub struct LiveOperation {
    /// The number of the generation that it was prepared for.
    pub generation: u64,
    /// The source of its events; see [`bindings::Bindings::source`].
    pub source: Source,
    /// The coordinate of its root field, such as `Subscription.flightMoved`. Cursors are valid for that field only.
    pub field: Arc<str>,
    /// The claims that its cursors are bound to, in a canonical form. Empty if a cursor is valid for every client.
    pub bound_to: Box<[u8]>,
    /// The key of the group that the subscriber joins.
    pub group: GroupKey,
    /// The filter that selects events of the source. `None`: all events.
    pub filter: Option<Arc<Filter>>,
    /// The code that resolves events. The first subscriber of a group provides it for all of them.
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

/// A group and its operation on the next graph, or the error that its subscribers get.
pub type OperationUpdate = (GroupId, Result<LiveOperation, Box<GraphqlError>>);

/// An event as a group resolves it.
#[derive(Clone, Debug)]
pub struct TriggerEvent {
    /// The event as the source sent it, the same for all groups of the trigger; without its payload if that was too
    /// large.
    pub event: Arc<Event>,
    /// The size of its payload in bytes, if that is more than [`crate::HubSettings::event_bytes_max`].
    pub too_large: Option<usize>,
    /// The state that all groups of the trigger share while they resolve this event.
    pub sharing: Option<Arc<Sharing>>,
    /// The spans of the group that resolves it, if it has a trace.
    pub spans: Option<Arc<GroupSpans>>,
}

impl TriggerEvent {
    /// Creates an event with nothing shared. The payload of an event that is too large is not delivered, so its memory
    /// is freed.
    pub(crate) fn new(mut event: Arc<Event>, bytes_max: usize) -> Self {
        let too_large = Some(event.payload.len()).filter(|bytes| *bytes > bytes_max);
        if too_large.is_some() {
            event = Arc::new(Event { payload: Bytes::new(), ..Event::clone(&event) });
        }
        Self { event, too_large, sharing: None, spans: None }
    }
}

/// Turns an event into the payload of all subscribers of a group. `Any`, so that the creator can downcast it when a
/// graph is replaced.
pub trait Resolve: Any + Send + Sync {
    /// Resolves one event. Never fails: errors are part of the payload. Runs on a core, or on the thread of the shard
    /// if it does not wait. Dropping the future cancels it. Must end by itself, since later events of the group wait
    /// for it.
    fn resolve(self: Arc<Self>, event: TriggerEvent) -> LocalFuture<'static, Payload>;

    /// True if resolving an event may wait, for example for a subgraph. Otherwise the future of [`Resolve::resolve`]
    /// should be ready when it is first polled; one that is not is dropped, and the event is resolved on a core.
    fn waits(&self) -> bool {
        true
    }

    /// True if resolving an event waits for a subgraph that takes several times longer than usual at present. Such
    /// events may take only a part of what the hub resolves at a time.
    fn needs_slow_subgraph(&self) -> bool {
        false
    }

    /// True if several events cost less together than one by one.
    fn takes_batches(&self) -> bool {
        false
    }

    /// Resolves several events, each as [`Resolve::resolve`] does. The payloads are in the order of the events.
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

    /// Returns the client's name for the operation, for operators.
    fn operation_name(&self) -> Option<&str> {
        None
    }

    /// True if there is a current state, which subscribers without a cursor get first.
    fn has_state(&self) -> bool {
        false
    }

    /// Returns the span of the operation with which the first subscriber came, if that has a trace. The trace of the
    /// current state is linked to it.
    fn cause(&self) -> Option<&RemoteParent> {
        None
    }

    /// Fetches the current state, as [`Resolve::resolve`] does for an event. `None` if there is no state to deliver.
    /// `known` is the state that the subscribers have, if the source has states: the payload may be the difference from
    /// it, and then has a [`Payload::revision`]. `spans` are those of the group, if the state has a trace.
    fn state(
        self: Arc<Self>,
        known: Option<Revision>,
        spans: Option<Arc<GroupSpans>>,
    ) -> LocalFuture<'static, Option<Payload>> {
        let _ = (known, spans);
        Box::pin(std::future::ready(None))
    }
}

/// An operation that compares and hashes by the key of its group.
#[derive(Clone, Debug)]
pub(crate) struct OperationByKey(pub(crate) Arc<LiveOperation>);

impl Borrow<GroupKey> for OperationByKey {
    fn borrow(&self) -> &GroupKey {
        &self.0.group
    }
}

impl PartialEq for OperationByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.group == other.0.group
    }
}

impl Eq for OperationByKey {}

impl Hash for OperationByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.group.hash(state);
    }
}
