//! Live event streams: triggers, groups and subscribers. Each event is resolved once per group, and all subscribers of
//! the group share the bytes.
//!
//! Invariant: this crate knows nothing of sockets. Events come in through `events::Provider`, and payloads go out
//! through [`Outlet`].
//!
//! The [`Hub`] opens one trigger per source (`bindings::Source`), makes one group per operation, variables and
//! partition, resolves each event once per group (on the [`Workers`] if that may wait for a subgraph), and sends it
//! once to each outlet. When a graph is replaced, [`Hub::advance`] moves every group to the new graph between two
//! events.
//!
//! `shard` is the core: a state machine per shard, without a clock, locks or I/O, and `shard::task`, which drives it.
//! `shard::shard_input` passes commands to it.
//! `cursor` signs positions, `event_spans` records the traces of events and initial states, `resolve` executes plans
//! for events, and `operation` and `outlet` are the interfaces to the layers above. Transports need no change here, and
//! directives only if they concern the time or the order of delivery: a transport is an [`Outlet`], and a directive
//! becomes a source, a filter or a resolver before it reaches the hub.

mod cursor;
mod event_spans;
mod hub;
mod metrics;
mod operation;
mod outlet;
mod resolve;
mod settings;
mod shard;
mod stats;
mod subscription;

#[doc(hidden)]
pub use cursor::fuzz as fuzz_cursors;
pub use cursor::{CURSOR_BYTES_MAX, CURSOR_KEYS_MAX, Cursors};
pub use event_spans::{EventTracer, GroupSpans};
pub use hub::{Hub, SubscribeRequest};
pub use metrics::HUB_METRICS;
pub use operation::{GroupKey, LiveOperation, OperationUpdate, Resolve, TriggerEvent};
pub use outlet::{
    EndReason, GroupId, Outlet, OutletCommand, Subscriber, TransportCounts, TransportId,
};
pub use resolve::{EventResolver, Job, Workers};
pub use settings::HubSettings;
pub use stats::{GroupView, HUB_COUNTERS, HubStats, TriggerState, TriggerView};
pub use subscription::Subscription;
