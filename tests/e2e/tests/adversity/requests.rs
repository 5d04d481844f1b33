//! HTTP requests that are not valid GraphQL requests, or not valid HTTP.

use e2e::{HttpResponse, exchange, request};
use expect_test::expect;
use serde_json::json;

use crate::responses::{case, format_response};
use crate::shop::Shop;

const JSON: (&str, &str) = ("content-type", "application/json");
const GRAPHQL_RESPONSE: (&str, &str) = ("accept", "application/graphql-response+json");

fn send(
    shop: &Shop,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    request(shop.address(), method, target, headers, body.as_bytes()).unwrap()
}

#[test]
fn a_body_that_is_not_a_graphql_request_is_refused_with_400_and_the_reason() {
    let shop = Shop::open();
    let deep = format!(r#"{{"query":"{{ a }}","variables":{}}}"#, "[".repeat(100_000));
    let bodies: [(&str, &[u8]); 13] = [
        ("nothing", b""),
        ("cut off", br#"{"query":"{ warehouse { city } }""#),
        ("no JSON", b"query { warehouse }"),
        ("a trailing comma", br#"{"query":"{ a }",}"#),
        ("more behind it", br#"{"query":"{ a }"} {}"#),
        ("not UTF-8", b"{\"query\":\"{ \xff }\"}"),
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
        let response = post(&[JSON, GRAPHQL_RESPONSE]);
        outcomes += &case(name, &format_response(&response));
        // Clients of `application/json` get the same status because the request itself is malformed.
        let plain = post(&[JSON]);
        assert_eq!((plain.status, &plain.body), (response.status, &response.body), "{name}");
    }
    expect![[r#"
        --- nothing
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request body is not valid JSON: the text ends too early at byte 0","extensions":{"code":"BAD_REQUEST"}}]}

        --- cut off
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request body is not valid JSON: the text ends too early at byte 33","extensions":{"code":"BAD_REQUEST"}}]}

        --- no JSON
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request body is not valid JSON: a value was expected at byte 0","extensions":{"code":"BAD_REQUEST"}}]}

        --- a trailing comma
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request body is not valid JSON: a key in double quotes was expected at byte 17","extensions":{"code":"BAD_REQUEST"}}]}

        --- more behind it
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request body is not valid JSON: something follows the value at byte 18","extensions":{"code":"BAD_REQUEST"}}]}

        --- not UTF-8
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request body is not valid JSON: the text is not valid UTF-8 at byte 12","extensions":{"code":"BAD_REQUEST"}}]}

        --- a list of requests
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request body is an array: batches of operations are turned off (`http.batching`), send one object with `query`","extensions":{"code":"BAD_REQUEST"}}]}

        --- a number
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request body must be a JSON object with the member `query`","extensions":{"code":"BAD_REQUEST"}}]}

        --- no query
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request has no `query`: it must be a string with a GraphQL document","extensions":{"code":"BAD_REQUEST"}}]}

        --- a query that is no text
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"`query` must be a string","extensions":{"code":"BAD_REQUEST"}}]}

        --- an operation name that is no text
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"`operationName` must be a string","extensions":{"code":"BAD_REQUEST"}}]}

        --- variables that are no object
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"`variables` must be a JSON object","extensions":{"code":"BAD_REQUEST"}}]}

        --- nesting without end
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the request body is not valid JSON: arrays and objects are nested too deeply at byte 540","extensions":{"code":"BAD_REQUEST"}}]}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_url_that_is_not_a_graphql_request_is_refused_with_400_and_the_reason() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for target in [
        "/graphql",
        "/graphql?query=",
        "/graphql?query=%7Bwarehouse%7Bcity%7D%7D&variables=7",
        "/graphql?query=%7Bwarehouse%7Bcity%7D%7D&variables=%7B",
        "/graphql?query=%ff%fe",
    ] {
        let response = send(&shop, "GET", target, &[GRAPHQL_RESPONSE], "");
        outcomes += &case(target, &format_response(&response));
    }
    expect![[r#"
        --- /graphql
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the URL has no parameter `query` with a GraphQL document","extensions":{"code":"BAD_REQUEST"}}]}

        --- /graphql?query=
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the document is empty: `query` must hold an operation","extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- /graphql?query=%7Bwarehouse%7Bcity%7D%7D&variables=7
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"parameter `variables` must be a JSON object","extensions":{"code":"BAD_REQUEST"}}]}

        --- /graphql?query=%7Bwarehouse%7Bcity%7D%7D&variables=%7B
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"parameter `variables` is not valid JSON: the text ends too early at byte 1","extensions":{"code":"BAD_REQUEST"}}]}

        --- /graphql?query=%ff%fe
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: Unexpected character \"�\"","locations":[{"line":1,"column":1}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn unsupported_methods_and_media_types_are_refused_with_their_status_and_the_supported_ones() {
    let shop = Shop::open();
    let query = r#"{"query":"{ warehouse { city } }"}"#;
    let mutation = "/graphql?query=mutation%7BaddReview(product:1,text:%22x%22)%7Bid%7D%7D";
    let subscription = r#"{"query":"subscription { productChanged { id } }"}"#;
    let requests = [
        ("PATCH", "PATCH", "/graphql", vec![JSON], query),
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
        outcomes += &case(name, &format_response(&send(&shop, method, target, &headers, body)));
    }
    expect![[r#"
        --- PATCH
        405 application/json; charset=utf-8
        allow: GET, POST, PUT, DELETE, OPTIONS
        {"errors":[{"message":"the GraphQL endpoint supports GET and POST, PUT for a stream that carries several operations, and DELETE with the token of one","extensions":{"code":"BAD_REQUEST"}}]}

        --- DELETE
        405 application/json; charset=utf-8
        allow: GET, POST, PUT, DELETE, OPTIONS
        {"errors":[{"message":"the GraphQL endpoint supports GET and POST, PUT for a stream that carries several operations, and DELETE with the token of one","extensions":{"code":"BAD_REQUEST"}}]}

        --- HEAD
        405 application/json; charset=utf-8
        allow: GET, POST, PUT, DELETE, OPTIONS


        --- an unknown method
        405 application/json; charset=utf-8
        allow: GET, POST, PUT, DELETE, OPTIONS
        {"errors":[{"message":"the GraphQL endpoint supports GET and POST, PUT for a stream that carries several operations, and DELETE with the token of one","extensions":{"code":"BAD_REQUEST"}}]}

        --- a mutation by GET
        405 application/json; charset=utf-8
        allow: POST
        {"errors":[{"message":"a mutation must be sent by POST: proxies may repeat GET requests","extensions":{"code":"BAD_REQUEST"}}]}

        --- a mutation by GET for a stream
        405 application/json; charset=utf-8
        allow: POST
        {"errors":[{"message":"a mutation must be sent by POST: proxies may repeat GET requests","extensions":{"code":"BAD_REQUEST"}}]}

        --- accept: text/html
        406 application/json; charset=utf-8
        {"errors":[{"message":"nothing in `accept` can be served: ask for application/graphql-response+json, application/json, text/event-stream or multipart/mixed","extensions":{"code":"BAD_REQUEST"}}]}

        --- accept with quality 0
        406 application/json; charset=utf-8
        {"errors":[{"message":"nothing in `accept` can be served: ask for application/graphql-response+json, application/json, text/event-stream or multipart/mixed","extensions":{"code":"BAD_REQUEST"}}]}

        --- a subscription for JSON
        406 application/json; charset=utf-8
        {"errors":[{"message":"a subscription needs a stream: send it with `Accept: text/event-stream` or `multipart/mixed`, over a WebSocket with the subprotocol graphql-transport-ws, or with the URL parameter `once` for the first event only","extensions":{"code":"BAD_REQUEST"}}]}

        --- no content type
        415 application/json; charset=utf-8
        {"errors":[{"message":"the request body must be JSON in UTF-8: send `content-type: application/json`","extensions":{"code":"BAD_REQUEST"}}]}

        --- content-type: text/plain
        415 application/json; charset=utf-8
        {"errors":[{"message":"the request body must be JSON in UTF-8: send `content-type: application/json`","extensions":{"code":"BAD_REQUEST"}}]}

        --- a form
        415 application/json; charset=utf-8
        {"errors":[{"message":"the request body must be JSON in UTF-8: send `content-type: application/json`","extensions":{"code":"BAD_REQUEST"}}]}

        --- another charset
        415 application/json; charset=utf-8
        {"errors":[{"message":"the request body must be JSON in UTF-8: send `content-type: application/json`","extensions":{"code":"BAD_REQUEST"}}]}

        --- an unknown path
        404 text/plain; charset=utf-8
        There is nothing here. The GraphQL endpoint is /graphql

    "#]].assert_eq(&outcomes);
    assert_eq!(shop.subgraph("reviews").request_count(), 0, "a mutation by GET has run");
    shop.assert_unaffected();
}

#[test]
fn a_body_over_the_limit_is_refused_with_413_with_or_without_a_declared_length() {
    let shop = Shop::with("limits: {body: 1KiB}");
    let body =
        json!({ "query": "{ warehouse { city } }", "extensions": { "x": "y".repeat(2000) } });
    let body = body.to_string();
    let announced = send(&shop, "POST", "/graphql", &[JSON], &body);
    let head = "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                connection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunked = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let chunked = exchange(shop.address(), chunked.as_bytes()).unwrap();
    expect![[r#"
        413 application/json; charset=utf-8
        {"errors":[{"message":"the request body is larger than 1024 bytes (`limits.body`)","extensions":{"code":"BAD_REQUEST"}}]}
    "#]].assert_eq(&format_response(&announced));
    assert_eq!(
        chunked.iter().map(format_response).collect::<Vec<_>>(),
        [format_response(&announced)]
    );
    shop.assert_unaffected();
}

#[test]
fn a_request_with_an_ambiguous_end_or_an_oversized_head_never_reaches_an_operation() {
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
        ("an unknown transfer encoding", format!("{head}transfer-encoding: gzip\r\n\r\n{body}")),
        (
            "chunks and something behind",
            format!("{head}transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
        ),
        (
            "a chunk without a size",
            format!("{head}transfer-encoding: chunked\r\n\r\nx\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "chunks in chunks",
            format!("{head}transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n0\r\n\r\n"),
        ),
        (
            "chunks, and then not",
            format!(
                "{head}transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n{body}"
            ),
        ),
        (
            "chunks by another name",
            format!("{head}transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "chunks in HTTP/1.0",
            format!(
                "POST /graphql HTTP/1.0\r\ncontent-type: application/json\r\n\
                 transfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
            ),
        ),
        (
            "a chunk beyond all bounds",
            format!("{head}transfer-encoding: chunked\r\n\r\n{}\r\n{body}", "f".repeat(17)),
        ),
        (
            "a chunk with a negative size",
            format!("{head}transfer-encoding: chunked\r\n\r\n-1\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "a chunk that is longer than it says",
            format!("{head}transfer-encoding: chunked\r\n\r\n3\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "a chunk with a bare line feed",
            format!("{head}transfer-encoding: chunked\r\n\r\n{length:x}\n{body}\r\n0\r\n\r\n"),
        ),
        ("a length with a sign", format!("{head}content-length: +{length}\r\n\r\n{body}")),
        ("a bare carriage return", format!("{head}x: y\rcontent-length: 3\r\n\r\n{body}")),
        ("a name with a NUL", format!("{head}x\0: y\r\n\r\n{body}")),
        ("a value with a NUL", format!("{head}x: \0\r\n\r\n{body}")),
        ("no host", "GET /graphql?query=%7Ba%7D HTTP/1.1\r\nconnection: close\r\n\r\n".to_owned()),
        (
            "two hosts",
            "GET /graphql?query=%7Ba%7D HTTP/1.1\r\nhost: x\r\nhost: y\r\n\
             connection: close\r\n\r\n"
                .to_owned(),
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
    ];
    let mut outcomes = String::new();
    for (name, bytes) in requests {
        let outcome = match exchange(shop.address(), bytes.as_bytes()) {
            Ok(responses) if responses.is_empty() => "closed without an response\n".to_owned(),
            Ok(responses) => responses.iter().map(format_response).collect(),
            // If the server closes the connection with unread data, the operating system resets it.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                "reset\n".to_owned()
            }
            Err(error) => panic!("{name}: {error}"),
        };
        outcomes += &case(name, &outcome);
    }
    expect![[r#"
        --- two lengths
        400 -


        --- a list of lengths
        400 -


        --- a negative length
        400 -


        --- an endless length
        400 -


        --- an unknown transfer encoding
        400 -


        --- chunks and something behind
        400 -


        --- a chunk without a size
        400 application/json; charset=utf-8
        {"errors":[{"message":"the request body broke off: Invalid chunk size line: missing size digit","extensions":{"code":"BAD_REQUEST"}}]}

        --- chunks in chunks
        400 application/json; charset=utf-8
        {"errors":[{"message":"the transfer encoding of the request is not `chunked` alone","extensions":{"code":"BAD_REQUEST"}}]}

        --- chunks, and then not
        400 -


        --- chunks by another name
        400 -


        --- chunks in HTTP/1.0
        400 -


        --- a chunk beyond all bounds
        400 application/json; charset=utf-8
        {"errors":[{"message":"the request body broke off: invalid chunk size: overflow","extensions":{"code":"BAD_REQUEST"}}]}

        --- a chunk with a negative size
        400 application/json; charset=utf-8
        {"errors":[{"message":"the request body broke off: Invalid chunk size line: missing size digit","extensions":{"code":"BAD_REQUEST"}}]}

        --- a chunk that is longer than it says
        400 application/json; charset=utf-8
        {"errors":[{"message":"the request body broke off: Invalid chunk body CR","extensions":{"code":"BAD_REQUEST"}}]}

        --- a chunk with a bare line feed
        400 application/json; charset=utf-8
        {"errors":[{"message":"the request body broke off: Invalid chunk size line: Invalid Size","extensions":{"code":"BAD_REQUEST"}}]}

        --- a length with a sign
        400 -


        --- a bare carriage return
        400 -


        --- a name with a NUL
        400 -


        --- a value with a NUL
        400 -


        --- no host
        400 application/json; charset=utf-8
        {"errors":[{"message":"the request has no header `host`","extensions":{"code":"BAD_REQUEST"}}]}

        --- two hosts
        400 application/json; charset=utf-8
        {"errors":[{"message":"the request has more than one header `host`","extensions":{"code":"BAD_REQUEST"}}]}

        --- a folded header
        400 -


        --- a space before the colon
        400 -


        --- a thousand headers
        431 -


        --- a header of a megabyte
        431 -


        --- a target of a megabyte
        431 -


        --- no HTTP at all
        closed without an response

    "#]].assert_eq(&outcomes);
    assert_eq!(shop.subgraph("reviews").request_count(), 0);
    shop.assert_unaffected();
}

#[test]
fn a_content_length_beside_chunks_is_ignored_and_nothing_after_the_request_is_read() {
    let shop = Shop::open();
    // RFC 9112, section 6.3: the chunks take precedence, and the connection must not be used again.
    let (body, length) = (r#"{"query":"{ warehouse { city } }"}"#, 34);
    let smuggled = r#"{"query":"{ latestReview { id } }"}"#;
    let head = "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    for lengths in [
        "content-length: 3\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 3",
    ] {
        let request = format!(
            "{head}{lengths}\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n\
             {head}content-length: {}\r\n\r\n{smuggled}",
            smuggled.len()
        );
        let responses = exchange(shop.address(), request.as_bytes()).unwrap();
        let responses: Vec<String> = responses.iter().map(format_response).collect();
        let expected = "200 application/json; charset=utf-8\n{\"data\":{\"warehouse\":{\"city\":\"Bergen\"}}}\n";
        assert_eq!(responses, [expected]);
    }
    assert_eq!(shop.subgraph("reviews").request_count(), 0);
    shop.assert_unaffected();
}

#[test]
fn pipelined_requests_are_answered_in_order_and_an_invalid_request_affects_only_itself() {
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
    let responses = exchange(shop.address(), pipeline.concat().as_bytes()).unwrap();
    expect![[r#"
        200 application/json; charset=utf-8
        {"data":{"product":{"name":"Kettle"}}}
        400 application/json; charset=utf-8
        {"errors":[{"message":"the request body is not valid JSON: the text ends too early at byte 8","extensions":{"code":"BAD_REQUEST"}}]}
        200 application/json; charset=utf-8
        {"data":{"warehouse":{"city":"Bergen"}}}
    "#]].assert_eq(&responses.iter().map(format_response).collect::<String>());
    shop.assert_unaffected();
}

#[test]
fn invalid_data_after_a_request_ends_the_connection_after_the_response() {
    let shop = Shop::open();
    let body = r#"{"query":"{ warehouse { city } }"}"#;
    let request = format!(
        "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    for garbage in ["\x16\x03\x01\x02\x00\r\n\r\n", "}}}} / x\r\n\r\n", "GET\r\n\r\n"] {
        let bytes = [&request, garbage, &request].concat();
        let responses = exchange(shop.address(), bytes.as_bytes()).unwrap();
        let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
        assert_eq!(statuses, [200, 400], "{garbage:?}");
    }
    shop.assert_unaffected();
}

#[test]
fn upgrades_to_other_protocols_are_ignored() {
    let shop = Shop::open();
    // The headers that `curl --http2` sends.
    let headers = [
        JSON,
        ("connection", "Upgrade, HTTP2-Settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
    ];
    let response =
        send(&shop, "POST", "/graphql", &headers, r#"{"query":"{ warehouse { city } }"}"#);
    expect![[r#"
        200 application/json; charset=utf-8
        {"data":{"warehouse":{"city":"Bergen"}}}
    "#]]
    .assert_eq(&format_response(&response));
    shop.assert_unaffected();
}
