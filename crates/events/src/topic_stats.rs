//! Counters by topic, and the lag of streams behind the events that the broker stores. Topics may contain values from
//! clients. A topic that matches a template of a schema is counted under the name of the template, and only a limited
//! number of others under their own names.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

use telemetry::ValueFingerprint;

use crate::event::SchemaTopic;
use crate::topic::TOPIC_WILDCARDS;

/// The maximum number of topics of one provider that are counted under their own names: the first ones. Each topic is
/// one time series for each counter, and each series costs a Prometheus server some kilobytes.
pub const TOPICS_NAMED_MAX: usize = 64;

/// The name under which all other topics are counted.
pub const OTHER_TOPICS: &str = "other";

/// The minimum number of gauges at which the gauges of dropped streams are removed.
const GAUGES_SWEPT_MIN: usize = 16;

/// The value of an unknown number. No broker stores that many events, and no event has that time.
const UNKNOWN: u64 = u64::MAX;

/// Counters of one topic as it was requested, which may be a pattern. All of them only grow, except `streams`.
#[derive(Debug, Default)]
pub struct TopicStats {
    /// The number of events received for streams of this topic. An event counts once for each stream that reads it.
    pub received: AtomicU64,
    /// The number of events that the broker accepted from the router.
    pub published: AtomicU64,
    /// The number of publications that failed.
    pub publish_failures: AtomicU64,
    /// The number of events that did not fit into the queue of a stream.
    pub dropped: AtomicU64,
    /// The number of streams that are open now.
    pub streams: AtomicU64,
    gauges: Mutex<Gauges>,
}

/// The lag of the slowest stream of a topic behind the events that the broker stores. A value is `None` if streams have
/// no position, or the position is not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lag {
    /// The number of events that are stored and not read yet.
    pub events: Option<u64>,
    /// The age of the latest event that was read, while more are stored; zero if everything was read.
    pub time: Option<Duration>,
}

/// The lag gauges of the streams of one topic.
#[derive(Debug, Default)]
struct Gauges {
    of_streams: Vec<Weak<LagGauge>>,
    /// The number of gauges at which those of dropped streams are removed.
    sweep_at: usize,
}

/// The lag of one stream in one topic.
#[derive(Debug)]
struct LagGauge {
    events: AtomicU64,
    /// The time at which the latest event that was read was published, in milliseconds since 1970; 0 if no event
    /// follows it.
    read_up_to: AtomicU64,
}

impl LagGauge {
    fn set(&self, events: Option<u64>, read: Option<SystemTime>) {
        let read_up_to = match (events, read) {
            (Some(0), _) => 0,
            (_, Some(read)) => milliseconds(read),
            (_, None) => UNKNOWN,
        };
        self.events.store(events.unwrap_or(UNKNOWN), Relaxed);
        self.read_up_to.store(read_up_to, Relaxed);
    }
}

/// The maximum number of templates of one provider. When more come, those that were registered longest ago are
/// forgotten: they belong to graphs of long ago.
const TEMPLATES_MAX: usize = 4096;

/// A topic as a schema names it, such as `moved.{{args.id}}`, or without placeholders.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TopicTemplate {
    name: Box<str>,
    /// The texts around the placeholders, and around the wildcards if there are placeholders. A single text if there
    /// are none.
    texts: Box<[Box<str>]>,
    /// Grows with each registration.
    registered: u64,
}

impl TopicTemplate {
    /// True if rendering the template can make this topic.
    fn matches(&self, topic: &str) -> bool {
        let [first, between @ .., last] = &*self.texts else { return *self.name == *topic };
        let rest = topic.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last));
        let Some(mut rest) = rest else { return false };
        between.iter().all(|text| match rest.split_once(&**text) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    }

    fn has_placeholders(&self) -> bool {
        self.texts.len() > 1
    }

    /// Returns the order of templates: the most specific ones first.
    fn rank(&self) -> (Reverse<usize>, usize) {
        (Reverse(self.texts.iter().map(|text| text.len()).sum()), self.texts.len())
    }
}

/// The counters of all topics of one provider.
#[derive(Debug, Default)]
pub(crate) struct TopicRegistry {
    names: RwLock<TopicNames>,
    others: Arc<TopicStats>,
}

/// The names under which topics are counted.
#[derive(Debug, Default)]
struct TopicNames {
    stats: HashMap<Box<str>, Arc<TopicStats>>,
    /// The topics of schemas, by [`TopicTemplate::rank`].
    templates: Vec<TopicTemplate>,
    registered: u64,
}

impl TopicNames {
    fn find_template(&self, topic: &str) -> Option<&TopicTemplate> {
        self.templates.iter().find(|template| template.matches(topic))
    }

    /// Returns the name of the template that a topic was rendered from, or else the topic. The template is searched
    /// unless it is known.
    fn name_of<'t>(&'t self, topic: &'t str, known: Option<&'t SchemaTopic>) -> &'t str {
        match known {
            Some(known) => &known.name,
            None => self.find_template(topic).map_or(topic, |template| &template.name),
        }
    }
}

impl TopicRegistry {
    /// Returns the counters of a topic, or the shared counters if the topic has none of its own.
    pub(crate) fn stats_of(&self, topic: &str) -> Arc<TopicStats> {
        self.stats_of_rendered(topic, None)
    }

    /// Returns the counters of a topic that was rendered from this template, if that is known: those of the template.
    // hot path: once per publication; with a known template no other one is looked at.
    pub(crate) fn stats_of_rendered(
        &self,
        topic: &str,
        template: Option<&SchemaTopic>,
    ) -> Arc<TopicStats> {
        // If a thread panicked while it held the lock, the names are still consistent.
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let own = template.map_or(topic, |it| &it.name);
        let counted = names.stats.get(own);
        let counted = counted.or_else(|| names.stats.get(names.name_of(topic, template)));
        if let Some(stats) = counted {
            return Arc::clone(stats);
        }
        if names.stats.len() >= TOPICS_NAMED_MAX {
            return Arc::clone(&self.others);
        }
        drop(names);
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let name: Box<str> = names.name_of(topic, template).into();
        if names.stats.len() >= TOPICS_NAMED_MAX && !names.stats.contains_key(&name) {
            return Arc::clone(&self.others);
        }
        Arc::clone(names.stats.entry(name).or_default())
    }

    /// Registers a topic of a schema. `texts` are those around its placeholders, and around its wildcards if it has
    /// placeholders.
    pub(crate) fn register(&self, name: &str, texts: &[String]) {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        names.registered += 1;
        let registered = names.registered;
        if let Some(known) = names.templates.iter_mut().find(|it| *it.name == *name) {
            known.registered = registered;
            return;
        }
        if names.templates.len() >= TEMPLATES_MAX {
            let oldest = names.templates.iter().map(|it| it.registered).min();
            names.templates.retain(|it| Some(it.registered) != oldest);
        }
        let texts = texts.iter().map(|text| text.as_str().into()).collect();
        let template = TopicTemplate { name: name.into(), texts, registered };
        let at = names.templates.partition_point(|it| it.rank() <= template.rank());
        names.templates.insert(at, template);
    }

    /// Returns the topic of a schema that a topic was rendered from, if there is one. It contains no values of clients.
    /// An empty topic is unknown.
    pub(crate) fn schema_topic(&self, topic: &str) -> Option<Box<str>> {
        if topic.is_empty() {
            return None;
        }
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        Some(names.find_template(topic)?.name.clone())
    }

    /// Returns the name of the template that a topic was rendered from. `None` if that has no placeholders, or if the
    /// topic is of no schema.
    pub(crate) fn template_of(&self, topic: &str) -> Option<Box<str>> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let template = names.find_template(topic).filter(|it| it.has_placeholders())?;
        Some(template.name.clone())
    }

    /// Returns a topic without values of clients; see [`crate::ProviderStats::masked_topic`].
    pub(crate) fn masked(&self, topic: &str) -> String {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        match names.find_template(topic) {
            Some(it) if it.has_placeholders() => {
                format!("{} {}", it.name, ValueFingerprint::of(topic))
            }
            Some(it) => it.name.to_string(),
            None => ValueFingerprint::of(topic).to_string(),
        }
    }

    /// Returns all counters by name, with those of the other topics last if there are any.
    pub(crate) fn list(&self) -> Vec<(Box<str>, Arc<TopicStats>)> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            names.stats.iter().map(|(name, stats)| (name.clone(), Arc::clone(stats))).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if names.stats.len() >= TOPICS_NAMED_MAX {
            all.push((OTHER_TOPICS.into(), Arc::clone(&self.others)));
        }
        all
    }
}

impl TopicStats {
    /// Returns the largest lag of all open streams of the topic.
    pub fn lag(&self) -> Lag {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lag = Lag::default();
        for gauge in gauges.of_streams.iter().filter_map(Weak::upgrade) {
            let events = Some(gauge.events.load(Relaxed)).filter(|&events| events != UNKNOWN);
            lag.events = lag.events.max(events);
            let time = match gauge.read_up_to.load(Relaxed) {
                UNKNOWN => None,
                0 => Some(Duration::ZERO),
                read => Some(now.saturating_sub(Duration::from_millis(read))),
            };
            lag.time = lag.time.max(time);
        }
        lag
    }

    fn add_gauge(&self) -> Arc<LagGauge> {
        let gauge = Arc::new(LagGauge { events: UNKNOWN.into(), read_up_to: UNKNOWN.into() });
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        if gauges.of_streams.len() >= gauges.sweep_at {
            gauges.of_streams.retain(|gauge| gauge.strong_count() > 0);
            // Doubling the threshold means that each gauge is checked a constant number of times, however many there
            // are.
            gauges.sweep_at = (gauges.of_streams.len() * 2).max(GAUGES_SWEPT_MIN);
        }
        gauges.of_streams.push(Arc::downgrade(&gauge));
        gauge
    }
}

/// The counters of one stream. Dropping them decrements the number of open streams of each topic.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts(Vec<CountedTopic>);

/// One topic of a stream with its counters and its lag.
#[derive(Debug)]
struct CountedTopic {
    topic: Box<str>,
    /// The length of the topic up to the first character that has a meaning in the patterns of some broker.
    literal: usize,
    stats: Arc<TopicStats>,
    gauge: Arc<LagGauge>,
}

impl StreamCounts {
    pub(crate) fn new<'t>(
        topics: &TopicRegistry,
        wanted: impl IntoIterator<Item = &'t str>,
    ) -> Self {
        let counted = wanted.into_iter().map(|topic| {
            let stats = topics.stats_of(topic);
            stats.streams.fetch_add(1, Relaxed);
            let literal = topic.find(TOPIC_WILDCARDS).unwrap_or(topic.len());
            let gauge = stats.add_gauge();
            CountedTopic { topic: topic.into(), literal, stats, gauge }
        });
        Self(counted.collect())
    }

    /// Counts an event that arrived for the stream.
    // hot path: once per event and stream; compares two texts if there is one topic.
    pub(crate) fn record_received(&self, topic: &str) {
        if let Some(counted) = self.find_topic(topic) {
            counted.stats.received.fetch_add(1, Relaxed);
        }
    }

    /// Counts an event that did not fit into the queue.
    pub(crate) fn record_dropped(&self, topic: &str) {
        if let Some(counted) = self.find_topic(topic) {
            counted.stats.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Sets the lag of all topics of the stream: the number of stored events behind its position, and the time at which
    /// the latest event that it read was published.
    pub(crate) fn set_lag(&self, events: Option<u64>, read: Option<SystemTime>) {
        for counted in &self.0 {
            counted.gauge.set(events, read);
        }
    }

    /// Sets the lag of one topic of the stream. Only Kafka reports topics one by one.
    #[cfg(feature = "kafka")]
    pub(crate) fn set_topic_lag(&self, topic: &str, events: Option<u64>, read: Option<SystemTime>) {
        for counted in self.0.iter().filter(|counted| *counted.topic == *topic) {
            counted.gauge.set(events, read);
        }
    }

    /// Sets the time at which the latest event that was read of a topic was published. `None` means that no events
    /// follow it.
    pub(crate) fn set_topic_lag_time(&self, topic: &str, read: Option<SystemTime>) {
        for counted in self.0.iter().filter(|counted| *counted.topic == *topic) {
            counted.gauge.read_up_to.store(read.map_or(0, milliseconds), Relaxed);
        }
    }

    /// Returns the requested topic that an event belongs to: the topic of that name, otherwise the first pattern with a
    /// matching literal prefix.
    fn find_topic(&self, topic: &str) -> Option<&CountedTopic> {
        if let [only] = self.0.as_slice() {
            return Some(only);
        }
        self.0.iter().find(|counted| *counted.topic == *topic).or_else(|| {
            self.0.iter().find(|counted| {
                counted.literal < counted.topic.len()
                    && topic.starts_with(&counted.topic[..counted.literal])
            })
        })
    }
}

/// Returns milliseconds since 1970, and never 0, which means that no event follows.
fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(UNKNOWN - 1).max(1)
}

impl Drop for StreamCounts {
    fn drop(&mut self) {
        for counted in &self.0 {
            counted.stats.streams.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_over_the_limit_are_counted_together() {
        let topics = TopicRegistry::default();
        for number in 0..TOPICS_NAMED_MAX + 10 {
            topics.stats_of(&format!("t{number:03}")).published.fetch_add(1, Relaxed);
        }
        topics.stats_of("t000").published.fetch_add(1, Relaxed);
        let all = topics.list();
        assert_eq!(all.len(), TOPICS_NAMED_MAX + 1);
        let published = |at: usize| (&*all[at].0, all[at].1.published.load(Relaxed));
        assert_eq!(published(0), ("t000", 2));
        assert_eq!(published(TOPICS_NAMED_MAX), (OTHER_TOPICS, 10));
    }

    #[test]
    fn a_rendered_topic_is_counted_under_the_name_of_its_template() {
        let topics = TopicRegistry::default();
        let register = |name: &str, texts: &[&str]| {
            topics.register(name, &texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        };
        register("moved.{{args.id}}", &["moved.", ""]);
        register("moved.all", &["moved.all"]);
        register("moved.{{args.id}}.by.{{args.by}}", &["moved.", ".by.", ""]);
        register("moved.{{args.id}}", &["moved.", ""]);
        for (topic, template) in [
            ("moved.s3cret", Some("moved.{{args.id}}")),
            ("moved.s3cret.by.ann", Some("moved.{{args.id}}.by.{{args.by}}")),
            ("moved.all", None),
            ("orders.7", None),
        ] {
            assert_eq!(topics.template_of(topic).as_deref(), template, "{topic}");
            topics.stats_of(topic).published.fetch_add(1, Relaxed);
        }
        let counts = StreamCounts::new(&topics, ["moved.1", "moved.2"]);
        counts.record_received("moved.2");
        counts.set_lag(Some(3), None);
        let names: Vec<_> = topics.list().into_iter().map(|(name, _)| name).collect();
        let expected =
            ["moved.all", "moved.{{args.id}}", "moved.{{args.id}}.by.{{args.by}}", "orders.7"];
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), expected);
        let of_template = topics.stats_of("moved.9");
        assert_eq!(
            [of_template.published.load(Relaxed), of_template.streams.load(Relaxed)],
            [1, 2]
        );
        assert_eq!((of_template.received.load(Relaxed), of_template.lag().events), (1, Some(3)));
    }

    #[test]
    fn a_publication_is_counted_under_its_own_template_though_another_one_matches() {
        let topics = TopicRegistry::default();
        topics.register("moved.all", &["moved.all".to_owned()]);
        topics.register("moved.{{args.id}}", &["moved.".to_owned(), String::new()]);
        let template = SchemaTopic { name: "moved.{{args.id}}".into(), has_placeholders: true };
        for template in [Some(&template), None] {
            topics.stats_of_rendered("moved.all", template).published.fetch_add(1, Relaxed);
        }
        let counted = topics.list();
        let counted = counted.iter().map(|(name, stats)| (&**name, stats.published.load(Relaxed)));
        let expected = [("moved.all", 1), ("moved.{{args.id}}", 1)];
        assert_eq!(counted.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_masked_topic_has_the_text_of_its_template_and_a_fingerprint_of_its_values() {
        let topics = TopicRegistry::default();
        topics.register("moved.all", &["moved.all".to_owned()]);
        topics.register("moved.{{args.id}}", &["moved.".to_owned(), String::new()]);
        let [first, second] = ["moved.s3cret", "moved.other"].map(ValueFingerprint::of);
        for (topic, expected) in [
            ("moved.s3cret", format!("moved.{{{{args.id}}}} {first}")),
            ("moved.other", format!("moved.{{{{args.id}}}} {second}")),
            ("moved.all", "moved.all".to_owned()),
            // The schema that it was rendered from is forgotten, or there never was one.
            ("s3cret", ValueFingerprint::of("s3cret").to_string()),
        ] {
            assert_eq!(topics.masked(topic), expected);
        }
    }

    #[test]
    fn templates_of_graphs_of_long_ago_are_forgotten() {
        let topics = TopicRegistry::default();
        for number in 0..=TEMPLATES_MAX {
            topics.register(
                &format!("t{number}.{{{{args.id}}}}"),
                &[format!("t{number}."), "".into()],
            );
        }
        assert_eq!(topics.template_of("t0.a"), None);
        assert_eq!(topics.template_of("t1.a").as_deref(), Some("t1.{{args.id}}"));
    }

    #[test]
    fn an_event_belongs_to_its_topic_or_to_a_pattern_with_a_matching_prefix() {
        let topics = TopicRegistry::default();
        let counts = StreamCounts::new(&topics, ["orders.7", "planes.*", "orders.>"]);
        for topic in ["orders.7", "orders.8", "planes.1", "orders.9"] {
            counts.record_received(topic);
        }
        counts.record_dropped("orders.9");
        let of = |topic: &str| topics.stats_of(topic).received.load(Relaxed);
        assert_eq!([of("orders.7"), of("planes.*"), of("orders.>")], [1, 1, 2]);
        assert_eq!(topics.stats_of("orders.>").dropped.load(Relaxed), 1);
        assert_eq!(topics.stats_of("orders.>").streams.load(Relaxed), 1);
        drop(counts);
        assert_eq!(topics.stats_of("orders.>").streams.load(Relaxed), 0);
    }

    #[test]
    fn the_lag_of_a_topic_is_that_of_its_slowest_open_stream() {
        let topics = TopicRegistry::default();
        let stats = topics.stats_of("orders");
        let streams = [(); 3].map(|()| StreamCounts::new(&topics, ["orders"]));
        assert_eq!(stats.lag(), Lag::default(), "nothing is known");
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
        let [quick, slow, unknown] = streams;
        quick.set_lag(Some(0), Some(SystemTime::now()));
        assert_eq!(stats.lag(), Lag { events: Some(0), time: Some(Duration::ZERO) });
        slow.set_lag(Some(70), Some(an_hour_ago));
        let lag = stats.lag();
        assert_eq!(lag.events, Some(70));
        assert!(lag.time.is_some_and(|time| time.as_secs().abs_diff(3600) < 60), "{lag:?}");
        unknown.set_topic_lag_time("orders", None);
        drop((slow, unknown));
        assert_eq!(stats.lag(), Lag { events: Some(0), time: Some(Duration::ZERO) });
        for _ in 0..10 * GAUGES_SWEPT_MIN {
            drop(StreamCounts::new(&topics, ["orders"]));
        }
        let kept = stats.gauges.lock().expect("no thread panicked").of_streams.len();
        assert!(kept <= GAUGES_SWEPT_MIN, "{kept}");
    }
}
