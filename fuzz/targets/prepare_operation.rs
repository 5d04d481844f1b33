//! Any document, and any variables for it: preparing never panics, never finds an internal error,
//! and gives the same identity twice.
//!
//! The document ends at the first zero byte; the rest are the variables.

#![no_main]

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use graph::Supergraph;
use libfuzzer_sys::fuzz_target;
use prepare::{PrepareError, PrepareSettings, Preparer};

static PREPARER: LazyLock<Preparer> = LazyLock::new(|| {
    let sdl = include_str!("../../crates/prepare/tests/fixtures/schema.graphql");
    let graph = Supergraph::from_sdl(sdl, "schema.graphql").expect("the fixtures use it");
    Preparer::new(Arc::new(graph), 1, PrepareSettings::default())
});

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let query = parts.next().unwrap_or_default();
    let variables = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let prepared = match PREPARER.prepare_now(query, None) {
        Ok(prepared) => prepared,
        Err(PrepareError::Internal(message)) => panic!("{message}"),
        Err(_) => return,
    };
    let again = PREPARER.prepare_now(query, None).expect("it could be prepared before");
    assert_eq!(prepared.operation_id, again.operation_id);
    if let Ok(values) = prepared.coerce(&variables) {
        assert_eq!(values.values.len(), prepared.operation.variables.len());
        prepared.introspect(&values).expect("what it asks for was checked before");
    }
});
