//! The choice of connections, and the bytes that are sent over them.

use std::sync::Arc;
use std::time::Duration;

use execute::FetchError;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use upstream::{FailureKind, Upstream, UpstreamSettings};

use crate::scripted::{
    Server, Step, defaults, fetch, fetch_with, local, no_retries, ordinary_bytes,
    ordinary_response, raw, read, settings, until,
};

#[tokio::test]
async fn a_connection_is_used_again() {
    let server =
        Server::start(vec![vec![ordinary_response(), ordinary_response(), ordinary_response()]])
            .await;
    let upstream = server.upstream(defaults());
    local(async {
        for _ in 0..3 {
            let response = fetch(&upstream).await.unwrap();
            assert_eq!(
                (response.status, &*response.body),
                (StatusCode::OK, &b"{\"data\":{\"a\":1}}"[..])
            );
        }
    })
    .await;
    assert_eq!(server.connections(), [0, 0, 0]);
    assert_eq!(read(&upstream.stats().connections_opened), 1);
    assert_eq!(read(&upstream.stats().requests), 3);
    assert_eq!(read(&upstream.stats().in_flight), 0);
}

#[tokio::test]
async fn the_request_has_its_content_type_and_forwarded_headers_but_none_of_a_connection() {
    let server = Server::start(vec![vec![ordinary_response()]]).await;
    let upstream = server.upstream(defaults());
    let headers = [
        ("authorization", "Bearer x"),
        ("x-many", "1"),
        ("x-many", "2"),
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("content-length", "3"),
        ("content-type", "text/plain"),
        ("host", "evil"),
        ("accept-encoding", "gzip"),
        ("upgrade", "websocket"),
    ]
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    local(fetch_with(&upstream, false, &headers)).await.unwrap();
    let requests = server.requests.lock().unwrap();
    let expected = format!(
        "POST /graphql HTTP/1.1\r\nhost: 127.0.0.1:{}\r\n\
         accept: application/graphql-response+json, application/json;q=0.9\r\n\
         content-type: application/json\r\nauthorization: Bearer x\r\nx-many: 1\r\nx-many: 2\r\n\
         content-length: 15\r\n\r\n{{\"query\":\"{{a}}\"}}",
        server.port
    );
    assert_eq!(requests[0].1, expected);
}

#[tokio::test]
async fn a_server_that_closes_after_each_response_gets_a_connection_for_each_request() {
    let once = raw("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\
                    content-length: 2\r\n\r\n{}");
    let server = Server::start(vec![vec![once.clone()], vec![once]]).await;
    let upstream = server.upstream(defaults());
    local(async {
        fetch(&upstream).await.unwrap();
        fetch_with(&upstream, true, &[]).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 1]);
}

#[tokio::test]
async fn a_connection_that_was_idle_too_long_is_not_used() {
    let server = Server::start(vec![
        vec![ordinary_response(), ordinary_response()],
        vec![ordinary_response()],
    ])
    .await;
    let upstream = server.upstream(UpstreamSettings { idle_timeout: Duration::ZERO, ..defaults() });
    local(async {
        fetch(&upstream).await.unwrap();
        fetch(&upstream).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 1]);
}

#[tokio::test]
async fn more_requests_than_connections_wait_and_more_than_that_are_refused() {
    let go = Arc::new(Notify::new());
    let server = Server::start(vec![vec![
        Step::RespondWhen(Arc::clone(&go), ordinary_bytes()),
        ordinary_response(),
    ]])
    .await;
    let upstream =
        server.upstream(UpstreamSettings { max_connections: 1, max_waiting: 1, ..defaults() });
    let (first, second, third) = local(async {
        tokio::join!(fetch(&upstream), fetch(&upstream), async {
            let result = fetch(&upstream).await;
            go.notify_one();
            result
        })
    })
    .await;
    assert_eq!(third.unwrap_err(), FetchError::Overloaded);
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    assert_eq!(server.connections(), [0, 0]);
    assert_eq!(upstream.stats().failures(FailureKind::QueueFull), 1);
    assert_eq!(read(&upstream.stats().waiting), 0);
}

#[tokio::test]
async fn a_closed_port_is_named_as_such_without_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}/");
    let upstream = Upstream::new("products", &url, no_retries(), None).unwrap();
    let error = local(fetch(&upstream)).await.unwrap_err();
    assert_eq!(error.to_string(), "connection failed: connection refused");
    assert_eq!(upstream.stats().failures(FailureKind::Connect), 1);
}

#[test]
fn https_needs_tls_settings() {
    let result = Upstream::new("a", "https://a.example/", defaults(), None);
    assert_eq!(result.unwrap_err(), upstream::TargetError::NoTls);
}

#[tokio::test]
async fn idle_connections_end_with_their_timeout_and_are_counted() {
    let server = Server::start(vec![vec![ordinary_response(), ordinary_response()]]).await;
    let upstream = server.upstream(defaults());
    local(async {
        fetch(&upstream).await.unwrap();
        let stats = upstream.stats();
        let gauges = || [read(&stats.connections), read(&stats.connections_idle)];
        assert_eq!(gauges(), [1, 1]);
        assert!(read(&stats.bytes_sent) > 100 && read(&stats.bytes_received) > 50);
        fetch(&upstream).await.unwrap();
        // After the end of its script the server closes the connection.
        until("the connection is closed", || read(&stats.connections) == 0).await;
    })
    .await;
}

/// One worker of a router: a thread with a runtime of its own.
fn worker<T: Send + 'static>(
    work: impl AsyncFnOnce() -> T + Send + 'static,
) -> tokio::sync::oneshot::Receiver<T> {
    let (done, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = done.send(runtime.block_on(local(work())));
    });
    result
}

#[tokio::test]
async fn a_connection_that_is_idle_on_one_worker_makes_room_for_another() {
    let server = Server::start(vec![
        vec![ordinary_response(), ordinary_response()],
        vec![ordinary_response()],
    ])
    .await;
    let upstream = Arc::new(server.upstream(UpstreamSettings { max_connections: 1, ..settings() }));
    let (first, second) = (Arc::clone(&upstream), Arc::clone(&upstream));
    let (idle, told) = tokio::sync::oneshot::channel();
    let end = Arc::new(Notify::new());
    let ended = Arc::clone(&end);
    let one = worker(async move || {
        fetch(&first).await.unwrap();
        let _ = idle.send(());
        ended.notified().await;
    });
    told.await.unwrap();
    assert_eq!(read(&upstream.stats().connections_idle), 1);
    let two = worker(async move || fetch(&second).await.is_ok());
    assert!(two.await.unwrap());
    end.notify_one();
    one.await.unwrap();
    assert_eq!(server.connections(), [0, 1]);
    assert_eq!(read(&upstream.stats().queued), 1);
}

#[tokio::test]
async fn a_reload_keeps_connections_unless_the_subgraph_has_changed() {
    let server = Server::start(vec![
        vec![ordinary_response(), ordinary_response()],
        vec![ordinary_response()],
    ])
    .await;
    let before = server.upstream(settings());
    local(async {
        fetch(&before).await.unwrap();
        let same = server.upstream(settings()).continuing(&before);
        fetch(&same).await.unwrap();
        let other = UpstreamSettings { max_connections: 7, ..settings() };
        let other = server.upstream(other).continuing(&same);
        fetch(&other).await.unwrap();
        assert_eq!(read(&other.stats().requests), 3);
    })
    .await;
    assert_eq!(server.connections(), [0, 0, 1]);
}
