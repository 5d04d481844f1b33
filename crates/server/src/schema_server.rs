//! A subgraph for tests of this crate that only returns its schema.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The behaviour of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behaviour {
    /// It returns the schema.
    Serve,
    /// It responds with status 401.
    Refuse,
    /// It reads requests and never responds.
    Hang,
}

/// A running server, which stops with the runtime of the test.
pub(crate) struct SchemaServer {
    pub(crate) url: String,
    behaviour: Arc<watch::Sender<Behaviour>>,
    requests: watch::Receiver<usize>,
}

impl SchemaServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let behaviour = Arc::new(watch::Sender::new(Behaviour::Serve));
        let (counter, requests) = watch::channel(0);
        let server = Arc::clone(&behaviour);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let now = *server.borrow();
                tokio::spawn(respond(stream, now, counter.clone()));
            }
        });
        Self { url, behaviour, requests }
    }

    /// Sets the behaviour of later connections. Each request has its own.
    pub(crate) fn set(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// Waits for the next request.
    pub(crate) async fn wait_for_request(&mut self) {
        self.requests.mark_unchanged();
        self.requests.changed().await.unwrap();
    }
}

async fn respond(mut stream: TcpStream, behaviour: Behaviour, counter: watch::Sender<usize>) {
    let mut request = Vec::new();
    while !String::from_utf8_lossy(&request).contains("_service") {
        if stream.read_buf(&mut request).await.unwrap() == 0 {
            return;
        }
    }
    counter.send_modify(|count| *count += 1);
    let (status, body) = match behaviour {
        Behaviour::Serve => {
            ("200 OK", r#"{"data": {"_service": {"sdl": "type Query { a: Int }"}}}"#)
        }
        Behaviour::Refuse => ("401 Unauthorized", "{}"),
        Behaviour::Hang => std::future::pending().await,
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).await.unwrap();
}
