//! The settings and state that the consumers and the publisher of one provider share.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::acl_probe::DeniedTopics;
use super::client::ConsumerClient;
use super::client_callbacks::{ClientCallbacks, ConnectionHealth};
use crate::kafka_settings::{KafkaAuthentication, KafkaSettings};

/// The number of messages that a consumer dispatches before it yields to other work.
pub(super) const MESSAGES_AT_ONCE: usize = 256;

/// The settings and state that the consumers and the publisher of one provider share.
pub(super) struct SharedState {
    pub(super) settings: KafkaSettings,
    pub(super) health: Arc<ConnectionHealth>,
    /// Permits for consumers in addition to the shared one.
    pub(super) dedicated_permits: Arc<Semaphore>,
    /// The topics that the broker does not allow this client to read.
    pub(super) denied_topics: DeniedTopics,
}

impl SharedState {
    /// Makes another consumer client.
    pub(super) async fn make_client(self: &Arc<Self>) -> Result<Arc<ConsumerClient>, String> {
        let common = Arc::clone(self);
        let made = spawn_blocking(move || {
            ConsumerClient::new(&common.settings.consumer_config(), common.callbacks())
        });
        match made.await {
            Ok(made) => made.map(Arc::new),
            Err(_) => Err("the router is shutting down".into()),
        }
    }

    /// Makes the callbacks for another client.
    pub(super) fn callbacks(&self) -> ClientCallbacks {
        let token = self.settings.authentication.as_ref().and_then(KafkaAuthentication::token);
        ClientCallbacks { health: Arc::clone(&self.health), token }
    }
}
