//! Composition of the graph that serves: reading the schemas of the subgraphs, remembering them for the time when a
//! subgraph does not respond, and composing them. When this happens is decided by `graph_watch`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use compose::{Composition, SubgraphInput};
use composition_input::{CompositionConfig, SchemaSource, SubgraphConfig};
use config::diagnostic::{Diagnostic, SourceText};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use telemetry::Metric;

use crate::composition_findings;

/// The maximum number of schemas that are read at the same time.
const READS_AT_ONCE: usize = 16;

/// The composed supergraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ComposedGraph {
    /// The supergraph SDL.
    pub(crate) text: SourceText,
    /// Settings without effect, and hints that are probably mistakes.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// The schemas that are read before composition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadScope {
    /// All of them.
    Everything,
    /// Those in files. Servers are only asked for schemas that are not known yet.
    Files,
}

/// The state of composition, for metrics.
#[derive(Debug, Default)]
pub(crate) struct CompositionState {
    errors: AtomicU64,
    unreachable: AtomicU64,
}

/// The metrics of composition.
pub(crate) const COMPOSITION_METRICS: &[Metric<CompositionState>] = &[
    Metric::gauge(
        "starling_composition_errors",
        "Errors of the last composition; 0 if it succeeded or the graph is not composed here",
        |it| it.errors.load(Relaxed),
    ),
    Metric::gauge(
        "starling_composition_unreachable_subgraphs",
        "Subgraphs that did not return their schema when last asked, and are composed with an older one",
        |it| it.unreachable.load(Relaxed),
    ),
];

/// The schema of a subgraph that was read last, and the settings it was read with.
#[derive(Clone, Debug)]
struct KnownSchema {
    subgraph: SubgraphConfig,
    input: SubgraphInput,
}

/// Composes the subgraphs that a composition configuration names.
pub(crate) struct Composer {
    file: PathBuf,
    /// The configuration, if its file is valid.
    config: Option<CompositionConfig>,
    /// The schemas by the name of their subgraph.
    known: BTreeMap<String, KnownSchema>,
    /// The subgraphs that did not return their schema when last asked.
    unreachable: BTreeSet<String>,
    state: Arc<CompositionState>,
}

impl Composer {
    /// Creates a composer that has read nothing yet.
    pub(crate) fn new(file: PathBuf) -> Self {
        let (known, unreachable) = (BTreeMap::new(), BTreeSet::new());
        Self { file, config: None, known, unreachable, state: Arc::default() }
    }

    /// Returns the path of the composition configuration.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the state for metrics.
    pub(crate) fn state(&self) -> Arc<CompositionState> {
        Arc::clone(&self.state)
    }

    /// Reads the composition configuration. Must be called before [`Composer::compose`].
    ///
    /// # Errors
    /// All mistakes in the file.
    pub(crate) async fn read_config(&mut self) -> Result<(), Vec<Diagnostic>> {
        self.config = None;
        let file = self.file.clone();
        let config = run_blocking(move || CompositionConfig::read(&file)).await.and_then(|it| it);
        let config = config.inspect_err(|errors| self.count_errors(errors))?;
        let names = |name: &String| config.subgraphs.iter().any(|it| it.name == *name);
        self.known.retain(|name, _| names(name));
        self.unreachable.retain(names);
        self.config = Some(config);
        Ok(())
    }

    /// Iterates over the schema files, if the configuration is valid.
    pub(crate) fn schema_files(&self) -> impl Iterator<Item = &Path> {
        self.config.iter().flat_map(CompositionConfig::schema_files)
    }

    /// True if some schema is read from a server.
    pub(crate) fn is_polled(&self) -> bool {
        self.config.as_ref().is_some_and(CompositionConfig::has_introspection)
    }

    /// Reads the schemas and composes them.
    ///
    /// # Errors
    /// All schemas that cannot be read; else all errors of composition.
    pub(crate) async fn compose(
        &mut self,
        scope: ReadScope,
    ) -> Result<ComposedGraph, Vec<Diagnostic>> {
        let result = self.read_and_compose(scope).await;
        match &result {
            Ok(_) => self.state.errors.store(0, Relaxed),
            Err(errors) => self.count_errors(errors),
        }
        result
    }

    async fn read_and_compose(
        &mut self,
        scope: ReadScope,
    ) -> Result<ComposedGraph, Vec<Diagnostic>> {
        let Some(config) = self.config.clone() else { return Err(Vec::new()) };
        let inputs = self.read_schemas(&config, scope).await?;
        match run_blocking(move || compose::compose(&inputs)).await? {
            Composition::Success { supergraph_sdl, hints } => {
                let mut warnings = config.warnings;
                warnings.extend(composition_findings::warnings(&hints));
                let name = format!("the composition of {}", self.file.display());
                Ok(ComposedGraph { text: SourceText { name, text: supergraph_sdl }, warnings })
            }
            Composition::Failure { errors, .. } => Err(composition_findings::errors(&errors)),
        }
    }

    /// Asks the servers for their schemas. True if one returned another schema than before.
    pub(crate) async fn poll(&mut self) -> bool {
        let Some(config) = self.config.clone() else { return false };
        let asked = config.subgraphs.iter().filter(|it| is_introspected(it));
        let mut is_changed = false;
        for (subgraph, result) in read_all(&config, asked).await {
            match result {
                Ok(input) => {
                    self.mark_reachable(&subgraph.name);
                    let known = self.known.get(&subgraph.name);
                    is_changed |= known.is_none_or(|known| known.input != input);
                    self.remember(subgraph, input);
                }
                // A subgraph without an older schema has been reported by the composition that failed.
                Err(errors) if self.known.contains_key(&subgraph.name) => {
                    self.mark_unreachable(&subgraph.name, &errors);
                }
                Err(_) => {}
            }
        }
        is_changed
    }

    /// Reads all schemas that `scope` contains, and takes the others from memory. A server that does not return its
    /// schema keeps the last one.
    async fn read_schemas(
        &mut self,
        config: &CompositionConfig,
        scope: ReadScope,
    ) -> Result<Vec<SubgraphInput>, Vec<Diagnostic>> {
        let read = config.subgraphs.iter().filter(|subgraph| {
            let is_needed = scope == ReadScope::Everything || !is_introspected(subgraph);
            is_needed || self.known_schema(subgraph).is_none()
        });
        let mut problems = Vec::new();
        for (subgraph, result) in read_all(config, read).await {
            match result {
                Ok(input) => {
                    self.mark_reachable(&subgraph.name);
                    self.remember(subgraph, input);
                }
                Err(errors)
                    if is_introspected(subgraph) && self.known_schema(subgraph).is_some() =>
                {
                    self.mark_unreachable(&subgraph.name, &errors);
                }
                Err(errors) => problems.extend(errors),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(config.subgraphs.iter().filter_map(|it| self.known_schema(it)).collect())
    }

    /// Returns the schema that was read last, with the URL that is configured now.
    fn known_schema(&self, subgraph: &SubgraphConfig) -> Option<SubgraphInput> {
        let known = self.known.get(&subgraph.name)?;
        if known.subgraph.schema != subgraph.schema {
            return None;
        }
        let mut input = known.input.clone();
        if known.subgraph.routing_url != subgraph.routing_url {
            input.url = subgraph.routing_url.clone()?;
        }
        Some(input)
    }

    fn remember(&mut self, subgraph: &SubgraphConfig, input: SubgraphInput) {
        let known = KnownSchema { subgraph: subgraph.clone(), input };
        self.known.insert(subgraph.name.clone(), known);
    }

    fn mark_reachable(&mut self, name: &str) {
        if self.unreachable.remove(name) {
            tracing::info!(subgraph = name, "the subgraph returns its schema again");
            self.count_unreachable();
        }
    }

    /// Logs the first failure of an outage.
    fn mark_unreachable(&mut self, name: &str, errors: &[Diagnostic]) {
        if self.unreachable.insert(name.to_owned()) {
            let error = errors.first().map(ToString::to_string);
            tracing::warn!(
                subgraph = name,
                error,
                "the subgraph does not return its schema; the last one stays in use"
            );
            self.count_unreachable();
        }
    }

    fn count_unreachable(&self) {
        self.state.unreachable.store(self.unreachable.len() as u64, Relaxed);
    }

    fn count_errors(&self, errors: &[Diagnostic]) {
        self.state.errors.store(errors.len() as u64, Relaxed);
    }
}

fn is_introspected(subgraph: &SubgraphConfig) -> bool {
    matches!(subgraph.schema, SchemaSource::Introspection { .. })
}

/// Reads the schemas of some subgraphs of `config`, one result for each: one failure does not hide the others.
async fn read_all<'a>(
    config: &CompositionConfig,
    subgraphs: impl Iterator<Item = &'a SubgraphConfig>,
) -> Vec<(&'a SubgraphConfig, Result<SubgraphInput, Vec<Diagnostic>>)> {
    let (mut asked, mut reads) = (Vec::new(), Vec::new());
    for subgraph in subgraphs {
        let mut alone = config.clone();
        alone.subgraphs = vec![subgraph.clone()];
        reads.push(read_schema(alone).boxed());
        asked.push(subgraph);
    }
    let results: Vec<_> = stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
    asked.into_iter().zip(results).collect()
}

/// Reads the schema of the only subgraph of `config`.
async fn read_schema(config: CompositionConfig) -> Result<SubgraphInput, Vec<Diagnostic>> {
    match composition_input::load(&config).await {
        Ok(mut inputs) => inputs.pop().ok_or_else(Vec::new),
        Err(errors) => Err(errors.into_iter().map(|it| *it.diagnostic).collect()),
    }
}

/// Runs `work` on the blocking pool.
///
/// # Errors
/// A panic of `work`, as a message.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Vec<Diagnostic>> {
    tokio::task::spawn_blocking(work).await.map_err(|panic| {
        let message = format!("composition failed because of a defect: {panic}");
        vec![Diagnostic::error("internal", message).help("please report this")]
    })
}
