//! Responses that HTTP/1.1 allows beside simple ones, and the reuse of the connection after them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{Subgraph, SubgraphHeaders, SubgraphRequest};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use upstream::Upstream;

use crate::scripted::{Server, fetch, local, no_retries, ordinary_response, raw};

/// Sends two requests: the first gets this response, the second an ordinary one, on the same
/// connection or on another. Returns the number of the connection of each.
async fn connections_after(first: &str) -> Vec<usize> {
    let server =
        Server::start(vec![vec![raw(first), ordinary_response()], vec![ordinary_response()]]).await;
    let upstream = server.upstream(no_retries());
    local(async {
        assert_eq!(fetch(&upstream).await.unwrap().body, "{}", "{first:?}");
        assert_eq!(fetch(&upstream).await.unwrap().body, "{\"data\":{\"a\":1}}", "{first:?}");
    })
    .await;
    server.connections()
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";

#[tokio::test]
async fn a_connection_is_reused_after_any_response_with_a_certain_end() {
    for rest in [
        "content-length: 2\r\n\r\n{}",
        "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n1;x\r\n}\r\n0\r\ntrailer: x\r\n\r\n",
    ] {
        assert_eq!(connections_after(&format!("{OK}{rest}")).await, [0, 0], "{rest:?}");
        let hinted = format!("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n{OK}{rest}");
        assert_eq!(connections_after(&hinted).await, [0, 0], "{rest:?}");
    }
}

#[tokio::test]
async fn a_connection_is_not_reused_after_a_response_without_a_certain_end() {
    for rest in [
        // The bytes that follow could be taken for the response to another request.
        "content-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
        "content-length: 2\r\n\r\n{}\r\n",
        "connection: close\r\ncontent-length: 2\r\n\r\n{}",
        "transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ] {
        assert_eq!(connections_after(&format!("{OK}{rest}")).await, [0, 1], "{rest:?}");
    }
}

#[tokio::test]
async fn a_response_counts_before_the_whole_request_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let upstream = Upstream::new("products", &url, no_retries(), None).unwrap();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let refusal = format!("{OK}content-length: 2\r\n\r\n{{}}");
        stream.write_all(refusal.as_bytes()).await.unwrap();
        // The connection is held and never read: more is sent than a socket takes.
        stream
    };
    let request = SubgraphRequest {
        body: Bytes::from(vec![b' '; 32 << 20]),
        form: None,
        is_mutation: false,
        headers: SubgraphHeaders::default(),
        deadline: Instant::now() + Duration::from_secs(60),
    };
    let (response, _stream) = local(async { tokio::join!(upstream.fetch(request), server) }).await;
    assert_eq!(response.unwrap().body, "{}");
}
