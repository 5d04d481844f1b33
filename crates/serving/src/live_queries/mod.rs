//! Live queries: the result of a query now, and again whenever something that it was made of is invalidated or expires.
//!
//! A live query is a source of the hub (`source`), like a topic with events without content: each says that there is
//! another result. So it has triggers, groups and subscribers like a subscription, and moves to a new graph like one.
//!
//! 1. The hub opens the source of the first watcher: the query joins the `query_table`, watches nothing, and is due.
//!    The source is open when it has a first result.
//! 2. `schedule` decides when a query is executed, and one task for all of them ([`LiveQueries::run`]) starts it on a
//!    worker. The execution reads the caches of subgraphs as any query does, but uses nothing that has expired, and
//!    does not read whole responses.
//! 3. The result has the tags of all responses that it was made of, and the time at which the first of them expires.
//!    The query watches the tags in the table of invalidations. If one of them was invalidated after the execution
//!    began, the query is stale already.
//! 4. A result that differs from the one before is kept, and the hub gets an event. It reads the latest result, so a
//!    slow reader skips those in between. `patches` makes a patch of it for clients that ask for one.
//!
//! Each execution has a trace of its own (`execution_spans`), because none belongs to a request of a client.
//!
//! Every invalidation reaches `cache::InvalidationTable`, wherever it comes from, so live queries need no other signal.

mod execution;
mod execution_spans;
mod json_difference;
mod metrics;
mod patches;
mod query_table;
mod result;
mod schedule;
mod source;
mod stats;

pub(crate) use execution::LiveExecution;
pub use metrics::LIVE_QUERY_METRICS;
pub use query_table::LiveQueries;
pub(crate) use query_table::LiveQuerySettings;
pub(crate) use source::{LiveResolver, LiveSource};
pub use stats::{LIVE_QUERY_COUNTERS, LiveQueryStats};
