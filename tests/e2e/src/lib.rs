//! End-to-end tests over real sockets, with real clients and real brokers.
