//! Variable values: valid ones, their coerced form, and the messages about invalid ones.

use bytes::Bytes;

use super::{SCHEMA, normalise_text, pipeline, pipeline_of};
use crate::{Limits, PrepareError};

/// The values of the variables after coercion, or the messages.
fn coerce(operation: &str, variables: &str) -> Result<Vec<Option<String>>, Vec<String>> {
    let normalised = normalise_text(operation).unwrap();
    let types = &pipeline().schema.input_types;
    match normalised.variables.coerce(&Bytes::copy_from_slice(variables.as_bytes()), types) {
        Ok(values) => Ok(values.values.into_iter().map(|it| it.map(String::from)).collect()),
        Err(problems) => Err(problems.into_iter().map(|it| it.message).collect()),
    }
}

/// The value of one variable of type `ty`, used where any type is valid.
fn one(ty: &str, value: &str) -> Result<String, String> {
    let operation = format!("query($v: {ty}) {{ echo(any: {{v: $v}}) }}");
    match coerce(&operation, &format!("{{\"v\": {value}}}")) {
        Ok(mut values) => Ok(values.remove(0).expect("a value was given")),
        Err(mut messages) => Err(messages.remove(0)),
    }
}

#[test]
fn valid_values() {
    for (ty, value, expected) in [
        ("Int", "3", "3"),
        ("Int", "-2147483648", "-2147483648"),
        ("Int", "2147483647", "2147483647"),
        ("Int", "1.0", "1"),
        ("Int", "1e2", "100"),
        ("Int", "-0", "0"),
        ("Int", "0.000", "0"),
        ("Int", "null", "null"),
        ("Float", "3", "3"),
        ("Float", "1.5e300", "1.5e300"),
        ("Float", "12345678901234567890", "12345678901234567890"),
        ("String", r#""a\nb""#, r#""a\nb""#),
        ("Boolean", "true", "true"),
        ("ID", "7", "\"7\""),
        ("ID", "-7", "\"-7\""),
        ("ID", r#""x""#, r#""x""#),
        (
            "ID",
            "123456789012345678901234567890123456789012345678901234567890",
            "\"123456789012345678901234567890123456789012345678901234567890\"",
        ),
        ("Kind", r#""USER""#, r#""USER""#),
        ("Kind", r#""\u0055SER""#, r#""USER""#),
        ("Any", r#"{"a" : [1, {"b": null}]}"#, r#"{"a":[1,{"b":null}]}"#),
        ("[Int]", "1", "[1]"),
        ("[Int]", "null", "null"),
        ("[Int]", "[1, null]", "[1,null]"),
        ("[[Int]]", "1", "[[1]]"),
        ("[[Int]]", "[1, [2], null]", "[[1],[2],null]"),
        ("[Int!]!", "[]", "[]"),
        ("Range", r#"{"to": null, "from": 1.0}"#, r#"{"from":1,"to":null}"#),
        ("Range", r#"{"from": 1, "from": 2}"#, r#"{"from":2}"#),
        ("Filter", "{}", r#"{"kind":"USER","range":{"from":1},"min":1}"#),
        ("Filter", r#"{"kind": null, "min": 2}"#, r#"{"kind":null,"range":{"from":1},"min":2}"#),
        (
            "[Filter]",
            r#"{"and": {"tags": "x"}}"#,
            r#"[{"kind":"USER","range":{"from":1},"and":[{"kind":"USER","range":{"from":1},"tags":["x"],"min":1}],"min":1}]"#,
        ),
        ("Pick", r#"{"id": 1}"#, r#"{"id":"1"}"#),
        ("Pick", r#"{"range": {"from": 1}}"#, r#"{"range":{"from":1}}"#),
    ] {
        assert_eq!(one(ty, value).as_deref(), Ok(expected), "{ty} {value}");
    }
}

#[test]
fn invalid_values() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let deep_type = format!("{}Int{}", "[".repeat(200), "]".repeat(200));
    let deep_at = format!("v{}", ".0".repeat(129));
    let deep_message = format!("at \"{deep_at}\": is nested deeper than 128 levels.");
    for (ty, value, expected) in [
        ("Int", "2147483648", ": Int cannot represent 2147483648."),
        ("Int", "-2147483649", ": Int cannot represent -2147483649."),
        ("Int", "1.5", ": Int cannot represent 1.5."),
        ("Int", "1e400", ": Int cannot represent 1e400."),
        ("Int", "\"secret\"", ": Int cannot represent a string."),
        ("Int", "true", ": Int cannot represent true."),
        ("Int!", "null", ": expected non-null type \"Int!\", got null."),
        ("Float", "\"1\"", ": Float cannot represent a string."),
        ("Float", "1e400", ": Float cannot represent 1e400."),
        ("String", "1", ": String cannot represent 1."),
        ("String", "[\"a\"]", ": String cannot represent a list."),
        ("Boolean", "0", ": Boolean cannot represent 0."),
        ("Boolean", "\"true\"", ": Boolean cannot represent a string."),
        ("ID", "1.0", ": ID cannot represent 1.0."),
        ("ID", "1e3", ": ID cannot represent 1e3."),
        ("ID", "{}", ": ID cannot represent an object."),
        ("Kind", "\"user\"", ": value \"user\" does not exist in enum Kind."),
        ("Kind", "1", ": Kind cannot represent 1."),
        ("[Int!]", "[1, null]", " at \"v.1\": expected non-null type \"Int!\", got null."),
        ("[[Int]]", "[[1], [\"x\"]]", " at \"v.1.0\": Int cannot represent a string."),
        ("Range", "1", ": Range cannot represent 1."),
        ("Range", "{}", ": field \"from\" of required type \"Int!\" was not provided."),
        (
            "Range",
            r#"{"from": null}"#,
            " at \"v.from\": expected non-null type \"Int!\", got null.",
        ),
        ("Range", r#"{"from": 1, "too": 2}"#, ": field \"too\" is not defined by type Range."),
        ("Filter", r#"{"min": null}"#, " at \"v.min\": expected non-null type \"Int!\", got null."),
        (
            "Filter",
            r#"{"and": [{}, {"range": {"from": "x"}}]}"#,
            " at \"v.and.1.range.from\": Int cannot represent a string.",
        ),
        ("Pick", "{}", ": exactly one field of Pick must be given, and not null."),
        ("Pick", r#"{"id": null}"#, ": exactly one field of Pick must be given, and not null."),
        (
            "Pick",
            r#"{"id": 1, "name": "x"}"#,
            ": exactly one field of Pick must be given, and not null.",
        ),
        (&deep_type, &deep, &format!(" {deep_message}")),
    ] {
        let expected = format!("Variable \"$v\" got an invalid value{expected}");
        assert_eq!(one(ty, value), Err(expected), "{ty} {value}");
    }
}

#[test]
fn a_missing_value_becomes_a_default_or_is_absent_or_an_error() {
    let operation =
        "query($a: Int, $b: Int = 2, $c: Filter = {min: 3}, $d: [ID] = 4, $e: Int = null) {
        echo(int: $a, float: 1, any: {b: $b, e: $e}, filter: $c, ids: $d) }";
    let some = |text: &str| Some(text.to_owned());
    let expected = [
        None,
        some("2"),
        some(r#"{"kind":"USER","range":{"from":1},"min":3}"#),
        some("[\"4\"]"),
        some("null"),
    ];
    for nothing in ["", " ", "{}", "null", r#"{"unknown": 1}"#] {
        assert_eq!(coerce(operation, nothing).as_deref(), Ok(&expected[..]), "{nothing}");
    }
    assert_eq!(
        coerce("query($a: Int!, $b: [ID!]!) { sum(really: $a) nodes(ids: $b) { id } }", "{}"),
        Err(vec![
            "Variable \"$a\" of required type \"Int!\" was not provided.".to_owned(),
            "Variable \"$b\" of required type \"[ID!]!\" was not provided.".to_owned(),
        ])
    );
}

#[test]
fn a_default_replaces_a_missing_value_but_not_null_where_null_is_not_allowed() {
    let operation =
        "query($a: Int = 5, $b: Boolean = true) { sum(really: $a) me @include(if: $b) { id } }";
    let normalised = normalise_text(operation).unwrap();
    let types: Vec<_> = normalised.operation.variables.iter().map(|it| &*it.ty).collect();
    assert_eq!(
        types,
        ["Int!", "Boolean!"],
        "subgraphs see no default, so the type must exclude null"
    );
    assert_eq!(coerce(operation, "{}").unwrap(), [Some("5".to_owned()), Some("true".to_owned())]);
    assert_eq!(
        coerce(operation, r#"{"a": null, "b": null}"#).unwrap_err(),
        [
            "Variable \"$a\" got an invalid value: expected non-null type \"Int!\", got null.",
            "Variable \"$b\" got an invalid value: expected non-null type \"Boolean!\", got null.",
        ]
    );
}

#[test]
fn variables_that_are_no_object_are_refused() {
    let operation = "query($a: Int) { echo(int: $a) }";
    for (text, message) in [
        ("[]", "`variables` must be a JSON object or null"),
        ("\"x\"", "`variables` must be a JSON object or null"),
        ("1", "`variables` must be a JSON object or null"),
    ] {
        assert_eq!(coerce(operation, text), Err(vec![message.to_owned()]), "{text}");
    }
    let message = &coerce(operation, "{\"a\": ").unwrap_err()[0];
    assert!(message.starts_with("`variables` is not JSON: "), "{message}");
}

#[test]
fn variables_are_checked_even_if_the_operation_declares_none() {
    assert_eq!(coerce("{ me { id } }", r#"{"x": 1}"#), Ok(vec![]));
    assert!(coerce("{ me { id } }", "[1]").is_err());
}

#[test]
fn the_number_of_messages_is_bounded() {
    let names: Vec<_> = (0..200).map(|index| format!("$v{index}: Int!")).collect();
    let uses: Vec<_> = (0..200).map(|index| format!("v{index}: $v{index}")).collect();
    let operation = format!("query({}) {{ echo(any: {{{}}}) }}", names.join(" "), uses.join(" "));
    assert_eq!(coerce(&operation, "{}").unwrap_err().len(), crate::error::PROBLEMS_MAX);
}

#[test]
fn defaults_cannot_enlarge_a_small_request_without_bound() {
    let objects = "{},".repeat(200_000);
    let value = format!("[{objects}{{}}]");
    let message = one("[Filter!]", &value).map(|text| text.len()).unwrap_err();
    assert!(
        message.ends_with(": is too large with the defaults of its input objects filled in."),
        "{message}"
    );
}

#[test]
fn defaults_in_a_cycle_are_refused_immediately() {
    let sdl =
        format!("{SCHEMA} input Loop @join__type(graph: A) {{ a: Loop = {{}} b: Loop = {{}} }}");
    let pipeline = pipeline_of(&sdl, Limits::default());
    let operation = b"query($v: Loop) { echo(any: {v: $v}) }";
    let normalised = pipeline.normalise_text(operation, None).unwrap();
    let result =
        normalised.variables.coerce(&Bytes::from(r#"{"v": {}}"#), &pipeline.schema.input_types);
    let message = &result.unwrap_err()[0].message;
    assert!(
        message.ends_with("is too large with the defaults of its input objects filled in."),
        "{message}"
    );
    let operation = b"query($v: Loop = {}) { echo(any: {v: $v}) }";
    let error = pipeline.normalise_text(operation, None).unwrap_err();
    assert!(matches!(error, PrepareError::Validation(_)), "{error}");
}
