//! Publishing through one idempotent producer, made when it is first needed: most routers publish nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};

use super::common::Common;
use super::context::Context;
use crate::Message;

/// Why an event was not published.
pub(super) enum Unpublished {
    /// Nobody took it.
    Away(String),
    /// The broker or the library will not have it.
    Refused(String),
}

/// The producer of one provider.
pub(super) struct Publisher {
    common: Arc<Common>,
    /// None: not needed so far, or given up by the library.
    producer: Mutex<Option<Arc<Producer>>>,
}

/// Ending one waits for its threads, so it happens on a thread of its own.
struct Producer(Option<FutureProducer<Context>>);

impl Drop for Producer {
    fn drop(&mut self) {
        let producer = self.0.take();
        std::thread::spawn(move || drop(producer));
    }
}

impl Publisher {
    pub(super) fn new(common: Arc<Common>) -> Self {
        Self { common, producer: Mutex::new(None) }
    }

    fn producer(&self) -> Result<Arc<Producer>, Unpublished> {
        // Nothing that can panic runs while the lock is held, and a producer is there or not.
        let mut place = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*place {
            return Ok(Arc::clone(producer));
        }
        let (config, context) = (self.common.settings.producer(), self.common.context());
        let made = FutureProducer::from_config_and_context(&config, context);
        let made = made.map_err(|error| Unpublished::Away(error.to_string()))?;
        let producer = Arc::new(Producer(Some(made)));
        *place = Some(Arc::clone(&producer));
        Ok(producer)
    }

    /// The next publication makes another one, since this one writes no more.
    fn give_up(&self, producer: &Arc<Producer>) {
        let mut place = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|it| Arc::ptr_eq(it, producer)) {
            *place = None;
        }
    }

    /// Returns when all replicas that are in step have it.
    pub(super) async fn publish(&self, message: &Message) -> Result<(), Unpublished> {
        let producer = self.producer()?;
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
        let inner = producer.0.as_ref().expect("there until it is dropped");
        let Err((error, _)) = inner.send(record, Duration::ZERO).await else { return Ok(()) };
        if inner.client().fatal_error().is_some() {
            self.give_up(&producer);
        }
        Err(unpublished(&error))
    }
}

fn unpublished(error: &KafkaError) -> Unpublished {
    let Some(code) = error.rdkafka_error_code() else {
        return Unpublished::Refused(error.to_string());
    };
    match code {
        Code::QueueFull => Unpublished::Away("too many events wait for the broker already".into()),
        Code::MessageSizeTooLarge => {
            Unpublished::Refused("it is larger than the broker accepts".into())
        }
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Unpublished::Refused("there is no such topic".into())
        }
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::InvalidTopic
        | Code::InvalidRecord
        | Code::PolicyViolation
        | Code::InvalidMessage
        | Code::InvalidMessageSize
        | Code::InvalidArgument => Unpublished::Refused(code.to_string()),
        Code::MessageTimedOut => {
            Unpublished::Away("the broker did not take the event in time".into())
        }
        _ => Unpublished::Away(code.to_string()),
    }
}
