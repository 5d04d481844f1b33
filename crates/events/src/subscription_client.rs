//! Subscriptions that subgraphs serve themselves, as streams beside those of brokers. Only the interface lives here;
//! the crate `subscription-client` implements it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use crate::event_stream::{EventStream, SourceError};
use crate::provider::EventFuture;

/// A subscription of a subgraph. Equal ones share one operation at the subgraph.
#[derive(Clone)]
pub struct SubgraphSubscription {
    /// The coordinate of the root field, such as `Subscription.reviewAdded`: the topic of its events.
    pub field: Box<str>,
    /// The request: a JSON object with `query` and, if any, `operationName`, `variables` and `extensions`.
    pub request: Bytes,
    /// The headers of the client that this was made for. Those that are sent are the latest of the partition, see
    /// [`SubscriptionClient::note_headers`]. What they may have to do with the results is in `partition`.
    pub headers: Arc<[(HeaderName, HeaderValue)]>,
    /// The headers with the identity of the trace that it belongs to; none without traces. An operation of several
    /// clients belongs to the trace of the client that it was made for, also when it is begun again.
    pub trace: Arc<[(HeaderName, HeaderValue)]>,
    /// Everything besides the request that results may depend on, in a canonical form: forwarded headers and claims.
    /// Operations with equal partitions may share a connection.
    pub partition: Box<[u8]>,
}

impl SubgraphSubscription {
    fn identity(&self) -> (&Bytes, &[u8]) {
        (&self.request, &self.partition)
    }
}

impl PartialEq for SubgraphSubscription {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for SubgraphSubscription {}

impl Hash for SubgraphSubscription {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl std::fmt::Debug for SubgraphSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rest may contain credentials.
        f.debug_struct("SubgraphSubscription").field("field", &self.field).finish_non_exhaustive()
    }
}

/// The client of the subscriptions of one subgraph.
pub trait SubscriptionClient: Send + Sync {
    /// Returns `subgraph/name`: the name of the source in logs, metrics and the admin pages.
    fn name(&self) -> &str;

    /// Notes the headers of `wanted`, which are those of the client that came last. Subscriptions of its partition send
    /// them when they begin or begin again. Without effect if the partition has no subscriptions.
    fn note_headers(&self, wanted: &SubgraphSubscription);

    /// Notes the headers of `wanted`, which have a renewed token, and sends them at once where the protocol allows it.
    fn renew_headers(&self, wanted: &SubgraphSubscription);

    /// Begins a subscription, or fails within time limits of its own. The payload of each event is a GraphQL response,
    /// a JSON object; the errors of an operation that the subgraph refuses are such a response too, and then the stream
    /// ends. The stream reconnects by itself, announces a gap after that, and ends for reasons that the client cannot
    /// repair. Dropping the stream ends the subscription.
    ///
    /// The headers sent are the latest of the partition: those of `wanted` only if it has no other subscription.
    fn subscribe(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> EventFuture<'_, Result<EventStream, SourceError>>;

    /// Begins a subscription that is in progress elsewhere and moves here. If the first attempt fails for a reason that
    /// may pass, the stream begins as one with a lost connection: it reconnects by itself, and ends if that fails. Only
    /// a few first attempts are made at the same time.
    fn resubscribe(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> EventFuture<'_, Result<EventStream, SourceError>>;
}
