//! Tests of introspection against servers that behave in every way. Nothing leaves 127.0.0.1.

use std::path::Path;
use std::time::Duration;

use config::Secret;
use config::diagnostic::{Style, render};
use expect_test::expect;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

use crate::introspection::Endpoint;
use crate::{CompositionConfig, introspect, load};

/// The response of a server to a request, as HTTP text; `None` for no response.
type Respond = fn(&str) -> Option<String>;

/// Starts a server and returns its URL. It stops with the runtime of the test.
async fn start(respond: Respond) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let request = read_request(&mut stream).await;
                match respond(&request) {
                    Some(response) => _ = stream.write_all(response.as_bytes()).await,
                    None => std::future::pending().await,
                }
            });
        }
    });
    format!("http://{address}/graphql")
}

/// Reads a request with a body of known length.
async fn read_request(stream: &mut tokio::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |it| it.parse().unwrap()) {
                return text;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            return text;
        }
    }
}

fn response(status: &str, content_type: &str, body: &str) -> Option<String> {
    let length = body.len();
    Some(format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
}

fn json(body: &str) -> Option<String> {
    response("200 OK", "application/json", body)
}

const PLAIN: &str = r#"{"data": {"__schema": {"queryType": {"name": "Query"}, "types": [
    {"kind": "OBJECT", "name": "Query", "fields": [{"name": "a", "type": {"kind": "SCALAR", "name": "Int"}}]}
]}}}"#;

/// Returns the schema, or the reason and the advice.
async fn ask(respond: Respond) -> String {
    let url = start(respond).await;
    match introspect(&url, &[], false).await {
        Ok(introspected) => format!("{introspected:?}"),
        Err(error) => format!("{}: {error}; {}", error.code(), error.advice()),
    }
}

#[tokio::test]
async fn the_schema_comes_from_the_service_field_or_from_introspection() {
    assert_eq!(
        ask(|_| json(r#"{"data": {"_service": {"sdl": "type Query { a: Int }"}}}"#)).await,
        r#"Introspected { sdl: "type Query { a: Int }", is_plain: false }"#
    );
    let plain = r#"Introspected { sdl: "type Query {\n  a: Int\n}\n\n", is_plain: true }"#;
    let unknown_field = |request: &str| match request.contains("_service") {
        true => response(
            "400 Bad Request",
            "application/json",
            r#"{"errors": [{"message": "Cannot query field \"_service\" on type \"Query\"."}]}"#,
        ),
        false => json(PLAIN),
    };
    assert_eq!(ask(unknown_field).await, plain);
    let unknown_field = |request: &str| match request.contains("_service") {
        true => json(r#"{"data": null, "errors": [{"message": "field not found: _service"}]}"#),
        false => json(PLAIN),
    };
    assert_eq!(ask(unknown_field).await, plain);
    let unknown_field = |request: &str| match request.contains("_service") {
        true => {
            json(r#"{"errors": [{"message": "no field _service", "path": ["query", "_service"]}]}"#)
        }
        false => json(PLAIN),
    };
    assert_eq!(ask(unknown_field).await, plain);
    let url = start(|request| match request.contains("_service") {
        true => None,
        false => json(PLAIN),
    });
    let introspected = introspect(&url.await, &[], true).await.unwrap();
    assert!(introspected.is_plain);
}

#[tokio::test]
async fn a_service_field_that_fails_does_not_lead_to_introspection() {
    let failing = |request: &str| match request.contains("_service") {
        true => json(
            r#"{"data": null, "errors": [
                {"message": "Cannot return null for non-nullable field Query._service.", "path": ["_service"]},
                {"message": "another", "path": null}
            ]}"#,
        ),
        false => json(PLAIN),
    };
    let response = ask(failing).await;
    assert!(response.starts_with("introspection-failed: "), "{response}");
    assert!(response.contains("field Query._service.; another"), "{response}");
}

#[tokio::test]
async fn every_failure_of_a_server_has_its_message() {
    let cases: [(&str, Respond); 13] = [
        ("unauthorized", |_| response("401 Unauthorized", "text/plain", "no")),
        ("moved", |_| response("302 Found", "text/plain", "")),
        ("unknown path", |_| response("404 Not Found", "text/html", "<html>")),
        ("bad gateway", |_| response("502 Bad Gateway", "text/html", "<html>")),
        ("errors with a status", |_| {
            response(
                "403 Forbidden",
                "application/json; charset=utf-8",
                r#"{"errors": [{"message": "token\nmissing"}]}"#,
            )
        }),
        ("errors", |_| {
            json(
                r#"{"data": null, "errors": [{"message": "a"}, {}, {"message": "c"}, {"message": "d"}, {"message": "e"}]}"#,
            )
        }),
        ("neither field nor introspection", |request| {
            json(match request.contains("_service") {
                true => r#"{"errors": [{"message": "Cannot query field \"_service\""}]}"#,
                false => r#"{"errors": [{"message": "introspection is disabled"}]}"#,
            })
        }),
        ("page", |_| response("200 OK", "text/html", "<html>")),
        ("other JSON", |_| json("[1]")),
        ("no data", |_| json("{}")),
        ("null", |_| json(r#"{"data": {"_service": null}}"#)),
        ("empty", |_| json(r#"{"data": {"_service": {"sdl": " "}}}"#)),
        ("no HTTP", |_| Some("SSH-2.0\r\n\r\n".to_owned())),
    ];
    let mut messages = String::new();
    for (name, respond) in cases {
        messages.push_str(&format!("{name}: {}\n", ask(respond).await));
    }
    expect![[r#"
        unauthorized: introspection-failed: its server responded with HTTP status 401; the subgraph requires authorization: give a token in the headers of introspection
        moved: introspection-failed: its server responded with HTTP status 302; redirections are not followed: give the URL to which the server redirects
        unknown path: introspection-failed: its server responded with HTTP status 404; check the path of the URL; the schema is requested by POST from the GraphQL endpoint
        bad gateway: introspection-failed: its server responded with HTTP status 502; the log of the subgraph may say more
        errors with a status: introspection-failed: its server responded with HTTP status 403: token missing; the subgraph requires authorization: give a token in the headers of introspection
        errors: introspection-failed: its server refused to return its schema: a; an error without a message; c; and 2 more errors; enable introspection of the subgraph for this machine, or give its schema as a file
        neither field nor introspection: introspection-failed: its server refused to return its schema: introspection is disabled; enable introspection of the subgraph for this machine, or give its schema as a file
        page: introspection-failed: its server did not send a GraphQL response: the body is not JSON; check that the URL is that of the GraphQL endpoint
        other JSON: introspection-failed: its server did not send a GraphQL response: the JSON has another form (line 1, column 2); check that the URL is that of the GraphQL endpoint
        no data: introspection-failed: its server did not send a GraphQL response: there is neither `data` nor `errors`; check that the URL is that of the GraphQL endpoint
        null: introspection-failed: its server returned an empty schema; check the subgraph's implementation of `_service { sdl }`
        empty: introspection-failed: its server returned an empty schema; check the subgraph's implementation of `_service { sdl }`
        no HTTP: introspection-failed: its server did not send a GraphQL response: the response is not valid HTTP (invalid HTTP version parsed); check that the URL is that of the GraphQL endpoint
    "#]].assert_eq(&messages);
}

#[tokio::test]
async fn a_server_that_does_not_respond_is_given_up_on() {
    let url = start(|_| None).await;
    let endpoint = Endpoint::new(&url, &[], Duration::from_millis(50)).unwrap();
    let error = endpoint.introspect(false).await.unwrap_err();
    assert_eq!(error.to_string(), "its server did not respond within 50ms");
}

#[tokio::test]
async fn headers_are_sent_and_never_shown() {
    let url = start(|request| {
        let is_allowed = request.contains("authorization: Bearer hunter2\r\n")
            && request.starts_with("POST /graphql");
        json(if is_allowed {
            r#"{"data": {"_service": {"sdl": "type Query { a: Int }"}}}"#
        } else {
            "{}"
        })
    })
    .await;
    let header = |name: &str, value: &str| vec![(name.to_owned(), Secret::new(value))];
    let allowed = introspect(&url, &header("authorization", "Bearer hunter2"), false).await;
    assert!(allowed.is_ok(), "{allowed:?}");
    for headers in [header("a b", "hunter2"), header("host", "hunter2"), header("a", "hunter2\n")] {
        let error = introspect(&url, &headers, false).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        assert!(error.advice().contains("headers such as"), "{}", error.advice());
    }
    let url = start(|_| {
        json(r#"{"errors": [{"message": "bad token Bearer hunter2"}, {"message": "hunter2?"}]}"#)
    });
    let headers = header("authorization", "Bearer hunter2");
    let error = introspect(&url.await, &headers, false).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "its server refused to return its schema: bad token ******; ******?"
    );
}

#[tokio::test]
async fn all_failures_of_a_composition_are_reported_at_their_places() {
    let working =
        start(|_| json(r#"{"data": {"_service": {"sdl": "type Query { a: Int }"}}}"#)).await;
    let failing = start(|_| response("503 Service Unavailable", "text/plain", "")).await;
    // Nothing listens on the port, and no other test gets it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = socket.local_addr().unwrap();
    let text = format!(
        "subgraphs:\n  a: {{schema: {{subgraph_url: {working}}}}}\n  b: {{schema: {{subgraph_url: {failing}}}}}\n  \
         c: {{schema: {{subgraph_url: 'http://{closed}/?key=hunter2'}}}}\n  d: {{schema: {{file: d.graphql}}}}\n"
    );
    let config = CompositionConfig::parse(&text, Path::new("supergraph.yaml")).unwrap();
    let errors = load(&config).await.unwrap_err();
    let names: Vec<_> = errors.iter().map(|it| (it.subgraph.as_str(), it.kind.code())).collect();
    assert_eq!(
        names,
        [("b", "introspection-failed"), ("c", "unreachable-subgraph"), ("d", "unreadable-schema")]
    );
    let diagnostics: Vec<_> = errors.into_iter().map(|it| *it.diagnostic).collect();
    let messages = render(&diagnostics, Style::Plain);
    assert!(messages.contains("--> supergraph.yaml:3:30"), "{messages}");
    assert!(messages.contains("/?key=******"), "{messages}");

    let text = format!("subgraphs: {{a: {{schema: {{subgraph_url: '{working}'}}}}}}");
    let config = CompositionConfig::parse(&text, Path::new("supergraph.yaml")).unwrap();
    let inputs = load(&config).await.unwrap();
    assert_eq!(
        (inputs[0].url.as_str(), inputs[0].file.as_str()),
        (working.as_str(), working.as_str())
    );
}
