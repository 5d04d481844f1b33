//! A collector of traces: it reads requests and responds with status 200, without looking at them. It costs the router
//! what a fast collector costs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use test_kit::commands::Failure;

/// The largest body that is read: more than a batch of spans has.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// A running collector. Its threads end with the process.
pub(crate) struct TraceCollector {
    address: SocketAddr,
    received: Arc<AtomicU64>,
}

impl TraceCollector {
    /// Starts a collector at a free port.
    pub(crate) fn start() -> Result<Self, Failure> {
        let cannot = |error| format!("cannot start the collector of traces: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                // A connection that breaks ends its thread only.
                std::thread::spawn(move || serve(stream, &counter));
            }
        });
        Ok(Self { address, received })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of requests so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Responds to requests with a `content-length`, one after the other, until the connection ends.
fn serve(stream: TcpStream, received: &AtomicU64) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0).min(BODY_BYTES_MAX);
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        received.fetch_add(1, Ordering::Relaxed);
        writer.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
        )?;
    }
}
