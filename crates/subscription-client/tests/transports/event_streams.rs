//! Server-sent events and multipart.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use events::{SubgraphSubscription, SubscriptionClient};
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use subscription_client::{SubscriptionProtocol, SubscriptionSettings};
use tokio::join;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};
use upstream::Protocol;

use crate::scripted_server::{DEADLINE, ReceivedRequest, ScriptedServer};
use crate::subscriber::{
    QUERY, client, collect, in_trace, next, patient, read, resubscribe_in, settings, subscribe,
    subscribe_in, subscribe_with, subscription_in, wait_until,
};

const RESULTS: [&str; 3] =
    [r#"{"data":{"n":1}}"#, r#"{"data":{"n":2}}"#, "(the source is complete)"];

fn sse() -> SubscriptionSettings {
    settings(SubscriptionProtocol::Sse)
}

#[tokio::test]
async fn each_protocol_sends_its_request_and_delivers_results_until_the_end() {
    let events = "event: next\ndata: {\"data\":{\"n\":1}}\n\n:\n\nevent: next\ndata: {\"data\":{\"n\":2}}\n\nevent: complete\n\n";
    let parts = "--b\r\ncontent-type: application/json\r\n\r\n{\"payload\":{\"data\":{\"n\":1}}}\r\n--b\r\n\r\n{}\r\n--b\r\n\r\n{\"payload\":{\"data\":{\"n\":2}}}\r\n--b--\r\n";
    let increments =
        "\r\n---\r\n\r\n{\"data\":{\"n\":1}}\r\n---\r\n\r\n{\"data\":{\"n\":2}}\r\n-----\r\n";
    let post = "post /graphql?key=1 http/1.1";
    let get = "get /graphql?key=1&query=subscription%7bn%7d&variables=%7b%22a%22%3a1%7d http/1.1";
    let multipart =
        "multipart/mixed;subscriptionspec=1.0, multipart/mixed;q=0.9, application/json;q=0.1";
    let of_subscriptions = "multipart/mixed;boundary=b;subscriptionSpec=\"1.0\"";
    let not_compressed = "text/event-stream; charset=utf-8\r\ncontent-encoding: none";
    for (protocol, line, accept, content_type, body) in [
        (SubscriptionProtocol::Sse, post, "text/event-stream", not_compressed, events),
        (SubscriptionProtocol::SseGet, get, "text/event-stream", "text/event-stream", events),
        (SubscriptionProtocol::Multipart, post, multipart, of_subscriptions, parts),
        (
            SubscriptionProtocol::Multipart,
            post,
            multipart,
            "multipart/mixed; boundary=\"-\"",
            increments,
        ),
    ] {
        let server = ScriptedServer::start().await;
        let client = client(&format!("{}?key=1", server.url()), settings(protocol));
        let serve = async {
            let request = server.next_request().await;
            let (head, sent) = (request.head.clone(), request.body.clone());
            request.respond("200 OK", content_type, body).await;
            (head, sent)
        };
        let (stream, (head, sent)) = join!(subscribe_with(&client, QUERY, "secret"), serve);
        assert_eq!(collect(stream.unwrap()).await, RESULTS, "{protocol:?}");
        let mut lines: Vec<_> = head.trim_end().lines().collect();
        assert_eq!(lines.remove(0), line);
        let host = server.url().replace("http://", "host: ").replace("/graphql", "");
        for expected in
            [&host, &format!("accept: {accept}"), "accept-encoding: identity", "x-token: secret"]
        {
            assert!(lines.contains(&expected), "{expected} in {head}");
        }
        let is_post = line.starts_with("post");
        assert_eq!(lines.contains(&"content-type: application/json"), is_post);
        assert_eq!(sent, if is_post { QUERY } else { "" });
        let stats = client.stats();
        wait_until("the operation and its connection are counted as ended", || {
            read(&stats.operations) == 0 && read(&stats.connections) == 0
        })
        .await;
        let counts = [&stats.started, &stats.results, &stats.failed, &stats.connections_lost];
        assert_eq!(counts.map(read), [1, 2, 0, 0]);
    }
}

#[tokio::test]
async fn each_attempt_has_the_headers_of_the_trace_in_place_of_forwarded_ones() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), sse());
    let forwarded = (HeaderName::from_static("traceparent"), HeaderValue::from_static("00-old"));
    let wanted = SubgraphSubscription {
        headers: [forwarded].into(),
        ..in_trace(subscription_in("", QUERY, "secret"), "00-1-2-01")
    };
    let (stream, first) = join!(client.subscribe(Arc::new(wanted)), server.next_event_stream());
    let stream = stream.unwrap();
    let sent = |head: &str| -> Vec<String> {
        head.lines().filter(|line| line.starts_with("traceparent")).map(str::to_owned).collect()
    };
    assert_eq!(sent(&first.head), ["traceparent: 00-1-2-01"]);
    drop(first);
    assert_eq!(sent(&server.next_event_stream().await.head), ["traceparent: 00-1-2-01"]);
    drop(stream);
}

#[tokio::test]
async fn a_lost_stream_is_begun_again_with_a_gap_also_after_a_while_of_failures() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), sse());
    let first = async {
        let mut request = server.next_request().await;
        request.begin_events().await;
        request.send_event(RESULTS[0]).await;
        request
    };
    let (stream, first) = join!(subscribe(&client), first);
    let mut stream = stream.unwrap();
    assert_eq!(next(&mut stream).await, RESULTS[0]);
    drop(first);
    server.next_request().await.respond("503 Service Unavailable", "text/plain", "starting").await;
    let cut_off = server.next_request().await;
    drop(cut_off);
    let mut second = server.next_request().await;
    assert_eq!(second.body, QUERY);
    second.begin_events().await;
    second.send_event(RESULTS[1]).await;
    assert_eq!([next(&mut stream).await, next(&mut stream).await], ["gap", RESULTS[1]]);
    let stats = client.stats();
    let counts = [&stats.started, &stats.resumed, &stats.connections_lost, &stats.failed];
    assert_eq!(counts.map(read), [2, 1, 1, 0]);
    // The result has shown that the connection works, so there are as many attempts as before.
    drop(second);
    for _ in 0..3 {
        drop(server.next_request().await);
    }
    let rest = collect(stream).await;
    assert_eq!(rest, ["(the connection to the subgraph was lost: unexpected end)"]);
    assert_eq!(read(&stats.failed), 1);
}

#[tokio::test]
async fn a_chunked_response_that_breaks_off_is_lost_too() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), sse());
    let first = async {
        let mut request = server.next_request().await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        request.send(&format!("{head}2\r\n:\n\r\n")).await;
    };
    let (stream, ()) = join!(subscribe(&client), first);
    let second = async {
        let mut request = server.next_request().await;
        request.begin_events().await;
        request.send("event: complete\n\n").await;
    };
    let (rest, ()) = join!(collect(stream.unwrap()), second);
    assert_eq!(rest, ["gap", RESULTS[2]]);
}

#[tokio::test]
async fn a_refusal_while_subscribing_again_ends_the_stream_with_its_reason() {
    for (status, content_type, body, expected) in [
        (
            "401 Unauthorized",
            "application/json",
            r#"{"errors":[{"message":"from a proxy"}]}"#,
            vec!["(the subgraph responded with status 401)"],
        ),
        (
            "200 OK",
            "application/json",
            r#"{"errors":[{"message":"no"}]}"#,
            vec![r#"{"errors":[{"message":"no"}]}"#, RESULTS[2]],
        ),
    ] {
        let server = ScriptedServer::start().await;
        let client = client(&server.url(), sse());
        let (stream, first) = join!(subscribe(&client), server.next_event_stream());
        drop(first);
        let second =
            async { server.next_request().await.respond(status, content_type, body).await };
        let (rest, ()) = join!(collect(stream.unwrap()), second);
        assert_eq!(rest, expected);
    }
}

#[tokio::test]
async fn errors_of_a_refused_operation_are_a_result_and_the_end() {
    let body = r#"{"data":null,"errors":[{"message":"no"}]}"#;
    for (status, content_type) in [
        ("200 OK", "application/json"),
        ("400 Bad Request", "application/json; charset=utf-8"),
        ("403 Forbidden", "application/graphql-response+json"),
    ] {
        let server = ScriptedServer::start().await;
        let client = client(&server.url(), sse());
        let serve = async { server.next_request().await.respond(status, content_type, body).await };
        let (stream, ()) = join!(subscribe(&client), serve);
        assert_eq!(
            collect(stream.unwrap()).await,
            [r#"{"errors":[{"message":"no"}]}"#, RESULTS[2]],
            "{status}"
        );
        assert_eq!([&client.stats().failed, &client.stats().operations].map(read), [1, 0]);
    }
}

#[tokio::test]
async fn a_first_attempt_that_fails_is_reported_at_once() {
    let html = "<html>";
    for (status, content_type, body, reason) in [
        ("401 Unauthorized", "text/plain", "", "the subgraph responded with status 401"),
        (
            "503 Service Unavailable",
            "text/event-stream",
            "",
            "the subgraph responded with status 503",
        ),
        ("302 Found", "text/html", html, "the subgraph responded with status 302"),
        (
            "200 OK",
            "text/html",
            html,
            "the subgraph responded with content type `text/html` instead of a stream of results",
        ),
        (
            "200 OK",
            "application/json",
            r#"{"data":{"n":1}}"#,
            "the subgraph responded with one JSON result instead of a stream",
        ),
        ("200 OK", "application/json", html, "the subgraph's response is not a JSON object"),
        (
            "200 OK",
            "multipart/mixed",
            "",
            "the subgraph's multipart response has no valid boundary",
        ),
        (
            "200 OK",
            "text/event-stream\r\ncontent-encoding: gzip",
            "",
            "the subgraph sent a compressed response",
        ),
    ] {
        let server = ScriptedServer::start().await;
        let client = client(&server.url(), sse());
        let serve = async { server.next_request().await.respond(status, content_type, body).await };
        let (refused, ()) = join!(subscribe(&client), serve);
        let reported = refused.unwrap_err().to_string();
        assert_eq!(reported, format!("subgraph/reviews: {reason}"));
        assert_eq!([&client.stats().failed, &client.stats().operations].map(read), [1, 0]);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_or_does_not_respond_is_an_error_in_time() {
    let gone = ScriptedServer::start().await.url();
    let refused = subscribe(&client(&gone, sse())).await.unwrap_err();
    assert!(refused.to_string().contains("connection failed"), "{refused}");
    let server = ScriptedServer::start().await;
    let settings = SubscriptionSettings { ack_timeout: Duration::from_millis(50), ..sse() };
    let client = client(&server.url(), settings);
    let (refused, request) = join!(subscribe(&client), server.next_request());
    let reason = "subgraph/reviews: the subgraph did not respond within 0.05 s";
    assert_eq!(refused.unwrap_err().to_string(), reason);
    request.wait_for_close().await;
}

#[tokio::test]
async fn nonsense_and_oversized_results_end_only_their_own_subscription() {
    let large = format!("event: next\ndata: {}\n\n", "x".repeat(2000));
    for (bytes, reason) in [
        (large.as_str(), "(the subgraph sent a result of more than 1000 bytes)"),
        (
            "event: next\ndata: 1\n\n",
            "(the subgraph sent an invalid result: a result is not a JSON object)",
        ),
        ("event: next\ndata: {\n\n", "(the subgraph sent an invalid result: a result is not JSON)"),
    ] {
        let server = ScriptedServer::start().await;
        let settings = SubscriptionSettings { message_bytes_max: 1000, ..sse() };
        let client = client(&server.url(), settings);
        let (good, mut good_request) = join!(subscribe(&client), server.next_event_stream());
        let begin = async {
            let mut request = server.next_request().await;
            request.begin_events().await;
            request.send(bytes).await;
            request
        };
        let (bad, bad_request) = join!(subscribe(&client), begin);
        assert_eq!(collect(bad.unwrap()).await, [reason]);
        bad_request.wait_for_close().await;
        good_request.send_event(RESULTS[0]).await;
        assert_eq!(next(&mut good.unwrap()).await, RESULTS[0]);
    }
}

/// The head of a multipart response with its first delimiter.
const MULTIPART_HEAD: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n\
    content-type: multipart/mixed;boundary=\"-\";subscriptionSpec=1.0\r\n\r\n---";

/// Waits for the next request, and begins a multipart response.
async fn next_multipart(server: &ScriptedServer) -> ReceivedRequest {
    let mut request = server.next_request().await;
    request.send(MULTIPART_HEAD).await;
    request
}

/// Returns a part with a result, and the delimiter behind it.
fn part(payload: &str) -> String {
    format!("\r\ncontent-type: application/json\r\n\r\n{{\"payload\":{payload}}}\r\n---")
}

#[tokio::test]
async fn an_oversized_part_ends_its_own_subscription_and_a_slow_one_is_a_result() {
    let server = ScriptedServer::start().await;
    let settings = SubscriptionSettings {
        message_bytes_max: 1000,
        ..settings(SubscriptionProtocol::Multipart)
    };
    let client = client(&server.url(), settings);
    let (slow, mut slow_request) = join!(subscribe(&client), next_multipart(&server));
    let (large, mut large_request) = join!(subscribe(&client), next_multipart(&server));
    large_request.send(&part(&format!(r#"{{"data":"{}"}}"#, "x".repeat(2000)))).await;
    let reason = "(the subgraph sent a result of more than 1000 bytes)";
    assert_eq!(collect(large.unwrap()).await, [reason]);
    large_request.wait_for_close().await;
    for byte in part(RESULTS[0]).chars() {
        slow_request.send(byte.encode_utf8(&mut [0; 4])).await;
    }
    assert_eq!(next(&mut slow.unwrap()).await, RESULTS[0]);
}

#[tokio::test]
async fn a_silent_stream_is_begun_again() {
    let server = ScriptedServer::start().await;
    let idle_timeout = Some(Duration::from_millis(200));
    let client = client(&server.url(), SubscriptionSettings { idle_timeout, ..sse() });
    let (stream, first) = join!(subscribe(&client), server.next_event_stream());
    let second = server.next_request().await;
    first.wait_for_close().await;
    second.respond("200 OK", "text/event-stream", "event: complete\n\n").await;
    assert_eq!(collect(stream.unwrap()).await, ["gap", RESULTS[2]]);
}

#[tokio::test]
async fn dropping_the_stream_closes_its_connection_and_frees_its_place() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), SubscriptionSettings { operations_max: 1, ..sse() });
    let (stream, request) = join!(subscribe(&client), server.next_event_stream());
    let refused = subscribe(&client).await.unwrap_err();
    let reason = "subgraph/reviews: there are 1 operations, the most that are allowed";
    assert_eq!((refused.to_string().as_str(), read(&client.stats().overloaded)), (reason, 1));
    drop(stream);
    request.wait_for_close().await;
    wait_until("the place is free", || read(&client.stats().operations) == 0).await;
    let (again, _request) = join!(subscribe(&client), server.next_event_stream());
    assert!(again.is_ok());
}

#[tokio::test]
async fn results_that_nobody_reads_are_dropped_and_counted() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), sse());
    let serve = async {
        let mut request = server.next_request().await;
        request.begin_events().await;
        for _ in 0..1000 {
            request.send_event(RESULTS[0]).await;
        }
        request.send("event: complete\n\n").await;
    };
    let (stream, ()) = join!(subscribe(&client), serve);
    let stats = client.stats();
    wait_until("the operation ends", || read(&stats.operations) == 0).await;
    assert_eq!([&stats.results, &stats.dropped].map(read), [1000, 1000 - 256]);
    let messages = collect(stream.unwrap()).await;
    assert_eq!((messages.len(), messages.last().map(String::as_str)), (257, Some(RESULTS[2])));
}

#[tokio::test]
async fn a_subgraph_that_speaks_http_2_gets_requests_in_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/graphql?key=1", listener.local_addr().unwrap());
    let (heads, mut received) = mpsc::channel(1);
    let (pieces, body) = mpsc::channel::<Bytes>(1);
    let body = Arc::new(Mutex::new(Some(body)));
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service_fn(|request: Request<Incoming>| {
            let (heads, body) = (heads.clone(), Arc::clone(&body));
            async move {
                heads.send((request.uri().clone(), request.headers().clone())).await.unwrap();
                let mut pieces = body.lock().await.take().expect("one request");
                let frames = stream::poll_fn(move |context| pieces.poll_recv(context))
                    .map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
                let response = Response::builder().header("content-type", "text/event-stream");
                response.body(StreamBody::new(frames))
            }
        });
        let connection = http2::Builder::new(TokioExecutor::new());
        connection.serve_connection(TokioIo::new(stream), service).await
    });
    let client = client(&url, SubscriptionSettings { http: Protocol::Http2, ..sse() });
    let mut stream = subscribe_with(&client, QUERY, "secret").await.unwrap();
    let (uri, headers) = received.recv().await.unwrap();
    assert_eq!(uri, url.as_str());
    assert_eq!((headers.get("host"), &headers["x-token"]), (None, &"secret".parse().unwrap()));
    pieces.send(format!("event: next\ndata: {}\n\n", RESULTS[0]).into()).await.unwrap();
    assert_eq!(next(&mut stream).await, RESULTS[0]);
    drop(stream);
    // The connection ends with the only subscription on it.
    let ended = tokio::time::timeout(DEADLINE, server).await.expect("the end in time");
    assert!(ended.unwrap().is_ok());
}

#[tokio::test]
async fn a_stream_that_is_begun_again_has_the_latest_token_of_its_partition() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), sse());
    let (old, first) =
        join!(subscribe_in(&client, "shared", QUERY, "old"), server.next_event_stream());
    let (new, _second) =
        join!(subscribe_in(&client, "shared", QUERY, "new"), server.next_event_stream());
    drop(first);
    let mut again = server.next_event_stream().await;
    assert!(again.head.contains("\r\nx-token: new\r\n"), "{}", again.head);
    again.send_event(RESULTS[0]).await;
    let mut old = old.unwrap();
    assert_eq!([next(&mut old).await, next(&mut old).await], ["gap", RESULTS[0]]);
    assert!(new.is_ok());
}

#[tokio::test]
async fn a_client_that_joins_with_a_bad_token_does_not_end_the_stream_that_it_shares() {
    let refusals = [("text/plain", ""), ("application/json", r#"{"errors":[{"message":"no"}]}"#)];
    for (content_type, body) in refusals {
        let server = ScriptedServer::start().await;
        let client = client(&server.url(), sse());
        let (stream, first) =
            join!(subscribe_in(&client, "shared", QUERY, "old"), server.next_event_stream());
        client.note_headers(&subscription_in("shared", QUERY, "bad"));
        drop(first);
        let refused = server.next_request().await;
        assert!(refused.head.contains("\r\nx-token: bad\r\n"), "{}", refused.head);
        refused.respond("401 Unauthorized", content_type, body).await;
        let mut again = server.next_event_stream().await;
        assert!(again.head.contains("\r\nx-token: old\r\n"), "{}", again.head);
        again.send_event(RESULTS[0]).await;
        let mut stream = stream.unwrap();
        assert_eq!([next(&mut stream).await, next(&mut stream).await], ["gap", RESULTS[0]]);
    }
}

#[tokio::test]
async fn a_reload_does_not_bring_back_an_older_token() {
    let (server, next_server) = (ScriptedServer::start().await, ScriptedServer::start().await);
    let former = client(&server.url(), sse());
    let subscribed = subscribe_in(&former, "shared", QUERY, "old");
    let (stream, _request) = join!(subscribed, server.next_event_stream());
    former.renew_headers(&subscription_in("shared", QUERY, "new"));
    let latter = client(&next_server.url(), sse()).continuing(&former);
    for (client, server) in [(&former, &server), (&latter, &next_server)] {
        let moved = resubscribe_in(client, "shared", QUERY, "old");
        let (moved, request) = join!(moved, server.next_event_stream());
        assert!(request.head.contains("\r\nx-token: new\r\n"), "{}", request.head);
        assert!(moved.is_ok());
    }
    assert!(stream.is_ok());
}

#[tokio::test]
async fn a_subscription_that_moves_begins_when_its_server_has_started() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), patient(sse()));
    let address = server.stop();
    let mut stream = resubscribe_in(&client, "", QUERY, "").await.unwrap();
    let server = ScriptedServer::start_at(address).await;
    let mut request = server.next_event_stream().await;
    request.send_event(RESULTS[0]).await;
    assert_eq!([next(&mut stream).await, next(&mut stream).await], ["gap", RESULTS[0]]);
}

#[tokio::test]
async fn a_subscription_that_moves_ends_with_the_reason_if_its_server_does_not_start() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), sse());
    server.stop();
    let messages = collect(resubscribe_in(&client, "", QUERY, "").await.unwrap()).await;
    assert!(messages[0].contains("connection failed"), "{messages:?}");
    let stats = client.stats();
    let counts = [&stats.connect_failures, &stats.connections_lost, &stats.failed];
    assert_eq!(counts.map(read), [4, 0, 1]);
}

#[tokio::test]
async fn a_subscription_that_moves_and_is_refused_for_good_is_an_error_at_once() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), sse());
    let serve = async { server.next_request().await.respond("404 Not Found", "", "").await };
    let (refused, ()) = join!(resubscribe_in(&client, "", QUERY, ""), serve);
    let reason = "subgraph/reviews: the subgraph responded with status 404";
    assert_eq!(refused.unwrap_err().to_string(), reason);
}

#[tokio::test]
async fn many_subscriptions_that_move_begin_in_turns() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), sse());
    let stats = client.stats();
    let serve = async {
        let mut waiting = Vec::new();
        for _ in 0..128 {
            waiting.push(server.next_request().await);
        }
        wait_until("all have begun", || read(&stats.operations) == 200).await;
        assert_eq!(read(&stats.connections), 128);
        for request in &mut waiting {
            request.begin_events().await;
        }
        for _ in 0..72 {
            waiting.push(server.next_event_stream().await);
        }
        waiting
    };
    let moved = join_all((0..200).map(|_| resubscribe_in(&client, "", QUERY, "")));
    let (streams, requests) = join!(moved, serve);
    assert!(streams.iter().all(Result::is_ok));
    assert_eq!(requests.len(), 200);
}

#[tokio::test]
async fn many_lost_streams_are_begun_again_in_turns() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), sse());
    let (mut streams, mut lost) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let (stream, request) = join!(subscribe(&client), server.next_event_stream());
        streams.push(stream.unwrap());
        lost.push(request);
    }
    drop(lost);
    let mut waiting = Vec::new();
    for _ in 0..128 {
        waiting.push(server.next_request().await);
    }
    let stats = client.stats();
    wait_until("all are lost", || read(&stats.connections_lost) == 200).await;
    assert_eq!([&stats.connections, &stats.operations, &stats.resumed].map(read), [128, 200, 0]);
    let mut open = Vec::new();
    for mut request in waiting {
        request.begin_events().await;
        open.push(request);
    }
    for _ in 0..72 {
        open.push(server.next_event_stream().await);
    }
    wait_until("all are begun again", || read(&stats.resumed) == 200).await;
    for stream in &mut streams {
        assert_eq!(next(stream).await, "gap");
    }
}
