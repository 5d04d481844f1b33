//! Connections to real sockets on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::sync::Arc;
use std::time::Duration;

use net::{ConnectError, Roots, TlsClient, TlsError, TlsIdentity, connect};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const AUTHORITY: &[u8] = include_bytes!("certificates/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("certificates/localhost.pem");
const KEY: &[u8] = include_bytes!("certificates/localhost.key");
const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts a TLS server that sends back what it receives, and returns its port.
async fn tls_echo() -> u16 {
    tls_echo_for(None).await
}

/// Starts the same server for clients with a certificate of this authority only.
async fn tls_echo_for(clients_of: Option<&[u8]>) -> u16 {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients_of {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let mut config = builder
        .with_single_cert(
            CertificateDer::pem_slice_iter(CERTIFICATE).map(Result::unwrap).collect(),
            PrivateKeyDer::from_pem_slice(KEY).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
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
    // In TLS 1.3 a server that refuses us says so after our side of the handshake is done.
    let _ = stream.read_to_string(&mut text).await;
    Ok(text)
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_is_connected_to() {
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
async fn a_server_without_tls_is_recognized() {
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

#[tokio::test]
async fn a_server_that_wants_a_certificate_gets_ours_and_rejects_others() {
    let port = tls_echo_for(Some(include_bytes!("certificates/client-ca.pem"))).await;
    let ours = TlsIdentity {
        certificates: include_bytes!("certificates/client.pem"),
        key: include_bytes!("certificates/client.key"),
    };
    let tls = TlsClient::new(Roots::Pem(AUTHORITY), Some(ours), &[]).unwrap();
    assert_eq!(echo("localhost", port, Some(&tls)).await, Ok("hello".into()));
    let another = TlsIdentity { certificates: CERTIFICATE, key: KEY };
    for identity in [None, Some(another)] {
        let tls = TlsClient::new(Roots::Pem(AUTHORITY), identity, &[]).unwrap();
        assert_eq!(echo("localhost", port, Some(&tls)).await, Ok(String::new()));
    }
}

#[tokio::test]
async fn a_protocol_that_both_sides_support_is_agreed_on() {
    let port = tls_echo().await;
    for (offered, agreed) in [
        (&[&b"h2"[..], b"http/1.1"][..], Some(&b"h2"[..])),
        (&[b"http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let tls = TlsClient::with_roots(AUTHORITY, offered).unwrap();
        let stream = connect("localhost", port, Some(&tls), TIMEOUT).await.unwrap();
        assert_eq!(stream.agreed_protocol(), agreed);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_is_connected_to_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let refused = net::connect_unix(&path, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.to_string(), "entity not found");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"hello").await.unwrap();
    });
    let mut text = String::new();
    let mut stream = net::connect_unix(&path, TIMEOUT).await.unwrap();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hello");
}

#[test]
fn a_certificate_and_a_key_that_do_not_belong_together_are_refused() {
    let identity =
        TlsIdentity { certificates: CERTIFICATE, key: include_bytes!("certificates/client.key") };
    let refused = TlsClient::new(Roots::Pem(AUTHORITY), Some(identity), &[]).unwrap_err();
    assert!(matches!(refused, TlsError::Identity(_)), "{refused}");
    let no_key = TlsIdentity { certificates: CERTIFICATE, key: b"hello" };
    let refused = TlsClient::new(Roots::Pem(AUTHORITY), Some(no_key), &[]).unwrap_err();
    assert!(refused.to_string().contains("its key"), "{refused}");
}
