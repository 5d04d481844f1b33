//! Connecting to real sockets on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::sync::Arc;
use std::time::Duration;

use net::{ConnectError, TlsClient, connect};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const AUTHORITY: &[u8] = include_bytes!("certificates/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("certificates/localhost.pem");
const KEY: &[u8] = include_bytes!("certificates/localhost.key");
const TIMEOUT: Duration = Duration::from_secs(10);

/// A server that answers what it is sent, over TLS; its port.
async fn tls_echo() -> u16 {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            CertificateDer::pem_slice_iter(CERTIFICATE).map(Result::unwrap).collect(),
            PrivateKeyDer::from_pem_slice(KEY).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut buffer = [0; 5];
                if stream.read_exact(&mut buffer).await.is_ok() {
                    let _ = stream.write_all(&buffer).await;
                    let _ = stream.shutdown().await;
                }
            }
        }
    });
    port
}

async fn echo(host: &str, port: u16, tls: Option<&TlsClient>) -> Result<String, ConnectError> {
    let mut stream = connect(host, port, tls, TIMEOUT).await?;
    stream.write_all(b"hello").await.unwrap();
    stream.flush().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    Ok(text)
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_is_talked_to() {
    let port = tls_echo().await;
    let tls = TlsClient::with_roots(AUTHORITY, &[b"http/1.1"]).unwrap();
    // `localhost` may resolve to IPv6 first, where nothing listens: the next address is tried.
    assert_eq!(echo("localhost", port, Some(&tls)).await, Ok("hello".into()));
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_and_the_message_names_none() {
    let port = tls_echo().await;
    let tls = TlsClient::with_roots(AUTHORITY, &[]).unwrap();
    let error = echo("127.0.0.1", port, Some(&tls)).await.unwrap_err();
    assert_eq!(error.to_string(), "TLS: the server's certificate is for another name");
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let port = tls_echo().await;
    // The server's own certificate is no authority for itself here.
    let other = TlsClient::with_roots(include_bytes!("certificates/other.pem"), &[]).unwrap();
    let error = echo("localhost", port, Some(&other)).await.unwrap_err();
    assert_eq!(error.to_string(), "TLS: the server's certificate is not trusted");
}

#[tokio::test]
async fn a_server_without_tls_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let tls = TlsClient::with_roots(AUTHORITY, &[]).unwrap();
    let error = echo("127.0.0.1", port, Some(&tls)).await.unwrap_err();
    assert_eq!(error.to_string(), "TLS: the server does not speak TLS");
}

#[tokio::test]
async fn plain_connections_go_both_ways_also_with_brackets_around_the_address() {
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        println!("skipped: no IPv6 on loopback");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 5];
        stream.read_exact(&mut buffer).await.unwrap();
        stream.write_all(&buffer).await.unwrap();
    });
    assert_eq!(echo("[::1]", port, None).await, Ok("hello".into()));
}

#[tokio::test]
async fn a_closed_port_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = echo("127.0.0.1", port, None).await.unwrap_err();
    assert_eq!(error.to_string(), "connection refused");
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = TlsClient::with_roots(AUTHORITY, &[]).unwrap();
    let timeout = Duration::from_millis(50);
    let error = connect("127.0.0.1", port, Some(&tls), timeout).await.unwrap_err();
    assert_eq!(error, ConnectError::Timeout(timeout));
}

#[test]
fn text_that_is_no_certificate_is_refused() {
    for pem in [&b""[..], b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
    {
        assert!(TlsClient::with_roots(pem, &[]).is_err());
    }
}
