//! Tests of subscriptions by the callback protocol: the endpoint on both kinds of listeners, with a subgraph of a few
//! lines.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use server::SupergraphSource;

use crate::http::{TestResponse, connect, request};
use crate::router::{Router, TIMEOUT};

const SUPERGRAPH: &str = r#"
schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.4", for: EXECUTION) {
  query: Query
  subscription: Subscription
}

enum join__Graph {
  REVIEWS @join__graph(name: "reviews", url: "http://127.0.0.1:1/")
}

type Query @join__type(graph: REVIEWS) {
  count: Int
}

type Subscription @join__type(graph: REVIEWS) {
  rated: Int
}
"#;

/// Clients must send tokens, and there are no keys to verify them.
const TOKENS_REQUIRED: &str = "
authentication:
  jwt:
    required: true
    issuers:
      - {issuer: 'https://issuer.test/', audiences: [a], jwks: {url: 'http://127.0.0.1:1/'}}
";

/// The requests of a subgraph to the router.
struct Callbacks {
    address: SocketAddr,
    id: String,
    verifier: String,
}

impl Callbacks {
    fn post(&self, action: &str, members: &str) -> TestResponse {
        let Self { address, id, verifier } = self;
        let body = format!(
            r#"{{"kind":"subscription","action":"{action}","id":"{id}","verifier":"{verifier}"{members}}}"#
        );
        let json = [("content-type", "application/json")];
        request(*address, "POST", &format!("/back/{id}"), &json, body)
    }

    /// Sends a message, and returns the status if the response is one of the protocol.
    fn send(&self, action: &str, members: &str) -> u16 {
        let response = self.post(action, members);
        assert_eq!(response.header("subscription-protocol"), "callback/1.0");
        assert_eq!(response.body, "");
        response.status
    }
}

/// Reads the request that begins a subscription, and accepts it after a `check`.
fn accept(subgraph: &TcpListener, address: SocketAddr) -> Callbacks {
    let (mut socket, _) = subgraph.accept().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut text = String::new();
    while !text.ends_with("}}}") {
        let mut buffer = [0; 4096];
        let length = socket.read(&mut buffer).unwrap();
        assert_ne!(length, 0, "{text}");
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    let value = |key: &str| {
        let rest = text.split(&format!("\"{key}\":\"")).nth(1).expect(key);
        rest.split('"').next().unwrap().to_owned()
    };
    assert!(text.contains(r#""query":"subscription{rated}""#), "{text}");
    let callbacks = Callbacks { address, id: value("subscriptionId"), verifier: value("verifier") };
    assert_eq!(value("callbackUrl"), format!("http://router.internal/back/{}", callbacks.id));
    assert_eq!(callbacks.send("check", ""), 204);
    let body = r#"{"data":null}"#;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
    write!(socket, "{head}: {}\r\n\r\n{body}", body.len()).unwrap();
    callbacks
}

/// Starts a router with further keys of the endpoint, and further lines of the configuration.
fn start(subgraph: &TcpListener, listen: &str, lines: &str) -> Router {
    let url = subgraph.local_addr().unwrap();
    let source =
        SupergraphSource::Text { name: "reviews.graphql".into(), sdl: SUPERGRAPH.to_owned() };
    let configuration = format!(
        "subgraphs: {{reviews: {{url: 'http://{url}/', subscription: {{protocol: callback}}}}}}\n\
         subscriptions: {{callback: {{public_url: 'http://router.internal/back', path: /back{listen}}}}}\n{lines}"
    );
    Router::serving(source, &configuration)
}

#[test]
fn a_subgraph_sends_results_to_either_listener() {
    for listen in ["", ", listen: '127.0.0.1:0'"] {
        let subgraph = TcpListener::bind("127.0.0.1:0").unwrap();
        let router = start(&subgraph, listen, "");
        assert_eq!(router.callbacks.is_some(), !listen.is_empty());
        let endpoint = router.callbacks.unwrap_or(router.address);
        let mut client = connect(router.address);
        let body = r#"{"query":"subscription { rated }"}"#;
        let head = "POST /graphql HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\
                    content-type: application/json\r\nconnection: close\r\ncontent-length";
        write!(client, "{head}: {}\r\n\r\n{body}", body.len()).unwrap();
        let callbacks = accept(&subgraph, endpoint);
        let guess = Callbacks { verifier: "guess".into(), id: callbacks.id.clone(), ..callbacks };
        assert_eq!(guess.send("complete", ""), 403);
        // Larger than the head of a request may be.
        let rest = "x".repeat(1 << 18);
        let payload =
            format!(r#","payload":{{"data":{{"rated":4}},"extensions":{{"x":"{rest}"}}}}"#);
        assert_eq!(callbacks.send("next", &payload), 200);
        assert_eq!(callbacks.send("complete", ""), 202);
        assert_eq!(callbacks.send("check", ""), 404);
        let mut received = String::new();
        client.read_to_string(&mut received).unwrap();
        assert!(received.contains(r#"data: {"data":{"rated":4}}"#), "{received}");
        assert!(received.contains("event: complete"), "{received}");
        router.wait_for("starling_subgraph_callback_requests_rejected_total", 2);
        let of_subgraph =
            r#"starling_subgraph_subscription_callbacks_rejected_total{subgraph="reviews"}"#;
        router.wait_for(of_subgraph, 1);
    }
}

#[test]
fn the_endpoint_needs_no_token_refuses_other_requests_and_is_not_on_two_listeners() {
    let subgraph = TcpListener::bind("127.0.0.1:0").unwrap();
    let shared = start(&subgraph, "", TOKENS_REQUIRED);
    let separate = start(&subgraph, ", listen: '127.0.0.1:0'", "");
    let own = separate.callbacks.unwrap();
    let protocol = "callback/1.0";
    for (address, method, target, expected) in [
        (shared.address, "POST", "/graphql", (401, "")),
        (shared.address, "POST", "/back/1", (404, protocol)),
        (shared.address, "GET", "/back/1", (405, protocol)),
        (shared.address, "POST", "/back", (404, "")),
        (own, "POST", "/back/1", (404, protocol)),
        (own, "OPTIONS", "/back/1", (405, protocol)),
        (own, "POST", "/graphql", (404, "")),
        (own, "GET", "/", (404, "")),
        (separate.address, "POST", "/back/1", (404, "")),
    ] {
        let response = request(address, method, target, &[], "{}");
        let received = (response.status, &*response.header("subscription-protocol"));
        assert_eq!(received, expected, "{method} {target}");
    }
}
