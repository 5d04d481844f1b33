//! Composition of the graph that serves: reading the schemas of the subgraphs, remembering them for the time when a
//! subgraph does not respond, and composing them. When this happens is decided by `graph_watch`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use compose::{Composition, SubgraphInput};
use composition_input::{CompositionConfig, LoadError, SchemaSource, SubgraphConfig, load_each};
use config::diagnostic::{Diagnostic, SourceText};
use telemetry::Metric;

use crate::composition_findings;

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
pub(crate) enum ReadScope {
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

/// The place that names the subgraphs.
#[derive(Clone, Debug)]
pub(crate) enum SubgraphList {
    /// A composition configuration.
    File(PathBuf),
    /// A folder with one schema file for each subgraph.
    Folder {
        /// The path.
        folder: PathBuf,
        /// The URLs of the subgraphs by name.
        urls: BTreeMap<String, String>,
    },
}

impl SubgraphList {
    /// Returns the path of the file or the folder.
    fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Folder { folder: path, .. } => path,
        }
    }

    /// Reads the list. Blocks.
    fn read(&self) -> Result<CompositionConfig, Vec<Diagnostic>> {
        match self {
            Self::File(file) => CompositionConfig::read(file),
            Self::Folder { folder, urls } => CompositionConfig::read_folder(folder, urls),
        }
    }
}

/// Composes the subgraphs that a composition configuration or a folder names.
pub(crate) struct Composer {
    list: SubgraphList,
    /// The subgraphs of the list, if it is valid.
    config: Option<CompositionConfig>,
    /// The schemas by the name of their subgraph.
    known: BTreeMap<String, KnownSchema>,
    /// The subgraphs that did not return their schema when last asked.
    unreachable: BTreeSet<String>,
    state: Arc<CompositionState>,
}

impl Composer {
    /// Creates a composer that has read nothing yet.
    pub(crate) fn new(list: SubgraphList) -> Self {
        let (known, unreachable) = (BTreeMap::new(), BTreeSet::new());
        Self { list, config: None, known, unreachable, state: Arc::default() }
    }

    /// Returns the place that names the subgraphs.
    pub(crate) fn list(&self) -> &SubgraphList {
        &self.list
    }

    /// Returns the state for metrics.
    pub(crate) fn state(&self) -> Arc<CompositionState> {
        Arc::clone(&self.state)
    }

    /// Reads the composition configuration or the folder. Must be called before [`Composer::compose`].
    ///
    /// # Errors
    /// All mistakes there.
    pub(crate) async fn read_config(&mut self) -> Result<(), Vec<Diagnostic>> {
        self.config = None;
        let list = self.list.clone();
        let config = run_blocking(move || list.read()).await.and_then(|it| it);
        let config = config.inspect_err(|errors| self.count_errors(errors))?;
        let names = |name: &String| config.subgraphs.iter().any(|it| it.name == *name);
        self.known.retain(|name, _| names(name));
        self.unreachable.retain(names);
        self.count_unreachable();
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

    /// Reads the schemas that `scope` contains, and takes the others from memory.
    ///
    /// # Cancellation
    /// Nothing has changed if the future is dropped before it is ready.
    ///
    /// # Errors
    /// All schemas that cannot be read.
    pub(crate) async fn read_schemas(
        &mut self,
        scope: ReadScope,
    ) -> Result<Vec<SubgraphInput>, Vec<Diagnostic>> {
        let Some(config) = self.config.clone() else { return Err(Vec::new()) };
        let inputs = self.read_schemas_of(&config, scope).await;
        inputs.inspect_err(|errors| self.count_errors(errors))
    }

    /// Composes the schemas that were read.
    ///
    /// # Errors
    /// All errors of composition.
    pub(crate) async fn compose(
        &mut self,
        inputs: Vec<SubgraphInput>,
    ) -> Result<ComposedGraph, Vec<Diagnostic>> {
        let name = format!("the composition of {}", self.list.path().display());
        let mut warnings: Vec<_> =
            self.config.iter().flat_map(|config| config.warnings.clone()).collect();
        // Findings are drawn there too: there may be thousands.
        let composition = move || match compose::compose(&inputs) {
            Composition::Success { supergraph_sdl, hints } => {
                warnings.extend(composition_findings::warnings(&hints));
                Ok(ComposedGraph { text: SourceText { name, text: supergraph_sdl }, warnings })
            }
            Composition::Failure { errors, .. } => Err(composition_findings::errors(&errors)),
        };
        let result = run_blocking(composition).await.and_then(|it| it);
        match &result {
            Ok(_) => self.state.errors.store(0, Relaxed),
            Err(errors) => self.count_errors(errors),
        }
        result
    }

    /// Asks the servers for their schemas. True if one returned another schema than the one that composition would use.
    ///
    /// # Cancellation
    /// Nothing has changed if the future is dropped before it is ready.
    pub(crate) async fn poll(&mut self) -> bool {
        let Some(config) = self.config.clone() else { return false };
        let asked: Vec<_> = config.subgraphs.iter().filter(|it| is_introspected(it)).collect();
        let results = load_each(&config, &asked).await;
        let mut is_changed = false;
        for (subgraph, result) in asked.into_iter().zip(results) {
            match result {
                Ok(input) => {
                    self.mark_reachable(&subgraph.name);
                    // A schema that was read with other settings does not count: the composition with these settings
                    // has failed, even if the schema is the same.
                    is_changed |= self.known_schema(subgraph).is_none_or(|known| known != input);
                    self.remember(subgraph, input);
                }
                // A subgraph without an older schema has been reported by the composition that failed.
                Err(error) if self.known.contains_key(&subgraph.name) => {
                    self.mark_unreachable(&error);
                }
                Err(_) => {}
            }
        }
        is_changed
    }

    /// Reads schemas. A server that does not return its schema keeps the last one.
    async fn read_schemas_of(
        &mut self,
        config: &CompositionConfig,
        scope: ReadScope,
    ) -> Result<Vec<SubgraphInput>, Vec<Diagnostic>> {
        let read = config.subgraphs.iter().filter(|subgraph| {
            let is_needed = scope == ReadScope::Everything || !is_introspected(subgraph);
            is_needed || self.known_schema(subgraph).is_none()
        });
        let read: Vec<_> = read.collect();
        let results = load_each(config, &read).await;
        let mut problems = Vec::new();
        for (subgraph, result) in read.into_iter().zip(results) {
            match result {
                Ok(input) => {
                    self.mark_reachable(&subgraph.name);
                    self.remember(subgraph, input);
                }
                Err(error)
                    if is_introspected(subgraph) && self.known_schema(subgraph).is_some() =>
                {
                    self.mark_unreachable(&error);
                }
                Err(error) => problems.push(*error.diagnostic),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(config.subgraphs.iter().filter_map(|it| self.known_schema(it)).collect())
    }

    /// Returns the schema that was read last, with the URL and the subscription settings that are configured now.
    fn known_schema(&self, subgraph: &SubgraphConfig) -> Option<SubgraphInput> {
        let known = self.known.get(&subgraph.name)?;
        if known.subgraph.schema != subgraph.schema {
            return None;
        }
        let mut input = known.input.clone();
        if known.subgraph.routing_url != subgraph.routing_url {
            input.url = subgraph.routing_url.clone()?;
        }
        input.subscription.clone_from(&subgraph.subscription);
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
    fn mark_unreachable(&mut self, error: &LoadError) {
        if self.unreachable.insert(error.subgraph.clone()) {
            tracing::warn!(
                subgraph = error.subgraph,
                error = %error.diagnostic,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use config::diagnostic::Diagnostic;

    use super::{ComposedGraph, Composer, ReadScope, SubgraphList};
    use crate::schema_server::{Behaviour, SchemaServer};

    async fn compose(
        composer: &mut Composer,
        scope: ReadScope,
    ) -> Result<ComposedGraph, Vec<Diagnostic>> {
        let inputs = composer.read_schemas(scope).await?;
        composer.compose(inputs).await
    }

    #[tokio::test]
    async fn a_schema_that_new_settings_return_again_is_composed() {
        let server = SchemaServer::start().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supergraph.yaml");
        let url = &server.url;
        let write = |token: &str| {
            let source = format!("{{url: \"{url}\", headers: {{authorization: {token}}}}}");
            let subgraph = format!("{{name: a, routing_url: \"{url}\", introspection: {source}}}");
            std::fs::write(&file, format!("subgraphs: [{subgraph}]\n")).unwrap();
        };
        write("old");
        let mut composer = Composer::new(SubgraphList::File(file.clone()));
        composer.read_config().await.unwrap();
        let first = compose(&mut composer, ReadScope::Everything).await.unwrap();
        assert!(!composer.poll().await);

        server.set(Behaviour::Refuse);
        write("new");
        composer.read_config().await.unwrap();
        compose(&mut composer, ReadScope::Files).await.unwrap_err();
        assert!(!composer.poll().await);
        assert_eq!(composer.state.errors.load(Relaxed), 1);

        server.set(Behaviour::Serve);
        assert!(composer.poll().await);
        assert_eq!(compose(&mut composer, ReadScope::Files).await.unwrap(), first);
        assert_eq!(composer.state.errors.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn new_subscription_settings_need_no_new_schema() {
        let server = SchemaServer::start().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supergraph.yaml");
        let url = &server.url;
        let write = |protocol: &str| {
            let subgraph = format!(
                "a: {{schema: {{subgraph_url: \"{url}\"}}, subscription: {{protocol: {protocol}}}}}"
            );
            std::fs::write(&file, format!("subgraphs: {{{subgraph}}}\n")).unwrap();
        };
        let directive =
            |protocol: &str| format!("@starling__subscription(protocol: \"{protocol}\")");
        write("ws");
        let mut composer = Composer::new(SubgraphList::File(file.clone()));
        composer.read_config().await.unwrap();
        let first = compose(&mut composer, ReadScope::Everything).await.unwrap();
        assert!(first.text.text.contains(&directive("auto")), "{}", first.text.text);

        server.set(Behaviour::Refuse);
        write("multipart");
        composer.read_config().await.unwrap();
        let second = compose(&mut composer, ReadScope::Files).await.unwrap();
        assert!(second.text.text.contains(&directive("multipart")), "{}", second.text.text);
    }

    #[tokio::test]
    async fn a_subgraph_that_is_removed_is_not_unreachable() {
        let server = SchemaServer::start().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supergraph.yaml");
        let url = &server.url;
        let write = |subgraph: &str| {
            std::fs::write(&file, format!("subgraphs: {{{subgraph}}}\n")).unwrap();
        };
        write(&format!("a: {{schema: {{subgraph_url: \"{url}\"}}}}"));
        let mut composer = Composer::new(SubgraphList::File(file.clone()));
        composer.read_config().await.unwrap();
        compose(&mut composer, ReadScope::Everything).await.unwrap();
        server.set(Behaviour::Refuse);
        assert!(!composer.poll().await);
        assert_eq!(composer.state.unreachable.load(Relaxed), 1);

        write(&format!(
            "b: {{routing_url: \"{url}\", schema: {{sdl: \"type Query {{a: Int}}\"}}}}"
        ));
        composer.read_config().await.unwrap();
        assert_eq!(composer.state.unreachable.load(Relaxed), 0);
    }
}
