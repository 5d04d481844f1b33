//! The four subgraphs of the demo, each a server of its own on a free loopback port.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use load::subgraph::{Call, FieldError, Server, Subgraph, SubgraphBuilder};
use serde_json::{Value, json};

use super::schedule::FLIGHTS;
use super::supergraph::compose_supergraph;
use super::traffic::{FlightInMotion, Traffic};

/// The demo's running subgraphs. Dropping the value ends them.
pub struct Subgraphs {
    /// The supergraph with the URLs of these subgraphs.
    pub supergraph_sdl: String,
    /// The positions of the flights: the data of the flights subgraph, which the generator advances.
    pub board: Board,
    /// The name and server of each subgraph.
    pub servers: Vec<(&'static str, Server)>,
}

/// The traffic, shared between the flights subgraph and the generator.
#[derive(Clone, Default)]
pub struct Board(Arc<Mutex<Traffic>>);

impl Board {
    /// Locks the traffic. The guard must not be held across an await.
    pub fn lock(&self) -> MutexGuard<'_, Traffic> {
        // Each change of the traffic is complete before the next: a panic elsewhere leaves no partial change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the four subgraphs on the current tokio runtime, and composes their supergraph.
///
/// # Errors
/// No port can be bound.
pub async fn start() -> io::Result<Subgraphs> {
    let board = Board::default();
    let mut servers = Vec::new();
    for (name, subgraph) in [
        ("airlines", airlines()),
        ("airports", airports()),
        ("flights", flights(&board)),
        ("weather", weather()),
    ] {
        let server = Server::builder().subgraph("", subgraph).start().await?;
        servers.push((name, server));
    }
    let urls: Vec<_> = servers.iter().map(|(name, server)| (*name, server.url(""))).collect();
    let supergraph_sdl = tokio::task::spawn_blocking(move || compose_supergraph(&urls)).await?;
    Ok(Subgraphs { supergraph_sdl, board, servers })
}

/// Builds the subgraph of airports with their names and positions.
pub fn airports() -> Subgraph {
    let all = records(include_str!("data/airports.json"));
    build_subgraph(
        Subgraph::builder(include_str!("data/airports.graphql"))
            .records("Query", [json!({ "airports": keys(&all) })])
            .records("Airport", all)
            .resolver("Query", "airport", by_code),
    )
}

/// Builds the subgraph of airlines with their fleets.
pub fn airlines() -> Subgraph {
    let all = records(include_str!("data/airlines.json"));
    build_subgraph(
        Subgraph::builder(include_str!("data/airlines.graphql"))
            .records("Query", [json!({ "airlines": keys(&all) })])
            .records("Airline", all)
            .resolver("Query", "airline", by_code),
    )
}

/// Builds the subgraph of the weather at each airport.
pub fn weather() -> Subgraph {
    let all = records(include_str!("data/weather.json"));
    let speed = |airport: &&Value| airport["weather"]["wind"]["speed"].as_i64();
    let windiest = all.iter().max_by_key(speed).map(|airport| json!({ "code": airport["code"] }));
    build_subgraph(
        Subgraph::builder(include_str!("data/weather.graphql"))
            .records("Query", [json!({ "windiest": windiest })])
            .records("Airport", all),
    )
}

/// Builds the subgraph of flights: the schedule, and the position of each flight on this board.
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
    let builder = add_live_field(builder, board, "status", |flight| json!(flight.status()));
    let builder = add_live_field(builder, board, "altitude", |flight| json!(flight.altitude()));
    let builder = add_live_field(builder, board, "progress", |flight| json!(flight.progress()));
    build_subgraph(add_live_field(builder, board, "delayMinutes", |flight| {
        json!(flight.delay_minutes)
    }))
}

/// Adds a field of `Flight` that is read from the board at each request.
fn add_live_field(
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
    serde_json::from_str(data).expect("embedded data is covered by tests")
}

fn build_subgraph(builder: SubgraphBuilder) -> Subgraph {
    builder.build().expect("embedded schemas and data are covered by tests")
}
