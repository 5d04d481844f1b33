//! Subscriptions that begin with the current state.

use std::sync::atomic::{AtomicBool, Ordering};

use load::subgraph::Fault;
use serde_json::json;

use crate::shop::{Shop, cursor, product_event, product_number};
use crate::socket::Socket;
use crate::stream::Stream;

const CONFIGURATION: &str = "
cursor: {memory: true, keys: [a key of more than 16 bytes]}
events: {providers: {memory: [{id: default, ring_events: 100000}]}}
";

#[test]
fn while_others_publish_the_state_comes_first_and_no_event_after_it_is_missing() {
    let shop = Shop::with(CONFIGURATION);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Only products 1 and 2 exist.
            let mut number = 100;
            while !is_over.load(Ordering::Relaxed) {
                shop.publish("products", product_event(number));
                number += 1;
            }
        });
        let _end = SetOnDrop(&is_over);
        for field in ["productWatched", "productAsked"].repeat(5) {
            let query = format!("subscription {{ {field}(id: \"2\") {{ id __typename }} }}");
            let mut socket = Socket::ready(shop.address());
            socket.subscribe("1", &query);
            let state = socket.message()["payload"].take();
            assert_eq!(state["data"][field], json!({ "id": "2", "__typename": "Product" }));
            // A client that resumes with its cursor receives the same events, and no state.
            let mut again = Stream::open_after(shop.address(), &query, &cursor(&state));
            let mut expected = None;
            for _ in 0..20 {
                let payload = socket.message()["payload"].take();
                let live = product_number(&payload, field);
                assert_eq!(live, expected.unwrap_or(live));
                let (id, resumed) = again.event_with_id();
                assert_eq!((id, &resumed["data"]), (cursor(&payload), &payload["data"]));
                expected = Some(live + 1);
            }
        }
    });
    shop.assert_unaffected();
}

/// Sets a flag when it is dropped, so that a failed assertion ends the threads that wait for the flag.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn simultaneous_subscribers_share_one_request_and_its_failure_is_reported_with_the_events() {
    const SUBSCRIBERS: usize = 50;
    let shop = Shop::with(CONFIGURATION);
    let query = r#"subscription { productWatched(id: "1") { id name } }"#;
    let state = json!({ "productWatched": { "id": "1", "name": "Kettle" } });
    let mut socket = Socket::ready(shop.address());
    for id in 0..SUBSCRIBERS {
        socket.subscribe(&id.to_string(), query);
    }
    for _ in 0..SUBSCRIBERS {
        assert_eq!(socket.message()["payload"]["data"], state);
    }
    let states = shop.router.metric("starling_hub_states_total").unwrap_or(0);
    let shared = shop.router.metric("starling_hub_states_shared_total").unwrap_or(0);
    assert_eq!(states + shared, SUBSCRIBERS as u64, "each has had one");
    assert_eq!(shop.subgraph("products").request_count(), states);
    shop.wait_for_metric("starling_hub_groups", 2);
    drop(socket);

    shop.subgraph("products").set_fault(Fault::Down);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", query);
    let failed = socket.message()["payload"].take();
    assert_eq!(failed["errors"].as_array().unwrap().len(), 1, "{failed}");
    shop.subgraph("products").clear_fault();
    shop.publish("products", product_event(1));
    assert_eq!(socket.message()["payload"]["data"], state);

    let unknown = r#"subscription { productWatched(id: "9") { id price } }"#;
    socket.subscribe("2", unknown);
    assert_eq!(socket.message()["payload"]["data"], json!({ "productWatched": null }));
    shop.assert_unaffected();
}
