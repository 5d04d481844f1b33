//! The client of subgraphs' subscriptions against scripted servers on real sockets.

mod callbacks;
mod event_streams;
mod probes;
mod scripted_server;
mod scripted_socket;
mod subscriber;
mod websockets;
