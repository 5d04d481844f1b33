//! Subscriptions of a served subgraph, with the client's machines of the crate `wire`.

#![allow(clippy::unwrap_used)] // a missing response fails the test

use std::time::Instant;

use load::subgraph::{Fault, Invention, Server, Subgraph, SubscriptionCounts};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wire::Machine as _;
use wire::upstream::{
    ConnectionEnd, OperationId, SubprotocolChoice, UpgradeRequest, UpstreamEvent, UpstreamSocket,
};
use wire::websocket::handshake::HandshakeError;

const SDL: &str = "
    type Query { flight(id: ID!): Flight }
    type Subscription { flightMoved(id: ID): Flight moves: Int! }
    type Flight @key(fields: \"id\") { id: ID! gate: String! }
";

fn subgraph() -> Subgraph {
    Subgraph::builder(SDL).invent(Invention::default()).build().unwrap()
}

/// A client of one WebSocket.
struct SocketClient {
    stream: TcpStream,
    socket: UpstreamSocket,
}

impl SocketClient {
    async fn connect(server: &Server, path: &str, subprotocols: SubprotocolChoice) -> Self {
        let request = UpgradeRequest {
            authority: &server.address().to_string(),
            target: path,
            subprotocols,
            headers: &[("x-seen", "yes")],
            init_payload: None,
            key_entropy: [7; 16],
            mask_seed: 1,
        };
        let socket = UpstreamSocket::new(Default::default(), request, Instant::now()).unwrap();
        let stream = TcpStream::connect(server.address()).await.unwrap();
        Self { stream, socket }
    }

    fn subscribe(&mut self, query: &str) -> OperationId {
        self.socket.subscribe(json!({ "query": query }).to_string().into()).unwrap()
    }

    async fn flush(&mut self) {
        while let Some(chunks) = self.socket.poll_transmit(Instant::now()) {
            // After a failed write the next read reports the end of the connection.
            let _ = self.stream.write_all(&chunks.to_vec()).await;
        }
    }

    /// Returns the next event but the acknowledgement of the connection.
    async fn event(&mut self) -> UpstreamEvent {
        let mut buffer = vec![0; 4096];
        loop {
            self.flush().await;
            match self.socket.poll_event() {
                Some(UpstreamEvent::Ready { .. }) => continue,
                Some(event) => return event,
                None => {}
            }
            match self.stream.read(&mut buffer).await {
                Ok(0) | Err(_) => self.socket.receive_eof(Instant::now()),
                Ok(count) => self.socket.receive(Instant::now(), &buffer[..count]),
            }
        }
    }

    /// Returns the next event, which must be a result.
    async fn result(&mut self) -> (OperationId, Value) {
        match self.event().await {
            UpstreamEvent::Next { id, payload } => (id, serde_json::from_slice(&payload).unwrap()),
            other => panic!("{other:?} is not a result"),
        }
    }

    /// Returns the reason for which the connection ends next.
    async fn end(&mut self) -> ConnectionEnd {
        match self.event().await {
            UpstreamEvent::Ended(end) => end,
            other => panic!("{other:?} is not the end"),
        }
    }
}

/// Waits until the socket has started this number of subscriptions in total.
async fn started(server: &Server, count: u64) {
    server.controls().subscriptions().reached(|counts| counts.operations_started == count).await;
}

#[tokio::test]
async fn every_subscription_of_a_socket_gets_every_event() {
    for subprotocols in [SubprotocolChoice::TransportWs, SubprotocolChoice::Ws] {
        let server = Server::start(subgraph()).await.unwrap();
        let mut client = SocketClient::connect(&server, "/graphql", subprotocols).await;
        let plain = client.subscribe("subscription { flightMoved { id gate } }");
        let alias = client.subscribe("subscription { moved: flightMoved(id: 5) { id } }");
        client.flush().await;
        // Receives the responses to the upgrade request and to `connection_init`, which the operations wait for.
        let subscriptions = server.controls().subscriptions();
        tokio::select! {
            event = client.event() => panic!("{event:?} before the first event"),
            () = started(&server, 2) => {}
        }
        subscriptions.publish(Some(json!({ "id": "7" })));
        let gate = subgraph().respond(br#"{"query":"{ flight(id: 7) { gate } }"}"#).body;
        let gate = serde_json::from_slice::<Value>(&gate).unwrap()["data"]["flight"]["gate"].take();
        let mut results = [client.result().await, client.result().await];
        results.sort_by_key(|(id, _)| *id != plain);
        assert_eq!(
            results,
            [
                (plain, json!({ "data": { "flightMoved": { "id": "7", "gate": gate } } })),
                (alias, json!({ "data": { "moved": { "id": "7" } } })),
            ]
        );
        client.socket.unsubscribe(plain);
        client.flush().await;
        subscriptions.reached(|counts| counts.operations == 1).await;
        subscriptions.publish(None);
        // The argument finds its entity although it has no value.
        assert_eq!(
            client.result().await,
            (alias, json!({ "data": { "moved": { "id": "5" } } })),
            "{subprotocols:?}"
        );
        drop(client);
        subscriptions.reached(|counts| counts.connections == 0).await;
        let expected = SubscriptionCounts {
            connections_max: 1,
            operations_max: 2,
            operations_started: 2,
            results: 3,
            ..SubscriptionCounts::default()
        };
        assert_eq!(subscriptions.counts(), expected);
    }
}

#[tokio::test]
async fn events_at_a_rate_have_different_values() {
    let builder = Server::builder().subgraph("/flights", subgraph()).events_per_second(500.0);
    let server = builder.start().await.unwrap();
    let mut client = SocketClient::connect(&server, "/flights", SubprotocolChoice::Auto).await;
    client.subscribe("subscription { moves }");
    let mut values = Vec::new();
    while values.len() < 5 {
        values.push(client.result().await.1["data"]["moves"].as_i64().unwrap());
    }
    values.sort_unstable();
    values.dedup();
    assert!(values.len() > 1, "{values:?}");
}

#[tokio::test]
async fn queries_are_executed_and_invalid_operations_fail_alone() {
    let server = Server::start(subgraph()).await.unwrap();
    let mut client = SocketClient::connect(&server, "/", SubprotocolChoice::Auto).await;
    let query = client.subscribe("{ flight(id: 3) { id } }");
    assert_eq!(client.result().await, (query, json!({ "data": { "flight": { "id": "3" } } })));
    assert_eq!(client.event().await, UpstreamEvent::Complete { id: query });
    let wrong = client.subscribe("subscription { flightLost }");
    let failed = client.event().await;
    assert!(
        matches!(&failed, UpstreamEvent::Failed { id, error }
            if *id == wrong && format!("{error:?}").contains("flightLost")),
        "{failed:?}"
    );
    let seen = server.controls().take_requests();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].headers["x-seen"], "yes");
    assert_eq!(seen[0].json(), json!({ "query": "{ flight(id: 3) { id } }" }));
}

#[tokio::test]
async fn sockets_can_be_refused_and_cut() {
    let server = Server::start(subgraph()).await.unwrap();
    server.controls().fail_next(1, Fault::InternalServerError);
    let mut refused = SocketClient::connect(&server, "/", SubprotocolChoice::Auto).await;
    assert_eq!(refused.end().await, ConnectionEnd::Handshake(HandshakeError::Refused(500)));

    let mut client = SocketClient::connect(&server, "/", SubprotocolChoice::Auto).await;
    client.subscribe("subscription { moves }");
    tokio::select! {
        event = client.event() => panic!("{event:?} before the first event"),
        () = started(&server, 1) => {}
    }
    server.controls().subscriptions().disconnect();
    let end = client.end().await;
    assert!(matches!(end, ConnectionEnd::Lost(_)), "{end:?}");
}

/// Sends a request and returns the status and the body of the response.
async fn exchange(server: &Server, head: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn load_generators_publish_events_and_read_the_counts_over_http() {
    let builder = Server::builder().subgraph("/flights", subgraph()).subgraph("/x", subgraph());
    let server = builder.start().await.unwrap();
    let mut client = SocketClient::connect(&server, "/flights", SubprotocolChoice::Auto).await;
    let id = client.subscribe("subscription { flightMoved { id } }");
    tokio::select! {
        event = client.event() => panic!("{event:?} before the first event"),
        () = started(&server, 1) => {}
    }
    let (status, _) = exchange(&server, "POST /x/_events", r#"{"id":"1"}"#).await;
    assert_eq!(status, 200);
    let (status, counts) = exchange(&server, "POST /flights/_events", r#"{"id":"9"}"#).await;
    assert_eq!((status, &counts["operations"]), (200, &json!(1)));
    assert_eq!(
        client.result().await,
        (id, json!({ "data": { "flightMoved": { "id": "9" } } })),
        "the event of the other subgraph is not for it"
    );
    let (status, refused) = exchange(&server, "POST /flights/_events", "{").await;
    assert_eq!(status, 400, "{refused}");
    let expected = json!({
        "connections": 1, "connectionsMax": 1, "operations": 1, "operationsMax": 1,
        "operationsStarted": 1, "results": 1, "eventsDropped": 0
    });
    assert_eq!(exchange(&server, "GET /flights/_events", "").await, (200, expected));
    let over_http = r#"{"query":"subscription { moves }"}"#;
    let (status, refused) = exchange(&server, "POST /flights", over_http).await;
    assert_eq!(status, 400);
    assert!(refused["errors"][0]["message"].as_str().unwrap().contains("WebSocket"), "{refused}");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_load_generator_measures_a_mock() {
    use load::subscriptions::{Scenario, Subscription, SubscriptionSettings, SubscriptionTarget};
    use std::time::Duration;

    let server = Server::start(subgraph()).await.unwrap();
    let destination = format!("http://{}/_events", server.address()).parse().unwrap();
    let settings = SubscriptionSettings {
        name: "mock".to_owned(),
        target: SubscriptionTarget::parse(&format!("ws://{}/", server.address())).unwrap(),
        subscription: Subscription {
            query: "subscription ($id: ID) { flightMoved(id: $id) { id } }".to_owned(),
            variables: serde_json::from_str(r#"{"id":"$D"}"#).unwrap(),
            distinct: 5,
            ..Subscription::default()
        },
        clients: 20,
        scenario: Scenario::FanOut,
        events: Some(load::subscriptions::Events {
            destination,
            changes: None,
            text: r#"{"id":"$T"}"#.to_owned(),
            padding_bytes: 0,
        }),
        event_count: 10,
        rate: 200.0,
        hold: Duration::ZERO,
        slow_share: 0.0,
        churn_rate: 1.0,
        duration: Duration::ZERO,
        window: 1,
        sources: None,
        timeout: Duration::from_secs(10),
        retries: 0,
        quiet: Duration::from_secs(5),
        pid: None,
        never_sleeps: false,
    };
    let run = tokio::task::spawn_blocking(move || load::subscriptions::run(&settings, |_| {}));
    let run = run.await.unwrap().unwrap();
    assert!(run.is_sound(), "{run:?}");
    assert_eq!((run.expected, run.received, run.errors), (200, 200, 0));
    let ids: std::collections::BTreeSet<String> = server
        .controls()
        .take_requests()
        .iter()
        .map(|request| request.json()["variables"]["id"].to_string())
        .collect();
    assert_eq!(ids.into_iter().collect::<Vec<_>>().join(" "), r#""0" "1" "2" "3" "4""#);
    assert_eq!(server.controls().subscriptions().counts().operations_max, 20);
}
