//! HTTP requests that are no GraphQL requests, or hardly HTTP.

use e2e::{Answer, exchange, request};
use expect_test::expect;
use serde_json::json;

use crate::answers::{case, shown};
use crate::shop::Shop;

const JSON: (&str, &str) = ("content-type", "application/json");
const GRAPHQL_RESPONSE: (&str, &str) = ("accept", "application/graphql-response+json");

fn send(shop: &Shop, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    request(shop.address(), method, target, headers, body.as_bytes()).unwrap()
}

#[test]
fn a_body_that_is_no_graphql_request_is_answered_with_400_and_what_is_wrong() {
    let shop = Shop::open();
    let deep = format!(r#"{{"query":"{{ a }}","variables":{}}}"#, "[".repeat(100_000));
    let bodies: [(&str, &[u8]); 14] = [
        ("nothing", b""),
        ("cut off", br#"{"query":"{ warehouse { city } }""#),
        ("no JSON", b"query { warehouse }"),
        ("a trailing comma", br#"{"query":"{ a }",}"#),
        ("more behind it", br#"{"query":"{ a }"} {}"#),
        ("not UTF-8", b"{\"query\":\"{ \xff }\"}"),
        ("half of a surrogate pair", br#"{"query":"\ud800"}"#),
        ("a list of requests", br#"[{"query":"{ a }"}]"#),
        ("a number", b"7"),
        ("no query", br#"{"variables":{}}"#),
        ("a query that is no text", br#"{"query":{"a":1}}"#),
        ("an operation name that is no text", br#"{"query":"{ a }","operationName":7}"#),
        ("variables that are no object", br#"{"query":"{ a }","variables":"{}"}"#),
        ("nesting without end", deep.as_bytes()),
    ];
    let mut outcomes = String::new();
    for (name, body) in bodies {
        let post =
            |headers: &[_]| request(shop.address(), "POST", "/graphql", headers, body).unwrap();
        let answer = post(&[JSON, GRAPHQL_RESPONSE]);
        outcomes += &case(name, &shown(&answer));
        // Clients of `application/json` get the same status: it is the request that is malformed.
        let plain = post(&[JSON]);
        assert_eq!((plain.status, &plain.body), (answer.status, &answer.body), "{name}");
    }
    expect![[""]].assert_eq(&outcomes);
    shop.assert_unharmed();
}

#[test]
fn a_url_that_is_no_graphql_request_is_answered_with_400_and_what_is_wrong() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for target in [
        "/graphql",
        "/graphql?query=",
        "/graphql?query=%7Bwarehouse%7Bcity%7D%7D&variables=7",
        "/graphql?query=%7Bwarehouse%7Bcity%7D%7D&variables=%7B",
        "/graphql?query=%ff%fe",
    ] {
        let answer = send(&shop, "GET", target, &[GRAPHQL_RESPONSE], "");
        outcomes += &case(target, &shown(&answer));
    }
    expect![[""]].assert_eq(&outcomes);
    shop.assert_unharmed();
}

#[test]
fn methods_and_media_types_that_do_not_fit_have_their_status_and_say_what_would() {
    let shop = Shop::open();
    let query = r#"{"query":"{ warehouse { city } }"}"#;
    let mutation = "/graphql?query=mutation%7BaddReview(product:1,text:%22x%22)%7Bid%7D%7D";
    let subscription = r#"{"query":"subscription { productChanged { id } }"}"#;
    let requests = [
        ("PUT", "PUT", "/graphql", vec![JSON], query),
        ("DELETE", "DELETE", "/graphql", vec![], ""),
        ("HEAD", "HEAD", "/graphql?query=%7Bwarehouse%7Bcity%7D%7D", vec![], ""),
        ("an unknown method", "BREW", "/graphql", vec![], ""),
        ("a mutation by GET", "GET", mutation, vec![GRAPHQL_RESPONSE], ""),
        (
            "a mutation by GET for a stream",
            "GET",
            mutation,
            vec![("accept", "text/event-stream")],
            "",
        ),
        ("accept: text/html", "POST", "/graphql", vec![JSON, ("accept", "text/html")], query),
        (
            "accept with quality 0",
            "POST",
            "/graphql",
            vec![JSON, ("accept", "application/json;q=0")],
            query,
        ),
        ("a subscription for JSON", "POST", "/graphql", vec![JSON], subscription),
        ("no content type", "POST", "/graphql", vec![], query),
        (
            "content-type: text/plain",
            "POST",
            "/graphql",
            vec![("content-type", "text/plain")],
            query,
        ),
        (
            "a form",
            "POST",
            "/graphql",
            vec![("content-type", "application/x-www-form-urlencoded")],
            "query=%7Ba%7D",
        ),
        (
            "another charset",
            "POST",
            "/graphql",
            vec![("content-type", "application/json; charset=latin1")],
            query,
        ),
        ("an unknown path", "POST", "/graphq", vec![JSON], query),
    ];
    let mut outcomes = String::new();
    for (name, method, target, headers, body) in requests {
        outcomes += &case(name, &shown(&send(&shop, method, target, &headers, body)));
    }
    expect![[""]].assert_eq(&outcomes);
    assert_eq!(shop.subgraph("reviews").request_count(), 0, "a mutation by GET has run");
    shop.assert_unharmed();
}

#[test]
fn a_body_over_the_limit_is_answered_with_413_whether_announced_or_not() {
    let shop = Shop::with("limits: {body: 1KiB}");
    let body =
        json!({ "query": "{ warehouse { city } }", "extensions": { "x": "y".repeat(2000) } });
    let body = body.to_string();
    let announced = send(&shop, "POST", "/graphql", &[JSON], &body);
    let head = "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                connection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunked = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let chunked = exchange(shop.address(), chunked.as_bytes()).unwrap();
    expect![[""]].assert_eq(&shown(&announced));
    assert_eq!(chunked.iter().map(shown).collect::<Vec<_>>(), [shown(&announced)]);
    shop.assert_unharmed();
}

#[test]
fn a_request_with_an_ambiguous_end_or_a_monstrous_head_never_reaches_an_operation() {
    let shop = Shop::open();
    let body = r#"{"query":"{ latestReview { id } }"}"#;
    let head = "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let length = body.len();
    let many: String = (0..1000).map(|number| format!("x-{number}: y\r\n")).collect();
    let huge = "y".repeat(1 << 20);
    let requests = [
        (
            "two lengths",
            format!("{head}content-length: {length}\r\ncontent-length: 3\r\n\r\n{body}"),
        ),
        ("a list of lengths", format!("{head}content-length: {length}, 3\r\n\r\n{body}")),
        ("a negative length", format!("{head}content-length: -1\r\n\r\n{body}")),
        ("an endless length", format!("{head}content-length: {}\r\n\r\n{body}", "9".repeat(40))),
        (
            "a length and chunks",
            format!(
                "{head}content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
            ),
        ),
        ("an unknown transfer encoding", format!("{head}transfer-encoding: gzip\r\n\r\n{body}")),
        (
            "chunks and something behind",
            format!("{head}transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
        ),
        (
            "a chunk without a size",
            format!("{head}transfer-encoding: chunked\r\n\r\nx\r\n{body}\r\n0\r\n\r\n"),
        ),
        ("a folded header", format!("{head}x: y\r\n z\r\ncontent-length: {length}\r\n\r\n{body}")),
        ("a space before the colon", format!("{head}content-length : {length}\r\n\r\n{body}")),
        ("a thousand headers", format!("{head}{many}\r\n")),
        ("a header of a megabyte", format!("{head}x: {huge}\r\n\r\n")),
        (
            "a target of a megabyte",
            format!("GET /graphql?query={huge} HTTP/1.1\r\nhost: x\r\n\r\n"),
        ),
        ("no HTTP at all", "\x16\x03\x01\x02\x00 hello?\r\n\r\n".to_owned()),
        ("HTTP/2 without asking", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
    ];
    let mut outcomes = String::new();
    for (name, bytes) in requests {
        let outcome = match exchange(shop.address(), bytes.as_bytes()) {
            Ok(answers) if answers.is_empty() => "closed without an answer\n".to_owned(),
            Ok(answers) => answers.iter().map(shown).collect(),
            // What is still unread when the server closes makes the system reset the connection.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                "reset\n".to_owned()
            }
            Err(error) => panic!("{name}: {error}"),
        };
        outcomes += &case(name, &outcome);
    }
    expect![[""]].assert_eq(&outcomes);
    assert_eq!(shop.subgraph("reviews").request_count(), 0);
    shop.assert_unharmed();
}

#[test]
fn pipelined_requests_are_answered_in_order_and_a_bad_one_costs_only_itself() {
    let shop = Shop::open();
    let one = |body: &str, connection: &str| {
        format!(
            "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             connection: {connection}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let pipeline = [
        one(r#"{"query":"{ product(id: 1) { name } }"}"#, "keep-alive"),
        one(r#"{"query""#, "keep-alive"),
        one(r#"{"query":"{ warehouse { city } }"}"#, "close"),
    ];
    let answers = exchange(shop.address(), pipeline.concat().as_bytes()).unwrap();
    expect![[""]].assert_eq(&answers.iter().map(shown).collect::<String>());
    shop.assert_unharmed();
}

#[test]
fn upgrades_to_other_protocols_are_ignored() {
    let shop = Shop::open();
    // As curl --http2 sends.
    let headers = [
        JSON,
        ("connection", "Upgrade, HTTP2-Settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
    ];
    let answer = send(&shop, "POST", "/graphql", &headers, r#"{"query":"{ warehouse { city } }"}"#);
    expect![[""]].assert_eq(&shown(&answer));
    shop.assert_unharmed();
}
