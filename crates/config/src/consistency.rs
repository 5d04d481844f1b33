//! Rules that involve several keys: duplicates, conflicts, settings without effect. Those for providers are in
//! `provider_consistency`, those for subscriptions of subgraphs in `subgraph_subscription_consistency`, those for web
//! pages in `web_page_consistency`, those for tokens in `token_consistency`, those for shared state in
//! `store_consistency`.
//!
//! Each value on its own is valid when it gets here, because `check` has run before.

use std::net::SocketAddr;
use std::path::Path;

use expressions::{Expected, Scope};

use super::findings::{Findings, KeyPlaces};
use super::quantity::Quantity;
use super::wording::find_similar;
use super::{
    Config, CostMode, Expression, HeaderRule, HedgeDelay, Listener, RateLimit, RateUnit,
    TrafficSettings, graphs, provider_consistency, store_consistency,
    subgraph_subscription_consistency, token_consistency, warming, web_page_consistency,
};

/// Checks a whole configuration, command line flags included.
pub(super) fn check(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    check_listeners(config, places, findings);
    check_path_of_page(config, places, findings);
    config.supergraph.check_source("supergraph", places, findings);
    graphs::check(config, places, findings);
    config.persisted_documents.check_mode(places, findings);
    provider_consistency::check(config, places, findings);
    web_page_consistency::check(config, places, findings);
    config.include_subgraph_errors.check_rules(places, findings);
    config.uploads.check_bounds(places, findings);
    check_subgraphs(config, places, findings);
    check_traffic_retries(config, places, findings);
    check_hedging(config, places, findings);
    warming::check(config, places, findings);
    token_consistency::check(config, places, findings);
    config.authorization.policies.check(places, findings);
    check_rate_limits(config, places, findings);
    store_consistency::check(config, places, findings);
    check_cost(config, places, findings);
    config.cache.check(places, findings);
    config.live_queries.check(config.cache.enabled, places, findings);
    config.admission.check(places, findings);
    check_cost_readers(config, places, findings);
    config.introspection.check_switch(places, findings);
    config.trace.check_switch(places, findings);
    config.access_log.check_fields(!config.graphs.is_empty(), places, findings);
    config.tracing.check(places, findings);
    config.metrics.otlp.check(places, findings);
    config.admin.console.check(places, findings);
    subgraph_subscription_consistency::check(config, places, findings);
}

/// Warns about settings for subgraphs that are not among `names`.
pub(super) fn check_subgraph_names(
    config: &Config,
    names: &[&str],
    places: &KeyPlaces,
    findings: &mut Findings,
) {
    for (section, name) in config.named_subgraphs().filter(|(_, name)| !names.contains(name)) {
        let help = match find_similar(name, names.iter().copied()) {
            Some(known) => format!("did you mean `{known}`?"),
            None => format!("the supergraph has: {}", names.join(", ")),
        };
        let finding = findings.warning(
            "unknown-subgraph",
            format!("`{section}.{name}` has no effect: the supergraph has no such subgraph"),
        );
        if let Some(place) = places.get(&format!("{section}.{name}")) {
            finding.at(place.key.clone(), "not in the supergraph");
        }
        finding.help(help);
    }
}

fn check_listeners(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let mut known: Vec<(String, SocketAddr)> = Vec::new();
    let mut sockets: Vec<(String, &Path)> = Vec::new();
    let single = config.listen.len() == 1;
    for (index, listener) in config.listen.iter().enumerate() {
        let element = format!("listen[{index}]");
        let address = format!("{element}.address");
        // A single address may be written without a list, and an element without its key.
        let candidates = [address, element, "listen".to_owned()];
        let mut candidates = candidates.into_iter().filter(|path| single || path != "listen");
        let path = candidates.find(|path| places.get(path).is_some());
        match listener {
            Listener::Address { address, .. } => {
                known.push((path.unwrap_or_else(|| "listen".into()), *address));
            }
            Listener::Unix(socket) => {
                let path = format!("listen[{index}].unix");
                if let Some((other, _)) = sockets.iter().find(|(_, known)| *known == socket.path) {
                    findings
                        .error("conflict", format!("`{path}` and `{other}` are the same socket"))
                        .at_place(places.get(&path), "only one listener can have it")
                        .related_place(places.get(other), "taken here")
                        .help("remove one of them");
                }
                sockets.push((path, &socket.path));
            }
        }
    }
    known.push(("admin.listen".into(), config.admin.listen));
    let callback = config.subscriptions.callback.as_ref().and_then(|it| it.listen);
    known.extend(callback.map(|address| ("subscriptions.callback.listen".into(), address)));
    for (index, (path, address)) in known.iter().enumerate() {
        let clash = known[..index].iter().find(|(_, other)| is_overlapping(*address, *other));
        let Some((other_path, other)) = clash else { continue };
        let message = if address == other {
            format!("`{path}` and `{other_path}` are the same address, {address}")
        } else {
            format!("`{path}` ({address}) and `{other_path}` ({other}) overlap")
        };
        let help = match path.as_str() {
            "admin.listen" => "give the admin listener a port of its own: it must not be public",
            _ => "remove one of them, or change its port",
        };
        findings
            .error("conflict", message)
            .at_place(places.get(path), "only one listener can have it")
            .related_place(places.get(other_path), "taken here")
            .help(help);
    }
}

/// True if the second of two listeners could not be opened. IPv4 and IPv6 do not conflict.
fn is_overlapping(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port()
        && a.port() != 0
        && a.is_ipv4() == b.is_ipv4()
        && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

fn check_cost(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let has_max = config.cost.max.is_some() || config.cost.has_subgraph_max();
    match config.cost.mode {
        CostMode::Enforce if !has_max => {
            findings
                .error("conflict", "`cost.mode` is `enforce`, and there is no maximum to enforce")
                .at_place(places.get("cost.mode"), "needs a maximum")
                .help("set `cost.max`; the metric `starling_operation_cost_estimated` of the mode `measure` shows good values");
        }
        CostMode::Off if has_max || config.cost.expose => {
            findings
                .warning("no-effect", "the section `cost` has no effect while `cost.mode` is `off`")
                .at_place(places.get("cost"), "not used")
                .help("set `cost.mode: measure` to count costs, or `enforce` to refuse operations above the maximum");
        }
        CostMode::Off | CostMode::Measure | CostMode::Enforce => {}
    }
}

/// Checks that the expressions of a limit of requests do not read the cost, which is estimated later.
fn check_without_cost(limit: &RateLimit, path: &str, places: &KeyPlaces, findings: &mut Findings) {
    let expressions =
        [("key", &limit.key, Expected::Text), ("when", &limit.when, Expected::Condition)];
    for (key, expression, expected) in expressions {
        let Some(expression) = expression else { continue };
        let Err(error) = expression.compile(limit.scope(), expected) else { continue };
        findings
            .error("conflict", format!("`{path}.{key}` reads a cost, and limits requests"))
            .at_place(places.get(&format!("{path}.{key}")), error.message)
            .part(expression.text(), error.range)
            .help("requests are limited before their cost is estimated: write `unit: cost`, or read another variable");
    }
}

/// Checks that costs are estimated where something reads them.
fn check_cost_readers(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    if config.cost.mode != CostMode::Off {
        return;
    }
    const HELP: &str = "set `cost.mode: measure` to estimate costs, or `enforce` to refuse operations above a maximum, too";
    for (index, limit) in config.rate_limits.iter().enumerate() {
        if limit.unit == RateUnit::Cost {
            let path = format!("rate_limits[{index}].unit");
            findings
                .error("conflict", format!("`{path}` is `cost`, and no cost is estimated"))
                .at_place(places.get(&path), "`cost.mode` is `off`")
                .help(HELP);
        }
    }
    for (path, expression) in computed_headers(config) {
        let without_cost = expression.compile(Scope::OPERATION, Expected::Text);
        let Err(error) = without_cost else { continue };
        findings
            .error("conflict", format!("`{path}` reads the cost, and no cost is estimated"))
            .at_place(places.get(&path), "`cost.mode` is `off`")
            .part(expression.text(), error.range)
            .help(HELP);
    }
}

/// Returns the expressions of request headers, each with its path in the file.
fn computed_headers(config: &Config) -> impl Iterator<Item = (String, &Expression)> {
    let all = std::iter::once(("headers.all".to_owned(), &config.headers.all));
    let special = config.headers.subgraphs.iter();
    let special = special.map(|(name, rules)| (format!("headers.subgraphs.{name}"), rules));
    all.chain(special).flat_map(|(section, rules)| {
        rules.request.iter().enumerate().filter_map(move |(index, rule)| match rule {
            HeaderRule::Set(it) => {
                Some((format!("{section}.request[{index}].set.expression"), &it.expression))
            }
            _ => None,
        })
    })
}

fn check_path_of_page(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    if config.ide.enabled && config.path == "/" {
        findings
            .error("conflict", "`path` is `/`, where the page for trying out queries is served")
            .at_place(places.get("path"), "taken by the page")
            .help("choose another path, such as `/graphql`, or set `ide.enabled: false`");
    }
}

fn check_subgraphs(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    for (name, subgraph) in &config.subgraphs {
        subgraph.tls.check_pair(&format!("subgraphs.{name}.tls"), places, findings);
        let path = format!("subgraphs.{name}");
        subgraph.signature.check(&path, subgraph.queries_over, places, findings);
        if let Some(aws) = &subgraph.aws_sigv4 {
            aws.check(&path, subgraph.queries_over, places, findings);
        }
    }
}

fn check_rate_limits(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    for (index, limit) in config.rate_limits.iter().enumerate() {
        let path = format!("rate_limits[{index}]");
        let first = config.rate_limits[..index].iter().position(|it| it.name == limit.name);
        if let Some(first) = first {
            findings
                .error("conflict", format!("two rate limits have the name `{}`", limit.name))
                .at_place(places.get(&format!("{path}.name")), "taken already")
                .related_place(places.get(&format!("rate_limits[{first}].name")), "taken here")
                .help(
                    "give each limit a name of its own: headers and metrics tell them apart by it",
                );
        }
        if limit.unit == RateUnit::Requests {
            check_without_cost(limit, &path, places, findings);
        }
    }
    let block = &config.block;
    let info = &config.client_info;
    if block.unknown_clients.is_some() && info.name_headers.is_empty() {
        findings
            .error("conflict", "`block.unknown_clients` would refuse every operation")
            .at_place(places.get("block.unknown_clients"), "no header can name an application")
            .related_place(places.get("client_info.name_headers"), "the list is empty")
            .help("add a header to `client_info.name_headers`");
    }
}

/// Returns the settings of all subgraphs, and those of each subgraph with other ones, with their paths.
fn traffic_sections(config: &Config) -> impl Iterator<Item = (String, TrafficSettings)> {
    let all = std::iter::once(("traffic.all".to_owned(), config.traffic.all.clone()));
    let special = config.traffic.subgraphs.keys();
    all.chain(special.map(|name| (format!("traffic.subgraphs.{name}"), config.traffic.of(name))))
}

/// Second requests that would be sent when the time of the first one is over.
fn check_hedging(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    for (path, settings) in traffic_sections(config) {
        let HedgeDelay::Fixed(after) = settings.hedge.after else { continue };
        if !settings.hedge.enabled || after < settings.timeout {
            continue;
        }
        let own_after = places.get(&format!("{path}.hedge.after"));
        let own_timeout = places.get(&format!("{path}.timeout"));
        // Values that a subgraph only inherits have been reported for `traffic.all`.
        if path != "traffic.all" && own_after.is_none() && own_timeout.is_none() {
            continue;
        }
        findings
            .error("conflict", format!("`{path}.hedge` would never send a second request"))
            .at_place(own_after.or(own_timeout), "the request has no time left then")
            .related_place(own_after.and(own_timeout), "the time of the request")
            .help(format!(
                "write an `after` below `{}`, or a percentile: `p95`",
                settings.timeout.print()
            ));
    }
}

fn check_traffic_retries(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    for (path, settings) in traffic_sections(config) {
        if settings.retry.initial <= settings.retry.max {
            continue;
        }
        let [initial, max] =
            ["initial", "max"].map(|key| places.get(&format!("{path}.retry.{key}")));
        // Values that a subgraph only inherits have been reported for `traffic.all`.
        if path != "traffic.all" && initial.is_none() && max.is_none() {
            continue;
        }
        findings
            .error("conflict", format!("`{path}.retry.initial` is longer than `{path}.retry.max`"))
            .at_place(
                initial.or(max),
                match initial {
                    Some(_) => "must be the shortest waiting time",
                    None => "shorter than the first waiting time",
                },
            )
            .related_place(initial.and(max), "the longest waiting time")
            .help(format!(
                "write an `initial` of at most `{}`, or a longer `max`",
                settings.retry.max.print()
            ));
    }
}
