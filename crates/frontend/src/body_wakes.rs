//! The waker of an HTTP/1.1 connection, which ignores a wake that each request body causes for nothing.
//!
//! The HTTP library (hyper 1.12) passes a body to the handler through a channel. Both of its ends are polled by the
//! task of the connection. Whenever the handler takes a piece, the channel wakes that task, so that it reads the next
//! piece from the socket, also after the last one. The task would be polled once more with each request for nothing.
//! So a connection gets a waker of its own ([`ConnectionWaker`]). While a handler polls the body ([`poll_frame`]), that
//! waker only notes that it was called, and the note is dropped if the handler has got the last piece.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use http_body::{Body, Frame};

thread_local! {
    /// The body that this thread polls at present.
    static POLLED: Cell<PolledBody> = const { Cell::new(PolledBody::None) };
}

/// The body that a thread polls. Nothing but the channel of the body wakes a connection on the same thread meanwhile,
/// and other threads have a state of their own.
#[derive(Default)]
enum PolledBody {
    #[default]
    None,
    Some {
        /// The waker that was called meanwhile.
        woken: Option<Arc<DeferringWaker>>,
    },
}

/// Resets the state of the thread, also if the body panics.
struct PollGuard;

impl Drop for PollGuard {
    fn drop(&mut self) {
        POLLED.set(PolledBody::None);
    }
}

/// The waker of a connection, made of that of its task.
#[derive(Default)]
pub(super) struct ConnectionWaker {
    /// The waker of the task, and the one that was made of it.
    made: Option<(Waker, Waker)>,
}

/// The waker of a task, which is not called while this thread polls a body.
struct DeferringWaker(Waker);

impl ConnectionWaker {
    /// Returns the waker of the connection. `task` is the waker of its task.
    // hot path: made once for each connection
    pub(super) fn of(&mut self, task: &Waker) -> &Waker {
        let known = self.made.take().filter(|(known, _)| known.will_wake(task));
        let made = known
            .unwrap_or_else(|| (task.clone(), Waker::from(Arc::new(DeferringWaker(task.clone())))));
        &self.made.insert(made).1
    }
}

impl Wake for DeferringWaker {
    fn wake(self: Arc<Self>) {
        match POLLED.take() {
            PolledBody::None => self.0.wake_by_ref(),
            PolledBody::Some { .. } => POLLED.set(PolledBody::Some { woken: Some(self) }),
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Arc::clone(self).wake();
    }
}

/// The result of [`Body::poll_frame`].
type PolledFrame<B> = Poll<Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>>;

/// Polls a body like [`Body::poll_frame`]. The last piece of a body of known length does not wake the connection.
pub(super) fn poll_frame<B: Body>(
    mut body: Pin<&mut B>,
    context: &mut Context<'_>,
) -> PolledFrame<B> {
    let guard = PollGuard;
    POLLED.set(PolledBody::Some { woken: None });
    let polled = body.as_mut().poll_frame(context);
    let noted = POLLED.take();
    drop(guard);
    let is_last = matches!(polled, Poll::Ready(Some(Ok(_)))) && body.is_end_stream();
    if let PolledBody::Some { woken: Some(woken) } = noted
        && !is_last
    {
        woken.0.wake_by_ref();
    }
    polled
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::super::body;
    use super::super::counted_wakes::CountedWakes;
    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    /// Returns the response with the body of the request.
    async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let body = body::read(request.into_body(), 1000, TIME).await.expect("a short body");
        Ok(Response::new(Full::new(body)))
    }

    /// Reads from a connection until the text ends with `end`.
    async fn read_until(client: &mut DuplexStream, end: &str) {
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut piece = [0; 1000];
            let length = client.read(&mut piece).await.unwrap();
            assert_ne!(length, 0, "the connection ended after {text}");
            text.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        }
    }

    #[tokio::test]
    async fn every_request_of_a_connection_of_the_http_library_gets_its_response() {
        let (mut client, server) = tokio::io::duplex(4096);
        let mut connection =
            http1::Builder::new().serve_connection(TokioIo::new(server), service_fn(echo));
        let polls = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&polls);
        let mut waker = ConnectionWaker::default();
        // A task of its own, which is polled only when the connection is woken.
        let serving = tokio::spawn(poll_fn(move |context| {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut context = Context::from_waker(waker.of(context.waker()));
            Pin::new(&mut connection).poll(&mut context)
        }));
        // The text that the client writes, and the end of the text that it then reads.
        const STEPS: &[(&str, &str)] = &[
            ("POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\none", "\r\n\r\none"),
            ("POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n", ""),
            ("t", ""),
            ("wo", "\r\n\r\ntwo"),
            (
                "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n",
                "100 Continue\r\n\r\n",
            ),
            ("three", "\r\n\r\nthree"),
            ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nfo\r\n", ""),
            ("2\r\nur\r\n0\r\n\r\n", "\r\n\r\nfour"),
            (
                "POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nfivePOST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nsix",
                "\r\n\r\nsix",
            ),
            ("GET / HTTP/1.1\r\n\r\n", "\r\n\r\n"),
            ("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nseven", "\r\n\r\nseven"),
        ];
        let talking = async {
            for (number, (request, end)) in STEPS.iter().enumerate() {
                client.write_all(request.as_bytes()).await.unwrap();
                // The connection reads what is there before more is written.
                tokio::task::yield_now().await;
                read_until(&mut client, end).await;
                if number == 0 {
                    assert_eq!(polls.load(Ordering::Relaxed), 1, "one poll for one request");
                }
            }
            drop(client);
        };
        tokio::time::timeout(TIME, talking).await.expect("no request hangs");
        serving.await.unwrap().unwrap();
    }

    /// A body of some pieces. Taking one wakes the other end of its channel, as in the HTTP library.
    struct ChannelBody {
        pieces: Vec<Bytes>,
        other_end: Waker,
    }

    impl Body for ChannelBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            let piece = self.pieces.pop();
            self.other_end.wake_by_ref();
            Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
        }

        fn is_end_stream(&self) -> bool {
            self.pieces.is_empty()
        }
    }

    #[test]
    fn a_piece_wakes_the_connection_unless_it_is_the_last_one() {
        let task = Arc::<CountedWakes>::default();
        let count = || task.count();
        let task_waker = Waker::from(Arc::clone(&task));
        let mut connection = ConnectionWaker::default();
        let waker = connection.of(&task_waker);
        let pieces = vec![Bytes::from_static(b"last"), Bytes::from_static(b"first")];
        let mut body = ChannelBody { pieces, other_end: waker.clone() };
        let mut poll = || poll_frame(Pin::new(&mut body), &mut Context::from_waker(waker));
        for (expected, woken) in [(Some("first"), 1), (Some("last"), 1), (None, 2)] {
            let Poll::Ready(piece) = poll() else { panic!("every piece is there") };
            let piece = piece.map(|frame| frame.unwrap().into_data().unwrap());
            assert_eq!(piece.as_deref(), expected.map(str::as_bytes));
            assert_eq!(count(), woken, "after {expected:?}");
        }
        waker.wake_by_ref();
        assert_eq!(count(), 3, "no body is polled");
    }

    #[test]
    fn another_thread_wakes_the_connection_meanwhile() {
        let task = Arc::<CountedWakes>::default();
        let task_waker = Waker::from(Arc::clone(&task));
        let waker = ConnectionWaker::default().of(&task_waker).clone();
        let guard = PollGuard;
        POLLED.set(PolledBody::Some { woken: None });
        std::thread::spawn(move || waker.wake()).join().unwrap();
        drop(guard);
        assert_eq!(task.count(), 1);
    }

    #[test]
    fn the_waker_is_made_again_for_another_task() {
        let tasks = [(); 2].map(|()| Arc::<CountedWakes>::default());
        let wakers = tasks.each_ref().map(|task| Waker::from(Arc::clone(task)));
        let mut connection = ConnectionWaker::default();
        let first = connection.of(&wakers[0]).clone();
        assert!(connection.of(&wakers[0]).will_wake(&first));
        connection.of(&wakers[1]).wake_by_ref();
        assert_eq!(tasks.each_ref().map(|task| task.count()), [0, 1]);
    }
}
