//! Sound plans, each damaged in one way, and the message of the soundness check for each. If the check overlooked one
//! of these, it would overlook the same mistake of the planner.

use std::{path::Path, sync::Arc};

use graph::Supergraph;
use plan::{
    Condition, EntityBatch, FetchId, FetchKind, Operation, Plan, RepresentationField, ShapeField,
    SubgraphOperation, Variant,
};
use prepare::{PrepareSettings, Preparer};

/// The operation of a fixture with its plan.
struct Planned {
    graph: Arc<Supergraph>,
    operation: Operation,
    plan: Plan,
}

/// Plans the operation of a fixture, `folder/operation.graphql` in `tests/fixtures`.
fn planned(fixture: &str) -> Planned {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
    let read = |path: &Path| std::fs::read_to_string(path).expect("fixtures are valid");
    let sdl = read(&file.with_file_name("supergraph.graphql"));
    let graph = Supergraph::from_sdl(&sdl, "supergraph.graphql").expect("fixtures are valid");
    let graph = Arc::new(graph);
    let preparer = Preparer::new(graph.clone(), 1, PrepareSettings::default());
    let prepared = preparer.prepare_now(read(&file).as_bytes(), None).expect("fixtures have plans");
    Planned { graph, operation: prepared.operation, plan: (*prepared.plan).clone() }
}

/// Damages the plan of a fixture; the message of the check must contain `objection`.
#[track_caller]
fn check(fixture: &str, spoil: impl FnOnce(&mut Plan), objection: &str) {
    let Planned { graph, operation, mut plan } = planned(fixture);
    let checker = soundness::Checker::new(graph.clone());
    assert_eq!(checker.check(&operation, &plan), Ok(()), "{fixture}");
    let right = plan.clone();
    spoil(&mut plan);
    assert!(right != plan, "{fixture}: nothing was damaged");
    match checker.check(&operation, &plan) {
        Ok(()) => {
            panic!(
                "{fixture}: the plan was accepted, expected: {objection}\n{}",
                plan.to_text(&graph)
            )
        }
        Err(unsound) => {
            let message = unsound.to_string();
            assert!(message.contains(objection), "{fixture}: {message}\nexpected: {objection}");
        }
    }
}

fn batch(plan: &mut Plan, fetch: usize, index: usize) -> &mut EntityBatch {
    match &mut plan.fetches[fetch].kind {
        FetchKind::Entities { batches, .. } => &mut batches[index],
        other => panic!("{other:?} has no representations"),
    }
}

fn representation(plan: &mut Plan, fetch: usize) -> &mut Vec<RepresentationField> {
    &mut batch(plan, fetch, 0).representation.fields
}

fn sent(plan: &mut Plan, fetch: usize) -> &mut SubgraphOperation {
    match &mut plan.fetches[fetch].kind {
        FetchKind::Entities { operation, .. }
        | FetchKind::RootBelow { operation, .. }
        | FetchKind::Root { operation, .. } => operation,
        other => panic!("{other:?} has no text"),
    }
}

fn replace(plan: &mut Plan, fetch: usize, from: &str, to: &str) {
    let sent = sent(plan, fetch);
    sent.text = sent.text.replacen(from, to, 1).into();
}

/// Returns the variant of the response's shape that has a field with that response key.
fn variant<'p>(plan: &'p mut Plan, response_key: &str) -> &'p mut Variant {
    let mut variants = plan.shape.objects.iter_mut().flat_map(|object| &mut object.variants);
    let has_it = |variant: &&mut Variant| {
        variant.fields.iter().any(|field| *field.response_key == *response_key)
    };
    variants.find(has_it).expect("the field is in the response")
}

fn shown<'p>(plan: &'p mut Plan, response_key: &str) -> &'p mut ShapeField {
    let mut fields = variant(plan, response_key).fields.iter_mut();
    fields.find(|field| *field.response_key == *response_key).expect("the field is in the response")
}

/// The operation `{ products { shipping stock } }`: fetch 0 is sent to `a`, fetch 1 to `b` with a key and the fields
/// that `shipping` requires.
const REQUIRES: &str = "requires/operation.graphql";

/// An operation with conditions: `user` is fetched from `a`, then `email` and `phone` under conditions from `b`.
const CONDITIONS: &str = "conditions/operation.graphql";

/// The operation `{ top { upc name cost: price reviews { product { name price } } } }`: fetch 2 may copy the last two
/// fields from `top`.
const KNOWN_ENTITIES: &str = "known-entities/operation.graphql";

#[test]
fn a_fetch_waits_for_the_values_that_it_sends() {
    let spoil = |plan: &mut Plan| plan.fetches[1].depends_on.clear();
    check(REQUIRES, spoil, "no fetch selects `Product.shipping`");
    // At the third wave the objects are already in the tree, but their key is not.
    let spoil = |plan: &mut Plan| {
        let last = plan.fetches.len() - 1;
        plan.fetches[last].depends_on = vec![FetchId(0)];
    };
    check("requires/operation.chained.graphql", spoil, "was not fetched before");
}

#[test]
fn a_fetch_depends_on_earlier_fetches_only() {
    let spoil = |plan: &mut Plan| plan.fetches[0].depends_on.push(FetchId(1));
    check(REQUIRES, spoil, "which is not before it");
}

#[test]
fn no_fetch_is_superfluous() {
    let spoil = |plan: &mut Plan| drop(plan.fetches.pop());
    check(REQUIRES, spoil, "no fetch selects `Product.shipping`");
}

#[test]
fn a_representation_has_a_complete_key() {
    let spoil = |plan: &mut Plan| representation(plan, 1).retain(|field| !field.key);
    check(REQUIRES, spoil, "no key of `Product` in subgraph `b` is complete");
}

#[test]
fn members_of_keys_are_not_null() {
    let spoil = |plan: &mut Plan| representation(plan, 1)[0].key = false;
    check(REQUIRES, spoil, "no key of `Product` in subgraph `b` is complete");
}

#[test]
fn a_nested_key_is_complete() {
    let spoil = |plan: &mut Plan| drop(representation(plan, 1)[0].fields.pop());
    check("requires-conditions/operation.key.graphql", spoil, "no key of `Product`");
}

#[test]
fn required_fields_are_sent() {
    let spoil = |plan: &mut Plan| drop(representation(plan, 1).pop());
    check(REQUIRES, spoil, "`Product.price` is not sent");
    let spoil = |plan: &mut Plan| drop(representation(plan, 1)[1].fields.pop());
    check(REQUIRES, spoil, "`Box.weight` is not sent");
}

#[test]
fn members_of_representations_have_the_fields_of_their_names() {
    let spoil = |plan: &mut Plan| representation(plan, 1)[0].data_key = "price".into();
    check(REQUIRES, spoil, "`Product.price` is sent as `id`");
}

#[test]
fn required_fields_are_fetched_with_the_required_arguments() {
    let spoil = |plan: &mut Plan| replace(plan, 0, "EUR", "USD");
    check(REQUIRES, spoil, "is sent with other arguments");
    // The field has two values for different arguments; this is the wrong one.
    let spoil = |plan: &mut Plan| {
        let other = batch(plan, 1, 0).representation.clone();
        batch(plan, 1, 1).representation = other;
    };
    check("requires-arguments/operation.graphql", spoil, "is sent with other arguments");
}

#[test]
fn an_object_is_represented_with_its_own_type() {
    let spoil = |plan: &mut Plan| batch(plan, 1, 0).representation.typename = Some("Box".into());
    check(REQUIRES, spoil, "is represented to subgraph `b` as `Box`");
}

#[test]
fn target_paths_lead_to_the_objects() {
    let spoil = |plan: &mut Plan| batch(plan, 1, 0).targets[0].steps[0].data_key = "product".into();
    check(REQUIRES, spoil, "no fetch selects `Product.shipping`");
}

#[test]
fn every_selection_is_sent() {
    let spoil = |plan: &mut Plan| replace(plan, 1, " stock", "");
    check(REQUIRES, spoil, "no fetch selects `Product.stock`");
}

#[test]
fn subgraphs_receive_only_fields_that_they_resolve() {
    let spoil = |plan: &mut Plan| replace(plan, 0, "price(", "stock price(");
    check(REQUIRES, spoil, "is not valid for subgraph `a`");
    let spoil = |plan: &mut Plan| replace(plan, 1, "stock", "stock price");
    check(REQUIRES, spoil, "subgraph `b` does not resolve `Product.price`");
}

#[test]
fn texts_parse_and_declare_their_variables() {
    let spoil = |plan: &mut Plan| replace(plan, 1, "}", "");
    check(REQUIRES, spoil, "does not parse");
    let spoil = |plan: &mut Plan| sent(plan, 1).variables.clear();
    check(CONDITIONS, spoil, "the declared variables differ");
    let spoil = |plan: &mut Plan| sent(plan, 1).variables[0].1.0 = 0;
    check(CONDITIONS, spoil, "is not the client's variable of that name");
}

#[test]
fn each_batch_has_its_alias() {
    let spoil = |plan: &mut Plan| batch(plan, 1, 0).data_key = "_e7".into();
    check(
        "requires-arguments/operation.graphql",
        spoil,
        "does not have one `_entities` for each batch",
    );
}

#[test]
fn a_fetch_is_sent_whenever_a_selection_needs_it() {
    let never = |plan: &mut Plan| {
        for (_, value) in &mut plan.fetches[1].any_of[0].all {
            *value = !*value;
        }
    };
    check(CONDITIONS, never, "no fetch selects `User.email`");
}

#[test]
fn a_selection_is_sent_whenever_its_conditions_hold() {
    let spoil = |plan: &mut Plan| replace(plan, 1, "@skip", "@include");
    check(CONDITIONS, spoil, "no fetch selects `User.phone`");
    // A field that the client skips is required nevertheless.
    let spoil = |plan: &mut Plan| {
        replace(plan, 0, "weight", "weight@include(if:$x)");
    };
    check("requires-conditions/operation.graphql", spoil, "`Box.weight`");
}

#[test]
fn the_response_has_the_selected_fields_and_nothing_else() {
    let spoil = |plan: &mut Plan| shown(plan, "email").any_of.clear();
    check(CONDITIONS, spoil, "the response has");
    let spoil = |plan: &mut Plan| shown(plan, "email").any_of = vec![Condition::default()];
    check(CONDITIONS, spoil, "the response has");
    let spoil = |plan: &mut Plan| drop(variant(plan, "stock").fields.pop());
    check(REQUIRES, spoil, "the response has {shipping}");
    let spoil = |plan: &mut Plan| variant(plan, "stock").fields.swap(0, 1);
    check(REQUIRES, spoil, "the response has {stock shipping}");
}

#[test]
fn the_response_is_read_from_the_keys_that_fetches_write() {
    let spoil = |plan: &mut Plan| shown(plan, "stock").data_key = "shipping".into();
    check(REQUIRES, spoil, "`Product.stock` is read from `Product.shipping`");
    // There are two prices: one that the client selected, and one that is required.
    let spoil = |plan: &mut Plan| shown(plan, "price").data_key = "__s0".into();
    check("requires/operation.arguments.graphql", spoil, "with other arguments than the client's");
}

#[test]
fn the_response_has_the_nulls_and_lists_of_the_schema() {
    let spoil = |plan: &mut Plan| shown(plan, "stock").value.nullable = false;
    check(REQUIRES, spoil, "the shape of `Product.stock` is not that of its type");
    let spoil = |plan: &mut Plan| {
        let leaf = shown(plan, "stock").value.clone();
        shown(plan, "products").value = leaf;
    };
    check(REQUIRES, spoil, "the shape of `Query.products` is not that of its type");
}

#[test]
fn objects_of_an_interface_have_their_typename_selected() {
    let spoil = |plan: &mut Plan| replace(plan, 0, "__typename", "");
    check("abstract/operation.graphql", spoil, "no fetch selects whether");
}

#[test]
fn mutations_run_one_after_the_other() {
    let spoil = |plan: &mut Plan| {
        for fetch in &mut plan.fetches {
            fetch.depends_on.clear();
        }
    };
    check("mutations/operation.graphql", spoil, "does not wait for fetch");
}

#[test]
fn a_mutation_is_called_once() {
    let spoil = |plan: &mut Plan| {
        let mut again = plan.fetches[0].clone();
        again.depends_on = (0..plan.fetches.len()).map(|id| FetchId(id as u32)).collect();
        plan.fetches.push(again);
    };
    check("mutations/operation.graphql", spoil, "is called twice");
}

#[test]
fn arguments_from_context_are_sent() {
    let spoil = |plan: &mut Plan| {
        for fetch in 0..plan.fetches.len() {
            if let FetchKind::Entities { batches, .. } = &mut plan.fetches[fetch].kind {
                batches.iter_mut().flat_map(|it| &mut it.context).for_each(|it| it.sources.clear());
            }
        }
    };
    check("contexts/operation.graphql", spoil, "is fetched without its argument `currency`");
}

#[test]
fn root_fields_below_others_are_fetched_only_for_the_query_root() {
    let spoil = |plan: &mut Plan| match &mut plan.fetches[1].kind {
        FetchKind::RootBelow { target, .. } => drop(target.steps.pop()),
        other => panic!("{other:?} is not below others"),
    };
    check("roots/operation.below.graphql", spoil, "root fields are fetched for a Changed");
}

#[test]
fn a_batch_is_fetched_whenever_a_selection_needs_it() {
    let never = || Condition { all: vec![(plan::VariableId(0), true)] };
    let spoil = |plan: &mut Plan| batch(plan, 1, 0).any_of.push(never());
    check(REQUIRES, spoil, "no fetch selects `Product.shipping`");
}

#[test]
fn the_root_keys_of_a_fetch_are_those_of_its_text() {
    let spoil = |plan: &mut Plan| match &mut plan.fetches[0].kind {
        FetchKind::Root { data_keys, .. } => data_keys.clear(),
        other => panic!("{other:?} has no root fields"),
    };
    check(REQUIRES, spoil, "differ from those of the operation");
}

#[test]
fn a_value_is_copied_from_the_same_field() {
    let spoil = |plan: &mut Plan| {
        let values = &mut batch(plan, 2, 0).reuse[0].values;
        values[1].data_key = values[0].data_key.clone();
    };
    check(KNOWN_ENTITIES, spoil, "`Product.name` is copied as another `price`");
    let spoil = |plan: &mut Plan| {
        batch(plan, 2, 0).reuse[0].representation.fields[0].data_key = "name".into();
    };
    check(KNOWN_ENTITIES, spoil, "`Product.name` is copied as another `upc`");
}

#[test]
fn an_entity_is_copied_as_a_whole() {
    let spoil = |plan: &mut Plan| drop(batch(plan, 2, 0).reuse[0].values.pop());
    check(KNOWN_ENTITIES, spoil, "`price` of a batch is not copied");
}
