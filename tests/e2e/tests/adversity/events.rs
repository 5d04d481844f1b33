//! Malformed events and invalid topics.

use e2e::request;
use expect_test::expect;

use crate::responses::{case, format_response};
use crate::shop::Shop;
use crate::socket::Socket;
use crate::stream::Stream;

const EVENT: &str = r#"{"__typename":"Product","id":"1"}"#;

#[test]
fn a_malformed_event_gives_its_subscribers_an_error_and_the_subscription_continues() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", "subscription { changed: productChanged { id name } }");
    shop.wait_for_subscribers(1);
    let deep = format!(
        r#"{{"__typename":"Product","id":"1","x":{}1{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let mut outcomes = String::new();
    for (name, event) in [
        ("nothing", ""),
        ("no JSON", "hello"),
        ("cut off", r#"{"__typename":"Product","id":"#),
        ("a list", "[]"),
        ("null", "null"),
        ("no __typename", r#"{"id":"1"}"#),
        ("an unknown type", r#"{"__typename":"Prodct","id":"1"}"#),
        ("a type that does not fit", r#"{"__typename":"Warehouse","city":"Bergen"}"#),
        ("a __typename that is no text", r#"{"__typename":7,"id":"1"}"#),
        ("no key", r#"{"__typename":"Product"}"#),
        ("null as key", r#"{"__typename":"Product","id":null}"#),
        ("an object as key", r#"{"__typename":"Product","id":{"a":1}}"#),
        ("a list as key", r#"{"__typename":"Product","id":["1"]}"#),
        ("a key that nobody knows", r#"{"__typename":"Product","id":"404"}"#),
        ("keys twice", r#"{"__typename":"Product","id":"1","id":"2"}"#),
        ("nesting without end", &deep),
        ("a good one", EVENT),
    ] {
        shop.publish("products", event);
        outcomes += &case(name, &format!("{}\n", socket.message()));
    }
    expect![[r#"
        --- nothing
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event is not valid JSON: the text ends too early at byte 0.","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- no JSON
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event is not valid JSON: a value was expected at byte 0.","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- cut off
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event is not valid JSON: the text ends too early at byte 29.","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- a list
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event is not a JSON object.","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- null
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event is not a JSON object.","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- no __typename
        {"id":"1","type":"next","payload":{"data":{"changed":{"id":"1","name":"Kettle"}}}}

        --- an unknown type
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event has the __typename \"Prodct\", which is not expected here.","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- a type that does not fit
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event has the __typename \"Warehouse\", which is not expected here.","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- a __typename that is no text
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event has a __typename that is not a string.","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- no key
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event has no key field \"id\".","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- null as key
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event has null as key field \"id\".","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- an object as key
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event has an object as key field \"id\".","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- a list as key
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"Field Product.id must be a string or an integer, a subgraph sent a list.","path":["changed","id"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}}]}}

        --- a key that nobody knows
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"Cannot return null for non-nullable field Product.name.","path":["changed","name"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}}]}}

        --- keys twice
        {"id":"1","type":"next","payload":{"data":{"changed":{"id":"2","name":"Lamp"}}}}

        --- nesting without end
        {"id":"1","type":"next","payload":{"data":{"changed":null},"errors":[{"message":"The event is not valid JSON: arrays and objects are nested too deeply at byte 548.","path":["changed"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- a good one
        {"id":"1","type":"next","payload":{"data":{"changed":{"id":"1","name":"Kettle"}}}}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn an_event_of_a_megabyte_is_delivered_and_one_over_it_is_refused_on_publishing() {
    let shop = Shop::with("subscriptions: {queue_bytes: 4MiB}");
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", "subscription { productChanged { id note } }");
    shop.wait_for_subscribers(1);
    let event = |length: usize| {
        let head = r#"{"__typename":"Product","id":"1","note":""#;
        format!(r#"{head}{}"}}"#, "x".repeat(length - head.len() - 2))
    };
    shop.publish("products", event(1 << 20));
    let message = socket.message();
    let note = message["payload"]["data"]["productChanged"]["note"].as_str().map(str::len);
    assert_eq!(note, Some((1 << 20) - 43));
    let target = "/admin/publish?topic=products";
    let response =
        request(shop.router.admin(), "POST", target, &[], event((1 << 20) + 1).as_bytes()).unwrap();
    expect![[r#"
        413 text/plain; charset=utf-8
        a test event may have at most 1048576 bytes
    "#]]
    .assert_eq(&format_response(&response));
    shop.assert_unaffected();
}

#[test]
fn a_value_that_would_make_another_topic_is_refused() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for place in ["", "a\\nb", "x\\u0000", &"y".repeat(2000)] {
        let query = format!("subscription {{ productChangedAt(place: \"{place}\") {{ id }} }}");
        let mut stream = Stream::open(shop.address(), &query);
        outcomes += &case(&place.chars().take(10).collect::<String>(), &stream.transcript());
    }
    let query = r#"mutation { announce(id: 1, place: "") { success } }"#;
    outcomes += &case("a mutation", &format_response(&shop.query(query)));
    expect![[r#"
        --- 
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it is empty.","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- a\nb
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it contains a control character.","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- x\u0000
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it contains a control character.","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- yyyyyyyyyy
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it is longer than 1024 bytes.","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- a mutation
        200 application/graphql-response+json; charset=utf-8
        {"data":null,"errors":[{"message":"Argument \"place\" cannot be part of a topic: it is empty.","path":["announce"],"extensions":{"code":"BAD_USER_INPUT"}}]}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_test_event_that_cannot_be_published_is_refused_with_the_reason() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for (method, target) in [
        ("GET", "/admin/publish?topic=products"),
        ("POST", "/admin/publish"),
        ("POST", "/admin/publish?topic="),
        ("POST", "/admin/publish?topic=a%0Ab"),
        ("POST", "/admin/publish?topic=products&provider=nats/default"),
        ("POST", "/admin/publish?topic=products&provider="),
        ("PUT", "/metrics"),
        ("GET", "/admin"),
    ] {
        let response = request(shop.router.admin(), method, target, &[], EVENT.as_bytes()).unwrap();
        outcomes += &case(&format!("{method} {target}"), &format_response(&response));
    }
    expect![[r#"
        --- GET /admin/publish?topic=products
        405 text/plain; charset=utf-8
        allow: POST
        only POST is allowed here

        --- POST /admin/publish
        400 text/plain; charset=utf-8
        the topic is missing: add ?topic=T

        --- POST /admin/publish?topic=
        400 text/plain; charset=utf-8
        the topic is missing: add ?topic=T

        --- POST /admin/publish?topic=a%0Ab
        502 text/plain; charset=utf-8
        provider memory/default refused the event for topic "a\nb": it contains a control character

        --- POST /admin/publish?topic=products&provider=nats/default
        404 text/plain; charset=utf-8
        no provider "nats/default" is configured; configured: memory/default

        --- POST /admin/publish?topic=products&provider=
        404 text/plain; charset=utf-8
        no provider "" is configured; configured: memory/default

        --- PUT /metrics
        405 text/plain; charset=utf-8
        allow: GET
        only GET is allowed here

        --- GET /admin
        404 text/plain; charset=utf-8
        This is the admin listener. It has:
        GET  /health/live         status 200 if the process runs
        GET  /health/ready        status 200 if the router accepts traffic
        GET  /metrics             counters for Prometheus
        GET  /admin/subscriptions providers, live triggers, groups and their subscribers
        GET  /admin/usage         use of fields and arguments by client, for `starling diff --usage`
        GET  /admin/operations    the most used operations, from which other routers warm their caches
        GET  /admin/cache         hit ratios, stores, hot and large entries, if `cache.enabled` is set
        GET  /debug/pprof/        profiles, if `admin.profiling` is set
        GET  /console/            the console, a page for browsers (`admin.console`)
        POST /admin/publish?provider=memory/default&topic=T  publishes the body as an event,
        or, as application/x-ndjson, each of its lines
        POST /admin/complete?provider=memory/default&topic=T  completes the subscriptions to a topic
        POST /admin/reload        reads the graph again
        POST /admin/rollback      returns to the graph before, until the source changes
        POST /admin/invalidate    makes stale what the JSON body names, if `cache.enabled` is set
        POST /admin/cache/preview counts what /admin/invalidate would make stale
        With several graphs, the parameter `graph` names one for /admin/subscriptions, operations, reload, rollback

    "#]]
    .assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_body_of_lines_is_an_event_for_each_of_them_in_order() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", "subscription { productChanged { id } }");
    shop.wait_for_subscribers(1);
    let event = |id: u32| format!(r#"{{"__typename":"Product","id":"{id}"}}"#);
    let body = format!("{}\n\n{}\n{}\n", event(1), event(2), event(3));
    let headers = [("content-type", "application/x-ndjson")];
    let publish = |topic: &str| {
        let target = format!("/admin/publish?topic={topic}");
        request(shop.router.admin(), "POST", &target, &headers, body.as_bytes()).unwrap()
    };
    let response = publish("products");
    assert_eq!((response.status, response.text().as_str()), (200, "published\n"));
    for id in ["1", "2", "3"] {
        assert_eq!(socket.message()["payload"]["data"]["productChanged"]["id"], id);
    }
    expect![[r#"
        502 text/plain; charset=utf-8
        0 of 3 events are published: provider memory/default refused the event for topic "a\nb": it contains a control character
    "#]]
    .assert_eq(&format_response(&publish("a%0Ab")));
    shop.assert_unaffected();
}

#[test]
fn an_operation_that_cannot_be_streamed_ends_the_stream_with_the_reason() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for query in ["subscription {", "subscription { nothing { id } }", "{ nothing }"] {
        let mut stream = Stream::open(shop.address(), query);
        outcomes += &case(query, &stream.transcript());
    }
    expect![[r#"
        --- subscription {
        next {"errors":[{"message":"syntax error: expected at least one Selection in Selection Set","locations":[{"line":1,"column":15}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}
        complete
        broken off

        --- subscription { nothing { id } }
        next {"errors":[{"message":"type `Subscription` does not have a field `nothing`","locations":[{"line":1,"column":16}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}
        complete
        broken off

        --- { nothing }
        next {"errors":[{"message":"type `Query` does not have a field `nothing`","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}
        complete
        broken off

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}
