//! Mutations that change an entity also select its keys, and those that populate make the entries of later requests.

use std::sync::Arc;
use std::time::Duration;

use cache::{Scope, SubgraphTtl, TtlRules};
use execute::{ChangedEntity, ChangedKey, ChangedKeyField, PopulatedEntry, PopulatedMember};
use graph::Supergraph;
use plan::{FetchKind, Plan};

use crate::PrepareSettings;
use crate::changed_entities::select_changed_entities;
use crate::fetch_caching::caching_of;
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
  LABELS @join__graph(name: "labels", url: "http://labels")
}
type Query @join__type(graph: SHOP) @join__type(graph: STOCK) @join__type(graph: LABELS) {
  product: Product @join__field(graph: SHOP)
  shelved: [Product] @join__field(graph: STOCK)
  labelled: [Product] @join__field(graph: LABELS)
}
type Mutation @join__type(graph: SHOP) {
  rename(id: ID!): Product @join__directive(graphs: [SHOP], name: "openfed__cacheInvalidate")
  renameAll: [Product!]! @join__directive(graphs: [SHOP], name: "openfed__cachePopulate", args: {maxAge: 9})
  add: Product @join__directive(graphs: [SHOP], name: "openfed__cachePopulate")
  addOwn: Product @join__directive(graphs: [SHOP], name: "openfed__cachePopulate")
    @join__directive(graphs: [SHOP], name: "cacheControl", args: {scope: PRIVATE})
  look: Product
  other: Product @join__directive(graphs: [STOCK], name: "openfed__cacheInvalidate")
}
interface Item @join__type(graph: STOCK, key: "id") { id: ID! }
type Product implements Item @join__implements(graph: STOCK, interface: "Item")
  @join__type(graph: SHOP, key: "id") @join__type(graph: SHOP, key: "sku maker { id }")
  @join__type(graph: STOCK, key: "id") @join__type(graph: STOCK, key: "shelf")
  @join__type(graph: LABELS, key: "sku maker { id }") {
  id: ID! @join__field(graph: SHOP) @join__field(graph: STOCK)
  sku: ID! @join__field(graph: SHOP) @join__field(graph: LABELS)
  maker: Maker @join__field(graph: SHOP) @join__field(graph: LABELS)
  name(short: Boolean): String @join__field(graph: SHOP)
  price: Int @join__field(graph: SHOP) @join__directive(graphs: [SHOP], name: "cacheControl", args: {maxAge: 3})
  shelf: ID @join__field(graph: STOCK)
  likes: [Product!] @join__field(graph: SHOP)
}
type Maker @join__type(graph: SHOP) @join__type(graph: LABELS) { id: ID! }
"#;

fn graph() -> Arc<Supergraph> {
    Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").expect("a supergraph"))
}

fn plan_of(graph: &Arc<Supergraph>, text: &str) -> Plan {
    let pipeline = Pipeline::new(Arc::clone(graph), 1, PrepareSettings::default(), Arc::default());
    let variant = OperationVariant::default();
    let steps = &mut PrepareSteps::default();
    let prepared = pipeline.prepare_shared(text.as_bytes(), None, &variant, steps);
    (*prepared.expect("a plan").0.plan).clone()
}

/// The time that the configuration gives to everything in `shop`.
fn rules() -> TtlRules {
    let shop = SubgraphTtl { default: Some(Duration::from_secs(60)), ..SubgraphTtl::default() };
    TtlRules { default: None, subgraphs: [("shop".into(), shop)].into() }
}

/// Returns the text of the mutation, and its changed entities.
fn changed(mutation: &str) -> (String, Vec<ChangedEntity>) {
    let graph = graph();
    let mut plan = plan_of(&graph, mutation);
    let all = select_changed_entities(&mut plan, &graph, &rules());
    let FetchKind::Root { operation, .. } = &plan.fetches[0].kind else { panic!("{plan:?}") };
    (operation.text.to_string(), all.into_iter().next().unwrap_or_default())
}

/// Returns the entries that a mutation with one field populates.
fn populated(mutation: &str) -> Vec<PopulatedEntry> {
    let (_, changed) = changed(mutation);
    let [changed] = <[ChangedEntity; 1]>::try_from(changed).expect("one field");
    changed.populated
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
        populated: Vec::new(),
    }
}

#[test]
fn the_keys_are_selected_whatever_the_client_selects() {
    let (text, found) = changed("mutation { rename(id: 1) { name } }");
    assert!(text.ends_with("{name _key0:id _key1:sku _key2:maker{id}}}"), "{text}");
    assert_eq!(found, [entity("rename", "_key")]);
    let (text, found) = changed("mutation { all: renameAll { _key0: name } }");
    assert!(text.ends_with("{_key0:name _key_0:id _key_1:sku _key_2:maker{id}}}"), "{text}");
    let populated = found[0].populated.clone();
    assert_eq!(found, [ChangedEntity { populated, ..entity("all", "_key_") }]);
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

/// Returns the selection and the variables of each entry, with the fields of its key.
fn selections(mutation: &str) -> Vec<(String, usize, String)> {
    let (_, changed) = changed(mutation);
    let entity = &changed[0];
    let all = entity.populated.iter().map(|entry| {
        let names = entity.keys[entry.key].fields.iter().map(|it| &*it.name);
        let names = names.collect::<Vec<_>>().join(" ");
        (entry.selection.text.to_string(), entry.selection.variables.len(), names)
    });
    all.collect()
}

#[test]
fn an_entry_has_the_selection_of_the_request_that_will_look_for_it() {
    let fields = "{ __typename id sku short: name(short: true) likes { id name } }";
    let entries = selections(&format!("mutation {{ add {fields} }}"));
    let graph = graph();
    // Each query reaches the product by another key.
    for (query, key) in [("shelved", "id"), ("labelled", "sku maker")] {
        let plan = plan_of(&graph, &format!("{{ {query} {fields} }}"));
        let caching = caching_of(&plan, &graph, &rules()).pop().flatten().expect("the last fetch");
        let selection = &caching.parts[0].selection;
        let expected = (selection.text.to_string(), selection.variables.len(), key.to_owned());
        assert!(entries.contains(&expected), "{expected:?} is not one of {entries:?}");
        let batch = &plan.fetches.last().expect("a fetch").kind.batches()[0];
        let names: Vec<&str> = batch.representation.fields.iter().map(|it| &*it.name).collect();
        assert_eq!(names.join(" "), key, "the order in representations");
    }
    assert_eq!(entries.len(), 2, "{entries:?}");
}

#[test]
fn an_entry_has_the_members_that_are_selected_beside_the_key() {
    let member = |response_key: &str, is_conditional| PopulatedMember {
        response_key: response_key.into(),
        is_conditional,
    };
    let entries = populated(
        "mutation ($a: Boolean!) { add { id sku n: name maker { id } price @include(if: $a) } }",
    );
    let members: Vec<_> = entries.into_iter().map(|it| it.members).collect();
    let all = [member("n", false), member("maker", false), member("price", true)];
    let sorted = |mut members: Vec<PopulatedMember>| {
        members.sort_by(|left, right| left.response_key.cmp(&right.response_key));
        members
    };
    let with = |other: &str| sorted(all.iter().cloned().chain([member(other, false)]).collect());
    assert_eq!(members.into_iter().map(sorted).collect::<Vec<_>>(), [with("sku"), with("id")]);
}

#[test]
fn the_times_of_entries_are_those_of_the_directive_the_fields_and_the_configuration() {
    for (mutation, expected) in [
        ("mutation { renameAll { name } }", 9),
        ("mutation { renameAll { name price } }", 3),
        ("mutation { renameAll { name likes { name } } }", 9),
        ("mutation { add { name } }", 60),
        ("mutation { add { name price } }", 3),
    ] {
        for entry in populated(mutation) {
            let expected = Some(Duration::from_secs(expected));
            assert_eq!(entry.declared.max_age, expected, "{mutation}");
        }
    }
    let [entry, _] =
        <[_; 2]>::try_from(populated("mutation { add { likes { name } } }")).expect("two");
    assert_eq!(entry.type_names, ["Product".into()]);
}

#[test]
fn an_entry_is_private_if_its_field_of_the_mutation_is() {
    let scopes = |mutation| populated(mutation).into_iter().map(|it| it.declared.scope);
    assert!(scopes("mutation { add { name } }").all(|it| it == Scope::Public));
    assert!(scopes("mutation { addOwn { name } }").all(|it| it == Scope::Private));
}

#[test]
fn nothing_is_populated_without_fields_or_with_two_selections_of_one_field() {
    assert_eq!(populated("mutation { rename(id: 1) { name } }"), []);
    assert_eq!(populated("mutation { add { id } }").len(), 1, "by the other key");
    assert_eq!(populated("mutation { add { __typename } }"), []);
    let twice = "mutation ($a: Boolean!, $b: Boolean!) {
        add @include(if: $a) { name }
        add @include(if: $b) { sku }
    }";
    let (text, found) = changed(twice);
    let count = text.matches("add").count();
    assert_eq!(found[0].populated.is_empty(), count > 1, "{text}");
}
