//! The server of one subgraph's subscriptions: what all transports know of it.

use std::sync::Arc;
use std::time::Instant;

use astjson::{Document, PathSegment};
use bytes::Bytes;
use events::SourceError;
use telemetry::LogLimit;
use upstream::{LOGGED_CODE_BYTES_MAX, Target};

use crate::latest_headers::LatestHeaders;
use crate::settings::SubscriptionSettings;
use crate::stats::SubscriptionStats;

/// The server of the subscriptions, and everything that its connections share.
#[derive(Debug)]
pub(crate) struct SubscriptionEndpoint {
    /// The name of the source: `subgraph/` and the name of the subgraph.
    pub(crate) source_name: Box<str>,
    pub(crate) target: Target,
    pub(crate) settings: SubscriptionSettings,
    pub(crate) stats: Arc<SubscriptionStats>,
    /// The latest headers of each partition. A client that replaces this one continues with them, so that a reload does
    /// not bring back a token that has expired.
    pub(crate) latest_headers: Arc<LatestHeaders>,
    /// Limits the log lines about failures: a server that fails ends thousands of operations at once, and clients try
    /// again.
    pub(crate) log_limit: LogLimit,
}

impl SubscriptionEndpoint {
    /// Returns the error of a subscription that could not begin.
    pub(crate) fn error(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Subgraph { source_name: self.source_name.clone(), reason: reason.into() }
    }

    /// Returns the error of a subscription that the router itself refuses, which is also logged.
    pub(crate) fn refuse(&self, field: &str, reason: impl Into<String>) -> SourceError {
        let reason = reason.into();
        self.log_failure(field, &reason, &reason);
        self.error(reason)
    }

    /// Writes to the log why a subscription failed, at most one warning in a while. The warning has `shown` in place of
    /// the reason, which may contain text of the subgraph.
    pub(crate) fn log_failure(&self, field: &str, reason: &str, shown: &str) {
        let (source, address) = (&*self.source_name, self.target.address_text());
        tracing::debug!(source, address, field, reason, "a subscription of a subgraph failed");
        let Some(suppressed) = self.log_limit.admit(Instant::now()) else { return };
        let reason = shown;
        tracing::warn!(
            source,
            address,
            field,
            reason,
            suppressed,
            "a subscription of a subgraph failed"
        );
    }

    /// Writes to the log that the subgraph ended a subscription with these errors, a JSON list, at most one line in a
    /// while. Only the code is written: messages may contain variables and tokens.
    pub(crate) fn log_errors(&self, field: &str, errors: &Bytes) {
        let Some(suppressed) = self.log_limit.admit(Instant::now()) else { return };
        let (source, address) = (&*self.source_name, self.target.address_text());
        let code = first_code(errors);
        let code = code.as_deref().unwrap_or("none");
        tracing::warn!(
            source,
            address,
            field,
            code,
            suppressed,
            "a subgraph ended a subscription with errors"
        );
    }
}

/// Returns `extensions.code` of the first of these errors, a JSON list.
fn first_code(errors: &Bytes) -> Option<String> {
    let mut document = Document::new();
    let root = document.parse(errors.clone()).ok()?;
    let path = [PathSegment::Index(0), PathSegment::Key("extensions"), PathSegment::Key("code")];
    let code = document.get_path(root, &path)?;
    let code = document.as_str(code)?;
    Some(code[..code.floor_char_boundary(LOGGED_CODE_BYTES_MAX)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_the_first_error_is_found() {
        let code = |errors: &'static str| first_code(&Bytes::from(errors));
        let first =
            r#"[{"message":"m","extensions":{"code":"A\u0042"}},{"extensions":{"code":"C"}}]"#;
        assert_eq!(code(first).as_deref(), Some("AB"));
        for errors in ["[]", "[1]", "{", r#"[{"message":"m"}]"#, r#"[{"extensions":{"code":1}}]"#] {
            assert_eq!(code(errors), None, "{errors}");
        }
        let long = format!(r#"[{{"extensions":{{"code":"{}"}}}}]"#, "é".repeat(100));
        assert_eq!(first_code(&Bytes::from(long)), Some("é".repeat(50)));
    }
}
