//! Right plans, each damaged in one way, and what the soundness check says of it. A checker that
//! overlooks one of these would let the planner do the same.

use std::{path::Path, sync::Arc};

use graph::Supergraph;
use plan::{
    Condition, EntityBatch, FetchId, FetchKind, Operation, Plan, RepresentationField, ShapeField,
    SubgraphOperation, Variant,
};
use prepare::{PrepareSettings, Preparer};

/// A fixture's operation with its plan.
struct Planned {
    graph: Arc<Supergraph>,
    operation: Operation,
    plan: Plan,
}

/// `fixture` is `folder/operation.graphql` in `tests/fixtures`.
fn planned(fixture: &str) -> Planned {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
    let read = |path: &Path| std::fs::read_to_string(path).expect("fixtures are in order");
    let sdl = read(&file.with_file_name("supergraph.graphql"));
    let graph = Supergraph::from_sdl(&sdl, "supergraph.graphql").expect("fixtures are in order");
    let graph = Arc::new(graph);
    let preparer = Preparer::new(graph.clone(), 1, PrepareSettings::default());
    let prepared = preparer.prepare_now(read(&file).as_bytes(), None).expect("fixtures have plans");
    Planned { graph, operation: prepared.operation, plan: (*prepared.plan).clone() }
}

/// Damages the plan of a fixture; the checker must say `objection`.
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
            panic!("{fixture} was found to be right, not: {objection}\n{}", plan.to_text(&graph))
        }
        Err(unsound) => {
            let message = unsound.to_string();
            assert!(message.contains(objection), "{fixture}: {message}\nnot: {objection}");
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
        | FetchKind::Root(operation) => operation,
        other => panic!("{other:?} has no text"),
    }
}

fn replace(plan: &mut Plan, fetch: usize, from: &str, to: &str) {
    let sent = sent(plan, fetch);
    sent.text = sent.text.replacen(from, to, 1).into();
}

/// The variant of the answer's shape that has a field of that response key.
fn variant<'p>(plan: &'p mut Plan, response_key: &str) -> &'p mut Variant {
    let mut variants = plan.shape.objects.iter_mut().flat_map(|object| &mut object.variants);
    let has_it = |variant: &&mut Variant| {
        variant.fields.iter().any(|field| *field.response_key == *response_key)
    };
    variants.find(has_it).expect("it is in the answer")
}

fn shown<'p>(plan: &'p mut Plan, response_key: &str) -> &'p mut ShapeField {
    let mut fields = variant(plan, response_key).fields.iter_mut();
    fields.find(|field| *field.response_key == *response_key).expect("it is in the answer")
}

/// `{ products { shipping stock } }`: 0 is `a`, 1 is `b` with a key and what `shipping` requires.
const REQUIRES: &str = "requires/operation.graphql";

/// `user` is fetched from `a`, then `email` and `phone` under conditions from `b`.
const CONDITIONS: &str = "conditions/operation.graphql";

#[test]
fn a_fetch_waits_for_what_it_sends() {
    let spoil = |plan: &mut Plan| plan.fetches[1].depends_on.clear();
    check(REQUIRES, spoil, "nobody selects `Product.shipping`");
    // At the third wave the objects are there before their key is.
    let spoil = |plan: &mut Plan| {
        let last = plan.fetches.len() - 1;
        plan.fetches[last].depends_on = vec![FetchId(0)];
    };
    check("requires/operation.chained.graphql", spoil, "was not fetched before");
}

#[test]
fn a_fetch_waits_for_earlier_ones_only() {
    let spoil = |plan: &mut Plan| plan.fetches[0].depends_on.push(FetchId(1));
    check(REQUIRES, spoil, "which is not before it");
}

#[test]
fn every_fetch_counts() {
    let spoil = |plan: &mut Plan| drop(plan.fetches.pop());
    check(REQUIRES, spoil, "nobody selects `Product.shipping`");
}

#[test]
fn a_representation_has_a_whole_key() {
    let spoil = |plan: &mut Plan| representation(plan, 1).retain(|field| !field.key);
    check(REQUIRES, spoil, "no key of `Product` in subgraph `b` is whole");
}

#[test]
fn members_of_keys_are_not_null() {
    let spoil = |plan: &mut Plan| representation(plan, 1)[0].key = false;
    check(REQUIRES, spoil, "no key of `Product` in subgraph `b` is whole");
}

#[test]
fn a_nested_key_is_whole() {
    let spoil = |plan: &mut Plan| drop(representation(plan, 1)[0].fields.pop());
    check("requires-conditions/operation.key.graphql", spoil, "no key of `Product`");
}

#[test]
fn what_is_required_is_sent() {
    let spoil = |plan: &mut Plan| drop(representation(plan, 1).pop());
    check(REQUIRES, spoil, "`Product.price` is not sent");
    let spoil = |plan: &mut Plan| drop(representation(plan, 1)[1].fields.pop());
    check(REQUIRES, spoil, "`Box.weight` is not sent");
}

#[test]
fn what_is_sent_is_what_its_name_says() {
    let spoil = |plan: &mut Plan| representation(plan, 1)[0].data_key = "price".into();
    check(REQUIRES, spoil, "`Product.price` is sent as `id`");
}

#[test]
fn what_is_sent_was_fetched_with_the_arguments_required() {
    let spoil = |plan: &mut Plan| replace(plan, 0, "EUR", "USD");
    check(REQUIRES, spoil, "is sent with other arguments");
    // Of two values for different arguments, the wrong one.
    let spoil = |plan: &mut Plan| {
        let other = batch(plan, 1, 0).representation.clone();
        batch(plan, 1, 1).representation = other;
    };
    check("requires-arguments/operation.graphql", spoil, "is sent with other arguments");
}

#[test]
fn an_object_is_presented_as_what_it_is() {
    let spoil = |plan: &mut Plan| batch(plan, 1, 0).representation.typename = Some("Box".into());
    check(REQUIRES, spoil, "is presented to subgraph `b` as `Box`");
}

#[test]
fn objects_are_where_the_path_leads() {
    let spoil = |plan: &mut Plan| batch(plan, 1, 0).targets[0].steps[0].data_key = "product".into();
    check(REQUIRES, spoil, "nobody selects `Product.shipping`");
}

#[test]
fn every_selection_is_sent() {
    let spoil = |plan: &mut Plan| replace(plan, 1, " stock", "");
    check(REQUIRES, spoil, "nobody selects `Product.stock`");
}

#[test]
fn subgraphs_are_asked_for_what_they_resolve() {
    let spoil = |plan: &mut Plan| replace(plan, 0, "price(", "stock price(");
    check(REQUIRES, spoil, "is not valid for subgraph `a`");
    let spoil = |plan: &mut Plan| replace(plan, 1, "stock", "stock price");
    check(REQUIRES, spoil, "subgraph `b` does not resolve `Product.price`");
}

#[test]
fn texts_parse_and_declare_what_they_use() {
    let spoil = |plan: &mut Plan| replace(plan, 1, "}", "");
    check(REQUIRES, spoil, "does not parse");
    let spoil = |plan: &mut Plan| sent(plan, 1).variables.clear();
    check(CONDITIONS, spoil, "variables are declared otherwise");
    let spoil = |plan: &mut Plan| sent(plan, 1).variables[0].1.0 = 0;
    check(CONDITIONS, spoil, "is another variable than the client's");
}

#[test]
fn each_batch_has_its_alias() {
    let spoil = |plan: &mut Plan| batch(plan, 1, 0).data_key = "_e7".into();
    check("requires-arguments/operation.graphql", spoil, "not one `_entities` for each batch");
}

#[test]
fn a_fetch_is_sent_whenever_it_is_wanted() {
    let never = |plan: &mut Plan| {
        for (_, value) in &mut plan.fetches[1].any_of[0].all {
            *value = !*value;
        }
    };
    check(CONDITIONS, never, "nobody selects `User.email`");
}

#[test]
fn a_selection_is_there_whenever_it_is_wanted() {
    let spoil = |plan: &mut Plan| replace(plan, 1, "@skip", "@include");
    check(CONDITIONS, spoil, "nobody selects `User.phone`");
    // What the client skips is required all the same.
    let spoil = |plan: &mut Plan| {
        replace(plan, 0, "weight", "weight@include(if:$x)");
    };
    check("requires-conditions/operation.graphql", spoil, "`Box.weight`");
}

#[test]
fn the_answer_has_what_is_wanted_and_nothing_else() {
    let spoil = |plan: &mut Plan| shown(plan, "email").any_of.clear();
    check(CONDITIONS, spoil, "the answer has");
    let spoil = |plan: &mut Plan| shown(plan, "email").any_of = vec![Condition::default()];
    check(CONDITIONS, spoil, "the answer has");
    let spoil = |plan: &mut Plan| drop(variant(plan, "stock").fields.pop());
    check(REQUIRES, spoil, "the answer has {shipping}");
    let spoil = |plan: &mut Plan| variant(plan, "stock").fields.swap(0, 1);
    check(REQUIRES, spoil, "the answer has {stock shipping}");
}

#[test]
fn the_answer_is_read_from_where_it_was_put() {
    let spoil = |plan: &mut Plan| shown(plan, "stock").data_key = "shipping".into();
    check(REQUIRES, spoil, "`Product.stock` is read from `Product.shipping`");
    // The price that the client wants, and the one that is required.
    let spoil = |plan: &mut Plan| shown(plan, "price").data_key = "__s0".into();
    check("requires/operation.arguments.graphql", spoil, "with other arguments than the client's");
}

#[test]
fn the_answer_has_the_nulls_and_lists_of_the_schema() {
    let spoil = |plan: &mut Plan| shown(plan, "stock").value.nullable = false;
    check(REQUIRES, spoil, "the shape of `Product.stock` is not that of its type");
    let spoil = |plan: &mut Plan| {
        let leaf = shown(plan, "stock").value.clone();
        shown(plan, "products").value = leaf;
    };
    check(REQUIRES, spoil, "the shape of `Query.products` is not that of its type");
}

#[test]
fn objects_of_an_interface_say_what_they_are() {
    let spoil = |plan: &mut Plan| replace(plan, 0, "__typename", "");
    check("abstract/operation.graphql", spoil, "nobody says whether");
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
    check("contexts/operation.graphql", spoil, "is asked for without its argument `currency`");
}

#[test]
fn root_fields_below_others_are_asked_for_where_the_root_is() {
    let spoil = |plan: &mut Plan| match &mut plan.fetches[1].kind {
        FetchKind::RootBelow { target, .. } => drop(target.steps.pop()),
        other => panic!("{other:?} is not below others"),
    };
    check(
        "roots/operation.below.graphql",
        spoil,
        "root fields are asked for where a Changed stands",
    );
}

#[test]
fn a_batch_is_asked_for_whenever_it_is_wanted() {
    let never = || Condition { all: vec![(plan::VariableId(0), true)] };
    let spoil = |plan: &mut Plan| batch(plan, 1, 0).any_of.push(never());
    check(REQUIRES, spoil, "nobody selects `Product.shipping`");
}
