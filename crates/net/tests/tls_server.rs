//! The server side of TLS, with clients of rustls.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use net::{TlsServer, TlsServerFiles, negotiated_protocol};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
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
    }
}

/// A client that trusts `authority` and shows the certificate `identity`.
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

/// Shakes hands and sends five bytes; what has been agreed on, if it works on both sides.
async fn meet(server: &TlsServer, client: &TlsConnector) -> Result<Option<Vec<u8>>, String> {
    let (ours, theirs) = duplex(64 << 10);
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = async {
        let mut stream = client.connect(name, theirs).await.map_err(|error| error.to_string())?;
        stream.write_all(b"hello").await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        // Who leaves at once breaks what the server still has to say.
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
async fn where_clients_need_a_certificate_only_those_are_let_in() {
    let server = TlsServer::load(files("localhost", Some("client-ca.pem")), &[]).unwrap();
    assert_eq!(meet(&server, &client("ca.pem", Some("client"), &[])).await, Ok(None));
    let without = meet(&server, &client("ca.pem", None, &[])).await.unwrap_err();
    assert!(without.contains("peer sent no certificates"), "{without}");
    // Signed by an authority, but not by one of those.
    let other = meet(&server, &client("ca.pem", Some("localhost2"), &[])).await.unwrap_err();
    assert!(other.contains("invalid peer certificate"), "{other}");
}

#[tokio::test]
async fn what_cannot_be_used_does_not_replace_what_serves() {
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
    };
    let server = TlsServer::load(files, &[]).unwrap();
    let (old, new) = (client("ca.pem", None, &[]), client("ca2.pem", None, &[]));
    assert!(meet(&server, &old).await.is_ok());

    // Half of a change.
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
