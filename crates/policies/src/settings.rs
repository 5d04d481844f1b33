//! The settings of policies, as the caller takes them from the configuration.

use std::time::Duration;

use execute::ClaimPath;
use expressions::CompileError;
use http::{HeaderName, HeaderValue};
use net::TlsClient;
use upstream::TargetError;

/// The rules for policies. A policy that nothing decides is denied.
#[derive(Debug, Default)]
pub struct PolicySettings {
    /// Conditions in CEL, by the name of the policy.
    pub expressions: Vec<(Box<str>, Box<str>)>,
    /// The decision point for all policies without a condition.
    pub decision_point: Option<DecisionPointSettings>,
}

/// A decision point over HTTP with the interface of Open Policy Agent.
#[derive(Debug)]
pub struct DecisionPointSettings {
    /// The URL of the policy document: `http://localhost:8181/v1/data/starling/allow`. Redirections are not followed.
    pub url: Box<str>,
    /// The TLS of connections, for https only.
    pub tls: Option<TlsClient>,
    /// The value of `authorization`, if the decision point wants one. It must be marked as sensitive.
    pub authorization: Option<HeaderValue>,
    /// The claims that the decision point gets, each with the name by which it gets it. Clients with equal ones share
    /// decisions.
    pub claims: Vec<(Box<str>, ClaimPath)>,
    /// The headers of the client's request that the decision point gets.
    pub headers: Vec<HeaderName>,
    /// True if it gets name, kind and id of the operation.
    pub has_operation: bool,
    /// The time limit of one request, and of the wait for its turn before it.
    pub timeout: Duration,
    /// The maximum size of a response.
    pub response_bytes_max: usize,
    /// The maximum number of requests at the same time.
    pub concurrency_max: usize,
    /// The time for which a decision holds for an equal question; zero: each request is decided anew.
    pub ttl: Duration,
    /// The maximum number of cached decisions.
    pub cache_entries_max: usize,
}

impl DecisionPointSettings {
    /// Creates the settings of a decision point without TLS, which gets no facts but the policies, the path and the
    /// application.
    pub fn new(url: impl Into<Box<str>>) -> Self {
        Self {
            url: url.into(),
            tls: None,
            authorization: None,
            claims: Vec::new(),
            headers: Vec::new(),
            has_operation: false,
            timeout: Duration::from_millis(500),
            // The decisions of some thousand policies.
            response_bytes_max: 64 << 10,
            // 6,000 new questions a second at five milliseconds each.
            concurrency_max: 32,
            // Changed rights apply within seconds, and a busy client costs one request in that time.
            ttl: Duration::from_secs(5),
            // At about 200 bytes each.
            cache_entries_max: 16_384,
        }
    }
}

/// The reason why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnusablePolicies {
    /// The condition of a policy has a mistake.
    #[error("policy `{policy}`: {}", error.message)]
    Expression {
        /// The name of the policy.
        policy: Box<str>,
        /// The mistake.
        error: CompileError,
    },
    /// The URL of the decision point cannot be used.
    #[error("the URL of the decision point: {0}")]
    Url(#[from] TargetError),
}
