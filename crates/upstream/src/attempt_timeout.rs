//! The time limits of one attempt to get a response.

use std::future::poll_fn;
use std::pin::pin;
use std::time::{Duration, Instant};

use execute::{MultipartBody, SendingEnd};
use futures_util::future::{Either, select};

/// The time limits of an attempt.
pub(crate) struct AttemptTimeout {
    /// The time of the whole request, and the time at which it ends.
    pub(crate) limit: Duration,
    pub(crate) deadline: Instant,
    /// The time that the subgraph has for a response (`traffic.timeout`).
    pub(crate) own: Duration,
}

/// The limit that an attempt has exceeded.
pub(crate) struct Exceeded {
    pub(crate) limit: Duration,
    /// True if the subgraph is slow. Otherwise the request itself had no time left.
    pub(crate) is_own: bool,
}

impl AttemptTimeout {
    /// Runs an attempt until it exceeds a limit. With a form the subgraph's own time begins when the form is sent.
    pub(crate) async fn bound<F: Future>(
        &self,
        form: Option<&MultipartBody>,
        attempt: F,
    ) -> Result<F::Output, Exceeded> {
        let attempt = tokio::time::timeout_at(self.deadline.into(), attempt);
        let exceeded = |_| Exceeded { limit: self.limit, is_own: self.limit == self.own };
        let Some(form) = form else { return attempt.await.map_err(exceeded) };
        let subgraph_is_late = async {
            match poll_fn(|context| form.body.poll_sending_end(context)).await {
                SendingEnd::Sent => {
                    tokio::time::sleep(self.own).await;
                    Exceeded { limit: self.own, is_own: true }
                }
                SendingEnd::Stalled => Exceeded { limit: form.time_max, is_own: true },
            }
        };
        match select(pin!(attempt), pin!(subgraph_is_late)).await {
            Either::Left((attempt, _)) => attempt.map_err(exceeded),
            Either::Right((exceeded, _)) => Err(exceeded),
        }
    }
}
