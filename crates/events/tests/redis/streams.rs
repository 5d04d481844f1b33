//! Redis Streams against a real `redis-server`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use events::{
    Durable, EventStream, Message, PartitionOffset, Position, Provider, Redis, RedisSettings,
    SourceError, SourceMessage, Start, StreamRequest,
};
use redis::aio::MultiplexedConnection;

use test_kit::redis::RedisServer;

use super::{PATIENCE, eventually, foreign_client, provider, settings, tell};

pub(crate) fn wanted(keys: &[&str], start: Start) -> StreamRequest {
    let durable = Some(Arc::new(Durable::default()));
    let topics = keys.iter().map(|&key| key.into()).collect();
    StreamRequest { durable, ..StreamRequest::new(topics).with_start(start) }
}

pub(crate) async fn open(provider: &Redis, keys: &[&str], start: Start) -> EventStream {
    provider.subscribe(wanted(keys, start)).await.expect("the broker is there")
}

async fn refused(provider: &Redis, keys: &[&str], start: Start) -> SourceError {
    provider.subscribe(wanted(keys, start)).await.expect_err("not to be opened")
}

/// Adds an entry with that id (`*`: the server chooses it). Returns its id.
async fn add(client: &mut MultiplexedConnection, key: &str, id: &str, payload: &str) -> String {
    tell(client, &["XADD", key, id, "data", payload]).await
}

/// Returns the next message: `topic partition#id payload`, `partition#id` of a position, `gap` or the reason for the
/// end.
async fn next(stream: &mut EventStream) -> String {
    let message = tokio::time::timeout(PATIENCE, stream.messages.recv()).await;
    let at = |partition_offset: PartitionOffset| {
        format!(
            "{}#{}-{}",
            partition_offset.partition, partition_offset.offset, partition_offset.part
        )
    };
    match message.expect("a message comes in time").expect("the stream says why it ends") {
        SourceMessage::Event(event) => {
            let payload = String::from_utf8_lossy(&event.payload).into_owned();
            format!("{} {} {payload}", event.topic, at(event.partition_offset.expect("an offset")))
        }
        SourceMessage::Progress(partition_offset) => at(partition_offset),
        SourceMessage::Gap => "gap".into(),
        SourceMessage::End(end) => end.to_string(),
    }
}

async fn some(stream: &mut EventStream, count: usize) -> Vec<String> {
    let mut messages = Vec::new();
    for _ in 0..count {
        messages.push(next(stream).await);
    }
    messages
}

fn after(partition_offsets: &[(u32, u64, u64)]) -> Start {
    let partition_offset =
        |&(partition, offset, part): &(u32, u64, u64)| PartitionOffset { partition, offset, part };
    Start::After(partition_offsets.iter().map(partition_offset).collect())
}

/// Publishes numbers to `key`, in parts, from another task.
pub(crate) fn publish_numbers(
    mut client: MultiplexedConnection,
    key: &'static str,
    numbers: std::ops::Range<u64>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let numbers: Vec<u64> = numbers.collect();
        for some in numbers.chunks(100) {
            let mut pipeline = redis::pipe();
            for number in some {
                pipeline.cmd("XADD").arg(key).arg("*").arg("data").arg(number).ignore();
            }
            pipeline.exec_async(&mut client).await.expect("published");
        }
    })
}

/// Reads events up to number `last`: all from `first` on, in order and once each. Returns the number of announced gaps.
pub(crate) async fn expect_numbers(stream: &mut EventStream, first: u64, last: u64) -> usize {
    let (mut expected, mut gaps) = (first, 0);
    let mut position = Position::default();
    while expected <= last {
        let message = tokio::time::timeout(PATIENCE, stream.messages.recv()).await;
        match message.expect("a message comes in time").expect("the stream goes on") {
            SourceMessage::Event(event) => {
                let payload = std::str::from_utf8(&event.payload).expect("a number");
                assert_eq!(payload, expected.to_string());
                assert!(
                    position.advance(event.partition_offset.expect("an offset")),
                    "partition_offsets grow"
                );
                expected += 1;
            }
            SourceMessage::Gap => gaps += 1,
            SourceMessage::Progress(_) => {}
            SourceMessage::End(end) => panic!("{end}"),
        }
    }
    gaps
}

#[tokio::test]
async fn a_stream_begins_at_its_configured_start() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut client = foreign_client(&server).await;
    for (key, id, payload) in [
        ("a", "5-0", "1"),
        ("a", "6-0", "2"),
        ("a", "6-1", "3"),
        ("c", "7-0", "4"),
        ("c", "8-0", "5"),
    ] {
        add(&mut client, key, id, payload).await;
    }
    // The key `b` does not exist yet, and an empty partition has no position.
    let keys = ["c", "a", "b", "a"];
    for (start, begins) in [
        (Start::New, &["0#6-1", "2#8-0"][..]),
        (Start::Last, &["0#6-1", "2#7-18446744073709551615", "c 2#8-0 5"]),
        (Start::LastPerTopic, &["0#6-0", "2#7-18446744073709551615", "a 0#6-1 3", "c 2#8-0 5"]),
        (after(&[(0, 6, 0), (2, 8, 0)]), &["0#6-0", "2#8-0", "a 0#6-1 3"]),
        (after(&[(0, 6, 1)]), &["0#6-1", "c 2#7-0 4", "c 2#8-0 5"]),
        (Start::At(9), &["0#6-1", "2#8-0"]),
    ] {
        let mut stream = open(&provider, &keys, start.clone()).await;
        let begins: Vec<String> = begins.iter().map(|&text| text.into()).collect();
        assert_eq!(some(&mut stream, begins.len()).await, begins, "{start:?}");
    }

    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(6);
    for start in [Start::Since(time), Start::At(6)] {
        let mut stream = open(&provider, &["a"], start).await;
        let expected = ["0#5-18446744073709551615", "a 0#6-0 2", "a 0#6-1 3"];
        assert_eq!(some(&mut stream, 3).await, expected);
    }
    let mut all = open(&provider, &["a", "b"], Start::All).await;
    let expected = ["0#4-18446744073709551615", "a 0#5-0 1", "a 0#6-0 2", "a 0#6-1 3"];
    assert_eq!(some(&mut all, 4).await, expected);
    add(&mut client, "b", "1-1", "6").await;
    add(&mut client, "a", "9-0", "7").await;
    let mut more = some(&mut all, 2).await;
    more.sort();
    assert_eq!(more, ["a 0#9-0 7", "b 1#1-1 6"], "what comes later follows");
}

#[tokio::test]
async fn payload_key_and_headers_are_fields_of_an_entry() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut client = foreign_client(&server).await;
    let mut stream = open(&provider, &["a"], Start::New).await;
    let message = Message {
        key: Some("k".into()),
        headers: vec![("traceparent".into(), "00-1".into()), ("data".into(), "not this".into())],
        durable: true,
        ..Message::new("a", &b"\xff{}"[..])
    };
    provider.publish(message.clone()).await.expect("published");
    let received = tokio::time::timeout(PATIENCE, stream.messages.recv()).await;
    let Ok(Some(SourceMessage::Event(event))) = received else { panic!("{received:?}") };
    assert_eq!((&*event.topic, &event.payload), ("a", &message.payload));
    assert_eq!(event.key, message.key);
    assert_eq!(event.headers.as_deref().expect("headers"), &message.headers[..1]);
    let age = event.published.expect("a time").elapsed().unwrap_or_default();
    assert!(age < PATIENCE, "{age:?}");

    let _: String = tell(&mut client, &["XADD", "a", "*", "__typename", "Order", "id", "7"]).await;
    let other = next(&mut stream).await;
    assert!(other.ends_with(r#" {"__typename":"Order","id":"7"}"#), "{other}");
    assert_eq!(provider.stats().published.load(Relaxed), 1);
    assert_eq!(provider.stats().received.load(Relaxed), 2);
    assert!(provider.replays(Some(&Durable::default())) && !provider.replays(None));
}

#[tokio::test]
async fn publishing_trims_the_stream_and_a_position_before_the_remaining_entries_is_gone() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider =
        Redis::start(RedisSettings { stream_entries_max: 100, ..settings(&server.url()) })
            .expect("settings");
    let mut client = foreign_client(&server).await;
    let first = add(&mut client, "a", "*", "0").await;
    for number in 1..1000 {
        let message = Message { durable: true, ..Message::new("a", number.to_string()) };
        provider.publish(message).await.expect("published");
    }
    let length: u64 = tell(&mut client, &["XLEN", "a"]).await;
    assert!((100..=200).contains(&length), "{length}");
    let (ms, sequence) = first.split_once('-').expect("a number");
    let begin = [(0, ms.parse().expect("ms"), sequence.parse().expect("a sequence"))];
    let error = refused(&provider, &["a"], after(&begin)).await;
    assert_eq!(error, SourceError::Gone { provider: "redis/default".into() });
    // Nothing of `b` was read, and nothing was ever there.
    let error = refused(&provider, &["b", "a"], after(&[])).await;
    assert_eq!(error, SourceError::Gone { provider: "redis/default".into() });
    let error = refused(&provider, &["a"], after(&[(0, u64::MAX, 0)])).await;
    assert_eq!(error, SourceError::Gone { provider: "redis/default".into() }, "it never was");
    let mut rest = open(&provider, &["a"], Start::All).await;
    assert_eq!(expect_numbers(&mut rest, 1000 - length, 999).await, 0);
}

/// Returns the number of connections whose last command was that one.
async fn connections(client: &mut MultiplexedConnection, command: &str) -> usize {
    let list: String = tell(client, &["CLIENT", "LIST"]).await;
    list.lines().filter(|line| line.contains(&format!(" cmd={command} "))).count()
}

#[tokio::test]
async fn all_streams_share_one_blocking_read_and_none_waits_for_it() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut client = foreign_client(&server).await;
    let mut streams = HashMap::new();
    // Each is opened while the read waits for the keys of the earlier ones.
    for number in 0..50 {
        let key = format!("key{number}");
        let began = Instant::now();
        let mut stream = open(&provider, &[&key], Start::New).await;
        add(&mut client, &key, "7-0", "first").await;
        assert_eq!(next(&mut stream).await, format!("{key} 0#7-0 first"));
        // A read waits for 5 s unless it is woken.
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        streams.insert(key, stream);
    }
    let other = open(&provider, &["key7"], Start::New).await;
    eventually("it waits", async || connections(&mut client, "xread").await == 1).await;
    for (key, stream) in &mut streams {
        add(&mut client, key, "8-0", "second").await;
        assert_eq!(next(stream).await, format!("{key} 0#8-0 second"));
    }
    assert_eq!(provider.stats().streams.load(Relaxed), 51);
    drop((streams, other));
    eventually("all closed", async || provider.stats().streams.load(Relaxed) == 0).await;
}

#[tokio::test]
async fn a_stream_that_is_not_read_misses_nothing_and_does_not_delay_others() {
    const EVENTS: u64 = 5000;
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = Redis::start(RedisSettings { queue_events: 16, ..settings(&server.url()) })
        .expect("settings");
    let mut slow = open(&provider, &["a"], Start::New).await;
    let mut quick = open(&provider, &["a", "b"], Start::New).await;
    let publishing = publish_numbers(foreign_client(&server).await, "a", 0..EVENTS);
    assert_eq!(expect_numbers(&mut quick, 0, EVENTS - 1).await, 0);
    publishing.await.expect("published");
    assert!(slow.messages.len() <= 20, "what is not read stays at the broker");
    let lag = || {
        let topics = provider.stats().topics();
        let of_a = topics.iter().find(|(name, _)| &**name == "a").expect("it is read");
        of_a.1.lag()
    };
    assert!(lag().time.is_some_and(|time| !time.is_zero()), "{:?}", lag());
    assert_eq!(expect_numbers(&mut slow, 0, EVENTS - 1).await, 0);
    let counted = [&provider.stats().dropped, &provider.stats().gaps].map(|it| it.load(Relaxed));
    assert_eq!(counted, [0, 0]);
    eventually("no stream is behind", async || lag().time == Some(Duration::ZERO)).await;
    // Both are live again.
    let mut client = foreign_client(&server).await;
    add(&mut client, "a", "*", &EVENTS.to_string()).await;
    assert_eq!(expect_numbers(&mut slow, EVENTS, EVENTS).await, 0);
    assert_eq!(expect_numbers(&mut quick, EVENTS, EVENTS).await, 0);
}

/// Publishes numbers from `first` on to `key` until `stop` is set. The entry ids are these numbers; ten of them are
/// published in one transaction.
async fn publish_until(
    mut client: MultiplexedConnection,
    key: &'static str,
    first: u64,
    stop: Arc<AtomicBool>,
) {
    let mut next = first;
    while !stop.load(Relaxed) {
        let mut transaction = redis::pipe();
        transaction.atomic();
        for number in next..next + 10 {
            let id = format!("{number}-0");
            transaction.cmd("XADD").arg(key).arg(id).arg("data").arg(number).ignore();
        }
        transaction.exec_async(&mut client).await.expect("published");
        next += 10;
    }
}

#[tokio::test]
async fn a_stream_that_is_opened_while_events_arrive_skips_none_of_them() {
    const OPENED: u64 = 300;
    const READ_OF_EACH: u64 = 50;
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut client = foreign_client(&server).await;
    add(&mut client, "a", "1-0", "1").await;
    // This stream keeps the live read at the end of the key.
    let mut live = open(&provider, &["a"], Start::New).await;
    let stop = Arc::new(AtomicBool::new(false));
    let publisher = foreign_client(&server).await;
    let publishing = tokio::spawn(publish_until(publisher, "a", 2, Arc::clone(&stop)));
    let (events, mut received) = tokio::sync::watch::channel(1);
    let reading = tokio::spawn(async move {
        loop {
            let next = *events.borrow() + 1;
            assert_eq!(expect_numbers(&mut live, next, next).await, 0);
            if events.send(next).is_err() {
                return;
            }
        }
    });
    for number in 0..OPENED {
        let start = match number % 3 {
            0 => Start::New,
            // Nothing exists yet: the stream begins with the next entry, after two round trips.
            1 => Start::At(u64::MAX),
            _ => after(&[(0, *received.borrow_and_update(), 0)]),
        };
        let mut stream = open(&provider, &["a"], start).await;
        let begin = stream.messages.recv().await;
        let Some(SourceMessage::Progress(begin)) = begin else { panic!("no begin: {begin:?}") };
        let (first, last) = (begin.offset + 1, begin.offset + READ_OF_EACH);
        assert_eq!(expect_numbers(&mut stream, first, last).await, 0, "stream {number}");
    }
    drop(received);
    reading.await.expect("the live stream missed nothing");
    stop.store(true, Relaxed);
    publishing.await.expect("published");
}

#[tokio::test]
async fn entries_trimmed_before_a_slow_stream_has_read_them_are_a_gap() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = Redis::start(RedisSettings { queue_events: 8, ..settings(&server.url()) })
        .expect("settings");
    let mut client = foreign_client(&server).await;
    let mut stream = open(&provider, &["a"], Start::New).await;
    for number in 1..=50 {
        add(&mut client, "a", &format!("{number}-0"), "x").await;
    }
    eventually("its queue is full", async || stream.messages.len() >= 8).await;
    let _: u64 = tell(&mut client, &["XTRIM", "a", "MAXLEN", "10"]).await;
    let mut numbers = Vec::new();
    while numbers.last().is_none_or(|last| last != "a 0#50-0 x") {
        numbers.push(next(&mut stream).await);
    }
    let gap = numbers.iter().position(|it| it == "gap").expect("a gap");
    let expected = |range: std::ops::RangeInclusive<u64>| {
        range.map(|number| format!("a 0#{number}-0 x")).collect::<Vec<_>>()
    };
    assert_eq!(numbers[..gap], expected(1..=gap as u64));
    assert_eq!(numbers[gap + 1..], expected(41..=50));
    assert_eq!(provider.stats().gaps.load(Relaxed), 1);
}

#[tokio::test]
async fn trimming_that_overtakes_a_waiting_read_is_a_gap() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut client = foreign_client(&server).await;
    add(&mut client, "a", "1-0", "1").await;
    let mut stream = open(&provider, &["a"], Start::New).await;
    assert_eq!(next(&mut stream).await, "0#1-0");
    eventually("it waits", async || connections(&mut client, "xread").await == 1).await;
    let mut at_once = redis::pipe();
    at_once.atomic();
    for number in 2..=9 {
        at_once.cmd("XADD").arg("a").arg("MAXLEN").arg(2).arg(format!("{number}-0"));
        at_once.arg("data").arg(number).ignore();
    }
    at_once.exec_async(&mut client).await.expect("published");
    assert_eq!(some(&mut stream, 3).await, ["gap", "a 0#8-0 8", "a 0#9-0 9"]);
}

#[tokio::test]
async fn a_deleted_key_is_waited_for_and_a_key_that_is_not_a_stream_is_refused() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut client = foreign_client(&server).await;
    add(&mut client, "a", "5-0", "1").await;
    let mut stream = open(&provider, &["a"], Start::New).await;
    let mut neighbour = open(&provider, &["b"], Start::New).await;
    assert_eq!(next(&mut stream).await, "0#5-0");
    let _: u64 = tell(&mut client, &["DEL", "a"]).await;
    add(&mut client, "a", "6-0", "2").await;
    // The entries before the deletion are unknown.
    assert_eq!(some(&mut stream, 2).await, ["gap", "a 0#6-0 2"]);

    let _: u64 = tell(&mut client, &["DEL", "a"]).await;
    let _: u64 = tell(&mut client, &["LPUSH", "a", "x"]).await;
    let words = next(&mut stream).await;
    assert!(words.starts_with("the broker refused: WRONGTYPE "), "{words}");
    let error = refused(&provider, &["a"], Start::New).await;
    assert!(matches!(error, SourceError::Refused { .. }), "{error:?}");
    add(&mut client, "b", "7-0", "3").await;
    assert_eq!(next(&mut neighbour).await, "b 0#7-0 3", "the neighbour goes on");
    let message = Message { durable: true, ..Message::new("a", "x") };
    let error = provider.publish(message).await.unwrap_err().to_string();
    assert!(error.contains("refused the event for topic \"a\": WRONGTYPE"), "{error}");
    let error = refused(&provider, &["a*"], Start::New).await;
    assert!(matches!(error, SourceError::InvalidTopic { .. }), "{error:?}");
}

#[tokio::test]
async fn connections_that_are_cut_again_and_again_lose_and_repeat_nothing() {
    const EVENTS: u64 = 10_000;
    let Some(server) = RedisServer::start(&[]) else { return };
    // Two routers at one broker: each gets everything.
    let providers = [provider(&server), provider(&server)];
    let mut streams = Vec::new();
    for provider in &providers {
        streams.push(open(provider, &["a"], Start::New).await);
        streams.push(open(provider, &["a", "b"], Start::New).await);
    }
    let publishing = publish_numbers(foreign_client(&server).await, "a", 0..EVENTS);
    let cutting = async {
        let mut client = foreign_client(&server).await;
        for _ in 0..10 {
            let list: String = tell(&mut client, &["CLIENT", "LIST"]).await;
            // The router's connections are those that use RESP3.
            for line in list.lines().filter(|line| line.contains(" resp=3")) {
                let id = line.strip_prefix("id=").and_then(|it| it.split(' ').next());
                // The connection may have ended by itself.
                let _: u64 = tell(&mut client, &["CLIENT", "KILL", "ID", id.expect("an id")]).await;
            }
            eventually("they come back", async || connections(&mut client, "xread").await == 2)
                .await;
        }
    };
    let reading = async {
        for stream in &mut streams {
            assert_eq!(expect_numbers(stream, 0, EVENTS - 1).await, 0);
        }
    };
    tokio::join!(cutting, reading);
    publishing.await.expect("published");
    for provider in &providers {
        assert!(provider.stats().reconnects.load(Relaxed) >= 10);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_that_is_restarted_or_killed_loses_nothing_that_it_keeps_on_disk() {
    const EVENTS: u64 = 3000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a plain path");
    let arguments = ["--dir", path, "--appendonly", "yes", "--appendfsync", "always"];
    let Some(mut server) = RedisServer::start(&arguments) else { return };
    let provider = provider(&server);
    let mut stream = open(&provider, &["a"], Start::New).await;
    let mut expected = 0;
    for signal in ["TERM", "KILL", "KILL"] {
        let client = foreign_client(&server).await;
        publish_numbers(client, "a", expected..expected + EVENTS).await.expect("published");
        // The stream has read some entries, and the rest follows.
        assert_eq!(expect_numbers(&mut stream, expected, expected + 99).await, 0);
        let port = server.end(signal);
        server = RedisServer::restart_on(port, &arguments).expect("it is installed");
        let client = foreign_client(&server).await;
        let more = expected + EVENTS..expected + 2 * EVENTS;
        publish_numbers(client, "a", more).await.expect("published");
        assert_eq!(expect_numbers(&mut stream, expected + 100, expected + 2 * EVENTS - 1).await, 0);
        expected += 2 * EVENTS;
    }
}

#[tokio::test]
async fn a_server_that_restarts_without_its_streams_is_a_gap() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut client = foreign_client(&server).await;
    add(&mut client, "a", "7-0", "1").await;
    let mut stream = open(&provider, &["a"], Start::All).await;
    assert_eq!(some(&mut stream, 2).await, ["0#6-18446744073709551615", "a 0#7-0 1"]);
    let port = server.port();
    drop(server);
    let server = RedisServer::restart_on(port, &[]).expect("it is installed");
    assert_eq!(next(&mut stream).await, "gap");
    // The ids may begin again.
    let mut client = foreign_client(&server).await;
    add(&mut client, "a", "1-1", "2").await;
    assert_eq!(next(&mut stream).await, "a 0#1-1 2");
}

#[tokio::test]
async fn a_replaced_router_continues_at_its_position() {
    const EVENTS: u64 = 4000;
    let Some(server) = RedisServer::start(&[]) else { return };
    let publishing = publish_numbers(foreign_client(&server).await, "a", 0..EVENTS);
    let mut position = Position::default();
    let mut expected = 0;
    while expected < EVENTS {
        let provider = provider(&server);
        let mut stream = open(&provider, &["a"], Start::After(position.clone())).await;
        // After some events the connections are lost with the server.
        let until = (expected + 700).min(EVENTS);
        while expected < until {
            let message = tokio::time::timeout(PATIENCE, stream.messages.recv()).await;
            match message.expect("in time").expect("it goes on") {
                SourceMessage::Event(event) => {
                    assert_eq!(event.payload, expected.to_string());
                    assert!(position.advance(event.partition_offset.expect("an offset")));
                    expected += 1;
                }
                SourceMessage::Progress(partition_offset) => _ = position.advance(partition_offset),
                other => panic!("{other:?}"),
            }
        }
    }
    publishing.await.expect("published");
}

#[tokio::test]
async fn a_user_without_permission_to_wake_reads_everything_and_is_told_of_refusals() {
    for wakes in ["", " +client|id", " +client|id +client|unblock"] {
        let commands = "+hello +ping +subscribe +psubscribe +xread +xinfo +xrange";
        let commands = format!("{commands}{wakes}");
        let mut user = vec!["--user", "me", "on", ">p@ss", "resetchannels", "~open.*"];
        user.extend(commands.split(' '));
        let Some(server) = RedisServer::start(&user) else { return };
        let url = format!("redis://me:p%40ss@127.0.0.1:{}", server.port());
        let provider = Redis::start(settings(&url)).expect("settings");
        let mut client = foreign_client(&server).await;
        let mut first = open(&provider, &["open.a"], Start::New).await;
        let mut second = open(&provider, &["open.b"], Start::New).await;
        let began = Instant::now();
        for (key, stream) in [("open.a", &mut first), ("open.b", &mut second)] {
            add(&mut client, key, "7-0", "x").await;
            assert_eq!(next(stream).await, format!("{key} 0#7-0 x"));
        }
        // A read that cannot be woken waits for 0.1 s, others for 5 s.
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        let error = refused(&provider, &["secret"], Start::New).await.to_string();
        assert!(error.starts_with("provider redis/default: NOPERM "), "{error}");
        assert_eq!(provider.stats().reconnects.load(Relaxed), 0);
    }
}
