//! The four subgraphs of the demo, each a server of its own on a free loopback port.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use load::subgraph::{Call, FieldError, Server, Subgraph, SubgraphBuilder};
use serde_json::{Value, json};

use super::SUPERGRAPH;
use super::schedule::FLIGHTS;
use super::traffic::{FlightInMotion, Traffic};

/// The demo's subgraphs, running. Dropping it ends them.
pub struct Subgraphs {
    /// The supergraph with the URLs of these subgraphs.
    pub supergraph_sdl: String,
    /// Where the flights are: what the flights subgraph answers, and what its driver ticks.
    pub board: Board,
    /// Name and server of each.
    pub servers: Vec<(&'static str, Server)>,
}

/// The traffic, shared between the flights subgraph and whoever drives it.
#[derive(Clone, Default)]
pub struct Board(Arc<Mutex<Traffic>>);

impl Board {
    /// The traffic, for as long as the guard lives: not across an await.
    pub fn lock(&self) -> MutexGuard<'_, Traffic> {
        // Each change of the traffic is complete before the next: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the four subgraphs on the current tokio runtime.
///
/// # Errors
/// Where no port can be bound.
pub async fn start() -> io::Result<Subgraphs> {
    let board = Board::default();
    let mut supergraph_sdl = SUPERGRAPH.to_owned();
    let mut servers = Vec::new();
    for (name, subgraph) in [
        ("airlines", airlines()),
        ("airports", airports()),
        ("flights", flights(&board)),
        ("weather", weather()),
    ] {
        let server = Server::builder().subgraph("", subgraph).start().await?;
        let placeholder = format!("${}_URL", name.to_uppercase());
        supergraph_sdl = supergraph_sdl.replace(&placeholder, &server.url(""));
        servers.push((name, server));
    }
    Ok(Subgraphs { supergraph_sdl, board, servers })
}

/// Airports with their names and places.
pub fn airports() -> Subgraph {
    let all = records(include_str!("data/airports.json"));
    built(
        Subgraph::builder(include_str!("data/airports.graphql"))
            .records("Query", [json!({ "airports": keys(&all) })])
            .records("Airport", all)
            .resolver("Query", "airport", by_code),
    )
}

/// Airlines with their fleets.
pub fn airlines() -> Subgraph {
    let all = records(include_str!("data/airlines.json"));
    built(
        Subgraph::builder(include_str!("data/airlines.graphql"))
            .records("Query", [json!({ "airlines": keys(&all) })])
            .records("Airline", all)
            .resolver("Query", "airline", by_code),
    )
}

/// The weather at each airport.
pub fn weather() -> Subgraph {
    let all = records(include_str!("data/weather.json"));
    let speed = |airport: &&Value| airport["weather"]["wind"]["speed"].as_i64();
    let windiest = all.iter().max_by_key(speed).map(|airport| json!({ "code": airport["code"] }));
    built(
        Subgraph::builder(include_str!("data/weather.graphql"))
            .records("Query", [json!({ "windiest": windiest })])
            .records("Airport", all),
    )
}

/// Flights: the schedule, and where each flight is on this board.
pub fn flights(board: &Board) -> Subgraph {
    let flights = FLIGHTS.iter().map(|flight| {
        json!({
            "id": flight.id,
            "departure": flight.departure,
            "aircraft": flight.aircraft,
            "origin": { "code": flight.origin },
            "destination": { "code": flight.destination },
            "airline": { "code": flight.airline },
        })
    });
    let departing = |from: &str| -> Vec<Value> {
        let flights = FLIGHTS.iter().filter(|flight| flight.origin == from);
        flights.map(|flight| json!({ "id": flight.id })).collect()
    };
    let airports = records(include_str!("data/airports.json")).into_iter().map(|airport| {
        let departures = airport["code"].as_str().map(departing);
        json!({ "code": airport["code"], "departures": departures })
    });
    let airlines = records(include_str!("data/airlines.json")).into_iter().map(|airline| {
        let flights = FLIGHTS.iter().filter(|flight| airline["code"] == flight.airline);
        let flights: Vec<Value> = flights.map(|flight| json!({ "id": flight.id })).collect();
        json!({ "code": airline["code"], "flights": flights })
    });
    let builder = Subgraph::builder(include_str!("data/flights.graphql"))
        .records("Flight", flights)
        .records("Airport", airports)
        .records("Airline", airlines)
        .resolver("Query", "departures", departures)
        .resolver("Query", "flight", |call| Ok(json!({ "id": call.argument("id") })));
    let builder = moving(builder, board, "status", |flight| json!(flight.status()));
    let builder = moving(builder, board, "altitude", |flight| json!(flight.altitude()));
    let builder = moving(builder, board, "progress", |flight| json!(flight.progress()));
    built(moving(builder, board, "delayMinutes", |flight| json!(flight.delay_minutes)))
}

/// A field of `Flight` that is read from the board at each request.
fn moving(
    builder: SubgraphBuilder,
    board: &Board,
    field: &str,
    read: impl Fn(&FlightInMotion) -> Value + Send + Sync + 'static,
) -> SubgraphBuilder {
    let board = board.clone();
    builder.resolver("Flight", field, move |call| {
        let id = call.member("id");
        let traffic = board.lock();
        let flight = id.as_str().and_then(|id| traffic.flight(id));
        flight.map(&read).ok_or_else(|| FieldError::from(format!("there is no flight {id}")))
    })
}

fn departures(call: &Call<'_>) -> Result<Value, FieldError> {
    let first = match call.argument("first").as_i64() {
        Some(first) => usize::try_from(first).map_err(|_| "`first` is negative")?,
        None => FLIGHTS.len(),
    };
    let from = call.argument("from").as_str();
    Ok(FLIGHTS
        .iter()
        .filter(|flight| from.is_none_or(|from| flight.origin == from))
        .take(first)
        .map(|flight| json!({ "id": flight.id }))
        .collect())
}

fn by_code(call: &Call<'_>) -> Result<Value, FieldError> {
    Ok(json!({ "code": call.argument("code") }))
}

fn keys(records: &[Value]) -> Vec<Value> {
    records.iter().map(|record| json!({ "code": record["code"] })).collect()
}

fn records(data: &str) -> Vec<Value> {
    serde_json::from_str(data).expect("the data is part of the program and its tests read it")
}

fn built(builder: SubgraphBuilder) -> Subgraph {
    builder.build().expect("schema and data are part of the program and its tests build them")
}
