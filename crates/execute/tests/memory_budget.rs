//! The memory budget: the tree of an execution counts until its payload is printed, and a response that does not fit
//! ends the fetch that it belongs to.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod kit;

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::memory::{MemoryAccount, MemoryKind};
use execute::{Executable, Payload, Seed};
use kit::notation;
use kit::subgraphs::{Rule, World};
use plan::{Fetch, FetchKind, OperationKind, Plan, SubgraphOperation, Variables};

const LARGE_BYTES: usize = 1 << 20;

/// A small root field of subgraph `one` and a large one of subgraph `two`.
fn executable() -> Executable {
    let fetch = |subgraph: u16, key: &str| Fetch {
        subgraph: graph::SubgraphId(subgraph),
        kind: FetchKind::Root {
            operation: SubgraphOperation {
                text: format!("{{{key}}}").into(),
                kind: OperationKind::Query,
                name: None,
                variables: vec![],
            },
            data_keys: vec![key.into()],
        },
        depends_on: vec![],
        any_of: vec![],
        representations_max: 1_000,
    };
    Executable::new(Arc::new(Plan {
        kind: OperationKind::Query,
        fetches: vec![fetch(0, "small"), fetch(1, "large")],
        subscription: None,
        shape: notation::shape("Query { small: String large: String }"),
    }))
}

fn run(memory: &Arc<MemoryAccount>) -> Payload {
    let rule = |subgraph: &str, key: &str, value: &str| Rule {
        subgraph: subgraph.into(),
        contains: String::new(),
        reaction: format!("{{\"data\":{{\"{key}\":\"{value}\"}}}}"),
    };
    let large = "x".repeat(LARGE_BYTES);
    let rules = vec![rule("one", "small", "1"), rule("two", "large", &large)];
    let world = World::new(&["one".to_owned(), "two".to_owned()], rules).with_memory(memory);
    let context = world.context(Instant::now() + Duration::from_secs(60));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (executable, variables) = (executable(), Variables::default());
    let execution = execute::execute(&executable, &variables, None, Seed::Nothing, &context);
    runtime.block_on(execution)
}

#[test]
fn a_response_that_does_not_fit_costs_its_own_fields() {
    let memory = MemoryAccount::new(LARGE_BYTES as u64);
    let payload = run(&memory);
    let expected = concat!(
        r#"{"data":{"small":"1","large":null},"errors":[{"message":"Request to subgraph \"two\" failed: "#,
        r#"the router has no memory left for its response (`limits.memory`).","path":["large"],"#,
        r#""extensions":{"code":"OVERLOADED","serviceName":"two"}}]}"#,
    );
    assert_eq!(std::str::from_utf8(&payload.bytes).unwrap(), expected);
    assert_eq!(memory.refused(MemoryKind::ResponseTrees), 1);
    assert_eq!(memory.held_total(), 0);
}

#[test]
fn the_tree_counts_while_the_operation_runs_only() {
    let memory = MemoryAccount::new(8 * LARGE_BYTES as u64);
    let payload = run(&memory);
    assert_eq!(payload.errors, 0);
    assert!(payload.bytes.len() > LARGE_BYTES);
    assert_eq!((memory.held_total(), memory.refused(MemoryKind::ResponseTrees)), (0, 0));
}
