//! The Kafka client as an optional part of a build: whether it is there, and the start of a provider with it.

use std::sync::Arc;

use crate::{KafkaSettings, KafkaSettingsError, Provider};

/// True if this build has the Kafka client (feature `kafka`).
pub const HAS_KAFKA: bool = cfg!(feature = "kafka");

/// Starts a Kafka provider, which connects in the background. Must be called inside a Tokio runtime with time and I/O.
///
/// # Errors
/// The settings can never work, or this build has no Kafka client.
pub fn start_kafka(settings: KafkaSettings) -> Result<Arc<dyn Provider>, KafkaSettingsError> {
    #[cfg(feature = "kafka")]
    return Ok(Arc::new(crate::Kafka::start(settings)?));
    #[cfg(not(feature = "kafka"))]
    settings.check().and(Err(KafkaSettingsError::NoClient))
}
