//! Publishing by HTTP: one body for each event, or for several, one line each.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::broker::{BrokerConnection, connect};
use crate::query::response::ResponseReader;
use crate::subscriptions::target::KEY;

/// The maximum bytes of events in one body: half of the admin listener's limit.
const BODY_BYTES_MAX: usize = 512 * 1024;

/// A connection over HTTP: a POST for each event, or for several, one line each.
pub(super) struct HttpPublisher {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
    authority: String,
    path: String,
    lines: bool,
    /// Bodies to post, with their paths.
    bodies: Vec<(String, Vec<u8>)>,
}

impl BrokerConnection for HttpPublisher {
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()> {
        let path = self.path.replace(KEY, key);
        if self.lines
            && let Some((last, body)) = self.bodies.last_mut()
            && *last == path
            && body.len() + event.len() < BODY_BYTES_MAX
        {
            body.push(b'\n');
            body.extend_from_slice(event);
        } else {
            self.bodies.push((path, event.to_vec()));
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        for (path, body) in std::mem::take(&mut self.bodies) {
            match self.post(&path, &body) {
                // The server may have closed an idle connection; a new connection shows whether it is up.
                Err(error) if is_closed(&error) => {
                    self.stream = BufReader::new(connect(self.address)?);
                    self.post(&path, &body)?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

impl HttpPublisher {
    pub(super) fn open(
        address: SocketAddr,
        authority: String,
        path: String,
        lines: bool,
    ) -> io::Result<Self> {
        let stream = BufReader::new(connect(address)?);
        Ok(Self { address, stream, authority, path, lines, bodies: Vec::new() })
    }

    fn post(&mut self, path: &str, body: &[u8]) -> io::Result<()> {
        let kind = if self.lines { "application/x-ndjson" } else { "application/json" };
        let authority = &self.authority;
        let mut output = format!(
            "POST {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        output.extend_from_slice(body);
        self.stream.get_mut().write_all(&output)?;
        let mut reader = ResponseReader::default();
        let mut body = Vec::new();
        loop {
            let bytes = self.stream.fill_buf()?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut rest = bytes;
            let read = reader.read(&mut rest, |bytes| body.extend_from_slice(bytes));
            let taken = bytes.len() - rest.len();
            self.stream.consume(taken);
            let read = read.map_err(|malformed| io::Error::other(malformed.0))?;
            let Some(response) = read else { continue };
            if !(200..300).contains(&response.status) {
                let body = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
                return Err(io::Error::other(format!("status {}: {body}", response.status)));
            }
            return Ok(());
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe | ConnectionAborted)
}
