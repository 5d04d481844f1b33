//! The record of requests and events during one execution.

use graph::{FieldId, SubgraphId};
use serde_json::{Map, Value};

/// The requests sent to subgraphs, those that were invalid, and the events.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    pub(crate) requests: Vec<(SubgraphId, String)>,
    pub(crate) violations: Vec<String>,
    /// The number of errors in the responses of subgraphs.
    pub(crate) errors: usize,
    /// The root fields of event subgraphs that were delivered, with all arguments.
    pub(crate) events: Vec<(FieldId, Map<String, Value>)>,
}
