//! Composes any schemas: composition never panics, its findings point into the schemas, and the router loads what was
//! composed.
//!
//! A zero byte separates the schemas of subgraphs; GraphQL does not allow it in a text.

#![no_main]

use compose::{Composition, Finding, SubgraphInput};
use graph::Supergraph;
use libfuzzer_sys::fuzz_target;

/// The maximum number of subgraphs. Composition has no such limit, but inputs of many tiny schemas find nothing new.
const SUBGRAPHS_MAX: usize = 8;

/// Specifications that the router refuses, because it does not enforce them yet.
const REFUSED_SPECS: [&str; 3] = ["authenticated", "requiresScopes", "policy"];

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let input = |(index, sdl): (usize, &str)| SubgraphInput {
        name: format!("s{index}"),
        // Event subgraphs have no server.
        url: if sdl.contains("@events__") { String::new() } else { format!("http://s{index}/") },
        file: format!("s{index}.graphql"),
        sdl: sdl.to_owned(),
        subscription: None,
    };
    let subgraphs: Vec<_> = text.split('\0').take(SUBGRAPHS_MAX).enumerate().map(input).collect();
    match compose::compose(&subgraphs) {
        Composition::Success { supergraph_sdl, hints } => {
            check_findings(&hints, &subgraphs);
            let has_refused_spec = REFUSED_SPECS
                .iter()
                .any(|name| supergraph_sdl.contains(&format!("specs.apollo.dev/{name}/")));
            if !has_refused_spec
                && let Err(errors) = Supergraph::from_sdl(&supergraph_sdl, "supergraph.graphql")
            {
                panic!("the router refuses the supergraph: {errors}\n{supergraph_sdl}");
            }
        }
        Composition::Failure { errors, hints } => {
            assert!(!errors.is_empty(), "a failure has a reason");
            check_findings(&errors, &subgraphs);
            check_findings(&hints, &subgraphs);
        }
    }
});

/// Checks that each finding has a message, and that its places exist.
fn check_findings(findings: &[Finding], subgraphs: &[SubgraphInput]) {
    for finding in findings {
        assert!(!finding.message.is_empty(), "{finding}");
        for place in &finding.places {
            let subgraph = subgraphs.iter().find(|it| *it.name == *place.subgraph);
            let lines = subgraph.expect("a place names a subgraph").sdl.split('\n').count();
            assert!(place.line <= lines, "{finding}");
        }
    }
}
