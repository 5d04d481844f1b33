//! The input of composition: the file `supergraph.yaml` that names the subgraphs, and the loading of their schemas from
//! files and servers.
//!
//! - [`CompositionConfig`] is the file, in either of the two forms that common tools use. Its text may refer to
//!   environment variables.
//! - [`load`] reads the schema files and asks the servers. Its result is the input of [`compose::compose`].
//!   [`load_each`] does so for some of the subgraphs.
//! - [`introspect`] asks one server.
//!
//! Composition itself is the crate `compose`. Watching files, asking servers again and serving are left to the callers.

mod composition_config;
mod conversion;
mod file_format;
mod introspected_schema;
mod introspection;
mod load_error;
mod loading;
mod reading;
mod subscription_settings;
mod text_file;

#[cfg(test)]
mod tests;

pub use composition_config::{CompositionConfig, SchemaSource, SubgraphConfig};
pub use config::Secret;
pub use introspection::{Introspected, introspect};
pub use load_error::{FileError, LoadError, LoadErrorKind};
pub use loading::{load, load_each};
