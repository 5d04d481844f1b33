//! Tests of tokens: valid ones, and those that an attacker would create.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use authentication::{Algorithm, Issuer, IssuerId, KeySet, Rejection, TokenUse, Verifier};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use execute::{ClaimPath, Claims};
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

const NOW: u64 = 1_800_000_000;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn key(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/keys/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).expect("a key")
}

fn issuer() -> Issuer {
    Issuer {
        name: Some("https://issuer".into()),
        audiences: vec!["starling".into()],
        algorithms: vec![Algorithm::RS256],
        leeway: Duration::from_secs(10),
        keys: KeySet::from_public_key(&key("rsa.pub.pem")).expect("a public key"),
    }
}

fn verifier() -> Verifier {
    Verifier::new(vec![issuer()], 4096)
}

fn claims() -> Value {
    json!({"iss": "https://issuer", "aud": "starling", "sub": "u1", "exp": NOW + 60})
}

fn with(changes: Value) -> Value {
    let mut claims = claims();
    let (Value::Object(claims_), Value::Object(changes)) = (&mut claims, changes) else {
        panic!("objects")
    };
    for (name, value) in changes {
        match value {
            Value::Null => claims_.remove(&name),
            value => claims_.insert(name, value),
        };
    }
    claims
}

fn signed(claims: &Value) -> String {
    let key = EncodingKey::from_rsa_pem(&key("rsa.pem")).expect("a private key");
    encode(&Header::new(Algorithm::RS256), claims, &key).expect("a token")
}

fn unsigned(header: &Value, claims: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(header), part(claims))
}

fn refused(token: &str) -> Option<Rejection> {
    verifier().verify(token, TokenUse::Request, at(NOW)).err()
}

#[test]
fn a_valid_token_yields_its_claims() {
    let verifier = verifier();
    let verified =
        verifier.verify(&signed(&claims()), TokenUse::Request, at(NOW)).expect("a good token");
    let path = ClaimPath::parse("sub").expect("a name");
    let values = Claims::select(Some(&verified.claims), [&path]);
    assert_eq!(values.text(&path).as_deref(), Some("u1"));
    assert_eq!(verified.identity.expires_at(), NOW + 70);
    assert_eq!(verified.identity.time_left(at(NOW)), Duration::from_secs(70));
    assert!(!format!("{verified:?}").contains("u1"));
}

#[test]
fn a_token_of_another_issuer_or_for_another_audience_is_refused() {
    for (claims, expected) in [
        (with(json!({"iss": "https://other"})), Rejection::Issuer),
        (with(json!({"iss": null})), Rejection::Issuer),
        (with(json!({"iss": 7})), Rejection::Issuer),
        (with(json!({"aud": "other"})), Rejection::Audience),
        (with(json!({"aud": ["other"]})), Rejection::Audience),
        (with(json!({"aud": []})), Rejection::Audience),
        (with(json!({"aud": null})), Rejection::Audience),
        (with(json!({"aud": {"starling": 1}})), Rejection::Audience),
    ] {
        assert_eq!(refused(&signed(&claims)), Some(expected), "{claims}");
    }
    assert_eq!(refused(&signed(&with(json!({"aud": ["other", "starling"]})))), None);
}

#[test]
fn a_token_for_an_audience_is_refused_if_none_is_configured() {
    let verifier = Verifier::new(vec![Issuer { audiences: vec![], ..issuer() }], 4096);
    let verify = |claims| verifier.verify(&signed(&claims), TokenUse::Request, at(NOW)).err();
    assert_eq!(verify(claims()), Some(Rejection::Audience));
    assert_eq!(verify(with(json!({"aud": null}))), None);
}

#[test]
fn a_token_is_valid_in_its_time_with_some_leeway_for_clocks() {
    for (claims, expected) in [
        (with(json!({"exp": NOW - 9})), None),
        (with(json!({"exp": NOW - 10})), Some(Rejection::Expired)),
        (with(json!({"exp": NOW as f64 - 9.5})), Some(Rejection::Expired)),
        (with(json!({"exp": 0})), Some(Rejection::Expired)),
        (with(json!({"exp": 1u64 << 60})), None),
        (with(json!({"exp": -1})), Some(Rejection::Malformed)),
        (with(json!({"exp": null})), Some(Rejection::NoExpiry)),
        (with(json!({"exp": "never"})), Some(Rejection::Malformed)),
        (with(json!({"nbf": NOW + 10})), None),
        (with(json!({"nbf": NOW + 11})), Some(Rejection::NotYet)),
        (with(json!({"nbf": "soon"})), Some(Rejection::Malformed)),
    ] {
        assert_eq!(refused(&signed(&claims)), expected, "{claims}");
    }
}

#[test]
fn a_token_without_a_signature_is_refused() {
    for algorithm in ["none", "None", "NONE", "nOnE", ""] {
        for signature in ["", "AAAA"] {
            let token = unsigned(&json!({"alg": algorithm, "typ": "JWT"}), &claims(), signature);
            assert_eq!(refused(&token), Some(Rejection::Malformed), "{algorithm}");
        }
    }
    let token = unsigned(&json!({"alg": "RS256"}), &claims(), "");
    assert_eq!(refused(&token), Some(Rejection::Signature));
}

#[test]
fn a_public_key_is_never_used_as_a_shared_secret() {
    for secret in [key("rsa.pub.pem"), KEY_DER.with(|it| it.to_vec())] {
        let forged =
            encode(&Header::new(Algorithm::HS256), &claims(), &EncodingKey::from_secret(&secret))
                .expect("a token");
        assert_eq!(refused(&forged), Some(Rejection::Algorithm));
        // Such a token is refused even if both algorithms are allowed.
        let algorithms = vec![Algorithm::RS256, Algorithm::HS256];
        let careless = Verifier::new(vec![Issuer { algorithms, ..issuer() }], 4096);
        let rejection = careless.verify(&forged, TokenUse::Request, at(NOW)).err();
        assert_eq!(rejection, Some(Rejection::UnknownKey(IssuerId(0))));
    }
}

thread_local! {
    static KEY_DER: Vec<u8> = {
        let pem = String::from_utf8(key("rsa.pub.pem")).expect("text");
        let lines: String = pem.lines().filter(|it| !it.starts_with('-')).collect();
        base64::engine::general_purpose::STANDARD.decode(lines).expect("base64")
    };
}

#[test]
fn a_key_in_the_header_of_a_token_is_ignored() {
    let header = Header {
        jku: Some("https://attacker/keys".into()),
        jwk: None,
        x5u: Some("https://attacker/cert".into()),
        ..Header::new(Algorithm::RS256)
    };
    let other = EncodingKey::from_rsa_pem(&key("other.pem")).expect("a key");
    let token = encode(&header, &claims(), &other).expect("a token");
    assert_eq!(refused(&token), Some(Rejection::Signature));
}

#[test]
fn critical_header_parameters_are_refused() {
    let header = Header { crit: Some(vec!["b64".into()]), ..Header::new(Algorithm::RS256) };
    let own = EncodingKey::from_rsa_pem(&key("rsa.pem")).expect("a key");
    let token = encode(&header, &claims(), &own).expect("a token");
    assert_eq!(refused(&token), Some(Rejection::Malformed));
}

#[test]
fn a_duplicate_claim_is_refused() {
    let text = format!(r#"{{"iss":"https://issuer","aud":"starling","exp":1,"exp":{}}}"#, NOW + 60);
    let head = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256"}"#),
        URL_SAFE_NO_PAD.encode(text)
    );
    let own = EncodingKey::from_rsa_pem(&key("rsa.pem")).expect("a key");
    let signature = jsonwebtoken::crypto::sign(head.as_bytes(), &own, Algorithm::RS256);
    let token = format!("{head}.{}", signature.expect("a signature"));
    assert_eq!(refused(&token), Some(Rejection::Malformed));
}

#[test]
fn changed_and_broken_tokens_are_refused() {
    let token = signed(&claims());
    let parts: Vec<&str> = token.split('.').collect();
    let forged = URL_SAFE_NO_PAD.encode(with(json!({"sub": "admin"})).to_string());
    let changed = format!("{}.{forged}.{}", parts[0], parts[2]);
    assert_eq!(refused(&changed), Some(Rejection::Signature));
    for broken in
        ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", &format!("{token}.x"), "\u{fc}.\u{fc}.\u{fc}"]
    {
        assert_eq!(refused(broken), Some(Rejection::Malformed), "{broken}");
    }
    let long = format!("{}{}", token, "A".repeat(4096));
    assert_eq!(refused(&long), Some(Rejection::TooLong));
}

#[test]
fn keys_are_found_by_their_id_and_a_revoked_key_verifies_no_token() {
    let issuer = Issuer { algorithms: vec![Algorithm::ES256], keys: KeySet::default(), ..issuer() };
    let verifier = Verifier::new(vec![issuer], 4096);
    let ec = EncodingKey::from_ec_pem(&key("ec.pem")).expect("a key");
    let jwk = |id: &str| {
        let jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&ec, Algorithm::ES256);
        let mut jwk = serde_json::to_value(jwk.expect("a key")).expect("JSON");
        jwk["kid"] = id.into();
        KeySet::from_jwks(json!({"keys": [jwk]}).to_string().as_bytes()).expect("a set")
    };
    let header = Header { kid: Some("one".into()), ..Header::new(Algorithm::ES256) };
    let token = encode(&header, &claims(), &ec).expect("a token");
    let rejection = |verifier: &Verifier| verifier.verify(&token, TokenUse::Request, at(NOW)).err();
    assert_eq!(rejection(&verifier), Some(Rejection::NoKeys(IssuerId(0))));
    verifier.replace_keys(IssuerId(0), jwk("two"));
    assert_eq!(rejection(&verifier), Some(Rejection::UnknownKey(IssuerId(0))));
    verifier.replace_keys(IssuerId(0), jwk("one"));
    assert_eq!(rejection(&verifier), None);
    assert!(verifier.recall(&token, at(NOW)).is_some());
    verifier.replace_keys(IssuerId(0), jwk("two"));
    assert!(verifier.recall(&token, at(NOW)).is_none());
    assert_eq!(rejection(&verifier), Some(Rejection::UnknownKey(IssuerId(0))));
}

#[test]
fn an_empty_key_set_revokes_all_keys_and_an_unknown_one_makes_no_statement() {
    let verifier = verifier();
    let token = signed(&claims());
    assert!(verifier.verify(&token, TokenUse::Request, at(NOW)).is_ok());
    let empty = KeySet::from_jwks(br#"{"keys":[]}"#).expect("a set");
    verifier.replace_keys(IssuerId(0), empty);
    let rejection = || verifier.verify(&token, TokenUse::Request, at(NOW)).err();
    assert_eq!(rejection(), Some(Rejection::UnknownKey(IssuerId(0))));
    verifier.replace_keys(IssuerId(0), KeySet::default());
    assert_eq!(rejection(), Some(Rejection::NoKeys(IssuerId(0))));
}

#[test]
fn a_verified_token_is_cached_until_it_expires() {
    let verifier = verifier();
    let token = signed(&claims());
    assert!(verifier.recall(&token, at(NOW)).is_none(), "not seen yet");
    let first = verifier.verify(&token, TokenUse::Request, at(NOW)).expect("a good token");
    let again = verifier.recall(&token, at(NOW + 69)).expect("it is cached");
    assert!(Arc::ptr_eq(&first, &again));
    assert!(verifier.recall(&token, at(NOW + 70)).is_none());
    assert_eq!(
        verifier.verify(&token, TokenUse::Request, at(NOW + 70)).err(),
        Some(Rejection::Expired)
    );
}

#[test]
fn the_token_of_a_connection_is_cached_once_it_comes_again() {
    let verifier = verifier();
    let token = signed(&claims());
    let verify = || verifier.verify(&token, TokenUse::Connection, at(NOW)).expect("a good token");
    let first = verify();
    assert!(verifier.recall(&token, at(NOW)).is_none(), "a connection keeps what it needs");
    let second = verify();
    assert!(!Arc::ptr_eq(&first, &second), "verified again");
    assert!(Arc::ptr_eq(&second, &verify()));
    assert_eq!(first.identity, second.identity);
}

#[test]
fn each_issuer_verifies_only_its_own_tokens() {
    let other = Issuer {
        name: Some("https://other".into()),
        audiences: vec!["starling".into()],
        algorithms: vec![Algorithm::HS256],
        leeway: Duration::ZERO,
        keys: KeySet::from_secret(&[7; 32], &[Algorithm::HS256]).expect("a secret"),
    };
    let verifier = Verifier::new(vec![issuer(), other], 4096);
    let hmac = |claims: &Value| {
        let key = EncodingKey::from_secret(&[7; 32]);
        encode(&Header::new(Algorithm::HS256), claims, &key).expect("a token")
    };
    assert!(verifier.verify(&signed(&claims()), TokenUse::Request, at(NOW)).is_ok());
    let theirs = with(json!({"iss": "https://other"}));
    assert!(verifier.verify(&hmac(&theirs), TokenUse::Request, at(NOW)).is_ok());
    // The key of one issuer does not verify tokens of the other.
    let rejection = |token: &str| verifier.verify(token, TokenUse::Request, at(NOW)).err();
    assert_eq!(rejection(&hmac(&claims())), Some(Rejection::Algorithm));
    assert_eq!(rejection(&signed(&theirs)), Some(Rejection::Algorithm));
}

proptest::proptest! {
    #[test]
    fn no_random_text_is_a_valid_token(text in ".{0,200}") {
        proptest::prop_assert!(verifier().verify(&text, TokenUse::Request, at(NOW)).is_err());
    }

    #[test]
    fn a_token_with_one_changed_byte_is_refused(place in 0..10_000_usize, letter in "[A-Za-z0-9_-]") {
        let token = signed(&claims());
        let place = place % token.len();
        let mut changed = token.clone();
        changed.replace_range(place..=place, &letter);
        let is_same = changed == token;
        // The last letter has unused bits, which must be zero.
        proptest::prop_assert_eq!(verifier().verify(&changed, TokenUse::Request, at(NOW)).is_ok(), is_same);
    }
}
