//! The source of a supergraph: a file, a URL, a text, or the subgraphs that are composed to one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::diagnostic::{Diagnostic, SourceText};
use config::{Config, SupergraphDownload};

/// The source of a supergraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SupergraphSource {
    /// A file, watched.
    File(PathBuf),
    /// A URL, polled.
    Url(Box<SupergraphDownload>),
    /// A text that never changes, with a name for messages.
    Text {
        /// The name, such as `demo.graphql`.
        name: String,
        /// The supergraph SDL.
        sdl: String,
    },
    /// Subgraphs that the router composes.
    Composition {
        /// The composition configuration, watched like the schema files that it names.
        file: PathBuf,
        /// The interval at which subgraphs without a schema file are asked for their schemas; zero: never.
        poll_interval: Duration,
    },
    /// A folder of schemas that the router composes.
    Directory {
        /// The folder, watched like its files.
        folder: PathBuf,
        /// The URLs of the subgraphs by name. Event subgraphs have none.
        urls: BTreeMap<String, String>,
    },
}

impl SupergraphSource {
    /// Returns the source that a configuration names.
    pub fn of(config: &Config) -> Self {
        let settings = &config.supergraph;
        if let Some(file) = &settings.compose {
            Self::Composition { file: file.clone(), poll_interval: settings.poll_interval }
        } else if let Some(folder) = &settings.directory {
            let subgraphs = config.subgraphs.iter();
            let urls = subgraphs.filter_map(|(name, it)| Some((name.clone(), it.url.clone()?)));
            Self::Directory { folder: folder.clone(), urls: urls.collect() }
        } else if let Some(url) = &settings.url {
            Self::Url(Box::new(url.clone()))
        } else {
            Self::File(settings.file.clone())
        }
    }

    /// True if the graph is read from files.
    pub(crate) fn has_files(&self) -> bool {
        match self {
            Self::File(_) | Self::Composition { .. } | Self::Directory { .. } => true,
            Self::Url(_) | Self::Text { .. } => false,
        }
    }

    /// True if the graph can be read again, and may then be another one.
    pub(crate) fn can_change(&self) -> bool {
        !matches!(self, Self::Text { .. })
    }
}

/// Reads a supergraph file. Blocks.
///
/// # Errors
/// The name of the file and the reason.
pub fn read_supergraph_file(path: &Path) -> Result<SourceText, Box<Diagnostic>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(SourceText { name: path.display().to_string(), text }),
        Err(error) => {
            let message = format!("cannot read the supergraph {}: {error}", path.display());
            Err(Box::new(Diagnostic::error("supergraph", message).help(unreadable_help(&error))))
        }
    }
}

/// Returns advice about a supergraph file that cannot be read.
fn unreadable_help(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => "let the user that runs the router read it",
        std::io::ErrorKind::InvalidData => {
            "a supergraph is a text in UTF-8; check that this is the right file and that it is not compressed"
        }
        _ => "set its path by `supergraph.file` in the configuration or by --supergraph",
    }
}
