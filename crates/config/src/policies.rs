//! Settings of the decisions about policies (`@policy`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use execute::ClaimPath;
use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::findings::{Findings, KeyPlaces};
use super::format::{
    DurationOrZeroText, DurationText, FileText, HeaderNameText, HttpUrlText, MemberPathText,
    OperationConditionText, RegoRuleText, SizeText,
};
use super::headers::{HeaderInsertion, HeaderInsertionKeys, header_names};
use super::quantity;
use super::token_consistency::is_remote_without_tls;

/// The decisions about policies. A policy with an expression is decided by it, all others by the Rego rules or the
/// decision point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Policies {
    /// Conditions, by the name of the policy. They may use `request`, `client`, `claims` and `operation`. If a
    /// condition cannot be evaluated, for example because a claim is absent, the policy is denied.
    #[schemars(with = "BTreeMap<String, OperationConditionText>")]
    #[schemars(example = serde_json::json!({"residents": "claims.?country.orValue('') == 'NL'"}))]
    pub expressions: BTreeMap<String, Expression>,

    /// The facts that Rego rules and decision points get as `input`, beside the policies, the method and path of the
    /// request, and the application. Clients with equal facts share decisions.
    pub input: PolicyInput,

    /// A server that decides, with the interface of Open Policy Agent. All policies of an operation are in one request.
    /// While it cannot be reached, the policies are denied.
    pub decision_point: Option<DecisionPoint>,

    /// Rules in Rego that the router evaluates itself. Needs the feature `rego` of the build.
    pub rego: Option<Rego>,
}

/// The facts about a request that decide about policies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyInput {
    /// The claims of the token, under these names in `input.claims`. An anonymous client has none: `null`.
    #[schemars(with = "Vec<MemberPathText>", length(max = 64), example = ["sub", "realm_access.roles"])]
    pub claims: Vec<String>,

    /// The headers of the client's request, in `input.request.headers`.
    #[serde(with = "header_names")]
    #[schemars(with = "Vec<HeaderNameText>", length(max = 64), example = ["x-tenant"])]
    pub headers: Vec<HeaderName>,

    /// Name, kind and id of the operation, in `input.operation`. Decisions about one operation do not hold for another
    /// then.
    #[schemars(example = true)]
    pub operation: bool,
}

/// A server with the interface of Open Policy Agent: `POST` of `{"input": …}`, and a response with the decisions in
/// `result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionPoint {
    /// The URL of the policy document. Redirections are not followed.
    #[schemars(with = "HttpUrlText", example = &"http://localhost:8181/v1/data/starling/allow")]
    pub url: String,

    /// Headers of each request, such as one with a token.
    #[serde(default)]
    #[schemars(with = "Vec<HeaderInsertionKeys>", length(max = 16))]
    #[schemars(example = [serde_json::json!({"name": "authorization", "value": "Bearer ${OPA_TOKEN}"})])]
    pub headers: Vec<HeaderInsertion>,

    /// The time limit of one decision, the wait for its turn included. After it the policies are denied.
    #[serde(default = "timeout_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"200ms")]
    pub timeout: Duration,

    /// The maximum size of a response.
    #[serde(default = "max_size_default", with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"16KiB")]
    pub max_size: usize,

    /// The maximum number of requests at the same time. Further ones wait, for `timeout` at most.
    #[serde(default = "max_concurrent_default")]
    #[schemars(range(min = 1, max = 10_000), example = 8)]
    pub max_concurrent: u32,

    /// The cache of decisions.
    #[serde(default)]
    pub cache: DecisionCache,

    /// The certificate authorities that may have signed the server's certificate, in PEM. They replace those that the
    /// system trusts.
    #[serde(default)]
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,
}

/// The cache of decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DecisionCache {
    /// The time for which a decision holds for requests with equal facts. A right that is withdrawn is still granted
    /// for this time. `0s`: each request is decided anew.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"1s")]
    pub ttl: Duration,

    /// The maximum number of decisions in the cache, at about 200 bytes each.
    #[schemars(range(min = 16, max = 10_000_000), example = 100_000)]
    pub entries: usize,
}

/// Rules in Rego.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rego {
    /// The files with the rules, in Rego version 1, at most 1 MiB each. They are read at the start.
    #[schemars(with = "Vec<FileText>", length(min = 1, max = 64), example = ["policies/starling.rego"])]
    pub files: Vec<PathBuf>,

    /// Files with JSON objects, which rules read as `data`.
    #[serde(default)]
    #[schemars(with = "Vec<FileText>", length(max = 64), example = ["policies/departments.json"])]
    pub data: Vec<PathBuf>,

    /// The rule that decides. Its value is the set of the allowed policies among `input.policies`, or an object with a
    /// truth value for each.
    #[schemars(with = "RegoRuleText", example = &"data.starling.allow")]
    pub query: String,

    /// The time limit of one evaluation. After it the policies are denied.
    #[serde(default = "evaluation_timeout_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"20ms")]
    pub timeout: Duration,
}

impl Default for DecisionCache {
    fn default() -> Self {
        Self {
            // Changed rights apply within seconds, and a busy client costs one request in that time.
            ttl: Duration::from_secs(5),
            entries: 16_384,
        }
    }
}

impl PolicyInput {
    /// Returns the claims, each with its name.
    pub fn claims(&self) -> Vec<(Box<str>, ClaimPath)> {
        // Each path has been checked, so none is dropped here.
        let claims = self.claims.iter();
        claims.filter_map(|name| Some((name.as_str().into(), ClaimPath::parse(name)?))).collect()
    }
}

impl Policies {
    /// True if something decides about policies.
    pub fn is_configured(&self) -> bool {
        !self.expressions.is_empty() || self.has_engine()
    }

    /// True if there is a decision point or rules, which get [`Policies::input`].
    pub fn has_engine(&self) -> bool {
        self.decision_point.is_some() || self.rego.is_some()
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        let ca = self.decision_point.iter_mut().filter_map(|it| it.ca.as_mut());
        let rego = self.rego.iter_mut().flat_map(|it| it.files.iter_mut().chain(&mut it.data));
        for path in ca.chain(rego) {
            *path = folder.join(&*path);
        }
    }

    /// Reports settings that exclude each other, have no effect, or are not safe.
    pub(super) fn check(&self, places: &KeyPlaces, findings: &mut Findings) {
        let path = "authorization.policies";
        let place = |key: &str| places.get(&format!("{path}.{key}"));
        if self.decision_point.is_some() && self.rego.is_some() {
            findings
                .error("conflict", format!("`{path}` has both `rego` and `decision_point`"))
                .at_place(place("rego"), "decides about all policies without an expression")
                .related_place(place("decision_point"), "decides about the same policies")
                .help("remove one of them");
        }
        if self.input != PolicyInput::default() && !self.has_engine() {
            findings
                .warning("no-effect", format!("`{path}.input` has no effect"))
                .at_place(place("input"), "nothing gets it")
                .help("remove it: expressions name what they read themselves");
        }
        let url = self.decision_point.as_ref().map_or("", |it| &it.url);
        if is_remote_without_tls(url) {
            findings
                .warning(
                    "not-secure",
                    format!("`{path}.decision_point.url` is requested without TLS"),
                )
                .at_place(
                    place("decision_point.url"),
                    "an attacker on the network can read claims, and grant any policy",
                )
                .help("write `https://`");
        }
    }
}

fn timeout_default() -> Duration {
    Duration::from_millis(500)
}

/// The default maximum size: the decisions of some thousand policies.
fn max_size_default() -> usize {
    64 << 10
}

/// The default number of requests at the same time: 6,000 new decisions a second at five milliseconds each.
fn max_concurrent_default() -> u32 {
    32
}

/// The default time of an evaluation. Rules that look up a role take 20 µs; the rest is for a thread that gets no
/// processor for a moment.
fn evaluation_timeout_default() -> Duration {
    Duration::from_millis(100)
}
