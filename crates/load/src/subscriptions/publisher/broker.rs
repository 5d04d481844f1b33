//! A connection to a destination of events: its interface, and the blocking socket below it.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a broker may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Bytes of one line of a broker; none is near that.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A connection to where events go.
pub(super) trait Broker: Send {
    /// Adds an event to what is sent next.
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()>;

    /// Sends what was added; waits for the answers where every event has one.
    fn send(&mut self) -> io::Result<()>;

    /// Waits until the broker has everything, and answers its questions on the way.
    fn flush(&mut self) -> io::Result<()>;
}

pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// Reads one line, without its end.
pub(super) fn read_line(stream: &mut BufReader<TcpStream>, line: &mut String) -> io::Result<()> {
    line.clear();
    if stream.by_ref().take(LINE_BYTES_MAX).read_line(line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(())
}
