//! The check of a subgraph over HTTP: a request that it must refuse.

use std::sync::Arc;
use std::time::Duration;

use subscription_client::{
    CallbackEndpoint, CallbackRejection, CallbackSettings, ProbeError, ProbeErrorKind,
    ProbeOutcome, SubgraphSubscriptions, SubscriptionProtocol, SubscriptionSettings,
};
use tokio::join;

use crate::scripted_server::ScriptedServer;
use crate::subscriber::{client, read, settings};

const ERRORS: &str = r#"{"errors":[{"message":"Cannot query field"}]}"#;

/// Probes a subgraph that gives this response. Returns the request too.
async fn probe(
    protocol: SubscriptionProtocol,
    [status, content_type, body]: [&str; 3],
) -> (Result<ProbeOutcome, ProbeError>, String) {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), settings(protocol));
    let respond = async {
        let request = server.next_request().await;
        let text = format!("{}{}", request.head, request.body);
        request.respond(status, content_type, body).await;
        text
    };
    let (outcome, request) = join!(client.probe(), respond);
    assert_eq!(read(&client.stats().operations), 0, "no operation begins");
    (outcome, request)
}

/// Returns the reason and the kind of a failure.
fn failure(outcome: Result<ProbeOutcome, ProbeError>) -> (String, ProbeErrorKind) {
    let ProbeError { reason, kind } = outcome.expect_err("the probe fails");
    (reason, kind)
}

#[tokio::test]
async fn a_stream_with_errors_proves_the_protocol() {
    let event = format!("event: next\ndata: {ERRORS}\n\nevent: complete\n\n");
    let part = format!("--a\r\n\r\n{{\"payload\":null,{}\r\n--a--\r\n", &ERRORS[1..]);
    let events = ["200 OK", "text/event-stream; charset=utf-8", &event];
    let refused_events = ["400 Bad Request", "text/event-stream", &event];
    let parts = ["200 OK", "multipart/mixed;boundary=a;subscriptionSpec=1.0", &part];
    let query = r#""query":"subscription starlingcheck { "#;
    let parameter = "query=subscription%20starlingcheck%20%7b%20";
    for (protocol, response, accept, text) in [
        (SubscriptionProtocol::Sse, events, "text/event-stream\r\n", query),
        (SubscriptionProtocol::Sse, refused_events, "text/event-stream\r\n", query),
        (SubscriptionProtocol::SseGet, events, "text/event-stream\r\n", parameter),
        (SubscriptionProtocol::Multipart, parts, "multipart/mixed;subscriptionspec=1.0", query),
    ] {
        let (outcome, request) = probe(protocol, response).await;
        assert_eq!(outcome, Ok(ProbeOutcome::Proven));
        let request = request.to_lowercase();
        assert!(request.contains(&format!("\r\naccept: {accept}")), "{request}");
        assert!(request.contains(text), "{request}");
    }
}

#[tokio::test]
async fn errors_as_json_show_that_graphql_is_served_there_and_no_more() {
    for response in [
        ["400 Bad Request", "application/json", ERRORS],
        ["200 OK", "application/graphql-response+json", ERRORS],
    ] {
        for protocol in [SubscriptionProtocol::Sse, SubscriptionProtocol::Multipart] {
            let (outcome, _) = probe(protocol, response).await;
            assert!(matches!(outcome, Ok(ProbeOutcome::Unproven { .. })), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_response_that_is_no_refusal_of_graphql_is_a_failure_with_its_reason() {
    for (response, reason, kind) in [
        (
            ["406 Not Acceptable", "text/plain", ""],
            "the subgraph responded with status 406",
            ProbeErrorKind::Unusable,
        ),
        (
            ["405 Not Allowed", "application/json", "{}"],
            "the subgraph responded with status 405",
            ProbeErrorKind::Unusable,
        ),
        (
            ["401 Unauthorized", "application/json", ERRORS],
            "the subgraph responded with status 401",
            ProbeErrorKind::NeedsCredentials,
        ),
        (
            ["200 OK", "text/html", "<html>"],
            "the subgraph responded with content type `text/html` instead of a stream of results",
            ProbeErrorKind::Unusable,
        ),
        (
            ["200 OK", "application/json", r#"{"status":"up"}"#],
            "the subgraph responded with JSON without errors to an operation with an unknown field",
            ProbeErrorKind::Unusable,
        ),
    ] {
        let (outcome, _) = probe(SubscriptionProtocol::Sse, response).await;
        assert_eq!(failure(outcome), (reason.to_owned(), kind));
    }
}

#[tokio::test]
async fn a_subgraph_that_cannot_be_reached_is_a_failure() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), settings(SubscriptionProtocol::Multipart));
    server.stop();
    let (reason, kind) = failure(client.probe().await);
    assert!(reason.contains("connection failed"), "{reason}");
    assert_eq!(kind, ProbeErrorKind::Unusable);
}

/// Probes a subgraph with callbacks that gives this response. Returns the request too.
async fn probe_callback(
    client: &SubgraphSubscriptions,
    server: &ScriptedServer,
    [status, content_type, body]: [&str; 3],
) -> (Result<ProbeOutcome, ProbeError>, String) {
    let respond = async {
        let request = server.next_request().await;
        let text = request.body.clone();
        request.respond(status, content_type, body).await;
        text
    };
    join!(client.probe(), respond)
}

#[tokio::test]
async fn the_request_of_a_callback_names_a_subscription_that_is_not_in_progress() {
    let server = ScriptedServer::start().await;
    let endpoint = CallbackEndpoint::new("http://router/callback", CallbackSettings::default());
    let without_callbacks = client(&server.url(), settings(SubscriptionProtocol::Callback));
    let (reason, _) = failure(without_callbacks.probe().await);
    assert_eq!(reason, "the router has no endpoint for callbacks (`subscriptions.callback`)");

    let client = without_callbacks.with_callbacks(Some(Arc::clone(&endpoint)));
    let refused = ["400 Bad Request", "application/json", ERRORS];
    let (outcome, body) = probe_callback(&client, &server, refused).await;
    assert!(matches!(outcome, Ok(ProbeOutcome::Unproven { .. })), "{outcome:?}");
    let id = body.split(r#""callbackUrl":"http://router/callback/"#).nth(1).expect("the URL");
    let id = id.split('"').next().expect("the end of a string");
    assert!(body.contains(&format!(r#""subscriptionId":"{id}""#)), "{body}");
    assert_eq!(endpoint.check_id(id), Err(CallbackRejection::UnknownSubscription));

    let events = ["200 OK", "text/event-stream", ": \n\n"];
    let (outcome, _) = probe_callback(&client, &server, events).await;
    let reason =
        "the subgraph did not respond with JSON, so it does not support the callback protocol";
    assert_eq!(failure(outcome), (reason.to_owned(), ProbeErrorKind::Unusable));

    // Apollo Server, if it cannot reach the URL for callbacks.
    let unreachable = ["500 Internal Server Error", "application/json", ERRORS];
    let (outcome, _) = probe_callback(&client, &server, unreachable).await;
    let reason = "the subgraph responded with status 500";
    assert_eq!(failure(outcome), (reason.to_owned(), ProbeErrorKind::CallbackFailed));
}

#[tokio::test]
async fn a_subgraph_that_does_not_respond_may_wait_for_the_response_to_a_callback() {
    let ack_timeout = Duration::from_millis(50);
    for (protocol, kind) in [
        (SubscriptionProtocol::Callback, ProbeErrorKind::CallbackTimeout),
        (SubscriptionProtocol::Sse, ProbeErrorKind::Unusable),
    ] {
        let server = ScriptedServer::start().await;
        let endpoint = CallbackEndpoint::new("http://router/callback", CallbackSettings::default());
        let settings = SubscriptionSettings { ack_timeout, ..settings(protocol) };
        let client = client(&server.url(), settings).with_callbacks(Some(endpoint));
        // The request is kept, and with it the connection.
        let (outcome, _request) = join!(client.probe(), server.next_request());
        let reason = "the subgraph did not respond within 0.05 s";
        assert_eq!(failure(outcome), (reason.to_owned(), kind));
    }
}
