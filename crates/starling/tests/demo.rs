//! The demo's parts fit together: supergraph, subgraphs, data and the operations it shows.

#![allow(clippy::unwrap_used)] // a missing response fails the test

use std::collections::BTreeSet;

use apollo_compiler::ExecutableDocument;
use apollo_compiler::Schema;
use apollo_compiler::ast::Value as Literal;
use apollo_compiler::schema::ExtendedType;
use apollo_compiler::validation::Valid;
use load::subgraph::Subgraph;
use serde_json::{Value, json};
use starling::demo::schedule::FLIGHTS;
use starling::demo::subgraphs::{self, Board};
use starling::demo::supergraph::{SCHEMAS, compose_supergraph};
use starling::demo::traffic::{DELAYS_TOPIC, MOVED_TOPIC};
use starling::demo::{MUTATION, PROVIDER, QUERY, SUBSCRIPTION};

fn supergraph() -> Valid<Schema> {
    Schema::parse_and_validate(compose_supergraph(&[]), "supergraph.graphql")
        .unwrap_or_else(|error| panic!("{}", error.errors))
}

/// Parses the SDL of a subgraph as a schema, without the Federation directives that it does not define.
fn subgraph_schema(sdl: &str) -> Schema {
    Schema::builder().adopt_orphan_extensions().parse(sdl, "subgraph.graphql").build().unwrap()
}

fn query_subgraph(subgraph: &Subgraph, query: &str, variables: Value) -> Value {
    let body = json!({ "query": query, "variables": variables }).to_string();
    let response: Value = serde_json::from_slice(&subgraph.respond(body.as_bytes()).body).unwrap();
    assert_eq!(response.get("errors"), None);
    response["data"].clone()
}

#[test]
fn the_supergraph_is_valid_and_so_are_the_operations_that_the_demo_shows() {
    let schema = supergraph();
    for operation in [QUERY, SUBSCRIPTION, MUTATION] {
        ExecutableDocument::parse_and_validate(&schema, operation, "operation.graphql")
            .unwrap_or_else(|error| panic!("{}", error.errors));
    }
}

/// Returns `Type.field: Type! @ GRAPH` for every field that a subgraph resolves according to the supergraph.
fn fields_by_supergraph() -> BTreeSet<String> {
    let schema = supergraph();
    let graphs_of = |directives: Vec<&apollo_compiler::ast::Directive>| -> Vec<String> {
        directives
            .iter()
            .filter_map(|d| d.specified_argument_by_name("graph"))
            .filter_map(|graph| graph.as_enum().map(ToString::to_string))
            .collect()
    };
    let mut fields = BTreeSet::new();
    for (type_name, definition) in &schema.types {
        let ExtendedType::Object(object) = definition else { continue };
        let type_graphs =
            graphs_of(object.directives.get_all("join__type").map(|d| &***d).collect());
        for (field_name, field) in &object.fields {
            let own = graphs_of(field.directives.get_all("join__field").map(|d| &**d).collect());
            for graph in if own.is_empty() { &type_graphs } else { &own } {
                fields.insert(format!("{type_name}.{field_name}: {} @ {graph}", field.ty));
            }
        }
    }
    fields
}

#[test]
fn the_supergraph_has_exactly_the_fields_of_the_subgraphs() {
    let mut fields = BTreeSet::new();
    for (name, sdl) in SCHEMAS {
        let graph = name.to_uppercase();
        for (type_name, definition) in &subgraph_schema(sdl).types {
            let ExtendedType::Object(object) = definition else { continue };
            if type_name.starts_with("__") {
                continue;
            }
            for (field_name, field) in &object.fields {
                fields.insert(format!("{type_name}.{field_name}: {} @ {graph}", field.ty));
            }
        }
    }
    let by_supergraph = fields_by_supergraph();
    let missing: Vec<_> = fields.difference(&by_supergraph).collect();
    let invented: Vec<_> =
        by_supergraph.difference(&fields).filter(|field| !field.starts_with("__")).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "missing {missing:?}, invented {invented:?}"
    );
}

#[test]
fn the_event_fields_name_the_provider_and_the_topics_of_the_traffic() {
    let schema = supergraph();
    let mut topics = Vec::new();
    for root in ["Subscription", "Mutation"] {
        for field in schema.get_object(root).unwrap().fields.values() {
            let directive = field.directives.get("join__directive").unwrap();
            let Literal::Object(arguments) =
                &**directive.specified_argument_by_name("args").unwrap()
            else {
                panic!("args is not an object")
            };
            for (name, value) in arguments {
                match name.as_str() {
                    "providerId" => assert_eq!(value.as_str(), Some(PROVIDER)),
                    "topics" => topics.extend(value.as_list().unwrap().iter().cloned()),
                    _ => topics.push(value.clone()),
                }
            }
        }
    }
    let topics: Vec<&str> = topics.iter().filter_map(|topic| topic.as_str()).collect();
    let of_flight = format!("{MOVED_TOPIC}.{{{{ args.id }}}}");
    assert_eq!(topics, [MOVED_TOPIC, &of_flight, DELAYS_TOPIC]);
}

#[test]
fn every_flight_has_airports_an_airline_of_its_fleet_and_weather() {
    let airports = query_subgraph(
        &subgraphs::airports(),
        "{ airports { code name city country position { latitude longitude } } }",
        json!({}),
    );
    let airlines = query_subgraph(
        &subgraphs::airlines(),
        "{ airlines { code name callsign fleet { aircraft seats count } } }",
        json!({}),
    );
    let airports = airports["airports"].as_array().unwrap();
    let airlines = airlines["airlines"].as_array().unwrap();
    assert_eq!((airports.len(), airlines.len(), FLIGHTS.len()), (12, 6, 20));
    let representations: Vec<Value> = airports
        .iter()
        .map(|airport| json!({ "__typename": "Airport", "code": airport["code"] }))
        .collect();
    let weather = query_subgraph(
        &subgraphs::weather(),
        "query($r: [_Any!]!) { _entities(representations: $r) { ... on Airport { weather { summary temperature wind { speed direction } } } } }",
        json!({ "r": representations }),
    );
    assert!(
        weather["_entities"]
            .as_array()
            .unwrap()
            .iter()
            .all(|w| w["weather"]["summary"].is_string())
    );
    for flight in FLIGHTS {
        for code in [flight.origin, flight.destination] {
            assert!(airports.iter().any(|airport| airport["code"] == code), "{code}");
        }
        let airline = airlines.iter().find(|airline| airline["code"] == flight.airline).unwrap();
        let fleet = airline["fleet"].as_array().unwrap();
        assert!(fleet.iter().any(|entry| entry["aircraft"] == flight.aircraft), "{flight:?}");
    }
}

#[test]
fn the_flights_subgraph_returns_the_current_positions() {
    let board = Board::default();
    let flights = subgraphs::flights(&board);
    let query = "{ flight(id: \"ST101\") { id status altitude progress delayMinutes origin { code } } nobody: flight(id: \"XX\") { id } }";
    let before = query_subgraph(&flights, query, json!({}));
    assert_eq!(before["nobody"], Value::Null);
    assert_eq!(before["flight"]["origin"], json!({ "code": "AMS" }));
    let event: Value = serde_json::from_str(&board.lock().tick()[0].payload).unwrap();
    let after = query_subgraph(&flights, query, json!({}));
    assert_ne!(before, after);
    for field in ["id", "status", "altitude", "progress", "delayMinutes"] {
        assert_eq!(after["flight"][field], event[field], "{field}");
    }
}

#[test]
fn departures_can_be_filtered_by_airport_and_limited() {
    let flights = subgraphs::flights(&Board::default());
    let actual = query_subgraph(
        &flights,
        "query($r: [_Any!]!) { all: departures { id } departures(from: \"AMS\", first: 2) { id }
           _entities(representations: $r) { ... on Airport { departures { id } } ... on Airline { flights { id } } } }",
        json!({ "r": [{ "__typename": "Airport", "code": "DUB" }, { "__typename": "Airline", "code": "PF" }] }),
    );
    assert_eq!(actual["all"].as_array().unwrap().len(), 20);
    assert_eq!(actual["departures"], json!([{ "id": "ST101" }, { "id": "ST128" }]));
    assert_eq!(
        actual["_entities"],
        json!([{ "departures": [{ "id": "HR250" }] }, { "flights": [{ "id": "PF611" }, { "id": "PF617" }, { "id": "PF623" }] }])
    );
}

#[tokio::test]
async fn the_running_demo_has_a_url_for_each_subgraph_and_none_for_the_events() {
    let running = subgraphs::start().await.unwrap();
    let sdl = &running.supergraph_sdl;
    Schema::parse_and_validate(sdl, "supergraph.graphql").unwrap();
    assert_eq!(running.servers.len(), 4);
    for (name, server) in &running.servers {
        let graph = format!("@join__graph(name: \"{name}\", url: \"{}\")", server.url(""));
        assert!(sdl.contains(&graph), "{graph}");
    }
    assert!(sdl.contains("@join__graph(name: \"events\", url: \"\")"));
}
