//! Hive Router: `router.config.yaml`.

mod security;
mod server;
mod telemetry;
mod traffic;

use super::conversion::Conversion;
use super::rule::Rule;
use super::target::Value;

pub(super) const RULES: &[&[Rule]] =
    &[server::RULES, security::RULES, traffic::RULES, telemetry::RULES];

/// Sets the keys with another default that clients notice.
pub(super) fn add_defaults(conversion: &mut Conversion<'_>) {
    conversion.add("http.host", &["listen"], Value::text("0.0.0.0:4000"), "");
}
