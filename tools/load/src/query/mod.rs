//! `starling bench query`: sends one operation repeatedly, checks every response, and reports rate and latency.
//!
//! ```text
//! QuerySettings ──run──► driver (epoll, one thread) ──► recorder ──► report::Run
//! ```
//!
//! - `run`: one run, from its settings to its report.
//! - `request`: the requests. `response`: the parser of responses. `check`: whether a response is correct.
//! - `exchange`: one request outside the loop. `driver`: the loop. `recorder`: the counts. `response_log`: a file with
//!   all responses.
//! - `condition`, `search`: the highest rate that meets a condition.
//!
//! The generator is light, so that it can share a machine with the measured server: no allocation and no task for a
//! request, one read and one write for each. It runs on Linux only, because it uses epoll and `/proc`.

mod check;
mod condition;
mod driver;
pub(crate) mod exchange;
mod recorder;
pub(crate) mod request;
pub(crate) mod response;
mod response_log;
pub(crate) mod run;
mod search;

pub use check::Check;
pub use condition::RunCondition;
pub use request::{MeasuredOperation, QueryTarget};
pub use run::{CONNECTIONS_MAX, Load, QueryError, QuerySettings, run};
pub use search::{SearchResult, SearchStep, find_max};
