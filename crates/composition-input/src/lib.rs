//! The input of composition: the file `supergraph.yaml` that names the subgraphs, or a folder with their schemas, and
//! the loading of the schemas from files and servers.
//!
//! - [`CompositionConfig`] is the file, in either of the two forms that common tools use. Its text may refer to
//!   environment variables. [`CompositionConfig::read_folder`] takes the names of the files of a folder instead.
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
mod schema_folder;
mod subscription_settings;
mod text_file;

#[cfg(test)]
mod tests;

pub use composition_config::{CompositionConfig, SchemaSource, SubgraphConfig};
pub use config::Secret;
pub use introspection::{Introspected, introspect};
pub use load_error::{FileError, LoadError, LoadErrorKind};
pub use loading::{load, load_each};
pub use schema_folder::is_schema_file_name;
