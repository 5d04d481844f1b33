//! The load generator for subscriptions against real sockets: the floor, and a server with configurable misbehaviour.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a failed setup fails the test

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use load::floor::broadcast::BroadcastFloor;
use load::report::Runs;
use load::report::subscriptions::SubscriptionRun;
use load::subscriptions::{
    Events, Scenario, Subscription, SubscriptionRunError, SubscriptionSettings, SubscriptionTarget,
    run,
};

const EVENT: &str = r#"{"__typename":"Tick","id":"$T","key":"k$K","number":$N}"#;

fn settings(address: SocketAddr) -> SubscriptionSettings {
    let destination = format!("http://{address}/").parse().unwrap();
    SubscriptionSettings {
        name: "test".to_owned(),
        target: SubscriptionTarget::parse(&format!("ws://{address}/graphql")).unwrap(),
        subscription: Subscription {
            query: "subscription { tick(key: \"k$K\") { id } }".to_owned(),
            ..Subscription::default()
        },
        clients: 20,
        scenario: Scenario::FanOut,
        events: Some(Events {
            destination,
            changes: None,
            text: EVENT.to_owned(),
            padding_bytes: 0,
        }),
        event_count: 10,
        rate: 200.0,
        hold: Duration::from_millis(200),
        slow_share: 0.1,
        churn_rate: 200.0,
        duration: Duration::from_millis(500),
        window: 16,
        sources: None,
        timeout: Duration::from_secs(10),
        retries: 0,
        quiet: Duration::from_millis(300),
        pid: Some(std::process::id()),
        never_sleeps: false,
    }
}

/// Starts a floor on a thread that ends with the test.
fn floor() -> SocketAddr {
    let message = r#"{"id":"1","type":"next","payload":{"data":{"tick":{"id":"$T"}}}}"#;
    let floor = BroadcastFloor::bind("127.0.0.1:0".parse().unwrap(), message, None).unwrap();
    let address = floor.address().unwrap();
    std::thread::spawn(move || floor.serve());
    address
}

/// Returns the messages that a server sends to a client for an event, given the client, the event, and the correct
/// message.
type Misbehaviour = fn(usize, usize, String) -> Vec<String>;

/// How many handshakes, initialisations and subscriptions a server still refuses for now.
#[derive(Default)]
struct Refusals {
    handshakes: AtomicUsize,
    initialisations: AtomicUsize,
    subscriptions: AtomicUsize,
}

/// True if one more is to be refused.
fn refuses(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// Starts a server that speaks graphql-transport-ws to each client on a thread of its own.
fn server(misbehaviour: Misbehaviour) -> SocketAddr {
    refusing_server(misbehaviour, Refusals::default())
}

/// Starts a server as [`server`] does that refuses its first clients.
fn refusing_server(misbehaviour: Misbehaviour, refusals: Refusals) -> SocketAddr {
    let refusals = Arc::new(refusals);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let clients: Arc<Mutex<Vec<(String, TcpStream)>>> = Arc::default();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (clients, refusals) = (Arc::clone(&clients), Arc::clone(&refusals));
            std::thread::spawn(move || serve(stream, misbehaviour, &refusals, &clients));
        }
    });
    address
}

/// Serves one client and ends with it, by whatever error its end causes.
fn serve(
    stream: TcpStream,
    misbehaviour: Misbehaviour,
    refusals: &Refusals,
    clients: &Mutex<Vec<(String, TcpStream)>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        if head.starts_with("GET ") {
            break;
        }
        let length = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
        let mut event = vec![0; length];
        reader.read_exact(&mut event).ok()?;
        let event: serde_json::Value = serde_json::from_slice(&event).ok()?;
        let number = usize::try_from(event["number"].as_u64()?).ok()?;
        let message = format!(
            r#"{{"id":"1","type":"next","payload":{{"data":{{"tick":{{"id":{}}}}}}}}}"#,
            event["id"]
        );
        for (index, (key, client)) in clients.lock().unwrap().iter_mut().enumerate() {
            if event["key"] == **key {
                for text in misbehaviour(index, number, message.clone()) {
                    // The client may have disconnected.
                    let _ = client.write_all(&frame(&text));
                }
            }
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
    }
    if refuses(&refusals.handshakes) {
        let refusal = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\n\r\n";
        return stream.write_all(refusal.as_bytes()).ok();
    }
    let accepted = "HTTP/1.1 101 Switching Protocols\r\nsec-websocket-protocol: graphql-transport-ws\r\n\
                    sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    stream.write_all(accepted.as_bytes()).ok()?;
    loop {
        let mut head = [0; 2];
        reader.read_exact(&mut head).ok()?;
        let mut length = u64::from(head[1] & 0x7f);
        if length == 126 {
            let mut bytes = [0; 2];
            reader.read_exact(&mut bytes).ok()?;
            length = u64::from(u16::from_be_bytes(bytes));
        }
        let mut payload = vec![0; length as usize + 4];
        reader.read_exact(&mut payload).ok()?;
        let text = String::from_utf8(payload.split_off(4)).ok()?;
        if head[0] == 0x88 {
            return None;
        } else if text.contains("connection_init") && refuses(&refusals.initialisations) {
            let close = [&[0x88, 2][..], &1013_u16.to_be_bytes()].concat();
            return stream.write_all(&close).ok();
        } else if text.contains("connection_init") {
            stream.write_all(&frame(r#"{"type":"connection_ack"}"#)).ok()?;
        } else if text.contains("\"ping\"") {
            stream.write_all(&frame(r#"{"type":"pong"}"#)).ok()?;
        } else if text.contains("\"subscribe\"") && refuses(&refusals.subscriptions) {
            let error = r#"{"message":"busy","extensions":{"code":"OVERLOADED","retryAfter":0}}"#;
            let text = format!(r#"{{"id":"1","type":"error","payload":[{error}]}}"#);
            stream.write_all(&frame(&text)).ok()?;
        } else if text.contains("\"subscribe\"") {
            let key = text.split("key: \\\"").nth(1)?.split('\\').next()?.to_owned();
            clients.lock().unwrap().push((key, stream.try_clone().ok()?));
        }
    }
}

fn frame(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap_or(126);
    let mut bytes = vec![0x81, length.min(126)];
    if length >= 126 {
        bytes.extend((text.len() as u16).to_be_bytes());
    }
    bytes.extend(text.as_bytes());
    bytes
}

fn run_once(settings: &SubscriptionSettings) -> SubscriptionRun {
    run(settings, |_| {}).unwrap()
}

#[test]
fn every_client_receives_every_event_of_the_floor() {
    let run = run_once(&settings(floor()));
    assert!(run.is_sound(), "{run:?}");
    assert_eq!((run.subscribed, run.expected, run.received, run.deliveries), (20, 200, 200, 200));
    assert_eq!((run.lost, run.missing), (0, 0));
    assert!(run.latency.p50_us > 0.0 && run.latency.max_us < 10e6, "{:?}", run.latency);
    let message = run.message.as_deref().unwrap();
    let (before, after) =
        (r#"{"id":"1","type":"next","payload":{"data":{"tick":{"id":""#, r#""}}}}"#);
    assert!(message.starts_with(before) && message.ends_with(after), "{message}");
    assert_eq!(run.message_bytes, message.len() as f64);

    // A floor takes its message from an example.
    let floor = BroadcastFloor::bind("127.0.0.1:0".parse().unwrap(), message, None).unwrap();
    let address = floor.address().unwrap();
    std::thread::spawn(move || floor.serve());
    let again = run_once(&settings(address));
    assert!(again.is_sound() && again.message_bytes == run.message_bytes, "{again:?}");
    let server = run.server.as_ref().unwrap();
    assert!(server.threads_idle > 0 && server.descriptors_idle > 0);

    let text = serde_json::to_string(&[&run]).unwrap();
    let Runs::Subscriptions(read) = Runs::read(&text).unwrap() else {
        panic!("a report of another kind")
    };
    assert_eq!((read[0].received, &read[0].histogram), (run.received, &run.histogram));
}

#[test]
fn clients_with_keys_receive_the_events_of_their_keys() {
    let address = server(|_, _, message| vec![message]);
    let settings =
        SubscriptionSettings { scenario: Scenario::Filters, event_count: 30, ..settings(address) };
    let subscription = Subscription { keys: 20, ..settings.subscription.clone() };
    let run = run_once(&SubscriptionSettings { subscription, ..settings });
    assert!(run.is_sound(), "{run:?}");
    // Keys 0 to 9 are used twice, the others once; 20 events of the warm-up came before.
    assert_eq!((run.expected, run.received), (30, 30));
}

#[test]
fn losses_of_a_server_are_detected() {
    // The warm-up is event 0, the measured events are 1 to 10, the additional events follow.
    let silent: Misbehaviour = |client, number, message| match (client, number) {
        (3, 4 | 5) => Vec::new(),
        _ => vec![message],
    };
    let run = run_once(&settings(server(silent)));
    assert_eq!((run.missing, run.lost, run.is_sound()), (2, 0, false), "{run:?}");

    let told: Misbehaviour = |client, number, message| match (client, number) {
        (3, 9 | 10) => Vec::new(),
        (3, 11) => {
            let lost = r#"}},"extensions":{"lost":2}}}"#;
            vec![format!("{}{lost}", message.strip_suffix("}}}}").unwrap())]
        }
        _ => vec![message],
    };
    let run = run_once(&settings(server(told)));
    assert_eq!((run.missing, run.lost, run.is_sound()), (0, 2, true), "{run:?}");

    let twice: Misbehaviour = |client, number, message| match (client, number) {
        (3, 4) => vec![message.clone(), message],
        _ => vec![message],
    };
    let run = run_once(&settings(server(twice)));
    assert_eq!((run.surplus, run.disordered, run.is_sound()), (1, 1, false), "{run:?}");

    let failing: Misbehaviour = |client, number, message| match (client, number) {
        (3, 4) => vec![message.replace(r#""data":"#, r#""errors":[{"message":"oops"}],"data":"#)],
        _ => vec![message],
    };
    let run = run_once(&settings(server(failing)));
    assert_eq!((run.errors, run.missing, run.is_sound()), (1, 0, false), "{run:?}");
    assert!(run.example.is_some_and(|example| example.contains("oops")));

    let ending: Misbehaviour = |client, number, message| match (client, number) {
        (3, 4) => vec![r#"{"id":"1","type":"complete"}"#.to_owned()],
        _ => vec![message],
    };
    let run = run_once(&settings(server(ending)));
    assert_eq!(run.ends.len(), 1, "{run:?}");
    assert_eq!(run.ends[0].what, "completed by the server");
    assert!(run.missing >= 7 && !run.is_sound());
}

#[test]
fn clients_that_were_refused_for_now_return_and_receive_every_event() {
    let refusals = || Refusals {
        handshakes: AtomicUsize::new(4),
        initialisations: AtomicUsize::new(2),
        subscriptions: AtomicUsize::new(3),
    };
    let faithful: Misbehaviour = |_, _, message| vec![message];
    let patient =
        SubscriptionSettings { retries: 9, ..settings(refusing_server(faithful, refusals())) };
    let run = run_once(&patient);
    assert!(run.is_sound(), "{run:?}");
    assert_eq!((run.subscribed, run.expected, run.received), (20, 200, 200), "{run:?}");
    let returns: Vec<_> = run.returns.iter().map(|it| (it.count, it.what.as_str())).collect();
    assert_eq!(
        returns,
        [
            (4, "handshake refused with status 503"),
            (3, "subscription refused for now"),
            (2, "closed by the server with code 1013"),
        ]
    );

    // Without repetitions, they are lost.
    let run = run_once(&settings(refusing_server(faithful, refusals())));
    assert_eq!((run.subscribed, run.is_sound()), (11, false), "{run:?}");
    assert_eq!((run.returns.len(), run.ends.len()), (0, 3), "{run:?}");

    // A wait that would end after the time-out is no wait.
    let hasty = SubscriptionSettings {
        retries: 9,
        timeout: Duration::from_secs(1),
        ..settings(refusing_server(
            faithful,
            Refusals { initialisations: AtomicUsize::new(2), ..Refusals::default() },
        ))
    };
    let run = run_once(&hasty);
    assert_eq!((run.subscribed, run.returns.len()), (18, 0), "{run:?}");
}

#[test]
fn clients_that_never_read_are_counted_separately() {
    // The kernel can hold five results for a client that does not read.
    let address = server(|_, _, message| vec![message]);
    let mut settings = SubscriptionSettings {
        scenario: Scenario::SlowConsumers,
        clients: 10,
        event_count: 5,
        ..settings(address)
    };
    let run = run_once(&settings);
    let slow = run.slow.as_ref().unwrap();
    assert_eq!((slow.clients, slow.met_policy, run.expected), (1, 0, 45), "{run:?}");
    assert_eq!(slow.fates[0].what, "still connected, received everything late");

    // The floor closes sockets that are full. Each client gets 6 MB, of which the kernel holds 4 for one that does not
    // read.
    let big = "x".repeat(60_000);
    let message =
        format!(r#"{{"id":"1","type":"next","payload":{{"data":{{"id":"$T","x":"{big}"}}}}}}"#);
    let floor = BroadcastFloor::bind("127.0.0.1:0".parse().unwrap(), &message, None).unwrap();
    let address = floor.address().unwrap();
    std::thread::spawn(move || floor.serve());
    settings.target = SubscriptionTarget::parse(&format!("ws://{address}/")).unwrap();
    settings.events.as_mut().unwrap().destination = format!("http://{address}/").parse().unwrap();
    settings.event_count = 100;
    settings.rate = 50.0;
    let run = run_once(&settings);
    let slow = run.slow.as_ref().unwrap();
    // The outcome of the other clients depends on how busy the machine is.
    assert_eq!((slow.clients, slow.met_policy), (1, 1), "{run:?}");
}

#[test]
fn clients_reconnect_after_their_connections_were_dropped() {
    let settings = settings(floor());
    let run =
        run_once(&SubscriptionSettings { scenario: Scenario::ReconnectStorm, ..settings.clone() });
    assert!(run.is_sound(), "{run:?}");
    assert_eq!(run.rejoined.map(|it| it.subscribed), Some(20));
    assert_eq!((run.expected, run.received), (200, 200));
    let run =
        run_once(&SubscriptionSettings { scenario: Scenario::ConnectStorm, ..settings.clone() });
    assert!(run.is_sound() && run.joining.p99_us > 0.0, "{run:?}");
    let run =
        run_once(&SubscriptionSettings { scenario: Scenario::Idle, events: None, ..settings });
    assert!(run.is_sound() && run.server.is_some_and(|it| it.idle_cores.is_some()));
}

#[test]
fn a_churn_counts_regular_disconnections() {
    let settings = settings(floor());
    let run =
        run_once(&SubscriptionSettings { scenario: Scenario::Churn, events: None, ..settings });
    let churn = run.churn.as_ref().unwrap();
    assert!(churn.cycles >= 50, "{churn:?}");
    assert_eq!((churn.unfinished, run.ends.len()), (0, 0), "{run:?}");
}

#[test]
fn resubscribing_clients_stay_connected_and_receive_the_events_of_their_keys() {
    let settings = settings(floor());
    let settings =
        SubscriptionSettings { scenario: Scenario::Resubscribe, churn_rate: 100.0, ..settings };
    let run = run_once(&settings);
    let again = run.resubscribed.as_ref().unwrap();
    // One cycle is due at the very beginning.
    assert!((50..=51).contains(&(again.cycles + again.skipped)), "{again:?}");
    assert_eq!((again.unfinished, run.ends.len()), (0, 0), "{run:?}");
    assert!(again.latency.p50_us > 0.0 && again.seconds >= 0.5, "{again:?}");
    assert_eq!((run.expected, run.received), (200, 200), "{run:?}");
}

#[test]
fn a_closed_loop_counts_events_received_by_all_clients() {
    let run =
        run_once(&SubscriptionSettings { scenario: Scenario::Throughput, ..settings(floor()) });
    let throughput = run.throughput.as_ref().unwrap();
    assert!(run.is_sound() && run.events > 0, "{run:?}");
    assert_eq!((run.expected, run.received), (20 * run.events, 20 * run.events));
    assert_eq!(run.deliveries, run.received);
    let events = throughput.events_per_second * throughput.seconds;
    assert!((events - run.events as f64).abs() < 0.5, "{throughput:?}");
    assert!((0.2..5.0).contains(&throughput.seconds), "{throughput:?}");
    assert_eq!(throughput.payload_bytes, EVENT.len() as u64 - 6 + 16 + 1 + 1);
}

#[test]
fn a_closed_loop_ends_when_something_is_lost() {
    // Event 0 is the warm-up; in the first flood one client stops receiving, so that no event is complete any more.
    let losing: Misbehaviour = |client, number, message| match (client, number) {
        (3, 30..) => Vec::new(),
        _ => vec![message],
    };
    let run = run_once(&SubscriptionSettings {
        scenario: Scenario::Throughput,
        ..settings(server(losing))
    });
    assert!(!run.is_sound() && run.missing > 0, "{run:?}");
    // Only the window of the second flood and the additional events were published: the publisher did not run ahead.
    assert!(run.events <= 16, "{run:?}");
}

#[test]
fn a_result_of_another_client_is_detected() {
    // One round of keys is the warm-up.
    let crossed: Misbehaviour = |_, number, message| {
        let key = if number == 23 { 4 } else { number % 20 };
        vec![message.replace(r#""data""#, &format!(r#""for":"k{key}","data""#))]
    };
    let address = server(crossed);
    let subscription = Subscription {
        keys: 20,
        expects: Some(r#""for":"k$K""#.to_owned()),
        ..settings(address).subscription
    };
    let settings = SubscriptionSettings {
        scenario: Scenario::Filters,
        event_count: 20,
        subscription,
        ..settings(address)
    };
    let run = run_once(&settings);
    assert_eq!((run.missing, run.surplus), (0, 0), "{run:?}");
    assert_eq!((run.foreign, run.is_sound()), (1, false), "{run:?}");
    assert!(run.example.is_some_and(|example| example.contains(r#""for":"k4""#)));
}

#[test]
fn a_run_that_would_measure_nothing_fails_with_a_reason() {
    let address = floor();
    let wrong = |change: &dyn Fn(&mut SubscriptionSettings)| {
        let mut settings = settings(address);
        change(&mut settings);
        run(&settings, |_| {}).unwrap_err().to_string()
    };
    for (change, expected) in [
        (
            &(|it: &mut SubscriptionSettings| it.clients = 0) as &dyn Fn(&mut SubscriptionSettings),
            "number of clients",
        ),
        (&|it| it.events = None, "--publish"),
        (&|it| it.subscription.keys = 21, "more keys than clients"),
        (&|it| it.window = 0, "events in flight"),
        (
            &|it| (it.scenario, it.subscription.keys) = (Scenario::Throughput, 2),
            "keys are not possible",
        ),
        (&|it| it.events.as_mut().unwrap().text = "{}".to_owned(), "$T"),
        (&|it| it.pid = Some(u32::MAX), "cannot observe process"),
        (
            &|it| it.events.as_mut().unwrap().destination = "http://127.0.0.1:1/".parse().unwrap(),
            "cannot publish",
        ),
        (
            &|it| it.target = SubscriptionTarget::parse("ws://127.0.0.1:1/").unwrap(),
            "cannot connect",
        ),
    ] {
        let error = wrong(change);
        assert!(error.contains(expected), "{error}");
    }
    let deaf = settings(server(|_, _, _| Vec::new()));
    let error = run(&SubscriptionSettings { clients: 2, ..deaf }, |_| {}).unwrap_err();
    assert!(
        matches!(&error, SubscriptionRunError::Settings(text) if text.contains("same topic")),
        "{error}"
    );
}
