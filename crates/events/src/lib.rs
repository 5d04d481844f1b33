//! Brokers behind Source and Sink: memory and NATS.
