//! The downloader against servers that behave in all the ways in which servers do.

use std::collections::VecDeque;
use std::sync::Mutex;

use config::{DownloadHmac, DownloadSignature, Secret};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The status of a server that reads a request and never responds.
const HANGS: &str = "hangs";

/// One response, and the heads of all requests.
#[derive(Default)]
struct Script {
    /// The status line without the version, further headers, the body.
    response: (String, String, Vec<u8>),
    requests: VecDeque<String>,
    received: Arc<Notify>,
}

/// A server that sends what a test tells it.
#[derive(Clone)]
struct Server {
    url: String,
    script: Arc<Mutex<Script>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/supergraph.graphql", listener.local_addr().unwrap());
        let script = Arc::new(Mutex::new(Script::default()));
        let served = Arc::clone(&script);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(respond(stream, Arc::clone(&served)));
            }
        });
        Self { url, script }
    }

    fn set(&self, status: &str, headers: &str, body: impl Into<Vec<u8>>) {
        self.script.lock().unwrap().response = (status.into(), headers.into(), body.into());
    }

    /// Serves a text with an etag, and 304 to requests that name it.
    fn publish(&self, body: &str, etag: &str, more: &str) {
        self.set("200 OK", &format!("etag: {etag}\r\n{more}"), body);
    }

    fn requests(&self) -> usize {
        self.script.lock().unwrap().requests.len()
    }

    /// Waits until there were more than `count` requests.
    async fn wait_for_more_than(&self, count: usize) {
        let received = Arc::clone(&self.script.lock().unwrap().received);
        while self.requests() <= count {
            received.notified().await;
        }
    }

    fn last_request(&self) -> String {
        self.script.lock().unwrap().requests.back().cloned().unwrap()
    }
}

async fn respond(mut stream: TcpStream, script: Arc<Mutex<Script>>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let request = String::from_utf8(request).unwrap();
    let (status, headers, body) = script.lock().unwrap().response.clone();
    let known = request.lines().find_map(|line| line.strip_prefix("if-none-match: "));
    let is_known = known.is_some_and(|etag| headers.contains(&format!("etag: {etag}\r\n")));
    {
        let mut script = script.lock().unwrap();
        script.requests.push_back(request.clone());
        script.received.notify_one();
    }
    if status == HANGS {
        return std::future::pending().await;
    }
    let (status, body) = if is_known { ("304 Not Modified", Vec::new()) } else { (&*status, body) };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n");
    let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
}

fn settings(servers: &[&Server]) -> SupergraphDownload {
    let mut settings = SupergraphDownload::from_url(String::new());
    settings.urls = servers.iter().map(|it| it.url.clone()).collect();
    settings.timeout = Duration::from_secs(20);
    settings
}

fn downloader(settings: &SupergraphDownload) -> SupergraphDownloader {
    SupergraphDownloader::new(settings).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Returns the text for the start, or the messages.
async fn start(downloader: &mut SupergraphDownloader) -> Result<(String, Vec<String>), String> {
    let messages = |all: Vec<Diagnostic>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    match downloader.read_first().await {
        Ok((text, warnings)) => Ok((text.text.clone(), messages(warnings))),
        Err(problems) => Err(messages(problems).join("\n")),
    }
}

/// The failures of a check, which must fail.
async fn failure(downloader: &mut SupergraphDownloader) -> String {
    downloader.check(true).await.expect_err("it fails").join("; ")
}

#[tokio::test]
async fn an_unchanged_supergraph_is_not_transferred_again() {
    let server = Server::start().await;
    server.publish("1", "\"a\"", "");
    let mut downloader = downloader(&settings(&[&server]));
    assert_eq!(start(&mut downloader).await, Ok(("1".into(), Vec::new())));
    assert_eq!(downloader.check(true).await, Ok(false));
    assert!(server.last_request().contains("if-none-match: \"a\"\r\n"));
    // Asked by an operator, the server sends all of it.
    assert_eq!(downloader.read(true).await.unwrap().text, "1");
    assert!(!server.last_request().contains("if-none-match"));
    server.publish("2", "\"b\"", "");
    assert_eq!(downloader.check(true).await, Ok(true));
    // A server without etags.
    server.set("200 OK", "", "2");
    assert_eq!(downloader.check(true).await, Ok(false));
    assert_eq!(downloader.latest.as_ref().unwrap().text.text, "2");
}

#[tokio::test]
async fn a_change_is_taken_once_and_polls_may_be_cancelled() {
    let server = Server::start().await;
    server.publish("1", "\"a\"", "");
    let mut downloader = downloader(&SupergraphDownload {
        refresh: Duration::from_millis(100),
        ..settings(&[&server])
    });
    start(&mut downloader).await.unwrap();
    let none = tokio::time::timeout(Duration::from_millis(1), downloader.wait_for_change()).await;
    assert!(none.is_err());
    server.publish("2", "\"b\"", "");
    downloader.wait_for_change().await;
    let count = server.requests();
    assert_eq!(downloader.read(false).await.unwrap().text, "2");
    assert_eq!(server.requests(), count);
}

#[tokio::test]
async fn a_request_that_is_cancelled_changes_nothing() {
    let (first, second) = (Server::start().await, Server::start().await);
    first.publish("1", "\"a\"", "");
    let settings =
        SupergraphDownload { refresh: Duration::from_millis(100), ..settings(&[&first, &second]) };
    let mut downloader = downloader(&settings);
    start(&mut downloader).await.unwrap();
    // One server has failed, and the other one has not responded yet.
    first.set("503 Service Unavailable", "", "");
    second.set(HANGS, "", "");
    let asked = second.wait_for_more_than(0);
    tokio::select! {
        () = downloader.wait_for_change() => panic!("nothing has changed"),
        () = asked => {}
    }
    assert_eq!(downloader.latest.as_ref().unwrap().text.text, "1");
    assert!(!downloader.is_pending && downloader.mirrors[0].reported.is_none());
    // The version that is known is still named.
    first.publish("1", "\"a\"", "");
    assert_eq!(downloader.check(true).await, Ok(false));
    assert!(first.last_request().contains("if-none-match: \"a\"\r\n"));
    first.publish("2", "\"b\"", "");
    downloader.wait_for_change().await;
    assert_eq!(downloader.read(false).await.unwrap().text, "2");
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_fails() {
    let (first, second) = (Server::start().await, Server::start().await);
    first.set("503 Service Unavailable", "", "");
    second.publish("1", "\"a\"", "");
    let mut downloader = downloader(&settings(&[&first, &second]));
    assert_eq!(start(&mut downloader).await, Ok(("1".into(), Vec::new())));
    first.publish("2", "\"b\"", "");
    assert_eq!(downloader.check(true).await, Ok(true));
    // The second server still has the first text. Its etag is not sent, because another text is in use.
    first.set("503 Service Unavailable", "", "");
    second.publish("2", "\"a\"", "");
    assert_eq!(downloader.check(true).await, Ok(false));
    assert!(!second.last_request().contains("if-none-match"));
    second.set("404 Not Found", "", "");
    let failures = failure(&mut downloader).await;
    assert!(failures.contains("503") && failures.contains("404"), "{failures}");
    assert_eq!(downloader.latest.as_ref().unwrap().text.text, "2");
}

#[tokio::test]
async fn a_response_that_is_no_supergraph_leaves_the_last_one() {
    let server = Server::start().await;
    server.publish("1", "\"a\"", "");
    let mut downloader = downloader(&SupergraphDownload { max_size: 1024, ..settings(&[&server]) });
    start(&mut downloader).await.unwrap();
    for (status, headers, body, expected) in [
        ("302 Found", "location: /x\r\n", vec![], "redirections are not followed"),
        ("401 Unauthorized", "", vec![], "check the credentials"),
        ("500 Internal Server Error", "", vec![], "HTTP status 500"),
        ("200 OK", "", vec![b' '; 1025], "larger than 1024 bytes (`supergraph.url.max_size`)"),
        ("200 OK", "", vec![0x1f, 0x8b, 0xff], "not text in UTF-8"),
    ] {
        server.set(status, headers, body);
        let failure = failure(&mut downloader).await;
        assert!(failure.contains(expected), "{failure}");
        assert_eq!(downloader.latest.as_ref().unwrap().text.text, "1");
    }
}

#[tokio::test]
async fn an_older_supergraph_is_refused_unless_it_is_accepted() {
    let server = Server::start().await;
    let at = |minute: u32| format!("last-modified: Fri, 27 Nov 2026 10:{minute:02}:00 GMT\r\n");
    server.publish("2", "\"b\"", &at(2));
    let mut downloader = downloader(&settings(&[&server]));
    start(&mut downloader).await.unwrap();
    server.publish("1", "\"a\"", &at(1));
    let failure = failure(&mut downloader).await;
    assert!(failure.contains("older than the last one by its header `last-modified`"), "{failure}");
    // The same text from another server may be older.
    server.publish("2", "\"c\"", &at(1));
    assert_eq!(downloader.check(true).await, Ok(false));
    server.publish("1", "\"a\"", &at(3));
    assert_eq!(downloader.check(true).await, Ok(true));
    downloader.accepts_older = true;
    server.publish("0", "\"z\"", &at(0));
    assert_eq!(downloader.check(true).await, Ok(true));
}

#[tokio::test]
async fn a_wrong_signature_is_refused_and_the_right_one_accepted_later() {
    let server = Server::start().await;
    let header = http::HeaderName::from_static("x-signature");
    let hmac = Some(DownloadHmac {
        secret: Some(Secret::new(SECRET)),
        secret_file: None,
        header: header.clone(),
    });
    let signature = DownloadSignature { hmac, minisign: None };
    // `printf 1 | openssl dgst -sha256 -hmac …`
    let right =
        "x-signature: sha256=c2a56899f8e6dad8951a30d34b5be54bd457ff077c38b92b6eab206138e6dbbf\r\n";
    let folder = tempfile::tempdir().unwrap();
    let copy = Some(folder.path().join("copy.graphql"));
    let settings = SupergraphDownload { signature, copy, ..settings(&[&server]) };
    let mut downloader = downloader(&settings);
    server.publish("1", "\"a\"", right);
    assert_eq!(start(&mut downloader).await, Ok(("1".into(), Vec::new())));
    downloader.keep().await;
    server.publish("2", "\"b\"", right);
    assert!(failure(&mut downloader).await.contains("does not belong to this body"));
    // The version that was refused is not taken for known.
    assert!(failure(&mut downloader).await.contains("does not belong to this body"));
    server.publish("1", "\"b\"", "");
    assert!(failure(&mut downloader).await.contains("the header `x-signature` is missing"));

    // The signature of the copy is verified, too.
    server.set("503 Service Unavailable", "", "");
    let mut next = self::downloader(&settings);
    let (text, warnings) = start(&mut next).await.unwrap();
    assert_eq!(text, "1");
    assert!(
        warnings[0].contains("503") && warnings[0].contains("starts with the copy"),
        "{warnings:?}"
    );
    let path = settings.copy.as_ref().unwrap();
    std::fs::write(path, "2").unwrap();
    let mut other = self::downloader(&settings);
    let refused = start(&mut other).await.unwrap_err();
    assert!(refused.contains("is not used: there is no signature"), "{refused}");
}

#[tokio::test]
async fn a_router_starts_with_the_copy_and_keeps_what_was_loaded() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graphs/copy.graphql");
    let settings = SupergraphDownload { copy: Some(path.clone()), ..settings(&[&server]) };
    server.publish("1", "\"a\"", "");
    let mut first = downloader(&settings);
    start(&mut first).await.unwrap();
    assert!(!path.exists());
    first.keep().await;
    assert!(std::fs::read_to_string(&path).unwrap().ends_with("\n1"));
    // A supergraph that could not be loaded is not kept.
    server.publish("2", "\"b\"", "");
    assert_eq!(first.check(true).await, Ok(true));

    // The server confirms the copy.
    server.publish("1", "\"a\"", "");
    let mut second = downloader(&settings);
    assert_eq!(start(&mut second).await, Ok(("1".into(), Vec::new())));
    assert!(server.last_request().contains("if-none-match: \"a\"\r\n"));

    server.set("500 Internal Server Error", "", "");
    let mut third = downloader(&settings);
    let (text, warnings) = start(&mut third).await.unwrap();
    assert_eq!((&*text, warnings.len()), ("1", 1));
    assert!(third.metrics.serves_copy());
    third.keep().await;
    assert!(third.metrics.serves_copy());
    server.publish("1", "\"c\"", "");
    assert_eq!(third.check(true).await, Ok(false));
    assert!(!third.metrics.serves_copy());

    // A text of the server that cannot be loaded gives way to the copy.
    server.publish("3", "\"d\"", "");
    let mut fourth = downloader(&settings);
    assert_eq!(start(&mut fourth).await.unwrap().0, "3");
    assert_eq!(fourth.take_fallback().unwrap().text, "1");
    assert!(fourth.take_fallback().is_none() && fourth.metrics.serves_copy());
}

#[tokio::test]
async fn the_copy_of_another_url_does_not_keep_an_older_supergraph_out() {
    let (before, after) = (Server::start().await, Server::start().await);
    let at = |minute: u32| format!("last-modified: Fri, 27 Nov 2026 10:{minute:02}:00 GMT\r\n");
    before.publish("2", "\"b\"", &at(2));
    after.publish("1", "\"a\"", &at(1));
    let folder = tempfile::tempdir().unwrap();
    let copy = Some(folder.path().join("copy.graphql"));
    let with_copy = |server: &Server, query: &str| {
        let settings = SupergraphDownload { copy: copy.clone(), ..settings(&[server]) };
        SupergraphDownload { urls: vec![format!("{}{query}", server.url)], ..settings }
    };
    let mut first = downloader(&with_copy(&before, "?token=1"));
    start(&mut first).await.unwrap();
    first.keep().await;

    // With another token it is still the same URL, of which an older version is refused.
    let mut same = downloader(&with_copy(&before, "?token=2"));
    assert_eq!(start(&mut same).await, Ok(("2".into(), Vec::new())));
    assert!(before.last_request().contains("if-none-match: \"b\"\r\n"));
    before.publish("1", "\"a\"", &at(1));
    assert!(failure(&mut same).await.contains("older than the last one"));

    // A server that cannot be reached leaves the copy of another one.
    after.set("503 Service Unavailable", "", "");
    let mut other = downloader(&with_copy(&after, ""));
    assert_eq!(start(&mut other).await.unwrap().0, "2");
    after.publish("1", "\"a\"", &at(1));
    assert_eq!(other.check(true).await, Ok(true));

    // The same text from the new URL is copied again, with the time that it has there.
    after.publish("2", "\"b\"", &at(1));
    let mut again = downloader(&with_copy(&after, ""));
    assert_eq!(start(&mut again).await, Ok(("2".into(), Vec::new())));
    again.keep().await;
    after.publish("1", "\"a\"", &at(0));
    let mut last = downloader(&with_copy(&after, ""));
    let (text, warnings) = start(&mut last).await.unwrap();
    assert!(text == "2" && warnings[0].contains("older than the last one"), "{warnings:?}");
}

#[tokio::test]
async fn a_start_without_servers_and_without_a_copy_says_what_to_do() {
    // Nothing listens on port 1.
    let settings = SupergraphDownload::from_url("http://127.0.0.1:1/s?key=hunter2".into());
    let copy = Some("/nowhere/copy.graphql".into());
    let mut bare = downloader(&settings);
    let mut copying = downloader(&SupergraphDownload { copy, ..settings });
    let (failed, without_copy) = tokio::join!(start(&mut bare), start(&mut copying));
    let failed = failed.unwrap_err();
    assert!(failed.contains("http://127.0.0.1:1/s: connection failed"), "{failed}");
    assert!(failed.contains("with `supergraph.url.copy` the router keeps a copy"), "{failed}");
    assert!(!failed.contains("hunter2"), "{failed}");
    let failed = without_copy.unwrap_err();
    assert!(
        failed.contains("put a supergraph that is good into /nowhere/copy.graphql"),
        "{failed}"
    );
}

#[test]
fn the_signature_is_beside_the_supergraph() {
    assert_eq!(minisign_url("https://h/a.graphql"), "https://h/a.graphql.minisig");
    assert_eq!(minisign_url("https://h/a?sig=1#b"), "https://h/a.minisig?sig=1#b");
}

#[test]
fn settings_that_cannot_be_used_are_all_reported() {
    let mut settings = SupergraphDownload::from_url("https://h/".into());
    settings.ca = Some("/nowhere/ca.pem".into());
    let hmac = Some(DownloadHmac {
        secret: None,
        secret_file: Some("/nowhere/secret".into()),
        header: http::header::ETAG,
    });
    settings.signature = DownloadSignature { hmac, minisign: None };
    let problems = SupergraphDownloader::new(&settings).err().unwrap();
    let messages: Vec<_> = problems.iter().map(|it| &*it.message).collect();
    assert!(messages[0].starts_with("`supergraph.url`: signature.hmac.secret_file: cannot read"));
    assert!(messages[1].starts_with("`supergraph.url`: ca /nowhere/ca.pem"), "{messages:?}");
}
