//! Subgraphs with made-up data.

#![allow(clippy::unwrap_used)] // a failed setup fails the test

use load::subgraph::{Invention, Subgraph};
use serde_json::{Value, json};

const SDL: &str = r#"
    type Query {
      user(id: ID!): User
      byUser(userId: ID!): User
      users(first: Int, offset: Int): [User!]!
      usersByIds(ids: [ID!]!): [User]!
      search(text: String!): [Result!]!
      product(upc: String!): Product
    }
    type User @key(fields: "id") @key(fields: "email") {
      id: ID!
      email: String!
      name: String!
      age: Int!
      bestFriend: User!
      reviews: [Review!]!
      role: Role!
      createdAt: DateTime!
      nothing: String
    }
    type Product @key(fields: "upc") { upc: String! price: Float! weight: Int @external cost: Int }
    type Review { body: String! stars: Int! product: Product! }
    enum Role { ADMIN GUEST }
    scalar DateTime
    interface Named { name: String! }
    type Shop implements Named { name: String! city: String! }
    union Result = User | Shop
"#;

fn subgraph(invention: Invention) -> Subgraph {
    Subgraph::builder(SDL).invent(invention).build().unwrap()
}

fn send_query(subgraph: &Subgraph, query: &str, variables: Value) -> Value {
    let body = json!({ "query": query, "variables": variables }).to_string();
    let response = subgraph.respond(body.as_bytes());
    let response: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(response.get("errors"), None, "{response}");
    response["data"].clone()
}

#[test]
fn an_entity_has_the_same_data_by_every_path() {
    let subgraph = subgraph(Invention::default());
    let fields = "id email name age role createdAt reviews { body stars product { upc price } }";
    let query = format!(
        "query($r: [_Any!]!) {{
           user(id: 7) {{ {fields} }} byUser(userId: 7) {{ {fields} }} users(offset: 6, first: 1) {{ {fields} }}
           usersByIds(ids: [7]) {{ {fields} }} _entities(representations: $r) {{ ... on User {{ {fields} }} }}
         }}"
    );
    let representations = json!({ "r": [
        { "__typename": "User", "id": "7" },
        { "__typename": "User", "email": "user7@example.com" },
    ]});
    let data = send_query(&subgraph, &query, representations);
    let user = &data["user"];
    assert_eq!(user["id"], "7");
    assert_eq!(user["email"], "user7@example.com");
    for found in [&data["byUser"], &data["users"][0], &data["usersByIds"][0], &data["_entities"][0]]
    {
        assert_eq!(found, user);
    }
    assert_eq!(&data["_entities"][1], user);
}

#[test]
fn another_subgraph_with_the_same_seed_agrees_and_another_seed_does_not() {
    let query = "{ user(id: 1) { name age bestFriend { id name } } }";
    let here = send_query(&subgraph(Invention::default()), query, json!({}));
    let other = "type Query { user(id: ID!): User }
                 type User @key(fields: \"id\") { id: ID! age: Int! name: String! bestFriend: User! }";
    let there = Subgraph::builder(other).invent(Invention::default()).build().unwrap();
    assert_eq!(send_query(&there, query, json!({})), here);
    let seeded = subgraph(Invention { seed: 2, ..Invention::default() });
    assert_ne!(send_query(&seeded, query, json!({})), here);
}

#[test]
fn lists_have_the_requested_length_or_one_within_bounds() {
    let subgraph = subgraph(Invention { list: (2, 4), ..Invention::default() });
    let query =
        "{ three: users(first: 3) { id } none: users(first: 0) { id } users { reviews { stars } }
                   later: users(first: 2, offset: 1) { id } }";
    let data = send_query(&subgraph, query, json!({}));
    assert_eq!(data["three"], json!([{"id": "1"}, {"id": "2"}, {"id": "3"}]));
    assert_eq!(data["later"], json!([{"id": "2"}, {"id": "3"}]));
    assert_eq!(data["none"], json!([]));
    let users = data["users"].as_array().unwrap();
    assert!((2..=4).contains(&users.len()));
    for user in users {
        let reviews = user["reviews"].as_array().unwrap();
        assert!((2..=4).contains(&reviews.len()));
        assert!(reviews.iter().all(|review| (1..=5).contains(&review["stars"].as_i64().unwrap())));
    }
}

#[test]
fn unions_use_all_members_and_arguments_change_the_result() {
    let subgraph = subgraph(Invention { list: (50, 50), ..Invention::default() });
    let query = "{ a: search(text: \"a\") { __typename ... on Named { name } ... on User { id } }
                   again: search(text: \"a\") { __typename ... on Named { name } ... on User { id } }
                   b: search(text: \"b\") { __typename ... on Named { name } ... on User { id } } }";
    let data = send_query(&subgraph, query, json!({}));
    assert_eq!(data["a"], data["again"]);
    assert_ne!(data["a"], data["b"]);
    for name in ["User", "Shop"] {
        let found = data["a"].as_array().unwrap().iter().any(|item| item["__typename"] == name);
        assert!(found, "{name}");
    }
}

#[test]
fn only_nullable_fields_are_null_and_keys_never_are() {
    let query = "{ users(first: 50) { id name nothing } }";
    let nulls = |share| {
        let data = send_query(
            &subgraph(Invention { nulls: share, ..Invention::default() }),
            query,
            json!({}),
        );
        let users = data["users"].as_array().unwrap().clone();
        users.iter().filter(|user| user["nothing"].is_null()).count()
    };
    assert_eq!(nulls(0.0), 0);
    assert_eq!(nulls(1.0), 50);
    assert!((5..45).contains(&nulls(0.5)));
}

#[test]
fn a_changed_entity_has_its_new_values_by_every_path() {
    let subgraph = subgraph(Invention::default());
    let change = |entity: Value| subgraph.change_entity(entity.as_object().unwrap().clone());
    let query = "query($r: [_Any!]!) {
      user(id: 7) { id email name age bestFriend { id } reviews { body } } users(offset: 6, first: 2) { id name age }
      _entities(representations: $r) { ... on User { name age } }
    }";
    let representations =
        json!({ "r": [{ "__typename": "User", "email": "user7@example.com", "name": "old" }] });
    let before = send_query(&subgraph, query, representations.clone());
    change(json!({ "__typename": "User", "id": "7", "name": "Ann", "bestFriend": { "id": "9" } }))
        .unwrap();
    change(json!({ "__typename": "User", "email": "user7@example.com", "age": 70 })).unwrap();
    let after = send_query(&subgraph, query, representations);
    let mut expected = before.clone();
    expected["user"]["bestFriend"]["id"] = "9".into();
    for user in ["/user", "/users/0", "/_entities/0"] {
        let user = expected.pointer_mut(user).unwrap();
        (user["name"], user["age"]) = ("Ann".into(), 70.into());
    }
    assert_eq!(after, expected);
    assert_ne!(before["users"][1], before["users"][0]);
    assert_eq!(subgraph.change_count(), 2);

    for (entity, reason) in [
        (json!({ "id": "7" }), "__typename"),
        (json!({ "__typename": "Nothing", "id": "7" }), "object type `Nothing`"),
        (json!({ "__typename": "User", "name": "x" }), "complete key"),
        (json!({ "__typename": "Review", "stars": 1 }), "complete key"),
        (json!({ "__typename": "User", "id": "7", "nam": "x" }), "`User.nam`"),
    ] {
        let refused = change(entity).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
    let given = Subgraph::builder(SDL).records("User", [json!({ "id": "1" })]);
    let given = given.invent(Invention::default()).build().unwrap();
    let entity = json!({ "__typename": "User", "id": "1", "name": "x" });
    assert!(
        given.change_entity(entity.as_object().unwrap().clone()).unwrap_err().contains("made up")
    );
    assert_eq!((subgraph.change_count(), given.change_count()), (2, 0));
}

#[test]
fn data_of_a_representation_is_not_made_up() {
    let query = "query($r: [_Any!]!) { _entities(representations: $r) { ... on Product { upc weight cost } } }";
    let representations =
        json!({ "r": [{ "__typename": "Product", "upc": "upc-3", "weight": 11 }] });
    let data = send_query(&subgraph(Invention::default()), query, representations);
    assert_eq!(data["_entities"][0]["upc"], "upc-3");
    assert_eq!(data["_entities"][0]["weight"], 11);
    assert!(data["_entities"][0]["cost"].is_i64());
}

#[test]
fn records_come_first_and_the_rest_is_made_up() {
    let subgraph = Subgraph::builder(SDL)
        .records("User", [json!({ "id": "1", "name": "Zed" })])
        .invent(Invention::default())
        .build()
        .unwrap();
    let data = send_query(
        &subgraph,
        "{ user(id: 1) { name age } other: user(id: 2) { name } }",
        json!({}),
    );
    assert_eq!(data["user"]["name"], "Zed");
    assert!(data["user"]["age"].is_i64());
    assert_eq!(data["other"], Value::Null);
}

#[test]
fn every_subgraph_of_the_benchmark_and_the_demo_can_be_mocked() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let supergraphs = [
        root.join("fixtures/federation-benchmark/supergraph.graphql"),
        root.join("crates/compose/tests/demo.graphql"),
    ];
    let mut mocked = 0;
    for path in supergraphs.iter().filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(path).unwrap();
        for subgraph in load::mock::subgraphs(&text).unwrap() {
            let built = Subgraph::builder(&*subgraph.sdl).invent(Invention::default()).build();
            let built = built.unwrap_or_else(|error| {
                panic!("{} of {}: {error}\n{}", subgraph.name, path.display(), subgraph.sdl)
            });
            send_query(&built, "{ _service { sdl } }", json!({}));
            mocked += 1;
        }
    }
    assert!(mocked >= 8, "{mocked}");
}
