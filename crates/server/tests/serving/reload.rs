//! Tests of reloads, in all the ways in which deployments replace a supergraph.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use server::SupergraphSource;
use wire::graphql_transport_ws::ClientEvent;

use crate::http::request;
use crate::router::{Router, SUPERGRAPH};
use crate::socket::Socket;

const GENERATION: &str = "starling_graph_generation";

fn release(folder: &Path, name: &str, number: u32) {
    let folder = folder.join(name);
    fs::create_dir(&folder).unwrap();
    let sdl = format!("# {number}\n{SUPERGRAPH}");
    fs::write(folder.join("supergraph.graphql"), sdl).unwrap();
}

fn replace_link(link: &Path, target: &str) {
    let new = link.with_file_name("new-link");
    symlink(target, &new).unwrap();
    fs::rename(new, link).unwrap();
}

#[test]
fn a_swapped_config_map_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    release(folder, "..2026_1", 1);
    symlink("..2026_1", folder.join("..data")).unwrap();
    symlink("..data/supergraph.graphql", folder.join("supergraph.graphql")).unwrap();
    let file = folder.join("supergraph.graphql");
    let router = Router::serving(SupergraphSource::File(file), "");
    router.wait_for(GENERATION, 1);
    release(folder, "..2026_2", 2);
    replace_link(&folder.join("..data"), "..2026_2");
    router.wait_for(GENERATION, 2);
}

#[test]
fn a_changed_link_further_up_the_path_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    release(folder, "release-1", 1);
    release(folder, "release-2", 2);
    symlink("release-1", folder.join("current")).unwrap();
    let file = folder.join("current/supergraph.graphql");
    let router = Router::serving(SupergraphSource::File(file), "");
    let mut socket = Socket::open(router.address);
    socket.subscribe("1", "subscription { tick { id } }");
    router.wait_for("starling_hub_subscribers", 1);
    replace_link(&folder.join("current"), "release-2");
    router.wait_for(GENERATION, 2);
    router.wait_for("starling_hub_subscribers", 1);
    router.publish(r#"{"__typename":"Tick","id":"1"}"#);
    let heard = socket.hear();
    assert!(matches!(heard, ClientEvent::Next { .. }), "{heard:?}");
}

#[test]
fn a_new_graph_has_prepared_the_most_used_operations_before_it_serves() {
    const MISSES: &str = "starling_operations_prepared_misses_total";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("supergraph.graphql");
    fs::write(&file, SUPERGRAPH).unwrap();
    let router = Router::serving(SupergraphSource::File(file.clone()), "");
    let ask = |query: &str| {
        let body = format!(r#"{{"query":"{query}"}}"#);
        let headers = [("content-type", "application/json")];
        let response = request(router.address, "POST", "/graphql", &headers, &body);
        assert_eq!(response.status, 200, "{}", response.body);
    };
    for query in
        ["{ time }", "{ __typename time }", "{ time }", "{ __typename time }", "{ t: time }"]
    {
        ask(query);
    }
    router.wait_for(MISSES, 3);
    fs::write(&file, format!("# 2\n{SUPERGRAPH}")).unwrap();
    router.wait_for(GENERATION, 2);
    // Operations that were used more than once were prepared while the old graph served, and are in the cache.
    router.wait_for(MISSES, 2);
    ask("{ time }");
    ask("{ __typename time }");
    router.wait_for("starling_operations_prepared_hits_total", 2);
    router.wait_for(MISSES, 2);
    ask("{ t: time }");
    router.wait_for(MISSES, 3);
}

#[test]
fn a_missing_or_invalid_file_leaves_the_old_graph_in_service() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("supergraph.graphql");
    fs::write(&file, SUPERGRAPH).unwrap();
    let router = Router::serving(SupergraphSource::File(file.clone()), "");
    fs::write(&file, "type Query {").unwrap();
    router.wait_for(r#"starling_graph_loads_total{result="refused"}"#, 1);
    fs::remove_file(&file).unwrap();
    router.wait_for(r#"starling_graph_loads_total{result="refused"}"#, 2);
    let mut socket = Socket::open(router.address);
    socket.subscribe("1", "{ __typename }");
    let heard = socket.hear();
    assert!(matches!(heard, ClientEvent::Next { .. }), "{heard:?}");
    router.wait_for(GENERATION, 1);
    fs::write(&file, format!("# 2\n{SUPERGRAPH}")).unwrap();
    router.wait_for(GENERATION, 2);
}
