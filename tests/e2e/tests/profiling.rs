//! Profiles through the admin listener, as described in docs/profiling.md.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // A test without its expected value has failed.

use e2e::request;
use e2e::router::Router;
use std::fs;

const SUPERGRAPH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/federation-benchmark/supergraph.graphql");

fn get(router: &Router, path: &str) -> (u16, Vec<u8>) {
    let response = request(router.admin(), "GET", path, &[], b"").unwrap();
    (response.status, response.body.to_vec())
}

fn text(router: &Router, path: &str) -> (u16, String) {
    let (status, body) = get(router, path);
    (status, String::from_utf8(body).unwrap())
}

#[test]
fn profiles_are_taken_if_the_configuration_allows_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("starling.yaml");
    fs::write(&config, "admin: {profiling: true}\n").unwrap();
    let config = config.to_str().unwrap();
    let router = Router::start(["serve", "--config", config, "--supergraph", SUPERGRAPH]);

    let (status, tasks) = text(&router, "/debug/pprof/tasks");
    assert_eq!(status, 200);
    assert!(tasks.contains("worker-0: 0 connections") && tasks.contains("control"), "{tasks}");

    let (status, profile) = get(&router, "/debug/pprof/profile?seconds=1");
    assert_eq!(status, 200);
    let profile = String::from_utf8_lossy(&profile);
    assert!(profile.contains("cpu") && profile.contains("nanoseconds"), "{profile}");

    let (status, refused) = text(&router, "/debug/pprof/profile?seconds=0");
    assert_eq!((status, refused.contains("from 1 to 300")), (400, true), "{refused}");
    let (status, off) = text(&router, "/debug/pprof/heap");
    assert_eq!((status, off.contains("prof:true")), (404, true), "{off}");
    let (status, help) = text(&router, "/debug/pprof/");
    assert_eq!((status, help.contains("/debug/pprof/heap")), (404, true), "{help}");
}

#[test]
fn profiling_is_off_by_default() {
    let router = Router::start(["serve", "--supergraph", SUPERGRAPH]);
    for path in ["profile", "heap", "tasks"] {
        let (status, body) = text(&router, &format!("/debug/pprof/{path}"));
        assert_eq!((status, body.contains("profiling: true")), (404, true), "{path}: {body}");
    }
}
