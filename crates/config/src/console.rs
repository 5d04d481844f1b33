//! Settings of the console: the pages of the admin listener that show what the router does.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::findings::{Findings, KeyPlaces};
use super::format::{DurationText, OperationConditionText, PathText, SecretText, SizeText};
use super::quantity;
use super::secret::Secret;

/// The minimum length of the token: that of 16 random bytes in hexadecimal digits is twice as long.
const TOKEN_BYTES_MIN: usize = 16;

/// The paths of the admin listener beside the console. The console can have neither them nor paths below them. The
/// listener checks that the list has all that it serves.
pub const ADMIN_PATHS: [&str; 12] = [
    "/metrics",
    "/health",
    "/debug",
    "/admin/subscriptions",
    "/admin/usage",
    "/admin/operations",
    "/admin/cache",
    "/admin/publish",
    "/admin/complete",
    "/admin/reload",
    "/admin/rollback",
    "/admin/invalidate",
];

/// The console on the admin listener: pages for browsers that show what the router does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Console {
    /// Serves the console, and keeps the figures of the last hour for it. If `false`, its paths have status 404 and no
    /// figures are kept.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The path of the console. All its pages and files are below it.
    #[schemars(with = "PathText", example = &"/starling")]
    pub path: String,

    /// The token that the console asks for, at least 16 characters. Its pages send it as `authorization: Bearer`.
    /// Without a token everyone that reaches the admin listener sees the console. It does not protect other paths of
    /// the admin listener, such as `/metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretText>", extend("default" = null), example = &"${CONSOLE_TOKEN}")]
    pub token: Option<Secret>,

    /// The flight recorder: the last slow, failed and selected requests and events, each with its steps.
    pub recorder: FlightRecorder,
}

/// The flight recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlightRecorder {
    /// Keeps slow and failed requests and events, with the same steps as their traces (`tracing`), whether traces are
    /// exported or not. Each request then notes its steps, which costs a few microseconds.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The duration from which a request or an event is slow.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"200ms")]
    pub slow: Duration,

    /// Also keeps the requests with an operation for which this condition is true. It may use `request`, `client`,
    /// `claims` and `operation`. One that cannot be evaluated is not true. Events belong to no request and are not
    /// selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<OperationConditionText>", example = &"operation.name == 'Checkout'")]
    pub when: Option<Expression>,

    /// The maximum number of requests and events that are kept. A new one replaces the oldest one.
    #[schemars(range(min = 1, max = 10_000), example = 500)]
    pub max: u32,

    /// The maximum memory of them, by estimate.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"32MiB")]
    pub memory: usize,
}

impl Default for Console {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/console".into(),
            token: None,
            recorder: FlightRecorder::default(),
        }
    }
}

impl Default for FlightRecorder {
    fn default() -> Self {
        // A request with a dozen fetches takes about 10 kB.
        let (max, memory) = (1_000, 16 << 20);
        Self { enabled: false, slow: Duration::from_millis(500), when: None, max, memory }
    }
}

impl Console {
    /// True if slow, failed and selected requests are recorded.
    pub fn has_recorder(&self) -> bool {
        self.enabled && self.recorder.enabled
    }

    /// Returns the condition that selects requests for the flight recorder, if there is a recorder.
    pub fn recorder_condition(&self) -> Option<&Expression> {
        self.recorder.when.as_ref().filter(|_| self.has_recorder())
    }

    /// Returns the path without a slash at its end; empty for `/`.
    pub fn prefix(&self) -> &str {
        self.path.trim_end_matches('/')
    }

    /// Reports settings that contradict others.
    pub(super) fn check(&self, places: &KeyPlaces, findings: &mut Findings) {
        let path = "admin.console.path";
        let prefix = self.prefix();
        let is_below = |taken: &str| {
            let rest = prefix.strip_prefix(taken);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if let Some(taken) = ADMIN_PATHS.into_iter().find(|taken| is_below(taken)) {
            findings
                .error(
                    "conflict",
                    format!("`{path}` is `{prefix}`, and the admin listener serves `{taken}`"),
                )
                .at_place(places.get(path), "taken")
                .help("write another path: `/console`");
        }
        if self.recorder.when.is_some() && !self.recorder.enabled {
            let switch = ("admin.console.recorder.enabled", "the flight recorder is turned off");
            findings.warn_turned_off("admin.console.recorder.when", switch, places);
        }
        let path = "admin.console.token";
        if self.token.as_ref().is_some_and(|it| it.expose().len() < TOKEN_BYTES_MIN) {
            findings
                .error(
                    "short-secret",
                    format!("`{path}` has fewer than {TOKEN_BYTES_MIN} characters"),
                )
                .at_place(places.get(path), "too short")
                .help("generate one: `openssl rand -hex 16`");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::ADMIN_PATHS;
    use crate::{Overrides, parse};

    fn problems(console: &str) -> Vec<String> {
        let text = format!("admin: {{console: {console}}}\n");
        let parsed = parse(&text, "starling.yaml", Path::new(""), &Overrides::default(), &|_| None);
        let problems = parsed.err().into_iter().flatten();
        problems.map(|problem| problem.message).collect()
    }

    #[test]
    fn a_condition_of_the_recorder_is_checked_and_needs_a_recorder() {
        let warnings = |recorder: &str| {
            let text = format!("admin: {{console: {{recorder: {recorder}}}}}\n");
            let none = |_: &str| None;
            let parsed = parse(&text, "starling.yaml", Path::new(""), &Overrides::default(), &none);
            let loaded = parsed.unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
            loaded.warnings.into_iter().map(|it| it.message).collect::<Vec<_>>()
        };
        let when = "when: \"operation.name == 'A'\"";
        assert_eq!(warnings(&format!("{{enabled: true, {when}}}")), [""; 0]);
        let expected =
            "`admin.console.recorder.when` has no effect: the flight recorder is turned off";
        assert_eq!(warnings(&format!("{{{when}}}")), [expected]);
        assert_eq!(problems("{recorder: {enabled: true, when: operation.name}}").len(), 1);
    }

    #[test]
    fn a_path_that_the_admin_listener_serves_and_a_short_token_are_refused() {
        for fine in [
            "{path: /}",
            "{path: /admin/}",
            "{path: /admin/console/}",
            "{path: /admin/caches}",
            "{path: /metrics-and-more}",
            "{}",
        ] {
            assert_eq!(problems(fine), [""; 0], "{fine}");
        }
        for taken in ADMIN_PATHS {
            assert_eq!(problems(&format!("{{path: {taken}}}")).len(), 1, "{taken}");
        }
        assert_eq!(problems("{path: /admin/cache/console}").len(), 1);
        let expected =
            "`admin.console.path` is `/metrics`, and the admin listener serves `/metrics`";
        assert_eq!(problems("{path: /metrics/}"), [expected]);
        assert_eq!(problems("{path: /debug/x}").len(), 1);
        let expected = "`admin.console.token` has fewer than 16 characters";
        assert_eq!(problems("{token: 0123456789abcde}"), [expected]);
        assert_eq!(problems("{token: 0123456789abcdef}"), [""; 0]);
    }
}
