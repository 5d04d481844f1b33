//! The rate limits of the configuration.
//!
//! `admit` counts an operation against all of them. Each `RateLimit` counts in this process (`gcra`), or in a store
//! together with other routers (`shared_rate`, decided by `shared_decision`; `key_accounts` when the store is late).

mod counting;
mod gcra;
mod key_accounts;
mod rate_limit;
mod shared_decision;
#[cfg(test)]
mod shared_limit_simulation;
mod shared_rate;

pub(crate) use counting::admit;
pub(crate) use rate_limit::RateLimit;
pub use rate_limit::{LimitState, RATE_LIMIT_METRICS};
pub(crate) use shared_decision::PendingLimits;
