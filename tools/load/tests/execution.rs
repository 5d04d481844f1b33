//! The responses of a subgraph: operations in, GraphQL responses out, no sockets.

#![allow(clippy::unwrap_used)] // a missing response fails the test

use std::sync::LazyLock;

use load::subgraph::{FieldError, Subgraph};
use serde_json::{Value, json};

const SDL: &str = r#"
extend schema @link(url: "https://specs.apollo.dev/federation/v2.3", import: ["@key", "@external", "@requires"])

type Query {
  users: [User!]!
  user(id: ID!): User
  search(text: String! = "a", limit: Int): [Hit]
  strict: Strict
  tags: [String]
  echo(input: Filter, size: Size = SMALL, any: Json): String
}
type Mutation { rename(id: ID!, name: String!): User }

type User implements Named @key(fields: "id") @key(fields: "email") {
  id: ID!
  email: String
  name: String!
  friends: [User!]
  best: Named
  failing: String
  scores: [[Float]]
}
type Product implements Named @key(fields: "upc") {
  upc: ID!
  name: String!
  price: Int @external
  size: Dimensions @external
  shipping: Int @requires(fields: "price size { depth }")
}
type Dimensions { depth: Int width: Int }
type Stub @key(fields: "id org { id }") { id: ID! org: Org! label: String }
type Org { id: ID! }
type Strict { inner: Strict! value: Int! values: [Int!] }
interface Named { name: String! }
union Hit = User | Product
enum Size { SMALL LARGE }
scalar Json
input Filter { text: String!, limit: Int = 5, nested: Filter, sizes: [Size!] }
"#;

fn subgraph() -> &'static Subgraph {
    &SUBGRAPH
}

static SUBGRAPH: LazyLock<Subgraph> = LazyLock::new(|| {
    Subgraph::builder(SDL)
        .records(
            "Query",
            [json!({
                "users": [{"id": "1"}, {"id": "2"}],
                "search": [{"__typename": "User", "id": "2"}, {"__typename": "Product", "upc": "p1"}, null],
                "strict": {"inner": {"value": 1}, "value": null},
                "tags": ["a \"quoted\" tag", null],
            })],
        )
        .records(
            "User",
            [
                json!({"id": "1", "email": "a@example.org", "name": "Ada", "friends": [{"id": "2"}],
                       "best": {"__typename": "User", "id": "2", "name": "Bobby"}, "scores": [[1.5, null], null]}),
                json!({"id": "2", "email": "b@example.org", "name": "Bob", "friends": [{"id": "1"}, {"id": "2"}],
                       "best": {"__typename": "User", "id": "2"}}),
            ],
        )
        .records("Product", [json!({"upc": "p1", "name": "Table"})])
        .resolver("Query", "user", |call| Ok(json!({"id": call.argument("id")})))
        .resolver("Query", "echo", |call| Ok(json!(serde_json::to_string(call.arguments).unwrap())))
        .resolver("Mutation", "rename", |call| {
            Ok(json!({"id": call.argument("id"), "name": call.argument("name")}))
        })
        .resolver("User", "failing", |call| {
            Err(FieldError::with_code(format!("no luck for {}", call.member("name")), "NO_LUCK"))
        })
        .resolver("Product", "shipping", |call| match call.member("price").as_i64() {
            Some(price) => Ok(json!(price * 2)),
            None => Err("no price".into()),
        })
        .build()
        .unwrap()
});

/// Executes a query and checks the whole response, including the order of its keys.
#[track_caller]
fn check(query: &str, variables: Value, expected: &str) {
    let body = json!({"query": query, "variables": variables}).to_string();
    let response = subgraph().respond(body.as_bytes());
    assert_eq!(String::from_utf8(response.body).unwrap(), expected);
    assert_eq!(response.status, 200);
}

/// Sends a request that is refused before execution and returns its message.
#[track_caller]
fn refused(body: &str) -> String {
    let response = subgraph().respond(body.as_bytes());
    assert_eq!(response.status, 400, "{}", String::from_utf8_lossy(&response.body));
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    assert!(body.get("data").is_none());
    body["errors"][0]["message"].as_str().unwrap().to_owned()
}

#[test]
fn fields_come_in_the_order_of_the_operation_under_their_aliases() {
    check(
        "{ people: users { n: name id } users { id } __typename }",
        json!({}),
        r#"{"data":{"people":[{"n":"Ada","id":"1"},{"n":"Bob","id":"2"}],"users":[{"id":"1"},{"id":"2"}],"__typename":"Query"}}"#,
    );
}

#[test]
fn records_refer_to_each_other_in_circles() {
    check(
        "{ users { friends { id friends { name } } } }",
        json!({}),
        r#"{"data":{"users":[{"friends":[{"id":"2","friends":[{"name":"Ada"},{"name":"Bob"}]}]},{"friends":[{"id":"1","friends":[{"name":"Bob"}]},{"id":"2","friends":[{"name":"Ada"},{"name":"Bob"}]}]}]}}"#,
    );
}

#[test]
fn a_member_given_in_full_covers_the_record_with_its_key() {
    check(
        "{ user(id: 1) { best { __typename name ... on User { email } } } }",
        json!({}),
        r#"{"data":{"user":{"best":{"__typename":"User","name":"Bobby","email":"b@example.org"}}}}"#,
    );
}

#[test]
fn fragments_apply_by_type_and_merge_with_fields() {
    check(
        "query { search { __typename ...Hit ... on Product { upc } } }
         fragment Hit on Hit { ... on Named { name } ...Person }
         fragment Person on User { name friends { id } friends { name } }",
        json!({}),
        r#"{"data":{"search":[{"__typename":"User","name":"Bob","friends":[{"id":"1","name":"Ada"},{"id":"2","name":"Bob"}]},{"__typename":"Product","name":"Table","upc":"p1"},null]}}"#,
    );
}

#[test]
fn skip_and_include_decide_for_literals_variables_and_fragments() {
    check(
        "query($yes: Boolean!, $no: Boolean = false) { user(id: \"1\") {
            a: name @include(if: $yes) b: name @include(if: $no) c: name @skip(if: $yes) d: name @skip(if: true)
            ... @include(if: $no) { e: name } ...F @skip(if: $no)
            friends @include(if: $no) { id } friends @include(if: $yes) { name }
         } } fragment F on User { f: name }",
        json!({"yes": true}),
        r#"{"data":{"user":{"a":"Ada","f":"Ada","friends":[{"name":"Bob"}]}}}"#,
    );
}

#[test]
fn arguments_are_coerced_and_have_defaults() {
    check(
        "query($f: Filter, $limit: Int, $size: Size) { a: echo b: echo(size: $size, input: {text: \"x\", limit: $limit}) c: echo(input: $f, any: {deep: [1, {x: $limit}]}) }",
        json!({"f": {"text": "t", "nested": {"text": "u", "limit": 3.0}, "sizes": "LARGE"}, "limit": 7}),
        &json!({"data": {
            "a": r#"{"size":"SMALL"}"#,
            "b": r#"{"input":{"text":"x","limit":7},"size":"SMALL"}"#,
            "c": r#"{"input":{"text":"t","limit":5,"nested":{"text":"u","limit":3},"sizes":["LARGE"]},"size":"SMALL","any":{"deep":[1,{"x":7}]}}"#,
        }})
        .to_string(),
    );
}

#[test]
fn lists_of_leaves_keep_their_nulls_and_escapes() {
    check(
        "{ tags user(id: 1) { scores } }",
        json!({}),
        r#"{"data":{"tags":["a \"quoted\" tag",null],"user":{"scores":[[1.5,null],null]}}}"#,
    );
}

#[test]
fn an_error_names_its_path_and_nulls_the_field() {
    check(
        "{ users { name oops: failing } }",
        json!({}),
        r#"{"data":{"users":[{"name":"Ada","oops":null},{"name":"Bob","oops":null}]},"errors":[{"message":"no luck for \"Ada\"","path":["users",0,"oops"],"extensions":{"code":"NO_LUCK"}},{"message":"no luck for \"Bob\"","path":["users",1,"oops"],"extensions":{"code":"NO_LUCK"}}]}"#,
    );
}

#[test]
fn a_null_for_a_non_null_field_nulls_the_nearest_nullable_parent() {
    check(
        "{ tags strict { inner { value inner { value } } } users { id } }",
        json!({}),
        r#"{"data":{"tags":["a \"quoted\" tag",null],"strict":null,"users":[{"id":"1"},{"id":"2"}]},"errors":[{"message":"null for a non-null field","path":["strict","inner","inner"]}]}"#,
    );
}

#[test]
fn a_resolved_key_of_no_record_is_null() {
    check("{ user(id: 9) { id name } }", json!({}), r#"{"data":{"user":null}}"#);
}

#[test]
fn entities_are_found_by_any_of_their_keys_in_the_order_of_the_representations() {
    check(
        "query($r: [_Any!]!) { _entities(representations: $r) { __typename ... on User { id name } ... on Product { name shipping } } }",
        json!({"r": [
            {"__typename": "Product", "upc": "p1", "price": 21, "size": {"depth": 3}},
            {"__typename": "User", "email": "b@example.org"},
            {"__typename": "User", "id": 1},
            {"__typename": "User", "id": "9"},
        ]}),
        r#"{"data":{"_entities":[{"__typename":"Product","name":"Table","shipping":42},{"__typename":"User","id":"2","name":"Bob"},{"__typename":"User","id":"1","name":"Ada"},null]}}"#,
    );
}

#[test]
fn a_representation_gives_its_keys_and_external_fields_and_nothing_else() {
    check(
        "{ _entities(representations: [{__typename: \"Product\", upc: \"p1\", name: \"Forged\", size: {depth: 4}}]) { ... on Product { upc name size { depth width } } } }",
        json!({}),
        r#"{"data":{"_entities":[{"upc":"p1","name":"Table","size":{"depth":4,"width":null}}]}}"#,
    );
}

#[test]
fn an_entity_type_without_records_is_its_representation() {
    check(
        "{ _entities(representations: [{__typename: \"Stub\", id: 1, org: {id: 2}}]) { ... on Stub { id org { id } label } } }",
        json!({}),
        r#"{"data":{"_entities":[{"id":"1","org":{"id":"2"},"label":null}]}}"#,
    );
}

#[test]
fn a_bad_representation_fails_alone() {
    check(
        "query($r: [_Any!]!) { _entities(representations: $r) { ... on User { name } } }",
        json!({"r": [{"__typename": "Nobody"}, {"id": 1}, 7, {"__typename": "User", "id": "1"}, {"__typename": "User", "name": "x"}]}),
        r#"{"data":{"_entities":[null,null,null,{"name":"Ada"},null]},"errors":[{"message":"an object of type `Nobody` is not a `_Entity`","path":["_entities",0]},{"message":"a representation has no `__typename`","path":["_entities",1]},{"message":"a representation is not an object","path":["_entities",2]},{"message":"a representation of `User` has no complete key","path":["_entities",4]}]}"#,
    );
}

#[test]
fn the_service_returns_its_schema_as_given() {
    let response = subgraph().respond(br#"{"query":"{ _service { sdl __typename } }"}"#);
    let response: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(response, json!({"data": {"_service": {"sdl": SDL, "__typename": "_Service"}}}));
}

#[test]
fn a_mutation_is_executed_and_the_named_operation_is_chosen() {
    let body = json!({
        "query": "query Q { tags } mutation M($n: String!) { rename(id: 1, name: $n) { name email } }",
        "operationName": "M",
        "variables": {"n": "Eve"},
    });
    let response = subgraph().respond(body.to_string().as_bytes());
    assert_eq!(
        String::from_utf8(response.body).unwrap(),
        r#"{"data":{"rename":{"name":"Eve","email":"a@example.org"}}}"#
    );
}

#[test]
fn an_entity_resolver_resolves_its_type() {
    let subgraph = Subgraph::builder("type User @key(fields: \"id\") { id: ID! name: String! }")
        .records("User", [json!({"id": "1", "name": "Ada"})])
        .entity("User", |representation| match representation["id"].as_str() {
            Some("boom") => Err("boom".into()),
            Some("gone") => Ok(Value::Null),
            _ => Ok(json!({"id": "1"})),
        })
        .build()
        .unwrap();
    let body = json!({
        "query": "query($r: [_Any!]!) { _entities(representations: $r) { ... on User { name } } }",
        "variables": {"r": [{"__typename": "User", "id": "x"}, {"__typename": "User", "id": "gone"}, {"__typename": "User", "id": "boom"}]},
    });
    assert_eq!(
        String::from_utf8(subgraph.respond(body.to_string().as_bytes()).body).unwrap(),
        r#"{"data":{"_entities":[{"name":"Ada"},null,null]},"errors":[{"message":"boom","path":["_entities",2]}]}"#
    );
}

#[test]
fn a_request_that_cannot_be_executed_is_refused_with_a_message() {
    for (body, expected) in [
        ("{", "not a GraphQL request"),
        ("[]", "not a GraphQL request"),
        (r#"{"query": 1}"#, "not a GraphQL request"),
        (r#"{"query": "{ users { id }"}"#, "syntax error"),
        (r#"{"query": "{ nothing }"}"#, "nothing"),
        (r#"{"query": "{ __schema { types { name } } }"}"#, "introspection"),
        (r#"{"query": "query A { tags } query B { tags }"}"#, "name one"),
        (r#"{"query": "query A { tags }", "operationName": "C"}"#, "`C`"),
        (
            r#"{"query": "query($id: ID!) { user(id: $id) { id } }"}"#,
            "`$id` of type ID! is missing",
        ),
        (
            r#"{"query": "query($n: Int) { search(limit: $n) { __typename } }", "variables": {"n": "x"}}"#,
            "`$n`",
        ),
        (r#"{"query": "query($s: Size) { echo(size: $s) }", "variables": {"s": "HUGE"}}"#, "HUGE"),
        (
            r#"{"query": "query($f: Filter) { echo(input: $f) }", "variables": {"f": {"text": "t", "no": 1}}}"#,
            "`no`",
        ),
    ] {
        let message = refused(body);
        assert!(message.contains(expected), "{body}: {message}");
    }
}

#[test]
fn an_operation_that_is_too_deep_or_too_large_is_refused() {
    let deep = format!("{{ users {}{{ id }}{} }}", "{ friends ".repeat(150), "}".repeat(150));
    assert!(!refused(&json!({ "query": deep }).to_string()).is_empty());

    // Each fragment spreads the next one twice: 2^30 fields after inlining.
    let mut blown = String::from("{ users { ...F0 } }");
    for n in 0..30 {
        let next = n + 1;
        blown += &format!(
            " fragment F{n} on User {{ a{n}: friends {{ ...F{next} }} b{n}: friends {{ ...F{next} }} }}"
        );
    }
    blown += " fragment F30 on User { id }";
    assert!(!refused(&json!({ "query": blown }).to_string()).is_empty());
}

#[test]
fn an_operation_as_deep_as_routers_allow_is_executed() {
    let levels = 120;
    let query = format!(
        "{{ user(id: 1) {}{{ name }}{} }}",
        "{ best { ... on User ".repeat(levels),
        "} }".repeat(levels)
    );
    let response = subgraph().respond(json!({ "query": query }).to_string().as_bytes());
    let response: Value = serde_json::from_slice(&response.body).unwrap();
    let innermost = (0..levels).fold(&response["data"]["user"], |object, _| &object["best"]);
    assert_eq!(innermost, &json!({"name": "Bob"}));
}

#[test]
fn a_response_without_end_is_refused() {
    let query = format!("{{ users {}{{ id }}{} }}", "{ friends ".repeat(60), "}".repeat(60));
    let message = refused(&json!({ "query": query }).to_string());
    assert!(message.contains("objects"), "{message}");
}

#[test]
fn data_that_does_not_fit_the_schema_is_refused_at_build() {
    let message = |type_name: &str, record: Value| {
        Subgraph::builder(SDL).records(type_name, [record]).build().err().unwrap().to_string()
    };
    assert!(message("Nobody", json!({})).contains("`Nobody`"));
    assert!(message("User", json!({"id": "1", "nme": "x"})).contains("`User.nme`"));
    assert!(message("User", json!({"id": "1", "friends": {"id": 1}})).contains("not a list"));
    assert!(message("User", json!({"id": "1", "best": {"id": 1}})).contains("__typename"));
    assert!(message("User", json!({"id": "1", "friends": [{"id": 2}]})).contains("no record"));
    assert!(message("User", json!(1)).contains("not an object"));
    let twice = Subgraph::builder(SDL)
        .records("User", [json!({"id": "1"}), json!({"id": 1})])
        .build()
        .err()
        .unwrap();
    assert!(twice.to_string().contains("same key"));
    let roots = Subgraph::builder(SDL).records("Query", [json!({}), json!({})]).build();
    assert!(roots.err().unwrap().to_string().contains("two records"));
    assert!(Subgraph::builder(SDL).resolver("User", "x", |_| Ok(Value::Null)).build().is_err());
    assert!(Subgraph::builder(SDL).entity("Org", |_| Ok(Value::Null)).build().is_err());
}
