//! The parts of the schema that clients with some rights may use, for introspection: one for each set of requirements
//! that is not met, made when it occurs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use apollo_compiler::Name;
use apollo_compiler::Schema;
use apollo_compiler::collections::HashMap;
use apollo_compiler::schema::Implementers;
use apollo_compiler::validation::Valid;
use graph::{RequirementSet, Supergraph};
use quick_cache::sync::Cache;

use crate::live_directive::with_live_directive;
use crate::stats::PrepareStats;

/// The number of parts that are kept. Each is some megabytes for a large graph; a graph has a handful of roles. Further
/// ones are made again when they are needed, which takes about as long as the introspection itself.
const SCHEMAS_MAX: usize = 32;

/// A part of a schema.
#[derive(Debug)]
pub(crate) struct VisibleSchema {
    pub(crate) schema: Valid<Schema>,
    pub(crate) implementers: HashMap<Name, Implementers>,
}

/// The parts of the schema of one graph.
#[derive(Debug)]
pub(crate) struct VisibleSchemas {
    graph: Arc<Supergraph>,
    /// `None`: clients that do not meet these requirements may use nothing.
    parts: Cache<RequirementSet, Option<Arc<VisibleSchema>>>,
    /// True if clients may send live queries.
    live_queries: bool,
    stats: Arc<PrepareStats>,
}

impl VisibleSchemas {
    pub(crate) fn new(
        graph: Arc<Supergraph>,
        live_queries: bool,
        stats: Arc<PrepareStats>,
    ) -> Self {
        Self { graph, parts: Cache::new(SCHEMAS_MAX), live_queries, stats }
    }

    /// Returns the part for clients that do not meet `unmet`. `None` if they may use no field of the query root.
    pub(crate) fn get(&self, unmet: &RequirementSet) -> Option<Arc<VisibleSchema>> {
        let made = self.parts.get_or_insert_with(unmet, || {
            self.stats.schemas_filtered.fetch_add(1, Ordering::Relaxed);
            let schema = self.graph.visible_api(unmet);
            Ok::<_, Infallible>(schema.map(|schema| {
                let schema = match self.live_queries {
                    true => with_live_directive(schema.into_inner()),
                    false => schema,
                };
                Arc::new(VisibleSchema { implementers: schema.implementers_map(), schema })
            }))
        });
        match made {
            Ok(part) => part,
            Err(never) => match never {},
        }
    }
}
