//! Equal requests at the same time share the work whose result cannot differ between them, and nothing else.
//!
//! The subgraphs hold their responses until every request is in the state that the test needs.

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;

use e2e::request;
use load::subgraph::{Controls, Fault};
use serde_json::{Value, json};

use crate::shop::Shop;
use crate::socket::Socket;

const QUERY: &str = "{ product(id: 1) { name } }";

fn kettle() -> Value {
    json!({ "data": { "product": { "name": "Kettle" } } })
}

/// Forwards the header that identifies users.
const FORWARDING: &str = "headers: {all: {request: [{propagate: {named: authorization}}]}}\n";

/// The name of a sharing metric.
fn metric(level: &str, counter: &str) -> String {
    format!("starling_sharing_{counter}_total{{level=\"{level}\"}}")
}

fn wait_for_requests(subgraph: &Controls, count: u64) {
    e2e::eventually(&format!("{count} requests"), || {
        (subgraph.request_count() == count).then_some(())
    });
}

/// Returns the response body to a query with these headers.
fn ask_with(shop: &Shop, query: &str, headers: &[(&str, &str)]) -> Value {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    let body = json!({ "query": query }).to_string();
    let response = request(shop.address(), "POST", "/graphql", &all, body.as_bytes()).unwrap();
    serde_json::from_slice(&response.body).unwrap()
}

/// Sends a query on a connection that the caller may close.
fn send_query(shop: &Shop, query: &str) -> TcpStream {
    let mut socket = TcpStream::connect(shop.address()).unwrap();
    let body = json!({ "query": query }).to_string();
    let head = "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    write!(socket, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    socket
}

#[test]
fn equal_queries_at_the_same_time_share_one_execution() {
    let shop = Shop::open();
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    thread::scope(|scope| {
        let asked = [(); 3].map(|()| scope.spawn(|| shop.ask(QUERY)));
        shop.wait_for_metric(&metric("operation", "followers"), 2);
        products.clear_fault();
        for response in asked {
            assert_eq!(response.join().unwrap(), kettle());
        }
    });
    assert_eq!(products.request_count(), 1);
    assert_eq!(shop.router.metric(&metric("operation", "leaders")), Some(1));
    // The shared execution has ended: a new query is executed again.
    assert_eq!(shop.ask(QUERY), kettle());
    assert_eq!(products.request_count(), 2);
    shop.assert_unaffected();
}

#[test]
fn queries_of_different_transport_and_spelling_are_shared() {
    let shop = Shop::open();
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    thread::scope(|scope| {
        let first = scope.spawn(|| shop.ask(QUERY));
        wait_for_requests(products, 1);
        let second =
            scope.spawn(|| shop.ask("query {\n  product(id: \"1\"), { name } # the kettle\n}"));
        shop.wait_for_metric(&metric("operation", "followers"), 1);
        let mut socket = Socket::ready(shop.address());
        socket.subscribe("q", QUERY);
        shop.wait_for_metric(&metric("operation", "followers"), 2);
        products.clear_fault();
        assert_eq!(socket.message(), json!({ "id": "q", "type": "next", "payload": kettle() }));
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (kettle(), kettle()));
    });
    assert_eq!(products.request_count(), 1);
    shop.assert_unaffected();
}

#[test]
fn users_with_different_forwarded_headers_share_nothing() {
    let shop = Shop::with(FORWARDING);
    let products = shop.subgraph("products");
    products.record_requests(true);
    products.set_fault(Fault::Hold);
    let users = [&[("authorization", "one")][..], &[("authorization", "two")], &[]];
    thread::scope(|scope| {
        let asked = users.map(|user| {
            let shop = &shop;
            scope.spawn(move || ask_with(shop, QUERY, user))
        });
        wait_for_requests(products, 3);
        products.clear_fault();
        for response in asked {
            assert_eq!(response.join().unwrap(), kettle());
        }
    });
    let requests = products.take_requests();
    let of = |request: &load::subgraph::RecordedRequest| {
        request.headers.get("authorization").map(|it| it.to_str().unwrap().to_owned())
    };
    let mut sent: Vec<_> = requests.iter().map(of).collect();
    sent.sort();
    assert_eq!(sent, [None, Some("one".to_owned()), Some("two".to_owned())]);
    assert_eq!(shop.router.metric(&metric("operation", "followers")), Some(0));
    assert_eq!(shop.router.metric(&metric("subgraph", "followers")), Some(0));
    shop.assert_unaffected();
}

#[test]
fn users_with_different_headers_that_reach_no_subgraph_share() {
    let shop = Shop::with(FORWARDING);
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    thread::scope(|scope| {
        let shop = &shop;
        let asked = ["1", "2"].map(|trace| {
            let headers = [("authorization", "one"), ("x-trace", trace)];
            scope.spawn(move || ask_with(shop, QUERY, &headers))
        });
        shop.wait_for_metric(&metric("operation", "followers"), 1);
        products.clear_fault();
        for response in asked {
            assert_eq!(response.join().unwrap(), kettle());
        }
    });
    assert_eq!(products.request_count(), 1);
    shop.assert_unaffected();
}

#[test]
fn queries_with_different_variables_are_not_shared() {
    let shop = Shop::open();
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    let ask = |id: u32| {
        let query = "query ($id: ID!) { product(id: $id) { name } }";
        let body = json!({ "query": query, "variables": { "id": id } }).to_string();
        let response = shop.router.post(&body).unwrap();
        serde_json::from_slice::<Value>(&response.body).unwrap()
    };
    thread::scope(|scope| {
        let (one, two) = (scope.spawn(|| ask(1)), scope.spawn(|| ask(2)));
        wait_for_requests(products, 2);
        products.clear_fault();
        assert_eq!(one.join().unwrap(), kettle());
        assert_eq!(two.join().unwrap(), json!({ "data": { "product": { "name": "Lamp" } } }));
    });
    shop.assert_unaffected();
}

#[test]
fn different_operations_share_equal_subgraph_requests() {
    let shop = Shop::open();
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    thread::scope(|scope| {
        let one = scope.spawn(|| shop.ask(QUERY));
        let other = scope.spawn(|| shop.ask("{ product(id: 1) { name } warehouse { city } }"));
        shop.wait_for_metric(&metric("subgraph", "followers"), 1);
        products.clear_fault();
        assert_eq!(one.join().unwrap(), kettle());
        let both = json!({ "product": { "name": "Kettle" }, "warehouse": { "city": "Bergen" } });
        assert_eq!(other.join().unwrap(), json!({ "data": both }));
    });
    assert_eq!(products.request_count(), 1);
    shop.assert_unaffected();
}

#[test]
fn followers_get_their_response_after_the_leader_disconnects() {
    let shop = Shop::open();
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    let leader = send_query(&shop, QUERY);
    wait_for_requests(products, 1);
    thread::scope(|scope| {
        let follower = scope.spawn(|| shop.ask(QUERY));
        shop.wait_for_metric(&metric("operation", "followers"), 1);
        let open = "starling_http_connections";
        let before = shop.router.metric(open).unwrap();
        drop(leader);
        shop.wait_for_metric(open, before - 1);
        products.clear_fault();
        assert_eq!(follower.join().unwrap(), kettle());
    });
    assert_eq!(products.request_count(), 1);
    assert_eq!(shop.router.metric(&metric("operation", "cancelled")), Some(0));
    shop.assert_unaffected();
}

#[test]
fn the_work_is_cancelled_at_every_level_after_all_clients_have_disconnected() {
    let shop = Shop::open();
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    let leader = send_query(&shop, QUERY);
    wait_for_requests(products, 1);
    let follower = send_query(&shop, QUERY);
    shop.wait_for_metric(&metric("operation", "followers"), 1);
    drop((leader, follower));
    shop.wait_for_metric(&metric("operation", "cancelled"), 1);
    shop.wait_for_metric(&metric("subgraph", "cancelled"), 1);
    shop.wait_for_metric("starling_subgraph_requests_in_flight{subgraph=\"products\"}", 0);
    products.clear_fault();
    shop.assert_unaffected();
}

#[test]
fn mutations_are_never_shared() {
    let shop = Shop::open();
    let reviews = shop.subgraph("reviews");
    reviews.set_fault(Fault::Hold);
    let mutation = r#"mutation { addReview(product: 1, text: "x") { text } }"#;
    thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| shop.ask(mutation)));
        wait_for_requests(reviews, 2);
        reviews.clear_fault();
        for response in both {
            let expected = json!({ "data": { "addReview": { "text": "Boils." } } });
            assert_eq!(response.join().unwrap(), expected);
        }
    });
    shop.assert_unaffected();
}

#[test]
fn a_query_after_a_mutation_does_not_get_an_earlier_result() {
    let shop = Shop::open();
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    thread::scope(|scope| {
        let before = scope.spawn(|| shop.ask(QUERY));
        wait_for_requests(products, 1);
        shop.ask(r#"mutation { addReview(product: 1, text: "x") { text } }"#);
        let after = scope.spawn(|| shop.ask(QUERY));
        // Neither the operation nor its subgraph request joins the ones in flight.
        wait_for_requests(products, 2);
        // The next query joins the second one.
        let later = scope.spawn(|| shop.ask(QUERY));
        shop.wait_for_metric(&metric("operation", "followers"), 1);
        products.clear_fault();
        for response in [before, after, later] {
            assert_eq!(response.join().unwrap(), kettle());
        }
    });
    assert_eq!(products.request_count(), 2);
    shop.assert_unaffected();
}

#[test]
fn a_published_event_and_a_failed_mutation_count_as_mutations() {
    let shop = Shop::open();
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    thread::scope(|scope| {
        let mut asked = vec![scope.spawn(|| shop.ask(QUERY))];
        wait_for_requests(products, 1);
        shop.ask(r#"mutation { announce(id: 1, place: "x") { success } }"#);
        asked.push(scope.spawn(|| shop.ask(QUERY)));
        wait_for_requests(products, 2);
        shop.subgraph("reviews").fail_next(1, Fault::CutOff);
        shop.ask(r#"mutation { addReview(product: 1, text: "x") { text } }"#);
        asked.push(scope.spawn(|| shop.ask(QUERY)));
        wait_for_requests(products, 3);
        products.clear_fault();
        for response in asked {
            assert_eq!(response.join().unwrap(), kettle());
        }
    });
    shop.assert_unaffected();
}

#[test]
fn errors_and_nulls_are_shared_like_any_response() {
    let shop = Shop::open();
    let products = shop.subgraph("products");
    for fault in [
        Fault::GraphqlError { message: "no".to_owned(), code: None },
        Fault::null_field("Query", "product"),
        Fault::Html,
    ] {
        let (count, followers) = (products.request_count(), metric("operation", "followers"));
        let known = shop.router.metric(&followers).unwrap();
        products.set_fault(Fault::Hold);
        thread::scope(|scope| {
            let asked = [(); 2].map(|()| scope.spawn(|| shop.ask(QUERY)));
            shop.wait_for_metric(&followers, known + 1);
            products.set_fault(fault.clone());
            let [one, other] = asked.map(|response| response.join().unwrap());
            assert_eq!(one, other);
            assert_eq!(one["data"], json!({ "product": null }), "{fault:?}");
        });
        assert_eq!(products.request_count(), count + 1, "{fault:?}");
        products.clear_fault();
    }
    // A later query does not get them.
    assert_eq!(shop.ask(QUERY), kettle());
    shop.assert_unaffected();
}

#[test]
fn a_client_that_requests_a_trace_gets_the_cost_of_its_request() {
    let shop = Shop::with("trace: {enabled: true}\n");
    let products = shop.subgraph("products");
    products.set_fault(Fault::Hold);
    let traced = |query| ask_with(&shop, query, &[("starling-trace", "1")]);
    let (leader, follower) = thread::scope(|scope| {
        let leader = scope.spawn(|| traced(QUERY));
        wait_for_requests(products, 1);
        let follower = scope.spawn(|| traced(QUERY));
        shop.wait_for_metric(&metric("operation", "followers"), 1);
        products.clear_fault();
        (leader.join().unwrap(), follower.join().unwrap())
    });
    assert_eq!((&leader["data"], &follower["data"]), (&kettle()["data"], &kettle()["data"]));
    let (leader, follower) = (&leader["extensions"]["trace"], &follower["extensions"]["trace"]);
    assert_eq!((&leader["sharing"], &follower["sharing"]), (&json!("leader"), &json!("follower")));
    assert_eq!(follower["fetches"], json!([]));
    let fetch = &leader["fetches"][0];
    assert_eq!(fetch["subgraph"], "products");
    assert_eq!((&fetch["status"], &fetch["sharing"]), (&json!(200), &json!("leader")));
    assert!(fetch["took"].as_u64() <= leader["execute"].as_u64(), "{leader}");
    let planned =
        json!({"id": 0, "subgraph": "products", "kind": "root", "wave": 1, "dependsOn": []});
    assert_eq!((&leader["plan"], &follower["plan"]), (&json!([planned]), &json!([planned])));
    assert_eq!((&fetch["fetch"], &fetch["entities"]), (&json!(0), &json!(0)));
    assert!(fetch["answerBytes"].as_u64() > Some(10), "{leader}");
    // Without the header the response has no trace.
    assert_eq!(shop.ask(QUERY), kettle());
    shop.assert_unaffected();
}

#[test]
fn each_operation_of_a_batch_has_its_own_trace() {
    let shop = Shop::with("trace: {enabled: true}\nhttp: {batching: {enabled: true}}\n");
    let headers = [("content-type", "application/json"), ("starling-trace", "1")];
    let body =
        json!([{ "query": QUERY }, { "query": "{ __typename }" }, { "query": "{" }]).to_string();
    let response = request(shop.address(), "POST", "/graphql", &headers, body.as_bytes()).unwrap();
    let responses: Value = serde_json::from_slice(&response.body).unwrap();
    let trace = |index: usize| &responses[index]["extensions"]["trace"];
    assert_eq!(responses[0]["data"], kettle()["data"]);
    assert_eq!(trace(0)["fetches"][0]["subgraph"], "products");
    assert_eq!(trace(1)["fetches"], json!([]));
    // A refused operation has no trace.
    assert_eq!((trace(2), &responses[2]["data"]), (&Value::Null, &Value::Null));
    shop.assert_unaffected();
}

#[test]
fn a_trace_shows_the_requests_as_the_configuration_allows() {
    for (fetches, has_text, has_variables) in
        [("", true, false), ("fetches: {text: none, variables: true}", false, true)]
    {
        let shop = Shop::with(&format!("trace: {{enabled: true, {fetches}}}\n"));
        let traced = ask_with(&shop, QUERY, &[("starling-trace", "1")]);
        let fetch = &traced["extensions"]["trace"]["fetches"][0];
        let text = fetch["text"].as_str();
        assert_eq!(text.is_some_and(|it| it.contains("product")), has_text, "{fetch}");
        assert_eq!(fetch.get("variables").is_some(), has_variables, "{fetch}");
        shop.assert_unaffected();
    }
}

#[test]
fn a_trace_is_sent_to_the_clients_that_the_condition_names() {
    let shop = Shop::with("trace: {enabled: true, when: \"client.name == 'studio'\"}\n");
    let studio = [("starling-trace", "execute"), ("graphql-client-name", "studio")];
    let response = ask_with(&shop, QUERY, &studio);
    assert_eq!(response["extensions"]["trace"]["fetches"][0]["subgraph"], "products");
    // Another client, one without a name, and one that requests no trace.
    for headers in [
        &[("starling-trace", "execute"), ("graphql-client-name", "web")][..],
        &[("starling-trace", "1")],
        &[("graphql-client-name", "studio")],
    ] {
        assert_eq!(ask_with(&shop, QUERY, headers), kettle(), "{headers:?}");
    }
    shop.assert_unaffected();
}

#[test]
fn a_condition_of_traces_that_cannot_be_evaluated_allows_none() {
    let when = "request.headers['x-team'] == 'core'";
    let shop = Shop::with(&format!("trace: {{enabled: true, when: \"{when}\"}}\n"));
    assert_eq!(ask_with(&shop, QUERY, &[("starling-trace", "1")]), kettle());
    shop.wait_for_metric("starling_expression_trace_failures_total", 1);
    // The condition of a request without the header is not evaluated.
    assert_eq!(shop.ask(QUERY), kettle());
    shop.wait_for_metric("starling_expression_trace_failures_total", 1);
    let traced = ask_with(&shop, QUERY, &[("starling-trace", "1"), ("x-team", "core")]);
    assert_eq!(traced["extensions"]["trace"]["fetches"][0]["subgraph"], "products");
    shop.assert_unaffected();
}

#[test]
fn no_trace_is_sent_by_default() {
    let shop = Shop::open();
    assert_eq!(ask_with(&shop, QUERY, &[("starling-trace", "1")]), kettle());
    shop.assert_unaffected();
}

#[test]
fn operations_that_differ_in_literals_are_planned_once() {
    let shop = Shop::open();
    let ask = |id: u32| shop.ask(&format!("{{ product(id: {id}) {{ name inStock }} }}"));
    let product =
        |name, stock| json!({ "data": { "product": { "name": name, "inStock": stock } } });
    assert_eq!((ask(1), ask(2)), (product("Kettle", 7), product("Lamp", 0)));
    assert_eq!(shop.router.metric("starling_operations_plans_shared_total"), Some(1));
    shop.assert_unaffected();
}

#[test]
fn sharing_can_be_turned_off_level_by_level() {
    for (setting, requests) in [
        ("{operations: false}", 1),
        ("{subgraph_queries: false}", 1),
        ("{operations: false, subgraph_queries: false}", 2),
    ] {
        let shop = Shop::with(&format!("sharing: {setting}\n"));
        let products = shop.subgraph("products");
        products.set_fault(Fault::Hold);
        thread::scope(|scope| {
            let asked = [(); 2].map(|()| scope.spawn(|| shop.ask(QUERY)));
            if requests == 2 {
                wait_for_requests(products, 2);
            } else {
                let level = if setting.contains("operations") { "subgraph" } else { "operation" };
                shop.wait_for_metric(&metric(level, "followers"), 1);
            }
            products.clear_fault();
            for response in asked {
                assert_eq!(response.join().unwrap(), kettle());
            }
        });
        assert_eq!(products.request_count(), requests, "{setting}");
        shop.assert_unaffected();
    }
}
