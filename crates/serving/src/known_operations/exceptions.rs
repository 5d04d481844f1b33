//! Exceptions from `persisted_documents.mode`: the conditions under which a request may send an operation that is not a
//! document.

use clients::request_source::RequestSource;
use config::Config;
use config::diagnostic::Diagnostic;
use execute::{ClaimPath, Claims};
use expressions::{ClaimFacts, Expected, Program, Scope};
use http::HeaderMap;

use crate::expression_stats::ExpressionStats;
use crate::request_facts::{NeededFacts, compile, request_facts};

/// The conditions of `persisted_documents.exceptions`, compiled.
#[derive(Debug, Default)]
pub struct DocumentExceptions {
    /// The conditions, each with its path in the configuration.
    conditions: Vec<(Box<str>, Program)>,
    needed: NeededFacts,
}

impl DocumentExceptions {
    /// Compiles the conditions of a configuration.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub(crate) fn new(config: &Config) -> Result<Self, Box<Diagnostic>> {
        let mut conditions: Vec<(Box<str>, Program)> = Vec::new();
        for (index, exception) in config.persisted_documents.exceptions.iter().enumerate() {
            let setting = format!("persisted_documents.exceptions[{index}].when");
            let program = compile(&setting, &exception.when, Scope::REQUEST, Expected::Condition)?;
            conditions.push((setting.into(), program));
        }
        let programs = conditions.iter().map(|(_, program)| program);
        let needed = NeededFacts::of(programs, &config.client_info);
        Ok(Self { conditions, needed })
    }

    /// Returns the claims that the conditions read.
    pub(crate) fn claims(&self) -> &[ClaimPath] {
        &self.needed.claims
    }

    /// True if any condition holds. One that cannot be evaluated makes no exception.
    pub(crate) fn apply_to(
        &self,
        source: RequestSource<'_>,
        headers: &HeaderMap,
        claims: Option<&Claims>,
        stats: &ExpressionStats,
    ) -> bool {
        if self.conditions.is_empty() {
            return false;
        }
        let claims = Claims::select(claims, &self.needed.claims);
        let claims = ClaimFacts::Selected(&claims);
        let facts = request_facts(source, headers, claims, self.needed.client_info.as_ref());
        self.conditions.iter().any(|(setting, condition)| {
            condition.is_true(&facts).unwrap_or_else(|error| {
                stats.count_exception_failure(setting, &error);
                false
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use clients::request_source::ConnectionOrigin;
    use config::{DocumentException, Expression};

    use super::*;

    fn exceptions(conditions: &[&str]) -> DocumentExceptions {
        let mut config = Config::default();
        let when = conditions.iter().map(|it| DocumentException { when: Expression::new(*it) });
        config.persisted_documents.exceptions = when.collect();
        DocumentExceptions::new(&config).unwrap_or_else(|error| panic!("{}", error.message))
    }

    #[test]
    fn any_condition_makes_an_exception_and_a_failure_makes_none() {
        let stats = ExpressionStats::default();
        let origin = ConnectionOrigin::default();
        let source =
            RequestSource { method: "POST", ..RequestSource::of_websocket("/graphql", origin) };
        let mut headers = HeaderMap::new();
        headers.insert("graphql-client-name", http::HeaderValue::from_static("console"));
        let claims = Claims::new(r#"{"role":"developer"}"#.into());
        let applies = |conditions: &[&str], claims: Option<&Claims>| {
            exceptions(conditions).apply_to(source, &headers, claims, &stats)
        };
        assert!(!applies(&[], claims.as_ref()));
        assert!(applies(&["claims.role == 'developer'"], claims.as_ref()));
        assert!(applies(&["false", "client.name == 'console'"], None));
        assert!(!applies(&["false", "client.name == 'web'"], claims.as_ref()));
        assert_eq!(telemetry::read(&stats.exception_failures), 0);
        assert!(!applies(&["claims.role == 'developer'"], None), "an absent claim");
        assert!(applies(&["claims.role == 'developer'", "true"], None));
        assert_eq!(telemetry::read(&stats.exception_failures), 2);
    }
}
