//! The settings of policies, as the caller takes them from the configuration.

use std::time::Duration;

use execute::ClaimPath;
use expressions::CompileError;
use http::{HeaderMap, HeaderName};
use net::TlsClient;
use upstream::TargetError;

use crate::rego_defect::RegoDefect;

/// The rules for policies. A policy that nothing decides is denied.
#[derive(Debug, Default)]
pub struct PolicySettings {
    /// Conditions in CEL, by the name of the policy.
    pub expressions: Vec<(Box<str>, Box<str>)>,
    /// The engine that decides about all policies without a condition.
    pub engine: Option<EngineSettings>,
}

/// An engine that decides about several policies at once.
#[derive(Debug)]
pub enum EngineSettings {
    /// A server.
    DecisionPoint(Box<DecisionPointSettings>),
    /// Rules that this process evaluates.
    Rego(RegoSettings),
}

/// The facts that an engine gets, beside the policies, the method, the path and the application.
#[derive(Debug, Default)]
pub struct InputSettings {
    /// The claims, each with the name by which the engine gets it. Clients with equal ones share decisions.
    pub claims: Vec<(Box<str>, ClaimPath)>,
    /// The headers of the client's request.
    pub headers: Vec<HeaderName>,
    /// True if it gets name, kind and id of the operation.
    pub has_operation: bool,
}

/// A decision point over HTTP with the interface of Open Policy Agent.
#[derive(Debug)]
pub struct DecisionPointSettings {
    /// The URL of the policy document: `http://localhost:8181/v1/data/starling/allow`. Redirections are not followed.
    pub url: Box<str>,
    /// The TLS of connections, for https only.
    pub tls: Option<TlsClient>,
    /// The headers of each request. Secret ones must be marked as sensitive.
    pub headers: HeaderMap,
    /// The facts that the decision point gets.
    pub input: InputSettings,
    /// The time limit of one decision, the wait for its turn included.
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
            headers: HeaderMap::new(),
            input: InputSettings::default(),
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

/// Rules in Rego.
#[derive(Debug)]
pub struct RegoSettings {
    /// The modules with the rules, in Rego version 1.
    pub modules: Vec<RegoFile>,
    /// JSON objects, which rules read as `data`.
    pub data: Vec<RegoFile>,
    /// The path of the rule that decides, such as `data.starling.allow`.
    pub query: Box<str>,
    /// The facts that rules read as `input`.
    pub input: InputSettings,
    /// The time limit of one evaluation.
    pub timeout: Duration,
}

/// A file of rules or data.
#[derive(Debug)]
pub struct RegoFile {
    /// Its name in messages.
    pub name: Box<str>,
    /// Its text.
    pub text: Box<str>,
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
    /// The Rego rules cannot be used.
    #[error(transparent)]
    Rego(#[from] RegoDefect),
}
