//! The server side of TLS, tested with clients of rustls.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use net::{
    TlsProgress, TlsServer, TlsServerFiles, TlsSession, has_client_certificate, negotiated_protocol,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsConnector;

fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates")
}

fn files(name: &str, client_authorities: Option<&str>) -> TlsServerFiles {
    let folder = certificates();
    TlsServerFiles {
        certificates: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
        client_authorities: client_authorities.map(|it| folder.join(it)),
        accepts_anonymous: false,
    }
}

/// Returns a client that trusts `authority` and presents the certificate `identity`.
fn client(authority: &str, identity: Option<&str>, protocols: &[&[u8]]) -> TlsConnector {
    let read = |name: &str| std::fs::read(certificates().join(name)).unwrap();
    let chain = |name: &str| {
        CertificateDer::pem_slice_iter(&read(name)).map(Result::unwrap).collect::<Vec<_>>()
    };
    let mut roots = RootCertStore::empty();
    roots.add(chain(authority).remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let key = PrivateKeyDer::from_pem_slice(&read(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(chain(&format!("{name}.pem")), key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// Does a handshake, sends five bytes, and returns the protocol that was agreed on, if it works on both sides.
async fn meet(server: &TlsServer, client: &TlsConnector) -> Result<Option<Vec<u8>>, String> {
    let (ours, theirs) = duplex(64 << 10);
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = async {
        let mut stream = client.connect(name, theirs).await.map_err(|error| error.to_string())?;
        stream.write_all(b"hello").await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        // A client that disconnects at once breaks off the rest of the data of the server.
        stream.read_u8().await.map(drop).map_err(|error| error.to_string())
    };
    let serving = async {
        let mut stream = server.handshake(ours).await.map_err(|error| error.to_string())?;
        let mut word = [0; 5];
        stream.read_exact(&mut word).await.map_err(|error| error.to_string())?;
        assert_eq!(&word, b"hello");
        stream.write_all(b"!").await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        Ok::<_, String>(negotiated_protocol(&stream).map(<[u8]>::to_vec))
    };
    let (connected, served) = tokio::join!(connecting, serving);
    served.and_then(|protocol| connected.map(|()| protocol))
}

/// Returns the parts of a session after its handshake: the carrier, the session, and the client's side. The client has
/// sent `first` together with the end of the handshake, and has not read yet.
async fn session(
    server: &TlsServer,
    first: &[u8],
) -> (DuplexStream, TlsSession, tokio_rustls::client::TlsStream<DuplexStream>) {
    let (ours, theirs) = duplex(1 << 20);
    let connector = client("ca.pem", None, &[]);
    let connecting = async {
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = connector.connect(name, theirs).await.unwrap();
        stream.write_all(first).await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let (served, connected) = tokio::join!(server.handshake(ours), connecting);
    let (carrier, session) = TlsSession::from_stream(served.unwrap());
    (carrier, session, connected)
}

/// Feeds the session with the client's data, in pieces of at most `piece` bytes.
async fn hear(
    carrier: &mut DuplexStream,
    session: &mut TlsSession,
    expected: usize,
    piece: usize,
) -> (Vec<u8>, TlsProgress) {
    let mut plain = Vec::new();
    let mut progress = session.receive(&[], &mut plain);
    let mut buffer = vec![0; piece];
    while plain.len() < expected && progress == TlsProgress::Open {
        let count = carrier.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "the client has gone");
        progress = session.receive(&buffer[..count], &mut plain);
    }
    (plain, progress)
}

#[tokio::test]
async fn a_session_continues_where_the_stream_stopped() {
    let server = TlsServer::load(files("localhost", None), &[]).unwrap();
    for (first, piece) in [(&b"hello"[..], 1 << 16), (&[7; 40_000], 1 << 16), (b"", 1), (b"x", 7)] {
        let (mut carrier, mut session, mut client) = session(&server, first).await;
        client.write_all(b", world").await.unwrap();
        client.flush().await.unwrap();
        let said = [first, b", world"].concat();
        let heard = hear(&mut carrier, &mut session, said.len(), piece).await;
        assert!(heard == (said, TlsProgress::Open), "{} bytes", heard.0.len());

        let body = vec![b'y'; 100_000];
        let mut records = Vec::new();
        session.send([b"<", &body, b">"], &mut records);
        session.close();
        session.take_records(&mut records);
        carrier.write_all(&records).await.unwrap();
        let mut response = Vec::new();
        client.read_to_end(&mut response).await.unwrap();
        assert!(response == [b"<", &body[..], b">"].concat());
    }
}

#[tokio::test]
async fn a_session_reports_its_end_and_invalid_records() {
    let server = TlsServer::load(files("localhost", None), &[]).unwrap();
    let (mut carrier, mut by_hand, mut client) = session(&server, b"bye").await;
    client.shutdown().await.unwrap();
    let heard = hear(&mut carrier, &mut by_hand, usize::MAX, 1000).await;
    assert_eq!(heard, (b"bye".to_vec(), TlsProgress::Ended));

    let (_carrier, mut by_hand, _client) = session(&server, b"").await;
    let mut plain = Vec::new();
    assert_eq!(by_hand.receive(&[0x17; 100], &mut plain), TlsProgress::Failed);
    let mut records = Vec::new();
    by_hand.take_records(&mut records);
    // The records contain an alert.
    assert!(plain.is_empty() && !records.is_empty());
    assert_eq!(by_hand.receive(&[], &mut plain), TlsProgress::Failed);
}

#[tokio::test]
async fn the_server_s_order_of_protocols_decides() {
    let server = TlsServer::load(files("localhost", None), &[b"h2", b"http/1.1"]).unwrap();
    for (offered, expected) in [
        (&[&b"http/1.1"[..], b"h2"][..], Some(&b"h2"[..])),
        (&[b"http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let met = meet(&server, &client("ca.pem", None, offered)).await;
        assert_eq!(met, Ok(expected.map(<[u8]>::to_vec)));
    }
    let met = meet(&server, &client("ca.pem", None, &[b"spdy/3"])).await;
    assert!(met.is_err(), "no protocol in common: {met:?}");
}

#[tokio::test]
async fn a_server_with_client_authorities_accepts_only_their_clients() {
    let server = TlsServer::load(files("localhost", Some("client-ca.pem")), &[]).unwrap();
    assert_eq!(meet(&server, &client("ca.pem", Some("client"), &[])).await, Ok(None));
    let without = meet(&server, &client("ca.pem", None, &[])).await.unwrap_err();
    assert!(without.contains("peer sent no certificates"), "{without}");
    // The certificate is signed by an authority, but not by one of the server's.
    let other = meet(&server, &client("ca.pem", Some("localhost2"), &[])).await.unwrap_err();
    assert!(other.contains("invalid peer certificate"), "{other}");
}

#[tokio::test]
async fn a_server_that_accepts_anonymous_clients_knows_which_have_a_certificate() {
    let mut files = files("localhost", Some("client-ca.pem"));
    files.accepts_anonymous = true;
    let server = TlsServer::load(files, &[]).unwrap();
    for (identity, is_known) in [(Some("client"), true), (None, false)] {
        let (ours, theirs) = duplex(64 << 10);
        let client = client("ca.pem", identity, &[]);
        let name = ServerName::try_from("localhost").unwrap();
        let (accepted, connected) =
            tokio::join!(server.handshake(ours), client.connect(name, theirs));
        connected.unwrap();
        assert_eq!(has_client_certificate(&accepted.unwrap()), is_known, "{identity:?}");
    }
    let other = meet(&server, &client("ca.pem", Some("localhost2"), &[])).await.unwrap_err();
    assert!(other.contains("invalid peer certificate"), "{other}");
}

#[tokio::test]
async fn unusable_files_do_not_replace_the_certificates_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let put = |name: &str| {
        for ending in ["pem", "key"] {
            let from = certificates().join(format!("{name}.{ending}"));
            std::fs::copy(from, place(&format!("server.{ending}"))).unwrap();
        }
    };
    put("localhost");
    let files = TlsServerFiles {
        certificates: place("server.pem"),
        key: place("server.key"),
        client_authorities: None,
        accepts_anonymous: false,
    };
    let server = TlsServer::load(files, &[]).unwrap();
    let (old, new) = (client("ca.pem", None, &[]), client("ca2.pem", None, &[]));
    assert!(meet(&server, &old).await.is_ok());

    // Only one of the two files is replaced.
    std::fs::copy(certificates().join("localhost2.pem"), place("server.pem")).unwrap();
    assert!(server.reload().is_err());
    std::fs::write(place("server.pem"), "").unwrap();
    assert!(server.reload().is_err());
    std::fs::remove_file(place("server.pem")).unwrap();
    assert!(server.reload().is_err());
    assert!(meet(&server, &old).await.is_ok());

    put("localhost2");
    server.reload().unwrap();
    assert!(meet(&server, &new).await.is_ok());
    assert!(meet(&server, &old).await.is_err());
}
