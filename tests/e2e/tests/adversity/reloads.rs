//! New supergraphs while the router serves: good ones, bad ones, none at all.

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

/// As deployments do: written beside, then moved into place.
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
fn a_hang_up_signal_without_a_change_changes_nothing() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    shop.router.signal("HUP");
    wait_for_loads(&shop, "unchanged", 1);
    shop.publish("products", EVENT);
    assert_eq!(socket.message(), next("1"));
    assert_eq!((loads(&shop, "loaded"), loads(&shop, "refused")), (1, 0));
    shop.assert_unharmed();
}

#[test]
fn a_supergraph_that_does_not_load_is_refused_and_nobody_notices() {
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
    let refusal = "the new supergraph was refused, the old one goes on serving";
    e2e::eventually("all refusals to be logged", || {
        (shop.router.said().matches(refusal).count() as u64 == count + 1).then_some(())
    });
    assert!(shop.router.said().contains("cannot find type `Revue`"), "{}", shop.router.said());
    replace_supergraph(&shop, &good);
    wait_for_loads(&shop, "unchanged", 1);
    shop.assert_unharmed();
}

#[test]
fn a_new_supergraph_serves_at_once_and_ends_subscriptions_with_the_reason() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    let mut stream = Stream::open(shop.address(), SUBSCRIPTION);
    shop.wait_for_subscribers(2);
    assert_eq!(shop.query("{ warehouse { town: city } }").status, 200);
    let new = shop.supergraph().replace(
        "type Warehouse @join__type(graph: STOCK) {",
        "type Warehouse @join__type(graph: STOCK) {\n  street: String",
    );
    replace_supergraph(&shop, &new);
    wait_for_loads(&shop, "loaded", 2);
    shop.wait_for_metric("starling_graph_generation", 2);
    assert_eq!(
        shop.query("{ __type(name: \"Warehouse\") { fields { name } } }").text(),
        r#"{"data":{"__type":{"fields":[{"name":"street"},{"name":"city"}]}}}"#
    );
    expect![[r#"{"id":"1","type":"error","payload":[{"message":"the graph was replaced while this subscription ran; subscribe again","extensions":{"code":"GRAPH_RELOADED"}}]}"#]].assert_eq(&socket.message().to_string());
    expect![[r#"
        next {"errors":[{"message":"the graph was replaced while this subscription ran; subscribe again","extensions":{"code":"GRAPH_RELOADED"}}]}
        complete
        end
    "#]].assert_eq(&stream.transcript());
    // The connection is the client's still, and it may subscribe again under the same name.
    socket.subscribe("1", SUBSCRIPTION);
    // The bystander's ended as well.
    e2e::eventually("one subscriber", || (shop.subscribers() == 1).then_some(()));
    shop.publish("products", EVENT);
    assert_eq!(socket.message(), next("1"));
    // A query that was prepared for the old graph is prepared anew.
    assert_eq!(
        shop.ask("{ warehouse { town: city } }"),
        json!({ "data": { "warehouse": { "town": "Bergen" } } })
    );
    shop.without_bystander().assert_unharmed();
}

#[test]
fn a_query_in_flight_during_a_reload_is_answered_by_the_graph_that_it_was_asked_of() {
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
    shop.without_bystander().assert_unharmed();
}
