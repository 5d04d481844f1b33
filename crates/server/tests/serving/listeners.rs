//! Tests of listeners with TLS, and of Unix domain sockets.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use net::{ConnectError, Roots, Stream, TlsClient, TlsIdentity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::http::{read_response, request};
use crate::http2::Client;
use crate::router::{Router, TIMEOUT};
use crate::takeover;

const AUTHORITY: &[u8] = include_bytes!("../../../net/tests/certificates/ca.pem");
const AUTHORITY_2: &[u8] = include_bytes!("../../../net/tests/certificates/ca2.pem");

fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../net/tests/certificates")
}

/// Returns configuration lines of a listener with the certificate and key at these paths.
fn tls(cert: &Path, key: &Path, more: &str) -> String {
    let (cert, key) = (cert.display(), key.display());
    format!("listen: [{{address: '127.0.0.1:0', tls: {{cert: {cert}, key: {key}{more}}}}}]")
}

fn start_with_tls() -> Router {
    let folder = certificates();
    let lines = tls(&folder.join("localhost.pem"), &folder.join("localhost.key"), "");
    Router::listening(&lines).unwrap()
}

async fn open(
    router: &Router,
    authority: &[u8],
    protocols: &[&[u8]],
) -> Result<Stream, ConnectError> {
    let client = TlsClient::with_roots(authority, protocols).unwrap();
    net::connect("localhost", router.address.port(), Some(&client), TIMEOUT).await
}

const QUERY: &str = "GET /graphql?query=%7B__typename%7D HTTP/1.1\r\nhost: localhost\r\n";

const RESPONSE: &str = r#"{"data":{"__typename":"Query"}}"#;

/// Sends one query on a connection that stays open.
async fn ask(stream: &mut Stream) -> String {
    stream.write_all(format!("{QUERY}\r\n").as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut text = String::new();
    while !text.ends_with('}') {
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).await.unwrap();
        assert_ne!(length, 0, "{text}");
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn a_client_of_tls_selects_its_version_of_http_by_alpn() {
    let router = start_with_tls();
    router.block_on(async {
        for protocols in [&[][..], &[&b"http/1.1"[..]]] {
            let mut stream = open(&router, AUTHORITY, protocols).await.unwrap();
            assert_eq!(ask(&mut stream).await, RESPONSE);
        }
        let stream = open(&router, AUTHORITY, &[b"h2", b"http/1.1"]).await.unwrap();
        let mut client = Client::new(stream).await;
        assert_eq!(client.get("/graphql?query=%7B__typename%7D", &[]).await.text().await, RESPONSE);
    });
}

#[test]
fn websockets_and_event_streams_work_over_tls() {
    let router = start_with_tls();
    router.block_on(async {
        let mut socket = open(&router, AUTHORITY, &[b"http/1.1"]).await.unwrap();
        let upgrade = "GET /graphql HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n\
                       upgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: bm90IHZlcnkgcmFuZG9tLg==\r\n\
                       sec-websocket-protocol: graphql-transport-ws\r\n\r\n";
        socket.write_all(upgrade.as_bytes()).await.unwrap();
        // A frame with a mask that changes nothing.
        let init = br#"{"type":"connection_init"}"#;
        socket
            .write_all(&[&[0x81, 0x80 | init.len() as u8, 0, 0, 0, 0], &init[..]].concat())
            .await
            .unwrap();
        socket.flush().await.unwrap();
        hear(&mut socket, r#"{"type":"connection_ack"}"#).await;

        let mut stream = open(&router, AUTHORITY, &[b"http/1.1"]).await.unwrap();
        let subscribe = "GET /graphql?query=subscription%7Btick%7Bid%7D%7D HTTP/1.1\r\n\
                         host: localhost\r\naccept: text/event-stream\r\n\r\n";
        stream.write_all(subscribe.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        hear(&mut stream, ":\n\n").await;
        // The stream begins before its subscription.
        router.wait_for("starling_hub_subscribers", 1);
        let (admin, event) = (router.admin, r#"{"__typename":"Tick","id":"1"}"#);
        let publish = move || {
            let target = "/admin/publish?topic=ticks";
            request(admin, "POST", target, &[], event).status
        };
        assert_eq!(tokio::task::spawn_blocking(publish).await.unwrap(), 200);
        hear(&mut stream, r#"data: {"data":{"tick":{"id":"1"}}}"#).await;
    });
}

#[test]
fn frames_in_the_same_tls_record_as_the_handshake_are_processed() {
    let folder = certificates();
    let lines = tls(&folder.join("localhost.pem"), &folder.join("localhost.key"), "");
    for reactors in [1, 2] {
        let router = Router::listening(&format!("{lines}\nreactors: {reactors}")).unwrap();
        router.block_on(async {
            let mut socket = open(&router, AUTHORITY, &[b"http/1.1"]).await.unwrap();
            socket.write_all(&takeover::all_at_once()).await.unwrap();
            socket.flush().await.unwrap();
            hear(&mut socket, takeover::ALL_AT_ONCE_RESPONSE).await;
        });
    }
}

/// Reads until this text has arrived.
async fn hear(stream: &mut Stream, expected: &str) {
    let mut text = String::new();
    while !text.contains(expected) {
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).await.unwrap();
        assert_ne!(length, 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
}

#[test]
fn a_new_certificate_is_used_for_new_connections_and_the_old_ones_continue() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
    let put = |name: &str| {
        std::fs::copy(certificates().join(format!("{name}.pem")), &cert).unwrap();
        std::fs::copy(certificates().join(format!("{name}.key")), &key).unwrap();
    };
    put("localhost");
    let router = Router::listening(&tls(&cert, &key, "")).unwrap();
    let mut old = router.block_on(open(&router, AUTHORITY, &[])).unwrap();
    assert_eq!(router.block_on(ask(&mut old)), RESPONSE);
    assert!(router.block_on(open(&router, AUTHORITY_2, &[])).is_err());
    put("localhost2");
    let deadline = Instant::now() + TIMEOUT;
    let mut new = loop {
        match router.block_on(open(&router, AUTHORITY_2, &[])) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    assert_eq!(router.block_on(ask(&mut new)), RESPONSE);
    assert_eq!(router.block_on(ask(&mut old)), RESPONSE);
    assert!(router.block_on(open(&router, AUTHORITY, &[])).is_err());
}

#[test]
fn clients_without_a_required_certificate_are_refused() {
    let folder = certificates();
    let authorities = format!(", client_ca: {}", folder.join("client-ca.pem").display());
    let lines = tls(&folder.join("localhost.pem"), &folder.join("localhost.key"), &authorities);
    let router = Router::listening(&lines).unwrap();
    router.block_on(async {
        // In TLS 1.3 a client learns the result of the handshake at the server when it reads.
        if let Ok(mut stream) = open(&router, AUTHORITY, &[]).await {
            let _ = stream.write_all(format!("{QUERY}\r\n").as_bytes()).await;
            let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert!(error.to_string().contains("CertificateRequired"), "{error}");
        }
    });
    router.wait_for("starling_http_tls_failures_total", 1);
}

/// Sends a request to the admin listener, with a certificate of a client if `identity` names one. Returns the status
/// and the body.
async fn ask_admin(router: &Router, identity: Option<&str>, head: &str) -> (u16, String) {
    let read = |ending: &str| {
        identity.map(|name| std::fs::read(certificates().join(format!("{name}.{ending}"))).unwrap())
    };
    let (certificates, key) = (read("pem"), read("key"));
    let identity = certificates.as_deref().zip(key.as_deref());
    let identity = identity.map(|(certificates, key)| TlsIdentity { certificates, key });
    let client = TlsClient::new(Roots::Pem(AUTHORITY), identity, &[]).unwrap();
    let mut stream =
        net::connect("localhost", router.admin.port(), Some(&client), TIMEOUT).await.unwrap();
    let request = format!("{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut response = Vec::new();
    // A server that refuses the handshake ends the connection.
    let _ = stream.read_to_end(&mut response).await;
    let response = read_response(&mut &*response);
    (response.status, response.body)
}

/// Returns configuration lines of an admin listener that needs certificates of clients.
fn with_admin_certificates() -> String {
    let path = |name: &str| certificates().join(name).display().to_string();
    format!(
        "listen: '127.0.0.1:0'\nadmin: {{tls: {{cert: {}, key: {}, client_ca: {}}}}}",
        path("localhost.pem"),
        path("localhost.key"),
        path("client-ca.pem"),
    )
}

#[test]
fn the_admin_listener_serves_only_health_checks_without_a_client_certificate() {
    let router = Router::listening(&with_admin_certificates()).unwrap();
    let ask = |identity, head: &str| router.block_on(ask_admin(&router, identity, head));
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(ask(None, &format!("GET {path}")).0, 200, "{path}");
    }
    let refusal = "this listener needs a client certificate (`admin.tls.client_ca`)\n";
    for head in [
        "GET /metrics",
        "GET /console/",
        "GET /console/api/overview",
        "GET /admin/subscriptions",
        "POST /admin/publish?topic=ticks",
        "GET /",
    ] {
        assert_eq!(ask(None, head), (403, refusal.to_owned()), "{head}");
        let (status, text) = ask(Some("client"), head);
        assert!(status != 403, "{head}: {text}");
    }
    let (status, metrics) = ask(Some("client"), "GET /metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("starling_build_info"), "{metrics}");
    let mut socket = crate::http::connect(router.admin);
    socket.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut text = Vec::new();
    // Without TLS there is no response, but perhaps an alert.
    let _ = std::io::Read::read_to_end(&mut socket, &mut text);
    assert!(!String::from_utf8_lossy(&text).contains("HTTP/1.1"), "{text:?}");
}

#[test]
fn a_new_router_reads_the_operations_of_a_listener_that_needs_a_client_certificate() {
    let path = |name: &str| certificates().join(name).display().to_string();
    let first = Router::listening(&with_admin_certificates()).unwrap();
    for _ in 0..2 {
        let headers = [("content-type", "application/json")];
        let body = r#"{"query":"{ time }"}"#;
        let response = request(first.address, "POST", "/graphql", &headers, body);
        assert_eq!(response.status, 200, "{}", response.body);
    }
    let start = |more: &str| {
        let url = format!("https://localhost:{}/admin/operations", first.admin.port());
        let ca = path("ca.pem");
        Router::start(&format!("warming: {{operations: {{url: '{url}', ca: {ca}{more}}}}}"))
    };
    let identity = format!(", certificate: {}, key: {}", path("client.pem"), path("client.key"));
    let with_certificate = start(&identity);
    with_certificate.wait_for("starling_warming_operations_total{result=\"prepared\"}", 1);
    with_certificate.wait_for("starling_warming_source_failures_total", 0);
    start("").wait_for("starling_warming_source_failures_total", 1);
}

#[test]
fn a_client_without_tls_does_not_affect_others() {
    let router = start_with_tls();
    let mut socket = crate::http::connect(router.address);
    socket.write_all(format!("{QUERY}\r\n").as_bytes()).unwrap();
    router.wait_for("starling_http_tls_failures_total", 1);
    let mut stream = router.block_on(open(&router, AUTHORITY, &[])).unwrap();
    assert_eq!(router.block_on(ask(&mut stream)), RESPONSE);
}

#[test]
fn invalid_certificate_files_are_named_at_the_start() {
    let folder = certificates();
    let refused = |cert: &str, key: &str| {
        let lines = tls(&folder.join(cert), &folder.join(key), "");
        let error = Router::listening(&lines).err().unwrap().to_string();
        error.trim_end().replace(&*folder.to_string_lossy(), "FOLDER")
    };
    assert_eq!(
        refused("missing.pem", "localhost.key"),
        "error[tls]: TLS (`listen`): cannot read FOLDER/missing.pem: No such file or directory (os error 2)"
    );
    assert_eq!(
        refused("localhost.key", "localhost.key"),
        "error[tls]: TLS (`listen`): FOLDER/localhost.key: there is no certificate in it"
    );
    assert_eq!(
        refused("localhost.pem", "localhost.pem"),
        "error[tls]: TLS (`listen`): FOLDER/localhost.pem: there is no private key in it"
    );
    assert_eq!(
        refused("localhost.pem", "localhost2.key"),
        "error[tls]: TLS (`listen`): FOLDER/localhost.pem: the private key in FOLDER/localhost2.key belongs to \
         another certificate"
    );
}

#[test]
fn a_unix_socket_has_its_permissions_and_is_removed_with_the_router() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graphql.sock");
    let router = Router::listening(&format!("listen: [{{unix: {}}}]", path.display())).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let mut socket = UnixStream::connect(&path).unwrap();
    socket.write_all(format!("{QUERY}connection: close\r\n\r\n").as_bytes()).unwrap();
    let response = read_response(&mut socket);
    assert_eq!((response.status, &*response.body), (200, RESPONSE));
    router.end();
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_in_use_by_another_router_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graphql.sock");
    let lines = format!("listen: [{{unix: {}}}]", path.display());
    let _first = Router::listening(&lines).unwrap();
    let error = Router::listening(&lines).err().unwrap().to_string();
    let expected = format!(
        "cannot listen on {} (`listen`): address in use; another process listens there",
        path.display()
    );
    assert_eq!(error, expected);
    assert!(UnixStream::connect(&path).is_ok());
}
