//! Every text gets a result: no panic, no internal error.

use proptest::prelude::*;

use super::{normalise_text, on_a_stack_of_2_mib, pipeline};
use crate::PrepareError;

#[test]
fn bytes_that_are_not_utf8_are_a_syntax_error() {
    let error = pipeline().normalise_text(b"{ a \xFF }", None).unwrap_err();
    assert!(matches!(error, PrepareError::Syntax(_)), "{error}");
}

#[test]
fn messages_do_not_grow_with_the_document() {
    let long = "x".repeat(100_000);
    for text in [
        format!("{{ me {{ {long} }} }}"),
        format!("{{ echo(int: \"{long}\") }}"),
        format!("{{ echo(kind: {long}) }}"),
        format!("query {long} {{ {long} "),
        format!("\"{long}"),
    ] {
        let error = normalise_text(&text).unwrap_err();
        let (PrepareError::Syntax(problems) | PrepareError::Validation(problems)) = error else {
            panic!("{error}");
        };
        for problem in problems {
            assert!(problem.message.chars().count() <= 501, "{}", problem.message.len());
        }
    }
}

/// Tokens that are valid at some position of some document for the schema of the fixtures.
fn token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ":",
        "!",
        "=",
        "$",
        "@",
        "...",
        "|",
        "&",
        "query",
        "mutation",
        "subscription",
        "fragment",
        "on",
        "me",
        "node",
        "search",
        "echo",
        "sum",
        "pick",
        "id",
        "name",
        "parent",
        "__typename",
        "__schema",
        "__type",
        "types",
        "User",
        "Team",
        "Node",
        "Hit",
        "Query",
        "F",
        "G",
        "$a",
        "$b",
        "a",
        "b",
        "int",
        "any",
        "filter",
        "by",
        "and",
        "Int",
        "Boolean",
        "Filter",
        "@skip",
        "@include",
        "@lower",
        "if",
        "true",
        "false",
        "null",
        "1",
        "-1.5",
        "1e9",
        "\"x\"",
        "\"\"\"x\"\"\"",
        "USER",
        "type",
        "input",
        "\u{feff}",
        "#",
        "\n",
        "é",
        "\"",
        "..",
        "0x",
    ])
}

/// Documents that are mostly valid, so that the later stages are reached.
fn selections() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "id",
        "name",
        "x: name",
        "x: id",
        "__typename",
        "...F",
        "...G",
        "age",
        "size",
        "id @skip(if: $a)",
        "name @include(if: $a) @skip(if: $b)",
        "name @include(if: false)",
        "echo(any: {a: [$a, 1], a: 2})",
        "__schema { types { name } }",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 5, |inner| {
        let heads = prop::sample::select(vec![
            "me",
            "node(id: 1)",
            "node(id: $a)",
            "parent",
            "team",
            "members",
            "friends(first: 1)",
            "... on User",
            "... on Team",
            "... on Node",
            "... on Hit",
            "... on Named",
            "...",
            "... @include(if: $b)",
            "search(text: \"a\")",
            "query",
            "x: parent",
            "nodes(ids: [1 2])",
            "pick(by: {id: $a})",
        ]);
        (heads, prop::collection::vec(inner, 1..5))
            .prop_map(|(head, below)| format!("{head} {{ {} }}", below.join(" ")))
    })
}

fn never_a_defect(text: String) {
    let result = on_a_stack_of_2_mib(move || normalise_text(&text).map_err(|error| (error, text)));
    if let Err((PrepareError::Internal(message), text)) = result {
        panic!("{message} for {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,200}") {
        never_a_defect(text);
    }

    #[test]
    fn arbitrary_tokens_never_panic(tokens in prop::collection::vec(token(), 0..120)) {
        never_a_defect(tokens.join(" "));
    }

    #[test]
    fn arbitrary_selections_never_show_a_defect(
        query in prop::collection::vec(selections(), 1..4),
        user in prop::collection::vec(selections(), 1..4),
        node in prop::collection::vec(selections(), 1..4),
    ) {
        let (query, user, node) = (query.join(" "), user.join(" "), node.join(" "));
        never_a_defect(format!(
            "query($a: Boolean! = true, $b: Boolean!) {{ me {{ ...F ...G }} {query} }} \
             fragment F on User {{ {user} id @skip(if: $a) @skip(if: $b) }} fragment G on Node {{ {node} }}"
        ));
    }
}
