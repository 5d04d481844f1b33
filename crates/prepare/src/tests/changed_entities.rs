//! Mutations that change an entity also select its keys.

use std::sync::Arc;

use execute::{ChangedEntity, ChangedKey, ChangedKeyField};
use graph::Supergraph;
use plan::FetchKind;

use crate::PrepareSettings;
use crate::changed_entities::select_changed_entities;
use crate::operation_variant::OperationVariant;
use crate::pipeline::Pipeline;
use crate::steps::PrepareSteps;

const SCHEMA: &str = r#"
schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) { query: Query mutation: Mutation }
enum join__Graph {
  SHOP @join__graph(name: "shop", url: "http://shop")
  STOCK @join__graph(name: "stock", url: "http://stock")
}
type Query @join__type(graph: SHOP) @join__type(graph: STOCK) { product: Product @join__field(graph: SHOP) }
type Mutation @join__type(graph: SHOP) {
  rename(id: ID!): Product @join__directive(graphs: [SHOP], name: "openfed__cacheInvalidate")
  renameAll: [Product!]! @join__directive(graphs: [SHOP], name: "openfed__cachePopulate", args: {maxAge: 9})
  look: Product
  other: Product @join__directive(graphs: [STOCK], name: "openfed__cacheInvalidate")
}
interface Item @join__type(graph: STOCK, key: "id") { id: ID! }
type Product implements Item @join__implements(graph: STOCK, interface: "Item")
  @join__type(graph: SHOP, key: "id") @join__type(graph: SHOP, key: "sku maker { id }")
  @join__type(graph: STOCK, key: "id") @join__type(graph: STOCK, key: "shelf") {
  id: ID!
  sku: ID! @join__field(graph: SHOP)
  maker: Maker @join__field(graph: SHOP)
  name: String @join__field(graph: SHOP)
  shelf: ID @join__field(graph: STOCK)
}
type Maker @join__type(graph: SHOP) { id: ID! }
"#;

/// Returns the text of the mutation, and its changed entities.
fn changed(mutation: &str) -> (String, Vec<ChangedEntity>) {
    let graph = Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").expect("a supergraph"));
    let pipeline = Pipeline::new(Arc::clone(&graph), 1, PrepareSettings::default(), Arc::default());
    let variant = OperationVariant::default();
    let prepared =
        pipeline.prepare_shared(mutation.as_bytes(), None, &variant, &mut PrepareSteps::default());
    let mut plan = (*prepared.expect("a plan").0.plan).clone();
    let all = select_changed_entities(&mut plan, &graph);
    let FetchKind::Root { operation, .. } = &plan.fetches[0].kind else { panic!("{plan:?}") };
    (operation.text.to_string(), all.into_iter().next().unwrap_or_default())
}

fn field(name: &str, response_key: &str, fields: Vec<ChangedKeyField>) -> ChangedKeyField {
    ChangedKeyField { name: name.into(), response_key: response_key.into(), fields }
}

fn entity(data_key: &str, alias: &str) -> ChangedEntity {
    let key = |type_name: &str, fields| ChangedKey { type_name: type_name.into(), fields };
    let (first, second, third) = (format!("{alias}0"), format!("{alias}1"), format!("{alias}2"));
    let maker = field("maker", &third, vec![field("id", "id", vec![])]);
    ChangedEntity {
        data_key: data_key.into(),
        keys: vec![
            key("Product", vec![field("id", &first, vec![])]),
            key("Product", vec![field("sku", &second, vec![]), maker]),
            // `shelf` is a key that the subgraph of the mutation does not know.
            key("Item", vec![field("id", &first, vec![])]),
        ],
    }
}

#[test]
fn the_keys_are_selected_whatever_the_client_selects() {
    let (text, found) = changed("mutation { rename(id: 1) { name } }");
    assert!(text.ends_with("{name _key0:id _key1:sku _key2:maker{id}}}"), "{text}");
    assert_eq!(found, [entity("rename", "_key")]);
    let (text, found) = changed("mutation { all: renameAll { _key0: name } }");
    assert!(text.ends_with("{_key0:name _key_0:id _key_1:sku _key_2:maker{id}}}"), "{text}");
    assert_eq!(found, [entity("all", "_key_")]);
}

#[test]
fn the_keys_have_no_conditions() {
    let (text, found) = changed(
        "mutation ($a: Boolean!, $b: Boolean!) {
            rename(id: 1) @include(if: $a) { name }
            rename(id: 1) @include(if: $b) { sku }
        }",
    );
    let end = "{name@include(if:$a) sku@include(if:$b) _key0:id _key1:sku _key2:maker{id}}}";
    assert!(text.ends_with(end), "{text}");
    assert_eq!(found, [entity("rename", "_key")]);
}

#[test]
fn other_mutations_stay_as_they_are() {
    for mutation in ["mutation { look { name } }", "mutation { other { name } }"] {
        let (text, found) = changed(mutation);
        assert!(text.ends_with("{name}}") && found.is_empty(), "{text}");
    }
}
