//! HTTP/1.1 as a client. [`head`] and [`framing`] are the protocol: bytes go in, a response comes out, and nothing in
//! there knows a socket. [`connection`] moves the bytes.
//!
//! A request is written and its response read by whoever waits for it, without a task for the connection and without
//! channels in between: four of five exchanges of a typical operation are ours with subgraphs, and handing each of them
//! from task to task and back costs more than the bytes do.

mod connection;
mod framing;
mod head;

pub(crate) use connection::Connection;
