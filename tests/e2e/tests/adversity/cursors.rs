//! Subscribers that lose their connections and resume with their last cursor.

use std::sync::mpsc;

use serde_json::{Value, json};

use crate::shop::{Shop, cursor, product_event, product_number};
use crate::socket::{Received, Socket};
use crate::stream::Stream;

const SUBSCRIPTION: &str = "subscription { productChanged { id } }";

/// The number of events, enough to fill every queue on the way more than once.
const EVENTS: usize = 3000;

/// The memory provider keeps all events; the trigger's ring does not.
const CONFIGURATION: &str = "
cursor: {memory: true, keys: [a key of more than 16 bytes], ring_events: 100}
events: {providers: {memory: [{id: default, ring_events: 100000}]}}
";

fn resume(socket: &mut Socket, id: &str, query: &str, cursor: &str) {
    let payload = json!({ "query": query, "extensions": { "cursor": cursor } });
    let message = json!({ "id": id, "type": "subscribe", "payload": payload });
    socket.send(&message.to_string());
}

#[test]
fn a_websocket_that_is_cut_again_and_again_gets_every_event_once_and_in_order() {
    let shop = Shop::with(CONFIGURATION);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            for number in 1..=EVENTS {
                shop.publish("products", product_event(number));
            }
        });
        let (mut next, mut cuts) = (1, 0);
        while next <= EVENTS {
            let payload = match socket.receive() {
                Received::Text(text) => {
                    serde_json::from_str::<Value>(&text).unwrap()["payload"].take()
                }
                Received::Closed(closed) => panic!("after {next}: {closed:?}"),
            };
            assert_eq!(product_number(&payload, "productChanged"), next, "{payload}");
            assert_eq!(payload["extensions"].as_object().unwrap().len(), 1, "{payload}");
            // Later events that were already received are lost with the connection.
            if next % 311 == 0 {
                cuts += 1;
                if cuts % 3 == 0 {
                    // The client stays away for longer than the ring reaches back.
                    let published = || shop.router.metric("starling_hub_events_total").unwrap_or(0);
                    drop(std::mem::replace(&mut socket, Socket::ready(shop.address())));
                    let until = (published() + 150).min(EVENTS as u64 - 1);
                    e2e::eventually("more events", || {
                        let is_over = publishing.is_finished();
                        (is_over || published() >= until).then_some(())
                    });
                } else {
                    socket = Socket::ready(shop.address());
                }
                resume(&mut socket, "1", SUBSCRIPTION, &cursor(&payload));
            }
            next += 1;
        }
        assert_eq!(cuts, EVENTS / 311);
    });
    assert!(shop.router.metric("starling_hub_side_readers_total").unwrap_or(0) >= 1);
    shop.assert_unaffected();
}

#[test]
fn an_event_stream_resumes_by_last_event_id_on_another_connection() {
    let shop = Shop::with(CONFIGURATION);
    let mut stream = Stream::open(shop.address(), SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    for number in 1..=400 {
        shop.publish("products", product_event(number));
    }
    let mut next = 1;
    while next <= 400 {
        let (id, payload) = stream.event_with_id();
        assert_eq!(product_number(&payload, "productChanged"), next);
        assert_eq!(id, cursor(&payload), "the id of the event is its cursor");
        if next == 7 || next == 200 || next == 399 {
            stream = Stream::open_after(shop.address(), SUBSCRIPTION, &id);
        }
        next += 1;
    }
    shop.assert_unaffected();
}

#[test]
fn many_resuming_subscribers_share_one_reader_at_the_broker() {
    const SUBSCRIBERS: usize = 300;
    /// The number of subscribers on one connection.
    const EACH: usize = 30;
    const READERS_MAX: u64 = 4;
    let shop = Shop::with(CONFIGURATION);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    shop.publish("products", product_event(1));
    let cursor = cursor(&socket.message()["payload"]);
    for number in 2..=300 {
        shop.publish("products", product_event(number));
        assert_eq!(product_number(&socket.message()["payload"], "productChanged"), number);
    }
    let storm: Vec<_> = (0..SUBSCRIBERS / EACH)
        .map(|_| {
            let mut socket = Socket::ready(shop.address());
            for id in 0..EACH {
                resume(&mut socket, &id.to_string(), SUBSCRIPTION, &cursor);
            }
            std::thread::spawn(move || {
                let mut next = [2; EACH];
                for _ in 0..EACH * 299 {
                    let message = socket.message();
                    let id: usize = message["id"].as_str().unwrap().parse().unwrap();
                    assert_eq!(
                        product_number(&message["payload"], "productChanged"),
                        next[id],
                        "{message}"
                    );
                    next[id] += 1;
                }
                socket
            })
        })
        .collect();
    let sockets: Vec<_> = storm.into_iter().map(|it| it.join().unwrap()).collect();
    let readers = shop.router.metric("starling_hub_side_readers_total").unwrap_or(0);
    // The first subscriber starts a reader immediately, and subscribers that arrive after it has advanced wait for
    // each other. On a busy machine the storm may last longer than that wait.
    assert!((1..=READERS_MAX).contains(&readers), "{readers} readers");
    shop.publish("products", product_event(301));
    let mut sockets = sockets;
    for socket in &mut sockets {
        for _ in 0..EACH {
            assert_eq!(product_number(&socket.message()["payload"], "productChanged"), 301);
        }
    }
    // The resumed subscribers are in one group with the subscriber that stayed.
    shop.wait_for_metric("starling_hub_groups", 2);
    drop(sockets);
    shop.assert_unaffected();
}

#[test]
fn forged_foreign_and_expired_cursors_have_separate_errors_and_never_restart_silently() {
    let shop = Shop::with(
        "
cursor: {memory: true, keys: [a key of more than 16 bytes], ring_events: 2}
events: {providers: {memory: [{id: default, ring_events: 4}]}}
",
    );
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    shop.publish("products", product_event(1));
    let old = cursor(&socket.message()["payload"]);
    for number in 2..=9 {
        shop.publish("products", product_event(number));
        socket.message();
    }
    let elsewhere = r#"subscription { productChangedAt(place: "x") { id } }"#;
    let forged = format!("{}x{}", &old[..5], &old[6..]);
    for (id, query, cursor, code) in [
        ("a", SUBSCRIPTION, &*forged, "CURSOR_INVALID"),
        ("b", SUBSCRIPTION, "hello", "CURSOR_INVALID"),
        ("c", elsewhere, &*old, "CURSOR_FOREIGN"),
        ("d", SUBSCRIPTION, &*old, "CURSOR_EXPIRED"),
    ] {
        resume(&mut socket, id, query, cursor);
        let message = socket.message();
        assert_eq!((&message["id"], &message["type"]), (&json!(id), &json!("error")));
        assert_eq!(message["payload"][0]["extensions"]["code"], code, "{message}");
    }
    for (reason, count) in [("invalid", 2), ("foreign", 1), ("expired", 1)] {
        let metric = format!(r#"starling_hub_cursors_refused_total{{reason="{reason}"}}"#);
        shop.wait_for_metric(&metric, count);
    }
    shop.wait_for_subscribers(1);
    shop.assert_unaffected();
}

#[test]
fn a_cursor_is_valid_at_another_router_with_the_same_keys_while_the_events_are_stored() {
    // Each router has its own memory provider, so the other one knows the key but not the events: expired, not forged.
    let (one, other) = (Shop::with(CONFIGURATION), Shop::with(CONFIGURATION));
    let mut socket = Socket::ready(one.address());
    socket.subscribe("1", SUBSCRIPTION);
    one.wait_for_subscribers(1);
    one.publish("products", product_event(1));
    let cursor = cursor(&socket.message()["payload"]);
    let mut socket = Socket::ready(other.address());
    resume(&mut socket, "1", SUBSCRIPTION, &cursor);
    assert_eq!(socket.message()["payload"][0]["extensions"]["code"], "CURSOR_EXPIRED");
    one.assert_unaffected();
    other.assert_unaffected();
}

/// A subscription to one of a thousand products.
fn only(id: usize) -> String {
    format!(r#"subscription {{ productOf(id: "{id}") {{ id }} }}"#)
}

fn id_of(payload: &Value) -> &str {
    payload["data"]["productOf"]["id"].as_str().unwrap_or_else(|| panic!("no event: {payload}"))
}

#[test]
fn a_subscriber_of_few_events_gets_positions_and_skips_the_other_events_on_resume() {
    // On one reactor thread, and on two.
    for reactors in ["", "reactors: 2\n"] {
        let shop = Shop::with(&format!(
            "
cursor: {{memory: true, keys: [a key of more than 16 bytes], ring_events: 2, heartbeat: 1s}}
{reactors}"
        ));
        let mut socket = Socket::ready(shop.address());
        socket.subscribe("1", &only(7));
        shop.wait_for_subscribers(1);
        let mut stream = Stream::open(shop.address(), &only(7));
        shop.wait_for_subscribers(2);
        for number in 1..=40 {
            shop.publish("products", product_event(number));
        }
        shop.wait_for_metric("starling_hub_events_total", 40);
        let (mut id, payload) = stream.event_with_id();
        assert_eq!(id_of(&payload), "7");
        let old = id.clone();
        let mut last = Value::Null;
        // A new subscriber begins behind all events. Other subscribers then have the same cursor.
        let mut witness = Socket::ready(shop.address());
        witness.subscribe("witness", &only(1000));
        let here = witness.position("witness");
        while last != here.as_str() {
            let message = socket.any_message();
            last = match message["type"].as_str() {
                Some("next") => message["payload"]["extensions"]["cursor"].clone(),
                Some("ping") => message["payload"]["cursor"].clone(),
                _ => panic!("{message}"),
            };
            assert_eq!(message["payload"]["id"].as_str().unwrap_or("1"), "1");
        }
        while id != here {
            id = stream.position();
        }
        drop((socket, stream));
        shop.wait_for_subscribers(1);
        for number in 41..=42 {
            shop.publish("products", product_event(number));
        }
        let mut socket = Socket::ready(shop.address());
        resume(&mut socket, "again", &only(7), &here);
        shop.wait_for_subscribers(2);
        let mut stream = Stream::open_after(shop.address(), &only(7), &here);
        shop.wait_for_subscribers(3);
        let count = |name: &str| shop.router.metric(name).unwrap_or(0);
        assert_eq!(count("starling_hub_side_readers_total"), 0);
        assert_eq!(count("starling_hub_events_replayed_total"), 0);
        shop.publish("products", product_event(7));
        assert_eq!(id_of(&socket.message()["payload"]), "7");
        assert_eq!(id_of(&stream.event_with_id().1), "7");
        // With the cursor of its last event, all later events are read again.
        resume(&mut socket, "old", &only(7), &old);
        assert_eq!(id_of(&socket.message()["payload"]), "7");
        assert_eq!(count("starling_hub_side_readers_total"), 1);
        assert!(count("starling_hub_positions_total") >= 3);
        drop((socket, stream, witness));
        shop.assert_unaffected();
    }
}

#[test]
fn a_slow_reader_that_resumes_loses_no_missed_event() {
    let shop = Shop::with(
        "
cursor: {memory: true, ring_events: 100}
subscriptions: {queue_events: 64, kernel_queue_bytes: 4KiB}
events: {providers: {memory: [{id: default, ring_events: 100000}]}}
",
    );
    let mut socket = Socket::ready(shop.address());
    let noted = "subscription { productChanged { id note } }";
    socket.subscribe("1", noted);
    shop.wait_for_subscribers(1);
    shop.publish("products", product_event(1));
    let cursor = cursor(&socket.message()["payload"]);
    drop(socket);
    shop.wait_for_subscribers(0);
    let note = "x".repeat(20_000);
    for number in 2..=1000 {
        let event = format!(r#"{{"__typename":"Product","id":"{number}","note":"{note}"}}"#);
        shop.publish("products", event);
    }
    // 20 MB are waiting for a client that reads only when the test tells it to.
    let (go, wait) = mpsc::channel();
    std::thread::scope(|scope| {
        let address = shop.address();
        let reading = scope.spawn(move || {
            let mut socket = Socket::ready(address);
            resume(&mut socket, "1", noted, &cursor);
            wait.recv().unwrap();
            for expected in 2..=1000 {
                let message = socket.message();
                assert_eq!(product_number(&message["payload"], "productChanged"), expected);
                assert!(message["payload"]["extensions"]["lost"].is_null(), "{expected}");
            }
        });
        e2e::eventually("the replay to begin", || {
            let replayed = shop.router.metric("starling_hub_events_replayed_total");
            (replayed.unwrap_or(0) > 0).then_some(())
        });
        go.send(()).unwrap();
        reading.join().unwrap();
    });
    shop.assert_unaffected();
}
