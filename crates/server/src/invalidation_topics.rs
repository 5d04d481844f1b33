//! Subscriptions to the topics of brokers that say what is stale: those of the configuration (`cache.invalidate`), and
//! those of subscription fields of the graph (`invalidate: true`).
//!
//! A provider reports a gap where messages may have been lost, because the connection broke or its queue was full. The
//! topic is then opened again, and everything becomes stale as soon as it is open: not before, because entries that are
//! stored meanwhile miss invalidations as well. Until then the router serves what it has, so that the loss of a broker
//! does not send all traffic to the subgraphs.

use std::sync::Arc;
use std::time::Instant;

use cache::Invalidation;
use config::Config;
use config::diagnostic::Diagnostic;
use events::{
    Backoff, Event, EventStream, Provider, Providers, Retry, SourceMessage, StreamRequest,
    TopicUsage,
};
use serving::generation::ServingGraph;
use serving::invalidation_events::{read_field_event, read_invalidation_event};
use serving::serving::Serving;
use telemetry::LogLimit;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The topics of the configuration with their providers.
#[derive(Debug)]
pub(crate) struct InvalidationTopics {
    topics: Vec<FollowedTopic>,
    event_bytes_max: usize,
    /// True if the router has caches: topics of the graph are followed only then.
    is_enabled: bool,
}

/// A topic to follow.
#[derive(Clone)]
struct FollowedTopic {
    provider: Arc<dyn Provider>,
    /// The stream of the topic. It has one topic.
    wanted: StreamRequest,
    origin: TopicOrigin,
}

/// Where the topic is named, which decides how its events are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TopicOrigin {
    Configuration,
    /// Fields of the graph. Several of them may have the same topic.
    Graph,
}

impl TopicOrigin {
    /// The name for the log.
    fn name(self) -> &'static str {
        match self {
            Self::Configuration => "cache.invalidate",
            Self::Graph => "invalidate: true",
        }
    }
}

impl FollowedTopic {
    fn topic(&self) -> &str {
        self.wanted.topics.first().map_or("", |topic| topic)
    }

    /// True if the events of both are the same.
    fn is_same(&self, provider: &Arc<dyn Provider>, wanted: &StreamRequest) -> bool {
        self.provider.name() == provider.name() && self.wanted == *wanted
    }
}

impl std::fmt::Debug for FollowedTopic {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.provider.name(), self.topic())
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
                Ok(provider) => topics.push(FollowedTopic {
                    provider,
                    wanted: StreamRequest::new(vec![topic.as_str().into()]),
                    origin: TopicOrigin::Configuration,
                }),
                Err(reason) => {
                    let message = format!("`cache.invalidate[{index}]`: {reason}");
                    problems.push(Diagnostic::error("cache", message));
                }
            }
        }
        match problems.is_empty() {
            true => Ok(Self {
                topics,
                event_bytes_max: config.events.max_event_size,
                is_enabled: config.cache.enabled,
            }),
            false => Err(problems),
        }
    }

    /// Follows the topics, and those of each graph that serves, by tasks of this runtime, until shutdown.
    pub(crate) fn start(self, serving: &Arc<Serving>, shutdown: &watch::Receiver<bool>) {
        if !self.is_enabled {
            return;
        }
        let serving = Arc::clone(serving);
        let mut shutdown = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = self.follow_all(&serving) => {}
                _ = shutdown.wait_for(|stop| *stop) => {}
            }
        });
    }

    /// Never returns. Dropping it ends all streams.
    async fn follow_all(self, serving: &Arc<Serving>) {
        let follower_of = |topic: FollowedTopic| {
            let follower = TopicFollower {
                topic,
                serving: Arc::clone(serving),
                event_bytes_max: self.event_bytes_max,
                failures: LogLimit::new(),
                malformed: LogLimit::new(),
            };
            async move { follower.follow().await }
        };
        let mut followers = JoinSet::new();
        for topic in &self.topics {
            followers.spawn(follower_of(topic.clone()));
        }
        let mut of_graph: Vec<(FollowedTopic, AbortHandle)> = Vec::new();
        let mut serving_graph = serving.current();
        loop {
            let wanted = topics_of(&serving_graph);
            of_graph.retain(|(topic, task)| {
                let is_wanted = wanted.iter().any(|it| it.is_same(&topic.provider, &topic.wanted));
                if !is_wanted {
                    task.abort();
                }
                is_wanted
            });
            // Only aborted ones end.
            while followers.try_join_next().is_some() {}
            for topic in wanted {
                if !of_graph.iter().any(|(it, _)| it.is_same(&topic.provider, &topic.wanted)) {
                    let task = followers.spawn(follower_of(topic.clone()));
                    of_graph.push((topic, task));
                }
            }
            let number = serving_graph.generation.number;
            drop(serving_graph);
            serving_graph = serving.wait_for_graph_after(number).await;
        }
    }
}

/// The topics of the fields of a graph, without duplicates.
fn topics_of(graph: &ServingGraph) -> Vec<FollowedTopic> {
    let mut topics: Vec<FollowedTopic> = Vec::new();
    for named in graph.bindings.invalidating_topics() {
        if !topics.iter().any(|it| it.is_same(&named.provider, &named.wanted)) {
            topics.push(FollowedTopic {
                provider: Arc::clone(&named.provider),
                wanted: named.wanted.clone(),
                origin: TopicOrigin::Graph,
            });
        }
    }
    topics
}

/// Follows one topic.
struct TopicFollower {
    topic: FollowedTopic,
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
        // The configuration or the schema names it, so it has no values of clients, and logs may show it.
        let topic = self.topic.topic();
        self.topic.provider.stats().register_topic(topic, &[topic.to_owned()]);
        let mut backoff = Backoff::new(Retry::default());
        let mut is_first = true;
        loop {
            let wanted = self.topic.wanted.clone();
            let reason = match self.topic.provider.subscribe(wanted).await {
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
                    topic = self.topic.topic(),
                    named_by = self.topic.origin.name(),
                    reason,
                    suppressed,
                    "a topic that says what is stale is not open; the caches are not told until it is"
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
        let (provider, topic) = (self.topic.provider.name(), self.topic.topic());
        if is_first {
            let named_by = self.topic.origin.name();
            tracing::info!(provider, topic, named_by, "following a topic that says what is stale");
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
                    self.apply(&event);
                }
                Some(SourceMessage::Progress(_)) => {}
                Some(SourceMessage::Gap) => return StreamLoss::Gap,
                Some(SourceMessage::End(reason)) => return StreamLoss::Ended(reason.to_string()),
                None => return StreamLoss::Ended("the provider was closed".to_owned()),
            }
        }
    }

    fn apply(&self, event: &Event) {
        let received = Instant::now();
        let serving = self.serving.current();
        let Some(caching) = &serving.caching else { return };
        let source = &caching.process.invalidation_stats.event;
        let bytes = event.payload.len();
        let read = if bytes > self.event_bytes_max {
            Err(format!("it has more bytes than `events.max_event_size`: {bytes}"))
        } else {
            self.read_event(&serving, event)
        };
        match read {
            Ok(all) => caching.process.invalidate_by_event(&all, received),
            Err(reason) => {
                source.count_malformed();
                if let Some(suppressed) = self.malformed.admit(received) {
                    tracing::warn!(
                        provider = self.topic.provider.name(),
                        // That of the event may contain values of clients.
                        topic = self.topic.topic(),
                        reason,
                        suppressed,
                        "an event does not say what is stale; nothing becomes stale because of it"
                    );
                }
            }
        }
    }

    /// Returns what an event makes stale.
    fn read_event(
        &self,
        serving: &ServingGraph,
        event: &Event,
    ) -> Result<Vec<Invalidation>, String> {
        let graph = &serving.generation.graph;
        if self.topic.origin == TopicOrigin::Configuration {
            let read = read_invalidation_event(graph, event.payload.clone());
            return read.map_err(|error| error.to_string());
        }
        let mut all = Vec::new();
        for named in serving.bindings.invalidating_topics() {
            if !self.topic.is_same(&named.provider, &named.wanted) {
                continue;
            }
            let value = match serving.bindings.payload_mapping(named.field) {
                Some(mapping) => mapping.apply(event)?,
                None => event.payload.clone(),
            };
            let read = read_field_event(graph, named.field, value);
            all.extend(read.map_err(|error| format!("{}: {error}", named.coordinate))?);
        }
        Ok(all)
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
