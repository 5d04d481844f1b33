//! Signed tokens for measured clients.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use test_kit::commands::Failure;

/// The secret with which the tokens are signed. It protects nothing.
const SECRET: &str = "the tokens of measurements protect nothing at all";

/// The time for which tokens are valid, longer than any measurement.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The length of a claim that no rule reads, so that tokens have the size of real ones: half a kilobyte and more.
const UNUSED_CLAIM_BYTES: usize = 300;

/// Returns the section of a router's configuration that accepts the tokens.
pub(crate) fn authentication_section() -> String {
    format!("authentication: {{jwt: {{issuers: [{{secret: \"{SECRET}\"}}]}}}}\n")
}

/// Returns the token of user `number` with these scopes, separated by spaces.
pub(crate) fn sign_token(number: u32, scopes: &str) -> Result<String, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let claims = user_claims(number, scopes, (now + LIFETIME).as_secs());
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes()))
        .map_err(|error| format!("cannot sign a token: {error}"))
}

fn user_claims(number: u32, scopes: &str, expires_at: u64) -> Value {
    // Different in all of its parts, so that no server can store two of them as one.
    let mut unused = String::with_capacity(UNUSED_CLAIM_BYTES);
    let mut part = u64::from(number);
    while unused.len() < UNUSED_CLAIM_BYTES {
        part = part.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // Writing to a string cannot fail.
        let _ = write!(unused, "{part:016x}");
    }
    unused.truncate(UNUSED_CLAIM_BYTES);
    json!({
        "iss": "https://auth.example.com/",
        "sub": format!("user-{number}"),
        "tenant": "example",
        "scope": scopes,
        "exp": expires_at,
        "session": unused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_token_of_the_size_of_real_ones() {
        let tokens: Vec<String> = (0..3).map(|number| sign_token(number, "a b").unwrap()).collect();
        for token in &tokens {
            assert_eq!(token.split('.').count(), 3);
            assert!((500..900).contains(&token.len()), "{}", token.len());
        }
        assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2]);
        let claims = user_claims(7, "a b", 9);
        assert_eq!((&claims["sub"], &claims["scope"]), (&json!("user-7"), &json!("a b")));
    }
}
