//! Introspection through `Pipeline`, without the plan.

use std::sync::Arc;

use bytes::Bytes;
use graph::Supergraph;

use super::{SCHEMA, pipeline};
use crate::pipeline::Pipeline;
use crate::{Limits, PrepareError, PrepareSettings};

fn response(operation: &str, variables: &'static str) -> Result<String, PrepareError> {
    let pipeline = pipeline();
    let normalised = pipeline.normalise_text(operation.as_bytes(), None)?;
    let variables = normalised
        .variables
        .coerce(&Bytes::from(variables), &pipeline.schema.input_types)
        .map_err(PrepareError::Variables)?;
    let introspection = normalised.introspection.expect("the operation introspects");
    let response = introspection.execute(&pipeline.schema, &normalised.operation, &variables)?;
    Ok(String::from_utf8(response.to_vec()).unwrap())
}

#[test]
fn types_are_found_by_variable_and_under_aliases() {
    let text = response(
        "query($n: String!, $deep: Boolean = false) {
            a: __type(name: $n) { name kind fields @include(if: $deep) { name } }
            b: __type(name: \"Nothing\") { name }
            ...S
            me { name }
         }
         fragment S on Query { __schema { queryType { name } subscriptionType { n: name } } }",
        r#"{"n": "Kind"}"#,
    );
    assert_eq!(
        text.unwrap(),
        r#"{"a":{"name":"Kind","kind":"ENUM"},"b":null,"__schema":{"queryType":{"name":"Query"},"subscriptionType":{"n":"Subscription"}}}"#
    );
}

#[test]
fn a_response_that_no_variable_changes_is_computed_once() {
    let cases = [
        ("{ __schema { queryType { name } } me { name } }", true),
        ("{ a: __type(name: \"Kind\") { ...F } } fragment F on __Type { name }", true),
        ("query($n: String!) { __type(name: $n) { name } }", false),
        ("query($x: Boolean!) { __schema @skip(if: $x) { queryType { name } } }", false),
        (
            "query($x: Boolean!) { ...F @skip(if: $x) } fragment F on Query { __schema { description } }",
            false,
        ),
        (
            "query($x: Boolean!) { __schema { ...F } } fragment F on __Schema { description @skip(if: $x) }",
            false,
        ),
        ("query($x: Boolean!) { me @skip(if: $x) { name } __schema { description } }", true),
    ];
    for (operation, is_kept) in cases {
        let pipeline = pipeline();
        let normalised = pipeline.normalise_text(operation.as_bytes(), None).unwrap();
        let text = Bytes::from(r#"{"n": "Kind", "x": false}"#);
        let types = &pipeline.schema.input_types;
        let variables = normalised.variables.coerce(&text, types).unwrap();
        let introspection = normalised.introspection.unwrap();
        let response =
            || introspection.execute(&pipeline.schema, &normalised.operation, &variables).unwrap();
        let (first, second) = (response(), response());
        assert_eq!(first, second);
        assert_eq!(first.as_ptr() == second.as_ptr(), is_kept, "{operation}");
        let kept =
            || pipeline.schema.introspection_cached.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(kept(), if is_kept { first.len() } else { 0 });
        drop(introspection);
        assert_eq!(kept(), 0);
    }
}

#[test]
fn join_machinery_is_not_shown() {
    let text = response("{ __schema { types { name } directives { name } } }", "").unwrap();
    assert!(!text.contains("join__") && text.contains("\"User\""), "{text}");
}

#[test]
fn introspection_that_is_turned_off_is_refused_but_typename_is_not() {
    let graph = Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap());
    let settings = PrepareSettings { introspection: false, ..PrepareSettings::default() };
    let pipeline = Pipeline::new(graph, 1, settings, Arc::default());
    for operation in
        ["{ __schema { queryType { name } } }", "{ ... { x: __type(name: \"A\") { name } } }"]
    {
        assert_eq!(
            pipeline.normalise_text(operation.as_bytes(), None).unwrap_err().to_string(),
            "the document is not valid: introspection is turned off on this router (`introspection: false`)"
        );
    }
    pipeline.normalise_text(b"{ __typename me { __typename } }", None).unwrap();
}

#[test]
fn the_usual_query_of_tools_gets_a_response() {
    let text = response(
        "query IntrospectionQuery { __schema { description queryType { name kind } mutationType { name kind }
          subscriptionType { name kind } types { ...FullType } directives { name description isRepeatable
          locations args(includeDeprecated: true) { ...InputValue } } } }
        fragment FullType on __Type { kind name description specifiedByURL
          fields(includeDeprecated: true) { name description args(includeDeprecated: true) { ...InputValue }
          type { ...TypeRef } isDeprecated deprecationReason }
          inputFields(includeDeprecated: true) { ...InputValue } interfaces { ...TypeRef }
          enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason }
          possibleTypes { ...TypeRef } }
        fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue isDeprecated
          deprecationReason }
        fragment TypeRef on __Type { kind name ofType { kind name ofType { kind name ofType { kind name
          ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name
          ofType { kind name } } } } } } } } } }",
        "",
    );
    let text = text.unwrap();
    assert!(text.contains(r#""defaultValue":"{from: 1}""#), "{text}");
}

#[test]
fn nested_lists_are_refused() {
    let error = response(
        "{ __schema { types { fields { type { fields { type { fields { name } } } } } } } }",
        "",
    );
    let message = "the document is not valid: Maximum introspection depth exceeded";
    assert_eq!(error.unwrap_err().to_string(), message);
}

/// 40 types, each with a field of each type.
fn a_wide_schema() -> Pipeline {
    let mut sdl = "schema @link(url: \"https://specs.apollo.dev/link/v1.0\") \
        @link(url: \"https://specs.apollo.dev/join/v0.5\", for: EXECUTION) { query: T0 } \
        enum join__Graph { A @join__graph(name: \"a\", url: \"http://a\") } "
        .to_owned();
    for index in 0..40 {
        let fields: String = (0..40).map(|other| format!("f{other}: T{other} ")).collect();
        sdl.push_str(&format!("type T{index} @join__type(graph: A) {{ {fields} }} "));
    }
    super::pipeline_of(&sdl, Limits::default())
}

#[test]
fn responses_that_multiply_are_refused() {
    let pipeline = a_wide_schema();
    let once = "types { fields { type { name fields { name } } } }";
    pipeline.normalise_text(format!("{{ __schema {{ {once} }} }}").as_bytes(), None).unwrap();
    let often: String = (0..20).map(|index| format!("a{index}: {once} ")).collect();
    for query in [
        format!("{{ __schema {{ {often} }} }}"),
        format!("{{ __schema {{ ...F }} }} fragment F on __Schema {{ ... {{ {often} }} }}"),
    ] {
        let error = pipeline.normalise_text(query.as_bytes(), None).unwrap_err().to_string();
        assert!(
            error.starts_with("the document is not valid: introspection selects more than "),
            "{error}"
        );
    }
    let some_type = "__type(name: $n) { fields { type { fields { type { name } } } } }";
    let query = format!("query($n: String!) {{ {some_type} }}");
    pipeline.normalise_text(query.as_bytes(), None).unwrap();
}
