//! The HTTP callback protocol. The tests pass the requests of the subgraph to the endpoint as its listener does.

use std::sync::Arc;
use std::time::Duration;

use subscription_client::{
    CallbackAction, CallbackEndpoint, CallbackRejection, CallbackRequest, CallbackSettings,
    SubgraphSubscriptions, SubscriptionProtocol, SubscriptionSettings,
};
use tokio::join;

use crate::scripted_server::{ReceivedRequest, ScriptedServer};
use crate::subscriber::{
    client, collect, next, read, settings, subscribe, subscribe_with, wait_until,
};

const BEGUN: &str = r#"{"data":null}"#;
const RESULT: &str = r#"{"data":{"n":1}}"#;
const COMPLETE: &str = "(the source is complete)";

/// The id and the verifier, as the subgraph reads them in the request that begins a subscription.
struct Callbacks {
    endpoint: Arc<CallbackEndpoint>,
    id: String,
    verifier: String,
}

impl Callbacks {
    fn of(endpoint: &Arc<CallbackEndpoint>, request: &ReceivedRequest) -> Self {
        let value = |key: &str| {
            let rest = request.body.split(&format!("\"{key}\":\"")).nth(1).expect(key);
            rest.split('"').next().expect("the end of a string").to_owned()
        };
        let id = value("subscriptionId");
        assert_eq!(value("callbackUrl"), format!("http://router.internal/callback/{id}"));
        Self { endpoint: Arc::clone(endpoint), id, verifier: value("verifier") }
    }

    /// Sends a message with further members.
    fn send(&self, action: &str, members: &str) -> Result<CallbackAction, CallbackRejection> {
        let Self { id, verifier, .. } = self;
        let body = format!(
            r#"{{"kind":"subscription","action":"{action}","id":"{id}","verifier":"{verifier}"{members}}}"#
        );
        let request = CallbackRequest { path_id: id, protocol: None, body: body.into() };
        self.endpoint.check_id(id)?;
        self.endpoint.receive(request)
    }

    fn send_result(&self, payload: &str) -> Result<CallbackAction, CallbackRejection> {
        self.send("next", &format!(r#","payload":{payload}"#))
    }
}

fn endpoint(settings: CallbackSettings) -> Arc<CallbackEndpoint> {
    CallbackEndpoint::new("http://router.internal/callback/", settings)
}

fn callback_client(
    server: &ScriptedServer,
    settings: SubscriptionSettings,
    endpoint: &Arc<CallbackEndpoint>,
) -> SubgraphSubscriptions {
    client(&server.url(), settings).with_callbacks(Some(Arc::clone(endpoint)))
}

fn callback() -> SubscriptionSettings {
    settings(SubscriptionProtocol::Callback)
}

/// Returns settings under which a silent subscription is lost soon.
fn impatient() -> CallbackSettings {
    CallbackSettings {
        heartbeat_interval: Some(Duration::from_millis(100)),
        missed_heartbeats_max: 1,
        ..CallbackSettings::default()
    }
}

/// Begins a subscription; its subgraph has sent the first `check`.
async fn accept(server: &ScriptedServer, endpoint: &Arc<CallbackEndpoint>) -> Callbacks {
    let request = server.next_request().await;
    let callbacks = Callbacks::of(endpoint, &request);
    assert_eq!(callbacks.send("check", ""), Ok(CallbackAction::Check));
    request.respond("200 OK", "application/json", BEGUN).await;
    callbacks
}

#[tokio::test]
async fn results_arrive_as_requests_also_before_the_response_to_the_first_one() {
    let server = ScriptedServer::start().await;
    let endpoint = endpoint(CallbackSettings::default());
    let client = callback_client(&server, callback(), &endpoint);
    let serve = async {
        let request = server.next_request().await;
        let callbacks = Callbacks::of(&endpoint, &request);
        let head = request.head.clone();
        assert_eq!(callbacks.send("check", ""), Ok(CallbackAction::Check));
        assert_eq!(callbacks.send_result(RESULT), Ok(CallbackAction::Next));
        let body = request.body.clone();
        request.respond("200 OK", "application/json", BEGUN).await;
        (callbacks, head, body)
    };
    let query = r#"{"query":"subscription{n}","variables":{},"extensions":{"a":[1]}}"#;
    let (stream, (callbacks, head, body)) = join!(subscribe_with(&client, query, "t"), serve);
    assert!(head.starts_with("post /graphql http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\naccept: application/json;callbackspec=1.0\r\n"), "{head}");
    assert!(head.contains("\r\nx-token: t\r\n"), "{head}");
    let begin = r#"{"query":"subscription{n}","variables":{},"extensions":{"a":[1],"subscription":{"callbackUrl":"#;
    assert!(body.starts_with(begin), "{body}");
    assert!(body.ends_with(r#","heartbeatIntervalMs":5000}}}"#), "{body}");
    assert_eq!(callbacks.send_result(r#"{"data":{"n":2}}"#), Ok(CallbackAction::Next));
    assert_eq!(callbacks.send("complete", ""), Ok(CallbackAction::Complete));
    assert_eq!(callbacks.send("check", ""), Err(CallbackRejection::UnknownSubscription));
    assert_eq!(collect(stream.unwrap()).await, [RESULT, r#"{"data":{"n":2}}"#, COMPLETE]);
    let stats = client.stats();
    wait_until("the operation is counted as ended", || read(&stats.operations) == 0).await;
    let counts = [&stats.started, &stats.results, &stats.failed, &stats.connections];
    assert_eq!(counts.map(read), [1, 2, 0, 0]);
}

#[tokio::test]
async fn errors_of_the_end_are_a_result() {
    let server = ScriptedServer::start().await;
    let endpoint = endpoint(CallbackSettings::default());
    let client = callback_client(&server, callback(), &endpoint);
    let (stream, callbacks) = join!(subscribe(&client), accept(&server, &endpoint));
    let errors = r#","errors":[{"message":"no"}]"#;
    assert_eq!(callbacks.send("complete", errors), Ok(CallbackAction::Complete));
    let expected = [r#"{"errors":[{"message":"no"}]}"#, COMPLETE];
    assert_eq!(collect(stream.unwrap()).await, expected);
}

#[tokio::test]
async fn requests_without_the_secret_are_refused_and_change_nothing() {
    let server = ScriptedServer::start().await;
    let endpoint = endpoint(CallbackSettings::default());
    let client = callback_client(&server, callback(), &endpoint);
    let (stream, callbacks) = join!(subscribe(&client), accept(&server, &endpoint));
    let mut stream = stream.unwrap();
    let known = &callbacks.id;
    let changed = |id: &str, verifier: &str| Callbacks {
        endpoint: Arc::clone(&endpoint),
        id: id.to_owned(),
        verifier: verifier.to_owned(),
    };
    let wrong_verifier = changed(known, "guess");
    let unknown = changed("3fa85f64-5717-4562-b3fc-2c963f66afa6", &callbacks.verifier);
    assert_eq!(wrong_verifier.send("complete", ""), Err(CallbackRejection::WrongVerifier));
    assert_eq!(wrong_verifier.send_result(RESULT), Err(CallbackRejection::WrongVerifier));
    assert_eq!(unknown.send_result(RESULT), Err(CallbackRejection::UnknownSubscription));
    let body = "{".into();
    let nonsense = endpoint.receive(CallbackRequest { path_id: known, protocol: None, body });
    assert_eq!(nonsense, Err(CallbackRejection::Malformed("not JSON")));
    assert_eq!(callbacks.send_result(RESULT), Ok(CallbackAction::Next));
    assert_eq!(next(&mut stream).await, RESULT);
    // The one with an unknown id belongs to no subgraph.
    let counts = [&client.stats().rejected, &endpoint.stats().rejected, &endpoint.stats().received];
    assert_eq!(counts.map(read), [3, 4, 6]);
    let shown = format!("{endpoint:?} {client:?}");
    assert!(!shown.contains(known) && !shown.contains(&callbacks.verifier), "{shown}");
}

#[tokio::test]
async fn an_invalid_or_oversized_result_ends_only_its_own_subscription() {
    let large = format!(r#"{{"data":"{}"}}"#, "x".repeat(2000));
    for (payload, accepted, reason) in [
        (large.as_str(), true, "(the subgraph sent a result of more than 1000 bytes)"),
        ("1", false, "(the subgraph sent an invalid result: `payload` must be an object)"),
    ] {
        let server = ScriptedServer::start().await;
        let endpoint = endpoint(CallbackSettings::default());
        let settings = SubscriptionSettings { message_bytes_max: 1000, ..callback() };
        let client = callback_client(&server, settings, &endpoint);
        let (bad, from_bad) = join!(subscribe(&client), accept(&server, &endpoint));
        let (good, from_good) = join!(subscribe(&client), accept(&server, &endpoint));
        assert_eq!(from_bad.send_result(payload).is_ok(), accepted);
        assert_eq!(collect(bad.unwrap()).await, [reason]);
        assert_eq!(from_bad.send("check", ""), Err(CallbackRejection::UnknownSubscription));
        assert_eq!(from_good.send_result(RESULT), Ok(CallbackAction::Next));
        assert_eq!(next(&mut good.unwrap()).await, RESULT);
    }
}

#[tokio::test]
async fn a_silent_subgraph_is_asked_again_until_the_attempts_run_out() {
    let server = ScriptedServer::start().await;
    let endpoint = endpoint(impatient());
    let client = callback_client(&server, callback(), &endpoint);
    let (stream, first) = join!(subscribe(&client), accept(&server, &endpoint));
    let mut stream = stream.unwrap();
    // No heartbeat comes; the next attempt has an id and a verifier of its own.
    let again = server.next_request().await;
    let second = Callbacks::of(&endpoint, &again);
    assert_ne!((&first.id, &first.verifier), (&second.id, &second.verifier));
    assert_eq!(first.send("check", ""), Err(CallbackRejection::UnknownSubscription));
    assert_eq!(second.send_result(RESULT), Ok(CallbackAction::Next));
    again.respond("200 OK", "application/json", BEGUN).await;
    assert_eq!([next(&mut stream).await, next(&mut stream).await], ["gap", RESULT]);
    for _ in 0..3 {
        let request = server.next_request().await;
        request.respond("503 Service Unavailable", "text/plain", "").await;
    }
    let rest = collect(stream).await;
    assert_eq!(rest, ["gap", "(the subgraph responded with status 503)"]);
    let stats = client.stats();
    let counts = [&stats.started, &stats.resumed, &stats.connections_lost, &stats.failed];
    assert_eq!(counts.map(read), [2, 1, 2, 1]);
}

#[tokio::test]
async fn a_subscription_that_does_not_begin_is_an_error_and_its_id_is_unknown() {
    for (status, content_type, body, reason) in [
        ("401 Unauthorized", "application/json", BEGUN, "the subgraph responded with status 401"),
        ("502 Bad Gateway", "text/html", "", "the subgraph responded with status 502"),
        (
            "200 OK",
            "text/event-stream",
            "",
            "the subgraph did not respond with JSON, so it does not support the callback protocol",
        ),
    ] {
        let server = ScriptedServer::start().await;
        let endpoint = endpoint(CallbackSettings::default());
        let client = callback_client(&server, callback(), &endpoint);
        let serve = async {
            let request = server.next_request().await;
            let callbacks = Callbacks::of(&endpoint, &request);
            request.respond(status, content_type, body).await;
            callbacks
        };
        let (refused, callbacks) = join!(subscribe(&client), serve);
        assert_eq!(refused.unwrap_err().to_string(), format!("subgraph/reviews: {reason}"));
        assert_eq!(callbacks.send("check", ""), Err(CallbackRejection::UnknownSubscription));
    }
}

#[tokio::test]
async fn errors_in_the_response_refuse_the_subscription() {
    let server = ScriptedServer::start().await;
    let endpoint = endpoint(CallbackSettings::default());
    let client = callback_client(&server, callback(), &endpoint);
    let serve = async {
        let request = server.next_request().await;
        let callbacks = Callbacks::of(&endpoint, &request);
        let body = r#"{"data":null,"errors":[{"message":"no"}]}"#;
        request.respond("200 OK", "application/json", body).await;
        callbacks
    };
    let (stream, callbacks) = join!(subscribe(&client), serve);
    let expected = [r#"{"errors":[{"message":"no"}]}"#, COMPLETE];
    assert_eq!(collect(stream.unwrap()).await, expected);
    assert_eq!(callbacks.send("check", ""), Err(CallbackRejection::UnknownSubscription));
}

#[tokio::test]
async fn dropping_the_stream_makes_its_id_unknown() {
    let server = ScriptedServer::start().await;
    let endpoint = endpoint(CallbackSettings::default());
    let client = callback_client(&server, callback(), &endpoint);
    let (stream, callbacks) = join!(subscribe(&client), accept(&server, &endpoint));
    assert_eq!(callbacks.send("check", ""), Ok(CallbackAction::Check));
    drop(stream);
    wait_until("the id is unknown", || {
        callbacks.send("check", "") == Err(CallbackRejection::UnknownSubscription)
    })
    .await;
    wait_until("the place is free", || read(&client.stats().operations) == 0).await;
}

#[tokio::test]
async fn without_an_endpoint_the_reason_names_the_setting() {
    let server = ScriptedServer::start().await;
    let refused = subscribe(&client(&server.url(), callback())).await.unwrap_err();
    let reason =
        "subgraph/reviews: the router has no endpoint for callbacks (`subscriptions.callback`)";
    assert_eq!(refused.to_string(), reason);
}
