//! Settings of the authorization of fields and types by directives of the schema.

use execute::ClaimPath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::MemberPathText;
use super::policies::Policies;

/// The authorization of fields and types by `@authenticated`, `@requiresScopes` and `@policy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Authorization {
    /// The treatment of an operation that selects what its client may not use: `filter` leaves that out, `reject`
    /// refuses the operation.
    #[schemars(example = &"reject")]
    pub mode: AuthorizationMode,

    /// Decides and counts, but enforces nothing: for trying out directives on a graph that is in use. Never leave it on
    /// for a graph with protected data.
    #[schemars(example = true)]
    pub dry_run: bool,

    /// The part of a filtered response that names the places that the client may not use: `errors`, `extensions`
    /// (`extensions.authorizationErrors`), or `none`.
    #[schemars(example = &"extensions")]
    pub errors: AuthorizationErrors,

    /// The claims that contain the scopes of a token, each a text with spaces between scopes or a list of texts. The
    /// scopes of all of them count.
    #[schemars(with = "Vec<MemberPathText>", length(min = 1, max = 8), example = ["scope", "realm_access.roles"])]
    pub scope_claims: Vec<String>,

    /// The decisions about the policies that `@policy` names (`docs/field-authorization.md`). A policy that nothing
    /// decides is denied.
    pub policies: Policies,
}

impl Default for Authorization {
    fn default() -> Self {
        Self {
            mode: AuthorizationMode::Filter,
            dry_run: false,
            errors: AuthorizationErrors::Errors,
            scope_claims: vec!["scope".into(), "scp".into()],
            policies: Policies::default(),
        }
    }
}

impl Authorization {
    /// Returns the claims that contain scopes.
    pub fn scope_claims(&self) -> Vec<ClaimPath> {
        // Each path has been checked, so none is dropped here.
        self.scope_claims.iter().filter_map(|it| ClaimPath::parse(it)).collect()
    }
}

/// The treatment of an operation that selects what its client may not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthorizationMode {
    /// Such fields are null with an error, and nothing is fetched for them.
    Filter,
    /// The operation is refused, and nothing is fetched.
    Reject,
}

/// The part of a response that names the places that the client may not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthorizationErrors {
    /// The `errors` of the response.
    Errors,
    /// The member `authorizationErrors` of `extensions`.
    Extensions,
    /// No part: the values are null without a reason.
    None,
}
