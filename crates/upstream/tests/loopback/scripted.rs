//! Servers that follow a script on each connection, step by step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{FetchError, Subgraph, SubgraphHeaders, SubgraphRequest, SubgraphResponse};
use http::{HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use upstream::{RetrySettings, Upstream, UpstreamSettings};

/// A step of a server on a connection. After the last step it closes the connection.
#[derive(Clone)]
pub(crate) enum Step {
    /// Reads a request and writes this.
    Respond(Bytes),
    /// Reads a request and writes this after a notification.
    RespondWhen(Arc<Notify>, Bytes),
    /// Reads a request and writes this after a time, as a slow subgraph does.
    RespondAfter(Duration, Bytes),
    /// Reads a request; closes the connection if the request contains this text, and writes the
    /// bytes otherwise.
    CloseOn(&'static str, Bytes),
    /// Reads a request and closes the connection.
    Close,
    /// Reads a request and does nothing more.
    Hang,
}

pub(crate) fn ordinary_response() -> Step {
    Step::Respond(ordinary_bytes())
}

/// The bytes of an ordinary response.
pub(crate) fn ordinary_bytes() -> Bytes {
    let (content_type, body) = ("application/graphql-response+json", "{\"data\":{\"a\":1}}");
    response_text("200 OK", content_type, body).into()
}

pub(crate) fn raw(text: &str) -> Step {
    Step::Respond(Bytes::copy_from_slice(text.as_bytes()))
}

pub(crate) fn response(status: &str, content_type: &str, body: &str) -> Step {
    raw(&response_text(status, content_type, body))
}

fn response_text(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) struct Server {
    pub(crate) port: u16,
    /// Each request as text, with the number of its connection.
    pub(crate) requests: Arc<Mutex<Vec<(usize, String)>>>,
}

impl Server {
    /// One list of steps for each connection, in the order they are accepted.
    pub(crate) async fn start(connections: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            for (number, steps) in connections.into_iter().enumerate() {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(number, stream, steps, Arc::clone(&log)));
            }
        });
        Self { port, requests }
    }

    pub(crate) fn upstream(&self, settings: UpstreamSettings) -> Upstream {
        let url = format!("http://127.0.0.1:{}/graphql", self.port);
        Upstream::new("products", &url, settings, None).unwrap()
    }

    /// The connection of each request.
    pub(crate) fn connections(&self) -> Vec<usize> {
        self.requests.lock().unwrap().iter().map(|it| it.0).collect()
    }
}

async fn serve(
    number: usize,
    mut stream: TcpStream,
    steps: Vec<Step>,
    log: Arc<Mutex<Vec<(usize, String)>>>,
) {
    for step in steps {
        let Some(request) = read_request(&mut stream).await else { return };
        log.lock().unwrap().push((number, request.clone()));
        let response = match step {
            Step::CloseOn(text, _) if request.contains(text) => return,
            Step::CloseOn(_, response) => response,
            Step::Respond(response) => response,
            Step::RespondWhen(told, response) => {
                told.notified().await;
                response
            }
            Step::RespondAfter(time, response) => {
                tokio::time::sleep(time).await;
                response
            }
            Step::Close => return,
            Step::Hang => std::future::pending().await,
        };
        let _ = stream.write_all(&response).await;
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |it| it.parse().unwrap()) {
                return Some(text);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// Longer than any timeout, so that the timeout of the client counts.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

fn request(
    is_mutation: bool,
    headers: &[(HeaderName, HeaderValue)],
    time: Duration,
) -> SubgraphRequest<'_> {
    SubgraphRequest {
        body: Bytes::from_static(b"{\"query\":\"{a}\"}"),
        form: None,
        is_mutation,
        headers: SubgraphHeaders { forwarded: headers, ..SubgraphHeaders::default() },
        deadline: Instant::now() + time,
    }
}

pub(crate) async fn fetch_with(
    upstream: &Upstream,
    is_mutation: bool,
    headers: &[(HeaderName, HeaderValue)],
) -> Result<SubgraphResponse, FetchError> {
    upstream.fetch(request(is_mutation, headers, MINUTE)).await
}

/// Sends a query with this much time.
pub(crate) async fn fetch_within(
    upstream: &Upstream,
    time: Duration,
) -> Result<SubgraphResponse, FetchError> {
    upstream.fetch(request(false, &[], time)).await
}

pub(crate) async fn fetch(upstream: &Upstream) -> Result<SubgraphResponse, FetchError> {
    fetch_with(upstream, false, &[]).await
}

/// Runs a test on the same kind of runtime as a worker.
pub(crate) async fn local<T>(test: impl Future<Output = T>) -> T {
    LocalSet::new().run_until(test).await
}

/// The defaults, without the probation that would keep the first connection from being used at
/// once.
pub(crate) fn defaults() -> UpstreamSettings {
    UpstreamSettings { probation: Duration::ZERO, ..UpstreamSettings::default() }
}

/// Settings with short pauses between retries.
pub(crate) fn settings() -> UpstreamSettings {
    let moment = Duration::from_millis(1);
    let retry = RetrySettings { initial: moment, max: moment, ..RetrySettings::default() };
    UpstreamSettings { retry, ..defaults() }
}

/// Settings without retries.
pub(crate) fn no_retries() -> UpstreamSettings {
    let retry = RetrySettings { retries: 0, ..RetrySettings::default() };
    UpstreamSettings { retry, ..defaults() }
}

/// The value of a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Waits until `holds` is true because of other threads or tasks; panics after some seconds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
