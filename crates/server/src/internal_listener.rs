//! Listeners for few and known peers: operators, and subgraphs that send callbacks. The listeners of clients are in
//! `frontend`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frontend::listener::is_connection_error;
use frontend::response::Response;
use frontend::write_timeout::{STALL_TIME_MAX, WriteTimeout};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use net::TlsServer;
use telemetry::LogLimit;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The maximum size of the head of a request. The library's default would be 400 KiB for each connection.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The pause after a failed `accept`, which most likely failed because no descriptor was free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An extension of requests over TLS: the client has a certificate of one of the listener's authorities.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HasClientCertificate;

/// The limits of a listener, and its name in log lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InternalListener {
    /// The name in log lines.
    pub(crate) name: &'static str,
    /// The maximum number of connections at the same time; more wait.
    pub(crate) connections_max: usize,
    /// The time limit for the head of a request.
    pub(crate) head_timeout: Duration,
}

impl InternalListener {
    /// Serves HTTP/1.1 until it is dropped, connections included. `handle` responds to each request with `context`.
    /// With `tls`, requests of clients with a certificate have the extension [`HasClientCertificate`].
    pub(crate) async fn serve<C, R>(
        self,
        (listener, tls): (std::net::TcpListener, Option<Arc<TlsServer>>),
        context: Arc<C>,
        handle: fn(Arc<C>, Request<Incoming>) -> R,
    ) where
        C: Send + Sync + 'static,
        R: Future<Output = Response> + Send + 'static,
    {
        let Self { name, connections_max, head_timeout } = self;
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(listener = name, %error, "a listener cannot be served");
                return;
            }
        };
        let address = listener.local_addr().map(|it| it.to_string()).unwrap_or_default();
        let warnings = LogLimit::new();
        let room = Arc::new(Semaphore::new(connections_max));
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            let socket = match listener.accept().await {
                Ok((socket, _)) => socket,
                Err(error) if is_connection_error(&error) => continue,
                Err(error) => {
                    if let Some(suppressed) = warnings.admit(Instant::now()) {
                        tracing::warn!(
                            listener = name,
                            address,
                            %error,
                            suppressed,
                            "connections cannot be accepted; the listener tries again"
                        );
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Best effort: without it responses are slower.
            let _ = socket.set_nodelay(true);
            let (context, tls) = (Arc::clone(&context), tls.clone());
            connections.spawn(async move {
                let _permit = permit;
                let socket = WriteTimeout::new(socket, STALL_TIME_MAX);
                let respond = |request| handle(Arc::clone(&context), request);
                let ended = match tls {
                    None => serve_connection(socket, head_timeout, respond).await,
                    Some(tls) => {
                        // The client has as much time for it as for the head of a request.
                        let handshake = tokio::time::timeout(head_timeout, tls.handshake(socket));
                        match handshake.await {
                            Ok(Ok(stream)) => {
                                let is_known = net::has_client_certificate(&stream);
                                let respond = |mut request: Request<Incoming>| {
                                    if is_known {
                                        request.extensions_mut().insert(HasClientCertificate);
                                    }
                                    respond(request)
                                };
                                serve_connection(stream, head_timeout, respond).await
                            }
                            Ok(Err(error)) => Err(error.to_string()),
                            Err(_) => Err("the TLS handshake took too long".to_owned()),
                        }
                    }
                };
                if let Err(error) = ended {
                    tracing::debug!(listener = name, %error, "a connection ended early");
                }
            });
        }
    }
}

/// Serves the requests of one connection until it ends.
///
/// # Errors
/// The reason why it ended early.
async fn serve_connection<S, R>(
    stream: S,
    head_timeout: Duration,
    respond: impl Fn(Request<Incoming>) -> R,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: Future<Output = Response>,
{
    let service = service_fn(|request| {
        let response = respond(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    connection.await.map_err(|error| error.to_string())
}
