//! TLS and unix sockets.

use std::sync::Arc;

use execute::{FetchError, SubgraphResponse};
use net::{Roots, TlsClient, TlsIdentity};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use upstream::{Protocol, Upstream, UpstreamSettings};

use crate::http2;
use crate::scripted::{fetch, local, no_retries};

const AUTHORITY: &[u8] = include_bytes!("../../../net/tests/certificates/ca.pem");
const CLIENT: TlsIdentity<'_> = TlsIdentity {
    certificates: include_bytes!("../../../net/tests/certificates/client.pem"),
    key: include_bytes!("../../../net/tests/certificates/client.key"),
};

/// Starts a server that speaks `protocols` to clients that have a certificate. Returns its port.
async fn tls_server(protocols: &[&[u8]]) -> u16 {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    let authority = include_bytes!("../../../net/tests/certificates/client-ca.pem");
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let certificate = include_bytes!("../../../net/tests/certificates/localhost.pem");
    let key = include_bytes!("../../../net/tests/certificates/localhost.key");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            CertificateDer::pem_slice_iter(certificate).map(Result::unwrap).collect(),
            PrivateKeyDer::from_pem_slice(key).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                tokio::spawn(http2::serve_once(stream));
                continue;
            }
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"{\"query\":\"{a}\"}") {
                    stream.read_buf(&mut request).await.unwrap();
                }
                let response = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                               content-length: 8\r\n\r\nhttp/1.1";
                stream.write_all(response).await.unwrap();
                let _ = stream.read_to_end(&mut request).await;
            });
        }
    });
    port
}

async fn ask(
    port: u16,
    protocol: Protocol,
    offered: &[&[u8]],
    identity: Option<TlsIdentity<'_>>,
) -> Result<SubgraphResponse, FetchError> {
    let tls = TlsClient::new(Roots::Pem(AUTHORITY), identity, offered).unwrap();
    let url = format!("https://localhost:{port}/graphql");
    let settings = UpstreamSettings { protocol, ..no_retries() };
    let upstream = Upstream::new("products", &url, settings, Some(tls)).unwrap();
    local(fetch(&upstream)).await
}

const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];
const HTTP1: &[&[u8]] = &[b"http/1.1"];

#[tokio::test]
async fn over_tls_the_protocol_is_agreed() {
    for (speaks, protocol, offered, expected) in [
        (BOTH, Protocol::Auto, BOTH, "{\"data\":{\"a\":1}}"),
        (HTTP1, Protocol::Auto, BOTH, "http/1.1"),
        (BOTH, Protocol::Http1, HTTP1, "http/1.1"),
    ] {
        let port = tls_server(speaks).await;
        let response = ask(port, protocol, offered, Some(CLIENT)).await.unwrap();
        assert_eq!(response.body, expected);
    }
    let port = tls_server(HTTP1).await;
    let error = ask(port, Protocol::Http2, BOTH, Some(CLIENT)).await.unwrap_err();
    assert_eq!(error.to_string(), "connection failed: TLS: the server does not agree to HTTP/2");
}

#[tokio::test]
async fn a_server_that_requires_a_certificate_closes_connections_without_one() {
    let port = tls_server(HTTP1).await;
    ask(port, Protocol::Auto, HTTP1, None).await.unwrap_err();
    ask(port, Protocol::Auto, HTTP1, Some(CLIENT)).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_subgraph_may_listen_on_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("products.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"{\"query\":\"{a}\"}") {
            stream.read_buf(&mut request).await.unwrap();
        }
        let response =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(response).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    let url = format!("unix://{}?path=/graphql", path.display());
    let upstream = Upstream::new("products", &url, no_retries(), None).unwrap();
    assert_eq!(local(fetch(&upstream)).await.unwrap().body, "{}");
    let request = server.await.unwrap();
    assert!(request.starts_with("POST /graphql HTTP/1.1\r\nhost: localhost\r\n"), "{request}");
    let error = local(fetch(&upstream)).await.unwrap_err();
    assert_eq!(error.to_string(), "connection failed: connection refused");
}
