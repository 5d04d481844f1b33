//! Subgraphs with every kind of failure.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use bytes::Bytes;
use e2e::request;
use expect_test::expect;
use load::subgraph::Fault;
use serde_json::{Value, json};

use crate::responses::{case, format_response};
use crate::shop::Shop;
use crate::socket::Socket;

/// Joins three subgraphs; the router fetches entities from `reviews`, and all its fields are non-null except the
/// product.
const JOINED: &str = "{ product(id: 1) { name inStock reviews { text } } }";

fn responses(status: u16, content_type: &str, body: &'static str) -> Fault {
    let body = Bytes::from_static(body.as_bytes());
    Fault::Response { status, content_type: content_type.to_owned(), body }
}

/// Every way in which a whole response can fail.
fn faults() -> Vec<(&'static str, Fault)> {
    const JSON: &str = "application/json";
    vec![
        ("hangs up", Fault::Down),
        ("500", Fault::InternalServerError),
        ("HTML", Fault::Html),
        ("502 with HTML", responses(502, "text/html", "<h1>Bad Gateway</h1>")),
        ("503 with JSON", responses(503, JSON, r#"{"message":"try later"}"#)),
        (
            "401 with GraphQL errors",
            responses(
                401,
                JSON,
                r#"{"errors":[{"message":"token expired","extensions":{"code":"UNAUTHENTICATED","stacktrace":["at a"]}}]}"#,
            ),
        ),
        ("302", responses(302, "text/plain", "")),
        ("truncated JSON", Fault::TruncatedJson),
        ("cut off", Fault::CutOff),
        ("nothing", responses(200, JSON, "")),
        ("a number", responses(200, JSON, "7")),
        ("a list", responses(200, JSON, "[]")),
        ("an empty object", responses(200, JSON, "{}")),
        ("null without a reason", responses(200, JSON, r#"{"data":null}"#)),
        ("no data", responses(200, JSON, r#"{"data":{}}"#)),
        ("data that is no object", responses(200, JSON, r#"{"data":[]}"#)),
        ("too few entities", responses(200, JSON, r#"{"data":{"_entities":[]}}"#)),
        ("too many entities", responses(200, JSON, r#"{"data":{"_entities":[null,null,null]}}"#)),
        ("entities that are no list", responses(200, JSON, r#"{"data":{"_entities":{}}}"#)),
        ("an entity that is no object", responses(200, JSON, r#"{"data":{"_entities":["x"]}}"#)),
        ("an unknown entity", responses(200, JSON, r#"{"data":{"_entities":[null]}}"#)),
        (
            "values of other types",
            responses(
                200,
                JSON,
                r#"{"data":{"_entities":[{"__typename":"Product","reviews":[{"text":{"a":1}}]}]}}"#,
            ),
        ),
        (
            "no list where one should be",
            responses(
                200,
                JSON,
                r#"{"data":{"_entities":[{"__typename":"Product","reviews":7}]}}"#,
            ),
        ),
        ("errors that are no list", responses(200, JSON, r#"{"errors":"no"}"#)),
        (
            "errors of strange shapes",
            responses(200, JSON, r#"{"errors":[7,{},{"message":7,"path":"x","extensions":[]}]}"#),
        ),
        ("another media type", responses(200, "application/xml", "<a/>")),
        (
            "an error with a code",
            Fault::GraphqlError {
                message: "the shelf fell over".into(),
                code: Some("SHELF".into()),
            },
        ),
        ("a null that must not be", Fault::null_field("Review", "text")),
        ("an error of a field", Fault::field_error("Review", "text", "the ink has run out")),
    ]
}

#[test]
fn a_failing_subgraph_fails_only_its_own_fields_and_the_error_reports_the_cause() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for (name, fault) in faults() {
        shop.subgraph("reviews").set_fault(fault);
        outcomes += &case(name, &format_response(&shop.query(JOINED)));
    }
    expect![[r#"
        --- hangs up
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: connection closed before the response was complete: unexpected end.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- 500
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: HTTP status 500 Internal Server Error, content type text/plain.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- HTML
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: HTTP status 200 OK, content type text/html.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- 502 with HTML
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: HTTP status 502 Bad Gateway, content type text/html.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- 503 with JSON
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: HTTP status 503 Service Unavailable, content type application/json.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- 401 with GraphQL errors
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"token expired","path":["product"],"extensions":{"serviceName":"reviews","code":"UNAUTHENTICATED"}}]}

        --- 302
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: HTTP status 302 Found, content type text/plain.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- truncated JSON
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent a response that is not valid JSON: the text ends too early at byte 28.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- cut off
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: connection closed before the response was complete: unexpected end.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- nothing
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent an empty response (HTTP status 200 OK).","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- a number
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent a response that is not a JSON object.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- a list
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent a response that is not a JSON object.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- an empty object
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent a response with neither data nor errors (HTTP status 200 OK).","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- null without a reason
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent null as data and no error that explains it.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- no data
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent no entities and no error that explains it.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- data that is no object
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent a response whose \"data\" is not an object.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- too few entities
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" was asked for 1 entities and sent 0.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- too many entities
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" was asked for 1 entities and sent 3.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- entities that are no list
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent entities that are not a list.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- an entity that is no object
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent an entity that is not an object.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- an unknown entity
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Cannot return null for non-nullable field Product.reviews.","path":["product","reviews"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}}]}

        --- values of other types
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Field Review.text must be a string, a subgraph sent an object.","path":["product","reviews",0,"text"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}}]}

        --- no list where one should be
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Field Product.reviews must be a list, a subgraph sent a number.","path":["product","reviews"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}}]}

        --- errors that are no list
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" sent a response whose \"errors\" is not a list.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- errors of strange shapes
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"the subgraph reported an error without a message","path":["product"],"extensions":{"code":"DOWNSTREAM_SERVICE_ERROR","serviceName":"reviews"}},{"message":"the subgraph reported an error without a message","path":["product"],"extensions":{"code":"DOWNSTREAM_SERVICE_ERROR","serviceName":"reviews"}},{"message":"the subgraph reported an error without a message","path":["product"],"extensions":{"code":"DOWNSTREAM_SERVICE_ERROR","serviceName":"reviews"}}]}

        --- another media type
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: HTTP status 200 OK, content type application/xml.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}

        --- an error with a code
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"the shelf fell over","path":["product"],"extensions":{"serviceName":"reviews","code":"SHELF"}}]}

        --- a null that must not be
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Cannot return null for non-nullable field Review.text.","path":["product","reviews",0,"text"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}}]}

        --- an error of a field
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"the ink has run out","path":["product","reviews",0,"text"],"extensions":{"code":"DOWNSTREAM_SERVICE_ERROR","serviceName":"reviews"}}]}

    "#]].assert_eq(&outcomes);
    shop.subgraph("reviews").clear_fault();
    expect![[r#"
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":{"name":"Kettle","inStock":7,"reviews":[{"text":"Boils."}]}}}
    "#]]
    .assert_eq(&format_response(&shop.query(JOINED)));
    shop.assert_unaffected();
}

#[test]
fn a_failing_subgraph_of_root_fields_is_reported_at_these_fields() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for (name, fault) in [
        ("hangs up", Fault::Down),
        ("500", Fault::InternalServerError),
        ("truncated JSON", Fault::TruncatedJson),
        ("no data", responses(200, "application/json", r#"{"data":{}}"#)),
        ("a null that must not be", Fault::null_field("Product", "name")),
    ] {
        shop.subgraph("products").set_fault(fault);
        let query = "{ warehouse { city } first: product(id: 1) { name } products { name } }";
        outcomes += &case(name, &format_response(&shop.query(query)));
    }
    expect![[r#"
        --- hangs up
        200 application/graphql-response+json; charset=utf-8
        {"data":null,"errors":[{"message":"Request to subgraph \"products\" failed: connection closed before the response was complete: unexpected end.","path":["first"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"products"}},{"message":"Request to subgraph \"products\" failed: connection closed before the response was complete: unexpected end.","path":["products"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"products"}}]}

        --- 500
        200 application/graphql-response+json; charset=utf-8
        {"data":null,"errors":[{"message":"Request to subgraph \"products\" failed: HTTP status 500 Internal Server Error, content type text/plain.","path":["first"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"products"}},{"message":"Request to subgraph \"products\" failed: HTTP status 500 Internal Server Error, content type text/plain.","path":["products"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"products"}}]}

        --- truncated JSON
        200 application/graphql-response+json; charset=utf-8
        {"data":null,"errors":[{"message":"Subgraph \"products\" sent a response that is not valid JSON: the text ends too early at byte 41.","path":["first"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"products"}},{"message":"Subgraph \"products\" sent a response that is not valid JSON: the text ends too early at byte 41.","path":["products"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"products"}}]}

        --- no data
        200 application/graphql-response+json; charset=utf-8
        {"data":null,"errors":[{"message":"Cannot return null for non-nullable field Query.products.","path":["products"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}}]}

        --- a null that must not be
        200 application/graphql-response+json; charset=utf-8
        {"data":null,"errors":[{"message":"Cannot return null for non-nullable field Product.name.","path":["first","name"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}},{"message":"Cannot return null for non-nullable field Product.name.","path":["products",0,"name"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}}]}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn an_unreachable_subgraph_is_reported_by_name_without_its_address() {
    // Bound and released, so that nothing listens at this address.
    let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let shop = Shop::with(&format!(
        "subgraphs: {{reviews: {{url: \"http://{unused}/\"}}, products: {{url: \"http://unused.invalid/\"}}}}"
    ));
    let response = format_response(&shop.query("{ latestReview { text } }"));
    assert!(!response.contains(&unused.port().to_string()), "{response}");
    expect![[r#"
        200 application/graphql-response+json; charset=utf-8
        {"data":{"latestReview":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: connection failed: connection refused.","path":["latestReview"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}
    "#]].assert_eq(&response);
    expect![[r#"
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"products\" failed: connection failed: the host name cannot be resolved.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"products"}}]}
    "#]].assert_eq(&format_response(&shop.query("{ product(id: 1) { name } }")));
    shop.assert_unaffected();
}

#[test]
fn a_slow_subgraph_fails_its_fields_after_its_timeout_and_others_wait_no_longer() {
    let shop = Shop::with("traffic: {subgraphs: {reviews: {timeout: 200ms}}}");
    shop.subgraph("reviews").set_fault(Fault::Hold);
    expect![[r#"
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: no response within 200ms.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}
    "#]].assert_eq(&format_response(&shop.query(JOINED)));
    shop.subgraph("reviews").clear_fault();
    shop.assert_unaffected();
}

#[test]
fn an_operation_over_its_timeout_is_cut_off_and_returns_the_data_so_far() {
    let shop = Shop::with("limits: {time: 300ms}");
    shop.subgraph("reviews").set_fault(Fault::Hold);
    expect![[r#"
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" did not respond before the request's time was up.","path":["product"],"extensions":{"code":"TIMEOUT","serviceName":"reviews"}}]}
    "#]].assert_eq(&format_response(&shop.query(JOINED)));
    expect![[r#"
        200 application/graphql-response+json; charset=utf-8
        {"data":{"addReview":null},"errors":[{"message":"Subgraph \"reviews\" did not respond before the request's time was up. The mutation may have taken effect.","path":["addReview"],"extensions":{"code":"TIMEOUT","serviceName":"reviews"}}]}
    "#]]
        .assert_eq(&format_response(&shop.query("mutation { addReview(product: 1, text: \"x\") { text } }")));
    shop.subgraph("reviews").clear_fault();
    shop.assert_unaffected();
}

#[test]
fn a_subgraph_response_over_the_limit_is_not_read_to_its_end() {
    let shop = Shop::with("traffic: {all: {max_response_size: 10KB}}");
    let body = format!(r#"{{"data":{{"latestReview":{{"text":"{}"}}}}}}"#, "x".repeat(20_000));
    shop.subgraph("reviews").set_fault(Fault::Response {
        status: 200,
        content_type: "application/json".to_owned(),
        body: body.into(),
    });
    expect![[r#"
        200 application/graphql-response+json; charset=utf-8
        {"data":{"latestReview":null},"errors":[{"message":"Request to subgraph \"reviews\" failed: response larger than 10000 bytes.","path":["latestReview"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"reviews"}}]}
    "#]].assert_eq(&format_response(&shop.query("{ latestReview { text } }")));
    shop.subgraph("reviews").clear_fault();
    shop.assert_unaffected();
}

#[test]
fn a_subgraph_that_fails_during_a_subscription_fails_only_fields_of_that_event() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", "subscription { productChanged { id name inStock } }");
    shop.wait_for_subscribers(1);
    let event = r#"{"__typename":"Product","id":"1"}"#;
    let mut outcomes = String::new();
    for (name, fault) in [
        ("well", None),
        ("hangs up", Some(Fault::Down)),
        ("500", Some(Fault::InternalServerError)),
        ("a null that must not be", Some(Fault::null_field("Product", "inStock"))),
        ("well again", None),
    ] {
        match fault {
            Some(fault) => shop.subgraph("stock").set_fault(fault),
            None => shop.subgraph("stock").clear_fault(),
        }
        shop.publish("products", event);
        outcomes += &case(name, &format!("{}\n", socket.message()));
    }
    expect![[r#"
        --- well
        {"id":"1","type":"next","payload":{"data":{"productChanged":{"id":"1","name":"Kettle","inStock":7}}}}

        --- hangs up
        {"id":"1","type":"next","payload":{"data":{"productChanged":null},"errors":[{"message":"Request to subgraph \"stock\" failed: connection closed before the response was complete: unexpected end.","path":["productChanged"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"stock"}}]}}

        --- 500
        {"id":"1","type":"next","payload":{"data":{"productChanged":null},"errors":[{"message":"Request to subgraph \"stock\" failed: HTTP status 500 Internal Server Error, content type text/plain.","path":["productChanged"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"stock"}}]}}

        --- a null that must not be
        {"id":"1","type":"next","payload":{"data":{"productChanged":null},"errors":[{"message":"Cannot return null for non-nullable field Product.inStock.","path":["productChanged","inStock"],"extensions":{"code":"INVALID_SUBGRAPH_VALUE"}}]}}

        --- well again
        {"id":"1","type":"next","payload":{"data":{"productChanged":{"id":"1","name":"Kettle","inStock":7}}}}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_disconnected_client_leaves_no_subgraph_requests_behind() {
    let shop = Shop::open();
    shop.subgraph("reviews").set_fault(Fault::Hold);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", "{ latestReview { text } }");
    let in_flight = r#"starling_subgraph_requests_in_flight{subgraph="reviews"}"#;
    shop.wait_for_metric(in_flight, 1);
    drop(socket);
    shop.wait_for_metric(in_flight, 0);
    shop.subgraph("reviews").clear_fault();
    shop.assert_unaffected();
}

#[test]
fn waiting_for_a_slow_subgraph_does_not_delay_other_requests_on_the_same_core() {
    let shop = Shop::with("workers: 1");
    shop.subgraph("reviews").set_fault(Fault::Slow(Duration::from_secs(3600)));
    let mut sockets: Vec<Socket> = (0..50).map(|_| Socket::ready(shop.address())).collect();
    for (number, socket) in sockets.iter_mut().enumerate() {
        // Equal operations would share one request.
        socket.subscribe("1", &format!("{{ number{number}: latestReview {{ text }} }}"));
    }
    let in_flight = r#"starling_subgraph_requests_in_flight{subgraph="reviews"}"#;
    shop.wait_for_metric(in_flight, 50);
    shop.assert_unaffected();
}

#[test]
fn a_restarted_subgraph_is_requested_again_without_effect_on_the_client() {
    let shop = Shop::open();
    for fault in [Fault::Down, responses(503, "text/plain", "starting")] {
        shop.subgraph("reviews").fail_next(2, fault);
        expect![[r#"
            200 application/graphql-response+json; charset=utf-8
            {"data":{"latestReview":{"text":"Shines."}}}
        "#]]
        .assert_eq(&format_response(&shop.query("{ latestReview { text } }")));
    }
    shop.wait_for_metric(r#"starling_subgraph_retries_total{subgraph="reviews"}"#, 4);
    shop.assert_unaffected();
}

#[test]
fn a_mutation_is_sent_once_whatever_happens_to_it() {
    let shop = Shop::open();
    for fault in [Fault::Down, responses(503, "text/plain", "starting")] {
        let before = shop.subgraph("reviews").request_count();
        shop.subgraph("reviews").fail_next(1, fault);
        let response = shop.ask(r#"mutation { addReview(product: 1, text: "x") { text } }"#);
        assert_eq!(response["errors"][0]["extensions"]["code"], "SUBGRAPH_REQUEST_FAILED");
        assert_eq!(shop.subgraph("reviews").request_count(), before + 1);
    }
    shop.assert_unaffected();
}

#[test]
fn a_subgraph_that_keeps_failing_gets_no_requests_until_it_responds_again() {
    let shop = Shop::with(
        "traffic: {all: {retry: {retries: 0}, circuit_breaker: {min_requests: 4, open_for: 100ms}}}",
    );
    shop.subgraph("reviews").set_fault(Fault::InternalServerError);
    let query = "{ latestReview { text } }";
    for _ in 0..4 {
        let response = shop.ask(query);
        assert_eq!(response["errors"][0]["extensions"]["code"], "SUBGRAPH_REQUEST_FAILED");
    }
    // The breaker may try again at any time and opens again if the request fails.
    e2e::eventually("the breaker to refuse a request", || {
        let response = shop.ask(query);
        (response["errors"][0]["extensions"]["code"] == "SUBGRAPH_UNAVAILABLE").then_some(())
    });
    shop.subgraph("reviews").clear_fault();
    e2e::eventually("the subgraph to be reachable again", || {
        shop.ask(query)["data"]["latestReview"].is_object().then_some(())
    });
    e2e::eventually("the breaker to close", || {
        shop.ask(query);
        let state = r#"starling_subgraph_breaker_state{subgraph="reviews"}"#;
        (shop.router.metric(state) == Some(0)).then_some(())
    });
    shop.assert_unaffected();
}

#[test]
fn a_client_whose_requests_a_subgraph_cannot_read_does_not_open_its_breaker() {
    let shop = Shop::with(
        "http: {max_headers: 128}
headers: {all: {request: [{propagate: {matching: '^x-'}}]}}
traffic: {all: {circuit_breaker: {min_requests: 4}}}",
    );
    // The server of the subgraphs reads at most 100 headers and closes the connection if there are more.
    let names: Vec<_> = (0..110).map(|number| format!("x-{number}")).collect();
    let mut unreadable: Vec<_> = names.iter().map(|name| (&**name, "1")).collect();
    unreadable.push(("content-type", "application/json"));
    let body = json!({ "query": "{ latestReview { text } }" }).to_string();
    for _ in 0..10 {
        for _ in 0..4 {
            let response =
                request(shop.address(), "POST", "/graphql", &unreadable, body.as_bytes()).unwrap();
            let response: Value = serde_json::from_slice(&response.body).unwrap();
            assert_eq!(response["errors"][0]["extensions"]["code"], "SUBGRAPH_REQUEST_FAILED");
        }
        let response = shop.ask("{ latestReview { text } }");
        assert_eq!(response, json!({ "data": { "latestReview": { "text": "Shines." } } }));
    }
    let checks = r#"starling_subgraph_breaker_checks_total{subgraph="reviews"}"#;
    assert!(shop.router.metric(checks) > Some(0));
    shop.assert_unaffected();
}
