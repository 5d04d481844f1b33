//! An HTTP/1.1 client. [`head`] and [`framing`] are the protocol: bytes go in, a response comes
//! out, and neither knows sockets. [`connection`] moves the bytes.
//!
//! The task that waits for a response writes the request and reads the response itself, without a
//! task for the connection and without channels in between: four of five exchanges of a typical
//! operation are with subgraphs, and handing each of them from task to task and back costs more
//! than the bytes do.

mod chunks;
mod connection;
mod framing;
mod fuzzing;
mod head;

pub(crate) use connection::Http1Connection;
pub use fuzzing::{FuzzedResponse, fuzz_response};
