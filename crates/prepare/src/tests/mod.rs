//! Tests of the stages before planning, from text to normalised operation and coerced variables.

mod adversarial;
mod changed_entities;
mod coercion;
mod fetch_caching;
mod fixtures;
mod identity;
mod introspection;
mod limits;
mod live_queries;
mod print;
mod texts;

use std::sync::Arc;

use graph::Supergraph;

use crate::pipeline::{NormalisedText, Pipeline};
use crate::{Limits, PrepareError, PrepareSettings};

const SCHEMA: &str = include_str!("../../tests/fixtures/schema.graphql");

fn pipeline_of(sdl: &str, limits: Limits) -> Pipeline {
    let graph = Supergraph::from_sdl(sdl, "schema.graphql").unwrap();
    let settings = PrepareSettings { limits, ..PrepareSettings::default() };
    Pipeline::new(Arc::new(graph), 1, settings, Arc::default())
}

fn pipeline() -> Pipeline {
    pipeline_of(SCHEMA, Limits::default())
}

fn normalise_text(operation: &str) -> Result<NormalisedText, PrepareError> {
    pipeline().normalise_text(operation.as_bytes(), None)
}

/// Runs on a stack as large as those of the blocking pool's threads.
fn on_a_stack_of_2_mib<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap()
}
