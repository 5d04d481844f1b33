//! The Redis provider against a real `redis-server`.

mod cluster;
mod sentinel;
mod streams;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use events::{
    ErrorKind, EventStream, Message, Provider, ProviderState, Redis, RedisAuthentication,
    RedisSettings, Retry, SourceError, SourceMessage, Start, StreamRequest,
};
use futures_util::StreamExt;
use net::{Roots, TlsClient, TlsIdentity};
use redis::aio::MultiplexedConnection;
use test_kit::programs::REDIS_SERVER;
use test_kit::redis::RedisServer;

/// The maximum time of one step, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(url: &str) -> RedisSettings {
    RedisSettings {
        retry: Retry { initial: Duration::from_millis(10), max: Duration::from_millis(100) },
        ..RedisSettings::new("default", vec![url.into()])
    }
}

fn provider(server: &RedisServer) -> Redis {
    Redis::start(settings(&server.url())).expect("the settings are right")
}

async fn foreign_client(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("a URL");
    client.get_multiplexed_async_connection().await.expect("the broker is there")
}

fn free_port() -> u16 {
    test_kit::free_address().expect("a free port").port()
}

/// Sends one command to the broker as another client.
async fn tell<T: redis::FromRedisValue>(client: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(client).await.expect("the broker responds")
}

/// Returns the number of subscribers to that channel at the broker.
async fn subscribers(client: &mut MultiplexedConnection, channel: &str) -> u64 {
    let (_, count): (String, u64) = tell(client, &["PUBSUB", "NUMSUB", channel]).await;
    count
}

async fn subscribe(provider: &Redis, topics: &[&str]) -> EventStream {
    let topics = topics.iter().map(|&topic| topic.into()).collect();
    provider.subscribe(StreamRequest::new(topics)).await.expect("the broker is there")
}

/// Returns the next message: `topic payload`, `gap` or the reason for the end.
async fn next(stream: &mut EventStream) -> String {
    let message = tokio::time::timeout(PATIENCE, stream.messages.recv()).await;
    match message.expect("a message comes in time").expect("the stream says why it ends") {
        SourceMessage::Event(event) => {
            format!("{} {}", event.topic, String::from_utf8_lossy(&event.payload))
        }
        SourceMessage::Progress(partition_offset) => format!("passed {}", partition_offset.offset),
        SourceMessage::Gap => "gap".into(),
        SourceMessage::End(end) => end.to_string(),
    }
}

/// Repeats a check until it holds, for changes in the other process that cannot be waited for.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn an_event_of_any_client_reaches_every_stream_of_its_channel() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut exact = subscribe(&provider, &["orders.7", "orders.8", "two words"]).await;
    let mut pattern = subscribe(&provider, &["orders.*"]).await;
    let mut set = subscribe(&provider, &["orders.[79]"]).await;
    let mut escaped = subscribe(&provider, &[r"orders.\*"]).await;
    let mut client = foreign_client(&server).await;
    for (channel, payload, listeners) in [
        ("orders.7", "a", 3),
        ("orders.9", "b", 2),
        ("orders.8", "c", 2),
        ("orders.*", "d", 2),
        ("two words", "e", 1),
        ("elsewhere", "f", 0),
    ] {
        let heard: u64 = tell(&mut client, &["PUBLISH", channel, payload]).await;
        assert_eq!(heard, listeners, "{channel}: one broker subscription for each that matches");
    }
    for expected in ["orders.7 a", "orders.8 c", "two words e"] {
        assert_eq!(next(&mut exact).await, expected);
    }
    for expected in ["orders.7 a", "orders.9 b", "orders.8 c", "orders.* d"] {
        assert_eq!(next(&mut pattern).await, expected);
    }
    assert_eq!([next(&mut set).await, next(&mut set).await], ["orders.7 a", "orders.9 b"]);
    assert_eq!(next(&mut escaped).await, "orders.* d");
    assert_eq!(provider.stats().received.load(Relaxed), 10);

    let resumed = provider
        .subscribe(StreamRequest::new(vec!["orders.7".into()]).with_start(Start::All))
        .await;
    assert_eq!(next(&mut resumed.expect("open")).await, "gap", "Pub/Sub has no past");
}

#[tokio::test]
async fn an_event_that_the_provider_publishes_reaches_any_client() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut subscriber = client.get_async_pubsub().await.expect("the broker is there");
    subscriber.psubscribe("orders.*").await.expect("subscribed");

    let payload = b"{\"id\":7,\"binary\":\"\xff\0\r\n\"}";
    provider.publish(Message::new("orders.7.moved", &payload[..])).await.expect("published");
    let message = tokio::time::timeout(PATIENCE, subscriber.on_message().next()).await;
    let message = message.expect("in time").expect("a message");
    assert_eq!(
        (message.get_channel_name(), message.get_payload_bytes()),
        ("orders.7.moved", &payload[..])
    );
    assert_eq!(provider.stats().published.load(Relaxed), 1);

    let error = provider.publish(Message::new("orders.*", "x")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "provider redis/default refused the event for topic \"orders.*\": a channel to publish to has no pattern characters (* ? [ \\)"
    );
}

#[tokio::test]
async fn thousands_of_events_arrive_in_order_and_all_of_them() {
    const EVENTS: u64 = 20_000;
    let Some(server) = RedisServer::start(&[]) else { return };
    let queue_events = EVENTS as usize;
    let provider =
        Redis::start(RedisSettings { queue_events, ..settings(&server.url()) }).expect("settings");
    let mut streams = Vec::new();
    for topics in [&["orders.7"][..], &["orders.*"], &["orders.7", "other"]] {
        streams.push(subscribe(&provider, topics).await);
    }
    let mut client = foreign_client(&server).await;
    for thousand in 0..EVENTS / 1000 {
        let mut pipeline = redis::pipe();
        for number in thousand * 1000..(thousand + 1) * 1000 {
            pipeline.publish("orders.7", number).ignore();
        }
        pipeline.exec_async(&mut client).await.expect("published");
    }
    for stream in &mut streams {
        for number in 0..EVENTS {
            assert_eq!(next(stream).await, format!("orders.7 {number}"));
        }
    }
    assert_eq!(provider.stats().dropped.load(Relaxed), 0);
}

#[tokio::test]
async fn streams_share_one_broker_subscription_per_channel_and_the_last_one_ends_it() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let first = subscribe(&provider, &["a", "b", "p*"]).await;
    let second = subscribe(&provider, &["a"]).await;
    let mut client = foreign_client(&server).await;
    assert_eq!(subscribers(&mut client, "a").await, 1);
    assert_eq!(subscribers(&mut client, "b").await, 1);
    assert_eq!(tell::<u64>(&mut client, &["PUBSUB", "NUMPAT"]).await, 1);
    drop(first);
    eventually("b is unsubscribed", async || subscribers(&mut client, "b").await == 0).await;
    eventually("the pattern too", async || {
        tell::<u64>(&mut client, &["PUBSUB", "NUMPAT"]).await == 0
    })
    .await;
    assert_eq!(subscribers(&mut client, "a").await, 1);
    drop(second);
    eventually("a is unsubscribed", async || subscribers(&mut client, "a").await == 0).await;
    assert_eq!(provider.stats().streams.load(Relaxed), 0);
}

#[tokio::test]
async fn thousands_of_channels_come_and_go_on_one_connection() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let names: Vec<String> = (0..5_000).map(|number| format!("orders.{number}")).collect();
    let opening = names.iter().map(async |name| subscribe(&provider, &[name]).await);
    let mut streams = futures_util::future::join_all(opening).await;
    let mut client = foreign_client(&server).await;
    let listening: Vec<String> = tell(&mut client, &["PUBSUB", "CHANNELS", "orders.*"]).await;
    assert_eq!(listening.len(), names.len());
    for (name, stream) in names.iter().zip(&mut streams) {
        let heard: u64 = tell(&mut client, &["PUBLISH", name, "1"]).await;
        assert_eq!(heard, 1);
        assert_eq!(next(stream).await, format!("{name} 1"));
    }
    drop(streams);
    eventually("all are unsubscribed", async || {
        tell::<Vec<String>>(&mut client, &["PUBSUB", "CHANNELS"]).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_broker_that_restarts_leaves_a_gap_and_the_streams_continue() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let port = server.port();
    let provider = provider(&server);
    let mut stream = subscribe(&provider, &["a", "p*"]).await;
    provider.publish(Message::new("a", "before")).await.expect("published");
    assert_eq!(next(&mut stream).await, "a before");
    drop(server);
    assert_eq!(next(&mut stream).await, "gap");
    assert_eq!(provider.stats().state(), ProviderState::Disconnected);

    let error = provider.subscribe(StreamRequest::new(vec!["b".into()])).await.unwrap_err();
    assert!(
        matches!(&error, SourceError::Unavailable { provider, .. } if &**provider == "redis/default")
    );
    provider.publish(Message::new("a", "lost")).await.expect_err("no broker accepts it");

    let server = RedisServer::restart_on(port, &[]).expect("it is installed");
    eventually("connected again", async || provider.is_connected()).await;
    let mut client = foreign_client(&server).await;
    assert_eq!(subscribers(&mut client, "a").await, 1, "connected means subscribed again");
    for (channel, payload) in [("a", "after"), ("pq", "too")] {
        let _: u64 = tell(&mut client, &["PUBLISH", channel, payload]).await;
        assert_eq!(next(&mut stream).await, format!("{channel} {payload}"));
    }
    eventually("publishing again", async || provider.is_connected()).await;
    provider.publish(Message::new("a", "own")).await.expect("published");
    assert_eq!(next(&mut stream).await, "a own");
    assert_eq!(provider.stats().reconnects.load(Relaxed), 1);
}

#[tokio::test]
async fn a_connection_that_the_broker_cuts_reconnects_with_all_its_channels() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut streams = vec![
        subscribe(&provider, &["a"]).await,
        subscribe(&provider, &["b*"]).await,
        subscribe(&provider, &["a", "b*"]).await,
    ];
    let mut client = foreign_client(&server).await;
    for round in 1..=3 {
        let killed: u64 = tell(&mut client, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        assert_eq!(killed, 1, "one connection carries all subscriptions");
        for stream in &mut streams {
            assert_eq!(next(stream).await, "gap");
        }
        eventually("connected again", async || provider.stats().reconnects.load(Relaxed) == round)
            .await;
        for channel in ["a", "b2"] {
            let _: u64 = tell(&mut client, &["PUBLISH", channel, &round.to_string()]).await;
        }
        assert_eq!(next(&mut streams[0]).await, format!("a {round}"));
        assert_eq!(next(&mut streams[1]).await, format!("b2 {round}"));
        assert_eq!(next(&mut streams[2]).await, format!("a {round}"));
        assert_eq!(next(&mut streams[2]).await, format!("b2 {round}"));
    }
}

#[tokio::test]
async fn without_replay_no_event_is_missing_without_a_gap_before_the_next() {
    const CUTS: u64 = 10;
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = Redis::start(RedisSettings { queue_events: 100_000, ..settings(&server.url()) })
        .expect("settings");
    let mut stream = subscribe(&provider, &["a"]).await;
    let mut client = foreign_client(&server).await;
    let mut published = 0;
    for cut in 1..=CUTS {
        for _ in 0..10 {
            let mut pipeline = redis::pipe();
            for _ in 0..100 {
                pipeline.publish("a", published).ignore();
                published += 1;
            }
            pipeline.exec_async(&mut client).await.expect("published");
        }
        let _: u64 = tell(&mut client, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        // No stream receives the events that are published now.
        for _ in 0..100 {
            let _: u64 = tell(&mut client, &["PUBLISH", "a", &published.to_string()]).await;
            published += 1;
        }
        eventually("connected again", async || provider.stats().reconnects.load(Relaxed) == cut)
            .await;
    }
    let _: u64 = tell(&mut client, &["PUBLISH", "a", &published.to_string()]).await;
    let (mut expected, mut gaps, mut is_gap) = (0, 0, false);
    while expected <= published {
        let message = next(&mut stream).await;
        if message == "gap" {
            (gaps, is_gap) = (gaps + 1, true);
            continue;
        }
        let number: u64 = message.strip_prefix("a ").expect("an event").parse().expect("a number");
        let is_next = number == expected;
        assert!(is_next || (is_gap && number > expected), "{number} after {expected}");
        (expected, is_gap) = (number + 1, false);
    }
    assert_eq!(gaps, CUTS);
    assert_eq!(provider.stats().gaps.load(Relaxed), CUTS);
}

/// A broker may be silent for about 15 s, so this test takes that long.
#[cfg(unix)]
#[tokio::test]
async fn a_suspended_broker_is_noticed_although_its_connection_stays() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    let mut stream = subscribe(&provider, &["a"]).await;
    server.signal("STOP");
    assert_eq!(next(&mut stream).await, "gap");
    assert!(!provider.is_connected());
    server.signal("CONT");
    eventually("connected again", async || provider.is_connected()).await;
    let mut client = foreign_client(&server).await;
    let _: u64 = tell(&mut client, &["PUBLISH", "a", "after"]).await;
    assert_eq!(next(&mut stream).await, "a after");
}

#[tokio::test]
async fn a_broker_that_is_unavailable_at_start_is_named_in_the_error_and_connected_later() {
    if REDIS_SERVER.locate_or_skip().is_none() {
        return;
    }
    let port = free_port();
    let provider = Redis::start(settings(&format!("redis://127.0.0.1:{port}"))).expect("settings");
    let error = provider.subscribe(StreamRequest::new(vec!["a".into()])).await.unwrap_err();
    assert_eq!(error.to_string(), "provider redis/default is not connected: connection refused");
    assert_eq!(provider.wait_connected().await, Err("connection refused".into()));
    assert_eq!(provider.stats().state(), ProviderState::Connecting);

    let _server = RedisServer::restart_on(port, &[]).expect("it is installed");
    eventually("connected", async || provider.is_connected()).await;
    assert_eq!(provider.wait_connected().await, Ok(()));
    let mut stream = subscribe(&provider, &["a"]).await;
    provider.publish(Message::new("a", "1")).await.expect("published");
    assert_eq!(next(&mut stream).await, "a 1");
    assert_eq!(provider.stats().reconnects.load(Relaxed), 0);
}

#[tokio::test]
async fn the_first_of_several_servers_that_responds_is_used() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let urls = vec![nobody, server.url()];
    let provider = Redis::start(RedisSettings { urls, ..settings("") }).expect("settings");
    eventually("connected", async || provider.is_connected()).await;
}

#[tokio::test]
async fn a_password_signs_in_and_a_wrong_one_is_neither_accepted_nor_shown() {
    let Some(server) = RedisServer::start(&["--requirepass", "s3cret"]) else { return };
    let in_url = format!("redis://:s3cret@127.0.0.1:{}", server.port());
    let mut stream = {
        let provider = Redis::start(settings(&in_url)).expect("settings");
        let mut stream = subscribe(&provider, &["a"]).await;
        provider.publish(Message::new("a", "1")).await.expect("published");
        assert_eq!(next(&mut stream).await, "a 1");
        stream
    };
    assert_eq!(next(&mut stream).await, "the provider was closed");

    let signed_in_as = |user: Option<&str>, password: &str| RedisSettings {
        authentication: Some(RedisAuthentication {
            user: user.map(Into::into),
            password: password.into(),
        }),
        ..settings(&server.url())
    };
    subscribe(&Redis::start(signed_in_as(None, "s3cret")).expect("settings"), &["a"]).await;

    let wrong = "the broker does not know this user and password (WRONGPASS)";
    for (settings, reason) in [
        (signed_in_as(None, "wr0ng"), wrong),
        (signed_in_as(Some("wr0ng"), "s3cret"), wrong),
        (settings(&server.url()), "the broker requires a password (NOAUTH)"),
    ] {
        let shown = format!("{settings:?}");
        let provider = Redis::start(settings).expect("settings");
        assert_eq!(provider.wait_connected().await, Err(reason.into()));
        let error = provider.subscribe(StreamRequest::new(vec!["a".into()])).await.unwrap_err();
        assert_eq!(error.to_string(), format!("provider redis/default is not connected: {reason}"));
        assert!(provider.stats().errors(ErrorKind::Connection) > 0);
        for secret in ["s3cret", "wr0ng"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_channel_that_the_user_may_not_read_ends_its_stream_with_the_brokers_words() {
    let user = ["--user", "me", "on", ">p@ss", "resetchannels", "&open.*", "+@all"];
    let Some(server) = RedisServer::start(&user) else { return };
    let url = format!("redis://me:p%40ss@127.0.0.1:{}", server.port());
    let provider = Redis::start(settings(&url)).expect("settings");
    // Both subscribe at once, so that all channels are requested in one command.
    let (mut refused, mut allowed) = tokio::join!(
        subscribe(&provider, &["open.a", "secret.a"]),
        subscribe(&provider, &["open.a", "open.b"])
    );
    let words = next(&mut refused).await;
    assert!(words.starts_with("the broker refused: NOPERM "), "{words}");
    provider.publish(Message::new("open.a", "1")).await.expect("published");
    assert_eq!(next(&mut allowed).await, "open.a 1");
    let error = provider.publish(Message::new("secret.a", "1")).await.unwrap_err().to_string();
    assert!(error.contains("refused the event for topic \"secret.a\": NOPERM "), "{error}");
    assert_eq!(provider.stats().reconnects.load(Relaxed), 0);
}

#[tokio::test]
async fn a_stream_that_is_not_read_gets_a_gap_and_its_neighbour_everything() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = Redis::start(RedisSettings { queue_events: 4, ..settings(&server.url()) })
        .expect("settings");
    let mut slow = subscribe(&provider, &["a"]).await;
    let mut quick = subscribe(&provider, &["a"]).await;
    for number in 1..=10 {
        provider.publish(Message::new("a", number.to_string())).await.expect("published");
        assert_eq!(next(&mut quick).await, format!("a {number}"));
    }
    for number in 1..=4 {
        assert_eq!(next(&mut slow).await, format!("a {number}"));
    }
    provider.publish(Message::new("a", "11")).await.expect("published");
    assert_eq!([next(&mut slow).await, next(&mut slow).await], ["gap", "a 11"]);
    assert_eq!(provider.stats().dropped.load(Relaxed), 6);
}

#[cfg(unix)]
#[tokio::test]
async fn a_socket_of_this_machine_works_like_a_port() {
    let socket = std::env::temp_dir().join(format!("starling-redis-{}.sock", std::process::id()));
    let path = socket.to_str().expect("a plain path");
    let Some(_server) = RedisServer::start(&["--unixsocket", path]) else { return };
    let provider = Redis::start(settings(&format!("unix://{path}"))).expect("settings");
    let mut stream = subscribe(&provider, &["a"]).await;
    provider.publish(Message::new("a", "1")).await.expect("published");
    assert_eq!(next(&mut stream).await, "a 1");
    let _ = std::fs::remove_file(socket);
}

#[tokio::test]
async fn an_encrypted_connection_is_only_made_to_a_server_that_is_trusted() {
    let certificates = test_kit::certificates();
    let file = |name: &str| certificates.join(name).to_str().expect("a plain path").to_owned();
    let port = free_port().to_string();
    let (certificate, key, authority) =
        (file("localhost.pem"), file("localhost.key"), file("ca.pem"));
    let arguments = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &authority],
        ["--tls-auth-clients", "no"],
    ];
    let Some(_server) = RedisServer::start(arguments.as_flattened()) else { return };
    let url = format!("rediss://localhost:{port}");
    let tls = TlsClient::with_roots(&std::fs::read(&authority).expect("readable"), &[]);
    let trusting = RedisSettings { tls: Some(tls.expect("an authority")), ..settings(&url) };
    let provider = Redis::start(trusting).expect("settings");
    let mut stream = subscribe(&provider, &["a"]).await;
    provider.publish(Message::new("a", "1")).await.expect("published");
    assert_eq!(next(&mut stream).await, "a 1");

    let distrusting = Redis::start(settings(&url)).expect("settings");
    let reason = distrusting.wait_connected().await.unwrap_err();
    assert!(reason.starts_with("TLS: "), "{reason}");
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_gets_one() {
    let certificates = test_kit::certificates();
    let file = |name: &str| certificates.join(name).to_str().expect("a plain path").to_owned();
    let read = |name: &str| std::fs::read(certificates.join(name)).expect("readable");
    let port = free_port().to_string();
    let (certificate, key, clients) =
        (file("localhost.pem"), file("localhost.key"), file("client-ca.pem"));
    let arguments = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &clients],
        ["--tls-auth-clients", "yes"],
    ];
    let Some(_server) = RedisServer::start(arguments.as_flattened()) else { return };
    let (authority, certificates, key) = (read("ca.pem"), read("client.pem"), read("client.key"));
    let identity = TlsIdentity { certificates: &certificates, key: &key };
    let url = format!("rediss://localhost:{port}");
    for (identity, is_known) in [(Some(identity), true), (None, false)] {
        let tls = TlsClient::new(Roots::Pem(&authority), identity, &[]).expect("they fit");
        let provider = Redis::start(RedisSettings { tls: Some(tls), ..settings(&url) });
        let connected = provider.expect("settings").wait_connected().await;
        assert_eq!(connected.is_ok(), is_known, "{connected:?}");
    }
}

#[tokio::test]
async fn channels_that_break_the_rules_never_reach_the_broker() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let provider = provider(&server);
    for topic in ["", "a\r\nFLUSHALL\r\n", "a[b"] {
        let error = provider.subscribe(StreamRequest::new(vec![topic.into()])).await.unwrap_err();
        assert!(matches!(error, SourceError::InvalidTopic { .. }), "{error}");
        provider.publish(Message::new(topic, "x")).await.expect_err("refused");
    }
}
