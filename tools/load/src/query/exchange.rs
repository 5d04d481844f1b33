//! One request and its response on a connection of their own, outside the loop that measures.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::response::{CompletedResponse, ResponseReader};

/// The number of bytes read from the socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// Sends a request and returns the response and its body. `timeout` applies to connecting, and to each step of sending
/// and receiving.
///
/// # Errors
/// The server cannot be reached, or does not respond in time. If the response cannot be read, the kind of the error is
/// [`io::ErrorKind::InvalidData`].
pub(crate) fn exchange(
    address: SocketAddr,
    timeout: Duration,
    request: &[u8],
) -> io::Result<(CompletedResponse, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(request)?;
    let mut reader = ResponseReader::default();
    let mut body = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    let unusable = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    loop {
        let count = stream.read(&mut buffer)?;
        let completed = if count == 0 {
            Some(reader.closed().ok_or_else(|| unusable("the connection was closed"))?)
        } else {
            reader
                .read(&mut &buffer[..count], |bytes| body.extend_from_slice(bytes))
                .map_err(|malformed| unusable(malformed.0))?
        };
        if let Some(completed) = completed {
            return Ok((completed, body));
        }
    }
}
