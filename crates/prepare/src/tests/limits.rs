//! Each limit, at its value and one above it, and the message.

use super::{SCHEMA, pipeline_of};
use crate::Limits;

const WIDE: Limits = Limits {
    tokens: 1_000_000,
    depth: 1_000,
    aliases: 1_000_000,
    root_fields: 1_000_000,
    selections: 1_000_000,
};

/// Checks that the operation passes with `at` and is refused with `below` and this message.
#[track_caller]
fn check(operation: &str, at: Limits, below: Limits, message: &str) {
    let pipeline = pipeline_of(SCHEMA, at);
    if let Err(error) = pipeline.normalise_text(operation.as_bytes(), Some("Q")) {
        panic!("at the limit: {error}");
    }
    let refused =
        pipeline_of(SCHEMA, below).normalise_text(operation.as_bytes(), Some("Q")).unwrap_err();
    assert_eq!(refused.to_string(), message);
}

#[test]
fn tokens_are_counted_without_white_space_and_comments() {
    check(
        "query Q # a comment\n{\n\n  me { name, , , , id } }",
        Limits { tokens: 9, ..WIDE },
        Limits { tokens: 8, ..WIDE },
        "the operation exceeds the limit of 8 tokens (`limits.tokens`)",
    );
}

#[test]
fn depth_counts_fields_through_fragments() {
    check(
        "query Q { me { ...A } } fragment A on User { team { ... { members { id } } } }",
        Limits { depth: 4, ..WIDE },
        Limits { depth: 3, ..WIDE },
        "the operation exceeds the limit of 3 levels of nesting (`limits.depth`)",
    );
}

#[test]
fn aliases_count_as_often_as_their_fragment_is_used() {
    check(
        "query Q { me { ...A team { members { ...A } } } } fragment A on User { a: name b: id }",
        Limits { aliases: 4, ..WIDE },
        Limits { aliases: 3, ..WIDE },
        "the operation exceeds the limit of 3 aliases (`limits.aliases`)",
    );
}

#[test]
fn root_fields_count_through_fragments() {
    check(
        "query Q { ...A me { id name } } fragment A on Query { a: me { id } ... { b: me { id } } }",
        Limits { root_fields: 3, ..WIDE },
        Limits { root_fields: 2, ..WIDE },
        "the operation exceeds the limit of 2 root fields (`limits.root_fields`)",
    );
}

#[test]
fn selections_count_after_inlining_and_over_all_operations() {
    check(
        "query Q { me { ...A } } query R { me { ...A } } fragment A on User { name id }",
        Limits { selections: 8, ..WIDE },
        Limits { selections: 7, ..WIDE },
        "the operation exceeds the limit of 7 selections after inlining fragments (`limits.selections`)",
    );
}

#[test]
fn a_field_of_an_interface_counts_for_each_type_beside_it() {
    let operation = "query Q { node(id: 1) { parent { id } \
        ... on User { parent { name } } ... on Bot { parent { name } } } }";
    let at = Limits { selections: 12, ..WIDE };
    let below = Limits { selections: 9, ..WIDE };
    let message = "the operation exceeds the limit of 9 selections after inlining fragments \
        (`limits.selections`)";
    check(operation, at, below, message);
}

#[test]
fn white_space_and_commas_are_bounded_too() {
    let operation = format!("query Q {{ me {{ id {} }} }}", ",".repeat(100));
    check(
        &operation,
        Limits { tokens: 30, ..WIDE },
        Limits { tokens: 10, ..WIDE },
        "the operation exceeds the limit of 10 tokens (`limits.tokens`)",
    );
}
