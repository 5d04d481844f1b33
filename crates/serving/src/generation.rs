//! A loaded graph: everything that depends on one supergraph and one configuration. A reload creates a new one, and
//! requests in flight keep this one.

use std::collections::HashMap;
use std::sync::Arc;

use admission::memory::MemoryAccount;
use bindings::{Bindings, EventPublisher};
use config::diagnostic::{Diagnostic, SourceText, Span};
use config::{
    AuthorizationErrors, Config, SubgraphErrorRule, SubscriptionProtocol, hide_url_secrets,
};
use events::Providers;
use execute::{
    ClaimPath, DeniedPlaces, Disclosure, ErrorRule, Generation, MessageCondition, MessageRule,
    ResponseHeaders, Subgraph,
};
use graph::{SchemaError, SchemaErrors, SubgraphId, SubgraphKind, Supergraph};
use policies::PolicyDecider;
use prepare::Preparer;
use redis_store::Stores;
use sha2::{Digest, Sha256};
use subscription_client::CallbackEndpoint;
use telemetry::Metric;
use upstream::Upstream;

use crate::admission::Admission;
use crate::caching::GenerationCaches;
use crate::cost_control::CostControl;
use crate::expression_stats::ExpressionStats;
use crate::field_access::FieldAccess;
use crate::forwarding::Forwarding;
use crate::known_operations::DocumentExceptions;
use crate::memory::memory_account;
use crate::operation_condition::OperationCondition;
use crate::overload::OverloadProtection;
use crate::overload::bulkheads::GraphBulkheads;
use crate::policy_loading::load_policies;
use crate::prepare_settings::{label_shares, prepare_settings};
use crate::response_forwarding::ResponseForwarding;
use crate::subgraph_streams::{SubgraphStreams, has_queries, load_streams};
use crate::subscription_endpoint::{ResolvedEndpoint, resolve_endpoints};
use crate::trace_ratios::TraceRatios;
use crate::upstreams::{SubgraphCertificates, settings_of};
use crate::websocket_subgraph::WebSocketSubgraph;

/// One generation, ready to serve.
#[derive(Debug)]
pub struct ServingGraph {
    /// The graph with its subgraphs and its publisher.
    pub generation: Arc<Generation>,
    /// The prepared operations.
    pub preparer: Preparer,
    /// The decider of policies, if one is configured. All graphs of the process share it.
    pub policies: Option<Arc<PolicyDecider>>,
    /// The rules of access to fields and types, if the graph has any.
    pub access: Option<FieldAccess>,
    /// The maxima of costs, if costs are estimated.
    pub cost: Option<CostControl>,
    /// The root fields bound to topics.
    pub bindings: Arc<Bindings>,
    /// The claims that cursors are bound to.
    pub cursor_claims: Vec<ClaimPath>,
    /// All claims that are read for any operation, in order. A live connection keeps no others.
    pub read_claims: Arc<[ClaimPath]>,
    /// The rules for forwarded headers.
    pub forwarding: Forwarding,
    /// The conditions and limits that operations must pass; `None` if the configuration has none.
    pub admission: Option<Admission>,
    /// The shares of traces that conditions choose; `None` if the configuration has none.
    pub trace_ratios: Option<TraceRatios>,
    /// The condition of traces in responses; `None` if the configuration has none.
    pub response_traces: Option<OperationCondition>,
    /// The condition that selects requests for the flight recorder; `None` if the configuration has none.
    pub recorded: Option<OperationCondition>,
    /// The overload protection, which all graphs of the process share; `None` if it is turned off.
    pub overload: Option<Arc<OverloadProtection>>,
    /// The memory of the process, which all graphs of the process share.
    pub memory: Arc<MemoryAccount>,
    /// The shares of subgraphs in the work in flight; `None` without overload protection.
    pub bulkheads: Option<GraphBulkheads>,
    /// The requests that may send operations that are not persisted documents.
    pub document_exceptions: DocumentExceptions,
    /// The counters of expressions, which all graphs of the process share.
    pub expressions: Arc<ExpressionStats>,
    /// The caches; `None` if nothing is stored.
    pub caching: Option<GenerationCaches>,
    /// The subgraphs that have a server.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The subgraphs that serve subscriptions, by [`SubgraphId`].
    pub streams: Vec<Option<SubgraphStreams>>,
    /// The certificates for connections to subgraphs.
    pub certificates: SubgraphCertificates,
}

/// The metrics of the graph that serves.
pub const GRAPH_METRICS: &[Metric<ServingGraph>] = &[
    Metric::gauge("starling_graph_generation", "Number of the graph that serves", |it| {
        it.generation.number
    }),
    Metric::gauges(
        "starling_graph_info",
        "The id of the graph that serves, as a label: the hash of the supergraph, and its number; always 1",
        |it, samples| samples.add_labelled(("id", &*it.generation.id()), 1),
    ),
];

/// Reads a supergraph and applies the URLs of the configuration to its subgraphs.
///
/// # Errors
/// All mistakes, with their places in the text.
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
    let shown = Arc::new(hide_url_secrets(source));
    let diagnostic = |error: SchemaError| {
        let mut diagnostic = Diagnostic::error("supergraph", error.message).in_source(&shown);
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

/// The inputs of loading a graph, except for its text.
#[derive(Clone, Copy, Debug)]
pub struct GraphMaterial<'a> {
    /// The configuration of the graph.
    pub config: &'a Config,
    /// The name of a further graph; `None` for the graph of `supergraph`.
    pub name: Option<&'a str>,
    /// The brokers.
    pub providers: &'a Arc<Providers>,
    /// The stores that several routers share.
    pub stores: &'a Stores,
    /// The endpoint for callbacks of subgraphs, if one is configured.
    pub callbacks: Option<&'a Arc<CallbackEndpoint>>,
}

/// Loads a generation. Its `number` is unique in the process and greater than the numbers before. Subgraphs of the
/// `previous` generation keep their counters, and their connections if their settings are the same. For the first
/// generation of a further graph, `previous` is a generation of another graph. With several graphs, only subgraphs with
/// the same server keep their state, because one name may mean several servers.
///
/// # Errors
/// The same as for [`read_graph`], [`bind`], [`upstreams`], [`resolve_endpoints`] and [`load_policies`].
pub fn load(
    material: GraphMaterial<'_>,
    source: &Arc<SourceText>,
    number: u64,
    previous: Option<&ServingGraph>,
) -> Result<ServingGraph, Vec<Diagnostic>> {
    let GraphMaterial { config, name, providers, stores, callbacks } = material;
    let graph = Arc::new(read_graph(config, source)?);
    let bindings = bind(&graph, source, providers)?;
    let certificates = SubgraphCertificates::continuing(previous.map(|it| &it.certificates));
    let memory = match previous {
        Some(previous) => Arc::clone(&previous.memory),
        None => memory_account(config.limits.memory),
    };
    let upstreams = upstreams(config, &graph, &certificates, &memory, previous)?;
    let endpoints = resolve_endpoints(config, &graph)?;
    let known = previous.map_or(&[][..], |it| &it.streams);
    let streams = load_streams(config, &graph, &endpoints, &certificates, callbacks, known)?;
    let expressions = previous.map(|it| Arc::clone(&it.expressions)).unwrap_or_default();
    let overload = match previous {
        Some(previous) => previous.overload.clone(),
        None => OverloadProtection::new(config, &expressions).map_err(|error| vec![*error])?,
    };
    let known = previous.and_then(|it| it.bulkheads.as_ref());
    let is_known = |id: SubgraphId| {
        // Those of events have no client, and nothing is known of them.
        let Some(client) = &upstreams[usize::from(id.0)] else { return true };
        let mut clients = previous.into_iter().flat_map(|it| &it.upstreams);
        clients.any(|it| std::ptr::eq(it.stats(), client.stats()))
    };
    let protection = overload.as_ref().filter(|_| config.admission.enabled);
    let bulkheads = protection
        .map(|it| GraphBulkheads::new(&config.traffic, &graph, it.work(), known, is_known));
    let mut subgraphs: Vec<Arc<dyn Subgraph>> = Vec::with_capacity(upstreams.len());
    for (index, (upstream, streams)) in upstreams.iter().zip(&streams).enumerate() {
        let Some(upstream) = upstream else {
            subgraphs.push(Arc::new(upstream::UnreachableSubgraph));
            continue;
        };
        let streams = streams.as_ref().filter(|_| has_queries(config, upstream.name()));
        let client: Arc<dyn Subgraph> = match streams {
            Some(streams) => Arc::new(WebSocketSubgraph {
                client: Arc::clone(&streams.client),
                upstream: Arc::clone(upstream),
                timeout: config.traffic.of(upstream.name()).timeout,
            }),
            None => Arc::clone(upstream) as Arc<dyn Subgraph>,
        };
        subgraphs.push(match &bulkheads {
            Some(bulkheads) => bulkheads.measured(SubgraphId(index as u16), client),
            None => client,
        });
    }
    // A setting may be for another one of several graphs.
    if config.graphs.is_empty() {
        warn_of_unknown_subgraphs(config, &graph);
        warn_of_unknown_labels(config, &graph);
        warn_of_unused_callback(config, &endpoints);
    }
    let publisher = EventPublisher::new(
        Arc::clone(&bindings),
        config.events.publish_timeout,
        config.events.max_event_size,
    );
    let graph_id = identity(&source.text);
    let admission = Admission::new(config, stores, previous.and_then(|it| it.admission.as_ref()))
        .map_err(|error| vec![*error])?;
    let trace_ratios = TraceRatios::new(config).map_err(|error| vec![*error])?;
    let response_traces =
        OperationCondition::of_response_traces(config).map_err(|error| vec![*error])?;
    let recorded = OperationCondition::of_recorder(config).map_err(|error| vec![*error])?;
    let cost = CostControl::new(config, &graph, previous.and_then(|it| it.cost.as_ref()));
    let policies = match previous {
        Some(previous) => previous.policies.clone(),
        None => load_policies(config)?.map(Arc::new),
    };
    let caching = GenerationCaches::new(
        config,
        (&graph, name),
        number,
        stores,
        previous.and_then(|it| it.caching.as_ref()),
    );
    let caching = caching.map_err(|message| vec![Diagnostic::error("cache", message)])?;
    let mut settings = prepare_settings(config, &graph);
    settings.cost = cost.as_ref().map(|it| it.settings().clone());
    let forwarding = Forwarding::new(config, &graph).map_err(|error| vec![*error])?;
    let access = FieldAccess::new(config, &graph, policies.as_ref());
    let document_exceptions = DocumentExceptions::new(config).map_err(|error| vec![*error])?;
    let cursor_claims = config.cursor.claims();
    let mut read_claims: Vec<ClaimPath> = bindings.all_claims().cloned().collect();
    read_claims.extend_from_slice(&cursor_claims);
    read_claims.extend_from_slice(forwarding.claims());
    // Also if no field needs a scope, so that the first one that does ends no connection at the reload.
    read_claims.extend(config.authorization.scope_claims());
    read_claims.extend(admission.iter().flat_map(Admission::claims).cloned());
    read_claims.extend(trace_ratios.iter().flat_map(TraceRatios::claims).cloned());
    let selecting = response_traces.iter().chain(&recorded);
    read_claims.extend(selecting.flat_map(OperationCondition::claims).cloned());
    read_claims.extend(overload.iter().flat_map(|it| it.claims()).cloned());
    read_claims.extend(document_exceptions.claims().iter().cloned());
    read_claims.extend(caching.iter().flat_map(GenerationCaches::private_claims).cloned());
    read_claims.extend(policies.iter().flat_map(|it| it.claims()));
    read_claims.extend(access_log_claims(config));
    read_claims.extend(streams.iter().flatten().flat_map(SubgraphStreams::claims).cloned());
    read_claims.sort_unstable();
    read_claims.dedup();
    Ok(ServingGraph {
        preparer: Preparer::new(Arc::clone(&graph), graph_id, settings)
            .with_override_labels(&label_shares(config)),
        access,
        policies,
        cost,
        cursor_claims,
        read_claims: read_claims.into(),
        forwarding,
        bindings,
        upstreams: upstreams.into_iter().flatten().collect(),
        streams,
        certificates,
        generation: Arc::new(Generation {
            number,
            graph_id,
            disclosure: disclosure(config, &graph, &expressions).map_err(|error| vec![*error])?,
            caches: caching.as_ref().map(|it| Arc::clone(&it.subgraphs)),
            graph,
            subgraphs,
            publisher: Arc::new(publisher),
            memory: Arc::clone(&memory),
        }),
        memory,
        admission,
        trace_ratios,
        response_traces,
        recorded,
        overload,
        bulkheads,
        document_exceptions,
        expressions,
        caching,
    })
}

/// Creates the clients of all subgraphs, in the order of the graph; `None` for event subgraphs. Connects to nothing
/// yet.
///
/// # Errors
/// Every URL that cannot be used, and certificates that cannot be read.
pub fn upstreams(
    config: &Config,
    graph: &Supergraph,
    certificates: &SubgraphCertificates,
    memory: &Arc<MemoryAccount>,
    previous: Option<&ServingGraph>,
) -> Result<Vec<Option<Arc<Upstream>>>, Vec<Diagnostic>> {
    let (mut upstreams, mut problems) = (Vec::new(), Vec::new());
    for subgraph in &graph.subgraphs {
        if subgraph.kind == SubgraphKind::Events {
            upstreams.push(None);
            continue;
        }
        let name = &*subgraph.name;
        let traffic = config.traffic.of(name);
        let tls = match certificates.client_of(config, name, &subgraph.url, traffic.protocol) {
            Ok(tls) => tls,
            Err(diagnostic) => {
                problems.push(*diagnostic);
                continue;
            }
        };
        let settings = match settings_of(name, &traffic, config.subgraphs.get(name)) {
            Ok(settings) => settings,
            Err(diagnostic) => {
                problems.push(*diagnostic);
                continue;
            }
        };
        let known = previous.into_iter().flat_map(|it| &it.upstreams);
        let known = known.into_iter().find(|it| it.name() == name);
        match Upstream::new(name, &subgraph.url, settings, tls) {
            Ok(upstream) => {
                let upstream = upstream.with_memory(memory);
                let is_only_graph = config.graphs.is_empty();
                let known = known.filter(|it| is_only_graph || upstream.has_same_server(it));
                upstreams.push(Some(Arc::new(match known {
                    Some(known) => upstream.continuing(known),
                    None => upstream,
                })));
            }
            Err(error) => problems.push(
                Diagnostic::error("subgraph-url", format!("subgraph `{name}`: {error}")).help(
                    format!(
                        "set `subgraphs.{name}.url` to the URL of an http, https or unix server"
                    ),
                ),
            ),
        }
    }
    if problems.is_empty() { Ok(upstreams) } else { Err(problems) }
}

/// Returns the claims that lines of the access log show.
fn access_log_claims(config: &Config) -> Vec<ClaimPath> {
    let expressions = config.access_log.expressions();
    let programs =
        expressions.filter_map(|(text, scope, expected)| text.compile(scope, expected).ok());
    programs.flat_map(|program| program.references().claims.clone()).collect()
}

/// Returns the parts of subgraph responses that clients see in addition to the data.
fn disclosure(
    config: &Config,
    graph: &Supergraph,
    expressions: &Arc<ExpressionStats>,
) -> Result<Disclosure, Box<Diagnostic>> {
    let subgraphs = graph.subgraphs.iter().enumerate();
    let hidden = subgraphs.filter(|(_, it)| !config.include_subgraph_errors.of(&it.name));
    let headers = ResponseForwarding::new(&config.headers, graph, expressions)?;
    let all = (0..graph.subgraphs.len()).map(|index| SubgraphId(index as u16));
    let personal = all.filter(|&id| headers.as_ref().is_some_and(|it| it.is_personal(id)));
    let extensions = config.include_subgraph_errors.extensions.iter().map(|it| it.as_str().into());
    Ok(Disclosure {
        error_extensions: extensions.collect(),
        names_subgraphs: config.include_subgraph_errors.subgraph_names,
        error_rules: config
            .include_subgraph_errors
            .rules
            .iter()
            .map(|it| error_rule(it, graph))
            .collect(),
        hidden_errors: hidden.map(|(index, _)| SubgraphId(index as u16)).collect(),
        personal: personal.collect(),
        headers: headers.map(|it| Arc::new(it) as Arc<dyn ResponseHeaders>),
        denied_places: match config.authorization.errors {
            AuthorizationErrors::Errors => DeniedPlaces::Errors,
            AuthorizationErrors::Extensions => DeniedPlaces::Extensions,
            AuthorizationErrors::None => DeniedPlaces::Nowhere,
        },
    })
}

/// Compiles a rule about errors for the subgraphs of `graph`.
fn error_rule(rule: &SubgraphErrorRule, graph: &Supergraph) -> ErrorRule {
    let subgraphs = graph.subgraphs.iter().enumerate();
    let named = subgraphs.filter(|(_, it)| rule.subgraphs.iter().any(|name| **name == *it.name));
    ErrorRule {
        subgraphs: (!rule.subgraphs.is_empty())
            .then(|| named.map(|(index, _)| SubgraphId(index as u16)).collect()),
        codes: rule.codes.iter().map(|code| code.as_str().into()).collect(),
        matches: rule.matching.clone().map(|pattern| {
            Arc::new(move |message: &str| pattern.matches(message)) as MessageCondition
        }),
        message: match &rule.message {
            Some(text) => MessageRule::Replace(text.as_str().into()),
            None if rule.show => MessageRule::Show,
            None => MessageRule::Hide,
        },
    }
}

/// Warns about settings without effect: a typing mistake, or a subgraph that the graph no longer has. `starling check`
/// shows their places.
fn warn_of_unknown_subgraphs(config: &Config, graph: &Supergraph) {
    for (section, name) in config.named_subgraphs() {
        if !graph.subgraphs.iter().any(|subgraph| *subgraph.name == *name) {
            tracing::warn!(
                setting = format!("{section}.{name}"),
                "a setting has no effect: the supergraph has no such subgraph"
            );
        }
    }
}

/// Warns about labels that no override has: a typing mistake, or a migration that is over.
fn warn_of_unknown_labels(config: &Config, graph: &Supergraph) {
    for label in config.override_labels.keys() {
        if !graph.override_labels.iter().any(|known| **known == **label) {
            tracing::warn!(
                setting = format!("override_labels.{label}"),
                "a setting has no effect: no @override of the supergraph has this label"
            );
        }
    }
}

/// Warns about the endpoint for callbacks if no subgraph sends any. `starling check` shows its place.
fn warn_of_unused_callback(config: &Config, endpoints: &[ResolvedEndpoint]) {
    let is_used = endpoints.iter().any(|it| it.protocol == SubscriptionProtocol::Callback);
    if config.subscriptions.callback.is_some() && !is_used {
        tracing::warn!(
            setting = "subscriptions.callback",
            "a setting has no effect: no subgraph sends events by callbacks"
        );
    }
}

/// Binds the root fields of event subgraphs.
///
/// # Errors
/// Every field that cannot be bound.
pub fn bind(
    graph: &Supergraph,
    source: &Arc<SourceText>,
    providers: &Arc<Providers>,
) -> Result<Arc<Bindings>, Vec<Diagnostic>> {
    let bindings = Bindings::load(graph, providers).map_err(|errors| {
        let diagnostic = |error: &bindings::BindingError| {
            Diagnostic::error("events", error.to_string()).in_source(source)
        };
        errors.iter().map(diagnostic).collect::<Vec<_>>()
    })?;
    Ok(Arc::new(bindings))
}

/// Returns the identity of a supergraph: equal for equal texts.
pub fn identity(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    let mut head = [0; 8];
    head.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(head)
}
