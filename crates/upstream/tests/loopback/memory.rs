//! The memory budget: responses count while they arrive and until they are dropped, and are refused if they do not fit.

use std::sync::Arc;

use admission::memory::{MemoryAccount, MemoryCharge, MemoryKind};
use execute::FetchError;
use upstream::FailureKind;

use crate::responses::gzipped;
use crate::scripted::{Server, Step, fetch, local, no_retries, ordinary_response, raw, response};

const BODY_BYTES: usize = 1 << 20;

fn body() -> String {
    format!("{{\"data\":\"{}\"}}", "x".repeat(BODY_BYTES - 11))
}

/// A response of announced length, one in pieces, and one that is compressed.
fn large_responses() -> [Step; 3] {
    let piece = format!("{:x}\r\n{}\r\n", BODY_BYTES / 4, "x".repeat(BODY_BYTES / 4)).repeat(4);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
         {piece}0\r\n\r\n"
    );
    [response("200 OK", "application/json", &body()), raw(&chunked), gzipped(body().as_bytes())]
}

#[tokio::test]
async fn a_response_counts_until_its_body_is_dropped() {
    for step in large_responses() {
        let server = Server::start(vec![vec![step]]).await;
        let memory = MemoryAccount::new(64 * BODY_BYTES as u64);
        let upstream = server.upstream(no_retries()).with_memory(&memory);
        let received = local(fetch(&upstream)).await.unwrap();
        assert_eq!(received.body.len(), BODY_BYTES);
        assert_eq!(memory.held(MemoryKind::SubgraphResponses), BODY_BYTES as u64);
        drop(received);
        assert_eq!(memory.held_total(), 0);
    }
}

#[tokio::test]
async fn a_response_that_does_not_fit_ends_its_request_only() {
    for step in large_responses() {
        let server = Server::start(vec![vec![step], vec![ordinary_response()]]).await;
        // A part of the budget is kept for new operations.
        let memory = MemoryAccount::new(BODY_BYTES as u64);
        let upstream = server.upstream(no_retries()).with_memory(&memory);
        local(async {
            assert_eq!(fetch(&upstream).await.unwrap_err(), FetchError::MemoryUsedUp);
            assert_eq!(memory.held_total(), 0);
            assert_eq!(memory.refused(MemoryKind::SubgraphResponses), 1);
            assert_eq!(upstream.stats().failures(FailureKind::MemoryUsedUp), 1);
            // Small responses are not counted.
            let _others = MemoryCharge::new(&memory, MemoryKind::Responses, BODY_BYTES as u64);
            assert!(fetch(&upstream).await.is_ok());
        })
        .await;
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_is_not_counted_any_more() {
    let step = raw(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n{",
    );
    let server = Server::start(vec![vec![step]]).await;
    let memory = MemoryAccount::new(64 * BODY_BYTES as u64);
    let upstream = Arc::new(server.upstream(no_retries()).with_memory(&memory));
    let result = local(fetch(&upstream)).await;
    assert!(matches!(result, Err(FetchError::Closed(_))), "{result:?}");
    assert_eq!(memory.held_total(), 0);
}
