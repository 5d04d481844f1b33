//! New supergraphs while the router serves: valid ones, invalid ones and a deleted file.

use expect_test::expect;
use serde_json::json;

use crate::shop::Shop;
use crate::socket::Socket;
use crate::stream::Stream;

fn loads(shop: &Shop, result: &str) -> u64 {
    let name = format!("starling_graph_loads_total{{result=\"{result}\"}}");
    shop.router.metric(&name).unwrap_or(0)
}

fn wait_for_loads(shop: &Shop, result: &str, count: u64) {
    shop.wait_for_metric(&format!("starling_graph_loads_total{{result=\"{result}\"}}"), count);
}

/// As deployments do: written to a new file, then renamed.
fn replace_supergraph(shop: &Shop, text: &str) {
    let file = shop.supergraph_file();
    let beside = file.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, file).unwrap();
}

const SUBSCRIPTION: &str = "subscription { productChanged { id name } }";
const EVENT: &str = r#"{"__typename":"Product","id":"1"}"#;

fn next(id: &str) -> serde_json::Value {
    let data = json!({ "productChanged": { "id": "1", "name": "Kettle" } });
    json!({ "id": id, "type": "next", "payload": { "data": data } })
}

#[test]
fn a_hangup_signal_without_a_change_changes_nothing() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    shop.router.signal("HUP");
    wait_for_loads(&shop, "unchanged", 1);
    shop.publish("products", EVENT);
    assert_eq!(socket.message(), next("1"));
    assert_eq!((loads(&shop, "loaded"), loads(&shop, "refused")), (1, 0));
    shop.assert_unaffected();
}

#[test]
fn an_invalid_supergraph_is_refused_without_effect_on_clients() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    let good = shop.supergraph();
    let bad = [
        ("empty", String::new()),
        ("cut off", good[..good.len() / 2].to_owned()),
        ("no GraphQL", "products: [1, 2]".to_owned()),
        ("no supergraph", "type Query { a: Int }".to_owned()),
        ("an unknown type", good.replace("latestReview: Review", "latestReview: Revue")),
        ("an unknown provider", good.replace("memory/default", "kafka/orders")),
        ("a URL that is none", good.replace("http://", "gopher://")),
    ];
    let count = bad.len() as u64;
    for (refused, (name, text)) in (1..).zip(bad) {
        replace_supergraph(&shop, &text);
        wait_for_loads(&shop, "refused", refused);
        assert_eq!(loads(&shop, "loaded"), 1, "{name}");
        shop.publish("products", EVENT);
        assert_eq!(socket.message(), next("1"), "{name}");
    }
    std::fs::remove_file(shop.supergraph_file()).unwrap();
    wait_for_loads(&shop, "refused", count + 1);
    let refusal = "the new supergraph was refused; the old one continues to serve";
    e2e::eventually("all refusals to be logged", || {
        (shop.router.output().matches(refusal).count() as u64 == count + 1).then_some(())
    });
    assert!(shop.router.output().contains("cannot find type `Revue`"), "{}", shop.router.output());
    replace_supergraph(&shop, &good);
    wait_for_loads(&shop, "unchanged", 1);
    shop.assert_unaffected();
}

#[test]
fn a_new_supergraph_serves_at_once_and_ends_only_operations_that_are_invalid_on_it() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    let mut stream = Stream::open(shop.address(), SUBSCRIPTION);
    let mut outdated = Stream::open(shop.address(), "subscription { productChanged { id note } }");
    shop.wait_for_subscribers(3);
    assert_eq!(shop.query("{ warehouse { town: city } }").status, 200);
    let new = shop
        .supergraph()
        .replace(
            "type Warehouse @join__type(graph: STOCK) {",
            "type Warehouse @join__type(graph: STOCK) {\n  street: String",
        )
        .replace("  note: String @join__field(graph: EVENTS)\n", "");
    replace_supergraph(&shop, &new);
    wait_for_loads(&shop, "loaded", 2);
    shop.wait_for_metric("starling_graph_generation", 2);
    assert_eq!(
        shop.query("{ __type(name: \"Warehouse\") { fields { name } } }").text(),
        r#"{"data":{"__type":{"fields":[{"name":"street"},{"name":"city"}]}}}"#
    );
    expect![[r#"
        next {"errors":[{"message":"the graph was replaced, and this subscription cannot continue on the new one: type `Product` does not have a field `note`","extensions":{"code":"GRAPH_RELOADED"}}]}
        complete
        end
    "#]].assert_eq(&outdated.transcript());
    // The other subscriptions continue, and a new subscription shares their operation.
    socket.subscribe("2", SUBSCRIPTION);
    shop.wait_for_subscribers(3);
    shop.publish("products", EVENT);
    let mut received = [socket.message(), socket.message()];
    received.sort_by_key(|message| message["id"].to_string());
    assert_eq!(received, [next("1"), next("2")]);
    assert_eq!(
        stream.event().unwrap(),
        r#"next {"data":{"productChanged":{"id":"1","name":"Kettle"}}}"#
    );
    assert_eq!(shop.router.metric("starling_hub_resolutions_total"), Some(1));
    // A query that was prepared for the old graph is prepared again.
    assert_eq!(
        shop.ask("{ warehouse { town: city } }"),
        json!({ "data": { "warehouse": { "town": "Bergen" } } })
    );
    shop.assert_unaffected();
}

#[test]
fn a_hundred_reloads_under_load_neither_lose_nor_repeat_events() {
    const RELOADS: u64 = 100;
    const SOCKETS: usize = 100;
    // Faster than the refresh rate of a display, and slow enough for a machine that runs all tests at once.
    const PACE: std::time::Duration = std::time::Duration::from_millis(20);
    let shop = Shop::open();
    let query = "subscription { productChanged { note name } }";
    let mut sockets: Vec<_> = (0..SOCKETS).map(|_| Socket::ready(shop.address())).collect();
    sockets.iter_mut().for_each(|socket| socket.subscribe("1", query));
    let mut stream = Stream::open(shop.address(), query);
    shop.wait_for_subscribers(SOCKETS as u64 + 1);
    let mut comer = Socket::ready(shop.address());
    let data = |number: u64| {
        let number = number.to_string();
        json!({ "data": { "productChanged": { "note": number, "name": "Kettle" } } })
    };
    let (mut published, mut received) = (0, 0);
    for reload in 1..=RELOADS {
        replace_supergraph(&shop, &format!("# {reload}\n{}", shop.supergraph()));
        while shop.router.metric("starling_graph_generation") != Some(reload + 1) {
            published += 1;
            // One client subscribes and leaves all the time.
            comer.subscribe(&published.to_string(), query);
            if published > 1 {
                let before = (published - 1).to_string();
                comer.send(&json!({ "id": before, "type": "complete" }).to_string());
            }
            let event =
                json!({ "__typename": "Product", "id": "1", "note": published.to_string() });
            shop.publish("products", event.to_string());
            std::thread::sleep(PACE);
        }
        // All events, in order, once, without a report of missing events.
        for number in received + 1..=published {
            for socket in &mut sockets {
                let expected = json!({ "id": "1", "type": "next", "payload": data(number) });
                assert_eq!(socket.message(), expected);
            }
            let expected =
                format!(r#"{{"data":{{"productChanged":{{"note":"{number}","name":"Kettle"}}}}}}"#);
            assert_eq!(stream.event().unwrap(), format!("next {expected}"));
        }
        received = published;
        comer.subscribe("read", "{ __typename }");
        loop {
            let message = comer.message();
            assert_ne!(message["type"], "error", "who comes during a reload is served: {message}");
            if message == json!({ "id": "read", "type": "complete" }) {
                break;
            }
        }
    }
    assert!(received > RELOADS, "every reload happened under load");
    comer.send(&json!({ "id": published.to_string(), "type": "complete" }).to_string());
    shop.wait_for_subscribers(SOCKETS as u64 + 1);
    assert_eq!(shop.subscribers(), SOCKETS as u64 + 2, "no subscriber had to reconnect");
    assert_eq!(shop.router.metric("starling_hub_groups"), Some(2));
    shop.assert_unaffected();
}

#[test]
fn a_subscription_whose_topic_changes_continues_with_the_new_topic_and_reports_it() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    replace_supergraph(&shop, &shop.supergraph().replace(r#"["products"]"#, r#"["goods"]"#));
    shop.wait_for_metric("starling_hub_operations_moved_total", 1);
    shop.publish("products", EVENT);
    shop.publish("goods", EVENT);
    shop.publish("goods", EVENT);
    let mut first = next("1");
    first["payload"]["extensions"] = json!({ "gap": true });
    assert_eq!([socket.message(), socket.message()], [first, next("1")]);
    shop.assert_unaffected();
}

#[test]
fn a_query_in_flight_during_a_reload_is_executed_on_the_old_graph() {
    let shop = Shop::open();
    shop.subgraph("reviews").set_fault(load::subgraph::Fault::Hold);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", "{ latestReview { text } }");
    shop.wait_for_metric(r#"starling_subgraph_requests_in_flight{subgraph="reviews"}"#, 1);
    let without =
        shop.supergraph().replace("  latestReview: Review @join__field(graph: REVIEWS)\n", "");
    replace_supergraph(&shop, &without);
    wait_for_loads(&shop, "loaded", 2);
    shop.subgraph("reviews").clear_fault();
    assert_eq!(
        socket.message(),
        json!({ "id": "1", "type": "next", "payload": { "data": { "latestReview": { "text": "Shines." } } } })
    );
    assert_eq!(shop.query("{ latestReview { text } }").status, 400);
    shop.without_control_subscriber().assert_unaffected();
}
