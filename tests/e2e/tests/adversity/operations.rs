//! GraphQL requests whose operation cannot be executed.

use expect_test::expect;
use serde_json::{Value, json};

use crate::responses::{case, format_response};
use crate::shop::Shop;

/// Returns the response with `application/graphql-response+json`, where the status reports the kind of error, and
/// checks that the response with `application/json` has the same body and status 200.
fn outcome(shop: &Shop, body: &Value) -> String {
    let response = shop.router.post(&body.to_string()).unwrap();
    let headers = [("content-type", "application/json")];
    let plain =
        e2e::request(shop.address(), "POST", "/graphql", &headers, body.to_string().as_bytes());
    let plain = plain.unwrap();
    assert_eq!((plain.status, plain.text()), (200, response.text()));
    format_response(&response)
}

#[test]
fn a_document_that_does_not_parse_is_refused_with_the_position() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for query in [
        "",
        "{",
        "{ warehouse { city }",
        "{ warehouse { city } } }",
        "{ warehouse { } }",
        "query ($a) { warehouse { city } }",
        "{ product(id: \"1) { name } }",
        "{ warehouse { city } } §",
        "\u{0}",
        "type Query { a: Int }",
    ] {
        outcomes +=
            &case(&query.escape_debug().to_string(), &outcome(&shop, &json!({ "query": query })));
    }
    expect![[r#"
        --- 
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the document is empty: `query` must hold an operation","extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- {
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: expected at least one Selection in Selection Set","locations":[{"line":1,"column":2}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- { warehouse { city }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: expected `}`, but the document ends here","locations":[{"line":1,"column":21}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- { warehouse { city } } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: expected a StringValue, Name or OperationDefinition","locations":[{"line":1,"column":24}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- { warehouse { } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: expected at least one Selection in Selection Set","locations":[{"line":1,"column":15}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- query ($a) { warehouse { city } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: expected a Name","locations":[{"line":1,"column":10}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- { product(id: \"1) { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: unterminated string value","locations":[{"line":1,"column":15}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- { warehouse { city } } §
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: Unexpected character \"§\"","locations":[{"line":1,"column":24}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- \0
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: Unexpected character \"\u0000\"","locations":[{"line":1,"column":1}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- type Query { a: Int }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"an executable document must not contain an object type definition","locations":[{"line":1,"column":1}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn an_operation_that_does_not_match_the_schema_is_refused_with_the_position() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for query in [
        "{ warehous { city } }",
        "{ warehouse }",
        "{ warehouse { city { name } } }",
        "{ product { name } }",
        "{ product(id: 1, colour: RED) { name } }",
        "{ product(id: {}) { name } }",
        "{ products(filter: { maxPrice: \"7\" }) { name } }",
        "{ products(filter: { name: \"x\", colours: [GREEN] }) { name } }",
        "query ($id: ID) { product(id: $id) { name } }",
        "query ($id: Nothing!) { product(id: $id) { name } }",
        "{ product(id: $id) { name } }",
        "query ($id: ID!) { warehouse { city } }",
        "{ ...F }",
        "{ ...F } fragment F on Query { ...F }",
        "{ warehouse { city } ... on Product { name } }",
        "{ a: product(id: 1) { name } a: product(id: 2) { name } }",
        "{ warehouse @unknown { city } }",
        "{ warehouse @skip { city } }",
        "subscription { productChanged { id } productChangedAt(place: \"x\") { id } }",
        "query A { warehouse { city } } query A { warehouse { city } }",
        "{ __type { name } }",
        "{ _entities(representations: []) { __typename } }",
    ] {
        outcomes += &case(query, &outcome(&shop, &json!({ "query": query })));
    }
    expect![[r#"
        --- { warehous { city } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"type `Query` does not have a field `warehous`","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { warehouse }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"field `warehouse` needs a selection of its fields: `warehouse { … }`","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { warehouse { city { name } } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"field `warehouse` needs a selection of its fields: `warehouse { … }`","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}},{"message":"field `city` is of the scalar type `String` and has no fields to select: `city`","locations":[{"line":1,"column":15}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { product { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the required argument `Query.product(id:)` is not provided","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { product(id: 1, colour: RED) { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the argument `colour` is not supported by `Query.product`","locations":[{"line":1,"column":18}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { product(id: {}) { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"expected value of type ID!, found an input object","locations":[{"line":1,"column":15}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { products(filter: { maxPrice: "7" }) { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the required field `ProductFilter.name` is not provided","locations":[{"line":1,"column":20}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}},{"message":"expected value of type Int, found a string","locations":[{"line":1,"column":32}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { products(filter: { name: "x", colours: [GREEN] }) { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"value `GREEN` does not exist on `Colour`","locations":[{"line":1,"column":43}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- query ($id: ID) { product(id: $id) { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"variable `$id` of type `ID` cannot be used for argument `id` of type `ID!`","locations":[{"line":1,"column":27}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- query ($id: Nothing!) { product(id: $id) { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"cannot find type `Nothing` in this document","locations":[{"line":1,"column":8}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}},{"message":"variable `$id` of type `Nothing!` cannot be used for argument `id` of type `ID!`","locations":[{"line":1,"column":33}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { product(id: $id) { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"variable `$id` is not defined","locations":[{"line":1,"column":15}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- query ($id: ID!) { warehouse { city } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"unused variable: `$id`","locations":[{"line":1,"column":8}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { ...F }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"cannot find fragment `F` in this document","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { ...F } fragment F on Query { ...F }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"fragment `F` spreads itself, directly or through others","locations":[{"line":1,"column":32}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { warehouse { city } ... on Product { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"inline fragment with type condition `Product` cannot be applied to `Query`","locations":[{"line":1,"column":22}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { a: product(id: 1) { name } a: product(id: 2) { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"operation must not provide conflicting field arguments for the same name `product`","locations":[{"line":1,"column":30}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { warehouse @unknown { city } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"cannot find directive `@unknown` in this document","locations":[{"line":1,"column":13}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { warehouse @skip { city } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the required argument `@skip(if:)` is not provided","locations":[{"line":1,"column":13}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- subscription { productChanged { id } productChangedAt(place: "x") { id } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"anonymous subscription can only have one root field","locations":[{"line":1,"column":1}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- query A { warehouse { city } } query A { warehouse { city } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the operation `A` is defined multiple times in the document","locations":[{"line":1,"column":38}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { __type { name } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the required argument `Query.__type(name:)` is not provided","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- { _entities(representations: []) { __typename } }
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"type `Query` does not have a field `_entities`","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn an_unknown_operation_name_is_refused_with_the_known_names() {
    let shop = Shop::open();
    let two = "query First { warehouse { city } } query Second { warehouse { city } }";
    let mut outcomes = String::new();
    for (name, body) in [
        ("unknown", json!({ "query": two, "operationName": "Third" })),
        ("none of two", json!({ "query": two })),
        ("empty", json!({ "query": two, "operationName": "" })),
        (
            "for an operation without a name",
            json!({ "query": "{ warehouse { city } }", "operationName": "A" }),
        ),
        ("no operation", json!({ "query": "fragment F on Query { warehouse { city } }" })),
    ] {
        outcomes += &case(name, &outcome(&shop, &body));
    }
    expect![[r#"
        --- unknown
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the document has no operation named \"Third\"; it has: First, Second","extensions":{"code":"OPERATION_NOT_FOUND"}}]}

        --- none of two
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the document has several operations (First, Second); choose one with `operationName`","extensions":{"code":"OPERATION_NOT_FOUND"}}]}

        --- empty
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the document has no operation named \"\"; it has: First, Second","extensions":{"code":"OPERATION_NOT_FOUND"}}]}

        --- for an operation without a name
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the document has no operation named \"A\"; its operation has no name","extensions":{"code":"OPERATION_NOT_FOUND"}}]}

        --- no operation
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"fragment `F` must be used in an operation","locations":[{"line":1,"column":1}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_variable_that_does_not_match_its_type_is_refused_with_the_path_in_the_value() {
    let shop = Shop::open();
    let query = "query ($id: ID!, $first: Int, $filter: ProductFilter) {
        product(id: $id) { name } products(first: $first, filter: $filter) { name } }";
    let mut outcomes = String::new();
    for variables in [
        json!({}),
        json!({ "id": null }),
        json!({ "id": true }),
        json!({ "id": { "a": 1 } }),
        json!({ "id": "1", "first": "7" }),
        json!({ "id": "1", "first": 7.5 }),
        json!({ "id": "1", "first": 3_000_000_000_u32 }),
        json!({ "id": "1", "filter": 7 }),
        json!({ "id": "1", "filter": {} }),
        json!({ "id": "1", "filter": { "name": "x", "maxPrise": 7 } }),
        json!({ "id": "1", "filter": { "name": "x", "colours": ["RED", "GREEN"] } }),
        json!({ "id": "1", "filter": { "name": "x", "colours": [null, 7] } }),
    ] {
        let body = json!({ "query": query, "variables": variables });
        outcomes += &case(&variables.to_string(), &outcome(&shop, &body));
    }
    expect![[r#"
        --- {}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$id\" of required type \"ID!\" was not provided.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":null}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$id\" got an invalid value: expected non-null type \"ID!\", got null.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":true}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$id\" got an invalid value: ID cannot represent true.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":{"a":1}}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$id\" got an invalid value: ID cannot represent an object.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":"1","first":"7"}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$first\" got an invalid value: Int cannot represent a string.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":"1","first":7.5}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$first\" got an invalid value: Int cannot represent 7.5.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":"1","first":3000000000}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$first\" got an invalid value: Int cannot represent 3000000000.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":"1","filter":7}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$filter\" got an invalid value: ProductFilter cannot represent 7.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":"1","filter":{}}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$filter\" got an invalid value: field \"name\" of required type \"String!\" was not provided.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":"1","filter":{"name":"x","maxPrise":7}}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$filter\" got an invalid value: field \"maxPrise\" is not defined by type ProductFilter.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":"1","filter":{"name":"x","colours":["RED","GREEN"]}}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$filter\" got an invalid value at \"filter.colours.1\": value \"GREEN\" does not exist in enum Colour.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- {"id":"1","filter":{"name":"x","colours":[null,7]}}
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"Variable \"$filter\" got an invalid value at \"filter.colours.0\": expected non-null type \"Colour!\", got null.","extensions":{"code":"BAD_USER_INPUT"}}]}

    "#]].assert_eq(&outcomes);
    assert_eq!(shop.subgraph("products").request_count(), 0);
    shop.assert_unaffected();
}

#[test]
fn an_operation_over_a_limit_is_refused_with_the_limit_and_its_key() {
    let limits = "limits: {depth: 5, aliases: 3, root_fields: 4, tokens: 200, selections: 30}";
    let shop = Shop::with(limits);
    // Each fragment doubles the number of selections.
    let doubling: String = (0..6)
        .map(|n| format!("fragment F{n} on Product {{ ...F{} ...F{} }} ", n + 1, n + 1))
        .collect();
    let mut outcomes = String::new();
    for (name, query) in [
        ("depth", "{ latestReview { product { reviews { product { reviews { id } } } } } }".to_owned()),
        ("aliases", "{ warehouse { a: city b: city c: city d: city } }".to_owned()),
        ("root_fields", "{ a: __typename warehouse { city } latestReview { id } products { id } product(id: 1) { id } }".to_owned()),
        ("tokens", format!("{{ warehouse {{ {} }} }}", "city ".repeat(200))),
        ("selections", format!("{{ products {{ {} }} }}", "id price ".repeat(20))),
        ("fragments that multiply", format!("{{ products {{ ...F0 }} }} {doubling} fragment F6 on Product {{ id }}")),
        ("nesting without end", "{ a ".repeat(20)),
    ] {
        outcomes += &case(name, &outcome(&shop, &json!({ "query": query })));
    }
    expect![[r#"
        --- depth
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the operation exceeds the limit of 5 levels of nesting (`limits.depth`)","extensions":{"code":"OPERATION_LIMIT_EXCEEDED"}}]}

        --- aliases
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the operation exceeds the limit of 3 aliases (`limits.aliases`)","extensions":{"code":"OPERATION_LIMIT_EXCEEDED"}}]}

        --- root_fields
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the operation exceeds the limit of 4 root fields (`limits.root_fields`)","extensions":{"code":"OPERATION_LIMIT_EXCEEDED"}}]}

        --- tokens
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the operation exceeds the limit of 200 tokens (`limits.tokens`)","extensions":{"code":"OPERATION_LIMIT_EXCEEDED"}}]}

        --- selections
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the operation exceeds the limit of 30 selections after inlining fragments (`limits.selections`)","extensions":{"code":"OPERATION_LIMIT_EXCEEDED"}}]}

        --- fragments that multiply
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"the operation exceeds the limit of 30 selections after inlining fragments (`limits.selections`)","extensions":{"code":"OPERATION_LIMIT_EXCEEDED"}}]}

        --- nesting without end
        400 application/graphql-response+json; charset=utf-8
        {"errors":[{"message":"syntax error: expected `}`, but the document ends here","locations":[{"line":1,"column":81}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_document_with_the_deepest_possible_nesting_is_refused() {
    let shop = Shop::open();
    for (head, open, close, tail) in [
        ("", "{a", "}", ""),
        ("", "{a(b:[", "]){c}}", ""),
        ("query($a:", "[", "]", "){b}"),
        ("{product(id:", "[", "]", "){id}}"),
        ("{product(id:", "{a:", "}", "){id}}"),
    ] {
        let query = [head, &open.repeat(1_200), &close.repeat(1_200), tail].concat();
        let response = shop.query(&query);
        assert_eq!(response.status, 400, "{open}: {}", response.text());
        assert!(response.text().contains("`limits.depth`"), "{open}: {}", response.text());
    }
    shop.assert_unaffected();
}
