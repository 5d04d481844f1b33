//! Settings of AWS Signature Version 4, for subgraphs behind AWS, and for a supergraph in a bucket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::SecretText;
use super::secret::Secret;
use super::subgraph_subscription::QueryTransport;

/// The variables of the environment that the tools of AWS use for credentials.
const ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";

/// Signatures of AWS (Signature Version 4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsSigv4 {
    /// The region of the service.
    #[schemars(length(min = 1, max = 64), example = &"eu-central-1")]
    pub region: String,

    /// The name of the service as it signs: `appsync`, `execute-api` (API Gateway), `lambda` (function URLs),
    /// `vpc-lattice-svcs`, `s3` (for a supergraph).
    #[schemars(length(min = 1, max = 64), example = &"appsync")]
    pub service: String,

    /// The id of the access key. Without this and `secret_access_key`, the credentials are those of the environment
    /// variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, read at each load (those of
    /// `supergraph.url`: at the start).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), length(min = 1, max = 128), example = &"${REVIEWS_KEY_ID}")]
    pub access_key_id: Option<String>,

    /// The secret of the access key.
    #[serde(default)]
    #[schemars(with = "Option<SecretText>", example = &"${REVIEWS_SECRET_KEY}")]
    pub secret_access_key: Option<Secret>,

    /// The token of temporary credentials. They end at a time that AWS sets, and the router does not renew them.
    #[serde(default)]
    #[schemars(with = "Option<SecretText>", example = &"${REVIEWS_SESSION_TOKEN}")]
    pub session_token: Option<Secret>,
}

/// Credentials for signatures of AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsCredentials {
    /// The id of the access key.
    pub access_key_id: String,
    /// The secret of the access key.
    pub secret_access_key: Secret,
    /// The token of temporary credentials.
    pub session_token: Option<Secret>,
}

impl AwsSigv4 {
    /// Returns the credentials of the configuration, or else those of the environment.
    ///
    /// # Errors
    /// The name of the variable that is missing.
    pub fn credentials(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<AwsCredentials, &'static str> {
        if let (Some(id), Some(secret)) = (&self.access_key_id, &self.secret_access_key) {
            return Ok(AwsCredentials {
                access_key_id: id.clone(),
                secret_access_key: secret.clone(),
                session_token: self.session_token.clone(),
            });
        }
        let variable = |name| environment(name).filter(|value| !value.is_empty());
        Ok(AwsCredentials {
            access_key_id: variable(ACCESS_KEY_ID).ok_or(ACCESS_KEY_ID)?,
            secret_access_key: variable(SECRET_ACCESS_KEY)
                .map(Secret::new)
                .ok_or(SECRET_ACCESS_KEY)?,
            session_token: variable(SESSION_TOKEN).map(Secret::new),
        })
    }

    /// Reports half of a key, and a transport of queries that carries no signatures. `path` is the key of the subgraph.
    pub(super) fn check(
        &self,
        path: &str,
        queries_over: QueryTransport,
        places: &KeyPlaces,
        findings: &mut Findings,
    ) {
        let key = format!("{path}.aws_sigv4");
        let is_half = match (&self.access_key_id, &self.secret_access_key) {
            (Some(_), None) => Some("secret_access_key"),
            (None, Some(_)) => Some("access_key_id"),
            // A token belongs to the key that it was made with.
            (None, None) if self.session_token.is_some() => Some("access_key_id"),
            _ => None,
        };
        if let Some(missing) = is_half {
            findings
                .error("conflict", format!("`{key}` has no `{missing}`"))
                .at_place(places.get(&key), "is incomplete")
                .help(format!(
                    "set `{missing}`, or none of the credentials: then those of the environment are used \
                     (`{ACCESS_KEY_ID}`, `{SECRET_ACCESS_KEY}`, `{SESSION_TOKEN}`)"
                ));
        }
        if queries_over == QueryTransport::Websocket {
            findings
                .error("conflict", format!("`{key}` signs requests over HTTP only"))
                .at_place(places.get(&key), "has no effect")
                .related_place(
                    places.get(&format!("{path}.queries_over")),
                    "messages have no headers",
                )
                .help("remove `queries_over`, or the signature");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_come_from_the_configuration_or_else_the_environment() {
        let settings = AwsSigv4 {
            region: "r".into(),
            service: "s".into(),
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
        };
        let environment = |name: &str| match name {
            ACCESS_KEY_ID => Some("id".to_owned()),
            SECRET_ACCESS_KEY => Some("secret".to_owned()),
            _ => Some(String::new()),
        };
        let found = settings.credentials(environment).unwrap();
        assert_eq!((&*found.access_key_id, found.session_token), ("id", None));
        let missing = |name: &str| environment(name).filter(|_| name == ACCESS_KEY_ID);
        assert_eq!(settings.credentials(missing), Err(SECRET_ACCESS_KEY));
        let settings = AwsSigv4 {
            access_key_id: Some("own".into()),
            secret_access_key: Some(Secret::new("x")),
            ..settings
        };
        let found = settings.credentials(environment).unwrap();
        assert_eq!((&*found.access_key_id, found.secret_access_key.expose()), ("own", "x"));
    }
}
