//! What a provider counts by topic, and how far its streams are behind what the broker stores. TopicRegistry may contain what
//! clients say, so only so many are counted under their names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

/// TopicRegistry of one provider that are counted under their names, those that came first: a time series for each and
/// counter, for which a Prometheus server has some kilobytes each.
pub const TOPICS_NAMED_MAX: usize = 64;

/// The name that all others are counted under.
pub const OTHER_TOPICS: &str = "other";

/// Gauges of streams that are gone are looked for no earlier than at so many.
const GAUGES_SWEPT_MIN: usize = 16;

/// What is not known: no broker stores so many events, and no event is of that time.
const UNKNOWN: u64 = u64::MAX;

/// Counters of one topic as it was asked for, be it a pattern. All of them only grow, except `streams`.
#[derive(Debug, Default)]
pub struct TopicStats {
    /// Events for streams of this topic; for each stream that reads it, if several do.
    pub received: AtomicU64,
    /// Events that the broker took from us.
    pub published: AtomicU64,
    /// Publications that failed.
    pub publish_failures: AtomicU64,
    /// Events that did not fit a stream's queue.
    pub dropped: AtomicU64,
    /// Streams open now.
    pub streams: AtomicU64,
    gauges: Mutex<Gauges>,
}

/// How far the stream that is furthest behind has yet to read what the broker stores. Nothing where there is no
/// position, or it is not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lag {
    /// Events stored and not read.
    pub events: Option<u64>,
    /// The age of the latest event that was read, while there are more; zero if there are none.
    pub time: Option<Duration>,
}

#[derive(Debug, Default)]
struct Gauges {
    of_streams: Vec<Weak<LagGauge>>,
    /// At that length, those of streams that are gone are removed.
    sweep_at: usize,
}

/// The lag of one topic in one stream.
#[derive(Debug)]
struct LagGauge {
    events: AtomicU64,
    /// When the latest event that was read was published, in milliseconds since 1970; 0: nothing follows it.
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

/// The topics of one provider.
#[derive(Debug, Default)]
pub(crate) struct TopicRegistry {
    named: RwLock<HashMap<Box<str>, Arc<TopicStats>>>,
    others: Arc<TopicStats>,
}

impl TopicRegistry {
    /// The counters of a topic, or those of all that have none of their own.
    pub(crate) fn stats_of(&self, topic: &str) -> Arc<TopicStats> {
        // Whatever panicked while it held the lock, the map is whole.
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(stats) = named.get(topic) {
            return Arc::clone(stats);
        }
        if named.len() >= TOPICS_NAMED_MAX {
            return Arc::clone(&self.others);
        }
        drop(named);
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= TOPICS_NAMED_MAX && !named.contains_key(topic) {
            return Arc::clone(&self.others);
        }
        Arc::clone(named.entry(topic.into()).or_default())
    }

    /// All of them, by name; the others last, if there are any.
    pub(crate) fn list(&self) -> Vec<(Box<str>, Arc<TopicStats>)> {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            named.iter().map(|(name, stats)| (name.clone(), Arc::clone(stats))).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if named.len() >= TOPICS_NAMED_MAX {
            all.push((OTHER_TOPICS.into(), Arc::clone(&self.others)));
        }
        all
    }
}

impl TopicStats {
    /// Of all its open streams, the largest.
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
            // Twice as many: so each is looked at a fixed number of times, however many there are.
            gauges.sweep_at = (gauges.of_streams.len() * 2).max(GAUGES_SWEPT_MIN);
        }
        gauges.of_streams.push(Arc::downgrade(&gauge));
        gauge
    }
}

/// What one stream counts. Its topics have a stream less when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts(Vec<CountedTopic>);

#[derive(Debug)]
struct CountedTopic {
    topic: Box<str>,
    /// Up to the first character that means something in the patterns of some broker.
    literal: usize,
    stats: Arc<TopicStats>,
    gauge: Arc<LagGauge>,
}

impl StreamCounts {
    pub(crate) fn new<'t>(topics: &TopicRegistry, wanted: impl IntoIterator<Item = &'t str>) -> Self {
        let counted = wanted.into_iter().map(|topic| {
            let stats = topics.stats_of(topic);
            stats.streams.fetch_add(1, Relaxed);
            let literal = topic.find(['*', '>', '?', '[', '\\']).unwrap_or(topic.len());
            let gauge = stats.add_gauge();
            CountedTopic { topic: topic.into(), literal, stats, gauge }
        });
        Self(counted.collect())
    }

    /// An event came for the stream.
    // hot path: once per event and stream; compares two texts where there is one topic.
    pub(crate) fn record_received(&self, topic: &str) {
        if let Some(counted) = self.find_topic(topic) {
            counted.stats.received.fetch_add(1, Relaxed);
        }
    }

    /// It did not fit.
    pub(crate) fn record_dropped(&self, topic: &str) {
        if let Some(counted) = self.find_topic(topic) {
            counted.stats.dropped.fetch_add(1, Relaxed);
        }
    }

    /// How many events the broker stores behind what the stream has read of all its topics, and when the latest of those was
    /// published.
    pub(crate) fn set_lag(&self, events: Option<u64>, read: Option<SystemTime>) {
        for counted in &self.0 {
            counted.gauge.set(events, read);
        }
    }

    /// The same of one of its topics.
    pub(crate) fn set_topic_lag(&self, topic: &str, events: Option<u64>, read: Option<SystemTime>) {
        for counted in self.0.iter().filter(|counted| *counted.topic == *topic) {
            counted.gauge.set(events, read);
        }
    }

    /// When the latest event that was read of a topic was published, if there are more; none: there are none.
    pub(crate) fn set_topic_lag_time(&self, topic: &str, read: Option<SystemTime>) {
        for counted in self.0.iter().filter(|counted| *counted.topic == *topic) {
            counted.gauge.read_up_to.store(read.map_or(0, milliseconds), Relaxed);
        }
    }

    /// Which of the wanted topics an event belongs to: the one of that name, or else the first that begins like it.
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

/// Since 1970; never 0, which means something else.
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
    fn an_event_belongs_to_its_topic_or_to_the_pattern_that_begins_like_it() {
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
        let kept = stats.gauges.lock().expect("nobody panicked").of_streams.len();
        assert!(kept <= GAUGES_SWEPT_MIN, "{kept}");
    }
}
