//! HTTP/2, by prior knowledge and by agreement.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use upstream::{Protocol, Upstream, UpstreamSettings};

use crate::scripted::{fetch, fetch_with, local, no_retries, read};

/// A server that responds to each request with a description of it, once `together` requests are
/// there.
struct Server {
    port: u16,
    connections: Arc<AtomicU64>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(streams_max: u32, together: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            seen: Arc::default(),
        };
        let (connections, seen) = (Arc::clone(&server.connections), Arc::clone(&server.seen));
        let barrier = Arc::new(Barrier::new(together));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, streams_max, Arc::clone(&seen), Arc::clone(&barrier)));
            }
        });
        server
    }

    fn upstream(&self, settings: UpstreamSettings) -> Upstream {
        let url = format!("http://127.0.0.1:{}/graphql", self.port);
        let settings = UpstreamSettings { protocol: Protocol::Http2, ..settings };
        Upstream::new("products", &url, settings, None).unwrap()
    }
}

/// Responds to each request on one connection.
pub(crate) async fn serve_once(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    serve(stream, 100, Arc::default(), Arc::new(Barrier::new(1))).await;
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    streams_max: u32,
    seen: Arc<Mutex<Vec<String>>>,
    barrier: Arc<Barrier>,
) {
    let service = service_fn(|request| response(request, Arc::clone(&seen), Arc::clone(&barrier)));
    let _ = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(streams_max)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn response(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<String>>>,
    barrier: Arc<Barrier>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    assert_eq!(head.version, Version::HTTP_2);
    let mut text = format!("{} {}\n", head.method, head.uri);
    for (name, value) in &head.headers {
        text += &format!("{name}: {}\n", value.to_str().unwrap());
    }
    text += std::str::from_utf8(&body.collect().await.unwrap().to_bytes()).unwrap();
    seen.lock().unwrap().push(text);
    barrier.wait().await;
    let mut response = Response::new(Full::from("{\"data\":{\"a\":1}}"));
    let json = http::HeaderValue::from_static("application/graphql-response+json");
    response.headers_mut().insert("content-type", json);
    Ok(response)
}

#[tokio::test]
async fn a_request_has_its_target_and_no_headers_of_a_connection() {
    let server = Server::start(100, 1).await;
    let upstream = server.upstream(no_retries());
    let headers = [("authorization", "Bearer x"), ("connection", "close"), ("te", "trailers")]
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let response = local(fetch_with(&upstream, false, &headers)).await.unwrap();
    assert_eq!(response.body, "{\"data\":{\"a\":1}}");
    let expected = format!(
        "POST http://127.0.0.1:{}/graphql\naccept: application/graphql-response+json, \
         application/json;q=0.9\ncontent-type: application/json\nauthorization: Bearer x\n\
         content-length: 15\n{{\"query\":\"{{a}}\"}}",
        server.port
    );
    assert_eq!(server.seen.lock().unwrap()[0], expected);
}

#[tokio::test]
async fn requests_of_a_worker_share_one_connection() {
    let server = Server::start(100, 50).await;
    let upstream = server.upstream(UpstreamSettings { max_connections: 1, ..no_retries() });
    local(async {
        // The server responds only when all requests are there.
        let all = (0..50).map(|_| fetch(&upstream));
        for response in futures_util::future::join_all(all).await {
            response.unwrap();
        }
        assert_eq!(read(&upstream.stats().connections), 1);
    })
    .await;
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    assert_eq!(read(&upstream.stats().queued), 0);
}

#[tokio::test]
async fn a_server_that_allows_few_requests_on_a_connection_gets_more_connections() {
    let server = Server::start(2, 1).await;
    let upstream = server.upstream(UpstreamSettings { max_connections: 3, ..no_retries() });
    local(async {
        fetch(&upstream).await.unwrap();
        for _ in 0..10 {
            let all = (0..6).map(|_| fetch(&upstream));
            for response in futures_util::future::join_all(all).await {
                response.unwrap();
            }
        }
    })
    .await;
    let connections = server.connections.load(Ordering::Relaxed);
    assert!((2..=3).contains(&connections), "{connections}");
}

#[tokio::test]
async fn requests_that_wait_for_a_connection_that_fails_fail_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let settings = UpstreamSettings { protocol: Protocol::Http2, ..no_retries() };
    let upstream = Upstream::new("products", &url, settings, None).unwrap();
    local(async {
        let all = (0..10).map(|_| fetch(&upstream));
        for response in futures_util::future::join_all(all).await {
            let error = response.unwrap_err().to_string();
            assert_eq!(error, "connection failed: connection refused");
        }
    })
    .await;
    assert_eq!(read(&upstream.stats().connections_opened), 1);
}
