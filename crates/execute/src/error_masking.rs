//! The errors and headers of subgraphs that clients see beside the data.

use std::sync::Arc;

use graph::SubgraphId;
use http::HeaderMap;

use crate::{ErrorCode, GraphqlError};

/// The parts of subgraph responses that one generation discloses beside the data. By default these
/// are the message and the code of every error, and no header.
#[derive(Clone, Default)]
pub struct Disclosure {
    /// Subgraphs whose error messages are hidden from clients: a fixed text replaces them. Codes
    /// are always passed on.
    pub hidden_errors: Vec<SubgraphId>,
    /// Exceptions for single errors, by their code and message. The first one that fits an error decides.
    pub error_rules: Vec<ErrorRule>,
    /// Members of a subgraph error's `extensions` that reach clients, beside `code`.
    pub error_extensions: Vec<Box<str>>,
    /// True if an error with a replaced message names its subgraph.
    pub names_subgraphs: bool,
    /// The rules for headers of responses that reach the client.
    pub headers: Option<Arc<dyn ResponseHeaders>>,
    /// Subgraphs whose responses may carry values for one client only, such as a cookie. No two
    /// clients may share them.
    pub personal: Vec<SubgraphId>,
    /// Where a response says which of its places the client may not use.
    pub denied_places: DeniedPlaces,
}

/// A condition on the message of an error.
pub type MessageCondition = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Decides about the messages of some errors of subgraphs.
#[derive(Clone)]
pub struct ErrorRule {
    /// The subgraphs; `None` for all.
    pub subgraphs: Option<Vec<SubgraphId>>,
    /// The codes; empty for all.
    pub codes: Vec<Box<str>>,
    /// The condition on the message; `None` for all messages.
    pub matches: Option<MessageCondition>,
    /// The decision.
    pub message: MessageRule,
}

/// The message that clients see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageRule {
    /// That of the error.
    Show,
    /// A fixed text.
    Hide,
    /// This text.
    Replace(Box<str>),
}

impl ErrorRule {
    fn fits(&self, subgraph: SubgraphId, code: Option<&str>, message: &str) -> bool {
        let has_code = || self.codes.iter().any(|known| code == Some(&**known));
        self.subgraphs.as_ref().is_none_or(|it| it.contains(&subgraph))
            && (self.codes.is_empty() || has_code())
            && self.matches.as_ref().is_none_or(|matches| matches(message))
    }
}

/// The part of a response that names the places that the client may not use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeniedPlaces {
    /// `errors`.
    #[default]
    Errors,
    /// `extensions.authorizationErrors`.
    Extensions,
    /// None: the values are null without a reason.
    Nowhere,
}

/// Rules for the headers of subgraphs' responses. Implemented where the configuration is known.
pub trait ResponseHeaders: Send + Sync {
    /// Adds the parts of `response`, the headers of one response of `subgraph`, that reach the
    /// client. Called in the order of the plan, not of the responses' arrival.
    fn collect(&self, subgraph: SubgraphId, response: &HeaderMap, collected: &mut HeaderMap);
}

impl Disclosure {
    /// Decides about the message of an error in a request to this subgraph. `code` is the code that clients see.
    pub fn message_rule(
        &self,
        subgraph: SubgraphId,
        code: Option<&str>,
        message: &str,
    ) -> &MessageRule {
        let mut rules = self.error_rules.iter();
        match rules.find(|rule| rule.fits(subgraph, code, message)) {
            Some(rule) => &rule.message,
            None if self.hidden_errors.contains(&subgraph) => &MessageRule::Hide,
            None => &MessageRule::Show,
        }
    }

    /// True if no message of this subgraph's errors can be hidden.
    pub fn shows_all_errors(&self, subgraph: SubgraphId) -> bool {
        self.error_rules.is_empty() && !self.hidden_errors.contains(&subgraph)
    }

    /// True if several clients may share a response of this subgraph.
    pub fn may_share(&self, subgraph: SubgraphId) -> bool {
        !self.personal.contains(&subgraph)
    }
}

impl std::fmt::Debug for Disclosure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Disclosure")
            .field("hidden_errors", &self.hidden_errors)
            .field("error_rules", &self.error_rules.len())
            .field("error_extensions", &self.error_extensions)
            .field("names_subgraphs", &self.names_subgraphs)
            .field("headers", &self.headers.is_some())
            .field("personal", &self.personal)
            .field("denied_places", &self.denied_places)
            .finish()
    }
}

/// Replaces the message of an error by `replacement`, or by a fixed text. The code, the path and the allowed extensions
/// stay; the name of the subgraph stays only if `subgraph` repeats it.
pub(crate) fn mask_error(
    error: GraphqlError,
    subgraph: Option<&str>,
    is_mutation: bool,
    replacement: Option<&str>,
) -> GraphqlError {
    let named = |before: &str, after: &str| match subgraph {
        Some(name) => format!("{before} \"{name}\" {after}"),
        None => format!("A {} {after}", before.to_ascii_lowercase()),
    };
    let mut message = match error.code {
        _ if replacement.is_some() => replacement.unwrap_or_default().to_owned(),
        ErrorCode::DownstreamServiceError => named("Subgraph", "reported an error."),
        ErrorCode::Timeout => named("Subgraph", "did not respond in time."),
        ErrorCode::SubgraphUnavailable => named("Subgraph", "is not available."),
        _ => match subgraph {
            Some(name) => format!("A request to subgraph \"{name}\" failed."),
            None => "A request to a subgraph failed.".to_owned(),
        },
    };
    // The client must know this in any case: repeating the request may repeat its effect.
    if error.code == ErrorCode::Timeout && is_mutation {
        message.push_str(" The mutation may have taken effect.");
    }
    let subgraph = subgraph.and(error.subgraph);
    GraphqlError {
        extensions: error.extensions,
        subgraph,
        ..GraphqlError::new(error.code, message).at(error.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathSegment;

    fn masked(code: ErrorCode, subgraph: Option<&str>, is_mutation: bool) -> GraphqlError {
        let mut error = GraphqlError::new(code, "SELECT * FROM users failed at 10.0.0.7");
        error.path = vec![PathSegment::Key("a".into())];
        error.extensions = Some(r#"{"code":"OUT_OF_STOCK"}"#.into());
        error.subgraph = Some("stock".into());
        mask_error(error, subgraph, is_mutation, None)
    }

    #[test]
    fn a_masked_error_keeps_code_path_and_allowed_extensions_but_not_its_message() {
        let error = masked(ErrorCode::DownstreamServiceError, None, false);
        assert_eq!(error.message, "A subgraph reported an error.");
        assert_eq!(error.subgraph, None);
        assert_eq!(error.path.len(), 1);
        assert_eq!(error.extensions.as_deref(), Some(r#"{"code":"OUT_OF_STOCK"}"#));
    }

    #[test]
    fn a_masked_error_names_the_subgraph_only_if_configured() {
        for (code, unnamed, named) in [
            (
                ErrorCode::DownstreamServiceError,
                "A subgraph reported an error.",
                "Subgraph \"stock\" reported an error.",
            ),
            (
                ErrorCode::SubgraphRequestFailed,
                "A request to a subgraph failed.",
                "A request to subgraph \"stock\" failed.",
            ),
            (
                ErrorCode::Timeout,
                "A subgraph did not respond in time. The mutation may have taken effect.",
                "Subgraph \"stock\" did not respond in time. The mutation may have taken effect.",
            ),
        ] {
            assert_eq!(masked(code, None, true).message, unnamed);
            let error = masked(code, Some("stock"), true);
            assert_eq!((&*error.message, error.subgraph.as_deref()), (named, Some("stock")));
        }
    }

    #[test]
    fn the_first_rule_that_fits_an_error_decides_about_its_message() {
        let (stock, other) = (SubgraphId(0), SubgraphId(1));
        let rule = |subgraphs: Option<Vec<SubgraphId>>, code: &str, message| ErrorRule {
            subgraphs,
            codes: if code.is_empty() { Vec::new() } else { vec![code.into()] },
            matches: None,
            message,
        };
        let sold_out = ErrorRule {
            matches: Some(Arc::new(|message| message.contains("sold out"))),
            ..rule(None, "", MessageRule::Show)
        };
        let disclosure = Disclosure {
            hidden_errors: vec![stock],
            error_rules: vec![
                rule(Some(vec![stock]), "A", MessageRule::Show),
                rule(None, "A", MessageRule::Replace("another".into())),
                sold_out,
                rule(None, "B", MessageRule::Hide),
            ],
            ..Disclosure::default()
        };
        let decide = |subgraph, code, message| disclosure.message_rule(subgraph, code, message);
        assert_eq!(decide(stock, Some("A"), "x"), &MessageRule::Show);
        assert_eq!(decide(other, Some("A"), "x"), &MessageRule::Replace("another".into()));
        assert_eq!(decide(stock, None, "it is sold out"), &MessageRule::Show);
        assert_eq!(decide(other, Some("B"), "x"), &MessageRule::Hide);
        // No rule fits these.
        assert_eq!(decide(stock, None, "x"), &MessageRule::Hide);
        assert_eq!(decide(other, Some("C"), "x"), &MessageRule::Show);
        assert!(!disclosure.shows_all_errors(other), "a rule may hide some");
    }

    #[test]
    fn a_text_of_the_configuration_replaces_a_message() {
        let mut error = GraphqlError::new(ErrorCode::DownstreamServiceError, "secret");
        error.subgraph = Some("stock".into());
        let error = mask_error(error, None, false, Some("Try again later."));
        assert_eq!((&*error.message, error.subgraph), ("Try again later.", None));
    }
}
