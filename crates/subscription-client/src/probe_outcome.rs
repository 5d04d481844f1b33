//! The result of a probe: whether the subgraph serves subscriptions in the way that is configured.

/// The result of a probe that found no mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeOutcome {
    /// The subgraph accepts subscriptions by the protocol.
    Proven,
    /// The subgraph responds to GraphQL requests. Only a subscription can show the rest.
    Unproven {
        /// The reason, for people.
        reason: &'static str,
    },
}

/// The reason why a probe failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct ProbeError {
    /// The reason, for people.
    pub reason: String,
    /// True if the subgraph refused the probe because of what it could not know here, such as a client's token.
    pub needs_credentials: bool,
}

impl ProbeError {
    /// Returns an error that is not about credentials.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), needs_credentials: false }
    }
}
