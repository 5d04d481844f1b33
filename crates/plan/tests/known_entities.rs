//! Data of plans that their text does not show: the places where entities are known already, and the root keys.

use std::sync::Arc;

use graph::Supergraph;
use plan::{EntityBatch, Path, Plan, ReusePlace, ReusedValue};
use prepare::{PrepareSettings, Preparer};

fn graph() -> Arc<Supergraph> {
    let sdl = include_str!("fixtures/known-entities/supergraph.graphql");
    Arc::new(Supergraph::from_sdl(sdl, "supergraph.graphql").expect("the supergraph is valid"))
}

fn plan(graph: &Arc<Supergraph>, operation: &str) -> Arc<Plan> {
    let preparer = Preparer::new(graph.clone(), 1, PrepareSettings::default());
    let labels = graph::OverrideLabels::NONE;
    match preparer.prepare_now_with(operation.as_bytes(), None, labels) {
        Ok(prepared) => prepared.plan,
        Err(error) => panic!("{operation}: {error}"),
    }
}

fn path(path: &Path) -> String {
    path.steps.iter().map(|step| &*step.data_key).collect::<Vec<_>>().join(".")
}

/// Prints a place as `path(key):value,value<key there`.
fn place(place: &ReusePlace) -> String {
    let pair = |own: &str, there: &str| match own == there {
        true => own.to_owned(),
        false => format!("{own}<{there}"),
    };
    let keys = place.representation.fields.iter().map(|key| pair(&key.name, &key.data_key));
    let value = |value: &ReusedValue| pair(&value.response_key, &value.data_key);
    format!(
        "{}({}):{}",
        path(&place.path),
        keys.collect::<Vec<_>>().join(","),
        place.values.iter().map(value).collect::<Vec<_>>().join(",")
    )
}

/// Checks the places of all batches of an operation, each as `targets = places`.
fn check(operation: &str, expected: &[&str]) {
    let graph = graph();
    let plan = plan(&graph, operation);
    let batch = |batch: &EntityBatch| {
        let targets = batch.targets.iter().map(path).collect::<Vec<_>>().join(" ");
        let places = batch.reuse.iter().map(place).collect::<Vec<_>>().join(" ");
        format!("{targets} = {places}")
    };
    let batches = plan.fetches.iter().flat_map(|fetch| fetch.kind.batches());
    let known = batches.filter(|batch| !batch.reuse.is_empty()).map(batch).collect::<Vec<_>>();
    assert_eq!(known, expected, "{operation}\n{}", plan.to_text(&graph));
}

#[test]
fn a_field_that_an_earlier_fetch_selects_elsewhere_is_known() {
    check(
        "{top{upc name price reviews{product{name price}}}}",
        &["top.reviews.product = top(upc):name,price"],
    );
    check(
        "{top{id: upc cost: price reviews{product{price}}}}",
        &["top.reviews.product = top(upc<id):price<cost"],
    );
}

#[test]
fn an_entity_that_was_fetched_by_its_key_is_known() {
    check("{sold{title reviews{product{title}}}}", &["sold.reviews.product = sold(upc):title"]);
}

#[test]
fn a_field_with_other_arguments_is_another_field() {
    check("{top{upc name(in: DE) reviews{product{name}}}}", &[]);
    check(
        "{top{upc name: title title: name reviews{product{name}}}}",
        &["top.reviews.product = top(upc):name<title"],
    );
    check("query($in: Language){top{upc name(in: $in) reviews{product{name(in: $in)}}}}", &[]);
}

#[test]
fn another_field_under_the_same_key_is_another_field() {
    check("{top{upc name: title reviews{product{name}}}}", &[]);
}

#[test]
fn concurrent_fetches_do_not_wait_for_each_other() {
    check("{top{upc name} latest{product{name}}}", &[]);
}

#[test]
fn values_of_another_subgraph_are_not_known() {
    check("{sold{name reviews{product{name title}}}}", &[]);
}

#[test]
fn a_field_that_requires_more_than_the_key_is_fetched_at_each_place() {
    // The weight that the fee requires is known; the fee is not.
    check("{sold{fee upc reviews{product{fee}}}}", &["sold.reviews.product = sold(sku):weight"]);
}

#[test]
fn objects_below_an_entity_are_fetched_at_each_place() {
    check("{top{upc maker{id} reviews{product{maker{id}}}}}", &[]);
}

#[test]
fn a_field_under_a_condition_is_known_only_if_the_condition_holds_for_its_fetch() {
    check("query($x: Boolean!){top{upc name @include(if: $x) reviews{product{name}}}}", &[]);
    check("query($x: Boolean!){top{upc name reviews{product{title name @include(if: $x)}}}}", &[]);
    check(
        "query($x: Boolean!){top{upc name reviews{product{name @include(if: $x)}}}}",
        &["top.reviews.product = top(upc):name"],
    );
    check(
        "query($x: Boolean!){top @include(if: $x){upc name reviews{product{name}}}}",
        &["top.reviews.product = top(upc):name"],
    );
}

#[test]
fn a_mutation_fetches_each_time_because_data_changes() {
    check("mutation{rename(upc: 1){upc name reviews{product{name}}}}", &[]);
}

#[test]
fn a_batch_is_compared_with_four_places_at_most() {
    check(
        "{a: top{upc name} b: top{upc name} c: top{upc name} d: top{upc name} e: top{upc name reviews{product{name}}}}",
        &["e.reviews.product = a(upc):name b(upc):name c(upc):name d(upc):name"],
    );
}

#[test]
fn the_root_keys_of_a_fetch_are_those_of_its_text() {
    let operation = "query($x: Boolean!, $y: Boolean!) {
        top @include(if: $x) { upc }
        ... @include(if: $x) { second: top @skip(if: $y) { upc } }
        third: top { upc }
        top @include(if: $y) { title }
        __typename
    }";
    let plan = plan(&graph(), operation);
    let [fetch] = &plan.fetches[..] else { panic!("one fetch, not {}", plan.fetches.len()) };
    assert_eq!(fetch.kind.root_keys(), ["top", "second", "third"].map(Box::from));
}
