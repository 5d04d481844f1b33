//! Subscriptions to the topics of brokers that say what is stale (`cache.invalidate`).
//!
//! A provider reports a gap where messages may have been lost, because the connection broke or its queue was full. The
//! topic is then opened again, and everything becomes stale as soon as it is open: not before, because entries that are
//! stored meanwhile miss invalidations as well. Until then the router serves what it has, so that the loss of a broker
//! does not send all traffic to the subgraphs.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use config::Config;
use config::diagnostic::Diagnostic;
use events::{
    Backoff, EventStream, Provider, Providers, Retry, SourceMessage, StreamRequest, TopicUsage,
};
use serving::invalidation_events::read_invalidation_event;
use serving::serving::Serving;
use telemetry::LogLimit;
use tokio::sync::watch;

/// The topics of the configuration with their providers.
#[derive(Debug)]
pub(crate) struct InvalidationTopics {
    topics: Vec<InvalidationTopic>,
    event_bytes_max: usize,
}

struct InvalidationTopic {
    provider: Arc<dyn Provider>,
    topic: Box<str>,
}

impl std::fmt::Debug for InvalidationTopic {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.provider.name(), self.topic)
    }
}

impl InvalidationTopics {
    /// Finds the providers of the configured topics. Connects to nothing.
    ///
    /// # Errors
    /// Each provider that does not exist, and each topic that its provider does not accept.
    pub(crate) fn new(config: &Config, providers: &Providers) -> Result<Self, Vec<Diagnostic>> {
        let (mut topics, mut problems) = (Vec::new(), Vec::new());
        let configured = config.cache.invalidate.iter().filter(|_| config.cache.enabled);
        for (index, configured) in configured.enumerate() {
            let topic = &configured.topic;
            let found = providers.resolve(&configured.provider).map_err(|error| error.to_string());
            let found = found.and_then(|provider| {
                let checked = provider.check_topic(topic, TopicUsage::Subscribe);
                let name = provider.name();
                let refused = |reason| format!("{name} does not accept topic {topic:?}: {reason}");
                checked.map(|()| Arc::clone(provider)).map_err(refused)
            });
            match found {
                Ok(provider) => {
                    topics.push(InvalidationTopic { provider, topic: topic.as_str().into() });
                }
                Err(reason) => {
                    let message = format!("`cache.invalidate[{index}]`: {reason}");
                    problems.push(Diagnostic::error("cache", message));
                }
            }
        }
        match problems.is_empty() {
            true => Ok(Self { topics, event_bytes_max: config.events.max_event_size }),
            false => Err(problems),
        }
    }

    /// Follows the topics, by tasks of this runtime, until shutdown.
    pub(crate) fn start(self, serving: &Arc<Serving>, shutdown: &watch::Receiver<bool>) {
        for topic in self.topics {
            let follower = TopicFollower {
                topic,
                serving: Arc::clone(serving),
                event_bytes_max: self.event_bytes_max,
                failures: LogLimit::new(),
                malformed: LogLimit::new(),
            };
            let mut shutdown = shutdown.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = follower.follow() => {}
                    _ = shutdown.wait_for(|stop| *stop) => {}
                }
            });
        }
    }
}

/// Follows one topic.
struct TopicFollower {
    topic: InvalidationTopic,
    serving: Arc<Serving>,
    event_bytes_max: usize,
    failures: LogLimit,
    malformed: LogLimit,
}

/// The reason why a stream is opened again.
#[derive(PartialEq, Eq, Debug)]
enum StreamLoss {
    /// The provider lost messages. It may be asked again at once.
    Gap,
    /// The stream ended.
    Ended(String),
}

impl TopicFollower {
    /// Never returns.
    async fn follow(&self) {
        let mut backoff = Backoff::new(Retry::default());
        let mut is_first = true;
        loop {
            let request = StreamRequest::new(vec![self.topic.topic.clone()]);
            let reason = match self.topic.provider.subscribe(request).await {
                Ok(mut stream) => {
                    self.on_opened(is_first);
                    is_first = false;
                    let mut has_messages = false;
                    let loss = self.read(&mut stream, &mut has_messages).await;
                    if has_messages {
                        backoff.reset();
                    }
                    match loss {
                        StreamLoss::Gap => continue,
                        StreamLoss::Ended(reason) => reason,
                    }
                }
                Err(error) => error.to_string(),
            };
            if let Some(suppressed) = self.failures.admit(Instant::now()) {
                tracing::warn!(
                    provider = self.topic.provider.name(),
                    topic = &*self.topic.topic,
                    reason,
                    suppressed,
                    "the topic of `cache.invalidate` is not open; the caches are not told what is stale until it is"
                );
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    /// Makes everything stale: messages may have been lost before the stream was open.
    fn on_opened(&self, is_first: bool) {
        let serving = self.serving.current();
        let Some(caching) = &serving.caching else { return };
        caching.process.invalidate_unheard_events(is_first);
        let (provider, topic) = (self.topic.provider.name(), &*self.topic.topic);
        if is_first {
            tracing::info!(provider, topic, "following a topic of `cache.invalidate`");
        } else {
            caching.process.invalidation_stats.event.count_gap();
            tracing::warn!(
                provider,
                topic,
                "messages that make cached responses stale may have been lost; all of them are stale now"
            );
        }
    }

    /// Applies the messages of a stream until some may be lost.
    async fn read(&self, stream: &mut EventStream, has_messages: &mut bool) -> StreamLoss {
        loop {
            match stream.messages.recv().await {
                Some(SourceMessage::Event(event)) => {
                    *has_messages = true;
                    self.apply(event.payload.clone());
                }
                Some(SourceMessage::Progress(_)) => {}
                Some(SourceMessage::Gap) => return StreamLoss::Gap,
                Some(SourceMessage::End(reason)) => return StreamLoss::Ended(reason.to_string()),
                None => return StreamLoss::Ended("the provider was closed".to_owned()),
            }
        }
    }

    fn apply(&self, payload: Bytes) {
        let received = Instant::now();
        let serving = self.serving.current();
        let Some(caching) = &serving.caching else { return };
        let source = &caching.process.invalidation_stats.event;
        let read = if payload.len() > self.event_bytes_max {
            Err(format!("it has more bytes than `events.max_event_size`: {}", payload.len()))
        } else {
            read_invalidation_event(&serving.generation.graph, payload)
                .map_err(|error| error.to_string())
        };
        match read {
            Ok(all) => caching.process.invalidate_by_event(&all, received),
            Err(reason) => {
                source.count_malformed();
                if let Some(suppressed) = self.malformed.admit(received) {
                    tracing::warn!(
                        provider = self.topic.provider.name(),
                        topic = &*self.topic.topic,
                        reason,
                        suppressed,
                        "an event does not say what is stale; nothing becomes stale because of it"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::{Memory, MemorySettings};

    fn topics(is_enabled: bool, list: &[(&str, &str)]) -> Result<usize, Vec<String>> {
        let mut config = Config::default();
        config.cache.enabled = is_enabled;
        let topic = |(provider, topic): &(&str, &str)| config::InvalidationTopic {
            provider: (*provider).to_owned(),
            topic: (*topic).to_owned(),
        };
        config.cache.invalidate = list.iter().map(topic).collect();
        let memory: Arc<dyn Provider> = Arc::new(Memory::new("default", MemorySettings::default()));
        let providers = Providers::new([memory]).expect("one provider");
        match InvalidationTopics::new(&config, &providers) {
            Ok(all) => Ok(all.topics.len()),
            Err(problems) => Err(problems.into_iter().map(|it| it.message).collect()),
        }
    }

    #[test]
    fn each_topic_needs_a_provider_that_accepts_it() {
        assert_eq!(topics(true, &[("memory/default", "a"), ("default", "b")]), Ok(2));
        let problems =
            topics(true, &[("nats/orders", "a"), ("default", "b"), ("default", "")]).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].starts_with("`cache.invalidate[0]`: no provider \"nats/orders\""),
            "{problems:?}"
        );
        assert!(
            problems[1].starts_with("`cache.invalidate[2]`: memory/default does not accept topic"),
            "{problems:?}"
        );
    }

    #[test]
    fn nothing_is_followed_without_a_cache() {
        assert_eq!(topics(false, &[("nats/orders", "a")]), Ok(0));
    }
}
