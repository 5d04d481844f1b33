//! The stand-in for subgraphs without a server.

use execute::{FetchError, LocalFuture, Subgraph, SubgraphAnswer, SubgraphRequest};

/// Refuses every request: subgraphs of events have brokers behind them and no server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServer;

impl Subgraph for NoServer {
    fn fetch<'a>(
        &'a self,
        _: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphAnswer, FetchError>> {
        Box::pin(std::future::ready(Err(FetchError::NoServer)))
    }
}
