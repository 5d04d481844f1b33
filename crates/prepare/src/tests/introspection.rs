//! Introspection through `Work`, without the plan.

use std::sync::Arc;

use bytes::Bytes;
use graph::Supergraph;

use super::{SCHEMA, work};
use crate::preparation::Work;
use crate::{Limits, PrepareError, PrepareSettings};

fn answer(operation: &str, variables: &'static str) -> Result<String, PrepareError> {
    let work = work();
    let understood = work.understand(operation.as_bytes(), None)?;
    let variables = understood
        .variables
        .coerce(&Bytes::from(variables), &work.schema.input_types)
        .map_err(PrepareError::Variables)?;
    let introspection = understood.introspection.expect("the operation introspects");
    let answer = introspection.answer(&work.schema, &understood.operation, &variables)?;
    Ok(String::from_utf8(answer.to_vec()).unwrap())
}

#[test]
fn types_are_found_by_variable_and_under_aliases() {
    let text = answer(
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
fn an_answer_that_no_variable_changes_is_worked_out_once() {
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
        let work = work();
        let understood = work.understand(operation.as_bytes(), None).unwrap();
        let text = Bytes::from(r#"{"n": "Kind", "x": false}"#);
        let types = &work.schema.input_types;
        let variables = understood.variables.coerce(&text, types).unwrap();
        let introspection = understood.introspection.unwrap();
        let answer =
            || introspection.answer(&work.schema, &understood.operation, &variables).unwrap();
        let (first, second) = (answer(), answer());
        assert_eq!(first, second);
        assert_eq!(first.as_ptr() == second.as_ptr(), is_kept, "{operation}");
        let kept = || work.schema.introspection_kept.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(kept(), if is_kept { first.len() } else { 0 });
        drop(introspection);
        assert_eq!(kept(), 0);
    }
}

#[test]
fn join_machinery_is_not_shown() {
    let text = answer("{ __schema { types { name } directives { name } } }", "").unwrap();
    assert!(!text.contains("join__") && text.contains("\"User\""), "{text}");
}

#[test]
fn turned_off_it_is_refused_but_typename_is_not() {
    let graph = Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap());
    let settings = PrepareSettings { introspection: false, ..PrepareSettings::default() };
    let work = Work::new(graph, 1, settings, Arc::default());
    for operation in
        ["{ __schema { queryType { name } } }", "{ ... { x: __type(name: \"A\") { name } } }"]
    {
        assert_eq!(
            work.understand(operation.as_bytes(), None).unwrap_err().to_string(),
            "the document is not valid: introspection is turned off on this router (`introspection: false`)"
        );
    }
    work.understand(b"{ __typename me { __typename } }", None).unwrap();
}

#[test]
fn the_usual_query_of_tools_is_answered() {
    let text = answer(
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
    let error = answer(
        "{ __schema { types { fields { type { fields { type { fields { name } } } } } } } }",
        "",
    );
    let message = "the document is not valid: Maximum introspection depth exceeded";
    assert_eq!(error.unwrap_err().to_string(), message);
}

/// 40 types, each with a field of each type.
fn a_wide_schema() -> Work {
    let mut sdl = "schema @link(url: \"https://specs.apollo.dev/link/v1.0\") \
        @link(url: \"https://specs.apollo.dev/join/v0.5\", for: EXECUTION) { query: T0 } \
        enum join__Graph { A @join__graph(name: \"a\", url: \"http://a\") } "
        .to_owned();
    for index in 0..40 {
        let fields: String = (0..40).map(|other| format!("f{other}: T{other} ")).collect();
        sdl.push_str(&format!("type T{index} @join__type(graph: A) {{ {fields} }} "));
    }
    super::work_on(&sdl, Limits::default())
}

#[test]
fn answers_that_multiply_are_refused() {
    let work = a_wide_schema();
    let once = "types { fields { type { name fields { name } } } }";
    work.understand(format!("{{ __schema {{ {once} }} }}").as_bytes(), None).unwrap();
    let often: String = (0..20).map(|index| format!("a{index}: {once} ")).collect();
    for query in [
        format!("{{ __schema {{ {often} }} }}"),
        format!("{{ __schema {{ ...F }} }} fragment F on __Schema {{ ... {{ {often} }} }}"),
    ] {
        let error = work.understand(query.as_bytes(), None).unwrap_err().to_string();
        assert!(
            error.starts_with("the document is not valid: introspection asks for more than "),
            "{error}"
        );
    }
    let some_type = "__type(name: $n) { fields { type { fields { type { name } } } } }";
    let query = format!("query($n: String!) {{ {some_type} }}");
    work.understand(query.as_bytes(), None).unwrap();
}
