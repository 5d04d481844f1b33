//! Servers that send responses without a request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{FetchError, Subgraph, SubgraphHeaders, SubgraphRequest, SubgraphResponse};
use upstream::{Upstream, UpstreamSettings};

use crate::scripted::{Server, local, no_retries, ordinary_response, read, until};

/// The time at which a server sends a response without a request.
#[derive(Clone)]
enum Unsolicited {
    /// Immediately after each response.
    AtOnce,
    /// This long after each response.
    After(Duration),
    /// After each response, once notified.
    Told(Arc<Mutex<mpsc::Receiver<()>>>),
}

/// Starts a server on a thread of its own that echoes the number in each request and then sends the
/// response `"stray"`. The receiver gets a message after each stray response was written.
fn start(when: Unsolicited) -> (String, mpsc::Receiver<()>) {
    start_with(when, response("\"stray\""))
}

/// As [`start`], with another stray response. If that is empty, the server closes the connection.
fn start_with(when: Unsolicited, stray: String) -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (when, sender, stray) = (when.clone(), sender.clone(), stray.clone());
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            // The client may close the connection at any time.
            std::thread::spawn(move || serve(stream, &when, &stray, &sender).unwrap_or(()));
        }
    });
    (url, receiver)
}

fn serve(
    mut stream: TcpStream,
    when: &Unsolicited,
    stray: &str,
    sender: &mpsc::Sender<()>,
) -> std::io::Result<()> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let body = loop {
            if let Some((_, body)) = text.split_once("\r\n\r\n")
                && body.ends_with('}')
            {
                break body.to_owned();
            }
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        };
        text.clear();
        stream.write_all(response(&body).as_bytes())?;
        match when {
            Unsolicited::AtOnce => {}
            Unsolicited::After(pause) => std::thread::sleep(*pause),
            // The channel ends with the test.
            Unsolicited::Told(told) => told.lock().unwrap().recv().unwrap_or(()),
        }
        let written = match stray {
            "" => stream.shutdown(Shutdown::Both),
            stray => stream.write_all(stray.as_bytes()),
        };
        let _ = sender.send(());
        written?;
    }
}

fn response(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn fetch(
    upstream: &Upstream,
    number: usize,
    is_mutation: bool,
) -> Result<SubgraphResponse, FetchError> {
    let body = Bytes::from(format!("{{\"n\":{number}}}"));
    let deadline = Instant::now() + Duration::from_secs(60);
    let headers = SubgraphHeaders::default();
    upstream.fetch(SubgraphRequest { body, form: None, is_mutation, headers, deadline }).await
}

#[tokio::test]
async fn a_response_that_came_while_a_connection_was_idle_is_never_matched_to_the_next_request() {
    let (url, strays) = start(Unsolicited::AtOnce);
    let upstream = Upstream::new("products", &url, no_retries(), None).unwrap();
    local(async {
        for number in 0..100 {
            let response = fetch(&upstream, number, number % 2 == 1).await.unwrap();
            assert_eq!(response.body, format!("{{\"n\":{number}}}"));
            // Blocks the runtime, so that it cannot notice the bytes by itself.
            strays.recv_timeout(Duration::from_secs(10)).unwrap();
        }
    })
    .await;
    assert!(read(&upstream.stats().unsolicited) >= 1);
}

#[tokio::test]
async fn a_mutation_is_not_sent_on_a_connection_that_has_ended_in_the_same_turn_of_the_event_loop()
{
    for stray in [String::new(), response("\"stray\"")] {
        let (tell, told) = mpsc::channel();
        let when = Unsolicited::Told(Arc::new(Mutex::new(told)));
        let (url, strays) = start_with(when, stray);
        let settings = UpstreamSettings { probation: Duration::ZERO, ..no_retries() };
        let upstream = Upstream::new("products", &url, settings, None).unwrap();
        local(async {
            fetch(&upstream, 0, true).await.unwrap();
            // The event loop checks the connection, on which nothing has come yet …
            tokio::time::sleep(Duration::from_millis(1)).await;
            tell.send(()).unwrap();
            // … and is blocked until the connection has ended.
            strays.recv_timeout(Duration::from_secs(10)).unwrap();
            let response = fetch(&upstream, 1, true).await.unwrap();
            assert_eq!(response.body, "{\"n\":1}");
        })
        .await;
        assert_eq!(read(&upstream.stats().reconnects), 1);
    }
}

#[tokio::test]
async fn a_request_timeout_that_the_runtime_has_not_noticed_yet_does_not_stop_reuse() {
    let timeout = "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n".to_owned();
    let (tell, told) = mpsc::channel();
    let (url, strays) = start_with(Unsolicited::Told(Arc::new(Mutex::new(told))), timeout);
    let settings = UpstreamSettings { probation: Duration::ZERO, ..no_retries() };
    let upstream = Upstream::new("products", &url, settings, None).unwrap();
    local(async {
        for number in 0..20 {
            let response = fetch(&upstream, number, number % 2 == 1).await.unwrap();
            assert_eq!(response.body, format!("{{\"n\":{number}}}"));
            tell.send(()).unwrap();
            // Blocks the runtime, so that it cannot notice the bytes by itself.
            strays.recv_timeout(Duration::from_secs(10)).unwrap();
        }
    })
    .await;
    let stats = upstream.stats();
    assert_eq!(read(&stats.unsolicited), 0);
    assert_eq!(
        read(&stats.reconnects),
        19,
        "each timeout was found when the connection was to be used again"
    );
}

#[tokio::test]
async fn after_one_unsolicited_response_no_connection_is_used_twice() {
    // A response that is late by this much may come when the next request was sent already:
    // HTTP/1.1 cannot distinguish them. It is noticed when one comes before the next request, which
    // takes a busy machine several requests. From then on no response can be mismatched.
    let (url, _strays) = start(Unsolicited::After(Duration::from_millis(2)));
    let upstream = Upstream::new("products", &url, no_retries(), None).unwrap();
    let stats = upstream.stats();
    local(async {
        let mut number = 0;
        while read(&stats.unsolicited) == 0 {
            fetch(&upstream, number, false).await.unwrap();
            number += 1;
            assert!(number < 10_000, "not noticed in {number} requests");
        }
        for number in number..number + 100 {
            let response = fetch(&upstream, number, false).await.unwrap();
            assert_eq!(response.body, format!("{{\"n\":{number}}}"));
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_always_sends_too_much_is_noticed_before_any_response_is_mismatched() {
    let (url, _strays) = start(Unsolicited::After(Duration::from_millis(2)));
    // Longer than any thread of this test waits to be scheduled.
    let settings = UpstreamSettings { probation: Duration::from_secs(10), ..no_retries() };
    let upstream = Upstream::new("products", &url, settings, None).unwrap();
    let stats = upstream.stats();
    local(async {
        for number in 0..100 {
            let response = fetch(&upstream, number, number % 2 == 1).await.unwrap();
            assert_eq!(response.body, format!("{{\"n\":{number}}}"));
        }
        until("it is noticed", || read(&stats.unsolicited) >= 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_connection_is_reused_once_it_has_passed_its_probation() {
    let server =
        Server::start(vec![vec![ordinary_response(), ordinary_response(), ordinary_response()]])
            .await;
    let settings = UpstreamSettings { probation: Duration::from_millis(20), ..no_retries() };
    let upstream = server.upstream(settings);
    let stats = upstream.stats();
    local(async {
        crate::scripted::fetch(&upstream).await.unwrap();
        assert_eq!(read(&stats.connections_idle), 0, "it is watched and not yet kept");
        until("the connection is kept", || read(&stats.connections_idle) == 1).await;
        crate::scripted::fetch(&upstream).await.unwrap();
        crate::scripted::fetch(&upstream).await.unwrap();
    })
    .await;
    assert_eq!(server.connections(), [0, 0, 0]);
}
