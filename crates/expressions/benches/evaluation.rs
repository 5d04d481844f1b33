//! The time to evaluate typical expressions of header rules, conditions and keys of rate limits.
#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up must fail")]

use std::net::{IpAddr, Ipv4Addr};

use divan::Bencher;
use execute::Claims;
use expressions::{ClaimFacts, ClientFacts, Expected, Program, RequestFacts, Scope};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Claims of the size that identity providers write: 500 bytes.
const CLAIMS: &str = r#"{"iss":"https://login.example.com/realms/shop","sub":"0c9f7a2e-7d4b-4f7e-9b1c-2f5d8a1c3e44","aud":["graph","account"],"exp":1700000300,"iat":1700000000,"jti":"5a3f0f8e-0f0e-4c56-9a4b-0a4c4cf0b1a7","typ":"Bearer","azp":"web","tenant":"acme","scope":"openid profile email","roles":["reader","writer","moderator"],"realm_access":{"roles":["offline_access","default"]},"email_verified":true,"name":"A User","preferred_username":"auser","email":"a.user@example.com"}"#;

/// Two expressions of header rules, a condition of a block, and the key of a rate limit.
const EXPRESSIONS: [&str; 4] = [
    "claims.?tenant.orValue('none')",
    "request.headers[?'x-request-id'].orValue(client.name + '/' + client.version)",
    "client.name == '' && request.method == 'GET'",
    "has(claims.sub) ? claims.sub : request.client_address",
];

fn main() {
    divan::main();
}

fn headers() -> HeaderMap {
    let names = ["host", "accept", "content-type", "authorization", "user-agent", "x-tenant"];
    let pair = |name| (HeaderName::from_static(name), HeaderValue::from_static("some value"));
    names.into_iter().map(pair).collect()
}

fn facts<'a>(headers: &'a HeaderMap, claims: ClaimFacts<'a>) -> RequestFacts<'a> {
    RequestFacts {
        method: "POST",
        path: "/graphql",
        headers: Some(headers),
        client_address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        client: ClientFacts { name: "web", version: "1.2.3" },
        claims,
        ..RequestFacts::default()
    }
}

/// With claims that were selected once for all expressions of a request.
#[divan::bench(args = EXPRESSIONS)]
fn selected_claims(bencher: Bencher<'_, '_>, text: &str) {
    let program = Program::compile(text, Scope::REQUEST, Expected::Text).unwrap();
    let (headers, claims) = (headers(), Claims::new(CLAIMS.into()).unwrap());
    let selected = Claims::select(Some(&claims), &program.references().claims);
    let facts = facts(&headers, ClaimFacts::Selected(&selected));
    bencher.bench(|| program.evaluate(divan::black_box(&facts)).unwrap());
}

/// With the claims selected from the token.
#[divan::bench(args = EXPRESSIONS)]
fn whole_token(bencher: Bencher<'_, '_>, text: &str) {
    let program = Program::compile(text, Scope::REQUEST, Expected::Text).unwrap();
    let (headers, claims) = (headers(), Claims::new(CLAIMS.into()).unwrap());
    let facts = facts(&headers, ClaimFacts::Token(&claims));
    bencher.bench(|| program.evaluate(divan::black_box(&facts)).unwrap());
}

#[divan::bench(args = EXPRESSIONS)]
fn compiling(text: &str) -> Program {
    Program::compile(text, Scope::REQUEST, Expected::Text).unwrap()
}
