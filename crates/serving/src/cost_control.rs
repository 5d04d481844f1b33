//! The costs of clients' operations: the maxima of the configuration, and the figures for clients that ask for them.

use std::sync::Arc;

use config::{Config, CostMode};
use cost::{CostSettings, CostStats, Estimate, OperationCost};
use execute::{ErrorCode, GraphqlError, Payload};
use graph::{SubgraphId, Supergraph};
use http::{HeaderMap, HeaderName, HeaderValue};
use plan::Variables;

/// The header that requests the cost.
pub const HEADER: HeaderName = HeaderName::from_static("starling-cost");

/// The response header with the estimated cost.
const ESTIMATED_HEADER: HeaderName = HeaderName::from_static("starling-cost-estimated");

/// The response header with the cost of the response.
const ACTUAL_HEADER: HeaderName = HeaderName::from_static("starling-cost-actual");

/// The use of costs in one generation.
#[derive(Debug)]
pub struct CostControl {
    is_enforced: bool,
    max: Option<u64>,
    /// The maximum of each subgraph, by [`SubgraphId`].
    subgraph_max: Vec<Option<u64>>,
    /// True if clients may see the cost.
    is_exposed: bool,
    /// True if clients may see names of subgraphs.
    names_subgraphs: bool,
    settings: CostSettings,
}

/// A maximum that an estimate exceeds.
#[derive(Debug, PartialEq, Eq)]
struct Excess {
    subgraph: Option<SubgraphId>,
    estimated: u64,
    maximum: u64,
}

impl CostControl {
    /// Creates the control of a generation, with the counters of the `previous` one. `None` if costs are not computed.
    pub(crate) fn new(
        config: &Config,
        graph: &Supergraph,
        previous: Option<&Self>,
    ) -> Option<Self> {
        let settings = &config.cost;
        if settings.mode == CostMode::Off {
            return None;
        }
        let names = || graph.subgraphs.iter().map(|it| &*it.name);
        let subgraph_max: Vec<_> = names().map(|name| settings.max_of(name)).collect();
        let subgraph_list_sizes = match subgraph_max.iter().any(Option::is_some) {
            true => names().map(|name| settings.list_size_of(name).into()).collect(),
            false => Vec::new(),
        };
        for problem in graph.costs.iter().flat_map(|costs| &costs.ignored) {
            tracing::warn!(problem, "a part of a @listSize has no effect");
        }
        Some(Self {
            is_enforced: settings.mode == CostMode::Enforce,
            max: settings.max,
            subgraph_max,
            is_exposed: settings.expose,
            names_subgraphs: config.include_subgraph_errors.subgraph_names,
            settings: CostSettings {
                list_size: settings.list_size.into(),
                subgraph_list_sizes,
                stats: previous.map(|it| Arc::clone(&it.settings.stats)).unwrap_or_default(),
            },
        })
    }

    /// The settings of a preparer.
    pub(crate) fn settings(&self) -> &CostSettings {
        &self.settings
    }

    /// The counters of costs.
    pub fn stats(&self) -> &CostStats {
        &self.settings.stats
    }

    /// Returns the estimated cost of a request.
    ///
    /// # Errors
    /// Costs are enforced, and the estimate is above a maximum or contradicts itself.
    pub(crate) fn check(
        &self,
        cost: &OperationCost,
        variables: &Variables,
        graph: &Supergraph,
    ) -> Result<u64, GraphqlError> {
        let estimate = cost.estimate(variables);
        let excess = self.find_excess(&estimate);
        self.stats().record_estimate(estimate.total, excess.is_some());
        if !self.is_enforced {
            return Ok(estimate.total);
        }
        if let Some(field) = estimate.conflict {
            let message = format!("{field} takes only one of its slicing arguments, not several");
            return Err(GraphqlError::new(ErrorCode::GraphqlValidationFailed, message));
        }
        match excess {
            Some(excess) => Err(self.too_expensive(&excess, graph)),
            None => Ok(estimate.total),
        }
    }

    fn find_excess(&self, estimate: &Estimate<'_>) -> Option<Excess> {
        let total = (None, estimate.total, self.max);
        let subgraphs = estimate.subgraphs.iter().map(|&(subgraph, estimated)| {
            let maximum = self.subgraph_max.get(usize::from(subgraph.0)).copied().flatten();
            (Some(subgraph), estimated, maximum)
        });
        std::iter::once(total).chain(subgraphs).find_map(|(subgraph, estimated, maximum)| {
            let maximum = maximum?;
            (estimated > maximum).then_some(Excess { subgraph, estimated, maximum })
        })
    }

    fn too_expensive(&self, excess: &Excess, graph: &Supergraph) -> GraphqlError {
        let Excess { subgraph, estimated, maximum } = excess;
        let name = subgraph.map(|id| &*graph.subgraph(id).name).filter(|_| self.names_subgraphs);
        let what = match (subgraph, name) {
            (None, _) => "the operation".to_owned(),
            (Some(_), None) => "the operation's requests to one subgraph".to_owned(),
            (Some(_), Some(name)) => format!("the operation's requests to subgraph \"{name}\""),
        };
        let message = match *estimated {
            u64::MAX => format!(
                "the estimated cost of {what} is too large to count, and the maximum is {maximum}"
            ),
            estimated => {
                format!("the estimated cost of {what} is {estimated}, and the maximum is {maximum}")
            }
        };
        let mut error = GraphqlError::new(ErrorCode::CostEstimatedTooExpensive, message);
        let figures = format!("{{\"estimated\":{estimated},\"maximum\":{maximum}}}");
        error.extensions = Some(figures.into());
        error.subgraph = name.map(Into::into);
        error
    }

    /// True if a client that sends these headers gets the cost with its response.
    pub(crate) fn is_requested(&self, headers: &HeaderMap) -> bool {
        self.is_exposed && headers.get(HEADER).is_some_and(|it| it == "1")
    }
}

/// Returns `payload` with its cost, and the estimate, in its extensions and headers.
pub(crate) fn show(payload: &Payload, estimated: u64) -> Payload {
    let actual = payload.cost.map_or("null".to_owned(), |cost| cost.to_string());
    let text = format!("{{\"estimated\":{estimated},\"actual\":{actual}}}");
    let mut shown = payload.with_extension("cost", &text);
    let mut headers = shown.headers.as_deref().cloned().unwrap_or_default();
    headers.insert(ESTIMATED_HEADER, HeaderValue::from(estimated));
    if let Some(actual) = payload.cost {
        headers.insert(ACTUAL_HEADER, HeaderValue::from(actual));
    }
    shown.headers = Some(Arc::new(headers));
    shown
}
