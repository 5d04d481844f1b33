//! What clients get to see of subgraphs beside the data: their errors, and headers of their answers.

use std::sync::Arc;

use graph::SubgraphId;
use http::HeaderMap;

use crate::{ErrorCode, GraphqlError};

/// What one generation discloses. By default: every error, no header.
#[derive(Clone, Default)]
pub struct Disclosure {
    /// Subgraphs whose errors clients are not told: they learn that there is one, and where.
    pub hidden_errors: Vec<SubgraphId>,
    /// Which headers of answers reach the client.
    pub headers: Option<Arc<dyn AnswerHeaders>>,
    /// Subgraphs whose answers may carry what is meant for one client only, such as a cookie. No two
    /// clients may share them.
    pub personal: Vec<SubgraphId>,
}

/// Rules for the headers of subgraphs' answers. Implemented where the configuration is known.
pub trait AnswerHeaders: Send + Sync {
    /// Adds what of `answer`, the headers of one answer of `subgraph`, reaches the client. Called in the
    /// order of the plan, not of the answers' arrival.
    fn collect(&self, subgraph: SubgraphId, answer: &HeaderMap, collected: &mut HeaderMap);
}

impl Disclosure {
    /// Are this subgraph's errors kept from clients?
    pub fn hides_errors(&self, subgraph: SubgraphId) -> bool {
        self.hidden_errors.contains(&subgraph)
    }

    /// May several clients get one answer of this subgraph?
    pub fn may_share(&self, subgraph: SubgraphId) -> bool {
        !self.personal.contains(&subgraph)
    }
}

impl std::fmt::Debug for Disclosure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Disclosure")
            .field("hidden_errors", &self.hidden_errors)
            .field("headers", &self.headers.is_some())
            .field("personal", &self.personal)
            .finish()
    }
}

/// What is left of an error when its subgraph's errors are kept from clients: that there is one, where,
/// and, if it is the router's own, its code.
pub(crate) fn hidden(error: GraphqlError) -> GraphqlError {
    let message = match error.code {
        ErrorCode::DownstreamServiceError => "A subgraph reported an error.",
        ErrorCode::Timeout => "A subgraph did not answer in time.",
        ErrorCode::SubgraphUnavailable => "A subgraph is not available.",
        _ => "A request to a subgraph failed.",
    };
    GraphqlError::new(error.code, message).at(error.path)
}
