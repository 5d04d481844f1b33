//! The part of the API schema that a client may use (`Supergraph::visible_api`).

use expect_test::{Expect, expect};
use graph::{RequirementSet, Supergraph};

/// Returns a supergraph of one subgraph with these types, each on a line that begins with its kind.
fn graph(types: &str) -> Supergraph {
    const KINDS: [&str; 4] = ["type ", "interface ", "input ", "enum "];
    let lines = types.lines().map(|line| {
        let is_definition = KINDS.iter().any(|kind| line.trim_start().starts_with(kind));
        match is_definition {
            true => line.replacen(" {", " @join__type(graph: A) {", 1),
            false => line.to_owned(),
        }
    });
    let types = lines.collect::<Vec<_>>().join("\n");
    let text = format!(
        r#"
        schema
            @link(url: "https://specs.apollo.dev/link/v1.0")
            @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
            @link(url: "https://specs.apollo.dev/authenticated/v0.1", for: SECURITY)
            @link(url: "https://specs.apollo.dev/requiresScopes/v0.1", for: SECURITY)
        {{ query: Query mutation: Mutation }}
        enum join__Graph {{ A @join__graph(name: "a", url: "http://a") }}
        {types}
        "#
    );
    Supergraph::from_sdl(&text, "supergraph.graphql")
        .unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// Compares the schema that a client sees without the requirements `unmet`.
fn check(types: &str, unmet: &[&str], expected: Expect) {
    let graph = graph(types);
    let stated: Vec<String> = graph.access.requirements.iter().map(ToString::to_string).collect();
    let index = |wanted: &&str| {
        let index = stated.iter().position(|it| it == wanted);
        index.unwrap_or_else(|| panic!("{wanted} is none of {stated:?}")) as u16
    };
    let unmet: RequirementSet = unmet.iter().map(index).collect();
    let shown = graph.visible_api(&unmet).map_or("nothing".to_owned(), |it| it.to_string());
    expected.assert_eq(&shown);
}

const LOGIN: &str = "@authenticated";
const ADMIN: &str = r#"@requiresScopes(scopes: [["admin"]])"#;

const SHOP: &str = r#"
    type Query {
        product(id: ID, order: Order): Product
        account(filter: AccountFilter): Account @authenticated
        search: [Result]
        node: Node
    }
    type Mutation { restock(input: Restock): Product @requiresScopes(scopes: [["admin"]]) }
    interface Node { id: ID! internal: String }
    type Product implements Node @join__implements(graph: A, interface: "Node") {
        id: ID!
        internal: String @requiresScopes(scopes: [["admin"]])
        price(currency: Currency): Int
        supplier: Supplier
    }
    type Supplier @requiresScopes(scopes: [["admin"]]) { name: String terms: Terms }
    type Terms { days: Int }
    type Account implements Node @join__implements(graph: A, interface: "Node") {
        id: ID!
        internal: String
        level: Level
    }
    union Result @join__unionMember(graph: A, member: "Product") @join__unionMember(graph: A, member: "Supplier") @join__type(graph: A) = Product | Supplier
    enum Level { GOLD @join__enumValue(graph: A) SILVER @join__enumValue(graph: A) }
    enum Currency { EUR @join__enumValue(graph: A) }
    enum Order { NAME @join__enumValue(graph: A) }
    input AccountFilter { level: Level region: Region }
    enum Region { EU @join__enumValue(graph: A) }
    input Restock { count: Int }
"#;

#[test]
fn a_client_with_all_rights_sees_the_whole_schema() {
    let graph = graph(SHOP);
    let shown = graph.visible_api(&RequirementSet::default()).expect("a schema");
    assert_eq!(shown.to_string(), graph.api_sdl());
}

#[test]
fn what_is_denied_is_hidden_with_everything_that_only_it_leads_to() {
    check(
        SHOP,
        &[LOGIN, ADMIN],
        expect![[r#"
        type Query {
          product(id: ID, order: Order): Product
          search: [Result]
          node: Node
        }

        interface Node {
          id: ID!
        }

        type Product implements Node {
          id: ID!
          price(currency: Currency): Int
        }

        type Account implements Node {
          id: ID!
          internal: String
          level: Level
        }

        union Result = Product

        enum Level {
          GOLD
          SILVER
        }

        enum Currency {
          EUR
        }

        enum Order {
          NAME
        }
    "#]],
    );
}

#[test]
fn a_client_with_some_rights_sees_what_these_lead_to() {
    check(
        SHOP,
        &[ADMIN],
        expect![[r#"
        type Query {
          product(id: ID, order: Order): Product
          account(filter: AccountFilter): Account
          search: [Result]
          node: Node
        }

        interface Node {
          id: ID!
        }

        type Product implements Node {
          id: ID!
          price(currency: Currency): Int
        }

        type Account implements Node {
          id: ID!
          internal: String
          level: Level
        }

        union Result = Product

        enum Level {
          GOLD
          SILVER
        }

        enum Currency {
          EUR
        }

        enum Order {
          NAME
        }

        input AccountFilter {
          level: Level
          region: Region
        }

        enum Region {
          EU
        }
    "#]],
    );
}

#[test]
fn a_client_without_any_field_of_the_query_root_sees_nothing() {
    let types = "type Query @authenticated { a: Int b: Int } type Mutation { c: Int }";
    check(types, &[LOGIN], expect!["nothing"]);
}

#[test]
fn an_interface_is_hidden_by_its_own_requirement_and_its_types_are_not() {
    let types = r#"
        type Query { node: Node product: Product }
        type Mutation { touch: Boolean }
        interface Node @authenticated { id: ID! }
        type Product implements Node @join__implements(graph: A, interface: "Node") { id: ID! name: String }
    "#;
    // The interface alone states it, so both root fields need it.
    check(
        types,
        &[LOGIN],
        expect![[r#"
        type Query {
          product: Product
        }

        type Mutation {
          touch: Boolean
        }

        type Product {
          id: ID!
          name: String
        }
    "#]],
    );
}

#[test]
fn types_behind_an_interface_that_is_only_named_stay_hidden() {
    let types = r#"
        type Query { product: Product secret: Secret @authenticated }
        type Mutation { touch: Boolean }
        interface Node { id: ID! owner: Owner }
        interface Owner { name: String }
        type Product implements Node @join__implements(graph: A, interface: "Node") { id: ID! owner: Person }
        type Secret implements Node @join__implements(graph: A, interface: "Node") { id: ID! owner: Agency }
        type Person implements Owner @join__implements(graph: A, interface: "Owner") { name: String }
        type Agency implements Owner @join__implements(graph: A, interface: "Owner") { name: String }
    "#;
    check(
        types,
        &[LOGIN],
        expect![[r#"
        type Query {
          product: Product
        }

        type Mutation {
          touch: Boolean
        }

        interface Node {
          id: ID!
          owner: Owner
        }

        interface Owner {
          name: String
        }

        type Product implements Node {
          id: ID!
          owner: Person
        }

        type Person implements Owner {
          name: String
        }
    "#]],
    );
}

#[test]
fn an_input_type_is_shown_as_long_as_something_takes_it() {
    let types = r#"
        type Query { a(level: Level): Int b: Level @authenticated c(filter: Filter): Int @authenticated }
        type Mutation { touch: Boolean }
        enum Level @authenticated { GOLD @join__enumValue(graph: A) }
        input Filter { level: Level other: Other }
        input Other { x: Int }
    "#;
    check(
        types,
        &[LOGIN],
        expect![[r#"
        type Query {
          a(level: Level): Int
        }

        type Mutation {
          touch: Boolean
        }

        enum Level {
          GOLD
        }
    "#]],
    );
}
