//! The subgraph client against hand-written servers on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{FetchError, Subgraph, SubgraphAnswer, SubgraphRequest};
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use upstream::{FailureKind, Upstream, UpstreamSettings};

/// What a server does on a connection, step by step. After the last step it hangs up.
#[derive(Clone)]
enum Step {
    /// Reads a request and writes this.
    Answer(String),
    /// Reads a request and writes this once told to.
    AnswerWhen(Arc<Notify>, String),
    /// Reads a request and hangs up.
    HangUp,
    /// Reads a request and does nothing more.
    Hang,
}

fn answer() -> Step {
    response("200 OK", "application/graphql-response+json", "{\"data\":{\"a\":1}}")
}

fn raw(text: &str) -> Step {
    Step::Answer(text.into())
}

fn response(status: &str, content_type: &str, body: &str) -> Step {
    Step::Answer(format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

struct Server {
    port: u16,
    /// Each request as text, with the number of its connection.
    requests: Arc<Mutex<Vec<(usize, String)>>>,
}

impl Server {
    /// One list of steps for each connection, in the order they are accepted.
    async fn start(connections: Vec<Vec<Step>>) -> Self {
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

    fn upstream(&self, settings: UpstreamSettings) -> Upstream {
        let url = format!("http://127.0.0.1:{}/graphql", self.port);
        Upstream::new("products", &url, settings, None).unwrap()
    }

    /// The connection of each request.
    fn connections(&self) -> Vec<usize> {
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
        log.lock().unwrap().push((number, request));
        let text = match step {
            Step::Answer(text) => text,
            Step::AnswerWhen(told, text) => {
                told.notified().await;
                text
            }
            Step::HangUp => return,
            Step::Hang => std::future::pending().await,
        };
        let _ = stream.write_all(text.as_bytes()).await;
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

async fn fetch_with(
    upstream: &Upstream,
    is_mutation: bool,
    headers: &[(HeaderName, HeaderValue)],
) -> Result<SubgraphAnswer, FetchError> {
    let request = SubgraphRequest {
        body: Bytes::from_static(b"{\"query\":\"{a}\"}"),
        is_mutation,
        headers,
        deadline: Instant::now() + Duration::from_secs(20),
    };
    upstream.fetch(request).await
}

async fn fetch(upstream: &Upstream) -> Result<SubgraphAnswer, FetchError> {
    fetch_with(upstream, false, &[]).await
}

/// Runs on a core's kind of runtime.
async fn local<T>(test: impl Future<Output = T>) -> T {
    LocalSet::new().run_until(test).await
}

/// Asks a server that does this one thing.
async fn ask(step: Step) -> Result<SubgraphAnswer, FetchError> {
    ask_with(step, UpstreamSettings::default()).await
}

async fn ask_with(step: Step, settings: UpstreamSettings) -> Result<SubgraphAnswer, FetchError> {
    let server = Server::start(vec![vec![step]]).await;
    let upstream = server.upstream(settings);
    local(fetch(&upstream)).await
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let server = Server::start(vec![vec![answer(), answer(), answer()]]).await;
    let upstream = server.upstream(UpstreamSettings::default());
    local(async {
        for _ in 0..3 {
            let answer = fetch(&upstream).await.unwrap();
            assert_eq!(
                (answer.status, &*answer.body),
                (StatusCode::OK, &b"{\"data\":{\"a\":1}}"[..])
            );
        }
    })
    .await;
    assert_eq!(server.connections(), [0, 0, 0]);
    assert_eq!(upstream.stats().connections_opened.load(Ordering::Relaxed), 1);
    assert_eq!(upstream.stats().requests.load(Ordering::Relaxed), 3);
    assert_eq!(upstream.stats().in_flight.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_request_says_what_it_is_and_passes_headers_on_but_not_those_of_a_connection() {
    let server = Server::start(vec![vec![answer()]]).await;
    let upstream = server.upstream(UpstreamSettings::default());
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
async fn a_query_is_repeated_when_a_reused_connection_dies_before_its_answer() {
    let server = Server::start(vec![vec![answer(), Step::HangUp], vec![answer()]]).await;
    let upstream = server.upstream(UpstreamSettings::default());
    local(async {
        fetch(&upstream).await.unwrap();
        fetch(&upstream).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 0, 1]);
    assert_eq!(upstream.stats().retries.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_mutation_is_not_repeated() {
    let server = Server::start(vec![vec![answer(), Step::HangUp], vec![answer()]]).await;
    let upstream = server.upstream(UpstreamSettings::default());
    let result = local(async {
        fetch(&upstream).await.unwrap();
        fetch_with(&upstream, true, &[]).await
    })
    .await;
    assert!(matches!(result, Err(FetchError::Closed(_))), "{result:?}");
    assert_eq!(server.connections(), [0, 0]);
}

#[tokio::test]
async fn a_query_is_not_repeated_once_its_answer_has_begun() {
    let server =
        Server::start(vec![vec![answer(), raw("HTTP/1.1 200 OK\r\ncont")], vec![answer()]]).await;
    let upstream = server.upstream(UpstreamSettings::default());
    let result = local(async {
        fetch(&upstream).await.unwrap();
        fetch(&upstream).await
    })
    .await;
    assert!(matches!(result, Err(FetchError::Closed(_))), "{result:?}");
    assert_eq!(server.connections(), [0, 0]);
}

#[tokio::test]
async fn a_query_on_a_new_connection_is_not_repeated() {
    let server = Server::start(vec![vec![Step::HangUp], vec![answer()]]).await;
    let upstream = server.upstream(UpstreamSettings::default());
    let result = local(fetch(&upstream)).await;
    assert_eq!(result.unwrap_err(), FetchError::Closed("unexpected end".into()));
    assert_eq!(upstream.stats().failures(FailureKind::Closed), 1);
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_gets_a_connection_each() {
    let once = raw("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\
                    content-length: 2\r\n\r\n{}");
    let server = Server::start(vec![vec![once.clone()], vec![once]]).await;
    let upstream = server.upstream(UpstreamSettings::default());
    local(async {
        fetch(&upstream).await.unwrap();
        fetch_with(&upstream, true, &[]).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 1]);
}

#[tokio::test]
async fn a_connection_that_was_idle_too_long_is_not_used() {
    let server = Server::start(vec![vec![answer(), answer()], vec![answer()]]).await;
    let upstream = server
        .upstream(UpstreamSettings { idle_timeout: Duration::ZERO, ..UpstreamSettings::default() });
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
    let Step::Answer(text) = answer() else { unreachable!() };
    let server = Server::start(vec![vec![Step::AnswerWhen(Arc::clone(&go), text), answer()]]).await;
    let upstream = server.upstream(UpstreamSettings {
        max_connections: 1,
        max_waiting: 1,
        ..UpstreamSettings::default()
    });
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
    assert_eq!(upstream.stats().waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_given_up() {
    let timeout = Duration::from_millis(40);
    let settings = UpstreamSettings { timeout, ..UpstreamSettings::default() };
    assert_eq!(ask_with(Step::Hang, settings).await.unwrap_err(), FetchError::Timeout(timeout));
}

#[tokio::test]
async fn a_body_that_does_not_end_in_time_is_given_up() {
    let server = Server::start(vec![vec![
        raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"),
        Step::Hang,
    ]])
    .await;
    let timeout = Duration::from_millis(40);
    let upstream = server.upstream(UpstreamSettings { timeout, ..UpstreamSettings::default() });
    assert_eq!(local(fetch(&upstream)).await.unwrap_err(), FetchError::Timeout(timeout));
    assert_eq!(upstream.stats().in_flight.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_deadline_of_the_request_counts_too() {
    let server = Server::start(vec![vec![Step::Hang]]).await;
    let upstream = server.upstream(UpstreamSettings::default());
    let request = SubgraphRequest {
        body: Bytes::from_static(b"{}"),
        is_mutation: false,
        headers: &[],
        deadline: Instant::now() + Duration::from_millis(30),
    };
    let result = local(upstream.fetch(request)).await;
    assert!(matches!(result, Err(FetchError::Timeout(_))), "{result:?}");
}

#[tokio::test]
async fn an_answer_over_the_limit_is_refused_by_its_announcement() {
    let settings = UpstreamSettings { max_response_size: 15, ..UpstreamSettings::default() };
    let result = ask_with(answer(), settings).await;
    assert_eq!(result.unwrap_err(), FetchError::TooLarge { limit: 15 });
}

#[tokio::test]
async fn an_answer_over_the_limit_is_refused_while_it_comes() {
    let chunk = "a".repeat(1000);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{}",
        format!("3e8\r\n{chunk}\r\n").repeat(20)
    );
    let settings = UpstreamSettings { max_response_size: 10_000, ..UpstreamSettings::default() };
    let server = Server::start(vec![vec![raw(&chunked), Step::Hang]]).await;
    let upstream = server.upstream(settings);
    let result = local(fetch(&upstream)).await;
    assert_eq!(result.unwrap_err(), FetchError::TooLarge { limit: 10_000 });
}

#[tokio::test]
async fn an_answer_in_many_pieces_is_put_together() {
    let pieces: String = (0..50).map(|index| format!("5\r\n[{index:03}]\r\n")).collect();
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
         {pieces}0\r\n\r\n"
    );
    let answer = ask(raw(&chunked)).await.unwrap();
    let expected: String = (0..50).map(|index| format!("[{index:03}]")).collect();
    assert_eq!(answer.body, expected.as_bytes());
}

#[tokio::test]
async fn html_is_no_answer_and_the_connection_lives_on() {
    let html = response("502 Bad Gateway", "text/html; charset=utf-8", "<h1>Bad Gateway</h1>");
    let server = Server::start(vec![vec![html, answer()]]).await;
    let upstream = server.upstream(UpstreamSettings::default());
    local(async {
        assert_eq!(
            fetch(&upstream).await.unwrap_err(),
            FetchError::Status {
                status: StatusCode::BAD_GATEWAY,
                content_type: Some("text/html".into())
            }
        );
        fetch(&upstream).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 0]);
}

#[tokio::test]
async fn json_errors_with_status_500_are_handed_on() {
    let body = "{\"errors\":[{\"message\":\"down\"}]}";
    let answer = ask(response("500 Internal Server Error", "application/json", body)).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.body, body.as_bytes());
}

#[tokio::test]
async fn a_truncated_body_is_no_answer() {
    let truncated =
        raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"da");
    assert!(matches!(ask(truncated).await.unwrap_err(), FetchError::Closed(_)));
}

#[tokio::test]
async fn garbage_instead_of_a_status_line_is_no_answer() {
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

#[tokio::test]
async fn a_closed_port_is_named_as_such_without_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}/");
    let upstream = Upstream::new("products", &url, UpstreamSettings::default(), None).unwrap();
    let error = local(fetch(&upstream)).await.unwrap_err();
    assert_eq!(error.to_string(), "connection failed: connection refused");
    assert_eq!(upstream.stats().failures(FailureKind::Connect), 1);
}

#[test]
fn https_needs_tls_settings() {
    let result = Upstream::new("a", "https://a.example/", UpstreamSettings::default(), None);
    assert_eq!(result.unwrap_err(), upstream::TargetError::NoTls);
}
