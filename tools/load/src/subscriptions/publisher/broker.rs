//! A connection to a destination of events: its interface, and the blocking socket below it.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The deadline for a broker's response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of a broker's line; real ones are far shorter.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A connection to a destination of events.
pub(super) trait BrokerConnection: Send {
    /// Adds an event to the next batch.
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()>;

    /// Sends the batch; waits for the responses if every event has one.
    fn send(&mut self) -> io::Result<()>;

    /// Waits until the broker has everything; responds to its pings meanwhile.
    fn flush(&mut self) -> io::Result<()>;
}

pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, RESPONSE_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    Ok(stream)
}

/// Reads one line, without its line break.
pub(super) fn read_line(stream: &mut BufReader<TcpStream>, line: &mut String) -> io::Result<()> {
    line.clear();
    if stream.by_ref().take(LINE_BYTES_MAX).read_line(line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(())
}
