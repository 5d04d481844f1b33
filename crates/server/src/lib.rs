//! The router as a server: HTTP pipeline, configuration, admin, reload.

pub mod config;
pub mod diagnostic;
