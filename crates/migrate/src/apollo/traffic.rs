//! Timeouts, limits of rates, costs and circuit breakers of Apollo Router.

use crate::conversion::{Conversion, Members, with_names};
use crate::cost;
use crate::form::Form;
use crate::rule::{Rule, absent, changed, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;

pub(super) const RULES: &[Rule] = &[
    changed(
        "traffic_shaping.router.timeout",
        "limits.time",
        Form::Duration,
        "a late operation gets null with errors in place of status 504",
    ),
    with(
        "traffic_shaping.router.global_rate_limit",
        "rate_limits[].rate, rate_limits[].per",
        "operations count, also on WebSockets, and the status is 429; each router counts by \
         itself unless `store` is set",
        rate_limit,
    ),
    absent(
        "traffic_shaping.router.concurrency_limit",
        "overload protection finds the limit by latency (docs/overload.md); \
         `admission.limit.max` is its upper bound",
    ),
    same(
        "traffic_shaping.(all|subgraphs.<name>).timeout",
        "traffic.(all|subgraphs.<name>).timeout",
        Form::Duration,
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).compression",
        "traffic.(all|subgraphs.<name>).compression",
        "Starling asks for compressed responses; it does not compress requests",
        compression,
    ),
    same("traffic_shaping.all.deduplicate_query", "sharing.subgraph_queries", Form::Bool),
    with(
        "traffic_shaping.subgraphs.<name>.deduplicate_query",
        "",
        "`sharing.subgraph_queries` is for all subgraphs",
        deduplication,
    ),
    absent(
        "traffic_shaping.(all|subgraphs.<name>).global_rate_limit",
        "`rate_limits` limits operations of clients; `traffic.(all|\
         subgraphs.<name>).max_connections` and circuit breakers protect subgraphs",
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).experimental_retry",
        "traffic.(all|subgraphs.<name>).retry.budget_percent",
        "the reserve is ten retries; mutations are never retried after a byte was sent",
        retry,
    ),
    same(
        "traffic_shaping.(all|subgraphs.<name>).http2",
        "traffic.(all|subgraphs.<name>).protocol",
        HTTP2,
    ),
    same(
        "traffic_shaping.(all|subgraphs.<name>).experimental_http2",
        "traffic.(all|subgraphs.<name>).protocol",
        HTTP2,
    ),
    same(
        "traffic_shaping.(all|subgraphs.<name>).pool_idle_timeout",
        "traffic.(all|subgraphs.<name>).idle_timeout",
        Form::Duration,
    ),
    same(
        "traffic_shaping.(all|subgraphs.<name>).experimental_pool_idle_timeout",
        "traffic.(all|subgraphs.<name>).idle_timeout",
        Form::Duration,
    ),
    absent(
        "traffic_shaping.(all|subgraphs.<name>).dns_resolution_strategy",
        "addresses are tried in the order in which the system returns them",
    ),
    unneeded("traffic_shaping.deduplicate_variables", "representations are always sent once"),
    absent("traffic_shaping.connector", "Starling has no connectors for REST"),
    with(
        "experimental_circuit_breaking.(all|subgraphs.<name>)",
        "traffic.(all|subgraphs.<name>).circuit_breaker",
        "Starling opens by the share of failures in ten seconds (`failure_percent`, \
         `min_requests`), not by their number",
        circuit_breaker,
    ),
    absent("experimental_circuit_breaking.connector", "Starling has no connectors for REST"),
    with(
        "demand_control",
        "cost.mode, cost.max, cost.list_size, cost.subgraphs",
        "",
        cost::demand_control,
    ),
];

const HTTP2: Form =
    Form::Words(&[("enable", "auto"), ("disable", "http1"), ("http2only", "http2")]);

/// Reports the switch of one subgraph, unless it is that of all subgraphs.
pub(crate) fn deduplication(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let all = conversion.root.descendant(&["traffic_shaping", "all"]);
    let all = all.and_then(|it| {
        let switch = it.member("deduplicate_query").or_else(|| it.member("dedupe_enabled"))?;
        switch.truth()
    });
    // Both routers and Starling share queries by default.
    match setting.truth() == Some(all.unwrap_or(true)) {
        true => conversion.unneeded(setting, "it is that of all subgraphs"),
        false => {
            conversion.not_converted(setting, "`sharing.subgraph_queries` is for all subgraphs");
        }
    }
}

fn rate_limit(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let rate = conversion.optional(members.take("capacity"), Form::Number);
    let per = conversion.optional(members.take("interval"), Form::Duration);
    members.finish(conversion);
    let limit = Value::map([("name", Some(Value::text("router"))), ("rate", rate), ("per", per)]);
    let note = "operations count, also on WebSockets, and the status is 429; each router counts by \
                itself unless `store` is set";
    conversion.push(setting, &["rate_limits".to_owned()], limit, note);
}

fn compression(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = with_names(
        if setting.names.is_empty() {
            "traffic.all.compression"
        } else {
            "traffic.subgraphs.<name>.compression"
        },
        &setting.names,
    );
    let words = setting.text().is_some_and(|it| it != "identity");
    let note = "Starling asks for compressed responses; it does not compress requests";
    conversion.write(setting, &to, Value::Bool(words), note);
}

/// Returns the path of a key of `traffic` for all subgraphs or for one.
pub(crate) fn traffic_path(setting: &Setting<'_>, key: &str) -> Vec<String> {
    let scope = if setting.names.is_empty() { "all" } else { "subgraphs.<name>" };
    with_names(&format!("traffic.{scope}.{key}"), &setting.names)
}

fn retry(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if let Some(percent) = members.take("retry_percent") {
        let share = percent.text().and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.2);
        let value = Value::number((share * 100.0).round());
        conversion.write(&percent, &traffic_path(setting, "retry.budget_percent"), value, "");
    }
    for name in ["min_per_sec", "ttl"] {
        members.unneeded(
            conversion,
            name,
            "the reserve is ten retries, which is refilled by one per second",
        );
    }
    members.absent(
        conversion,
        "retry_mutations",
        "mutations are never retried after a byte was sent",
    );
    members.finish(conversion);
}

fn circuit_breaker(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if let Some(enabled) = members.take("enabled") {
        let to = traffic_path(setting, "circuit_breaker.enabled");
        conversion.set(&enabled, &to, Form::Bool, "");
    }
    if let Some(open) = members.take("recovery_timeout") {
        let to = traffic_path(setting, "circuit_breaker.open_for");
        conversion.set(&open, &to, Form::Duration, "");
    }
    members.absent(
        conversion,
        "error_threshold",
        "Starling counts shares: set `circuit_breaker.failure_percent` and `min_requests`",
    );
    for name in ["window", "half_open_max_requests"] {
        members.unneeded(
            conversion,
            name,
            "the window is ten seconds, and one request at a time is tried afterwards",
        );
    }
    if let Some(mode) = members.take("mode") {
        let advice = "there is no trial: `/metrics` counts failures of subgraphs also while the \
                      breaker is off";
        match mode.text() {
            Some("enforce") => conversion.unneeded(&mode, "a breaker that is on always opens"),
            _ => conversion.not_converted(&mode, advice),
        }
    }
    members.finish(conversion);
}
