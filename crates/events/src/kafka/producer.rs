//! Publishing through one idempotent producer. It is made when it is first needed, because most routers publish
//! nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};

use super::client_callbacks::ClientCallbacks;
use super::shared_state::SharedState;
use crate::Message;

/// The reason why an event was not published.
pub(super) enum ProduceError {
    /// No broker accepted the event in time.
    Unavailable(String),
    /// The broker or the library refuses the event.
    Refused(String),
}

/// The publisher of one provider.
pub(super) struct Publisher {
    common: Arc<SharedState>,
    /// The producer, or `None` if it is not needed so far or the library has given it up.
    producer: Mutex<Option<Arc<Producer>>>,
}

/// A producer. Closing one waits for its threads, so that happens on a thread of its own.
struct Producer(Option<FutureProducer<ClientCallbacks>>);

impl Drop for Producer {
    fn drop(&mut self) {
        let producer = self.0.take();
        std::thread::spawn(move || drop(producer));
    }
}

impl Publisher {
    pub(super) fn new(common: Arc<SharedState>) -> Self {
        Self { common, producer: Mutex::new(None) }
    }

    fn get_or_make(&self) -> Result<Arc<Producer>, ProduceError> {
        // Nothing that can panic runs while the lock is held, and the option is always consistent.
        let mut slot = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*slot {
            return Ok(Arc::clone(producer));
        }
        let (config, context) = (self.common.settings.producer_config(), self.common.callbacks());
        let made = FutureProducer::from_config_and_context(&config, context);
        let made = made.map_err(|error| ProduceError::Unavailable(error.to_string()))?;
        let producer = Arc::new(Producer(Some(made)));
        *slot = Some(Arc::clone(&producer));
        Ok(producer)
    }

    /// Discards a producer that can write no more. The next publication makes another one.
    fn discard(&self, producer: &Arc<Producer>) {
        let mut slot = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.as_ref().is_some_and(|it| Arc::ptr_eq(it, producer)) {
            *slot = None;
        }
    }

    /// Returns when all in-sync replicas have the event.
    pub(super) async fn publish(&self, message: &Message) -> Result<(), ProduceError> {
        let producer = self.get_or_make()?;
        let mut record = FutureRecord::<[u8], [u8]>::to(&message.topic).payload(&message.payload);
        if let Some(key) = &message.key {
            record = record.key(key);
        }
        if !message.headers.is_empty() {
            let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
            for (key, value) in &message.headers {
                headers = headers.insert(Header { key, value: Some(&**value) });
            }
            record = record.headers(headers);
        }
        let inner = producer.0.as_ref().expect("it exists until it is dropped");
        let Err((error, _)) = inner.send(record, Duration::ZERO).await else { return Ok(()) };
        if inner.client().fatal_error().is_some() {
            self.discard(&producer);
        }
        Err(classify_error(&error))
    }
}

fn classify_error(error: &KafkaError) -> ProduceError {
    let Some(code) = error.rdkafka_error_code() else {
        return ProduceError::Refused(error.to_string());
    };
    match code {
        Code::QueueFull => {
            ProduceError::Unavailable("too many events already wait for the broker".into())
        }
        Code::MessageSizeTooLarge => {
            ProduceError::Refused("it is larger than the broker accepts".into())
        }
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            ProduceError::Refused("there is no such topic".into())
        }
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::InvalidTopic
        | Code::InvalidRecord
        | Code::PolicyViolation
        | Code::InvalidMessage
        | Code::InvalidMessageSize
        | Code::InvalidArgument => ProduceError::Refused(code.to_string()),
        Code::MessageTimedOut => {
            ProduceError::Unavailable("the broker did not accept the event in time".into())
        }
        _ => ProduceError::Unavailable(code.to_string()),
    }
}
