//! WunderGraph Cosmo Router: `config.yaml` with `version: "1"`.

mod events;
mod headers;
mod security;
mod server;
mod storage;
mod telemetry;
mod tokens;
mod traffic;

use super::conversion::Conversion;
use super::rule::Rule;
use super::target::Value;

pub(super) const RULES: &[&[Rule]] = &[
    server::RULES,
    headers::RULES,
    security::RULES,
    traffic::RULES,
    storage::RULES,
    events::RULES,
    telemetry::RULES,
];

/// Sets the keys with another default that clients notice.
pub(super) fn add_defaults(conversion: &mut Conversion<'_>) {
    if !server::SOURCES.iter().any(|it| conversion.root.member(it).is_some()) {
        conversion.add_supergraph(
            "GRAPH_API_TOKEN",
            "Cosmo Router gets an execution configuration from Cosmo Cloud, which is no SDL: \
             compose the same subgraphs into this file by `starling compose`, or name their list \
             in `supergraph.compose` (docs/composition.md).",
        );
    }
    conversion.add("listen_addr", &["listen"], Value::text("127.0.0.1:3002"), "");
    if conversion.root.member("cors").is_none() {
        let note = "`\"*\"` never allows credentials in Starling: list the origins that need them.";
        conversion.add("cors.allow_origins", &["cors", "origins"], Value::texts(["*"]), note);
    }
    let timeout = ["traffic", "all", "timeout"];
    conversion.add("traffic_shaping.all.request_timeout", &timeout, Value::text("60s"), "");
    let size = "traffic_shaping.router.max_request_body_size";
    conversion.add(size, &["limits", "body"], Value::text("5MB"), "");
}
