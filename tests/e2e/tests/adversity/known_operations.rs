//! Automatic persisted queries and persisted documents: hashes that are wrong, manifests with mistakes, ids that are no
//! ids.

use std::fmt::Write;
use std::path::Path;

use e2e::HttpResponse;
use expect_test::expect;
use serde_json::{Value, json};

use crate::responses::{case, format_response};
use crate::shop::Shop;
use crate::socket::Socket;

const QUERY: &str = "{ warehouse { city } }";
const DATA: &str = r#"{"data":{"warehouse":{"city":"Bergen"}}}"#;

/// The SHA-256 of [`QUERY`].
const QUERY_HASH: &str = "3fed2defada7c784d7a39ce3cda2025da1892fc36e9b2b65d3db03260944372c";

fn persisted(hash: impl Into<Value>) -> Value {
    json!({ "persistedQuery": { "version": 1, "sha256Hash": hash.into() } })
}

fn post(shop: &Shop, target: &str, body: &Value) -> HttpResponse {
    let headers = [("content-type", "application/json")];
    let body = body.to_string();
    e2e::request(shop.address(), "POST", target, &headers, body.as_bytes()).unwrap()
}

fn get(shop: &Shop, target: &str) -> HttpResponse {
    e2e::request(shop.address(), "GET", target, &[], b"").unwrap()
}

/// Returns the status and the codes of the errors, or the data.
fn outcome(response: &HttpResponse) -> String {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let result = match body["errors"][0]["extensions"]["code"].as_str() {
        Some(code) => code.to_owned(),
        None => body["data"].to_string(),
    };
    format!("{} {result}", response.status)
}

#[test]
fn a_hash_that_is_wrong_is_refused_with_the_reason_and_stores_nothing() {
    let shop = Shop::with("http: {batching: {enabled: true}}");
    let cases = [
        ("of another text", json!({ "query": QUERY, "extensions": persisted("0".repeat(64)) })),
        ("too short", json!({ "query": QUERY, "extensions": persisted("ab") })),
        ("no text", json!({ "query": QUERY, "extensions": persisted(7) })),
        ("no object", json!({ "query": QUERY, "extensions": { "persistedQuery": "ab" } })),
        (
            "another version",
            json!({ "query": QUERY, "extensions": { "persistedQuery": { "version": 2, "sha256Hash": QUERY_HASH } } }),
        ),
        ("unknown", json!({ "extensions": persisted(QUERY_HASH) })),
        ("unknown and too short", json!({ "extensions": persisted("ab") })),
        ("an id without documents", json!({ "documentId": "a" })),
    ];
    let mut outcomes = String::new();
    for (name, body) in &cases {
        let response = post(&shop, "/graphql", body);
        outcomes += &case(name, &format_response(&response));
        // In a batch the others run.
        let batch = post(&shop, "/graphql", &json!([body, { "query": QUERY }]));
        let batch: Value = serde_json::from_slice(&batch.body).unwrap();
        let alone: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((&batch[0], batch[1].to_string().as_str()), (&alone, DATA), "{name}");
    }
    expect![[r#"
        --- of another text
        400 application/json; charset=utf-8
        {"errors":[{"message":"`extensions.persistedQuery.sha256Hash` is not the SHA-256 of `query`","extensions":{"code":"PERSISTED_QUERY_HASH_MISMATCH"}}]}

        --- too short
        400 application/json; charset=utf-8
        {"errors":[{"message":"`extensions.persistedQuery.sha256Hash` must be 64 hexadecimal digits","extensions":{"code":"BAD_REQUEST"}}]}

        --- no text
        400 application/json; charset=utf-8
        {"errors":[{"message":"`extensions.persistedQuery.sha256Hash` must be a string","extensions":{"code":"BAD_REQUEST"}}]}

        --- no object
        400 application/json; charset=utf-8
        {"errors":[{"message":"`extensions.persistedQuery` must be an object with `version` and `sha256Hash`","extensions":{"code":"BAD_REQUEST"}}]}

        --- another version
        400 application/json; charset=utf-8
        {"errors":[{"message":"`extensions.persistedQuery.version` must be 1","extensions":{"code":"BAD_REQUEST"}}]}

        --- unknown
        200 application/json; charset=utf-8
        {"errors":[{"message":"PersistedQueryNotFound","extensions":{"code":"PERSISTED_QUERY_NOT_FOUND"}}]}

        --- unknown and too short
        200 application/json; charset=utf-8
        {"errors":[{"message":"PersistedQueryNotFound","extensions":{"code":"PERSISTED_QUERY_NOT_FOUND"}}]}

        --- an id without documents
        404 application/json; charset=utf-8
        {"errors":[{"message":"no persisted document has this id, or it is for other clients","extensions":{"code":"PERSISTED_DOCUMENT_NOT_FOUND"}}]}

    "#]].assert_eq(&outcomes);
    assert_eq!(shop.router.metric("starling_apq_entries"), Some(0));
    shop.assert_unaffected();
}

#[test]
fn a_text_that_is_not_a_valid_operation_is_not_stored() {
    let shop = Shop::open();
    let query = "{ nothing }";
    let hash = "919c0b7aa452b0b2fb42688461501bb8b0c3ef3b9d05ce7b9afd4f28bbe96ceb";
    let body = json!({ "query": query, "extensions": persisted(hash) });
    assert_eq!(outcome(&post(&shop, "/graphql", &body)), "200 GRAPHQL_VALIDATION_FAILED");
    let body = json!({ "extensions": persisted(hash) });
    assert_eq!(outcome(&post(&shop, "/graphql", &body)), "200 PERSISTED_QUERY_NOT_FOUND");
    shop.assert_unaffected();
}

#[test]
fn a_stored_text_is_found_over_every_transport_and_after_a_reload() {
    let shop = Shop::open();
    let with_text = json!({ "query": QUERY, "extensions": persisted(QUERY_HASH) });
    assert_eq!(post(&shop, "/graphql", &with_text).text(), DATA);
    let supergraph = shop.supergraph();
    std::fs::write(shop.supergraph_file(), format!("{supergraph}\n# changed")).unwrap();
    shop.wait_for_metric("starling_graph_loads_total{result=\"loaded\"}", 2);
    let alone = json!({ "extensions": persisted(QUERY_HASH) });
    assert_eq!(post(&shop, "/graphql", &alone).text(), DATA);
    let extensions = persisted(QUERY_HASH).to_string();
    let encoded: String = url_encoded(&extensions);
    assert_eq!(get(&shop, &format!("/graphql?extensions={encoded}")).text(), DATA);
    let mut socket = Socket::ready(shop.address());
    socket.send(&json!({ "id": "1", "type": "subscribe", "payload": alone }).to_string());
    assert_eq!(socket.message()["payload"].to_string(), DATA);
    shop.assert_unaffected();
}

fn url_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        // Writing to a text cannot fail.
        let _ = write!(encoded, "%{byte:02X}");
        encoded
    })
}

/// A configuration with the manifest `manifest.json` in `folder` and this mode.
fn with_manifest(folder: &Path, manifest: &str, mode: &str) -> String {
    let file = folder.join("manifest.json");
    std::fs::write(&file, manifest).unwrap();
    let file = file.display();
    format!("persisted_documents: {{mode: {mode}, manifests: [{{file: '{file}'}}]}}")
}

#[test]
fn ids_are_opaque_texts_in_the_path_of_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = json!({ "a": QUERY, "b/../c": QUERY, "d": "mutation { addReview(product: 1, text: \"\") { id } }" });
    let shop = Shop::with(&with_manifest(folder.path(), &manifest.to_string(), "off"));
    let mut outcomes = String::new();
    let long = format!("/graphql/{}", "x".repeat(5_000));
    for target in [
        "/graphql/a",
        &format!("/graphql/{QUERY_HASH}"),
        &format!("/graphql/sha256:{QUERY_HASH}"),
        "/graphql/b%2F..%2Fc",
        "/graphql/b/../c",
        "/graphql/../graphql",
        "/graphql/..%2F..%2Fetc%2Fpasswd",
        "/graphql/none",
        "/graphql/%FF",
        "/graphql/%00",
        &long,
        "/graphql/a?query=%7Ba%7D",
        "/graphql/a?documentId=a",
        "/graphql/d",
    ] {
        let name = if target == long { "/graphql/xxx…" } else { target };
        writeln!(outcomes, "{} {name}", outcome(&get(&shop, target))).unwrap();
    }
    assert_eq!(
        outcome(&post(&shop, "/graphql/a", &json!({}))),
        r#"200 {"warehouse":{"city":"Bergen"}}"#
    );
    assert_eq!(outcome(&post(&shop, "/graphql/a", &json!({ "query": QUERY }))), "400 BAD_REQUEST");
    assert_eq!(
        outcome(&post(&shop, "/graphql/a", &json!([{ "query": QUERY }]))),
        "400 BAD_REQUEST"
    );
    expect![[r#"
        200 {"warehouse":{"city":"Bergen"}} /graphql/a
        200 {"warehouse":{"city":"Bergen"}} /graphql/3fed2defada7c784d7a39ce3cda2025da1892fc36e9b2b65d3db03260944372c
        200 {"warehouse":{"city":"Bergen"}} /graphql/sha256:3fed2defada7c784d7a39ce3cda2025da1892fc36e9b2b65d3db03260944372c
        200 {"warehouse":{"city":"Bergen"}} /graphql/b%2F..%2Fc
        404 null /graphql/b/../c
        404 null /graphql/../graphql
        404 PERSISTED_DOCUMENT_NOT_FOUND /graphql/..%2F..%2Fetc%2Fpasswd
        404 PERSISTED_DOCUMENT_NOT_FOUND /graphql/none
        404 null /graphql/%FF
        404 PERSISTED_DOCUMENT_NOT_FOUND /graphql/%00
        404 PERSISTED_DOCUMENT_NOT_FOUND /graphql/xxx…
        400 BAD_REQUEST /graphql/a?query=%7Ba%7D
        400 BAD_REQUEST /graphql/a?documentId=a
        405 BAD_REQUEST /graphql/d
    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

/// A manifest of Relay with documents of 4 kB that have different texts.
fn large_manifest(documents: usize) -> String {
    let padding = "x".repeat(4_000);
    let document = |number: usize| format!("\"{number}\":\"{QUERY} # {number} {padding}\"");
    let members: Vec<String> = (0..documents).map(document).collect();
    format!("{{{}}}", members.join(",\n"))
}

#[test]
fn a_manifest_of_ten_megabytes_is_read_while_others_are_served_and_a_larger_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = with_manifest(folder.path(), &json!({ "a": QUERY }).to_string(), "off")
        .replace("{mode", "{max_size: 12MiB, mode");
    let shop = Shop::with(&configuration);
    let manifest = large_manifest(2_500);
    assert!(manifest.len() > 10_000_000);
    // Renamed, so that no part of it is read.
    let replace = |manifest: String| {
        std::fs::write(folder.path().join("next.json"), manifest).unwrap();
        std::fs::rename(folder.path().join("next.json"), folder.path().join("manifest.json"))
            .unwrap();
    };
    replace(manifest);
    let served =
        || assert_eq!(outcome(&shop.query(QUERY)), r#"200 {"warehouse":{"city":"Bergen"}}"#);
    served();
    shop.wait_for_metric("starling_persisted_document_loads_total{result=\"loaded\"}", 1);
    served();
    let ask = |id: &str| outcome(&post(&shop, "/graphql", &json!({ "documentId": id })));
    assert_eq!(ask("2499"), r#"200 {"warehouse":{"city":"Bergen"}}"#);
    assert_eq!(ask("a"), "404 PERSISTED_DOCUMENT_NOT_FOUND");
    replace(large_manifest(3_500));
    shop.wait_for_metric("starling_persisted_document_loads_total{result=\"refused\"}", 1);
    assert_eq!(ask("2499"), r#"200 {"warehouse":{"city":"Bergen"}}"#, "the documents before it");
    assert_eq!(ask("3499"), "404 PERSISTED_DOCUMENT_NOT_FOUND");
    let output = shop.router.output();
    let reason =
        "the manifests are larger than 12582912 bytes together (`persisted_documents.max_size`)";
    assert!(output.contains(reason), "{output}");
    shop.assert_unaffected();
}

#[test]
fn a_manifest_with_a_mistake_is_refused_and_the_documents_before_it_stay() {
    let folder = tempfile::tempdir().unwrap();
    let known = json!({ "city": QUERY, "broken": "{ nothing }" });
    let configuration = with_manifest(folder.path(), &known.to_string(), "require_id");
    // The router has no control subscriber here: its operation is not a document.
    let shop = Shop::with_provider("memory/default", &configuration);
    let ask = |id: &str| outcome(&post(&shop, "/graphql", &json!({ "documentId": id })));
    let found = r#"200 {"warehouse":{"city":"Bergen"}}"#;
    assert_eq!(ask("city"), found);
    // A document that is not valid on the graph is counted, and the others are in use.
    shop.wait_for_metric("starling_persisted_documents_invalid", 1);
    assert_eq!(ask("broken"), "200 GRAPHQL_VALIDATION_FAILED");
    let file = folder.path().join("manifest.json");
    std::fs::write(&file, "{\n  \"city\": 7\n}").unwrap();
    shop.wait_for_metric("starling_persisted_document_loads_total{result=\"refused\"}", 1);
    assert_eq!(ask("city"), found);
    std::fs::write(&file, json!({ "town": QUERY }).to_string()).unwrap();
    shop.wait_for_metric("starling_persisted_document_loads_total{result=\"loaded\"}", 1);
    assert_eq!(
        (ask("town").as_str(), ask("city").as_str()),
        (found, "404 PERSISTED_DOCUMENT_NOT_FOUND")
    );
    assert_eq!(outcome(&shop.query(QUERY)), "403 PERSISTED_DOCUMENT_REQUIRED");
    let output = shop.router.output();
    assert!(output.contains("manifest.json:3:1: this is neither Apollo's manifest"), "{output}");
    assert!(output.contains("persisted documents are not valid on the graph"), "{output}");
    assert!(!output.contains("panicked"), "{output}");
}

#[test]
fn an_exception_lets_a_request_send_texts_and_counts_it() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = json!({ "city": QUERY }).to_string();
    let exceptions = "exceptions: [{when: \"request.headers['x-key'] == 'console'\"}, {when: \"client.name == 'ci'\"}]";
    for (mode, other) in [
        ("require_id", "404 PERSISTED_DOCUMENT_NOT_FOUND"),
        ("require_known", "200 PERSISTED_QUERY_NOT_FOUND"),
    ] {
        let configuration = with_manifest(folder.path(), &manifest, mode);
        let configuration =
            configuration.replace("manifests:", &format!("{exceptions}, manifests:"));
        let shop = Shop::with_provider("memory/default", &configuration);
        let unknown = json!({ "query": "{ __typename }" });
        let send = |body: &Value, headers: &[(&str, &str)]| {
            let headers = [&[("content-type", "application/json")], headers].concat();
            let body = body.to_string();
            let response =
                e2e::request(shop.address(), "POST", "/graphql", &headers, body.as_bytes())
                    .unwrap();
            outcome(&response)
        };
        let ran = r#"200 {"__typename":"Query"}"#;
        assert_eq!(send(&unknown, &[("x-key", "console")]), ran, "{mode}");
        assert_eq!(send(&unknown, &[("graphql-client-name", "ci")]), ran, "{mode}");
        // Another value, and none: a condition that cannot be evaluated makes no exception.
        for headers in [&[("x-key", "other")][..], &[]] {
            assert_eq!(send(&unknown, headers), "403 PERSISTED_DOCUMENT_REQUIRED", "{mode}");
        }
        // A client with automatic persisted queries is asked for the text. The text is not stored.
        let hash = persisted(TYPENAME_HASH);
        let console = [("x-key", "console")];
        let alone = json!({ "extensions": hash });
        let with_text = json!({ "query": "{ __typename }", "extensions": hash });
        assert_eq!(send(&alone, &console), "200 PERSISTED_QUERY_NOT_FOUND", "{mode}");
        assert_eq!(send(&with_text, &console), ran, "{mode}");
        assert_eq!(send(&alone, &[]), other, "{mode}");
        let metric = |name: &str| shop.router.metric(name);
        let excepted = if mode == "require_id" { 4 } else { 3 };
        assert_eq!(metric("starling_persisted_documents_excepted_total"), Some(excepted), "{mode}");
        assert_eq!(metric("starling_persisted_documents_unknown_operations_total"), Some(2));
        // Requests without the header for which the first condition was asked.
        let failures = if mode == "require_id" { 3 } else { 2 };
        assert_eq!(
            metric("starling_expression_exception_failures_total"),
            Some(failures),
            "{mode}"
        );
        assert!(!shop.router.output().contains("panicked"));
    }
}

/// The SHA-256 of `{ __typename }`.
const TYPENAME_HASH: &str = "7f56e67dd21ab3f30d1ff8b7bed08893f0a0db86449836189b361dd1e56ddb4b";
