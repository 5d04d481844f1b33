//! A subscriber that is not in a group yet: its trigger or a side reader is being opened.

use std::sync::Arc;

use execute::GraphqlError;
use tokio::sync::oneshot;

use crate::cursor::Resume;
use crate::event_spans::EventSpans;
use crate::stats::SubscriptionSlot;
use crate::{LiveOperation, Outlet, Subscriber, Subscription, TransportId};

/// A subscriber that is not in a group yet.
pub(crate) struct PendingSubscriber {
    pub(crate) operation: LiveOperation,
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) member: Subscriber,
    pub(crate) transport: TransportId,
    /// The point to resume from. `None`: the subscriber gets the events from now on.
    pub(crate) resume: Option<Resume>,
    pub(crate) slot: SubscriptionSlot,
    pub(crate) reply: oneshot::Sender<Result<Subscription, GraphqlError>>,
    /// The trace of the initial state, if the subscriber gets one and states have traces.
    pub(crate) spans: Option<Arc<EventSpans>>,
}

impl PendingSubscriber {
    /// Refuses the subscriber, and releases its slot.
    pub(super) fn refuse(self, error: GraphqlError) {
        let Self { reply, slot, .. } = self;
        drop(slot);
        // The caller may be gone, then the error is dropped.
        let _ = reply.send(Err(error));
    }
}
