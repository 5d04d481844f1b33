//! Requests that are sent again, and requests that are not.

use std::time::Duration;

use execute::FetchError;
use http::{HeaderName, HeaderValue};
use tokio::net::TcpListener;
use upstream::{
    FailureKind, RetrySettings, TimeoutFormat, TimeoutHeader, Upstream, UpstreamSettings,
};

use crate::scripted::{
    MINUTE, Server, Step, defaults, fetch, fetch_with, fetch_within, local, no_retries,
    ordinary_bytes, ordinary_response, raw, read, response, settings,
};

#[tokio::test]
async fn a_query_is_repeated_when_a_reused_connection_breaks_before_its_response() {
    let server =
        Server::start(vec![vec![ordinary_response(), Step::Close], vec![ordinary_response()]])
            .await;
    let upstream = server.upstream(no_retries());
    local(async {
        fetch(&upstream).await.unwrap();
        fetch(&upstream).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 0, 1]);
    assert_eq!(read(&upstream.stats().reconnects), 1);
}

#[tokio::test]
async fn a_mutation_is_not_repeated() {
    let server =
        Server::start(vec![vec![ordinary_response(), Step::Close], vec![ordinary_response()]])
            .await;
    let upstream = server.upstream(no_retries());
    let result = local(async {
        fetch(&upstream).await.unwrap();
        fetch_with(&upstream, true, &[]).await
    })
    .await;
    assert!(matches!(result, Err(FetchError::Closed(_))), "{result:?}");
    assert_eq!(server.connections(), [0, 0]);
}

#[tokio::test]
async fn a_query_is_not_repeated_once_its_response_has_begun() {
    let server = Server::start(vec![
        vec![ordinary_response(), raw("HTTP/1.1 200 OK\r\ncont")],
        vec![ordinary_response()],
    ])
    .await;
    let upstream = server.upstream(no_retries());
    let result = local(async {
        fetch(&upstream).await.unwrap();
        fetch(&upstream).await
    })
    .await;
    assert!(matches!(result, Err(FetchError::Closed(_))), "{result:?}");
    assert_eq!(server.connections(), [0, 0]);
}

fn unavailable() -> Step {
    response("503 Service Unavailable", "text/plain", "restarting")
}

#[tokio::test]
async fn a_query_is_sent_again_after_a_failure_that_passes() {
    let connections = vec![
        vec![Step::Close],
        vec![unavailable(), unavailable(), ordinary_response()],
        vec![ordinary_response()],
    ];
    let server = Server::start(connections).await;
    let upstream = server.upstream(settings());
    local(async {
        let failed = fetch(&upstream).await.unwrap_err();
        assert_eq!(
            failed.to_string(),
            "HTTP status 503 Service Unavailable, content type text/plain"
        );
        fetch(&upstream).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 1, 1, 1]);
    let stats = upstream.stats();
    assert_eq!([read(&stats.requests), read(&stats.retries)], [2, 2]);
    assert_eq!(stats.failures(FailureKind::Status), 1);
}

#[tokio::test]
async fn a_mutation_is_sent_again_only_if_no_byte_of_it_was_sent() {
    let server =
        Server::start(vec![vec![unavailable()], vec![Step::Close], vec![ordinary_response()]])
            .await;
    let upstream = server.upstream(settings());
    local(async {
        fetch_with(&upstream, true, &[]).await.unwrap_err();
        fetch_with(&upstream, true, &[]).await.unwrap_err();
        fetch_with(&upstream, true, &[]).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 1, 2]);
    // No server listens, so nothing can have been sent.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let upstream = Upstream::new("a", &url, settings(), None).unwrap();
    local(fetch_with(&upstream, true, &[])).await.unwrap_err();
    assert_eq!(read(&upstream.stats().retries), 2);
}

#[tokio::test]
async fn a_server_that_asks_for_a_pause_receives_no_retry() {
    let pause =
        raw("HTTP/1.1 503 Service Unavailable\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n");
    let server = Server::start(vec![vec![pause, ordinary_response()]]).await;
    let upstream = server.upstream(settings());
    local(fetch(&upstream)).await.unwrap_err();
    assert_eq!(server.connections(), [0]);
}

#[tokio::test]
async fn no_retry_begins_after_the_timeout() {
    let server = Server::start(vec![vec![unavailable(), ordinary_response()]]).await;
    let hour = Duration::from_secs(3600);
    let retry = RetrySettings { initial: hour, max: hour, ..RetrySettings::default() };
    let upstream = server.upstream(UpstreamSettings { retry, ..defaults() });
    let failed = local(fetch(&upstream)).await.unwrap_err();
    assert!(matches!(failed, FetchError::Status { .. }), "{failed:?}");
}

#[tokio::test]
async fn a_retry_that_cannot_end_in_time_is_not_sent() {
    // The only response that is known takes three seconds.
    let least = Duration::from_secs(3);
    let steps = vec![
        Step::RespondAfter(least, ordinary_bytes()),
        unavailable(),
        unavailable(),
        ordinary_response(),
    ];
    let server = Server::start(vec![steps]).await;
    let upstream = server.upstream(settings());
    local(async {
        fetch_within(&upstream, MINUTE).await.unwrap();
        let failed = fetch_within(&upstream, least - Duration::from_millis(500)).await;
        assert!(matches!(failed, Err(FetchError::Status { .. })), "{failed:?}");
        let stats = upstream.stats();
        assert_eq!([read(&stats.retries), read(&stats.retries_too_late)], [0, 1]);
        // The retry is sent if there is more time.
        fetch_within(&upstream, MINUTE).await.unwrap();
        assert_eq!([read(&stats.retries), read(&stats.retries_too_late)], [1, 1]);
    })
    .await;
}

#[tokio::test]
async fn each_attempt_contains_the_time_that_is_left() {
    let server = Server::start(vec![vec![unavailable(), ordinary_response()]]).await;
    let pause = Duration::from_millis(100);
    let retry = RetrySettings { initial: pause, max: pause, ..RetrySettings::default() };
    let header = TimeoutHeader {
        name: HeaderName::from_static("x-time-left"),
        format: TimeoutFormat::Milliseconds,
    };
    let settings = UpstreamSettings { retry, deadline_header: Some(header), ..defaults() };
    let upstream = server.upstream(settings);
    let forwarded =
        [(HeaderName::from_static("x-time-left"), HeaderValue::from_static("of the client"))];
    local(fetch_with(&upstream, false, &forwarded)).await.unwrap();
    let sent: Vec<u64> = server
        .requests
        .lock()
        .unwrap()
        .iter()
        .map(|(_, text)| {
            let mut values = text.lines().filter_map(|it| it.strip_prefix("x-time-left: "));
            let value = values.next().unwrap().parse().unwrap();
            assert_eq!(values.next(), None, "{text}");
            value
        })
        .collect();
    // The timeout of the subgraph is shorter than the time of the request. A pause is half of its length at least.
    let timeout = UpstreamSettings::default().timeout.as_millis() as u64;
    assert!(sent.len() == 2 && sent[0] <= timeout && sent[1] + 50 <= sent[0], "{sent:?}");
}

#[tokio::test]
async fn an_outage_is_not_multiplied_by_retries() {
    let outage = (0..200).map(|_| unavailable()).collect();
    let server = Server::start(vec![outage]).await;
    let upstream = server.upstream(UpstreamSettings { breaker: None, ..settings() });
    local(async {
        for _ in 0..60 {
            fetch(&upstream).await.unwrap_err();
        }
    })
    .await;
    let stats = upstream.stats();
    let (retries, refused) = (read(&stats.retries), read(&stats.retries_refused));
    // A reserve of ten, which grows by one a second, and a fifth of 60.
    assert!((22..40).contains(&retries), "{retries}");
    assert!(refused >= 20, "{refused}");
    assert_eq!(server.connections().len() as u64, 60 + retries);
}
