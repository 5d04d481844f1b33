//! `cargo xtask bench router --filter scrape`: the size of `/metrics` and the time of a scrape, after requests with a
//! hundred thousand operations, clients and fields.
//!
//! Each operation is sent once, by a client of its own, and selects a field of its own. All names are as long as the
//! metrics show them, so the text is as large as names alone can make it. The counts of the metrics are compared with
//! the requests that were sent.

use crate::broker_connections::fetch_json_page;
use crate::http_connection::HttpConnection;
use crate::reports::verdict;
use crate::router_metrics::RouterMetrics;
use crate::server_process::ServerProcess;
use crate::servers::replace_subgraph_urls;
use crate::setup::{Bench, read_file, write_file};
use crate::statistics::Samples;
use serde_json::json;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Instant;
use test_kit::commands::Failure;

/// The types of the graph, and the fields of each: a hundred thousand fields, as many as operations and clients.
const TYPES: u32 = 20;
const FIELDS_OF_TYPE: u32 = 5_000;

/// The number of operations, of clients and of fields.
const NAMES: u32 = TYPES * FIELDS_OF_TYPE;

/// The number of connections over which the operations are sent.
const CONNECTIONS: u32 = 8;

/// The number of scrapes.
const SCRAPES: u32 = 20;

/// The maximum length of the metrics, in megabytes.
const MEGABYTES_MAX: f64 = 5.0;

/// The maximum time of a scrape, in milliseconds.
const SCRAPE_MS_MAX: f64 = 100.0;

/// The lengths at which names of operations and clients, and versions, are cut.
const NAME_LENGTH: usize = 64;
const VERSION_LENGTH: usize = 32;

/// The configuration of the router, with the defaults of the metrics.
const DEFAULT_METRICS: &str = "metrics: {}\n";

/// The only subgraph.
const SUBGRAPH: &str = "wide";

/// The metrics that count each request once.
const COUNTERS: [&str; 2] =
    ["starling_named_operation_requests_total", "starling_client_requests_total"];

/// The supergraph that has the definitions of the join specification, between the beginnings of its subgraphs and of its
/// types.
const DEFINED_IN: &str = "benches/items/supergraph.graphql";
const SUBGRAPHS: &str = "enum join__Graph {";
const TYPES_BEGIN: &str = "\ntype Query";

/// Sends all operations, scrapes the metrics, and prints size and time beside their bounds.
///
/// # Errors
/// A request failed, or the counts are not those of the requests.
pub(crate) fn measure(bench: &Bench) -> Result<(), Failure> {
    println!("\n## scrape, {NAMES} operations, clients and fields\n");
    let folder = bench.scratch_folder("scrape")?;
    let [config, supergraph] = ["starling.yaml", "supergraph.graphql"].map(|it| folder.join(it));
    let wide = wide_supergraph(&read_file(&bench.file(DEFINED_IN))?)?;
    write_file(&supergraph, &wide)?;
    let mock = bench.start_mock(&supergraph)?;
    write_file(&config, DEFAULT_METRICS)?;
    let placed = replace_subgraph_urls(&wide, &[SUBGRAPH], mock.address);
    write_file(&supergraph, &placed)?;
    let router = bench.start_starling(&config, &supergraph)?;
    // The checks of readiness are operations, too.
    let before = counts(&RouterMetrics::fetch(&router)?);
    let began = Instant::now();
    send_operations(&router)?;
    println!("The operations took {:.0} s.", began.elapsed().as_secs_f64());
    let fields = count_used_fields(&router)?;

    let (mut megabytes, mut took_ms) = (Samples::default(), Samples::default());
    for _ in 0..SCRAPES {
        let began = Instant::now();
        let metrics = RouterMetrics::fetch(&router)?;
        took_ms.push(began.elapsed().as_secs_f64() * 1e3);
        megabytes.push(metrics.bytes() as f64 / 1e6);
    }
    let metrics = RouterMetrics::fetch(&router)?;
    for ((name, before), after) in COUNTERS.iter().zip(before).zip(counts(&metrics)) {
        let counted = after - before;
        if counted != f64::from(NAMES) {
            return Err(format!("{name} counts {counted} of {NAMES} requests"));
        }
        println!("{name}: {} series, {counted} requests", metrics.count(name));
    }
    if fields != NAMES as usize {
        return Err(format!("the use of {fields} of {NAMES} fields is counted"));
    }
    println!("fields with counters: {fields}");

    println!("\n{SCRAPES} scrapes:\n\n| | found | at most | met |\n|---|---|---|---|");
    let rows = [
        ("size", megabytes.max(), MEGABYTES_MAX, "MB"),
        ("time, median", took_ms.median(), SCRAPE_MS_MAX, "ms"),
        ("time, slowest", took_ms.max(), SCRAPE_MS_MAX, "ms"),
    ];
    for (what, found, most, unit) in rows {
        println!("| {what} | {found:.2} {unit} | {most} {unit} | {} |", verdict(found <= most));
    }
    println!();
    Ok(())
}

/// Returns the requests of all names, by each of [`COUNTERS`].
fn counts(metrics: &RouterMetrics) -> [f64; 2] {
    COUNTERS.map(|name| metrics.sum(name).unwrap_or(0.0))
}

/// Sends each operation once.
fn send_operations(router: &ServerProcess) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let senders: Vec<_> =
            (0..CONNECTIONS).map(|first| scope.spawn(move || send_share(router, first))).collect();
        senders.into_iter().try_for_each(|sender| {
            sender.join().unwrap_or_else(|_| Err("a thread that sends has ended".to_owned()))
        })
    })
}

/// Sends every [`CONNECTIONS`]th operation from `first` on over one connection.
fn send_share(router: &ServerProcess, first: u32) -> Result<(), Failure> {
    let mut connection = HttpConnection::new(router.address);
    let version = "9".repeat(VERSION_LENGTH);
    for number in (first..NAMES).step_by(CONNECTIONS as usize) {
        let body = json!({ "query": operation(number) }).to_string();
        let client = long_name('C', number);
        let headers =
            [("graphql-client-name", client.as_str()), ("graphql-client-version", &version)];
        let response = connection.post_with_headers(&router.path, &headers, &body)?;
        if response.status != 200 || response.body.contains("\"errors\"") {
            return Err(format!("{body}: status {}, {}", response.status, response.body));
        }
    }
    Ok(())
}

/// Returns the number of fields of the generated types that have a count of uses.
fn count_used_fields(router: &ServerProcess) -> Result<usize, Failure> {
    let admin = router.admin.ok_or("the router has no admin listener")?;
    let usage = fetch_json_page(admin, "/admin/usage")?;
    let uses = usage["uses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let coordinates = uses.iter().filter_map(|it| it["coordinate"].as_str());
    let fields: HashSet<&str> = coordinates.filter(|it| it.starts_with('T')).collect();
    Ok(fields.len())
}

/// Returns the text of one operation, which selects one field.
fn operation(number: u32) -> String {
    let (of_type, field) = (number / FIELDS_OF_TYPE, number % FIELDS_OF_TYPE);
    format!("query {} {{ t{of_type} {{ f{field} }} }}", long_name('O', number))
}

/// Returns a name of the maximum length that ends with a number.
fn long_name(letter: char, number: u32) -> String {
    let digits = number.to_string();
    format!("{}{digits}", String::from(letter).repeat(NAME_LENGTH - digits.len()))
}

/// Returns a supergraph with one subgraph and all fields, and with the definitions of `other`.
fn wide_supergraph(other: &str) -> Result<String, Failure> {
    let parts = other.split_once(SUBGRAPHS).and_then(|(before, rest)| {
        let (_, after) = rest.split_once("}\n")?;
        Some((before, after.split_once(TYPES_BEGIN)?.0))
    });
    let (before, after) = parts.ok_or_else(|| format!("{DEFINED_IN} has another order"))?;
    let mut sdl = format!("{before}{after}");
    // Any address will do: it is replaced by that of the mock. Writing to a string cannot fail.
    let url = format!("http://127.0.0.1:4200/{SUBGRAPH}");
    let graph = format!("WIDE @join__graph(name: \"{SUBGRAPH}\", url: \"{url}\")");
    let _ = writeln!(sdl, "\nenum join__Graph {{\n  {graph}\n}}");
    sdl.push_str("\ntype Query @join__type(graph: WIDE) {\n");
    for of_type in 0..TYPES {
        let _ = writeln!(sdl, "  t{of_type}: T{of_type}");
    }
    sdl.push_str("}\n");
    for of_type in 0..TYPES {
        let _ = writeln!(sdl, "\ntype T{of_type} @join__type(graph: WIDE) {{");
        for field in 0..FIELDS_OF_TYPE {
            let _ = writeln!(sdl, "  f{field}: Int");
        }
        sdl.push_str("}\n");
    }
    Ok(sdl)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_kit::builds;

    #[test]
    fn each_operation_has_a_name_and_a_field_of_its_own() {
        let other = read_file(&builds::workspace_root().join(DEFINED_IN)).expect("a supergraph");
        let sdl = wide_supergraph(&other).expect("its definitions");
        assert!(!sdl.contains("ITEMS") && sdl.contains("scalar link__Import"), "{sdl:.2000}");
        let fields = sdl.lines().filter(|line| line.starts_with("  f")).count();
        assert_eq!(fields, NAMES as usize);
        for (number, selection) in [(0, "{ t0 { f0 } }"), (NAMES - 1, "{ t19 { f4999 } }")] {
            let text = operation(number);
            assert!(text.ends_with(selection), "{text}");
            let name = long_name('O', number);
            assert!(text.contains(&name) && name.len() == NAME_LENGTH, "{text}");
        }
        let distinct: HashSet<String> = (0..NAMES).map(operation).collect();
        assert_eq!(distinct.len(), NAMES as usize);
    }
}
