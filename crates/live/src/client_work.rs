//! The operations that one connection has started and that have not ended, and the responses that its client has not
//! read. Both are limited: for a client that reads nothing no more operations run, and a client that starts operations
//! faster than they end is not read until some have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clients::byte_budget::ByteAccount;
use execute::{GraphqlError, Payload};
use futures_util::FutureExt;
use serving::prepared_request::PreparedRequest;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The maximum number of started operations of one connection: operations that wait for a worker, are prepared or
/// executed, also if their client has completed them meanwhile. A connection that has so many is not read.
const STARTED_MAX: usize = 64;

/// The number of started operations at which a held connection is read again.
const STARTED_RESUME: usize = STARTED_MAX / 2;

/// The maximum number of queries and mutations of one connection that are executed at the same time; more wait.
/// Responses are counted after they are made, so this limits the memory that a client that reads nothing can use beyond
/// its byte limit.
const EXECUTED_MAX: usize = 16;

/// The operations in progress and the unread responses of a connection, see the module.
pub(crate) struct ClientWork {
    account: Arc<ByteAccount>,
    executing: Semaphore,
    started: AtomicUsize,
    /// True while the connection is not read because it has started too many operations.
    is_held: AtomicBool,
    /// The callback that resumes reading.
    on_resume: Box<dyn Fn() + Send + Sync>,
}

/// A started operation; counted until dropped.
pub(crate) struct StartedOperation(Arc<ClientWork>);

impl std::fmt::Debug for ClientWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientWork").field("started", &self.started).finish_non_exhaustive()
    }
}

impl ClientWork {
    /// Creates the record of a connection without operations. `on_resume` is called, on any thread, when a connection
    /// for which [`ClientWork::try_hold`] returned true may be read again.
    pub(crate) fn new(
        account: Arc<ByteAccount>,
        on_resume: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            account,
            executing: Semaphore::new(EXECUTED_MAX),
            started: AtomicUsize::new(0),
            is_held: AtomicBool::new(false),
            on_resume,
        })
    }

    /// Counts an operation as started.
    pub(crate) fn start_operation(self: &Arc<Self>) -> StartedOperation {
        self.started.fetch_add(1, Ordering::SeqCst);
        StartedOperation(Arc::clone(self))
    }

    /// Returns true if so many operations are started that the connection must not be read until `on_resume` is called.
    pub(crate) fn try_hold(&self) -> bool {
        if self.started.load(Ordering::SeqCst) < STARTED_MAX {
            return false;
        }
        self.is_held.store(true, Ordering::SeqCst);
        // Operations may have ended since the first look, before `is_held` was set.
        let has_few = self.started.load(Ordering::SeqCst) <= STARTED_RESUME;
        !(has_few && self.is_held.swap(false, Ordering::SeqCst))
    }

    /// Makes a record with limits that no test reaches.
    #[cfg(test)]
    pub(super) fn unbounded() -> Arc<Self> {
        let budget = clients::byte_budget::ByteBudget::new(usize::MAX);
        let account = budget.open(execute::ClientKey::UNKNOWN, usize::MAX);
        Self::new(account, Box::new(|| {}))
    }

    /// True if no more operations should be started.
    pub(crate) fn is_full(&self) -> bool {
        self.started.load(Ordering::SeqCst) >= STARTED_MAX
    }

    /// True if no operation is started and no response is unread.
    pub(crate) fn is_idle(&self) -> bool {
        self.started.load(Ordering::SeqCst) == 0 && self.account.held() == 0
    }

    /// Returns the account of the responses that the client has not read.
    pub(crate) fn account(&self) -> &Arc<ByteAccount> {
        &self.account
    }
}

impl StartedOperation {
    /// Waits until a query or mutation may be executed. Returns `None` if the connection is about to be closed instead.
    pub(crate) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        let permit = self.0.executing.acquire().await.ok()?;
        // The permit is taken first, so that the next operation sees the response of the previous one.
        self.0.account.room().await;
        (!self.0.account.is_evicted()).then_some(permit)
    }

    /// Waits for the permit of a request ([`StartedOperation::permit`]). While its client keeps it waiting, the request
    /// gives its ticket back, so that clients that do not read hold no work of others.
    ///
    /// # Errors
    /// `OVERLOADED`: the request is not admitted again.
    pub(crate) async fn permit_for(
        &self,
        ready: &mut PreparedRequest,
        time_max: Duration,
    ) -> Result<Option<SemaphorePermit<'_>>, GraphqlError> {
        if let Some(permit) = self.permit().now_or_never() {
            return Ok(permit);
        }
        let suspended = ready.ticket.take().and_then(|ticket| ticket.suspended());
        let permit = self.permit().await;
        if let Some(suspended) = suspended.filter(|_| permit.is_some()) {
            let ticket = suspended.resume(Instant::now() + time_max).await?;
            ready.ticket = Some(Arc::new(ticket));
        }
        Ok(permit)
    }

    /// Counts a response until its last byte has been sent or dropped.
    pub(crate) fn charge(&self, payload: Payload) -> Payload {
        Payload { bytes: self.0.account.charged(payload.bytes), ..payload }
    }
}

impl Drop for StartedOperation {
    fn drop(&mut self) {
        let left = self.0.started.fetch_sub(1, Ordering::SeqCst) - 1;
        if left <= STARTED_RESUME && self.0.is_held.swap(false, Ordering::SeqCst) {
            (self.0.on_resume)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clients::byte_budget::ByteBudget;

    fn work(calls: &Arc<AtomicUsize>) -> Arc<ClientWork> {
        let account = ByteBudget::new(1 << 20).open(execute::ClientKey::UNKNOWN, 1 << 10);
        let calls = Arc::clone(calls);
        let on_resume = Box::new(move || _ = calls.fetch_add(1, Ordering::Relaxed));
        ClientWork::new(account, on_resume)
    }

    #[test]
    fn a_connection_with_too_many_operations_is_held_until_half_of_them_have_ended() {
        let calls = Arc::default();
        let work = work(&calls);
        let mut started: Vec<_> = (1..STARTED_MAX).map(|_| work.start_operation()).collect();
        assert!(!work.try_hold() && !work.is_full());
        started.push(work.start_operation());
        assert!(work.try_hold() && work.is_full());
        while started.len() > STARTED_RESUME {
            assert_eq!(calls.load(Ordering::Relaxed), 0);
            started.pop();
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        drop(started);
        assert_eq!(calls.load(Ordering::Relaxed), 1, "the callback is called once");
        assert!(work.is_idle());
    }

    #[tokio::test]
    async fn nothing_is_executed_while_a_response_is_unread() {
        let work = work(&Arc::default());
        let (one, two) = (work.start_operation(), work.start_operation());
        let bytes = vec![b'x'; 2 << 10].into();
        let payload = Payload {
            bytes,
            splice: 0,
            has_data: true,
            errors: 0,
            first_error: None,
            subgraph_requests: 0,
            headers: None,
            cost: None,
            caching: None,
            revision: None,
        };
        let permit = one.permit().await;
        assert!(permit.is_some());
        let unread = one.charge(payload);
        drop(permit);
        let mut second = std::pin::pin!(two.permit());
        assert!(futures_util::poll!(&mut second).is_pending());
        // A part of a response counts as the whole response.
        let part = unread.bytes.slice(..10);
        drop(unread);
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(part);
        assert!(second.await.is_some());
    }
}
