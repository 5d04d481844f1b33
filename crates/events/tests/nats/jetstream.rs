//! JetStream streams against a real `nats-server -js`: where reading begins, and that no event is lost or repeated
//! whatever happens to the broker, the connection and the consumer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

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
        stream.consumers().map(|info| info.expect("its consumers")).collect().await
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
        (wanted(&["flights"], Start::New), r#"no stream of JetStream has the subject "flights""#),
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
async fn a_broker_that_is_killed_or_stopped_and_started_loses_nothing() {
    let Some(mut broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let mut ephemeral = open(&provider, wanted(&["orders.>"], Start::New)).await;
    let mut durable = open(&provider, with_consumer("feed")).await;
    let mut published = 0;
    let mut read = 0;
    for kill in [true, false, true] {
        broker.publish(published + 1..=published + 1000).await;
        published += 1000;
        // The rest is on its way when the broker ends.
        expect_all(&mut ephemeral, read + 1..=published - 500).await;
        expect_all(&mut durable, read + 1..=published - 500).await;
        read = published - 500;
        broker = broker.restart(kill).await;
        broker.publish(published + 1..=published + 1000).await;
        published += 1000;
    }
    expect_all(&mut ephemeral, read + 1..=published).await;
    expect_all(&mut durable, read + 1..=published).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
    assert!(provider.stats().reconnects.load(Relaxed) >= 3);
}

#[tokio::test]
async fn a_durable_consumer_is_never_silent_however_often_the_broker_is_killed() {
    let Some(mut broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let mut stream = open(&provider, with_consumer("feed")).await;
    let mut read = 0;
    for round in 1..=20 {
        let published = round * 1000;
        broker.publish(published - 999..=published).await;
        // Everything is delivered, but the broker has not written all of that down when it ends.
        expect_all(&mut stream, read + 1..=published - 100).await;
        read = published - 100;
        broker = broker.restart(true).await;
    }
    expect_all(&mut stream, read + 1..=20_000).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
    // The durable consumer is kept.
    let consumers = broker.consumers().await;
    let [bookmark] = consumers.as_slice() else { panic!("one: {consumers:?}") };
    assert!(bookmark.config.durable_name.is_some());
}

#[tokio::test]
async fn a_durable_consumer_that_waits_for_acknowledgements_that_it_lost_continues() {
    let Some(broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let mut stream = open(&provider, with_consumer("feed")).await;
    broker.publish(1..=10).await;
    expect_all(&mut stream, 1..=10).await;
    let consumers = broker.consumers().await;
    let [bookmark] = consumers.as_slice() else { panic!("one: {consumers:?}") };
    // This is like the acknowledgement of a delivery that a killed broker has forgotten: earlier ones have no effect
    // any more.
    let of_the_future =
        format!("$JS.ACK.ORDERS.{}.1.100000.100000.1700000000000000000.0", bookmark.name);
    broker.admin.publish(of_the_future, "+ACK".into()).await.expect("published");
    broker.publish(11..=3000).await;
    expect_all(&mut stream, 11..=3000).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
}

#[tokio::test]
async fn a_connection_that_is_cut_loses_nothing_and_repeats_nothing() {
    let Some(broker) = Broker::start().await else { return };
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], broker.server.port()));
    let (proxy, cut) = cuttable_proxy(address).await;
    let provider = Nats::start(settings(&format!("nats://{proxy}"))).expect("settings");
    let mut ephemeral = open(&provider, wanted(&["orders.>"], Start::New)).await;
    let mut durable = open(&provider, with_consumer("feed")).await;
    for round in 0..10 {
        let first = round * 500 + 1;
        broker.publish(first..=first + 249).await;
        expect_all(&mut ephemeral, first..=first + 99).await;
        cut.notify_waiters();
        broker.publish(first + 250..=first + 499).await;
        expect_all(&mut ephemeral, first + 100..=first + 499).await;
    }
    expect_all(&mut durable, 1..=5000).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
    assert!(provider.stats().reconnects.load(Relaxed) >= 1);
}

#[tokio::test]
async fn a_stream_that_is_deleted_ends_and_a_consumer_that_is_deleted_is_made_again() {
    let Some(broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let mut ephemeral = open(&provider, wanted(&["orders.>"], Start::New)).await;
    let mut durable = open(&provider, with_consumer("feed")).await;
    for round in 0..5 {
        let first = round * 400 + 1;
        broker.publish(first..=first + 199).await;
        expect_all(&mut ephemeral, first..=first + 99).await;
        let stream = broker.admin.get_stream("ORDERS").await.expect("the stream");
        for consumer in broker.consumers().await {
            // A server that is writing the consumer's state at the same time fails to remove its folder (2.9).
            if let Err(error) = stream.delete_consumer(&consumer.name).await {
                assert!(error.to_string().contains("directory not empty"), "deleted: {error}");
            }
        }
        broker.publish(first + 200..=first + 399).await;
        expect_all(&mut ephemeral, first + 100..=first + 399).await;
    }
    expect_all(&mut durable, 1..=2000).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);

    // A consumer that is being made lets the server fail to remove the folder (2.9), so this is repeated.
    while let Err(error) = broker.admin.delete_stream("ORDERS").await {
        let is_busy = error.to_string().contains("directory not empty");
        assert!(is_busy, "deleted: {error}");
    }
    for stream in [&mut ephemeral, &mut durable] {
        let end = loop {
            match next(stream).await {
                passed if passed.starts_with("passed") => {}
                end => break end,
            }
        };
        assert_eq!(end, r#"stream "ORDERS" of JetStream was deleted"#);
    }
}

#[tokio::test]
async fn a_stream_that_is_created_again_while_no_client_is_connected_is_another_one() {
    let Some(broker) = Broker::start().await else { return };
    let provider = broker.provider();
    broker.publish(1..=10).await;
    let mut stream = open(&provider, wanted(&["orders.>"], Start::All)).await;
    expect_all(&mut stream, 1..=10).await;
    let Broker { folder, server, admin: _ } = broker;
    let port = server.kill();
    // Another store: its stream has the same name and other events.
    drop(folder);
    let folder = tempfile::tempdir().expect("a folder");
    let other_port = NatsServer::start_with_jetstream(-1, folder.path()).expect("it is installed");
    let admin = admin(&other_port).await;
    admin.create_stream(stream_config()).await.expect("a stream");
    other_port.stop();
    let _server = restart_with_jetstream(port, &folder);
    assert_eq!(next(&mut stream).await, r#"stream "ORDERS" of JetStream was deleted"#);
}

#[tokio::test]
async fn a_suspended_reader_leaves_events_at_the_broker_and_loses_none() {
    let Some(broker) = Broker::start().await else { return };
    let provider = Nats::start(NatsSettings { queue_events: 64, ..settings(&broker.server.url()) })
        .expect("settings");
    let mut slow = open(&provider, wanted(&["orders.>"], Start::New)).await;
    broker.publish(1..=5000).await;
    let left = broker.consumers().await.first().map(|consumer| consumer.num_pending);
    assert!(left.is_some_and(|left| left > 4500), "{left:?} are left at the broker");
    let lag = || match provider.stats().topics().as_slice() {
        [(name, topic)] if &**name == "orders.>" => topic.lag(),
        topics => panic!("one topic: {topics:?}"),
    };
    // The subscriber does not read, so the provider polls the broker.
    eventually("the lag is known", || lag().events.is_some_and(|events| events > 4500)).await;
    assert!(lag().time.is_some_and(|time| !time.is_zero()), "{:?}", lag());
    expect_all(&mut slow, 1..=5000).await;
    let caught_up = events::Lag { events: Some(0), time: Some(Duration::ZERO) };
    eventually("nothing is left", || lag() == caught_up).await;
    assert_eq!(provider.stats().topics()[0].1.received.load(Relaxed), 5000);
    assert_eq!(provider.stats().dropped.load(Relaxed), 0);
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
}

#[tokio::test]
async fn events_that_the_broker_dropped_while_no_client_was_connected_are_one_gap() {
    let Some(broker) = Broker::without_stream().await else { return };
    broker.create(stream::Config { max_messages: 100, ..stream_config() }).await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], broker.server.port()));
    let (proxy, cut) = cuttable_proxy(address).await;
    let provider = Nats::start(NatsSettings {
        // This leaves the broker time to drop events.
        retry: events::Retry { initial: Duration::from_secs(4), max: Duration::from_secs(4) },
        ..settings(&format!("nats://{proxy}"))
    })
    .expect("settings");
    let mut stream = open(&provider, wanted(&["orders.>"], Start::New)).await;
    broker.publish(1..=50).await;
    expect_all(&mut stream, 1..=50).await;
    cut.notify_waiters();
    eventually("it is away", || !provider.is_connected()).await;
    broker.publish(51..=1050).await;
    assert!(!provider.is_connected(), "publishing took longer than the first attempt waits");
    assert_eq!(next(&mut stream).await, "gap");
    expect_all(&mut stream, 951..=1050).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 1);
}

#[tokio::test]
async fn events_that_the_broker_dropped_before_a_slow_subscriber_read_them_are_a_gap() {
    for durable in [false, true] {
        let Some(broker) = Broker::without_stream().await else { return };
        broker.create(stream::Config { max_messages: 100, ..stream_config() }).await;
        let provider =
            Nats::start(NatsSettings { queue_events: 10, ..settings(&broker.server.url()) })
                .expect("settings");
        let wanted =
            if durable { with_consumer("feed") } else { wanted(&["orders.>"], Start::All) };
        let mut stream = open(&provider, wanted).await;
        broker.publish(1..=1000).await;
        let mut expected = 1;
        while expected <= 1000 {
            match next(&mut stream).await.as_str() {
                "gap" => expected = 901,
                passed if passed.starts_with("passed ") => {}
                event => {
                    assert_eq!(event, format!("orders.1 {expected}"));
                    expected += 1;
                }
            }
        }
        assert_eq!(provider.stats().gaps.load(Relaxed), 1);
    }
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

#[tokio::test]
async fn every_router_gets_everything_also_under_one_name() {
    let Some(broker) = Broker::start().await else { return };
    let router = |instance: &str| {
        let instance = Some(instance.into());
        Nats::start(NatsSettings { instance, ..settings(&broker.server.url()) }).expect("settings")
    };
    // The last two have the same name, as two routers on one machine without a configuration would have.
    let routers = ["a", "b", "c", "c"].map(router);
    let mut streams = Vec::new();
    for router in &routers {
        streams.push(open(router, with_consumer("feed")).await);
        streams.push(open(router, wanted(&["orders.>"], Start::All)).await);
    }
    let reading = streams.into_iter().map(|mut stream| {
        tokio::spawn(async move {
            expect_all(&mut stream, 1..=3000).await;
            stream
        })
    });
    let reading: Vec<_> = reading.collect();
    broker.publish(1..=3000).await;
    for reader in reading {
        reader.await.expect("everything, once, in order");
    }
    let durable: Vec<_> = broker
        .consumers()
        .await
        .into_iter()
        .filter_map(|consumer| consumer.config.durable_name)
        .collect();
    assert_eq!(durable.len(), 3, "{durable:?}");
}

#[tokio::test]
async fn the_last_event_reaches_every_router_under_one_name_although_nothing_follows_it() {
    let Some(broker) = Broker::start().await else { return };
    let router = || {
        let (instance, idle) = (Some("c".into()), Duration::from_millis(600));
        Nats::start(NatsSettings { instance, idle, ..settings(&broker.server.url()) })
            .expect("settings")
    };
    let routers = [router(), router()];
    let mut streams = Vec::new();
    for router in &routers {
        streams.push(open(router, with_consumer("feed")).await);
    }
    // The broker delivers each event to one of the two.
    for number in 1..=5 {
        broker.publish(number..=number).await;
        for stream in &mut streams {
            expect_all(stream, number..=number).await;
        }
    }
}

#[tokio::test]
async fn a_durable_consumer_that_another_router_replaces_by_a_later_one_loses_nothing() {
    let Some(broker) = Broker::start().await else { return };
    let provider = Nats::start(NatsSettings { queue_events: 1, ..settings(&broker.server.url()) })
        .expect("settings");
    let mut stream = open(&provider, with_consumer("feed")).await;
    assert_eq!(position(&mut stream).await, 0);
    broker.publish(1..=10).await;
    // Two events are in the queue and the reader holds a third, so no request waits at the broker.
    let info = loop {
        let consumers = broker.consumers().await;
        let [info] = consumers.as_slice() else { panic!("one: {consumers:?}") };
        if info.delivered.consumer_sequence == 3 && info.num_waiting == 0 {
            break info.clone();
        }
        tokio::task::yield_now().await;
    };
    let orders = broker.admin.get_stream("ORDERS").await.expect("the stream");
    orders.delete_consumer(&info.name).await.expect("deleted");
    let start = consumer::DeliverPolicy::ByStartSequence { start_sequence: 11 };
    let config = consumer::Config { deliver_policy: start, ..info.config };
    let pull = consumer::pull::Config {
        durable_name: config.durable_name,
        deliver_policy: config.deliver_policy,
        ack_policy: config.ack_policy,
        filter_subject: config.filter_subject,
        ..consumer::pull::Config::default()
    };
    let other = orders.create_consumer(pull).await.expect("created");
    broker.publish(11..=20).await;
    // The other router has as many deliveries, so the next one has the number that this router expects.
    let fetched = other.fetch().max_messages(3).messages().await.expect("a batch");
    assert_eq!(fetched.count().await, 3);
    expect_all(&mut stream, 1..=20).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
}

#[tokio::test]
async fn routers_that_create_one_durable_consumer_at_the_same_time_lose_nothing() {
    let Some(broker) = Broker::start().await else { return };
    let router = || {
        let instance = Some("c".into());
        Nats::start(NatsSettings { instance, ..settings(&broker.server.url()) }).expect("settings")
    };
    for round in 0..6 {
        let first = round * 100 + 1;
        let routers = [router(), router()];
        let new = StreamRequest { start: Start::New, ..with_consumer("feed") };
        let (a, b) = tokio::join!(open(&routers[0], new.clone()), open(&routers[1], new));
        broker.publish(first..=first + 39).await;
        let orders = broker.admin.get_stream("ORDERS").await.expect("the stream");
        for consumer in broker.consumers().await {
            // One of the routers may have replaced the consumer meanwhile.
            let _ = orders.delete_consumer(&consumer.name).await;
        }
        broker.publish(first + 40..=first + 99).await;
        for mut stream in [a, b] {
            expect_all(&mut stream, first..=first + 99).await;
        }
    }
}

#[tokio::test]
async fn a_durable_consumer_continues_where_its_router_ended() {
    let Some(broker) = Broker::start().await else { return };
    let router = || {
        let instance = Some("a".into());
        Nats::start(NatsSettings { instance, queue_events: 50, ..settings(&broker.server.url()) })
            .expect("settings")
    };
    let durable = Durable {
        consumer: Some("feed".into()),
        inactive_threshold: Some(Duration::from_secs(300)),
        ..Durable::default()
    };
    let wanted =
        StreamRequest { durable: Some(Arc::new(durable)), ..wanted(&["orders.>"], Start::All) };
    let provider = router();
    let mut stream = open(&provider, wanted.clone()).await;
    // The consumer exists: a second reader of this router must not take half of its events.
    let mut beside = open(&provider, wanted.clone()).await;
    broker.publish(1..=2000).await;
    expect_all(&mut stream, 1..=700).await;
    expect_all(&mut beside, 1..=2000).await;
    drop(provider);
    // Events that had entered the stream are acknowledged or not; this shows which.
    let mut latest = 700;
    while let Some(SourceMessage::Event(event)) = stream.messages.recv().await {
        latest += 1;
        assert_eq!(number(&event), latest);
    }
    broker.publish(2001..=2500).await;
    let provider = router();
    let mut stream = open(&provider, wanted).await;
    let first = number(&next_event(&mut stream).await);
    assert!(first <= latest + 1 && first > latest.saturating_sub(400), "{first} after {latest}");
    expect_all(&mut stream, first + 1..=2500).await;
    let config = broker.consumers().await.into_iter().map(|consumer| consumer.config);
    let durable = config.filter(|config| config.durable_name.is_some()).collect::<Vec<_>>();
    let [durable] = durable.as_slice() else { panic!("one: {durable:?}") };
    assert_eq!(durable.inactive_threshold, Duration::from_secs(300));
    assert!(durable.durable_name.as_deref().is_some_and(|name| name.starts_with("feed-a-")));
}

#[tokio::test]
async fn a_new_subscriber_gets_nothing_of_the_backlog_of_a_durable_consumer() {
    let Some(broker) = Broker::start().await else { return };
    let router = || {
        let instance = Some("a".into());
        Nats::start(NatsSettings { instance, ..settings(&broker.server.url()) }).expect("settings")
    };
    let new = || StreamRequest { start: Start::New, ..with_consumer("feed") };
    let provider = router();
    let mut stream = open(&provider, new()).await;
    broker.publish(1..=20).await;
    expect_all(&mut stream, 1..=20).await;
    drop((provider, stream));
    broker.publish(21..=500).await;
    for restart in 0..3 {
        let provider = router();
        let mut stream = open(&provider, new()).await;
        // The second time no event was published while no router was connected.
        let published = 500 + restart * 10;
        assert_eq!(position(&mut stream).await, published);
        broker.publish(published + 1..=published + 10).await;
        expect_all(&mut stream, published + 1..=published + 10).await;
    }
    let after = [PartitionOffset { partition: 0, offset: 20, part: created(&broker).await }];
    let after = Start::After(after.into_iter().collect());
    let provider = router();
    let mut stream = open(&provider, StreamRequest { start: after, ..with_consumer("feed") }).await;
    expect_all(&mut stream, 21..=530).await;
    let consumers = broker.consumers().await;
    let durable = consumers.iter().filter(|it| it.config.durable_name.is_some()).count();
    assert_eq!(durable, 1, "{consumers:?}");
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
