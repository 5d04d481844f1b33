//! All kinds of credentials for a real `nats-server`, and the verification of the server.

use std::path::{Path, PathBuf};

use events::{BrokerTls, Message, Nats, NatsAuthentication, NatsSettings, Provider};

use test_kit::nats::NatsServer;

use super::{next, settings, subscribe, write_file};

/// The nkey of a user, made for this test only.
const NKEY_SEED: &str = "SUADBJPAVQ6EQ5XWO4T64IAS2XS5O5RTVULLXXPMTGBROENIFEUGHPCNY4";
const NKEY: &str = "UCOUXIIVLAPXBUC7INKCDDMVVNSS76WLTKZ6YAKP3KUIWNQCYPQ5RZOY";

fn certificate(name: &str) -> PathBuf {
    test_kit::certificates().join(name)
}

fn with(server: &NatsServer, authentication: NatsAuthentication) -> Nats {
    let authentication = Some(authentication);
    Nats::start(NatsSettings { authentication, ..settings(&server.url()) }).expect("settings")
}

/// Checks that events can be published and received.
async fn works(provider: &Nats) {
    let mut stream = subscribe(provider, &["a"]).await;
    provider.publish(Message::new("a", "1")).await.expect("published");
    assert_eq!(next(&mut stream).await, "a 1");
}

async fn refused(provider: &Nats) -> String {
    let reason = provider.wait_connected().await.expect_err("no server accepts it");
    assert!(!provider.is_connected());
    reason
}

#[tokio::test]
async fn an_nkey_signs_in_and_another_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!("authorization {{ users = [ {{ nkey: {NKEY} }} ] }}");
    let config = write_file(&folder, "nkey.conf", &text);
    let Some(server) = NatsServer::start_with(-1, &["-c", &config]) else { return };
    works(&with(&server, NatsAuthentication::Nkey(NKEY_SEED.into()))).await;
    // The checksum of this seed is wrong: the library reads the seed and refuses it.
    let other = NKEY_SEED.replacen("SUA", "SUB", 1);
    let reason = refused(&with(&server, NatsAuthentication::Nkey(other.clone()))).await;
    assert!(!reason.contains(&other), "{reason}");
}

#[tokio::test]
async fn a_credentials_file_signs_in_and_an_invalid_one_is_named() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nats/credentials");
    let config = files.join("server.conf");
    let arguments = ["-c", config.to_str().expect("a plain path")];
    let Some(server) = NatsServer::start_with(-1, &arguments) else { return };
    works(&with(&server, NatsAuthentication::CredentialsFile(files.join("user.creds")))).await;

    let folder = tempfile::tempdir().expect("a folder");
    let wrong = write_file(&folder, "wrong.creds", "s3cret");
    let reason = refused(&with(&server, NatsAuthentication::CredentialsFile(wrong.into()))).await;
    assert!(reason.ends_with("wrong.creds holds no JWT with the seed of its nkey"), "{reason}");
    let missing = NatsAuthentication::CredentialsFile("/no/such.creds".into());
    assert_eq!(
        refused(&with(&server, missing)).await,
        "cannot read /no/such.creds: No such file or directory (os error 2)"
    );
    refused(&Nats::start(settings(&server.url())).expect("settings")).await;
}

#[tokio::test]
async fn both_sides_show_certificates_and_nothing_is_sent_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let [cert, key, ca] = ["localhost.pem", "localhost.key", "client-ca.pem"]
        .map(|name| certificate(name).display().to_string());
    let text = format!(
        "tls {{ cert_file: \"{cert}\", key_file: \"{key}\", ca_file: \"{ca}\", verify: true }}"
    );
    let config = write_file(&folder, "tls.conf", &text);
    let Some(server) = NatsServer::start_with(-1, &["-c", &config]) else { return };
    let own = BrokerTls {
        ca: Some(certificate("ca.pem")),
        certificate: Some(certificate("client.pem")),
        key: Some(certificate("client.key")),
    };
    let provider = |scheme: &str, port: u16, tls: BrokerTls| {
        let url = format!("{scheme}://localhost:{port}");
        Nats::start(NatsSettings { tls: Some(tls), ..settings(&url) }).expect("settings")
    };
    works(&provider("tls", server.port(), own.clone())).await;
    works(&provider("nats", server.port(), own.clone())).await;
    let unknown = BrokerTls { certificate: None, key: None, ..own.clone() };
    refused(&provider("tls", server.port(), unknown)).await;
    let mistrusting = BrokerTls { ca: Some(certificate("other.pem")), ..own.clone() };
    refused(&provider("tls", server.port(), mistrusting)).await;
    let plain = NatsServer::start().expect("it is installed");
    refused(&provider("nats", plain.port(), own.clone())).await;

    let half = NatsSettings { tls: Some(BrokerTls { key: None, ..own }), ..settings("nats://a") };
    let error = Nats::start(half).unwrap_err().to_string();
    assert_eq!(error, "tls: a certificate needs its key, and a key its certificate");
}
