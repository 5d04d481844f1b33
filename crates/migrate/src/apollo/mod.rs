//! Apollo Router: `router.yaml` of the versions 1 and 2.

mod caching;
mod security;
mod server;
mod subscription;
mod telemetry;
mod traffic;

use super::conversion::Conversion;
use super::rule::{Rule, absent, unneeded};
use super::target::Value;

pub(super) use security::show_extension;
pub(super) use server::file_size;
pub(super) use subscription::{enabled as subscriptions_enabled, subscription_path};
pub(super) use telemetry::formats;
pub(super) use traffic::{deduplication, traffic_path};

pub(super) const RULES: &[&[Rule]] = &[
    server::RULES,
    security::RULES,
    traffic::RULES,
    caching::RULES,
    subscription::RULES,
    telemetry::RULES,
    EXTENSIONS,
];

/// Parts that run code of the operator, and those that only GraphOS needs.
const EXTENSIONS: &[Rule] = &[
    absent(
        "coprocessor",
        "Starling calls no coprocessors: expressions cover headers, conditions and limits \
         (docs/expressions.md), decision points cover policies (docs/field-authorization.md)",
    ),
    absent(
        "rhai",
        "Starling runs no scripts: rules for headers, expressions (docs/expressions.md) and \
         claims cover the common ones",
    ),
    absent(
        "plugins",
        "Starling has no plugins: expressions (docs/expressions.md) and policies in Rego \
         (docs/field-authorization.md) cover the common ones",
    ),
    absent("wasm", "Starling has no plugins: see `plugins`"),
    absent(
        "(connectors|preview_connectors)",
        "Starling has no connectors for REST: put a GraphQL service in front of it",
    ),
    absent(
        "progressive_override",
        "`override_labels` turns labels on by name; `percent(x)` needs no setting",
    ),
    unneeded("fleet_detector", "it reports to GraphOS"),
    unneeded("license_enforcement", "Starling needs no licence"),
    unneeded("reload", "a graph that does not load is refused, and the old one stays"),
    unneeded(
        "experimental_type_conditioned_fetching",
        "Starling always plans by the types of objects",
    ),
    absent("experimental_hoist_orphan_errors", "errors keep the path that they have"),
    absent("experimental_chaos", "`starling mock` makes faults on request"),
    absent(
        "experimental_diagnostics",
        "see `admin.console` and `admin.profiling` (docs/console.md, docs/profiling.md)",
    ),
];

/// Sets the keys with another default that clients notice.
pub(super) fn add_defaults(conversion: &mut Conversion<'_>) {
    conversion.add_supergraph(
        "APOLLO_GRAPH_REF",
        "Apollo Router gets its supergraph from GraphOS or by `--supergraph`: let a job write it \
         to this file (`rover supergraph fetch`), or name its server in `supergraph.url` \
         (docs/supergraph-delivery.md).",
    );
    conversion.add("supergraph.path", &["path"], Value::text("/"), "Clients send requests to `/`.");
    let path = conversion.root.descendant(&["supergraph", "path"]);
    let note = match path.is_none_or(|it| it.text() == Some("/")) {
        true => "The page and the endpoint cannot both be at `/`.",
        false => "",
    };
    conversion.add("sandbox.enabled", &["ide", "enabled"], Value::Bool(false), note);
    conversion.add("supergraph.introspection", &["introspection"], Value::Bool(false), "");
    conversion.add("csrf.unsafe_disabled", &["csrf", "enabled"], Value::Bool(true), "");
}
