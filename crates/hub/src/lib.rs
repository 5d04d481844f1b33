//! Triggers, groups and subscribers: one resolution per group and event, shared bytes to all.
//!
//! Invariant: knows nothing of sockets. Events come in through `events::Provider`, payloads go out
//! through [`Outlet`].
//!
//! [`Bindings`] reads the directives of a supergraph and says which [`Source`] a subscription listens to. The [`Hub`]
//! opens one trigger per source, makes one group per operation, variables and partition, resolves each event once per
//! group on the [`Cores`], and tells each outlet once. When a graph is replaced, [`Hub::advance`] puts every group on
//! the new one between two events.

mod binding;
mod cursor;
mod filter;
mod hub;
mod operation;
mod outlet;
mod resolve;
mod settings;
mod shard;
mod source;
mod stats;
mod template;

pub use binding::{BindingError, Bindings, BoundTopic, EventPublisher, PayloadMapping};
#[doc(hidden)]
pub use cursor::fuzz as fuzz_cursors;
pub use cursor::{CURSOR_BYTES_MAX, CURSOR_KEYS_MAX, Cursors};
pub use filter::Filter;
pub use hub::{Hub, SubscribeRequest, Subscription};
pub use operation::{GroupKey, LiveOperation, Renewal, Resolve, TriggerEvent};
pub use outlet::{EndReason, GroupId, Member, Outlet, OutletCommand};
pub use resolve::{Cores, EventResolver, Job};
pub use settings::HubSettings;
pub use source::Source;
pub use stats::{GroupView, HubStats, TriggerState, TriggerView};
