//! Faults that tests inject into a subgraph at run time, and the requests that tests can observe.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::{Notify, watch};

use super::subscriptions::Subscriptions;

/// The maximum number of requests kept by a recording subgraph; older ones are dropped.
const RECORDED_MAX: usize = 10_000;

/// A fault of a subgraph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The connection is closed without a response.
    Down,
    /// This response replaces the subgraph's.
    Response {
        /// The HTTP status.
        status: u16,
        /// The `content-type` header.
        content_type: String,
        /// The body, sent unchanged.
        body: Bytes,
    },
    /// Status 500 with a plain text body.
    InternalServerError,
    /// Status 200 with an HTML page, as an intermediate proxy might send.
    Html,
    /// A complete HTTP response whose JSON ends in the middle.
    TruncatedJson,
    /// An HTTP response that ends before its announced length.
    CutOff,
    /// The correct response, with these additional headers: names and values.
    Headers(Vec<(&'static str, &'static str)>),
    /// The correct response, after this time.
    Slow(Duration),
    /// No response until this fault is replaced or cleared; then the new state applies. For tests that must know that
    /// a request is in flight.
    Hold,
    /// A GraphQL response with `data: null` and this error.
    GraphqlError {
        /// The error's message.
        message: String,
        /// The error's `extensions.code`.
        code: Option<String>,
    },
    /// Null for a field of an object type, without an error, even at a non-null position.
    NullField {
        /// An object type of the subgraph.
        type_name: String,
        /// A field of this type.
        field: String,
    },
    /// An error in place of a field, with its path; nulls propagate as specified.
    FieldError {
        /// An object type of the subgraph.
        type_name: String,
        /// A field of this type.
        field: String,
        /// The error's message.
        message: String,
    },
}

impl Fault {
    /// Creates [`Fault::NullField`].
    pub fn null_field(type_name: &str, field: &str) -> Self {
        Self::NullField { type_name: type_name.to_owned(), field: field.to_owned() }
    }

    /// Creates [`Fault::FieldError`].
    pub fn field_error(type_name: &str, field: &str, message: &str) -> Self {
        Self::FieldError {
            type_name: type_name.to_owned(),
            field: field.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// A request received by a recording subgraph.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// All headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl RecordedRequest {
    /// Parses the body as JSON; null if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The controls that a test has over one served subgraph.
pub struct Controls {
    active: watch::Sender<ActiveFault>,
    requests: AtomicU64,
    arrived: Notify,
    recording: AtomicBool,
    recorded: Mutex<VecDeque<RecordedRequest>>,
    subscriptions: Subscriptions,
}

#[derive(Debug, Default)]
struct ActiveFault {
    fault: Option<Fault>,
    /// The number of requests that it still applies to; all if `None`.
    remaining: Option<u64>,
    /// Incremented by each change of the test, so that a held request can detect that its hold has ended.
    generation: u64,
}

impl Controls {
    pub(super) fn new(recording: bool) -> Self {
        Self {
            active: watch::Sender::new(ActiveFault::default()),
            requests: AtomicU64::new(0),
            arrived: Notify::new(),
            recording: AtomicBool::new(recording),
            recorded: Mutex::default(),
            subscriptions: Subscriptions::new(),
        }
    }

    /// Returns the subgraph's subscriptions.
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// Applies this fault to every request from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.change(Some(fault), None);
    }

    /// Applies this fault to the next `requests` requests, and none to later ones.
    pub fn fail_next(&self, requests: u64, fault: Fault) {
        self.change(Some(fault), Some(requests));
    }

    /// Removes the fault; held requests get their responses.
    pub fn clear_fault(&self) {
        self.change(None, None);
    }

    fn change(&self, fault: Option<Fault>, remaining: Option<u64>) {
        self.active.send_modify(|active| {
            let generation = active.generation + 1;
            *active = ActiveFault { fault, remaining, generation };
        });
    }

    /// Returns the number of requests received since the start, regardless of their outcome.
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

    /// Starts or stops recording the requests that arrive.
    pub fn record_requests(&self, recording: bool) {
        self.recording.store(recording, Ordering::Release);
    }

    /// Returns the requests recorded since the last call, oldest first.
    pub fn take_requests(&self) -> Vec<RecordedRequest> {
        self.recorded().drain(..).collect()
    }

    /// Counts a request, and records it if recording is on.
    pub(super) fn record_request(&self, headers: &HeaderMap, body: &Bytes) {
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

    /// Returns the fault for a request and counts it down; waits while requests are held.
    pub(super) async fn take_fault(&self) -> Option<Fault> {
        loop {
            self.active.borrow().fault.as_ref()?;
            let mut taken = (None, 0);
            self.active.send_if_modified(|active| {
                taken = (active.take(), active.generation);
                // Counting down wakes no held request: these wait for the test's next change.
                false
            });
            let (fault, generation) = taken;
            if fault != Some(Fault::Hold) {
                return fault;
            }
            let mut changes = self.active.subscribe();
            // `self` owns the sender, so the channel cannot be closed.
            let _ = changes.wait_for(|active| active.generation != generation).await;
        }
    }

    /// True if connections must be closed before they send a request. The call is not counted as a request.
    pub(super) fn is_down(&self) -> bool {
        let active = self.active.borrow();
        active.fault == Some(Fault::Down) && active.remaining.is_none()
    }

    fn recorded(&self) -> MutexGuard<'_, VecDeque<RecordedRequest>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActiveFault {
    /// Returns the fault for one more request and counts it down.
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
