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
    /// The trace contains names of subgraphs, so name the clients that get it by `when`, or do not turn it on for
    /// untrusted clients.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The condition under which a request with the header gets a trace; by default it always does. It may use
    /// `request`, `client`, `claims` and `operation`. If it is false or cannot be evaluated, for example because a
    /// claim is absent, the header has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<OperationConditionText>", example = &"claims.?role.orValue('') == 'developer'")]
    pub when: Option<Expression>,
}

impl Trace {
    /// Warns about keys without effect.
    pub(super) fn check_switch(&self, places: &KeyPlaces, findings: &mut Findings) {
        if self.enabled || self.when.is_none() {
            return;
        }
        findings
            .warning("no-effect", "`trace.when` has no effect: traces in responses are turned off")
            .at_place(places.get("trace.when"), "not used")
            .related_place(places.get("trace.enabled"), "turned off here")
            .help("write `enabled: true`, or remove the key");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Expression, LoadedConfig, Overrides, parse};

    fn loaded(text: &str) -> LoadedConfig {
        let parsed = parse(text, "starling.yaml", Path::new(""), &Overrides::default(), &|_| None);
        parsed.unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
    }

    #[test]
    fn a_condition_is_read_and_has_no_effect_without_traces() {
        let on = loaded("trace: {enabled: true, when: client.name == 'studio'}\n");
        assert_eq!(on.config.trace.when, Some(Expression::new("client.name == 'studio'")));
        assert!(on.warnings.is_empty(), "{:?}", on.warnings);
        let off = loaded("trace: {when: 'true'}\n");
        let messages: Vec<_> = off.warnings.iter().map(|it| &*it.message).collect();
        assert_eq!(
            messages,
            ["`trace.when` has no effect: traces in responses are turned off"]
        );
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
