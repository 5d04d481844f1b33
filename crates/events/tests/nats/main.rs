//! The NATS provider against a real `nats-server`.

mod authentication;
mod jetstream;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use events::{
    EventStream, Message, Nats, NatsAuthentication, NatsSettings, Provider, ProviderState, Retry,
    SourceError, SourceMessage, Start, StreamRequest,
};
use futures_util::StreamExt;
use tempfile::TempDir;
use test_kit::nats::NatsServer;
use test_kit::programs::NATS_SERVER;

/// The maximum time of one step, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(url: &str) -> NatsSettings {
    NatsSettings {
        retry: Retry { initial: Duration::from_millis(10), max: Duration::from_millis(100) },
        ..NatsSettings::new("default", url)
    }
}

fn provider(server: &NatsServer) -> Nats {
    Nats::start(settings(&server.url())).expect("the settings are right")
}

async fn foreign_client(server: &NatsServer) -> async_nats::Client {
    async_nats::connect(server.url()).await.expect("the broker is there")
}

async fn subscribe(provider: &Nats, topics: &[&str]) -> EventStream {
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

/// Writes a file in the folder and returns its path.
fn write_file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a temporary file");
    path.to_str().expect("a plain path").to_owned()
}

/// Repeats a check until it holds, for changes in the other process that cannot be waited for.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn an_event_of_any_client_reaches_every_stream_of_its_subject() {
    let Some(server) = NatsServer::start() else { return };
    let provider = provider(&server);
    let mut exact = subscribe(&provider, &["orders.7", "orders.8"]).await;
    let mut pattern = subscribe(&provider, &["orders.*"]).await;
    let client = foreign_client(&server).await;
    for (subject, payload) in [("orders.7", "a"), ("orders.9", "b"), ("orders.8", "c")] {
        client.publish(subject, payload.into()).await.expect("published");
    }
    client.flush().await.expect("flushed");
    assert_eq!([next(&mut exact).await, next(&mut exact).await], ["orders.7 a", "orders.8 c"]);
    for expected in ["orders.7 a", "orders.9 b", "orders.8 c"] {
        assert_eq!(next(&mut pattern).await, expected);
    }
    assert_eq!(provider.stats().received.load(Relaxed), 5);

    let resumed = provider
        .subscribe(StreamRequest::new(vec!["orders.7".into()]).with_start(Start::All))
        .await;
    assert_eq!(next(&mut resumed.expect("open")).await, "gap", "core NATS has no past");
}

#[tokio::test]
async fn an_event_that_the_provider_publishes_reaches_any_client() {
    let Some(server) = NatsServer::start() else { return };
    let provider = provider(&server);
    let client = foreign_client(&server).await;
    let mut subscriber = client.subscribe("orders.>").await.expect("subscribed");
    client.flush().await.expect("flushed");
    // A round trip: the broker has processed everything that this client sent before.
    let inbox = client.new_inbox();
    let mut own = client.subscribe(inbox.clone()).await.expect("subscribed");
    client.publish(inbox, "".into()).await.expect("published");
    own.next().await.expect("the round trip ends");

    provider.publish(Message::new("orders.7.moved", r#"{"id":7}"#)).await.expect("published");
    let message = tokio::time::timeout(PATIENCE, subscriber.next()).await.expect("in time");
    let message = message.expect("a message");
    assert_eq!(
        (message.subject.as_str(), &*message.payload),
        ("orders.7.moved", &br#"{"id":7}"#[..])
    );
    assert_eq!(provider.stats().published.load(Relaxed), 1);

    let error = provider.publish(Message::new("orders.*", "x")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "provider nats/default refused the event for topic \"orders.*\": a subject to publish to has no wildcards"
    );
    let large = vec![b' '; 2 * 1024 * 1024];
    let error = provider.publish(Message::new("orders.7", large)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "provider nats/default refused the event for topic \"orders.7\": it is larger than the broker accepts"
    );
}

#[tokio::test]
async fn an_event_keeps_its_headers() {
    let Some(server) = NatsServer::start() else { return };
    let provider = provider(&server);
    let mut stream = subscribe(&provider, &["a"]).await;
    let headers = ["traceparent", "x-tenant"].map(|name| (name.into(), format!("{name} 1").into()));
    let message = Message { headers: headers.to_vec(), ..Message::new("a", "1") };
    provider.publish(message).await.expect("published");
    let message = tokio::time::timeout(PATIENCE, stream.messages.recv()).await.expect("in time");
    let Some(SourceMessage::Event(event)) = message else { panic!("an event: {message:?}") };
    assert_eq!(event.headers.as_deref(), Some(&headers.to_vec()));

    let bad = Message { headers: vec![("a b".into(), "1".into())], ..Message::new("a", "2") };
    let error = provider.publish(bad).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "provider nats/default refused the event for topic \"a\": the name of a header has a character that NATS \
         does not carry"
    );
    provider.publish(Message::new("a", "3")).await.expect("published");
    assert_eq!(next(&mut stream).await, "a 3");
}

#[tokio::test]
async fn a_request_returns_the_response_of_a_subscriber_or_reports_that_there_is_none() {
    let Some(server) = NatsServer::start() else { return };
    let provider = provider(&server);
    let nobody = provider.request(Message::new("plane.get", "7"), PATIENCE).await.unwrap_err();
    assert_eq!(
        nobody.to_string(),
        "topic \"plane.get\" of provider nats/default has no subscriber that responds to requests"
    );

    let client = foreign_client(&server).await;
    let mut requests = client.subscribe("plane.*").await.expect("subscribed");
    client.flush().await.expect("flushed");
    eventually("the service listens", || server.subscription_count() >= 2).await;
    let answering = tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            // Requests to `plane.silent` get no response.
            if &*request.subject == "plane.get" {
                let reply = request.reply.expect("a request has a reply subject");
                let tenant = request.headers.expect("headers").get("x").expect("it").to_string();
                let answer = format!("{} for {tenant}", String::from_utf8_lossy(&request.payload));
                client.publish(reply, answer.into()).await.expect("answered");
            }
        }
    });
    let headers = vec![("x".into(), "me".into())];
    let request = Message { headers, ..Message::new("plane.get", "plane 7") };
    let answer = provider.request(request, PATIENCE).await.expect("a response");
    assert_eq!(answer, "plane 7 for me");

    let short = Duration::from_millis(50);
    let late = provider.request(Message::new("plane.silent", "7"), short).await.unwrap_err();
    assert_eq!(
        late.to_string(),
        "provider nats/default refused the event for topic \"plane.silent\": no response arrived in time"
    );
    answering.abort();
}

#[tokio::test]
async fn a_gap_is_counted_once_however_many_events_are_lost() {
    let Some(server) = NatsServer::start() else { return };
    let provider =
        Nats::start(NatsSettings { queue_events: 2, ..settings(&server.url()) }).expect("settings");
    let mut slow = subscribe(&provider, &["a"]).await;
    let mut quick = subscribe(&provider, &["a"]).await;
    for number in 1..=50 {
        provider.publish(Message::new("a", number.to_string())).await.expect("published");
        assert_eq!(next(&mut quick).await, format!("a {number}"));
    }
    assert_eq!(provider.stats().dropped.load(Relaxed), 48);
    assert_eq!(provider.stats().gaps.load(Relaxed), 1);
    assert_eq!([next(&mut slow).await, next(&mut slow).await], ["a 1", "a 2"]);
}

#[tokio::test]
async fn streams_share_one_broker_subscription_per_subject_and_the_last_one_ends_it() {
    let Some(server) = NatsServer::start() else { return };
    let provider = provider(&server);
    let first = subscribe(&provider, &["a", "b"]).await;
    let second = subscribe(&provider, &["a"]).await;
    let inbox = 1;
    assert_eq!(server.subscription_count(), inbox + 2);
    drop(first);
    eventually("b is unsubscribed", || server.subscription_count() == inbox + 1).await;
    drop(second);
    eventually("a is unsubscribed", || server.subscription_count() == inbox).await;
    assert_eq!(provider.stats().streams.load(Relaxed), 0);
}

#[tokio::test]
async fn a_subject_that_is_dropped_and_requested_again_is_received_even_if_the_broker_did_not_notice()
 {
    const SUBJECTS: u64 = 16;
    const TIMES: u64 = 100;
    let Some(server) = NatsServer::start() else { return };
    let provider = provider(&server);
    drop(subscribe(&provider, &["first"]).await);
    eventually("nothing but the inbox is left", || server.subscription_count() == 1).await;
    let before = server.subscriptions_made();
    let client = foreign_client(&server).await;
    let again = (0..SUBJECTS).map(|subject| {
        let (subject, provider, client) = (format!("again.{subject}"), &provider, &client);
        async move {
            for number in 0..TIMES {
                let mut stream = subscribe(provider, &[&subject]).await;
                client.publish(subject.clone(), number.to_string().into()).await.expect("sent");
                assert_eq!(next(&mut stream).await, format!("{subject} {number}"));
            }
        }
    });
    futures_util::future::join_all(again).await;
    let made = server.subscriptions_made() - before;
    assert!((SUBJECTS..=SUBJECTS * TIMES).contains(&made), "{made}");
    eventually("nothing but the inbox is left again", || server.subscription_count() == 1).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
}

#[tokio::test]
async fn a_broker_that_restarts_leaves_a_gap_and_the_streams_continue() {
    let Some(server) = NatsServer::start() else { return };
    let port = server.port();
    let provider = provider(&server);
    let mut stream = subscribe(&provider, &["a"]).await;
    provider.publish(Message::new("a", "before")).await.expect("published");
    assert_eq!(next(&mut stream).await, "a before");
    drop(server);
    assert_eq!(next(&mut stream).await, "gap");
    assert_eq!(provider.stats().state(), ProviderState::Disconnected);

    let error = provider.subscribe(StreamRequest::new(vec!["b".into()])).await.unwrap_err();
    assert!(
        matches!(&error, SourceError::Unavailable { provider, .. } if &**provider == "nats/default")
    );
    provider.publish(Message::new("a", "lost")).await.expect_err("no broker accepts it");

    let server = NatsServer::restart_on(port).expect("it is installed");
    eventually("connected again", || provider.is_connected()).await;
    let inbox = 1;
    eventually("subscribed again", || server.subscription_count() == inbox + 1).await;
    let client = foreign_client(&server).await;
    client.publish("a", "after".into()).await.expect("published");
    client.flush().await.expect("flushed");
    assert_eq!(next(&mut stream).await, "a after");
    assert_eq!(provider.stats().reconnects.load(Relaxed), 1);
}

#[tokio::test]
async fn a_connection_that_is_cut_reconnects_with_all_its_subjects() {
    let Some(server) = NatsServer::start() else { return };
    let broker = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let (proxy, cut) = cuttable_proxy(broker).await;
    let provider = Nats::start(settings(&format!("nats://{proxy}"))).expect("settings");
    let mut streams = vec![
        subscribe(&provider, &["a"]).await,
        subscribe(&provider, &["b"]).await,
        subscribe(&provider, &["a", "b"]).await,
    ];
    for round in 1..=3 {
        cut.notify_waiters();
        for stream in &mut streams {
            assert_eq!(next(stream).await, "gap");
        }
        let inbox = 1;
        eventually("connected again", || {
            provider.stats().reconnects.load(Relaxed) == round
                && server.subscription_count() == inbox + 2
        })
        .await;
        let client = foreign_client(&server).await;
        for subject in ["a", "b"] {
            client.publish(subject, round.to_string().into()).await.expect("published");
        }
        client.flush().await.expect("flushed");
        assert_eq!(next(&mut streams[0]).await, format!("a {round}"));
        assert_eq!(next(&mut streams[1]).await, format!("b {round}"));
        assert_eq!(next(&mut streams[2]).await, format!("a {round}"));
        assert_eq!(next(&mut streams[2]).await, format!("b {round}"));
        drop(client);
    }
}

/// Forwards bytes to `broker`. A notification cuts all its connections.
async fn cuttable_proxy(
    broker: std::net::SocketAddr,
) -> (std::net::SocketAddr, std::sync::Arc<tokio::sync::Notify>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let cut = std::sync::Arc::new(tokio::sync::Notify::new());
    let cut_here = std::sync::Arc::clone(&cut);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let cut = std::sync::Arc::clone(&cut_here);
            tokio::spawn(async move {
                let mut server = tokio::net::TcpStream::connect(broker).await.expect("the broker");
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    () = cut.notified() => {}
                }
            });
        }
    });
    (address, cut)
}

#[tokio::test]
async fn a_suspended_process_announces_a_gap_only_where_it_lost_events() {
    let Some(server) = NatsServer::start() else { return };
    let provider = Nats::start(NatsSettings { queue_events: 100_000, ..settings(&server.url()) })
        .expect("settings");
    let mut quiet = subscribe(&provider, &["quiet"]).await;
    let mut flooded = subscribe(&provider, &["flood"]).await;
    let mut also_quiet = subscribe(&provider, &["also.quiet"]).await;
    let url = server.url();
    // This thread, and with it the provider, is blocked until the flood is in its socket.
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async move {
            let client = async_nats::connect(url).await.expect("the broker is there");
            for number in 0..50_000 {
                client.publish("flood", number.to_string().into()).await.expect("published");
            }
            for subject in ["flood", "quiet", "also.quiet"] {
                client.publish(subject, "last".into()).await.expect("published");
            }
            client.flush().await.expect("flushed");
            // A round trip: the broker has forwarded everything that came before.
            let inbox = client.new_inbox();
            let mut own = client.subscribe(inbox.clone()).await.expect("subscribed");
            client.publish(inbox, "".into()).await.expect("published");
            own.next().await.expect("the round trip ends");
        });
    })
    .join()
    .expect("published");
    assert_eq!(next(&mut quiet).await, "quiet last");
    assert_eq!(next(&mut also_quiet).await, "also.quiet last");
    let mut gaps = 0;
    let mut heard = 0;
    let mut latest = None;
    while gaps == 0 {
        match next(&mut flooded).await.strip_prefix("flood ").map(str::parse::<u64>) {
            Some(number) => {
                let number = number.ok();
                assert!(number > latest, "in order");
                (heard, latest) = (heard + 1, number);
            }
            None => gaps += 1,
        }
    }
    assert!(heard < 50_000 && provider.stats().dropped.load(Relaxed) > 0, "{heard}");
    for subject in ["quiet", "also.quiet"] {
        provider.publish(Message::new(subject, "no gap before this")).await.expect("published");
    }
    assert_eq!(next(&mut quiet).await, "quiet no gap before this");
    assert_eq!(next(&mut also_quiet).await, "also.quiet no gap before this");
}

#[tokio::test]
async fn a_broker_that_is_unavailable_at_start_is_named_in_the_error_and_connected_later() {
    if NATS_SERVER.locate_or_skip().is_none() {
        return;
    }
    let port = test_kit::free_address().expect("a free port").port();
    let provider = Nats::start(settings(&format!("nats://127.0.0.1:{port}"))).expect("settings");
    let error =
        provider.subscribe(StreamRequest::new(vec!["a".into()])).await.unwrap_err().to_string();
    assert!(error.starts_with("provider nats/default is not connected: "), "{error}");
    assert_eq!(provider.stats().state(), ProviderState::Connecting);

    let server = NatsServer::restart_on(port).expect("it is installed");
    eventually("connected", || provider.is_connected()).await;
    let mut stream = subscribe(&provider, &["a"]).await;
    provider.publish(Message::new("a", "1")).await.expect("published");
    assert_eq!(next(&mut stream).await, "a 1");
    assert_eq!(provider.stats().reconnects.load(Relaxed), 0);
    drop(server);
}

#[tokio::test]
async fn a_token_signs_in_and_a_wrong_one_is_neither_accepted_nor_shown() {
    let Some(server) = NatsServer::start_with(-1, &["--auth", "s3cret"]) else { return };
    let in_url = format!("nats://s3cret@127.0.0.1:{}", server.port());
    let mut stream = {
        let provider = Nats::start(settings(&in_url)).expect("settings");
        subscribe(&provider, &["a"]).await
    };
    assert_eq!(next(&mut stream).await, "the provider was closed");

    let configured = NatsSettings {
        authentication: Some(NatsAuthentication::Token("s3cret".into())),
        ..settings(&server.url())
    };
    subscribe(&Nats::start(configured).expect("settings"), &["a"]).await;

    let wrong = NatsSettings {
        authentication: Some(NatsAuthentication::Token("wr0ng".into())),
        ..settings(&in_url)
    };
    let shown = format!("{wrong:?}");
    let provider = Nats::start(wrong).expect("settings");
    let error =
        provider.subscribe(StreamRequest::new(vec!["a".into()])).await.unwrap_err().to_string();
    assert!(error.contains("authorization violation"), "{error}");
    for secret in ["s3cret", "wr0ng"] {
        assert!(!error.contains(secret) && !shown.contains(secret), "{error} {shown}");
    }
}

#[tokio::test]
async fn a_user_and_password_sign_in() {
    let Some(server) = NatsServer::start_with(-1, &["--user", "me", "--pass", "p@ss"]) else {
        return;
    };
    let url = format!("nats://me:p%40ss@127.0.0.1:{}", server.port());
    subscribe(&Nats::start(settings(&url)).expect("settings"), &["a"]).await;
}

#[tokio::test]
async fn a_stream_that_is_not_read_gets_a_gap_and_its_neighbour_everything() {
    let Some(server) = NatsServer::start() else { return };
    let provider =
        Nats::start(NatsSettings { queue_events: 4, ..settings(&server.url()) }).expect("settings");
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

#[tokio::test]
async fn a_subject_that_the_user_may_not_read_ends_its_stream_with_the_brokers_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = r#"authorization { users = [ { user: me, password: x, permissions: { subscribe: { deny: "secret.>" } } } ] }"#;
    let config = write_file(&folder, "permissions.conf", text);
    let Some(server) = NatsServer::start_with(-1, &["-c", &config]) else { return };
    let url = format!("nats://me:x@127.0.0.1:{}", server.port());
    let provider = Nats::start(settings(&url)).expect("settings");
    let mut refused = subscribe(&provider, &["secret.a"]).await;
    let mut allowed = subscribe(&provider, &["a"]).await;
    assert_eq!(
        next(&mut refused).await,
        r#"the broker refused: Permissions Violation for Subscription to "secret.a""#
    );
    provider.publish(Message::new("a", "1")).await.expect("published");
    assert_eq!(next(&mut allowed).await, "a 1");
}

#[tokio::test]
async fn subjects_with_spaces_or_empty_tokens_never_reach_the_broker() {
    let Some(server) = NatsServer::start() else { return };
    let provider = provider(&server);
    for topic in ["a b", "a..b", "", "a\r\nPUB b 0\r\n"] {
        let error = provider.subscribe(StreamRequest::new(vec![topic.into()])).await.unwrap_err();
        assert!(matches!(error, SourceError::InvalidTopic { .. }), "{error}");
        provider.publish(Message::new(topic, "x")).await.expect_err("refused");
    }
}
