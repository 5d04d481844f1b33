//! The question which of its policies an operation meets: the names, with the facts about the request that decide.

use std::sync::Arc;

use clients::authentication::Identity;
use clients::request_source::RequestSource;
use config::ClientInfoHeaders;
use execute::{ClaimPath, ClaimValues, Claims};
use expressions::{ClaimFacts, OperationFacts, RequestFacts};
use graph::Alternatives;
use http::HeaderMap;
use plan::OperationKind;
use policies::PolicyDecider;
use prepare::AccessFacts;

use crate::request_facts::request_facts;

/// A request of a client that access is decided for.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    /// The facts about the operation.
    pub operation: &'a AccessFacts,
    /// The client.
    pub identity: &'a Identity,
    /// The headers of the client.
    pub headers: &'a HeaderMap,
    /// The source of the request.
    pub source: RequestSource<'a>,
}

/// The decider of policies, and the facts that it reads.
#[derive(Debug)]
pub(crate) struct PolicyQuestions {
    decider: Arc<PolicyDecider>,
    /// The claims that decisions may depend on.
    claims: Vec<ClaimPath>,
    /// The headers with name and version of the application, if decisions may depend on those.
    client_info: Option<ClientInfoHeaders>,
    reads_operation: bool,
}

/// The policies that allow a request, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct AllowedPolicies<'a>(Vec<&'a str>);

impl AllowedPolicies<'_> {
    /// True if this policy allows the request.
    pub(crate) fn allow(&self, policy: &str) -> bool {
        self.0.binary_search(&policy).is_ok()
    }
}

impl PolicyQuestions {
    /// Prepares questions to this decider.
    pub(crate) fn new(decider: &Arc<PolicyDecider>, client_info: &ClientInfoHeaders) -> Self {
        Self {
            claims: decider.claims(),
            client_info: decider.reads_client().then(|| client_info.clone()),
            reads_operation: decider.reads_operation(),
            decider: Arc::clone(decider),
        }
    }

    /// Asks about all policies in these sets at once.
    pub(crate) async fn ask<'a>(
        &self,
        sets: impl Iterator<Item = &'a Alternatives>,
        request: AccessRequest<'_>,
    ) -> AllowedPolicies<'a> {
        let mut names: Vec<&str> = sets.flatten().flatten().map(|name| &**name).collect();
        names.sort_unstable();
        names.dedup();
        let AccessRequest { operation, identity, headers, source } = request;
        let claims: ClaimValues;
        let claims = match identity.claims() {
            None => ClaimFacts::Anonymous,
            Some(all) => {
                claims = Claims::select(Some(all), &self.claims);
                ClaimFacts::Selected(&claims)
            }
        };
        let id = match self.reads_operation {
            true => format!("{:032x}", operation.operation_id),
            false => String::new(),
        };
        let facts = RequestFacts {
            operation: Some(OperationFacts {
                name: operation.name.as_deref().unwrap_or_default(),
                kind: match operation.kind {
                    OperationKind::Query => "query",
                    OperationKind::Mutation => "mutation",
                    OperationKind::Subscription => "subscription",
                },
                id: &id,
                depth: Some(operation.depth),
                cost: None,
            }),
            ..request_facts(source, headers, claims, self.client_info.as_ref())
        };
        let mut decisions = self.decider.decide(&names, &facts).await.into_iter();
        // There is a decision for each name.
        names.retain(|_| decisions.next().unwrap_or(false));
        AllowedPolicies(names)
    }
}
