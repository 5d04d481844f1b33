//! The limits of live subscriptions, and the counts that they apply to.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use config::Subscriptions;

use super::group_shares::GroupShares;
use super::metrics::Transport;
use super::open_outlets::OpenOutlets;
use super::outlet::ConnectionOutlet;
use super::queue_total::QueueTotal;

/// The limits of live subscriptions. Copies count together: they are those of the whole process.
#[derive(Clone, Debug)]
pub struct SubscriptionLimits {
    /// The configured limits.
    pub settings: Subscriptions,
    /// The number of groups that each client has created.
    pub(crate) group_shares: Arc<GroupShares>,
    /// The number of bytes of texts and variables that live subscriptions keep.
    pub kept_operation_bytes: Arc<AtomicUsize>,
    /// The bytes that wait for slow clients.
    pub queue_total: Arc<QueueTotal>,
    /// The outlets of one graph that were made within these limits and are open.
    pub(crate) outlets: Arc<OpenOutlets<ConnectionOutlet>>,
}

impl SubscriptionLimits {
    /// Creates the limits without subscriptions.
    pub fn new(settings: &Subscriptions) -> Self {
        Self {
            settings: settings.clone(),
            group_shares: Arc::default(),
            kept_operation_bytes: Arc::default(),
            queue_total: Arc::new(QueueTotal::new(settings.queue_bytes_total)),
            outlets: Arc::default(),
        }
    }

    /// Returns the same limits for another graph. Its outlets are listed apart: ids of groups are unique in one hub
    /// only.
    pub fn of_another_graph(&self) -> Self {
        Self { outlets: Arc::default(), ..self.clone() }
    }

    /// Makes the outlet of one connection within these limits.
    pub(crate) fn make_outlet(&self, transport: Transport) -> Arc<ConnectionOutlet> {
        ConnectionOutlet::open(&self.settings, &self.queue_total, (transport, &self.outlets))
    }
}
