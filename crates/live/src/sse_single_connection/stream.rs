//! The shared state of one stream: the operations that requests start and stop on it, and their ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use clients::kept_operations::KeptTotal;
use execute::{ErrorCode, GraphqlError};
use serving::prepared_request::PreparedRequest;
use wire::sse::Sse;

use crate::client_work::ClientWork;
use crate::connection_operations::{AbortOnDrop, ConnectionOperations, OperationList};
use crate::metrics::Transport;
use crate::operation_runner::OperationRunner;
use crate::outlet::{ConnectionOutlet, Delivery};

/// The state of one stream, shared by the requests that start operations and the writer of the stream.
pub(super) struct SharedStream {
    pub(super) outlet: Arc<ConnectionOutlet>,
    operations: OperationList,
    work: Arc<ClientWork>,
    kept: Arc<KeptTotal>,
    /// The task that ends the stream if its unread responses take the memory of other clients. It starts with the first
    /// operation.
    eviction: OnceLock<AbortOnDrop>,
    operation_ids: Mutex<OperationIds>,
    /// True if the access log is written.
    is_logged: bool,
}

/// The operations in progress: their ids, which the client chose, and their numbers in the router.
#[derive(Debug, Default)]
struct OperationIds {
    numbers: HashMap<Box<str>, u32>,
    ids: HashMap<u32, Box<str>>,
    next_number: u32,
    has_ended: bool,
}

/// The reason for which a stream is not opened, or an operation not started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamRefusal {
    /// No stream has the token, or the stream has ended.
    NotFound,
    /// The stream is open already, or has an operation with the same id.
    InUse,
    /// The stream has as many operations as it may have.
    TooMany,
    /// Too many operations of the stream have begun and not ended.
    TooBusy,
}

impl std::fmt::Debug for SharedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStream")
            .field("operation_ids", &self.operation_ids)
            .finish_non_exhaustive()
    }
}

/// Ends a stream and drops its deliveries when its account is evicted. Its client may open the stream late or never.
async fn end_if_evicted(stream: Weak<SharedStream>) {
    let Some(account) = stream.upgrade().map(|it| Arc::clone(it.work.account())) else { return };
    account.evicted().await;
    if let Some(stream) = stream.upgrade() {
        stream.operations.note_all_ends(ErrorCode::SlowSubscriber.as_str());
        stream.operations.stop_all();
        stream.outlet.overflow();
    }
}

impl Drop for SharedStream {
    /// Ends the operations, whose results have no recipient any more. The list of operations does not end with the
    /// stream by itself: the task that ends an operation with its token holds it.
    fn drop(&mut self) {
        self.end();
    }
}

impl SharedStream {
    /// Makes a stream without operations. Its deliveries come out of `outlet`, and are counted for the access log if
    /// that is written (`is_logged`).
    pub(super) fn new(
        outlet: Arc<ConnectionOutlet>,
        work: Arc<ClientWork>,
        is_logged: bool,
    ) -> Self {
        Self {
            outlet,
            operations: OperationList::default(),
            work,
            kept: KeptTotal::new(),
            eviction: OnceLock::new(),
            operation_ids: Mutex::default(),
            is_logged,
        }
    }

    /// Makes a stream with limits that no test reaches.
    #[cfg(test)]
    pub(super) fn unbounded() -> Arc<Self> {
        let total = Arc::new(crate::queue_total::QueueTotal::new(1 << 20));
        let settings = config::Subscriptions::default();
        let outlet = ConnectionOutlet::open(&settings, &total, (Transport::Sse, &Arc::default()));
        Arc::new(Self::new(outlet, ClientWork::unbounded(), false))
    }

    /// Returns the operations in progress.
    #[cfg(test)]
    pub(super) fn operations(&self) -> &OperationList {
        &self.operations
    }

    /// Starts an operation on this worker. Its results come out of the outlet.
    ///
    /// # Errors
    /// The reason for which the operation does not start.
    pub(super) fn start(
        self: &Arc<Self>,
        runner: &Arc<OperationRunner>,
        operations_max: u32,
        id: &str,
        ready: PreparedRequest,
    ) -> Result<(), StreamRefusal> {
        self.eviction.get_or_init(|| {
            let task = tokio::task::spawn_local(end_if_evicted(Arc::downgrade(self)));
            AbortOnDrop(task.abort_handle())
        });
        let (outlet, operations) = (&self.outlet, self.operations.clone());
        if self.work.is_full() {
            return Err(StreamRefusal::TooBusy);
        }
        let (work, kept) = (Arc::clone(&self.work), Arc::clone(&self.kept));
        let operations = ConnectionOperations::with_list(
            runner,
            outlet,
            Transport::Sse,
            (operations, work, kept),
        );
        // Locked until the operation is in its list: a stream that ends meanwhile stops it.
        let mut operation_ids = self.lock();
        let number = operation_ids.begin(id, operations_max as usize)?;
        operations.start_prepared(number, ready);
        Ok(())
    }

    /// Stops an operation and drops its deliveries.
    pub(super) fn stop(&self, id: &str) {
        let mut operation_ids = self.lock();
        if let Some(number) = operation_ids.numbers.remove(id) {
            operation_ids.ids.remove(&number);
            self.operations.stop(number);
            self.outlet.drop_deliveries_of(number);
        }
    }

    /// Ends all operations and prevents new ones. Returns the ids of those that were in progress.
    pub(super) fn end(&self) -> Vec<Box<str>> {
        let mut operation_ids = self.lock();
        operation_ids.has_ended = true;
        operation_ids.ids.clear();
        self.operations.stop_all();
        std::mem::take(&mut operation_ids.numbers).into_keys().collect()
    }

    /// Locks the ids. No code of the application runs under this lock, so a poisoned lock holds valid lists.
    fn lock(&self) -> MutexGuard<'_, OperationIds> {
        self.operation_ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a delivery. Results of an operation that the client has stopped meanwhile are dropped, since it has no id
    /// any more.
    pub(super) fn write_delivery(&self, sse: &mut Sse, delivery: Delivery) {
        let mut operation_ids = self.lock();
        if matches!(delivery, Delivery::Complete { .. } | Delivery::Failed { .. }) {
            self.operations.note_end(delivery.operation(), delivery.reason());
        }
        match delivery {
            Delivery::Next { operation, payload, missed } => {
                if let Some(id) = operation_ids.ids.get(&operation) {
                    if self.is_logged {
                        self.operations.count_event(operation);
                    }
                    sse.next_of(id, payload.with_missed(missed).bytes);
                }
            }
            // The stream has one last event id for all of its operations, and clients treat an event of an unknown kind
            // as an error.
            Delivery::Position { .. } => {}
            Delivery::Complete { operation } => {
                self.operations.remove_delivered(operation);
                if let Some(id) = operation_ids.end(operation) {
                    sse.complete_of(&id);
                }
            }
            Delivery::Failed { operation, errors } => {
                self.operations.remove_delivered(operation);
                if let Some(id) = operation_ids.end(operation) {
                    sse.next_of(&id, execute::request_error(&errors).bytes);
                    sse.complete_of(&id);
                }
            }
        }
    }

    /// Ends the stream: every operation in progress ends with `error`.
    pub(super) fn end_with(&self, sse: &mut Sse, error: &GraphqlError) {
        self.operations.note_all_ends(error.code.as_str());
        let response = execute::request_error(std::slice::from_ref(error)).bytes;
        for id in self.end() {
            sse.next_of(&id, response.clone());
            sse.complete_of(&id);
        }
        sse.finish();
    }
}

impl OperationIds {
    /// Returns the number of an operation that starts.
    fn begin(&mut self, id: &str, most: usize) -> Result<u32, StreamRefusal> {
        if self.has_ended {
            return Err(StreamRefusal::NotFound);
        }
        if self.numbers.contains_key(id) {
            return Err(StreamRefusal::InUse);
        }
        if self.numbers.len() >= most {
            return Err(StreamRefusal::TooMany);
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.numbers.insert(id.into(), number);
        self.ids.insert(number, id.into());
        Ok(number)
    }

    /// Removes an operation that is over. Returns its id.
    fn end(&mut self, number: u32) -> Option<Box<str>> {
        let id = self.ids.remove(&number)?;
        self.numbers.remove(&id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use wire::BodyMachine;
    use wire::sse::SseConfig;

    use super::*;

    #[tokio::test]
    async fn nothing_is_kept_of_an_operation_that_has_ended() {
        let stream = SharedStream::unbounded();
        let mut sse = Sse::new(&SseConfig { heartbeat: None }, Instant::now());
        let errors = Vec::new();
        for end in [Delivery::Complete { operation: 0 }, Delivery::Failed { operation: 1, errors }]
        {
            let number = stream.lock().begin("a", 1).expect("room for one");
            stream.operations.insert(number, tokio::spawn(async {}).abort_handle());
            tokio::task::yield_now().await;
            stream.write_delivery(&mut sse, end);
        }
        assert!(stream.operations.is_empty());
    }

    #[test]
    fn ids_are_unique_while_they_last_and_none_begins_after_the_end() {
        let stream = SharedStream::unbounded();
        let begin = |id| stream.lock().begin(id, 2);
        assert_eq!((begin("a"), begin("a"), begin("b")), (Ok(0), Err(StreamRefusal::InUse), Ok(1)));
        assert_eq!(begin("c"), Err(StreamRefusal::TooMany));
        stream.stop("a");
        assert_eq!(begin("a"), Ok(2));
        let mut sse = Sse::new(&SseConfig { heartbeat: None }, Instant::now());
        stream.write_delivery(&mut sse, Delivery::Complete { operation: 0 });
        stream.write_delivery(&mut sse, Delivery::Complete { operation: 1 });
        assert_eq!(stream.end(), [Box::from("a")]);
        assert_eq!(begin("d"), Err(StreamRefusal::NotFound));
        let mut written = Vec::new();
        while let Some(chunks) = sse.poll_transmit(Instant::now()) {
            chunks.append_to(&mut written);
        }
        assert_eq!(written, b":\n\nevent: complete\ndata: {\"id\":\"b\"}\n\n");
    }
}
