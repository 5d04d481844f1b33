//! Equality of operations by their identity.

use super::normalise_text;

fn id(operation: &str) -> u128 {
    normalise_text(operation).unwrap().operation_id
}

#[test]
fn layout_and_fragments_do_not_change_the_identity() {
    let plain = id("query Q { me { id name team { id } } }");
    for same in [
        "query Q{me{id,name,team{id}}} # comment",
        "query Q { ...R } fragment R on Query { me { ...U } } fragment U on User { id name team { id } }",
        "query Q { me { id ... on User { name } ... { team { id } } id } }",
        "query Q { me { id ... on Node { name } ... on Hit { ... on User { team { id } } } } }",
        "query Q { me { id name @include(if: true) team { id name @skip(if: true) } } }",
    ] {
        assert_eq!(id(same), plain, "{same}");
    }
}

#[test]
fn each_change_of_the_response_changes_the_identity() {
    let operations = [
        "query Q { me { id name } }",
        "query R { me { id name } }",
        "{ me { id name } }",
        "query Q { me { name id } }",
        "query Q { me { id name: id } }",
        "query Q { me { id a: name } }",
        "query Q { me { id name __typename } }",
        "mutation Q { query { me { id name } } }",
        "query Q { node(id: 1) { id name } }",
        "query Q { node(id: 2) { id name } }",
        "query Q($i: ID!) { node(id: $i) { id name } }",
        "query Q($i: ID! = 1) { node(id: $i) { id name } }",
        "query Q($i: ID! = 2) { node(id: $i) { id name } }",
        "query Q($a: Boolean!) { me { id name @skip(if: $a) } }",
        "query Q($a: Boolean!) { me { id name @include(if: $a) } }",
        "query Q { echo(string: \"1\") }",
        "query Q { echo(int: 1) }",
        "query Q { echo(any: 1) }",
        "query Q { echo(any: \"1\") }",
        "query Q { echo(any: [1]) }",
        "query Q { echo(any: [[1]]) }",
        "query Q { echo(any: {a: 1}) }",
        "query Q { echo(any: A) }",
        "query Q { __type(name: \"User\") { name } }",
        "query Q { __type(name: \"Team\") { name } }",
        "query Q { __type(name: \"Team\") { kind } }",
    ];
    let mut ids: Vec<_> = operations.iter().map(|it| id(it)).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), operations.len());
}

#[test]
fn equal_literals_are_one_operation() {
    assert_eq!(id("{ node(id: 1) { id } }"), id("{ node(id: \"1\") { id } }"));
    assert_eq!(id("{ echo(grid: 1) }"), id("{ echo(grid: [[1]]) }"));
    assert_eq!(id("{ sum(values: 1, really: 1) }"), id("{ sum(values: [1], really: 1) }"));
}
