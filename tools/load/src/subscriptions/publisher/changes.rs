//! Events that name a change of a subgraph: each is posted to the subgraph first, and published when it has responded.

use std::io;

use super::broker::BrokerConnection;
use super::destination::{Destination, DestinationKind};
use super::http::HttpPublisher;

/// A destination of changes in front of one of events.
pub(super) struct ChangingPublisher {
    changes: HttpPublisher,
    events: Box<dyn BrokerConnection>,
}

impl ChangingPublisher {
    /// Connects to the destination of changes.
    ///
    /// # Errors
    /// The URL is no `http://`, or nothing listens there.
    pub(super) fn open(
        destination: &Destination,
        events: Box<dyn BrokerConnection>,
    ) -> io::Result<Self> {
        let Destination { kind, address } = destination.clone();
        let DestinationKind::Http { authority, path, lines: false } = kind else {
            return Err(io::Error::other("changes are posted to an http:// URL"));
        };
        let changes = HttpPublisher::open(address, authority, path, false)?;
        Ok(Self { changes, events })
    }
}

impl BrokerConnection for ChangingPublisher {
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()> {
        self.changes.add(key, event)?;
        // Returns when the subgraph has the change.
        self.changes.send()?;
        self.events.add(key, event)
    }

    fn send(&mut self) -> io::Result<()> {
        self.events.send()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.events.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    type Seen = Arc<Mutex<Vec<String>>>;

    fn note(seen: &Seen, kind: &str, event: &[u8]) {
        seen.lock().unwrap().push(format!("{kind} {}", String::from_utf8_lossy(event)));
    }

    /// A broker that notes its events.
    struct NotingBroker(Seen);

    impl BrokerConnection for NotingBroker {
        fn add(&mut self, _key: &str, event: &[u8]) -> io::Result<()> {
            note(&self.0, "event", event);
            Ok(())
        }

        fn send(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_subgraph_has_each_change_before_its_event_is_published() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/prices/_entities", listener.local_addr().unwrap());
        let seen = Seen::default();
        let subgraph = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            for status in ["200 OK", "200 OK", "400 Bad Request"] {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    stream.read_line(&mut head).unwrap();
                }
                assert!(head.starts_with("POST /prices/_entities HTTP/1.1"), "{head}");
                let mut body = [0; 1];
                stream.read_exact(&mut body).unwrap();
                note(&subgraph, "change", &body);
                let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                stream.get_mut().write_all(response.as_bytes()).unwrap();
            }
        });
        let events = Box::new(NotingBroker(Arc::clone(&seen)));
        let mut publisher = ChangingPublisher::open(&url.parse().unwrap(), events).unwrap();
        publisher.add("0", b"1").unwrap();
        publisher.add("0", b"2").unwrap();
        let refused = publisher.add("0", b"3").unwrap_err();
        assert!(refused.to_string().contains("400"), "{refused}");
        let expected = ["change 1", "event 1", "change 2", "event 2", "change 3"];
        assert_eq!(*seen.lock().unwrap(), expected);
    }

    #[test]
    fn changes_are_posted_to_plain_urls_only() {
        for url in ["nats://127.0.0.1:4222/a", "memory://127.0.0.1:4222/a"] {
            let events = Box::new(NotingBroker(Seen::default()));
            assert!(ChangingPublisher::open(&url.parse().unwrap(), events).is_err(), "{url}");
        }
    }
}
