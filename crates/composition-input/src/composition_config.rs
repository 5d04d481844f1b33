//! The file that names the subgraphs of a composition, as the rest of the router uses it. `file_format` has the two
//! forms of its YAML, `schema_folder` reads a folder in its place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use compose::SubscriptionEndpoint;
use config::Secret;
use config::diagnostic::{Diagnostic, SourceText, Span};

/// The subgraphs to compose, as `supergraph.yaml` or the files of a folder name them.
#[derive(Clone, Debug)]
pub struct CompositionConfig {
    /// The subgraphs: those of a list in the order of the file, those of a mapping or a folder by name. There is at
    /// least one, and names are unique.
    pub subgraphs: Vec<SubgraphConfig>,
    /// The path of the file itself or of the folder, as it was given. The paths of schema files are already relative to
    /// the same working directory.
    pub path: PathBuf,
    /// Settings that have no effect.
    pub warnings: Vec<Diagnostic>,
    /// The text of the file for messages, without its secrets; `None` for a folder.
    pub(crate) source: Option<Arc<SourceText>>,
}

/// One subgraph of a composition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubgraphConfig {
    /// The name of the subgraph.
    pub name: String,
    /// The URL of the subgraph's server for requests of the router. `None` for event subgraphs, and if the URL of
    /// [`SchemaSource::Introspection`] is to be used.
    pub routing_url: Option<String>,
    /// The source of its schema.
    pub schema: SchemaSource,
    /// How its subscriptions are reached, if the file says it.
    pub subscription: Option<SubscriptionEndpoint>,
    /// The place in the file where the source of the schema is named.
    pub(crate) place: Option<Span>,
}

/// The source of a subgraph's schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemaSource {
    /// A file with SDL. The path is relative to the working directory.
    File(PathBuf),
    /// SDL inside `supergraph.yaml`.
    Inline(String),
    /// A running subgraph.
    Introspection {
        /// The URL that is asked.
        url: String,
        /// The headers of the request.
        headers: Vec<(String, Secret)>,
        /// True if only GraphQL's own introspection is used, without `_service { sdl }` of the federation
        /// specification.
        is_plain: bool,
    },
}

impl CompositionConfig {
    /// Iterates over the schema files, for watching them.
    pub fn schema_files(&self) -> impl Iterator<Item = &Path> {
        self.subgraphs.iter().filter_map(|subgraph| match &subgraph.schema {
            SchemaSource::File(path) => Some(path.as_path()),
            SchemaSource::Inline(_) | SchemaSource::Introspection { .. } => None,
        })
    }

    /// True if the subgraphs are the files of a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.source.is_none()
    }

    /// True if the schema of some subgraph is read from its server.
    pub fn has_introspection(&self) -> bool {
        let is_introspected = |subgraph: &SubgraphConfig| {
            matches!(subgraph.schema, SchemaSource::Introspection { .. })
        };
        self.subgraphs.iter().any(is_introspected)
    }
}
