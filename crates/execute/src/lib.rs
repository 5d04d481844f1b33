//! A plan and variables become a payload: fetch, merge, repair nulls, print.
//!
//! Invariant: this crate knows nothing of transports. It reaches subgraphs through [`Subgraph`]
//! and brokers through [`Publisher`].

mod context;
mod error;
mod payload;

pub use context::{
    FetchError, ForwardedHeaders, Generation, LocalFuture, Publisher, RequestContext, Subgraph,
    SubgraphAnswer, SubgraphRequest,
};
pub use error::{ErrorCode, GraphqlError, Location, PathSegment};
pub use payload::Payload;

/// Where an execution starts from.
#[derive(Clone, Debug, Default)]
pub enum Seed {
    /// An empty tree: queries and mutations.
    #[default]
    Nothing,
    /// An event of a subscription: JSON text of the value of the root field.
    Event(bytes::Bytes),
}
