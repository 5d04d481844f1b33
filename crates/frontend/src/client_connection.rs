//! The client of one HTTP connection across its requests: the bytes of responses that it has not read, the number of
//! requests that are served before other connections get a turn, and the number that are served at the same time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use clients::byte_budget::{ByteAccount, CHARGED_BYTES_MIN};
use clients::client_limits::ClientLimits;
use clients::connections::ConnectionPermit;
use clients::idle_turns;
use clients::kept_operations::KeptTotal;
use clients::request_source::ConnectionOrigin;
use execute::ClientKey;
use tokio::sync::Notify;

use super::response::ResponseBody;

/// The number of requests of one connection that are served in one turn. A client that pipelines sends the next request
/// with the first.
const REQUESTS_PER_TURN: u32 = 2;

/// The number of requests of an HTTP/2 connection that are served at the same time before the client has read a
/// response. Each response that it reads adds one. A client that reads soon reaches
/// `http.http2.max_concurrent_streams`; a client that does not read occupies memory for these few responses only.
const UNPROVEN_REQUESTS_MAX: u32 = 8;

/// The state of one client connection that its requests share.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    client: ClientKey,
    origin: ConnectionOrigin,
    account: Arc<ByteAccount>,
    /// The number of requests that began in this turn of the event loop.
    begun: Cell<u32>,
    slots: Arc<RequestSlots>,
    /// The number of refusals that are held now.
    held_refusals: Cell<u32>,
    /// The bytes that live subscriptions on all streams of the connection keep.
    kept: Arc<KeptTotal>,
}

/// The slots of one connection for requests that are served at the same time.
#[derive(Debug, Default)]
struct RequestSlots {
    /// The number of requests that are served or have an unread response.
    taken: AtomicU32,
    /// The number of responses that were read to their end.
    read: AtomicU32,
    /// Notified when a request ends.
    freed: Notify,
}

/// The slot of a request, held until its response has been read or is given up.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<RequestSlots>);

impl InFlight {
    /// Notes that the client has read the response.
    pub(crate) fn note_read(&self) {
        self.0.read.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
        // One more request may be served, or two if the response was read, so all waiting requests check again.
        self.0.freed.notify_waiters();
    }
}

impl ClientConnection {
    /// Returns the state of a new connection with this permit.
    pub(crate) fn new(
        limits: &ClientLimits,
        permit: &ConnectionPermit,
        origin: ConnectionOrigin,
    ) -> Self {
        let client = permit.client();
        let account = limits.open_account(client);
        Self { origin, ..Self::of(client, account) }
    }

    /// Returns a connection that nothing limits.
    #[cfg(test)]
    pub(crate) fn unlimited() -> Self {
        let client = ClientKey::UNKNOWN;
        Self::of(client, clients::byte_budget::ByteBudget::new(1 << 20).open(client, 1 << 20))
    }

    fn of(client: ClientKey, account: Arc<ByteAccount>) -> Self {
        Self {
            client,
            origin: ConnectionOrigin::default(),
            account,
            begun: Cell::new(0),
            slots: Arc::default(),
            held_refusals: Cell::new(0),
            kept: KeptTotal::new(),
        }
    }

    /// Returns the origin of the connection.
    pub(crate) fn origin(&self) -> ConnectionOrigin {
        self.origin
    }

    /// Returns the client's key by its address.
    pub(crate) fn client(&self) -> ClientKey {
        self.client
    }

    /// Returns the account of the response bytes that the client has not read.
    pub(crate) fn account(&self) -> &Arc<ByteAccount> {
        &self.account
    }

    /// Returns the total of the bytes that live subscriptions of the connection keep.
    pub(crate) fn kept(&self) -> &Arc<KeptTotal> {
        &self.kept
    }

    /// Begins a turn: the event loop has served other connections since the last one.
    pub(crate) fn begin_turn(&self) {
        self.begun.set(0);
        idle_turns::note_turn();
    }

    /// Waits until a request of this connection may begin. After a few requests in one turn, other connections go
    /// first. While the client leaves too many bytes unread, no request begins.
    pub(crate) async fn wait_for_turn(&self) {
        if self.begun.get() >= REQUESTS_PER_TURN {
            tokio::task::yield_now().await;
        }
        self.begun.set(self.begun.get() + 1);
        if !self.account.has_room() {
            self.account.room().await;
        }
    }

    /// Waits until one more request of an HTTP/2 connection may be served beside the others.
    async fn acquire_slot(&self) -> InFlight {
        let slots = &self.slots;
        loop {
            let mut ended = std::pin::pin!(slots.freed.notified());
            // Responses are freed on other threads too. The registration comes before the check, so that no
            // notification is missed.
            ended.as_mut().enable();
            let read = slots.read.load(Ordering::SeqCst);
            // Only this thread takes slots.
            if slots.taken.load(Ordering::SeqCst) < read.saturating_add(UNPROVEN_REQUESTS_MAX) {
                slots.taken.fetch_add(1, Ordering::SeqCst);
                return InFlight(Arc::clone(slots));
            }
            ended.await;
        }
    }

    /// Takes a place for a refusal that is to be held. `None` if refusals have half of the requests that may be served
    /// at the same time, of which there are `streams_max` at most: the other half is for requests that are not refused.
    /// A connection of HTTP/1.1 serves one request at a time, so it always has a place.
    pub(crate) fn hold_refusal(&self, streams_max: u32) -> Option<HeldRefusal<'_>> {
        let served = self.slots.read.load(Ordering::SeqCst).saturating_add(UNPROVEN_REQUESTS_MAX);
        let held = self.held_refusals.get();
        if held >= (served.min(streams_max) / 2).max(1) {
            return None;
        }
        self.held_refusals.set(held + 1);
        Some(HeldRefusal(self))
    }

    /// Charges a body over HTTP/2 like [`ClientConnection::charge`]. The request keeps its slot until the body has been
    /// sent. The HTTP library takes the first piece of a body whether the client has room for it or not, so taking it
    /// does not show that the client reads.
    pub(crate) fn charge_in_flight(&self, body: ResponseBody, in_flight: InFlight) -> ResponseBody {
        match self.charge(body) {
            ResponseBody::Whole(body) if body.len() >= CHARGED_BYTES_MIN => {
                ResponseBody::Whole(Bytes::from_owner(SentBody { body, in_flight }))
            }
            body => {
                // The body is small, or a stream of events that stays open for long.
                in_flight.note_read();
                body
            }
        }
    }

    /// Returns a body that is charged to the connection until it has been sent.
    pub(crate) fn charge(&self, body: ResponseBody) -> ResponseBody {
        match body {
            ResponseBody::Whole(bytes) => ResponseBody::Whole(self.account.charged(bytes)),
            body => body,
        }
    }
}

/// The place of a refusal that is held, until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldRefusal<'a>(&'a ClientConnection);

impl Drop for HeldRefusal<'_> {
    fn drop(&mut self) {
        self.0.held_refusals.set(self.0.held_refusals.get() - 1);
    }
}

/// The owner of a body that holds the slot of its request.
struct SentBody {
    body: Bytes,
    in_flight: InFlight,
}

impl AsRef<[u8]> for SentBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        // The body was sent or given up; its memory is free either way.
        self.in_flight.note_read();
    }
}

/// One request of a connection.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    connection: Rc<ClientConnection>,
    /// True if other requests of the connection may be served at the same time.
    is_multiplexed: bool,
    in_flight: RefCell<Option<InFlight>>,
}

impl ClientRequest {
    /// Returns a request over HTTP/1.1, the only one of its connection that is served now.
    pub(crate) fn alone(connection: &Rc<ClientConnection>) -> Self {
        let connection = Rc::clone(connection);
        Self { connection, is_multiplexed: false, in_flight: RefCell::default() }
    }

    /// Returns a request over HTTP/2, beside others.
    pub(crate) fn multiplexed(connection: &Rc<ClientConnection>) -> Self {
        Self { is_multiplexed: true, ..Self::alone(connection) }
    }

    /// Returns the connection of the request.
    pub(crate) fn connection(&self) -> &ClientConnection {
        &self.connection
    }

    /// Waits until the request may be processed. Its body has been read by then: an unread body would occupy the flow
    /// control window of the connection, and the requests in progress could wait for that window.
    pub(crate) async fn begin_work(&self) {
        if self.is_multiplexed {
            let place = self.connection.acquire_slot().await;
            self.in_flight.replace(Some(place));
        }
    }

    /// Returns the slot of a request that has been processed, for its response.
    pub(crate) fn take_in_flight(&self) -> Option<InFlight> {
        self.in_flight.take()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use super::*;
    use clients::byte_budget::ByteBudget;

    fn connection() -> Rc<ClientConnection> {
        let client = ClientKey::UNKNOWN;
        let account = ByteBudget::new(1 << 20).open(client, 1 << 10);
        Rc::new(ClientConnection::of(client, account))
    }

    fn polled<F: Future>(future: F) -> Option<F::Output> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_client_gets_more_requests_at_the_same_time_for_each_response_that_it_reads() {
        let connection = connection();
        let mut served: Vec<InFlight> =
            (0..UNPROVEN_REQUESTS_MAX).filter_map(|_| polled(connection.acquire_slot())).collect();
        assert_eq!(served.len() as u32, UNPROVEN_REQUESTS_MAX);
        assert!(polled(connection.acquire_slot()).is_none());
        // The response is given up: its slot is free, and no slot is added.
        served.pop();
        served.extend(polled(connection.acquire_slot()));
        assert!(polled(connection.acquire_slot()).is_none());
        let first = served.pop().expect("some are served");
        first.note_read();
        drop(first);
        served.extend(polled(connection.acquire_slot()));
        served.extend(polled(connection.acquire_slot()));
        assert_eq!(served.len() as u32, UNPROVEN_REQUESTS_MAX + 1);
        assert!(polled(connection.acquire_slot()).is_none());
    }

    #[test]
    fn refusals_are_held_on_half_of_the_requests_that_may_be_served_at_the_same_time() {
        let connection = connection();
        let mut held: Vec<HeldRefusal<'_>> =
            (0..4).filter_map(|_| connection.hold_refusal(100)).collect();
        assert_eq!(held.len(), 4);
        assert!(connection.hold_refusal(100).is_none(), "eight may be served");
        held.pop();
        assert!(connection.hold_refusal(100).is_some(), "a place that was given back");
        connection.slots.read.store(1000, Ordering::SeqCst);
        let more = (0..100).map_while(|_| connection.hold_refusal(100)).map(|it| held.push(it));
        assert_eq!((more.count(), held.len()), (47, 50));
        drop(held);
        assert!(connection.hold_refusal(1).is_some(), "there is always one place");
    }

    #[tokio::test]
    async fn a_third_request_of_one_turn_lets_others_go_first() {
        let connection = connection();
        for _ in 0..REQUESTS_PER_TURN {
            assert!(polled(connection.wait_for_turn()).is_some());
        }
        assert!(polled(connection.wait_for_turn()).is_none());
        connection.begin_turn();
        assert!(polled(connection.wait_for_turn()).is_some());
    }

    #[test]
    fn no_request_begins_while_too_many_bytes_are_unread() {
        let connection = connection();
        let body = connection.charge(ResponseBody::Whole(vec![0; 2 << 10].into()));
        assert!(polled(connection.wait_for_turn()).is_none());
        drop(body);
        assert!(polled(connection.wait_for_turn()).is_some());
    }
}
