//! From text to [`Prepared`], once per operation: a bounded cache in front, one planner for everyone
//! who waits for the same operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use apollo_compiler::introspection::check_max_depth;
use apollo_compiler::parser::Parser;
use apollo_compiler::validation::{Valid, WithErrors};
use apollo_compiler::{ExecutableDocument, ast, executable};
use execute::Executable;
use graph::Supergraph;
use plan::FieldTarget;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::coerce::VariableTypes;
use crate::error::{Problem, problems, shortened};
use crate::identity::operation_id;
use crate::input_types::InputTypes;
use crate::introspection::{Introspection, SchemaFacts};
use crate::introspection_size;
use crate::lexical::count_tokens;
use crate::limits::{self, Limit, Limits, NESTING_MAX};
use crate::merging;
use crate::normalise::normalise;
use crate::usages;
use crate::{OperationRequest, PrepareError, Prepared};

/// Estimated memory of all prepared operations that are kept ([`Prepared::weight`]). A client application
/// has some hundreds of operations of 10 to 100 kB. The cache divides this into [`CACHE_PARTS`], and an
/// operation heavier than a part is prepared anew each time.
const CACHE_BYTES_MAX: u64 = 128 << 20;

/// Parts with a lock of their own.
const CACHE_PARTS: usize = 8;

/// Ignored tokens (white space, commas, comments) that the parser may read for each that counts.
/// Documents that people and programs lay out have one or two; without a bound a document of nothing
/// but commas would cost a hundred times its size.
const IGNORED_TOKENS_MAX: usize = 4;

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
    cache: Cache<CacheKey, Arc<Prepared>, Weight>,
    stats: PrepareStats,
}

/// The whole text is compared: two operations never share an entry by accident.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct CacheKey {
    query: bytes::Bytes,
    operation_name: Option<Box<str>>,
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<CacheKey, Arc<Prepared>> for Weight {
    fn weight(&self, _: &CacheKey, prepared: &Arc<Prepared>) -> u64 {
        prepared.weight
    }
}

#[derive(Debug)]
pub(crate) struct Work {
    graph: Arc<Supergraph>,
    graph_id: u64,
    pub(crate) schema: Arc<SchemaFacts>,
    settings: PrepareSettings,
}

impl Preparer {
    /// A preparer for `graph`, with an empty cache. `graph_id` goes into operation ids.
    pub fn new(graph: Arc<Supergraph>, graph_id: u64, settings: PrepareSettings) -> Self {
        Self {
            work: Arc::new(Work::new(graph, graph_id, settings)),
            // The number of entries decides how many parts the cache makes, 32 or more in each.
            cache: Cache::with_weighter(32 * CACHE_PARTS, CACHE_BYTES_MAX, Weight),
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
        let mut key = CacheKey {
            query: request.query.clone(),
            operation_name: request.operation_name.clone(),
        };
        if let Some(prepared) = self.cache.get(&key) {
            self.stats.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(prepared);
        }
        // The key outlives the request's buffer: own text, not a slice of a larger read.
        key.query = bytes::Bytes::copy_from_slice(&key.query);
        let guard = match self.cache.get_value_or_guard_async(&key).await {
            Ok(prepared) => {
                self.stats.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(prepared);
            }
            Err(guard) => guard,
        };
        let started = Instant::now();
        let work = Arc::clone(&self.work);
        let result = tokio::task::spawn_blocking(move || {
            work.prepare(&key.query, key.operation_name.as_deref())
        });
        let result = result.await;
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

/// An operation before it is planned.
#[derive(Debug)]
pub(crate) struct Understood {
    pub(crate) operation: plan::Operation,
    pub(crate) operation_id: u128,
    pub(crate) variables: VariableTypes,
    pub(crate) introspection: Option<Introspection>,
}

impl Work {
    pub(crate) fn new(graph: Arc<Supergraph>, graph_id: u64, settings: PrepareSettings) -> Self {
        let schema = Arc::clone(&graph.api.0);
        let schema = Arc::new(SchemaFacts {
            input_types: InputTypes::of(&schema),
            implementers: schema.implementers_map(),
            introspection_values_max: introspection_size::values_max(&schema),
            introspection_kept: Arc::default(),
            schema,
        });
        Self { graph, graph_id, schema, settings }
    }

    pub(crate) fn prepare(
        &self,
        query: &[u8],
        name: Option<&str>,
    ) -> Result<Prepared, PrepareError> {
        let Understood { operation, operation_id, variables, introspection } =
            self.understand(query, name)?;
        let plan = plan::plan(&self.graph, &operation, &plan::Limits::default())
            .map_err(PrepareError::Plan)?;
        let plan = Arc::new(plan);
        Ok(Prepared {
            operation_id,
            name: operation.name.clone(),
            kind: operation.kind,
            weight: weight(query, &operation, introspection.is_some()),
            operation,
            executable: Arc::new(Executable::new(Arc::clone(&plan))),
            plan,
            variables,
            introspection,
            schema: Arc::clone(&self.schema),
        })
    }

    /// Everything up to the plan.
    pub(crate) fn understand(
        &self,
        query: &[u8],
        name: Option<&str>,
    ) -> Result<Understood, PrepareError> {
        let types = &self.schema.input_types;
        let document = self.validate(&self.parse(query)?)?;
        let chosen =
            document.operations.get(name).map_err(|_| unknown_operation(&document, name))?;
        let never_null = usages::check(&document, &self.schema.schema, types, Some(chosen))?;
        let variables = VariableTypes::of(chosen, types, &never_null)
            .map_err(|problem| PrepareError::Validation(vec![problem]))?;
        let mut operation = normalise(&self.graph, types, &document, chosen)?;
        for (variable, ty) in operation.variables.iter_mut().zip(variables.types()) {
            variable.ty = ty.into();
        }
        let mut besides: String = chosen
            .variables
            .iter()
            .filter_map(|it| Some(format!("{}={};", it.name, it.default_value.as_ref()?)))
            .collect();
        let introspects = introspects(&operation);
        if introspects {
            self.allow_introspection(&document, chosen)?;
            // What is asked of the schema stands in the text only.
            besides.push_str(&String::from_utf8_lossy(query));
        }
        let operation_id = operation_id(self.graph_id, &operation, &besides);
        let introspection =
            introspects.then(|| Introspection::new(&self.schema, document, name.map(Into::into)));
        Ok(Understood { operation, operation_id, variables, introspection })
    }

    /// The syntax tree, within the limits.
    fn parse(&self, query: &[u8]) -> Result<ast::Document, PrepareError> {
        let limits = &self.settings.limits;
        let text = std::str::from_utf8(query).map_err(|error| {
            PrepareError::Syntax(vec![Problem::new(format!("the document is not UTF-8: {error}"))])
        })?;
        if text.trim().is_empty() {
            let problem = Problem::new("the document is empty: `query` must hold an operation");
            return Err(PrepareError::Syntax(vec![problem]));
        }
        let too_many = PrepareError::Limit { limit: Limit::Tokens, maximum: limits.tokens };
        if count_tokens(text, limits.tokens) > limits.tokens {
            return Err(too_many);
        }
        let with_ignored = limits.tokens.saturating_mul(1 + IGNORED_TOKENS_MAX);
        let mut parser = Parser::new().token_limit(with_ignored).recursion_limit(NESTING_MAX);
        let document = parser.parse_ast(text, "operation").map_err(|invalid| {
            if parser.tokens_reached() > with_ignored {
                too_many
            } else if parser.recursion_reached() > NESTING_MAX {
                let maximum = limits.depth.min(NESTING_MAX);
                PrepareError::Limit { limit: Limit::Depth, maximum }
            } else {
                // After the first the parser mostly complains about the consequences.
                let mut problems = problems(&invalid.errors);
                problems.truncate(1);
                PrepareError::Syntax(problems)
            }
        })?;
        limits::check(&document, limits)?;
        Ok(document)
    }

    fn validate(
        &self,
        document: &ast::Document,
    ) -> Result<Valid<ExecutableDocument>, PrepareError> {
        let schema = &self.schema.schema;
        let maximum = self.settings.limits.selections;
        let guard = |document: &ExecutableDocument| {
            merging::check(document, schema, maximum).map_err(|stop| match stop {
                merging::Stop::Budget => PrepareError::Limit { limit: Limit::Selections, maximum },
                merging::Stop::Conflict(problem) => PrepareError::Validation(vec![problem]),
            })
        };
        let invalid = |invalid: WithErrors<ExecutableDocument>| {
            PrepareError::Validation(problems(&invalid.errors))
        };
        match document.to_executable(schema) {
            Ok(executable) => {
                guard(&executable)?;
                executable.validate(schema).map_err(invalid)
            }
            Err(partial) => {
                guard(&partial.partial)?;
                // Names the rest of what is wrong, too.
                document.to_executable_validate(schema).map_err(invalid)
            }
        }
    }

    fn allow_introspection(
        &self,
        document: &Valid<ExecutableDocument>,
        operation: &executable::Operation,
    ) -> Result<(), PrepareError> {
        let refused = |message: String| PrepareError::Validation(vec![Problem::new(message)]);
        if !self.settings.introspection {
            let message = "introspection is turned off on this router (`introspection: false`)";
            return Err(refused(message.to_owned()));
        }
        check_max_depth(document, operation)
            .map_err(|error| refused(error.message().to_string()))?;
        let max = self.schema.introspection_values_max;
        if !introspection_size::fits(&self.schema, document, &operation.selection_set, max) {
            return Err(refused(format!("introspection asks for more than {max} values")));
        }
        Ok(())
    }
}

fn introspects(operation: &plan::Operation) -> bool {
    operation.selection_set.items.iter().any(|item| {
        matches!(item, plan::Selection::Field(field) if field.target == FieldTarget::Introspection)
    })
}

/// About how many bytes a prepared operation takes.
fn weight(query: &[u8], operation: &plan::Operation, introspects: bool) -> u64 {
    /// Everything that does not grow, and the cache's own entry.
    const BASE: usize = 8_192;
    /// A selection in the normalised operation, its plan, and its shape.
    const SELECTION: usize = 512;
    /// A character in a syntax tree, which is kept for introspection.
    const CHARACTER: usize = 32;
    fn selections(set: &plan::SelectionSet) -> usize {
        let below = set.items.iter().map(|item| match item {
            plan::Selection::Field(field) => 1 + field.selection_set.as_ref().map_or(0, selections),
            plan::Selection::Fragment(fragment) => 1 + selections(&fragment.selection_set),
        });
        below.sum()
    }
    let text = query.len() * if introspects { CHARACTER } else { 1 };
    (BASE + text + SELECTION * selections(&operation.selection_set)) as u64
}

fn unknown_operation(document: &ExecutableDocument, name: Option<&str>) -> PrepareError {
    /// Names shown in the message.
    const SHOWN: usize = 10;
    /// Characters of a name.
    const NAME_MAX: usize = 100;
    let names = document.operations.named.keys().take(SHOWN);
    let names: Vec<_> = names.map(|name| shortened(name.to_string(), NAME_MAX)).collect();
    PrepareError::UnknownOperation(match name {
        Some(name) => {
            let name = shortened(name.to_owned(), NAME_MAX);
            let others = match &names[..] {
                [] => "its operation has no name".to_owned(),
                names => format!("it has: {}", names.join(", ")),
            };
            format!("the document has no operation named \"{name}\"; {others}")
        }
        None if document.operations.is_empty() => "the document has no operation".to_owned(),
        None => format!(
            "the document has several operations ({}); say which by `operationName`",
            names.join(", ")
        ),
    })
}
