//! The input and the result of one resolution, between a group and the task that runs it.

use std::sync::Arc;

use execute::{Payload, Revision};

use crate::{GroupSpans, TriggerEvent};

/// The input of one resolution for a group.
pub(crate) enum ResolutionWork {
    /// An event.
    Event(TriggerEvent),
    /// Events that waited, in their order.
    Batch(Vec<TriggerEvent>),
    /// The current state, before any event or because of one.
    State {
        /// The state that the subscribers have, if the source has states.
        known: Option<Revision>,
        /// The spans of the group, if the state has a trace.
        spans: Option<Arc<GroupSpans>>,
    },
}

/// The result of a resolution.
pub(crate) enum ResolutionOutcome {
    /// The payload to deliver.
    Payload(Payload),
    /// One payload for each event of a batch.
    Batch(Vec<Payload>),
    /// There is no state to deliver.
    Nothing,
    /// The resolution ended without a result.
    BrokeOff,
}

impl ResolutionOutcome {
    /// Returns the payload of the first event, if there is one to deliver, and those of the others. `None` if there is
    /// not one for each event.
    pub(super) fn into_payloads(self, events: usize) -> Option<(Option<Payload>, Vec<Payload>)> {
        match self {
            Self::Payload(payload) if events == 1 => Some((Some(payload), Vec::new())),
            Self::Batch(payloads) if events == payloads.len() => {
                let mut payloads = payloads.into_iter();
                Some((payloads.next(), payloads.collect()))
            }
            Self::Nothing => Some((None, Vec::new())),
            Self::Payload(_) | Self::Batch(_) | Self::BrokeOff => None,
        }
    }
}
