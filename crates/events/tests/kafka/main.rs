//! The Kafka provider against a real broker.

mod check;
mod lag;
mod leaders;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use events::{
    BrokerTls, ErrorKind, Event, EventStream, Kafka, KafkaAuthentication, KafkaFetch,
    KafkaSettings, KafkaUser, Message, PartitionOffset, Position, Provider, ProviderState,
    PublishError, Retry, SourceError, SourceMessage, Start, StreamEnd, StreamRequest,
};
use futures_util::future::join_all;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use test_kit::kafka::{KafkaBroker, PASSWORD, USER};

/// The maximum time of one step, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of keys to which the events belong.
const KEYS: u64 = 20;

fn settings(address: String) -> KafkaSettings {
    KafkaSettings {
        id: "default".into(),
        brokers: vec![address],
        authentication: None,
        tls: None,
        retry: Retry { initial: Duration::from_millis(10), max: Duration::from_millis(100) },
        metadata_refresh: Duration::from_millis(300),
        fetch: KafkaFetch { wait_max: Duration::from_millis(50), ..KafkaFetch::default() },
        publish_timeout: Duration::from_secs(10),
        queue_events: 1024,
    }
}

/// Returns the settings of a user that may be refused something.
fn as_user(broker: &KafkaBroker) -> KafkaSettings {
    let certificates = test_kit::certificates();
    let user = KafkaUser { username: USER.into(), password: PASSWORD.into() };
    KafkaSettings {
        tls: Some(BrokerTls { ca: Some(certificates.join("ca.pem")), ..BrokerTls::default() }),
        authentication: Some(KafkaAuthentication::Plain(user)),
        ..settings(broker.secure_address())
    }
}

async fn connected(settings: KafkaSettings) -> Kafka {
    let provider = Kafka::start(settings).expect("the settings are right");
    let waiting = async { while provider.wait_connected().await.is_err() {} };
    within("the provider connects", waiting).await;
    provider
}

async fn provider(broker: &KafkaBroker) -> Kafka {
    connected(settings(broker.address())).await
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Repeats a check until it holds, for changes in the other process that cannot be waited for.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(what, waiting).await;
}

/// The administrator, for operations that providers do not have.
struct Admin(AdminClient<DefaultClientContext>);

impl Admin {
    fn of(broker: &KafkaBroker) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", broker.address());
        Self(config.create().expect("the settings are right"))
    }

    async fn create(&self, topic: &str, partitions: i32) {
        let topic = [NewTopic::new(topic, partitions, TopicReplication::Fixed(1))];
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let made = within("the topic is made", self.0.create_topics(&topic, &options)).await;
        made.expect("the broker responds").remove(0).expect("the topic is made");
    }

    async fn delete(&self, topic: &str) {
        let options = AdminOptions::new();
        let deleted = within("it is deleted", self.0.delete_topics(&[topic], &options)).await;
        deleted.expect("the broker responds").remove(0).expect("the topic is deleted");
    }

    async fn grow(&self, topic: &str, partitions: usize) {
        let wanted = [NewPartitions::new(topic, partitions)];
        let grown = self.0.create_partitions(&wanted, &AdminOptions::new()).await;
        grown.expect("the broker responds").remove(0).expect("the partition is made");
    }

    /// Returns the offset of the next event in each partition.
    fn ends(&self, topic: &str, partitions: i32) -> Vec<u64> {
        let end = |partition| {
            let found = self.0.inner().fetch_watermarks(topic, partition, PATIENCE);
            u64::try_from(found.expect("the broker responds").1).expect("an offset")
        };
        (0..partitions).map(end).collect()
    }

    /// Deletes the events before `offset` at the broker.
    async fn forget(&self, topic: &str, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Offset(offset)).expect("an offset");
        let forgotten = self.0.delete_records(&list, &AdminOptions::new()).await;
        forgotten.expect("the broker forgets");
    }
}

fn wanted(topics: &[&str]) -> StreamRequest {
    StreamRequest::new(topics.iter().map(|&topic| topic.into()).collect())
}

async fn subscribe(provider: &Kafka, wanted: StreamRequest) -> EventStream {
    provider.subscribe(wanted).await.expect("the broker is there")
}

/// Returns event `number` with its key, one of twenty.
fn numbered(topic: &str, number: u64) -> Message {
    let key = format!("key-{}", number % KEYS);
    let payload = format!(r#"{{"number":{number}}}"#);
    Message { key: Some(key.into()), ..Message::new(topic, payload) }
}

/// Publishes these numbers, those of each key one after the other. All must be accepted.
async fn publish(provider: &Kafka, topic: &str, numbers: std::ops::Range<u64>) {
    let of_key = |key: u64| {
        let numbers = numbers.clone().filter(move |number| number % KEYS == key);
        async move {
            for number in numbers {
                let publication = provider.publish(numbered(topic, number));
                within("an event is taken", publication).await.expect("the broker takes it");
            }
        }
    };
    join_all((0..KEYS).map(of_key)).await;
}

async fn message(stream: &mut EventStream) -> SourceMessage {
    let message = within("a message comes", stream.messages.recv()).await;
    message.expect("the stream says why it ends")
}

/// Returns the next event. Only offsets may come before it.
async fn event(stream: &mut EventStream) -> Arc<Event> {
    loop {
        match message(stream).await {
            SourceMessage::Event(event) => return event,
            SourceMessage::Progress(_) => {}
            other => panic!("no event: {other:?}"),
        }
    }
}

/// Returns the end of the stream. Only offsets may come before it, and nothing follows.
async fn end(stream: &mut EventStream) -> StreamEnd {
    let end = loop {
        match message(stream).await {
            SourceMessage::End(end) => break end,
            SourceMessage::Progress(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(within("the stream closes", stream.messages.recv()).await, None);
    end
}

fn number(event: &Arc<Event>) -> u64 {
    let text = std::str::from_utf8(&event.payload).expect("text");
    let digits = text.trim_matches(|c: char| !c.is_ascii_digit());
    digits.parse().expect("a number")
}

/// The events of a stream: each number once, in order for each key, with growing offsets in each partition.
#[derive(Default)]
struct Seen {
    numbers: BTreeSet<u64>,
    latest: BTreeMap<u64, u64>,
    position: Position,
}

impl Seen {
    async fn read(&mut self, stream: &mut EventStream, events: usize) {
        for _ in 0..events {
            let event = event(stream).await;
            let number = number(&event);
            assert!(self.numbers.insert(number), "{number} came twice");
            let before = self.latest.insert(number % KEYS, number);
            assert!(before < Some(number), "{number} came after {before:?}");
            let partition_offset = event.partition_offset.expect("an offset");
            assert!(self.position.advance(partition_offset), "{number} goes back");
        }
    }
}

/// Reads exactly these numbers, each once and in order for each key. Returns the position.
async fn expect_numbers(stream: &mut EventStream, numbers: std::ops::Range<u64>) -> Position {
    let mut seen = Seen::default();
    seen.read(stream, numbers.clone().count()).await;
    assert_eq!(seen.numbers, numbers.collect());
    seen.position
}

/// Returns the offsets before the first event.
async fn baseline(stream: &mut EventStream, partitions: usize) -> Vec<PartitionOffset> {
    let mut partition_offsets = Vec::new();
    for _ in 0..partitions {
        match message(stream).await {
            SourceMessage::Progress(partition_offset) => partition_offsets.push(partition_offset),
            other => panic!("no offset: {other:?}"),
        }
    }
    partition_offsets
}

fn partition_offset(partition: u32, offset: u64) -> PartitionOffset {
    PartitionOffset { partition, offset, part: 0 }
}

#[tokio::test]
async fn events_published_after_subscribing_arrive_in_the_order_of_each_key() {
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    admin.create("live", 4).await;
    let provider = provider(broker).await;
    publish(&provider, "live", 0..100).await;
    let mut stream = subscribe(&provider, wanted(&["live"])).await;
    publish(&provider, "live", 100..5100).await;
    let position = expect_numbers(&mut stream, 100..5100).await;
    // The stream has everything: the broker's end was reached in each partition.
    let ends = admin.ends("live", 4);
    let read =
        position.partition_offsets().iter().map(|partition_offset| partition_offset.offset + 1);
    assert_eq!(read.collect::<Vec<_>>(), ends);
    assert_eq!(ends.iter().sum::<u64>(), 5100);
    assert_eq!(provider.stats().published.load(Relaxed), 5100);
    assert_eq!(provider.stats().received.load(Relaxed), 5000);
    assert_eq!(provider.stats().streams.load(Relaxed), 1);
    drop(stream);
    eventually("the stream is gone", || provider.stats().streams.load(Relaxed) == 0).await;
}

#[tokio::test]
async fn an_event_keeps_its_key_headers_and_time() {
    let Some(broker) = KafkaBroker::shared() else { return };
    Admin::of(broker).create("whole", 2).await;
    let provider = provider(broker).await;
    let mut stream = subscribe(&provider, wanted(&["whole"])).await;
    let sent = Message {
        key: Some("k".into()),
        headers: vec![("traceparent".into(), "00-a".into()), ("empty".into(), "".into())],
        ..Message::new("whole", "payload")
    };
    let before = SystemTime::now();
    provider.publish(sent.clone()).await.expect("taken");
    let got = event(&mut stream).await;
    assert_eq!((&*got.topic, &got.payload, &got.key), ("whole", &sent.payload, &sent.key));
    assert_eq!(got.headers.as_deref(), Some(&sent.headers));
    let published = got.published.expect("a time");
    assert!(published + Duration::from_secs(1) > before && published <= SystemTime::now());
}

#[tokio::test]
async fn a_stream_begins_at_its_configured_start() {
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    admin.create("begin-a", 1).await;
    admin.create("begin-b", 1).await;
    let provider = provider(broker).await;
    publish(&provider, "begin-a", 0..10).await;
    publish(&provider, "begin-b", 10..20).await;
    let times = subscribe(&provider, wanted(&["begin-a"]).with_start(Start::All)).await;
    let times: Vec<_> = {
        let mut times = times;
        let mut of = Vec::new();
        for _ in 0..10 {
            of.push(event(&mut times).await.published.expect("a time"));
        }
        of
    };
    // This is the first event with the latest time, because the events of one request share it.
    let since = times.iter().position(|time| time == &times[9]).expect("itself") as u64;

    let both = ["begin-b", "begin-a", "begin-b"];
    let after: Position =
        [partition_offset(0, 6), partition_offset(1 << 16, 7)].into_iter().collect();
    for (start, partition_offsets, expected) in [
        (Start::New, vec![partition_offset(0, 9), partition_offset(1 << 16, 9)], vec![]),
        (Start::All, vec![], (0..20).collect()),
        (
            Start::At(8),
            vec![partition_offset(0, 7), partition_offset(1 << 16, 7)],
            vec![8, 9, 18, 19],
        ),
        (
            Start::After(after),
            vec![partition_offset(0, 6), partition_offset(1 << 16, 7)],
            vec![7, 8, 9, 18, 19],
        ),
    ] {
        let shown = format!("{start:?}");
        let mut stream = subscribe(&provider, wanted(&both).with_start(start)).await;
        let mut found = baseline(&mut stream, partition_offsets.len()).await;
        found.sort();
        assert_eq!(found, partition_offsets, "{shown}");
        let mut numbers = Vec::new();
        for _ in 0..expected.len() {
            numbers.push(number(&event(&mut stream).await));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, expected, "{shown}");
    }
    let start = Start::Since(times[9]);
    let mut stream = subscribe(&provider, wanted(&["begin-a"]).with_start(start)).await;
    assert_eq!(number(&event(&mut stream).await), since);
    let mut stream = subscribe(&provider, wanted(&both).with_start(Start::Last)).await;
    assert_eq!(number(&event(&mut stream).await), 19);
    let mut stream = subscribe(&provider, wanted(&both).with_start(Start::LastPerTopic)).await;
    let last = [number(&event(&mut stream).await), number(&event(&mut stream).await)];
    assert_eq!(last, [9, 19]);
    publish(&provider, "begin-a", 20..21).await;
    assert_eq!(number(&event(&mut stream).await), 20);
}

#[tokio::test]
async fn a_stream_that_joins_the_others_receives_a_whole_burst_of_stored_events() {
    let Some(broker) = KafkaBroker::shared() else { return };
    Admin::of(broker).create("burst", 1).await;
    let provider = provider(broker).await;
    publish(&provider, "burst", 0..480).await;
    let mut live = subscribe(&provider, wanted(&["burst"])).await;
    for round in 0..20 {
        let mut stream = subscribe(&provider, wanted(&["burst"]).with_start(Start::All)).await;
        let position = expect_numbers(&mut stream, 0..480 + round).await;
        assert_eq!(position.partition_offsets(), [partition_offset(0, 479 + round)]);
        publish(&provider, "burst", 480 + round..481 + round).await;
        expect_numbers(&mut live, 480 + round..481 + round).await;
    }
}

#[tokio::test]
async fn a_stream_continues_after_a_position_without_loss_or_repetition() {
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    admin.create("resumed", 3).await;
    let provider = provider(broker).await;
    let mut live = subscribe(&provider, wanted(&["resumed"])).await;
    publish(&provider, "resumed", 0..3000).await;
    let mut first = subscribe(&provider, wanted(&["resumed"]).with_start(Start::All)).await;
    let mut seen = Seen::default();
    seen.read(&mut first, 1000).await;
    drop(first);
    let resumed = wanted(&["resumed"]).with_start(Start::After(seen.position.clone()));
    let mut second = subscribe(&provider, resumed).await;
    // These are published while the others are read again.
    publish(&provider, "resumed", 3000..4000).await;
    seen.read(&mut second, 3000).await;
    assert_eq!(seen.numbers, (0..4000).collect());
    // The stream that was open all along is not affected, not even when the other one joined.
    expect_numbers(&mut live, 0..4000).await;
    publish(&provider, "resumed", 4000..4100).await;
    expect_numbers(&mut second, 4000..4100).await;
    expect_numbers(&mut live, 4000..4100).await;
}

#[tokio::test]
async fn a_position_before_deleted_events_or_behind_the_end_is_gone() {
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    admin.create("forgotten", 1).await;
    let provider = provider(broker).await;
    // One after the other: the number of an event is its offset.
    for number in 0..100 {
        publish(&provider, "forgotten", number..number + 1).await;
    }
    admin.forget("forgotten", 50).await;
    let start = |offset: u64| {
        let after = [partition_offset(0, offset)].into_iter().collect();
        provider.subscribe(wanted(&["forgotten"]).with_start(Start::After(after)))
    };
    let gone = SourceError::Gone { provider: "kafka/default".into() };
    assert_eq!(start(48).await.unwrap_err(), gone);
    assert_eq!(start(100).await.unwrap_err(), gone);
    let another_partition = [partition_offset(1, 0)].into_iter().collect();
    let start_elsewhere = wanted(&["forgotten"]).with_start(Start::After(another_partition));
    assert_eq!(provider.subscribe(start_elsewhere).await.unwrap_err(), gone);
    let mut stream = start(49).await.expect("all of it is there");
    assert_eq!(number(&event(&mut stream).await), 50);
    start(99).await.expect("the end is there");
}

#[tokio::test]
async fn a_slow_stream_gets_everything_and_does_not_delay_others() {
    let Some(broker) = KafkaBroker::shared() else { return };
    Admin::of(broker).create("slow", 2).await;
    let provider =
        connected(KafkaSettings { queue_events: 16, ..settings(broker.address()) }).await;
    let mut slow = subscribe(&provider, wanted(&["slow"])).await;
    let mut quick = subscribe(&provider, wanted(&["slow"])).await;
    let publishing = publish(&provider, "slow", 0..3000);
    let (_, ()) = tokio::join!(expect_numbers(&mut quick, 0..3000), publishing);
    // Nothing of it was read so far.
    expect_numbers(&mut slow, 0..3000).await;
    let both = publish(&provider, "slow", 3000..3010);
    let (_, ()) = tokio::join!(expect_numbers(&mut quick, 3000..3010), both);
    expect_numbers(&mut slow, 3000..3010).await;
    assert_eq!(provider.stats().dropped.load(Relaxed), 0);
}

#[tokio::test]
async fn a_slow_stream_waits_for_a_free_dedicated_consumer_and_loses_nothing() {
    let Some(broker) = KafkaBroker::shared() else { return };
    Admin::of(broker).create("crowded", 1).await;
    let fetch = KafkaFetch { readers: 1, ..settings(String::new()).fetch };
    let few = KafkaSettings { queue_events: 16, fetch, ..settings(broker.address()) };
    let provider = connected(few).await;
    publish(&provider, "crowded", 0..1000).await;
    // This stream takes the only dedicated consumer and never reads.
    let all = wanted(&["crowded"]).with_start(Start::All);
    let past = subscribe(&provider, all.clone()).await;
    let refused = provider.subscribe(all).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "provider kafka/default is not connected: 1 streams are already being read from the past"
    );
    let mut live = subscribe(&provider, wanted(&["crowded"])).await;
    publish(&provider, "crowded", 1000..1100).await;
    // The events that fit into its queue come at once, the others when a dedicated consumer is free.
    expect_numbers(&mut live, 1000..1016).await;
    publish(&provider, "crowded", 1100..1101).await;
    drop(past);
    expect_numbers(&mut live, 1016..1101).await;
    assert_eq!(provider.stats().dropped.load(Relaxed), 0);
    // The stream is read by the shared consumer again.
    publish(&provider, "crowded", 1101..1110).await;
    expect_numbers(&mut live, 1101..1110).await;
}

#[tokio::test]
async fn a_stream_that_waits_for_a_reader_ends_with_its_provider() {
    let Some(broker) = KafkaBroker::shared() else { return };
    Admin::of(broker).create("waiting", 1).await;
    let fetch = KafkaFetch { readers: 1, ..settings(String::new()).fetch };
    let few = KafkaSettings { queue_events: 16, fetch, ..settings(broker.address()) };
    let provider = connected(few).await;
    publish(&provider, "waiting", 0..1000).await;
    let _past = subscribe(&provider, wanted(&["waiting"]).with_start(Start::All)).await;
    let mut slow = subscribe(&provider, wanted(&["waiting"])).await;
    let mut quick = subscribe(&provider, wanted(&["waiting"])).await;
    // The quick stream gets more events than the slow one has room for: the slow one waits for the only dedicated
    // consumer.
    for first in (1000..1100).step_by(10) {
        publish(&provider, "waiting", first..first + 10).await;
        expect_numbers(&mut quick, first..first + 10).await;
    }
    drop(provider);
    // The events that fit into its queue come before the end.
    expect_numbers(&mut slow, 1000..1016).await;
    assert_eq!(end(&mut slow).await, StreamEnd::Closed);
}

#[tokio::test]
async fn a_new_partition_is_noticed_and_read_from_its_start() {
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    admin.create("growing", 1).await;
    let provider = provider(broker).await;
    let mut stream = subscribe(&provider, wanted(&["growing"])).await;
    publish(&provider, "growing", 0..100).await;
    expect_numbers(&mut stream, 0..100).await;
    admin.grow("growing", 4).await;
    // Another producer knows the new partitions. The first of their events exist before the provider checks.
    let other = connected(settings(broker.address())).await;
    publish(&other, "growing", 100..2000).await;
    let position = expect_numbers(&mut stream, 100..2000).await;
    assert!(position.partition_offsets().len() > 1, "{position:?}");
}

#[tokio::test]
async fn streams_of_a_deleted_topic_end_and_others_continue() {
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    admin.create("deleted", 2).await;
    admin.create("kept", 1).await;
    let provider = provider(broker).await;
    let mut both = subscribe(&provider, wanted(&["deleted", "kept"])).await;
    let mut kept = subscribe(&provider, wanted(&["kept"])).await;
    publish(&provider, "deleted", 0..10).await;
    expect_numbers(&mut both, 0..10).await;

    admin.delete("deleted").await;
    assert_eq!(end(&mut both).await, StreamEnd::Gone("deleted".into()));
    publish(&provider, "kept", 10..20).await;
    expect_numbers(&mut kept, 10..20).await;
    let refused = provider.subscribe(wanted(&["deleted"])).await.unwrap_err();
    assert_eq!(refused.to_string(), "provider kafka/default: there is no topic deleted");
}

#[tokio::test]
async fn streams_of_a_topic_that_may_be_seen_but_not_read_end_with_a_reason_and_others_continue() {
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    admin.create("hidden", 2).await;
    admin.create("visible", 1).await;
    let as_user = as_user(broker);
    let provider = connected(as_user.clone()).await;
    // This provider may write everywhere.
    let publisher = self::provider(broker).await;
    let mut visible = subscribe(&provider, wanted(&["visible"])).await;
    let mut both = subscribe(&provider, wanted(&["hidden", "visible"])).await;
    publish(&publisher, "hidden", 0..10).await;
    expect_numbers(&mut both, 0..10).await;

    broker.hide_events("hidden", true);
    let refusal = "hidden: the broker does not allow the router to read it";
    assert_eq!(end(&mut both).await, StreamEnd::Refused(refusal.into()));
    let refused = provider.subscribe(wanted(&["hidden"])).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("provider kafka/default: {refusal}"));
    publish(&publisher, "visible", 10..20).await;
    expect_numbers(&mut visible, 10..20).await;

    // This stream begins before the permissions change.
    let start = wanted(&["hidden"]).with_start(Start::All);
    let another = connected(as_user).await;
    let mut past = subscribe(&another, start).await;
    assert_eq!(end(&mut past).await, StreamEnd::Refused(refusal.into()));

    broker.hide_events("hidden", false);
    let again = async {
        loop {
            if let Ok(stream) = provider.subscribe(wanted(&["hidden"])).await {
                break stream;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut again = within("it may be read again", again).await;
    publish(&publisher, "hidden", 20..30).await;
    expect_numbers(&mut again, 20..30).await;
}

#[tokio::test]
async fn nothing_is_lost_while_the_broker_restarts_and_a_provider_started_meanwhile_connects_later()
{
    let Some(mut broker) = KafkaBroker::start() else { return };
    Admin::of(&broker).create("restarted", 3).await;
    let provider = provider(&broker).await;
    let mut stream = subscribe(&provider, wanted(&["restarted"])).await;
    publish(&provider, "restarted", 0..3000).await;
    let mut seen = Seen::default();
    seen.read(&mut stream, 1000).await;
    broker.stop();
    eventually("the loss is noticed", || !provider.is_connected()).await;
    assert_eq!(provider.stats().state(), ProviderState::Disconnected);
    let refused = provider.subscribe(wanted(&["restarted"])).await.unwrap_err();
    assert!(matches!(refused, SourceError::Unavailable { .. }), "{refused}");
    let refused = provider.publish(numbered("restarted", 0)).await.unwrap_err();
    assert!(matches!(refused, PublishError::Unavailable { .. }), "{refused}");

    let later = Kafka::start(settings(broker.address())).expect("the settings are right");
    let refused = later.subscribe(wanted(&["restarted"])).await.unwrap_err();
    assert!(matches!(refused, SourceError::Unavailable { .. }), "{refused}");
    assert_eq!(later.stats().state(), ProviderState::Connecting);
    assert!(later.stats().errors(ErrorKind::Connection) > 0);

    broker.restart();
    eventually("it connects again", || provider.is_connected()).await;
    eventually("the other one connects", || later.is_connected()).await;
    let mut of_later = subscribe(&later, wanted(&["restarted"])).await;
    publish(&provider, "restarted", 3000..6000).await;
    expect_numbers(&mut of_later, 3000..6000).await;
    seen.read(&mut stream, 5000).await;
    assert_eq!(seen.numbers, (0..6000).collect());
    assert!(provider.stats().reconnects.load(Relaxed) > 0);
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
}

#[tokio::test]
async fn each_of_two_routers_sees_every_event() {
    let Some(broker) = KafkaBroker::shared() else { return };
    Admin::of(broker).create("twice", 3).await;
    let (one, two) = tokio::join!(provider(broker), provider(broker));
    let mut of_one = subscribe(&one, wanted(&["twice"])).await;
    let mut of_two = subscribe(&two, wanted(&["twice"])).await;
    let publishing = async {
        publish(&one, "twice", 0..1000).await;
        publish(&two, "twice", 1000..2000).await;
    };
    let reading = async {
        let one = expect_numbers(&mut of_one, 0..2000).await;
        let two = expect_numbers(&mut of_two, 0..2000).await;
        assert_eq!(one, two);
    };
    tokio::join!(publishing, reading);
}

#[tokio::test]
async fn events_deleted_by_the_broker_while_a_stream_waits_are_announced_as_a_gap() {
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    admin.create("outdated", 1).await;
    let fetch = KafkaFetch { queue_bytes: 4096, response_bytes: 4096, ..settings("".into()).fetch };
    let small = KafkaSettings { queue_events: 8, fetch, ..settings(broker.address()) };
    let provider = connected(small).await;
    let mut slow = subscribe(&provider, wanted(&["outdated"])).await;
    publish(&provider, "outdated", 0..20_000).await;
    admin.forget("outdated", 19_990).await;
    let mut offsets = Vec::new();
    let mut gaps = 0;
    while offsets.last() != Some(&19_999) {
        match message(&mut slow).await {
            SourceMessage::Event(event) => {
                offsets.push(event.partition_offset.expect("an offset").offset);
            }
            SourceMessage::Progress(_) => {}
            SourceMessage::Gap => {
                gaps += 1;
                assert_eq!(offsets, (0..offsets.len() as u64).collect::<Vec<_>>());
                offsets.clear();
            }
            SourceMessage::End(end) => panic!("{end}"),
        }
    }
    assert_eq!((gaps, offsets), (1, (19_990..20_000).collect()));
}

#[tokio::test]
async fn publications_that_the_broker_refuses_fail_with_its_reason() {
    let Some(broker) = KafkaBroker::shared() else { return };
    Admin::of(broker).create("publishing", 1).await;
    let provider = provider(broker).await;
    for (message, reason) in [
        (Message::new("no-such-topic", "x"), "there is no such topic"),
        (
            Message::new("a b", "x"),
            "it has characters other than letters, digits, `.`, `_` and `-`",
        ),
        (
            Message::new("publishing", vec![b'x'; 2 * 1024 * 1024]),
            "it is larger than the broker accepts",
        ),
    ] {
        let topic = message.topic.clone();
        let refused = provider.publish(message).await.unwrap_err();
        let (provider, reason) = ("kafka/default".into(), reason.into());
        assert_eq!(refused, PublishError::Refused { provider, topic, reason });
    }
    publish(&provider, "publishing", 0..1).await;
}

/// Returns a token without claims and signature, which the broker's plainest handler accepts.
fn unsecured_token() -> String {
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let claims =
        format!(r#"{{"sub":"starling","iat":{},"exp":{}}}"#, now.as_secs(), now.as_secs() + 3600);
    format!("{}.{}.", encode(r#"{"alg":"none"}"#), encode(&claims))
}

#[tokio::test]
async fn every_kind_of_credentials_works_over_tls_and_wrong_ones_are_reported() {
    let Some(broker) = KafkaBroker::shared() else { return };
    Admin::of(broker).create("secured", 1).await;
    let certificates = test_kit::certificates();
    let tls = |ca: &str| BrokerTls { ca: Some(certificates.join(ca)), ..BrokerTls::default() };
    let user = |password: &str| KafkaUser { username: USER.into(), password: password.into() };
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), unsecured_token() + "\n").expect("written");
    let secured = |tls: BrokerTls, authentication| KafkaSettings {
        tls: Some(tls),
        authentication: Some(authentication),
        ..settings(broker.secure_address())
    };
    let ways = [
        KafkaAuthentication::Plain(user(PASSWORD)),
        KafkaAuthentication::ScramSha256(user(PASSWORD)),
        KafkaAuthentication::ScramSha512(user(PASSWORD)),
        KafkaAuthentication::Token(unsecured_token().into()),
        KafkaAuthentication::TokenFile(file.path().to_owned()),
    ];
    for (way, begin) in ways.into_iter().zip((0..).step_by(10)) {
        let provider = connected(secured(tls("ca.pem"), way)).await;
        let mut stream = subscribe(&provider, wanted(&["secured"])).await;
        publish(&provider, "secured", begin..begin + 10).await;
        expect_numbers(&mut stream, begin..begin + 10).await;
    }
    for (tls, way) in [
        (tls("ca.pem"), KafkaAuthentication::Plain(user("wrong horse"))),
        (tls("ca.pem"), KafkaAuthentication::ScramSha512(user("wrong horse"))),
        (tls("other.pem"), KafkaAuthentication::Plain(user(PASSWORD))),
    ] {
        let provider = Kafka::start(secured(tls, way)).expect("the settings are right");
        let told = async {
            loop {
                let refused = provider.subscribe(wanted(&["secured"])).await.unwrap_err();
                let told = refused.to_string();
                assert!(!told.contains("horse"), "{told}");
                if told.contains("uthentication failed")
                    || told.contains("certificate verify failed")
                {
                    break;
                }
            }
        };
        within("the reason is told", told).await;
    }
}
