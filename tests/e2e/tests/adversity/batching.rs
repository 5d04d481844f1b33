//! Batches of entity requests: merged, split, kept separate, and repeated in parts if they fail as a whole.

use load::subgraph::Fault;
use serde_json::{Value, json};

use crate::shop::Shop;

/// Selects `reviews` at two positions.
const TWO_WAYS: &str =
    "{ kettle: product(id: 1) { reviews { text } } lamp: product(id: 2) { reviews { id } } }";

fn two_ways_response() -> Value {
    json!({ "data": {
        "kettle": { "reviews": [{ "text": "Boils." }] },
        "lamp": { "reviews": [{ "id": "b" }] },
    } })
}

/// Returns for each request to `subgraph` the number of representations of each alias.
fn requests(shop: &Shop, subgraph: &str) -> Vec<Vec<usize>> {
    let requests = shop.subgraph(subgraph).take_requests();
    let lists = |variables: &Value| -> Vec<usize> {
        let variables = variables.as_object().unwrap();
        variables.values().map(|list| list.as_array().unwrap().len()).collect()
    };
    requests.iter().map(|request| lists(&request.json()["variables"])).collect()
}

#[test]
fn subgraph_fetches_of_one_moment_are_one_request() {
    let shop = Shop::open();
    shop.subgraph("reviews").record_requests(true);
    assert_eq!(shop.ask(TWO_WAYS), two_ways_response());
    assert_eq!(requests(&shop, "reviews"), [[1, 1]]);
    shop.assert_unaffected();
}

#[test]
fn a_subgraph_without_batching_gets_a_request_for_each_way() {
    let shop = Shop::with("traffic: {subgraphs: {reviews: {batching: false}}}");
    shop.subgraph("reviews").record_requests(true);
    assert_eq!(shop.ask(TWO_WAYS), two_ways_response());
    assert_eq!(requests(&shop, "reviews"), [[1], [1]]);
    shop.assert_unaffected();
}

#[test]
fn a_list_that_is_too_long_goes_in_several_requests() {
    let shop = Shop::with("traffic: {all: {max_representations: 1}}");
    shop.subgraph("stock").record_requests(true);
    assert_eq!(
        shop.ask("{ products { name inStock } }"),
        json!({ "data": { "products": [
            { "name": "Kettle", "inStock": 7 },
            { "name": "Lamp", "inStock": 0 },
        ] } })
    );
    assert_eq!(requests(&shop, "stock"), [[1], [1]]);
    shop.assert_unaffected();
}

#[test]
fn a_batch_that_fails_as_a_whole_is_retried_once_in_parts() {
    let shop = Shop::open();
    let reviews = shop.subgraph("reviews");
    reviews.record_requests(true);
    reviews.fail_next(1, Fault::InternalServerError);
    assert_eq!(shop.ask(TWO_WAYS), two_ways_response());
    assert_eq!(requests(&shop, "reviews"), [vec![1, 1], vec![1], vec![1]]);
    // A part that fails again is not sent a third time.
    reviews.fail_next(3, Fault::InternalServerError);
    let response = shop.ask(TWO_WAYS);
    assert_eq!(response["data"], json!({ "kettle": null, "lamp": null }));
    assert_eq!(response["errors"].as_array().map(Vec::len), Some(2));
    assert_eq!(requests(&shop, "reviews").len(), 3);
    shop.assert_unaffected();
}
