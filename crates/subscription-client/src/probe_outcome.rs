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
    /// The kind of the failure.
    pub kind: ProbeErrorKind,
}

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeErrorKind {
    /// The subgraph cannot be reached, or does not serve subscriptions by this protocol.
    Unusable,
    /// The subgraph requires what is not known here, such as a client's token.
    NeedsCredentials,
    /// The subgraph could not send a callback, because of its network or because no router runs there.
    CallbackFailed,
    /// A subgraph with callbacks did not respond in time. It may be slow, or wait for the response to a callback that
    /// never arrives at the router.
    CallbackTimeout,
}

impl ProbeError {
    /// Returns an error of the kind [`ProbeErrorKind::Unusable`].
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind: ProbeErrorKind::Unusable }
    }
}
