//! What a test can make go wrong with a subgraph at run time, and what it can see of the requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::{Notify, watch};

/// Requests kept by a recording subgraph; older ones are forgotten.
const RECORDED_MAX: usize = 10_000;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The connection is closed without an answer.
    Down,
    /// This answer instead of the subgraph's.
    Answer {
        /// HTTP status.
        status: u16,
        /// `content-type` header.
        content_type: String,
        /// Body, sent as it is.
        body: Bytes,
    },
    /// Status 500 with a plain text body.
    InternalServerError,
    /// Status 200 with an HTML page, as a proxy in between would send.
    Html,
    /// A whole HTTP answer whose JSON ends in the middle.
    TruncatedJson,
    /// An HTTP answer that announces its length and ends in the middle.
    CutOff,
    /// The right answer, with these headers beside its own: names and values.
    Headers(Vec<(&'static str, &'static str)>),
    /// The right answer, after this time.
    Slow(Duration),
    /// No answer before this fault is replaced or cleared; then what holds by then. For tests that need to know that a
    /// request is in flight.
    Hold,
    /// A GraphQL response with `data: null` and this error.
    GraphqlError {
        /// The error's message.
        message: String,
        /// The error's `extensions.code`.
        code: Option<String>,
    },
    /// Null for a field of an object type, without an error, also where the schema allows none.
    NullField {
        /// An object type of the subgraph.
        type_name: String,
        /// A field of it.
        field: String,
    },
    /// An error in place of a field, with its path; nulls propagate as the specification says.
    FieldError {
        /// An object type of the subgraph.
        type_name: String,
        /// A field of it.
        field: String,
        /// The error's message.
        message: String,
    },
}

impl Fault {
    /// [`Fault::NullField`] by names.
    pub fn null_field(type_name: &str, field: &str) -> Self {
        Self::NullField { type_name: type_name.to_owned(), field: field.to_owned() }
    }

    /// [`Fault::FieldError`] by names.
    pub fn field_error(type_name: &str, field: &str, message: &str) -> Self {
        Self::FieldError {
            type_name: type_name.to_owned(),
            field: field.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// A request that a recording subgraph has received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// All headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl RecordedRequest {
    /// The body as JSON, or null where it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A test's hand on one served subgraph.
pub struct Controls {
    active: watch::Sender<Active>,
    requests: AtomicU64,
    arrived: Notify,
    recording: AtomicBool,
    recorded: Mutex<VecDeque<RecordedRequest>>,
}

#[derive(Debug, Default)]
struct Active {
    fault: Option<Fault>,
    /// Requests that it still applies to; all where nothing is said.
    remaining: Option<u64>,
    /// Grows with each change by the test, so that a held request knows when its hold has ended.
    generation: u64,
}

impl Controls {
    pub(super) fn new(recording: bool) -> Self {
        Self {
            active: watch::Sender::new(Active::default()),
            requests: AtomicU64::new(0),
            arrived: Notify::new(),
            recording: AtomicBool::new(recording),
            recorded: Mutex::default(),
        }
    }

    /// From now on every request meets this fault.
    pub fn set_fault(&self, fault: Fault) {
        self.change(Some(fault), None);
    }

    /// The next `requests` requests meet this fault, those after them none.
    pub fn fail_next(&self, requests: u64, fault: Fault) {
        self.change(Some(fault), Some(requests));
    }

    /// All is well again; held requests are answered.
    pub fn clear_fault(&self) {
        self.change(None, None);
    }

    fn change(&self, fault: Option<Fault>, remaining: Option<u64>) {
        self.active.send_modify(|active| {
            let generation = active.generation + 1;
            *active = Active { fault, remaining, generation };
        });
    }

    /// Requests received since the start, whatever became of them.
    pub fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }

    /// Waits until this many requests have been received since the start.
    pub async fn requests_reached(&self, count: u64) {
        loop {
            let arrived = self.arrived.notified();
            let mut arrived = std::pin::pin!(arrived);
            arrived.as_mut().enable();
            if self.request_count() >= count {
                return;
            }
            arrived.await;
        }
    }

    /// Begins or ends keeping the requests that arrive.
    pub fn record_requests(&self, recording: bool) {
        self.recording.store(recording, Ordering::Release);
    }

    /// The requests kept since the last call, oldest first.
    pub fn take_requests(&self) -> Vec<RecordedRequest> {
        self.recorded().drain(..).collect()
    }

    /// Counts a request, and keeps it while recording.
    pub(super) fn note(&self, headers: &HeaderMap, body: &Bytes) {
        if self.recording.load(Ordering::Acquire) {
            let mut recorded = self.recorded();
            if recorded.len() == RECORDED_MAX {
                recorded.pop_front();
            }
            recorded.push_back(RecordedRequest { headers: headers.clone(), body: body.clone() });
        }
        self.requests.fetch_add(1, Ordering::Release);
        self.arrived.notify_waiters();
    }

    /// The fault that a request meets, counting it down; waits while requests are held.
    pub(super) async fn meet(&self) -> Option<Fault> {
        loop {
            self.active.borrow().fault.as_ref()?;
            let mut met = (None, 0);
            self.active.send_if_modified(|active| {
                met = (active.take(), active.generation);
                // Counting down wakes nobody: held requests wait for the test's next change.
                false
            });
            let (fault, generation) = met;
            if fault != Some(Fault::Hold) {
                return fault;
            }
            let mut changes = self.active.subscribe();
            // The sender lives in `self`, so the channel cannot be closed.
            let _ = changes.wait_for(|active| active.generation != generation).await;
        }
    }

    /// Whether connections are to be closed before they send a request. Does not count as meeting the fault.
    pub(super) fn is_down(&self) -> bool {
        let active = self.active.borrow();
        active.fault == Some(Fault::Down) && active.remaining.is_none()
    }

    fn recorded(&self) -> MutexGuard<'_, VecDeque<RecordedRequest>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    /// The fault that one more request meets.
    fn take(&mut self) -> Option<Fault> {
        match &mut self.remaining {
            None => self.fault.clone(),
            Some(0) => None,
            Some(remaining) => {
                *remaining -= 1;
                self.fault.clone()
            }
        }
    }
}
