//! The check of connections (`starling check --online`): whether the subgraphs, brokers and topics of the configuration
//! are reachable and grant access. It publishes nothing and leaves nothing behind. Subgraphs get the query
//! `{ __typename }`, and those that serve subscriptions over HTTP also an operation that they must refuse.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use admission::memory::MemoryAccount;
use bindings::BoundTopic;
use bytes::Bytes;
use config::diagnostic::Diagnostic;
use config::{Config, Overrides, SubscriptionCallback, SubscriptionProtocol};
use events::{Provider, SubgraphSubscription, Verdict};
use execute::{FetchError, Subgraph, SubgraphHeaders, SubgraphRequest};
use futures_util::{StreamExt, stream};
use graph::Supergraph;
use http::{HeaderMap, HeaderValue, StatusCode};
use serving::generation;
use serving::subgraph_streams::{has_queries, load_streams};
use serving::subscription_endpoint::{ResolvedEndpoint, resolve_endpoints};
use serving::upstreams::SubgraphCertificates;
use subscription_client::{
    PROTOCOL_HEADER, ProbeError, ProbeErrorKind, ProbeOutcome, SubgraphSubscriptions,
};
use tokio::time::sleep;
use upstream::{MessageResponse, Resource, Upstream, resource_tls};

use crate::callbacks::callback_endpoint;
use crate::check::read_once;
use crate::has_errors;
use crate::providers;

/// The time limit for a broker or a subgraph. A slower one is unusable for clients.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The interval at which the connection of a provider is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The number of topics that are tried at the same time: each is a subscription for half a second.
const TOPICS_AT_ONCE: usize = 16;

/// The maximum size of a response to a callback. Responses of a router have no body.
const CALLBACK_RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// The id in a callback that is sent as a check. No subscription has it.
const UNKNOWN_SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

/// The request that every subgraph gets.
const QUERY: &[u8] = br#"{"query":"{__typename}"}"#;

/// The advice if a callback fails and this machine does not reach a router by the URL either.
const CORRECT_OR_START: &str = "correct the URL for callbacks or start the router, and check again";

/// The advice if a check needs a router that runs.
const START_FIRST: &str =
    "start the router, and check again; subgraphs must reach this URL, this machine need not";

/// The URL for callbacks of subgraphs.
#[derive(Clone, Copy)]
struct CallbackUrl<'a> {
    url: &'a str,
    /// The result of its check: this machine reaches a router by it, or does not.
    verdict: OnlineVerdict,
}

/// A verdict, with the reason and the advice for a failure.
type Judgement = (OnlineVerdict, Option<String>, Option<String>);

/// The result of one check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnlineVerdict {
    /// The check succeeded.
    Works,
    /// The check failed, and an operator has to act.
    Fails,
    /// The check could not be done.
    Unknown,
}

/// One check and its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OnlineCheck {
    /// The checked action: `connect`, `subscribe`, `publish`, `callback`.
    pub what: &'static str,
    /// The checked place: `subgraph reviews, http://…`; `nats/default orders.>, Subscription.orderMoved`
    pub place: String,
    /// The result.
    pub verdict: OnlineVerdict,
    /// The reason for a failure.
    pub reason: Option<String>,
    /// The advice for a failure.
    pub advice: Option<String>,
}

/// The results of all checks.
#[derive(Debug, Default)]
pub struct OnlineReport {
    /// The findings that need no connection. If there are errors among them, no connection was tried.
    pub findings: Vec<Diagnostic>,
    /// The checks, in the order of subgraphs, providers and fields.
    pub checks: Vec<OnlineCheck>,
}

impl OnlineVerdict {
    /// Returns the text that is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Works => "ok",
            Self::Fails => "FAILED",
            Self::Unknown => "unknown",
        }
    }
}

impl OnlineReport {
    /// True if an operator has to act.
    pub fn has_failed(&self) -> bool {
        has_errors(&self.findings)
            || self.checks.iter().any(|check| check.verdict == OnlineVerdict::Fails)
    }
}

/// Checks all subgraphs, providers and topics of the configuration at `path`, unless `findings` contains errors; these
/// are the findings of [`check`](crate::check()) for the same files. Must run on a `LocalSet`.
pub async fn check_online(
    findings: Vec<Diagnostic>,
    path: Option<&Path>,
    overrides: &Overrides,
) -> OnlineReport {
    let mut report = OnlineReport { findings, checks: Vec::new() };
    if !has_errors(&report.findings)
        && let Err(diagnostics) = run_checks(path, overrides, &mut report.checks).await
    {
        // A file has changed since `findings` were collected.
        report.findings.extend(diagnostics);
    }
    report
}

async fn run_checks(
    path: Option<&Path>,
    overrides: &Overrides,
    checks: &mut Vec<OnlineCheck>,
) -> Result<(), Vec<Diagnostic>> {
    let config = config::load(path, overrides)?.config;
    let (mut graphs, mut checked) = (Vec::new(), HashSet::new());
    let further: Vec<Config> = config.graphs.iter().map(|it| config.of_graph(it)).collect();
    for config in std::iter::once(&config).chain(&further) {
        let text = read_once(config).await?.text;
        let graph = generation::read_graph(config, &text)?;
        check_servers(config, &graph, &mut checked, checks).await?;
        graphs.push((graph, text));
    }
    let providers = Arc::new(providers::providers(&config)?);
    let mut topics: Vec<BoundTopic> = Vec::new();
    for (graph, text) in &graphs {
        let bindings = generation::bind(graph, text, &providers)?;
        topics.extend(bindings.bound_topics(graph));
    }
    let mut seen = HashSet::new();
    topics.retain(|it| {
        let place = format!("{} {} {} {}", it.what, it.provider.name(), it.shown, it.coordinate);
        seen.insert(place)
    });
    let mut disconnected = HashSet::new();
    for provider in providers.iter() {
        let connection = check_provider(&**provider).await;
        if connection.verdict == OnlineVerdict::Fails {
            disconnected.insert(provider.name().to_owned());
        }
        checks.push(connection);
    }
    let checked =
        topics.iter().map(|topic| check_topic(topic, disconnected.contains(topic.provider.name())));
    checks.extend(stream::iter(checked).buffered(TOPICS_AT_ONCE).collect::<Vec<_>>().await);
    // The opened streams are closed in the background.
    let is_open = || providers.iter().any(|it| it.stats().streams.load(Relaxed) > 0);
    let deadline = tokio::time::Instant::now() + TIME_MAX;
    while is_open() && tokio::time::Instant::now() < deadline {
        sleep(CHECK_INTERVAL).await;
    }
    Ok(())
}

/// Checks the servers of the subgraphs of a graph, except for those that `checked` contains by name and URL: graphs
/// have subgraphs in common.
async fn check_servers(
    config: &Config,
    graph: &Supergraph,
    checked: &mut HashSet<[String; 3]>,
    checks: &mut Vec<OnlineCheck>,
) -> Result<(), Vec<Diagnostic>> {
    let certificates = SubgraphCertificates::default();
    let memory = MemoryAccount::unlimited();
    let upstreams = generation::upstreams(config, graph, &certificates, &memory, None)?;
    for (upstream, subgraph) in upstreams.iter().zip(&graph.subgraphs) {
        // Those with queries over a WebSocket are checked with their subscriptions.
        let Some(upstream) = upstream.as_ref().filter(|it| !has_queries(config, it.name())) else {
            continue;
        };
        if checked.insert(["connect".into(), upstream.name().into(), subgraph.url.to_string()]) {
            checks.push(check_subgraph(upstream, &subgraph.url).await);
        }
    }
    let endpoints = resolve_endpoints(config, graph)?;
    let callbacks = callback_endpoint(config);
    let streams = load_streams(config, graph, &endpoints, &certificates, callbacks.as_ref(), &[])?;
    let has_callbacks = endpoints.iter().any(|it| it.protocol == SubscriptionProtocol::Callback);
    let mut callback_url = None;
    if let Some(callback) = config.subscriptions.callback.as_ref().filter(|_| has_callbacks) {
        let check = check_callback_url(callback).await;
        callback_url = Some(CallbackUrl { url: &callback.public_url, verdict: check.verdict });
        if checked.insert(["callback".into(), String::new(), callback.public_url.clone()]) {
            checks.push(check);
        }
    }
    for endpoint in &endpoints {
        let Some(streams) = &streams[usize::from(endpoint.subgraph.0)] else { continue };
        let (protocol, name) = (endpoint.protocol.name(), streams.client.subgraph());
        let mut is_new =
            |what: &str| checked.insert([what.into(), name.into(), endpoint.url.to_string()]);
        let checks_queries = has_queries(config, name) && is_new("query");
        let checks_subscriptions = is_new(protocol);
        if !checks_queries && !checks_subscriptions {
            continue;
        }
        let outcome = probe(&streams.client, endpoint.protocol).await;
        if checks_queries {
            checks.push(check_queries(&streams.client, endpoint, &outcome).await);
        }
        if checks_subscriptions {
            checks.push(check_subscriptions(name, endpoint, outcome, callback_url));
        }
    }
    Ok(())
}

/// Returns the URL without credentials.
fn shown(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut parsed)
            if parsed.has_authority()
                && (parsed.password().is_some() || !parsed.username().is_empty()) =>
        {
            // Both only fail for URLs without a host, which have no credentials.
            let _ = parsed.set_password(None);
            let _ = parsed.set_username("");
            parsed.to_string()
        }
        _ => url.to_owned(),
    }
}

async fn check_subgraph(upstream: &Upstream, url: &str) -> OnlineCheck {
    let request = SubgraphRequest {
        body: Bytes::from_static(QUERY),
        form: None,
        is_mutation: false,
        headers: SubgraphHeaders::default(),
        deadline: Instant::now() + TIME_MAX,
    };
    let name = upstream.name();
    let (verdict, reason, advice) = match upstream.fetch(request).await {
        Ok(answer) if answer.status.is_success() => (OnlineVerdict::Works, None, None),
        Ok(answer) => {
            classify_status(name, answer.status, format!("HTTP status {}", answer.status))
        }
        Err(FetchError::Status { status, .. }) => classify_status(
            name,
            status,
            format!("HTTP status {status}, and the body is not a GraphQL response"),
        ),
        Err(error) => {
            let advice = format!(
                "check that the subgraph runs and that this machine can reach it; `subgraphs.{name}.url` overrides the URL, \
                 `subgraphs.{name}.tls` sets the trusted certificates"
            );
            (OnlineVerdict::Fails, Some(error.to_string()), Some(advice))
        }
    };
    OnlineCheck {
        what: "connect",
        place: format!("subgraph {name}, {}", shown(url)),
        verdict,
        reason,
        advice,
    }
}

/// Returns the check that the subgraph `name` serves subscriptions by its protocol, from the outcome of a probe.
/// `callback_url` is needed for callbacks.
fn check_subscriptions(
    name: &str,
    endpoint: &ResolvedEndpoint,
    outcome: Result<ProbeOutcome, ProbeError>,
    callback_url: Option<CallbackUrl<'_>>,
) -> OnlineCheck {
    let (verdict, reason, advice) = judge_probe(outcome, name, callback_url);
    let (protocol, url) = (endpoint.protocol.name(), endpoint.shown_url());
    let place = format!("subgraph {name}, {protocol} at {url}");
    OnlineCheck { what: "subscribe", place, verdict, reason, advice }
}

/// Returns the verdict about the subscriptions of the subgraph `name`, with reason and advice.
fn judge_probe(
    outcome: Result<ProbeOutcome, ProbeError>,
    name: &str,
    callback_url: Option<CallbackUrl<'_>>,
) -> Judgement {
    let is_reached = callback_url.is_some_and(|it| it.verdict == OnlineVerdict::Works);
    match outcome {
        Ok(ProbeOutcome::Proven) => (OnlineVerdict::Works, None, None),
        Ok(ProbeOutcome::Unproven { reason }) => {
            (OnlineVerdict::Unknown, Some(reason.to_owned()), None)
        }
        Err(ProbeError { reason, kind: ProbeErrorKind::NeedsCredentials }) => {
            let advice = "it requires a header that clients send; test it with such a subscription";
            (OnlineVerdict::Unknown, Some(reason), Some(advice.to_owned()))
        }
        Err(ProbeError { reason, kind: ProbeErrorKind::CallbackFailed }) => {
            let reason = format!("{reason}, as Apollo Server does if its callback fails");
            match is_reached {
                true => {
                    let advice = "check that the subgraph can reach `subscriptions.callback.public_url`; \
                                  the log of the subgraph has the reason";
                    (OnlineVerdict::Fails, Some(reason), Some(advice.to_owned()))
                }
                false => (OnlineVerdict::Unknown, Some(reason), Some(CORRECT_OR_START.to_owned())),
            }
        }
        Err(ProbeError { reason, kind: ProbeErrorKind::CallbackTimeout }) => {
            let url = callback_url.map_or_else(String::new, |it| format!(" {}", shown(it.url)));
            let reason = format!(
                "{reason}: the subgraph does not respond, or it cannot reach the URL for callbacks{url} \
                 and waits for the router"
            );
            match is_reached {
                true => {
                    let advice = format!(
                        "check that the subgraph responds at `subgraphs.{name}.subscription`; then send a request to \
                         `subscriptions.callback.public_url` from the machine of the subgraph: without a response at \
                         once, correct the URL, the names or the firewall between them"
                    );
                    (OnlineVerdict::Fails, Some(reason), Some(advice))
                }
                false => (OnlineVerdict::Unknown, Some(reason), Some(CORRECT_OR_START.to_owned())),
            }
        }
        Err(ProbeError { reason, kind: ProbeErrorKind::Unusable }) => {
            let advice = format!(
                "check the protocol and the URL of the subgraph's subscriptions: `subgraphs.{name}.subscription`"
            );
            (OnlineVerdict::Fails, Some(reason), Some(advice))
        }
    }
}

/// Checks that a subgraph responds to queries over its WebSocket (`queries_over: websocket`). None is sent if the probe
/// of the endpoint has failed.
async fn check_queries(
    client: &SubgraphSubscriptions,
    endpoint: &ResolvedEndpoint,
    outcome: &Result<ProbeOutcome, ProbeError>,
) -> OnlineCheck {
    let name = client.subgraph();
    let failure = match outcome {
        Ok(_) => send_query(client).await.err(),
        Err(error) => Some(error.clone()),
    };
    let (verdict, reason, advice) = match failure {
        None => (OnlineVerdict::Works, None, None),
        Some(ProbeError { reason, kind: ProbeErrorKind::NeedsCredentials }) => {
            let advice = "it requires a header that clients send; test it with such a request";
            (OnlineVerdict::Unknown, Some(reason), Some(advice.to_owned()))
        }
        Some(ProbeError { reason, .. }) => {
            let advice = format!(
                "check the URL of the subgraph's WebSocket, `subgraphs.{name}.subscription`, or remove \
                 `subgraphs.{name}.queries_over`"
            );
            (OnlineVerdict::Fails, Some(reason), Some(advice))
        }
    };
    let place = format!("subgraph {name}, {}", endpoint.shown_url());
    OnlineCheck { what: "connect", place, verdict, reason, advice }
}

/// Sends a query over the WebSocket of a subgraph, and waits for the response.
async fn send_query(client: &SubgraphSubscriptions) -> Result<Bytes, ProbeError> {
    let query = SubgraphSubscription {
        field: Box::default(),
        request: Bytes::from_static(QUERY),
        headers: Arc::default(),
        trace: Arc::default(),
        partition: Box::default(),
    };
    let response = tokio::time::timeout(TIME_MAX, client.fetch(query)).await;
    let response = response.unwrap_or(Err(FetchError::Timeout(TIME_MAX)));
    response.map_err(|error| unusable(error.to_string()))
}

/// Probes the subscriptions of a subgraph within the time limit.
async fn probe(
    client: &SubgraphSubscriptions,
    protocol: SubscriptionProtocol,
) -> Result<ProbeOutcome, ProbeError> {
    let probed = tokio::time::timeout(TIME_MAX, client.probe()).await;
    probed.unwrap_or_else(|_| {
        let kind = match protocol {
            SubscriptionProtocol::Callback => ProbeErrorKind::CallbackTimeout,
            _ => ProbeErrorKind::Unusable,
        };
        Err(ProbeError { reason: format!("no response within {TIME_MAX:?}"), kind })
    })
}

fn unusable(reason: String) -> ProbeError {
    ProbeError { reason, kind: ProbeErrorKind::Unusable }
}

/// Checks that the URL for callbacks leads to a router. One that runs there refuses the callback, because no
/// subscription has its id, and responds with a header of the protocol.
async fn check_callback_url(callback: &SubscriptionCallback) -> OnlineCheck {
    let SubscriptionCallback { public_url, path, .. } = callback;
    let (verdict, reason, advice) = match send_callback(public_url).await {
        Ok(response) if response.headers.contains_key(PROTOCOL_HEADER.0) => {
            (OnlineVerdict::Works, None, None)
        }
        // A proxy responds like this while no router runs.
        Ok(response) if response.status.is_server_error() => {
            let reason = format!("HTTP status {}, and not of a router", response.status);
            (OnlineVerdict::Unknown, Some(reason), Some(START_FIRST.to_owned()))
        }
        Ok(response) => {
            let reason = format!("HTTP status {}, and not of a router", response.status);
            let advice = format!(
                "set `subscriptions.callback.public_url` to a URL that leads to `{path}` on the listener for callbacks"
            );
            (OnlineVerdict::Fails, Some(reason), Some(advice))
        }
        Err(reason) => (OnlineVerdict::Unknown, Some(reason), Some(START_FIRST.to_owned())),
    };
    let place = format!("URL for callbacks, {}", shown(public_url));
    OnlineCheck { what: "callback", place, verdict, reason, advice }
}

/// Sends a callback to a subscription that does not exist. `Err` has the reason why there was no response.
async fn send_callback(public_url: &str) -> Result<MessageResponse, String> {
    let url = format!("{}/{UNKNOWN_SUBSCRIPTION}", public_url.trim_end_matches('/'));
    let tls = resource_tls(&url, None)?;
    let resource = Resource::new(&url, tls, "*/*", CALLBACK_RESPONSE_BYTES_MAX, TIME_MAX);
    let resource = resource.map_err(|error| error.to_string())?;
    let json = HeaderValue::from_static("application/json");
    let sent = resource.post_message(Bytes::from_static(b"{}"), json, HeaderMap::new()).await;
    sent.map_err(|error| error.to_string())
}

/// Returns the result for a subgraph that responded without a GraphQL response.
fn classify_status(name: &str, status: StatusCode, reason: String) -> Judgement {
    match status {
        // The headers of clients are not known here.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let advice =
                "it requires a header that clients send; test it with such a request".to_owned();
            (OnlineVerdict::Unknown, Some(reason), Some(advice))
        }
        _ => {
            let advice = format!(
                "check the path of its GraphQL endpoint; `subgraphs.{name}.url` overrides it"
            );
            (OnlineVerdict::Fails, Some(reason), Some(advice))
        }
    }
}

async fn check_provider(provider: &dyn Provider) -> OnlineCheck {
    let deadline = tokio::time::Instant::now() + TIME_MAX;
    // `connected` waits only a moment, and the first attempt may take longer.
    let result = loop {
        match provider.wait_connected().await {
            // Some providers return at once.
            Err(_) if tokio::time::Instant::now() < deadline => sleep(CHECK_INTERVAL).await,
            result => break result,
        }
    };
    let place = provider.name().to_owned();
    match result {
        Ok(()) => OnlineCheck {
            what: "connect",
            place,
            verdict: OnlineVerdict::Works,
            reason: None,
            advice: None,
        },
        Err(reason) => {
            let (kind, id) = place.split_once('/').unwrap_or((&*place, ""));
            let key = format!("`events.providers.{kind}`, id `{id}`");
            let advice = if is_about_credentials(&reason) {
                format!("check `authentication` of {key}, and the user at the broker")
            } else {
                format!(
                    "check that the broker runs and that this machine can reach it; its address is in {key}"
                )
            };
            OnlineCheck {
                what: "connect",
                verdict: OnlineVerdict::Fails,
                reason: Some(reason),
                advice: Some(advice),
                place,
            }
        }
    }
}

/// True if the reason is about credentials. Each broker has its own wording.
fn is_about_credentials(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    ["auth", "password", "wrongpass", "credential", "nkey", "noperm"]
        .iter()
        .any(|word| reason.contains(word))
}

async fn check_topic(topic: &BoundTopic, is_disconnected: bool) -> OnlineCheck {
    let BoundTopic { provider, coordinate, what, shown, usage } = topic;
    let verdict = match usage {
        None => Verdict::Unknown("its topic depends on arguments".into()),
        Some(_) if is_disconnected => Verdict::Unknown("the provider is not connected".into()),
        Some(usage) => provider.check(usage.clone()).await,
    };
    let (verdict, reason, advice) = match verdict {
        Verdict::Works => (OnlineVerdict::Works, None, None),
        Verdict::Unknown(reason) => (OnlineVerdict::Unknown, Some(reason), None),
        Verdict::Fails(reason) => {
            let advice = "grant the permission at the broker, or create the missing object; the pages of docs/events list the \
                          permissions that each kind of provider needs";
            (OnlineVerdict::Fails, Some(reason), Some(advice.to_owned()))
        }
    };
    let place = format!("{} {shown}, {coordinate}", provider.name());
    OnlineCheck { what, place, verdict, reason, advice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_a_subgraph_with_callbacks_names_both_possible_causes() {
        let judged = |verdict| {
            let kind = ProbeErrorKind::CallbackTimeout;
            let outcome = Err(ProbeError { reason: "no response within 5s".into(), kind });
            let url = "http://user:secret@router:4000/callback";
            judge_probe(outcome, "reviews", Some(CallbackUrl { url, verdict }))
        };
        let expected = "no response within 5s: the subgraph does not respond, or it cannot reach the URL \
                        for callbacks http://router:4000/callback and waits for the router";
        let (verdict, reason, advice) = judged(OnlineVerdict::Works);
        assert_eq!((verdict, reason.as_deref()), (OnlineVerdict::Fails, Some(expected)));
        let advice = advice.expect("advice for a failure");
        for key in ["`subgraphs.reviews.subscription`", "`subscriptions.callback.public_url`"] {
            assert!(advice.contains(key), "{advice}");
        }
        // The router may not run yet.
        for url_verdict in [OnlineVerdict::Unknown, OnlineVerdict::Fails] {
            let (verdict, reason, advice) = judged(url_verdict);
            assert_eq!((verdict, reason.as_deref()), (OnlineVerdict::Unknown, Some(expected)));
            assert_eq!(advice.as_deref(), Some(CORRECT_OR_START));
        }
    }

    #[test]
    fn credentials_in_a_url_are_not_shown() {
        for (url, expected) in [
            ("http://user:secret@host:1/graphql", "http://host:1/graphql"),
            ("https://token@host/", "https://host/"),
            ("http://127.0.0.1:4001", "http://127.0.0.1:4001"),
            ("unix:///run/a.sock", "unix:///run/a.sock"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
