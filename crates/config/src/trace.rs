//! Settings of the trace that clients can request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::findings::{Findings, KeyPlaces};
use super::format::OperationConditionText;

/// The trace of a request in `extensions.trace` of its response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trace {
    /// Adds the trace to the response of requests with the header `starling-trace: 1`. With `starling-trace: execute`
    /// the operation is executed also if its response is in memory. On a WebSocket the header of the handshake counts.
    /// The trace contains names of subgraphs and texts of requests to them, so name the clients that get it by `when`,
    /// or do not turn it on for untrusted clients.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The condition under which a request with the header gets a trace; by default it always does. It may use
    /// `request`, `client`, `claims` and `operation`. If it is false or cannot be evaluated, for example because a
    /// claim is absent, the header has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<OperationConditionText>", example = &"claims.?role.orValue('') == 'developer'")]
    pub when: Option<Expression>,

    /// The contents of requests to subgraphs in the trace. It has at most 1 MiB of them; further requests have only
    /// their times and sizes.
    pub fetches: TraceFetches,
}

/// The contents of requests to subgraphs in a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TraceFetches {
    /// The text of each request.
    #[schemars(example = &"none")]
    pub text: FetchText,

    /// Adds the variables of each request, with the values of the client and the keys of entities. They may be secrets
    /// and personal data.
    #[schemars(example = true)]
    pub variables: bool,
}

/// The text of a request to a subgraph in a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FetchText {
    /// The text, with its strings and numbers replaced.
    #[default]
    Redacted,
    /// The text as it is sent.
    Full,
    /// No text.
    None,
}

impl TraceFetches {
    /// True if a trace has anything of the contents.
    pub fn shows_contents(self) -> bool {
        self.text != FetchText::None || self.variables
    }
}

impl Trace {
    /// Warns about keys without effect.
    pub(super) fn check_switch(&self, places: &KeyPlaces, findings: &mut Findings) {
        if self.enabled {
            return;
        }
        let has_contents = self.fetches != TraceFetches::default();
        let unused = [("when", self.when.is_some()), ("fetches", has_contents)];
        for (key, _) in unused.into_iter().filter(|(_, is_set)| *is_set) {
            let switch = ("trace.enabled", "traces in responses are turned off");
            findings.warn_turned_off(&format!("trace.{key}"), switch, places);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Expression, FetchText, LoadedConfig, Overrides, TraceFetches, parse};

    fn loaded(text: &str) -> LoadedConfig {
        let parsed = parse(text, "starling.yaml", Path::new(""), &Overrides::default(), &|_| None);
        parsed.unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
    }

    #[test]
    fn a_condition_is_read_and_has_no_effect_without_traces() {
        let on = loaded("trace: {enabled: true, when: client.name == 'studio'}\n");
        assert_eq!(on.config.trace.when, Some(Expression::new("client.name == 'studio'")));
        assert!(on.warnings.is_empty(), "{:?}", on.warnings);
        let off = loaded("trace: {when: 'true', fetches: {text: none}}\n");
        let messages: Vec<_> = off.warnings.iter().map(|it| &*it.message).collect();
        let expected = ["when", "fetches"]
            .map(|key| format!("`trace.{key}` has no effect: traces in responses are turned off"));
        assert_eq!(messages, expected);
    }

    #[test]
    fn by_default_a_trace_has_redacted_texts_and_no_variables() {
        let fetches = |text: &str| loaded(text).config.trace.fetches;
        let default = TraceFetches { text: FetchText::Redacted, variables: false };
        assert_eq!(fetches("trace: {enabled: true}\n"), default);
        let full = fetches("trace: {enabled: true, fetches: {text: full, variables: true}}\n");
        assert_eq!(full, TraceFetches { text: FetchText::Full, variables: true });
        let none = fetches("trace: {enabled: true, fetches: {text: none}}\n");
        assert!(!none.shows_contents() && full.shows_contents() && default.shows_contents());
    }

    #[test]
    fn a_condition_that_is_no_condition_is_refused() {
        for wrong in ["client.name", "operation.nome == ''", "1 +"] {
            let text = format!("trace: {{enabled: true, when: \"{wrong}\"}}\n");
            let none = |_: &str| None;
            let parsed = parse(&text, "starling.yaml", Path::new(""), &Overrides::default(), &none);
            assert!(parsed.is_err(), "{wrong}");
        }
    }
}
