//! A loaded graph: everything that hangs on one supergraph and one configuration. A reload makes a
//! new one and leaves this one to the requests that hold it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use events::Providers;
use execute::{Generation, Subgraph};
use graph::{SchemaError, SchemaErrors, SubgraphKind, Supergraph};
use hub::{Bindings, EventPublisher};
use net::TlsClient;
use prepare::{Limits, PrepareSettings, Preparer};
use sha2::{Digest, Sha256};
use upstream::{Upstream, UpstreamSettings};

use crate::config::Config;
use crate::diagnostic::{Diagnostic, SourceText, Span};
use crate::forwarding::Forwarding;

/// One generation, ready to serve.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The graph and who answers for it.
    pub(crate) generation: Arc<Generation>,
    /// Its operations.
    pub(crate) preparer: Preparer,
    /// Its root fields bound to topics.
    pub(crate) bindings: Arc<Bindings>,
    /// Which headers go along.
    pub(crate) forwarding: Forwarding,
    /// The subgraphs that have a server.
    pub(crate) upstreams: Vec<Arc<Upstream>>,
}

/// Where a supergraph comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SupergraphSource {
    /// A file, watched.
    File(PathBuf),
    /// Text that never changes, with a name for messages.
    Text {
        /// Such as `demo.graphql`.
        name: String,
        /// Supergraph SDL.
        sdl: String,
    },
}

impl SupergraphSource {
    /// The file to watch.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text { .. } => None,
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// One diagnostic that names the file and says why it cannot be read.
    pub fn read(&self) -> Result<SourceText, Box<Diagnostic>> {
        match self {
            Self::Text { name, sdl } => Ok(SourceText { name: name.clone(), text: sdl.clone() }),
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(SourceText { name: path.display().to_string(), text }),
                Err(error) => Err(Box::new(
                    Diagnostic::error(
                        "supergraph",
                        format!("cannot read the supergraph {}: {error}", path.display()),
                    )
                    .help("name it by `supergraph.file` in the configuration or by --supergraph"),
                )),
            },
        }
    }
}

/// Reads a supergraph and checks everything that needs no server: its text, the configuration's
/// mentions of its subgraphs, its topics and their providers.
///
/// # Errors
/// All that is wrong, with places in the text.
pub fn read_graph(
    config: &Config,
    source: &Arc<SourceText>,
) -> Result<Supergraph, Vec<Diagnostic>> {
    let graph = Supergraph::from_sdl(&source.text, &source.name)
        .map_err(|errors| schema_diagnostics(errors, source))?;
    let urls: HashMap<String, String> = config
        .subgraphs
        .iter()
        .filter_map(|(name, settings)| Some((name.clone(), settings.url.clone()?)))
        .collect();
    graph.with_urls(&urls).map_err(|errors| schema_diagnostics(errors, source))
}

fn schema_diagnostics(errors: SchemaErrors, source: &Arc<SourceText>) -> Vec<Diagnostic> {
    let diagnostic = |error: SchemaError| {
        let mut diagnostic = Diagnostic::error("supergraph", error.message).in_source(source);
        if let Some(span) = error.span {
            diagnostic = diagnostic.at(Span::of_bytes(&source.text, span.start..span.end), "");
        }
        match error.help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        }
    };
    errors.0.into_iter().map(diagnostic).collect()
}

/// Loads a generation. Counters of subgraphs that the `previous` one had go on.
///
/// # Errors
/// As [`read_graph`], [`bind`] and [`upstreams`].
pub(crate) fn load(
    config: &Config,
    source: &Arc<SourceText>,
    providers: &Arc<Providers>,
    number: u64,
    previous: Option<&Loaded>,
) -> Result<Loaded, Vec<Diagnostic>> {
    let graph = Arc::new(read_graph(config, source)?);
    let bindings = bind(&graph, source, providers)?;
    let upstreams = upstreams(config, &graph, previous)?;
    let mut subgraphs: Vec<Arc<dyn Subgraph>> = Vec::with_capacity(upstreams.len());
    for upstream in &upstreams {
        subgraphs.push(match upstream {
            Some(upstream) => Arc::clone(upstream) as Arc<dyn Subgraph>,
            None => Arc::new(upstream::NoServer),
        });
    }
    warn_of_unknown_subgraphs(config, &graph);
    let publisher = EventPublisher::new(Arc::clone(&bindings), config.events.publish_timeout);
    let graph_id = identity(&source.text);
    let settings = PrepareSettings {
        limits: Limits::from(&config.limits),
        introspection: config.introspection,
    };
    Ok(Loaded {
        preparer: Preparer::new(Arc::clone(&graph), graph_id, settings),
        forwarding: Forwarding::new(&config.headers, &graph),
        bindings,
        upstreams: upstreams.into_iter().flatten().collect(),
        generation: Arc::new(Generation {
            number,
            graph_id,
            graph,
            subgraphs,
            publisher: Arc::new(publisher),
        }),
    })
}

/// Clients of all subgraphs, in their order; none for event subgraphs. Nothing is connected yet.
///
/// # Errors
/// Every URL that cannot be used, and certificates of the system that cannot be read.
pub(crate) fn upstreams(
    config: &Config,
    graph: &Supergraph,
    previous: Option<&Loaded>,
) -> Result<Vec<Option<Arc<Upstream>>>, Vec<Diagnostic>> {
    let (mut upstreams, mut problems) = (Vec::new(), Vec::new());
    let mut roots = None;
    for subgraph in &graph.subgraphs {
        if subgraph.kind == SubgraphKind::Events {
            upstreams.push(None);
            continue;
        }
        let traffic = config.traffic.of(&subgraph.name);
        let settings = UpstreamSettings {
            timeout: traffic.timeout,
            max_response_size: traffic.max_response_size as u64,
            max_connections: traffic.max_connections as usize,
            ..UpstreamSettings::default()
        };
        let tls = tls_for(&subgraph.url, &mut roots)?;
        let known = previous.into_iter().flat_map(|it| &it.upstreams);
        let known = known.into_iter().find(|it| *it.name() == *subgraph.name);
        match Upstream::new(subgraph.name.clone(), &subgraph.url, settings, tls) {
            Ok(upstream) => upstreams.push(Some(Arc::new(match known {
                Some(known) => upstream.with_stats(Arc::clone(known.stats())),
                None => upstream,
            }))),
            Err(error) => problems.push(
                Diagnostic::error("subgraph-url", format!("subgraph `{}`: {error}", subgraph.name))
                    .help(format!("set `subgraphs.{}.url` to an http or https URL", subgraph.name)),
            ),
        }
    }
    if problems.is_empty() { Ok(upstreams) } else { Err(problems) }
}

/// Settings that nobody obeys: a typing mistake, or a subgraph that the graph has no longer. `starling check`
/// shows where they stand.
fn warn_of_unknown_subgraphs(config: &Config, graph: &Supergraph) {
    let sections = [
        ("subgraphs", config.subgraphs.keys().collect::<Vec<_>>()),
        ("headers.subgraphs", config.headers.subgraphs.keys().collect()),
        ("traffic.subgraphs", config.traffic.subgraphs.keys().collect()),
    ];
    for (section, names) in sections {
        for name in names {
            if !graph.subgraphs.iter().any(|subgraph| *subgraph.name == **name) {
                tracing::warn!(
                    setting = format!("{section}.{name}"),
                    "a setting has no effect: the supergraph has no such subgraph"
                );
            }
        }
    }
}

/// A TLS client for https URLs. The system's root certificates are read once, and only if needed.
fn tls_for(url: &str, roots: &mut Option<TlsClient>) -> Result<Option<TlsClient>, Vec<Diagnostic>> {
    if !url.starts_with("https:") {
        return Ok(None);
    }
    if roots.is_none() {
        let client = TlsClient::with_native_roots(&[b"http/1.1"])
            .map_err(|error| vec![Diagnostic::error("tls", error.to_string())])?;
        *roots = Some(client);
    }
    Ok(roots.clone())
}

/// Binds the root fields of event subgraphs.
///
/// # Errors
/// Every field that cannot be bound.
pub(crate) fn bind(
    graph: &Supergraph,
    source: &Arc<SourceText>,
    providers: &Arc<Providers>,
) -> Result<Arc<Bindings>, Vec<Diagnostic>> {
    let bindings = Bindings::load(graph, providers).map_err(|errors| {
        let diagnostic = |error: &hub::BindingError| {
            Diagnostic::error("events", error.to_string()).in_source(source)
        };
        errors.iter().map(diagnostic).collect::<Vec<_>>()
    })?;
    Ok(Arc::new(bindings))
}

/// Identity of a supergraph: equal texts, equal graphs.
pub(crate) fn identity(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    let mut head = [0; 8];
    head.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(head)
}
