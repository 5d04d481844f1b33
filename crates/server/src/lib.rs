//! The router as a server: HTTP pipeline, configuration, admin, reload.
