//! The input of composition: the file `supergraph.yaml` that names the subgraphs, and the loading of their schemas from
//! files and servers.
//!
//! - [`CompositionConfig`] is the file, in either of the two forms that common tools use. Reading it is pure, apart from
//!   the file itself and the environment variables that it refers to.
//! - [`load`] reads the schema files and asks the servers. Its result is the input of [`compose::compose`].
//! - [`introspect`] asks one server.
//!
//! Composition itself is the crate `compose`. Watching files, asking servers again and serving are left to the callers.

mod composition_config;
mod load_error;
mod loading;

pub use composition_config::{CompositionConfig, SchemaSource, SubgraphConfig, SubscriptionConfig};
pub use config::Secret;
pub use load_error::{LoadError, LoadErrorKind};
pub use loading::{Introspected, introspect, load};
