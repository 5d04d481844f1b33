//! JetStream streams against a real `nats-server -js`: where reading begins, and that no event is lost or repeated
//! whatever happens to the broker, the connection and the consumer.

mod durable_consumers;
mod failures;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use async_nats::jetstream::{self, Context, consumer, stream};
use events::{
    Durable, Event, EventStream, Message, Nats, NatsSettings, PartitionOffset, Position, Provider,
    SourceError, SourceMessage, Start, StreamEnd, StreamRequest,
};
use futures_util::StreamExt;

use tempfile::TempDir;
use test_kit::nats::NatsServer;

use super::{PATIENCE, cuttable_proxy, eventually, next, settings, write_file};

/// A broker with a stream `ORDERS` for `orders.>`, and an administrator's client.
struct Broker {
    folder: TempDir,
    server: NatsServer,
    admin: Context,
}

impl Broker {
    async fn start() -> Option<Self> {
        let broker = Self::without_stream().await?;
        broker.create(stream_config()).await;
        Some(broker)
    }

    async fn without_stream() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let server = NatsServer::start_with_jetstream(-1, folder.path())?;
        let admin = admin(&server).await;
        Some(Self { folder, server, admin })
    }

    async fn create(&self, config: stream::Config) {
        self.admin.create_stream(config).await.expect("a stream");
    }

    /// Restarts the broker at the same port: with SIGKILL if `kill`, otherwise as an administrator would.
    async fn restart(self, kill: bool) -> Self {
        let Self { folder, server, admin: _ } = self;
        let port = if kill { server.kill() } else { server.stop() };
        let server = restart_with_jetstream(port, &folder);
        let admin = admin(&server).await;
        Self { folder, server, admin }
    }

    fn provider(&self) -> Nats {
        Nats::start(settings(&self.server.url())).expect("the settings are right")
    }

    /// Publishes the numbers to `orders.1` and waits until all are stored.
    async fn publish(&self, numbers: std::ops::RangeInclusive<u64>) {
        for number in numbers {
            self.publish_to("orders.1", &number.to_string()).await;
        }
    }

    async fn publish_to(&self, subject: &str, payload: &str) {
        let stored = self.admin.publish(subject.to_owned(), payload.to_owned().into()).await;
        stored.expect("published").await.expect("stored");
    }

    async fn consumers(&self) -> Vec<consumer::Info> {
        let stream = self.admin.get_stream("ORDERS").await.expect("the stream");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let read: Vec<_> = stream.consumers().collect().await;
            // The client cannot read the broker's list while one of its consumers is being made or removed.
            match read.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(consumers) => return consumers,
                Err(error) => assert!(Instant::now() < deadline, "its consumers: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn restart_with_jetstream(port: u16, folder: &TempDir) -> NatsServer {
    NatsServer::start_with_jetstream(port.into(), folder.path()).expect("it is installed")
}

async fn admin(server: &NatsServer) -> Context {
    jetstream::new(async_nats::connect(server.url()).await.expect("the broker is there"))
}

fn stream_config() -> stream::Config {
    stream::Config {
        name: "ORDERS".into(),
        subjects: vec!["orders.>".into()],
        ..stream::Config::default()
    }
}

fn wanted(topics: &[&str], start: Start) -> StreamRequest {
    let topics = topics.iter().map(|&topic| topic.into()).collect();
    StreamRequest { durable: Some(Arc::default()), ..StreamRequest::new(topics).with_start(start) }
}

fn with_consumer(consumer: &str) -> StreamRequest {
    let durable = Durable { consumer: Some(consumer.into()), ..Durable::default() };
    StreamRequest { durable: Some(Arc::new(durable)), ..wanted(&["orders.>"], Start::All) }
}

async fn open(provider: &Nats, wanted: StreamRequest) -> EventStream {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match provider.subscribe(wanted.clone()).await {
            // The JetStream of a broker that was just started may not be ready.
            Err(SourceError::Unavailable { reason, .. }) => {
                assert!(tokio::time::Instant::now() < deadline, "{reason}");
            }
            result => return result.expect("it opens"),
        }
    }
}

/// Returns the first message, which is the position where the stream begins.
async fn position(stream: &mut EventStream) -> u64 {
    match tokio::time::timeout(PATIENCE, stream.messages.recv()).await.expect("in time") {
        Some(SourceMessage::Progress(partition_offset)) => partition_offset.offset,
        other => panic!("a position comes first: {other:?}"),
    }
}

async fn next_event(stream: &mut EventStream) -> Arc<Event> {
    loop {
        match tokio::time::timeout(PATIENCE, stream.messages.recv()).await.expect("in time") {
            Some(SourceMessage::Event(event)) => return event,
            Some(SourceMessage::Progress(_)) => {}
            other => panic!("an event: {other:?}"),
        }
    }
}

fn number(event: &Arc<Event>) -> u64 {
    std::str::from_utf8(&event.payload).expect("text").parse().expect("a number")
}

/// Reads the stream up to the last of these numbers: each once, in order, and without a gap.
async fn expect_all(stream: &mut EventStream, numbers: std::ops::RangeInclusive<u64>) {
    for expected in numbers {
        let event = next_event(stream).await;
        assert_eq!(number(&event), expected);
    }
}

#[tokio::test]
async fn a_stream_begins_at_its_configured_start() {
    let Some(broker) = Broker::start().await else { return };
    for number in 1..=5 {
        broker.publish_to(&format!("orders.{}", number % 2), &number.to_string()).await;
    }
    let fifth = SystemTime::now();
    for number in 6..=10 {
        broker.publish_to(&format!("orders.{}", number % 2), &number.to_string()).await;
    }
    let provider = broker.provider();
    let mut streams = BTreeMap::new();
    let one = ["orders.1"];
    let all = ["orders.*"];
    for (name, topics, start, expected_position) in [
        ("new", &all, Start::New, 10),
        ("all", &all, Start::All, 0),
        ("last", &all, Start::Last, 9),
        ("last of one", &one, Start::Last, 8),
        ("last of each", &all, Start::LastPerTopic, 8),
        ("since", &all, Start::Since(fifth), 5),
        ("at", &all, Start::At(4), 3),
        ("at what is to come", &all, Start::At(1000), 10),
        ("all of one", &one, Start::All, 0),
    ] {
        let mut stream = open(&provider, wanted(topics, start)).await;
        assert_eq!(position(&mut stream).await, expected_position, "{name}");
        streams.insert(name, stream);
    }
    broker.publish_to("orders.1", "11").await;
    for (name, expected) in [
        ("new", vec![11]),
        ("all", (1..=11).collect()),
        ("last", vec![10, 11]),
        ("last of one", vec![9, 11]),
        ("last of each", vec![9, 10, 11]),
        ("since", (6..=11).collect()),
        ("at", (4..=11).collect()),
        ("at what is to come", vec![11]),
        ("all of one", vec![1, 3, 5, 7, 9, 11]),
    ] {
        let stream = streams.get_mut(name).expect("it is open");
        for number in expected {
            let event = next_event(stream).await;
            let offset = event
                .partition_offset
                .map(|partition_offset| (partition_offset.partition, partition_offset.offset));
            assert_eq!((self::number(&event), offset), (number, Some((0, number))), "{name}");
            assert_eq!(*event.topic, *format!("orders.{}", number % 2), "{name}");
            assert!(event.published.is_some());
        }
    }
    assert!(provider.replays(Some(&Durable::default())) && !provider.replays(None));
    assert_eq!(provider.stats().streams.load(Relaxed), 9);
    drop(streams);
    eventually("they are closed", || provider.stats().streams.load(Relaxed) == 0).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !broker.consumers().await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "consumers are left behind");
    }
}

#[tokio::test]
async fn a_position_is_resumed_after_or_gone() {
    let Some(broker) = Broker::start().await else { return };
    broker.publish(1..=100).await;
    let provider = broker.provider();
    let mut first = open(&provider, wanted(&["orders.1"], Start::All)).await;
    expect_all(&mut first, 1..=39).await;
    let partition_offset = next_event(&mut first).await.partition_offset.expect("it has one");
    let after = |partition_offset: PartitionOffset| {
        wanted(&["orders.1"], Start::After([partition_offset].into_iter().collect()))
    };

    let mut resumed = open(&provider, after(partition_offset)).await;
    assert_eq!(position(&mut resumed).await, 40);
    expect_all(&mut resumed, 41..=100).await;

    let mut at_the_end =
        open(&provider, after(PartitionOffset { offset: 100, ..partition_offset })).await;
    assert_eq!(position(&mut at_the_end).await, 100);
    let everything = wanted(&["orders.1"], Start::After(Position::default()));
    expect_all(&mut open(&provider, everything).await, 1..=100).await;

    let gone = SourceError::Gone { provider: "nats/default".into() };
    let to_come =
        provider.subscribe(after(PartitionOffset { offset: 101, ..partition_offset })).await;
    assert_eq!(to_come.unwrap_err(), gone, "what never was");

    let stream = broker.admin.get_stream("ORDERS").await.expect("the stream");
    stream.purge().sequence(42).await.expect("purged");
    assert_eq!(
        provider.subscribe(after(partition_offset)).await.unwrap_err(),
        gone,
        "41 is missing"
    );
    let mut just_in_time =
        open(&provider, after(PartitionOffset { offset: 41, ..partition_offset })).await;
    expect_all(&mut just_in_time, 42..=100).await;

    broker.admin.delete_stream("ORDERS").await.expect("deleted");
    broker.create(stream_config()).await;
    broker.publish(1..=100).await;
    let of_another_stream =
        provider.subscribe(after(PartitionOffset { offset: 50, ..partition_offset })).await;
    assert_eq!(of_another_stream.unwrap_err(), gone, "the numbers mean other events");
}

#[tokio::test]
async fn an_invalid_or_ambiguous_stream_is_refused_with_the_reason() {
    let Some(broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let other = stream::Config {
        name: "PLANES".into(),
        subjects: vec!["planes.>".into()],
        ..stream::Config::default()
    };
    broker.create(other).await;
    let named = |name: &str, topic: &str| {
        let durable = Durable { stream: Some(name.into()), ..Durable::default() };
        StreamRequest { durable: Some(Arc::new(durable)), ..wanted(&[topic], Start::New) }
    };
    for (wanted, reason) in [
        (wanted(&["flights"], Start::New), "no stream of JetStream has the subject"),
        (
            wanted(&["orders.1", "planes.1"], Start::New),
            "the subjects are in several streams (ORDERS, PLANES): name one",
        ),
        (
            wanted(&["*.1"], Start::New),
            "the subjects are in several streams (ORDERS, PLANES): name one",
        ),
        (named("FLIGHTS", "orders.1"), r#"JetStream has no stream "FLIGHTS""#),
        (named("A.B", "orders.1"), r#""A.B" cannot be the name of a stream"#),
    ] {
        let error = provider.subscribe(wanted).await.unwrap_err();
        let provider = "nats/default".into();
        assert_eq!(error, SourceError::Refused { provider, reason: reason.into() });
    }
    // The rest of the message is in the broker's words, which differ by version.
    let foreign = provider.subscribe(named("ORDERS", "planes.1")).await;
    if let Err(error) = foreign {
        assert!(
            matches!(&error, SourceError::Refused { reason, .. } if reason.starts_with("JetStream: ")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_broker_without_jetstream_is_reported() {
    let Some(server) = NatsServer::start() else { return };
    let provider = super::provider(&server);
    let error = provider.subscribe(wanted(&["orders.1"], Start::New)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "provider nats/default is not connected: JetStream: the broker has no JetStream for this user, or it is not ready yet"
    );
}

#[tokio::test]
async fn several_subjects_are_read_in_the_order_of_the_stream_without_the_others() {
    let Some(broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let mut exact = open(&provider, wanted(&["orders.1", "orders.3"], Start::All)).await;
    let mut overlapping = open(&provider, wanted(&["orders.*.a", "orders.3.*"], Start::All)).await;
    for number in 1..=3000_u64 {
        let subject = match number % 4 {
            0 => "orders.3.a".to_owned(),
            other => format!("orders.{other}"),
        };
        broker.publish_to(&subject, &number.to_string()).await;
    }
    for expected in (1..=3000).filter(|number| matches!(number % 4, 1 | 3)) {
        assert_eq!(number(&next_event(&mut exact).await), expected);
    }
    for expected in (1..=3000).filter(|number| number % 4 == 0) {
        assert_eq!(number(&next_event(&mut overlapping).await), expected);
    }
    let mut last = open(&provider, wanted(&["orders.1", "orders.3"], Start::Last)).await;
    assert_eq!(number(&next_event(&mut last).await), 2999);
}

#[tokio::test]
async fn a_position_advances_over_filtered_events() {
    let Some(broker) = Broker::start().await else { return };
    let idle = Duration::from_millis(600);
    let provider =
        Nats::start(NatsSettings { idle, ..settings(&broker.server.url()) }).expect("settings");
    let mut stream = open(&provider, wanted(&["orders.2"], Start::New)).await;
    assert_eq!(position(&mut stream).await, 0);
    broker.publish(1..=1000).await;
    let mut passed = 0;
    while passed < 1000 {
        passed = position(&mut stream).await;
    }
    assert_eq!(passed, 1000);
    // All events may be deleted without a gap.
    let orders = broker.admin.get_stream("ORDERS").await.expect("the stream");
    orders.purge().await.expect("purged");
    for consumer in broker.consumers().await {
        orders.delete_consumer(&consumer.name).await.expect("deleted");
    }
    broker.publish_to("orders.2", "1001").await;
    let event = next_event(&mut stream).await;
    assert_eq!(
        (number(&event), event.partition_offset.map(|partition_offset| partition_offset.offset)),
        (1001, Some(1001))
    );
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
}

/// Returns the second part of the offsets of `ORDERS`.
async fn created(broker: &Broker) -> u64 {
    let mut stream = broker.admin.get_stream("ORDERS").await.expect("the stream");
    let created = stream.info().await.expect("its state").created;
    u64::try_from(created.unix_timestamp_nanos()).expect("after 1970")
}

#[tokio::test]
async fn a_bounded_stream_ends_with_the_last_event_that_is_stored_when_it_is_opened() {
    let Some(broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let bounded = |topics: &[&str], start| StreamRequest { bounded: true, ..wanted(topics, start) };
    let complete = async |stream: &mut EventStream| loop {
        match tokio::time::timeout(PATIENCE, stream.messages.recv()).await.expect("in time") {
            Some(SourceMessage::Progress(_)) => {}
            Some(SourceMessage::End(end)) => break assert_eq!(end, StreamEnd::Complete),
            other => panic!("the end: {other:?}"),
        }
    };
    let mut empty = open(&provider, bounded(&["orders.>"], Start::All)).await;
    complete(&mut empty).await;
    broker.publish(1..=2000).await;
    broker.publish_to("orders.2", "7").await;
    let mut stream = open(&provider, bounded(&["orders.1"], Start::All)).await;
    broker.publish(2001..=2010).await;
    expect_all(&mut stream, 1..=2000).await;
    complete(&mut stream).await;
    let mut late = open(&provider, bounded(&["orders.1"], Start::At(2011))).await;
    broker.publish(2011..=2012).await;
    expect_all(&mut late, 2010..=2010).await;
    complete(&mut late).await;
    let mut new = open(&provider, bounded(&["orders.1"], Start::New)).await;
    complete(&mut new).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !broker.consumers().await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "a consumer stays");
    }
}

#[tokio::test]
async fn a_bucket_is_watched_by_key_and_deletions_are_skipped() {
    let Some(broker) = Broker::without_stream().await else { return };
    // The configuration as clients make it; the router's client library sends more than servers before 2.10 know.
    let bucket = stream::Config {
        name: "KV_planes".into(),
        subjects: vec!["$KV.planes.>".into()],
        max_messages_per_subject: 5,
        discard: stream::DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        ..stream::Config::default()
    };
    broker.create(bucket).await;
    let bucket = broker.admin.get_key_value("planes").await.expect("a bucket");
    for (key, value) in [("ST1", "a"), ("ST2", "b"), ("ST1", "c"), ("ST3", "d")] {
        bucket.put(key, value.into()).await.expect("put");
    }
    bucket.delete("ST3").await.expect("deleted");
    let provider = broker.provider();
    let mut watch = open(&provider, wanted(&["$KV.planes.>"], Start::LastPerTopic)).await;
    let event = next_event(&mut watch).await;
    assert_eq!((&*event.topic, &*event.payload), ("$KV.planes.ST2", &b"b"[..]));
    assert_eq!(event.key.as_deref(), Some(&b"ST2"[..]));
    assert_eq!(next_event(&mut watch).await.payload, "c");
    loop {
        match next(&mut watch).await.as_str() {
            "passed 5" => break,
            "passed 1" => {}
            other => panic!("the deletion is passed over: {other}"),
        }
    }
    bucket.purge("ST2").await.expect("purged");
    bucket.put("ST4", "e".into()).await.expect("put");
    assert_eq!(next_event(&mut watch).await.payload, "e");
}

#[tokio::test]
async fn a_payload_of_any_form_and_10_mb_passes_unharmed_where_the_broker_takes_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = write_file(&folder, "large.conf", "max_payload: 16MB");
    let store = folder.path().to_str().expect("a plain path");
    let arguments = ["-c", &config, "-js", "-sd", store];
    let Some(server) = NatsServer::start_with(-1, &arguments) else { return };
    let admin = admin(&server).await;
    admin.create_stream(stream_config()).await.expect("a stream");
    let provider = super::provider(&server);
    let mut stream = open(&provider, wanted(&["orders.>"], Start::New)).await;
    let large: Vec<u8> = (0..10_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let payloads = [
        b"".to_vec(),
        b"{not json".to_vec(),
        vec![0, 255, 13, 10],
        large.clone(),
        b"after".to_vec(),
    ];
    for payload in &payloads {
        provider.publish(Message::new("orders.1", payload.clone())).await.expect("published");
    }
    for payload in &payloads {
        assert!(next_event(&mut stream).await.payload == *payload, "{} bytes", payload.len());
    }
    // These are more bytes than one request may bring.
    for _ in 0..8 {
        provider.publish(Message::new("orders.1", large.clone())).await.expect("published");
    }
    for _ in 0..8 {
        assert!(next_event(&mut stream).await.payload == large);
    }
}

#[tokio::test]
async fn publishing_waits_for_the_stream_where_that_is_configured() {
    let Some(broker) = Broker::start().await else { return };
    let provider =
        Nats::start(NatsSettings { publish_ack: true, ..settings(&broker.server.url()) })
            .expect("settings");
    let headers = vec![("traceparent".into(), "00-1".into())];
    let message = Message { headers: headers.clone(), ..Message::new("orders.1", "1") };
    provider.publish(message).await.expect("stored");
    let mut stream = open(&provider, wanted(&["orders.1"], Start::All)).await;
    let event = next_event(&mut stream).await;
    assert_eq!((number(&event), event.headers.as_deref()), (1, Some(&headers)));
    let error = provider.publish(Message::new("planes.1", "1")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "provider nats/default refused the event for topic \"planes.1\": no stream of JetStream has that subject"
    );
    let full =
        stream::Config { max_messages: 1, discard: stream::DiscardPolicy::New, ..stream_config() };
    broker.admin.update_stream(full).await.expect("updated");
    let error = provider.publish(Message::new("orders.1", "2")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "provider nats/default refused the event for topic \"orders.1\": maximum messages exceeded"
    );
    assert_eq!(provider.stats().published.load(Relaxed), 1);
}
