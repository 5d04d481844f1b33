//! Checks of responses: sizes, times, types, codings.

use std::time::Duration;

use execute::{FetchError, SubgraphResponse};
use http::StatusCode;
use upstream::{FailureKind, UpstreamSettings};

use crate::scripted::{
    Server, Step, fetch, fetch_within, local, no_retries, ordinary_response, raw, read, response,
};

/// Sends a request to a server that does one step.
async fn ask(step: Step) -> Result<SubgraphResponse, FetchError> {
    ask_with(step, no_retries()).await
}

async fn ask_with(step: Step, settings: UpstreamSettings) -> Result<SubgraphResponse, FetchError> {
    let server = Server::start(vec![vec![step]]).await;
    let upstream = server.upstream(settings);
    local(fetch(&upstream)).await
}

#[tokio::test]
async fn a_server_that_does_not_respond_in_time_is_given_up() {
    let timeout = Duration::from_millis(40);
    let settings = UpstreamSettings { timeout, ..no_retries() };
    let server = Server::start(vec![vec![Step::Hang]]).await;
    let upstream = server.upstream(settings);
    assert_eq!(local(fetch(&upstream)).await.unwrap_err(), FetchError::Timeout(timeout));
    assert_eq!(upstream.stats().failures(FailureKind::Timeout), 1);
}

#[tokio::test]
async fn a_body_that_does_not_end_in_time_is_given_up() {
    let server = Server::start(vec![vec![
        raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"),
        Step::Hang,
    ]])
    .await;
    let timeout = Duration::from_millis(40);
    let upstream = server.upstream(UpstreamSettings { timeout, ..no_retries() });
    assert_eq!(local(fetch(&upstream)).await.unwrap_err(), FetchError::Timeout(timeout));
    assert_eq!(read(&upstream.stats().in_flight), 0);
}

#[tokio::test]
async fn the_deadline_of_the_request_counts_too() {
    let server = Server::start(vec![vec![Step::Hang]]).await;
    let upstream = server.upstream(no_retries());
    let result = local(fetch_within(&upstream, Duration::from_millis(30))).await;
    assert!(matches!(result, Err(FetchError::Timeout(_))), "{result:?}");
    let stats = upstream.stats();
    let failures = [FailureKind::Deadline, FailureKind::Timeout].map(|it| stats.failures(it));
    assert_eq!(failures, [1, 0], "it is no failure of the subgraph");
}

#[tokio::test]
async fn a_response_over_the_limit_is_refused_by_its_announced_length() {
    let settings = UpstreamSettings { max_response_size: 15, ..no_retries() };
    let result = ask_with(ordinary_response(), settings).await;
    assert_eq!(result.unwrap_err(), FetchError::TooLarge { limit: 15 });
}

#[tokio::test]
async fn a_response_over_the_limit_is_refused_while_it_arrives() {
    let chunk = "a".repeat(1000);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{}",
        format!("3e8\r\n{chunk}\r\n").repeat(20)
    );
    let settings = UpstreamSettings { max_response_size: 10_000, ..no_retries() };
    let server = Server::start(vec![vec![raw(&chunked), Step::Hang]]).await;
    let upstream = server.upstream(settings);
    let result = local(fetch(&upstream)).await;
    assert_eq!(result.unwrap_err(), FetchError::TooLarge { limit: 10_000 });
}

#[tokio::test]
async fn a_response_in_many_pieces_is_combined() {
    let pieces: String = (0..50).map(|index| format!("5\r\n[{index:03}]\r\n")).collect();
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
         {pieces}0\r\n\r\n"
    );
    let response = ask(raw(&chunked)).await.unwrap();
    let expected: String = (0..50).map(|index| format!("[{index:03}]")).collect();
    assert_eq!(response.body, expected.as_bytes());
}

#[tokio::test]
async fn html_is_no_graphql_response_and_the_connection_stays_open() {
    let html = response("502 Bad Gateway", "text/html; charset=utf-8", "<h1>Bad Gateway</h1>");
    let server = Server::start(vec![vec![html, ordinary_response()]]).await;
    let upstream = server.upstream(no_retries());
    local(async {
        assert_eq!(
            fetch(&upstream).await.unwrap_err(),
            FetchError::Status {
                status: StatusCode::BAD_GATEWAY,
                content_type: Some("text/html".into()),
                body: None,
            }
        );
        fetch(&upstream).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 0]);
}

#[tokio::test]
async fn a_graphql_response_counts_with_any_status_and_other_json_with_success_only() {
    let body = "{\"errors\":[{\"message\":\"down\"}]}";
    for (status, content_type, counts) in [
        ("500 Internal Server Error", "application/graphql-response+json", true),
        ("400 Bad Request", "application/graphql-response+json; charset=utf-8", true),
        ("200 OK", "application/json", true),
        ("500 Internal Server Error", "application/json", false),
        ("401 Unauthorized", "application/json", false),
    ] {
        let response = ask(response(status, content_type, body)).await;
        match response {
            Ok(response) => assert_eq!((counts, &*response.body), (true, body.as_bytes())),
            Err(FetchError::Status { .. }) => assert!(!counts, "{status} {content_type}"),
            Err(other) => panic!("{status} {content_type}: {other}"),
        }
    }
}

#[tokio::test]
async fn a_failed_response_keeps_a_json_body_and_the_connection_stays_open() {
    let body = "{\"errors\":[{\"message\":\"token expired\"}]}";
    for status in ["400 Bad Request", "401 Unauthorized", "500 Internal Server Error"] {
        let failed = response(status, "application/json; charset=utf-8", body);
        let server = Server::start(vec![vec![failed, ordinary_response()]]).await;
        let upstream = server.upstream(no_retries());
        local(async {
            match fetch(&upstream).await.unwrap_err() {
                FetchError::Status { body: kept, .. } => {
                    assert_eq!(kept.as_deref(), Some(body.as_bytes()), "{status}");
                }
                other => panic!("{status}: {other}"),
            }
            fetch(&upstream).await.unwrap();
        })
        .await;
        assert_eq!(server.connections(), [0, 0], "{status}");
    }
}

#[tokio::test]
async fn a_failed_response_whose_json_body_is_too_long_is_a_status_alone() {
    let body = format!("{{\"errors\":[{{\"message\":\"{}\"}}]}}", "x".repeat(70_000));
    let failed = ask(response("500 Internal Server Error", "application/json", &body)).await;
    assert!(matches!(failed.unwrap_err(), FetchError::Status { body: None, .. }));
}

#[tokio::test]
async fn a_truncated_body_is_refused() {
    let truncated =
        raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"da");
    assert!(matches!(ask(truncated).await.unwrap_err(), FetchError::Closed(_)));
}

#[tokio::test]
async fn garbage_instead_of_a_status_line_is_refused() {
    for garbage in ["SSH-2.0-OpenSSH_9.6\r\n", "HTTP/9.9 hello\r\n\r\n", "\u{0}\u{1}\u{2}\r\n\r\n"]
    {
        let error = ask(raw(garbage)).await.unwrap_err();
        assert!(matches!(error, FetchError::Protocol(_)), "{garbage:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "a".repeat(4 << 20));
    let error = ask(raw(&endless)).await.unwrap_err();
    assert!(matches!(error, FetchError::Protocol(_) | FetchError::Closed(_)), "{error:?}");
}

/// Long enough that compressing it pays.
const TEXT: [u8; 2000] = [b' '; 2000];

/// A response of `text`, compressed.
pub(crate) fn gzipped(text: &[u8]) -> Step {
    let body = coding::compress(coding::Coding::Gzip, text).unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    Step::Respond([head.as_bytes(), &body].concat().into())
}

#[tokio::test]
async fn compressed_responses_are_read_and_requested_only_if_configured() {
    let server = Server::start(vec![vec![gzipped(&TEXT), gzipped(&TEXT)]]).await;
    let upstream = server.upstream(UpstreamSettings { compression: true, ..no_retries() });
    local(async {
        assert_eq!(fetch(&upstream).await.unwrap().body, TEXT[..]);
        assert_eq!(fetch(&upstream).await.unwrap().body, TEXT[..]);
    })
    .await;
    assert_eq!(server.connections(), [0, 0]);
    let asked = server.requests.lock().unwrap()[0].1.clone();
    assert!(asked.contains("\r\naccept-encoding: zstd, br, gzip, deflate\r\n"), "{asked}");
    assert_eq!(ask(gzipped(&TEXT)).await.unwrap().body, TEXT[..], "not asked for, but read");
}

#[tokio::test]
async fn a_small_response_that_expands_over_the_limit_is_refused() {
    let limit = 1 << 16;
    let settings = UpstreamSettings { max_response_size: limit, ..no_retries() };
    let bomb = gzipped(&vec![b' '; 4 << 20]);
    let refused = ask_with(bomb, settings).await.unwrap_err();
    assert_eq!(refused, FetchError::TooLarge { limit });
}

#[tokio::test]
async fn an_unknown_coding_is_named_in_the_error() {
    let coded = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: lzma\r\n\
                 content-length: 2\r\n\r\n{}";
    let error = ask(raw(coded)).await.unwrap_err();
    let expected = "the response has a content coding other than zstd, br, gzip, deflate";
    assert_eq!(error.to_string(), expected);
}
