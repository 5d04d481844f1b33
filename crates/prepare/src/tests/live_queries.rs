//! The directive of live queries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use graph::Supergraph;

use super::SCHEMA;
use crate::{OperationRequest, PrepareError, PrepareSettings, Prepared, Preparer};

fn preparer(live_queries: bool) -> Preparer {
    let graph = Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap();
    let settings = PrepareSettings { live_queries, ..PrepareSettings::default() };
    Preparer::new(Arc::new(graph), 1, settings)
}

fn prepare(text: &str) -> Result<Prepared, PrepareError> {
    preparer(true).prepare_now(text.as_bytes(), None)
}

fn throttle_of(text: &str, variables: &'static str) -> Result<Duration, String> {
    let prepared = prepare(text).map_err(|error| error.to_string())?;
    let values = prepared.coerce(&Bytes::from(variables)).map_err(|error| error.to_string())?;
    let live = prepared.live.expect("a live query");
    live.throttle(&values).map_err(|error| error.to_string())
}

#[test]
fn the_throttle_is_a_literal_or_a_variable_or_missing() {
    let millis = |count| Ok(Duration::from_millis(count));
    assert_eq!(throttle_of("query @live { __typename }", ""), millis(0));
    assert_eq!(throttle_of("query @live(throttle: null) { __typename }", ""), millis(0));
    assert_eq!(throttle_of("query @live(throttle: 500) { __typename }", ""), millis(500));
    let text = "query ($t: Int) @live(throttle: $t) { __typename }";
    assert_eq!(throttle_of(text, r#"{"t":250}"#), millis(250));
    assert_eq!(throttle_of(text, r#"{"t":null}"#), millis(0));
    assert_eq!(throttle_of(text, ""), millis(0));
    let wrong = "`@live(throttle:)` must be a number of milliseconds between 0 and 3600000";
    for text in [
        "query @live(throttle: -1) { __typename }",
        "query @live(throttle: 3600001) { __typename }",
    ] {
        assert!(throttle_of(text, "").unwrap_err().ends_with(wrong), "{text}");
    }
    assert!(throttle_of(text, r#"{"t":-5}"#).unwrap_err().ends_with(wrong));
    assert!(prepare("query @live(throttle: \"5\") { __typename }").is_err());
}

fn wants_patches(text: &str, variables: &'static str) -> bool {
    let prepared = prepare(text).unwrap();
    let values = prepared.coerce(&Bytes::from(variables)).unwrap();
    prepared.live.expect("a live query").wants_patches(&values)
}

#[test]
fn patches_are_asked_for_by_a_literal_or_a_variable() {
    for (text, variables, expected) in [
        ("query @live { __typename }", "", false),
        ("query @live(patch: false) { __typename }", "", false),
        ("query @live(patch: null) { __typename }", "", false),
        ("query @live(patch: true) { __typename }", "", true),
        ("query @live(throttle: 5, patch: true) { __typename }", "", true),
        ("query ($p: Boolean) @live(patch: $p) { __typename }", "", false),
        ("query ($p: Boolean) @live(patch: $p) { __typename }", r#"{"p":null}"#, false),
        ("query ($p: Boolean) @live(patch: $p) { __typename }", r#"{"p":true}"#, true),
        ("query ($p: Boolean = true) @live(patch: $p) { __typename }", "", true),
    ] {
        assert_eq!(wants_patches(text, variables), expected, "{text} {variables}");
    }
    assert!(prepare("query @live(patch: 1) { __typename }").is_err());
    assert!(prepare("query ($p: Int) @live(patch: $p) { __typename }").is_err());
}

#[test]
fn only_queries_are_live_and_only_where_that_is_turned_on() {
    for text in [
        "query { __typename @live }",
        "query @live @live { __typename }",
        "query @live(x: 1) { __typename }",
    ] {
        assert!(matches!(prepare(text), Err(PrepareError::Validation(_))), "{text}");
    }
    let plain = prepare("query { __typename }").unwrap();
    assert!(plain.live.is_none() && plain.query.is_empty());
    let off = preparer(false).prepare_now(b"query @live { __typename }", None);
    let message = "live queries are turned off on this router (`live_queries.enabled`)";
    assert!(off.unwrap_err().to_string().ends_with(message));
}

#[test]
fn live_queries_have_identities_of_their_own_and_keep_their_text() {
    let plain = prepare("{ __typename }").unwrap();
    let live = prepare("query @live { __typename }").unwrap();
    let slow = prepare("query @live(throttle: 9) { __typename }").unwrap();
    assert_ne!(plain.operation_id, live.operation_id);
    assert_ne!(slow.operation_id, live.operation_id);
    let identities = [
        "query @live(patch: true) { __typename }",
        "query @live(throttle: 9, patch: true) { __typename }",
        "query ($p: Boolean) @live(patch: $p) { __typename }",
    ];
    let mut identities: Vec<_> =
        identities.iter().map(|text| prepare(text).unwrap().operation_id).collect();
    identities.extend([live.operation_id, slow.operation_id]);
    identities.sort_unstable();
    identities.dedup();
    assert_eq!(identities.len(), 5);
    assert_eq!(live.query, "query @live { __typename }");
}

#[tokio::test]
async fn introspection_shows_the_directive() {
    let text = "{ __schema { directives { name args { name type { name } } locations } } }";
    for (is_on, expected) in [(true, true), (false, false)] {
        let request = OperationRequest { query: text.into(), ..OperationRequest::default() };
        let prepared = preparer(is_on).prepare(&request).await.unwrap();
        let shown = prepared.introspect(&plan::Variables::default()).unwrap().unwrap();
        let shown = String::from_utf8_lossy(&shown);
        let directive = r#"{"name":"live","args":[{"name":"throttle","type":{"name":"Int"}},{"name":"patch","type":{"name":"Boolean"}}],"locations":["QUERY"]}"#;
        assert_eq!(shown.contains(directive), expected, "{shown}");
    }
}
