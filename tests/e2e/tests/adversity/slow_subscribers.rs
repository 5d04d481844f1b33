//! Subscribers that do not read. The configuration determines what happens to them; other subscribers do not wait for
//! them.

use serde_json::{Value, json};

use crate::shop::Shop;
use crate::socket::{Received, Socket};
use crate::stream::Stream;

const SUBSCRIPTION: &str = "subscription { productChanged { id note } }";

/// Far more than the socket buffers of the operating system and the queue of a subscriber hold.
const EVENTS: usize = 300;

/// About 100 KB each, 30 MB in total.
fn event(number: usize) -> String {
    format!(r#"{{"__typename":"Product","id":"{number}","note":"{}"}}"#, "x".repeat(100_000))
}

fn publish_all(shop: &Shop) {
    for number in 1..=EVENTS {
        shop.publish("products", event(number));
        // Each event is delivered before the next is published, so the subscriber is slow and not the hub.
        e2e::eventually("the event to be delivered", || {
            (shop.router.metric("starling_hub_broadcasts_total") >= Some(number as u64))
                .then_some(())
        });
    }
}

/// Returns the received numbers and the number of events reported as lost, once every event is accounted for.
fn account(mut next: impl FnMut() -> Value) -> (Vec<u64>, u64) {
    let (mut received, mut lost) = (Vec::new(), 0);
    while received.len() as u64 + lost < EVENTS as u64 {
        let payload = next();
        lost += payload["extensions"]["lost"].as_u64().unwrap_or(0);
        let id = payload["data"]["productChanged"]["id"].as_str().unwrap();
        received.push(id.parse().unwrap());
    }
    (received, lost)
}

/// Publishes events until the router closes the subscriber that does not read. Returns the number of events.
fn publish_until_given_up(shop: &Shop) -> usize {
    let mut number = 0;
    e2e::eventually("the slow subscriber to be closed", || {
        number += 1;
        shop.publish("products", event(number));
        let slow = r#"starling_subscribers_slow_total{policy="disconnect"}"#;
        (shop.router.metric(slow) == Some(1)).then_some(())
    });
    shop.wait_for_subscribers(0);
    number
}

fn payload(stream: &mut Stream) -> Value {
    let event = stream.event().unwrap();
    serde_json::from_str(event.strip_prefix("next ").unwrap()).unwrap()
}

#[test]
fn by_default_an_unread_websocket_is_closed_with_a_reason() {
    let shop = Shop::with("subscriptions: {queue_events: 4}");
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    publish_until_given_up(&shop);
    let last = loop {
        match socket.receive() {
            Received::Text(_) => {}
            Received::Closed(closed) => break closed,
        }
    };
    assert_eq!(
        (last.code.0, &*last.reason),
        (4410, "events came faster than this client read them; the connection is closed")
    );
    shop.assert_unaffected();
}

#[test]
fn the_last_cursor_of_a_websocket_that_was_closed_as_unread_leads_to_the_next_event() {
    let shop = Shop::with("subscriptions: {queue_events: 4}\ncursor: {memory: true}");
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    let number = publish_until_given_up(&shop);
    let id = |message: &Value| {
        let id = message["payload"]["data"]["productChanged"]["id"].as_str();
        id.map(|id| id.parse::<usize>().unwrap())
    };
    let (mut last, mut cursor) = (0, Value::Null);
    while let Received::Text(text) = socket.receive() {
        let mut message: Value = serde_json::from_str(&text).unwrap();
        let Some(id) = id(&message) else { continue };
        assert_eq!(id, last + 1, "nothing is left out before the end");
        (last, cursor) = (id, message["payload"]["extensions"]["cursor"].take());
    }
    assert!(last > 0 && last < number && cursor.is_string(), "{last} of {number}: {cursor}");
    let mut again = Socket::ready(shop.address());
    let payload = json!({ "query": SUBSCRIPTION, "extensions": { "cursor": cursor } });
    again.send(&json!({ "id": "2", "type": "subscribe", "payload": payload }).to_string());
    for expected in last + 1..=number {
        let message = again.message();
        assert_eq!(id(&message), Some(expected));
        let extensions = &message["payload"]["extensions"];
        assert!(extensions["lost"].is_null() && extensions["gap"].is_null(), "{extensions}");
    }
    shop.assert_unaffected();
}

#[test]
fn by_default_an_unread_stream_ends_with_a_reason() {
    let shop = Shop::with("subscriptions: {queue_events: 4}");
    let mut stream = Stream::open(shop.address(), SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    publish_until_given_up(&shop);
    let transcript = stream.transcript();
    let end: Vec<&str> = transcript.lines().rev().take(3).collect();
    let error = "next {\"errors\":[{\"message\":\"events came faster than this client read them; the connection \
                 is closed\",\"extensions\":{\"code\":\"SLOW_SUBSCRIBER\"}}]}";
    assert_eq!(end, ["end", "complete", error]);
    shop.assert_unaffected();
}

#[test]
fn a_slow_subscriber_that_does_not_read_the_close_frame_is_cut_off() {
    let shop = Shop::with("subscriptions: {queue_events: 4}");
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    publish_until_given_up(&shop);
    // The connection of the control subscriber.
    shop.wait_for_metric("starling_http_connections", 1);
    shop.assert_unaffected();
}

#[test]
fn with_drop_oldest_a_slow_subscriber_gets_the_newest_events_and_the_number_of_lost_ones() {
    let shop = Shop::with("subscriptions: {queue_events: 4, policy: drop_oldest}");
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    let mut stream = Stream::open(shop.address(), SUBSCRIPTION);
    shop.wait_for_subscribers(2);
    publish_all(&shop);
    for (received, lost) in
        [account(|| socket.message()["payload"].take()), account(|| payload(&mut stream))]
    {
        assert!(lost > 0, "nothing was lost of {EVENTS}");
        assert!(received.is_sorted(), "{received:?}");
        assert_eq!(received.last(), Some(&(EVENTS as u64)));
    }
    shop.assert_unaffected();
}

#[test]
fn with_latest_a_slow_subscriber_gets_the_newest_event_and_the_number_of_lost_ones() {
    let shop = Shop::with("subscriptions: {policy: latest}");
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    publish_all(&shop);
    let (received, lost) = account(|| socket.message()["payload"].take());
    assert!(lost > 0, "nothing was lost of {EVENTS}");
    assert_eq!(received.last(), Some(&(EVENTS as u64)));
    // The events in transit when the socket was full, and then only the latest.
    let before = received[received.len() - 2];
    assert!((EVENTS as u64) - before > 10, "{received:?}");
    shop.assert_unaffected();
}

#[test]
fn an_unread_subscriber_does_not_delay_others() {
    let shop = Shop::with("workers: 1\nsubscriptions: {policy: latest}");
    let mut lazy = Socket::ready(shop.address());
    lazy.subscribe("1", SUBSCRIPTION);
    let mut keen = Socket::ready(shop.address());
    keen.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(2);
    for number in 1..=EVENTS {
        shop.publish("products", event(number));
        let message = keen.message();
        assert_eq!(message["payload"]["data"]["productChanged"]["id"], number.to_string());
        assert_eq!(message["payload"].get("extensions"), None);
    }
    shop.assert_unaffected();
}
