//! From text to [`Prepared`], once per operation: a bounded cache in front, one planner for everyone
//! who waits for the same operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use apollo_compiler::parser::Parser;
use execute::Executable;
use graph::Supergraph;
use quick_cache::sync::Cache;

use crate::coerce::VariableTypes;
use crate::error::{Problem, problems};
use crate::identity::operation_id;
use crate::input_types::InputTypes;
use crate::introspection::{Introspection, SchemaFacts};
use crate::limits::{self, Limit, Limits, NESTING_MAX};
use crate::normalise::normalise;
use crate::{OperationRequest, PrepareError, Prepared};

/// How many prepared operations are kept. A client application has some hundreds; one entry takes
/// 10 to 100 kB.
const OPERATIONS_MAX: usize = 2_048;

/// How a preparer behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrepareSettings {
    /// Limits on operations.
    pub limits: Limits,
    /// May clients ask for the schema?
    pub introspection: bool,
}

impl Default for PrepareSettings {
    fn default() -> Self {
        Self { limits: Limits::default(), introspection: true }
    }
}

/// Counters since this preparer was made.
#[derive(Debug, Default)]
pub struct PrepareStats {
    /// Operations found ready.
    pub hits: AtomicU64,
    /// Operations that had to be prepared, also in vain.
    pub misses: AtomicU64,
    /// Time spent preparing, in microseconds.
    pub micros: AtomicU64,
    /// Operations refused by a limit.
    pub limited: AtomicU64,
}

/// Prepares operations for one supergraph.
#[derive(Debug)]
pub struct Preparer {
    work: Arc<Work>,
    cache: Cache<CacheKey, Arc<Prepared>>,
    stats: PrepareStats,
}

/// The whole text is compared: two operations never share an entry by accident.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct CacheKey {
    query: bytes::Bytes,
    operation_name: Option<Box<str>>,
}

#[derive(Debug)]
struct Work {
    graph: Arc<Supergraph>,
    graph_id: u64,
    schema: Arc<SchemaFacts>,
    settings: PrepareSettings,
}

impl Preparer {
    /// A preparer for `graph`, with an empty cache. `graph_id` goes into operation ids.
    pub fn new(graph: Arc<Supergraph>, graph_id: u64, settings: PrepareSettings) -> Self {
        let schema = Arc::clone(&graph.api.0);
        let schema = Arc::new(SchemaFacts {
            input_types: InputTypes::of(&schema),
            implementers: schema.implementers_map(),
            schema,
        });
        Self {
            work: Arc::new(Work { graph, graph_id, schema, settings }),
            cache: Cache::new(OPERATIONS_MAX),
            stats: PrepareStats::default(),
        }
    }

    /// Counters.
    pub fn stats(&self) -> &PrepareStats {
        &self.stats
    }

    /// How many operations are kept now.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Is the cache empty?
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// The prepared operation for a request. A hit parses nothing. On a miss one caller prepares on the
    /// blocking pool and the others wait for it; failures are not kept.
    ///
    /// # Errors
    /// Everything that [`PrepareError`] names but [`PrepareError::Variables`].
    pub async fn prepare(&self, request: &OperationRequest) -> Result<Arc<Prepared>, PrepareError> {
        let key = CacheKey {
            query: request.query.clone(),
            operation_name: request.operation_name.clone(),
        };
        if let Some(prepared) = self.cache.get(&key) {
            self.stats.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(prepared);
        }
        let guard = match self.cache.get_value_or_guard_async(&key).await {
            Ok(prepared) => {
                self.stats.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(prepared);
            }
            Err(guard) => guard,
        };
        let started = Instant::now();
        let work = Arc::clone(&self.work);
        // The key outlives the request's buffer: own text, not a slice of a larger read.
        let query = bytes::Bytes::copy_from_slice(&key.query);
        let name = key.operation_name.clone();
        let text = query.clone();
        let result =
            tokio::task::spawn_blocking(move || work.prepare(&text, name.as_deref())).await;
        let result = result.unwrap_or_else(|_| {
            Err(PrepareError::Internal("preparing the operation failed; please report this".into()))
        });
        self.stats.misses.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stats.micros.fetch_add(micros, Ordering::Relaxed);
        if matches!(result, Err(PrepareError::Limit { .. })) {
            self.stats.limited.fetch_add(1, Ordering::Relaxed);
        }
        let prepared = Arc::new(result?);
        // Refused only if the entry was removed meanwhile; the operation is fine all the same.
        let _ = guard.insert(Arc::clone(&prepared));
        Ok(prepared)
    }

    /// Prepares without cache and on this thread: for the command line and for tests.
    ///
    /// # Errors
    /// As [`Preparer::prepare`].
    pub fn prepare_now(
        &self,
        query: &[u8],
        operation_name: Option<&str>,
    ) -> Result<Prepared, PrepareError> {
        self.work.prepare(query, operation_name)
    }
}

impl Work {
    fn prepare(&self, query: &[u8], name: Option<&str>) -> Result<Prepared, PrepareError> {
        let limits = &self.settings.limits;
        let text = std::str::from_utf8(query).map_err(|error| {
            PrepareError::Syntax(vec![Problem::new(format!("the document is not UTF-8: {error}"))])
        })?;
        let mut parser = Parser::new().token_limit(limits.tokens).recursion_limit(NESTING_MAX);
        let document = parser.parse_ast(text, "operation").map_err(|invalid| {
            let limit = if parser.tokens_reached() > limits.tokens {
                Some((Limit::Tokens, limits.tokens))
            } else if parser.recursion_reached() > NESTING_MAX {
                Some((Limit::Depth, limits.depth))
            } else {
                None
            };
            match limit {
                Some((limit, maximum)) => PrepareError::Limit { limit, maximum },
                None => PrepareError::Syntax(problems(&invalid.errors)),
            }
        })?;
        limits::check(&document, limits)?;
        let document = document
            .to_executable_validate(&self.schema.schema)
            .map_err(|invalid| PrepareError::Validation(problems(&invalid.errors)))?;
        let operation =
            document.operations.get(name).map_err(|_| unknown_operation(&document, name))?;
        let normalised = normalise(&self.graph, &self.schema.input_types, &document, operation)?;
        let introspects = operation
            .root_fields(&document)
            .any(|field| matches!(field.name.as_str(), "__schema" | "__type"));
        if introspects && !self.settings.introspection {
            return Err(PrepareError::Validation(vec![Problem::new(
                "introspection is turned off on this router (`introspection: false`)",
            )]));
        }
        let defaults: String = operation
            .variables
            .iter()
            .filter_map(|it| Some(format!("{}={};", it.name, it.default_value.as_ref()?)))
            .collect();
        let variables = VariableTypes::of(operation, &self.schema.input_types);
        let plan = plan::plan(&self.graph, &normalised, &plan::Limits::default())
            .map_err(PrepareError::Plan)?;
        let plan = Arc::new(plan);
        let introspection = introspects
            .then(|| Introspection { name: name.map(Into::into), document: document.clone() });
        Ok(Prepared {
            operation_id: operation_id(self.graph_id, &normalised, &defaults),
            name: normalised.name.clone(),
            kind: normalised.kind,
            operation: normalised,
            executable: Arc::new(Executable::new(Arc::clone(&plan))),
            plan,
            variables,
            introspection,
            schema: Arc::clone(&self.schema),
        })
    }
}

fn unknown_operation(
    document: &apollo_compiler::ExecutableDocument,
    name: Option<&str>,
) -> PrepareError {
    /// Names shown in the message.
    const SHOWN: usize = 10;
    let names: Vec<&str> =
        document.operations.named.keys().take(SHOWN).map(apollo_compiler::Name::as_str).collect();
    PrepareError::UnknownOperation(match name {
        Some(name) => {
            let name: String = name.chars().take(100).collect();
            format!("the document has no operation named \"{name}\"; it has: {}", names.join(", "))
        }
        None if document.operations.is_empty() => "the document has no operation".to_owned(),
        None => format!(
            "the document has several operations ({}); say which by `operationName`",
            names.join(", ")
        ),
    })
}
