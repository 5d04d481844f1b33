//! The settings and state that the readers and the publisher of one provider share.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::client::Client;
use super::context::{Context, Health};
use super::readable::Refused;
use super::settings::{KafkaAuthentication, KafkaSettings};

/// The number of messages that a reader hands on before it yields to other work.
pub(super) const MESSAGES_AT_ONCE: usize = 256;

/// The settings and state that all readers of one provider share.
pub(super) struct Common {
    pub(super) settings: KafkaSettings,
    pub(super) health: Arc<Health>,
    /// Permits for readers beside the shared one.
    pub(super) singles: Arc<Semaphore>,
    /// The topics that the broker does not allow this client to read.
    pub(super) refused: Refused,
}

impl Common {
    /// Makes another consumer.
    pub(super) async fn client(self: &Arc<Self>) -> Result<Arc<Client>, String> {
        let common = Arc::clone(self);
        let made =
            spawn_blocking(move || Client::new(&common.settings.consumer(), common.context()));
        match made.await {
            Ok(made) => made.map(Arc::new),
            Err(_) => Err("the router is ending".into()),
        }
    }

    pub(super) fn context(&self) -> Context {
        let token = self.settings.authentication.as_ref().and_then(KafkaAuthentication::token);
        Context { health: Arc::clone(&self.health), token }
    }
}
