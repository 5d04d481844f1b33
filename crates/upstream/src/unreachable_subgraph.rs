//! The stand-in for subgraphs without a server.

use execute::{FetchError, LocalFuture, Subgraph, SubgraphRequest, SubgraphResponse};

/// Refuses every request: subgraphs of events have brokers behind them and no server.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnreachableSubgraph;

impl Subgraph for UnreachableSubgraph {
    fn fetch<'a>(
        &'a self,
        _: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        Box::pin(std::future::ready(Err(FetchError::NoServer)))
    }
}
