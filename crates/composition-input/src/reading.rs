//! Reading of the file that names the subgraphs: bytes → text → checked YAML (`file_format`) → [`CompositionConfig`]
//! (`conversion`).

use std::ffi::OsString;
use std::path::Path;

use config::diagnostic::Diagnostic;
use config::parse_document;

use crate::composition_config::CompositionConfig;
use crate::file_format::CompositionFile;
use crate::{conversion, text_file};

/// The maximum size of the file, as of the configuration of the router. Schemas inside the file are the largest part.
const FILE_BYTES_MAX: usize = 4 << 20;

impl CompositionConfig {
    /// True if the file is a composition configuration, with or without mistakes, and not the configuration of the
    /// router. Both have the key `subgraphs`; only here a subgraph names its schema.
    pub fn is_in_file(path: &Path) -> bool {
        let Ok(text) = text_file::read(path, FILE_BYTES_MAX) else { return false };
        let document = parse_document::<CompositionFile>(&text, "", &|name| std::env::var_os(name));
        document.has_key(|path| {
            let below = path.strip_prefix("subgraphs").and_then(|it| it.rsplit_once('.'));
            below.is_some_and(|(subgraph, key)| {
                !subgraph.is_empty() && ["schema", "introspection", "routing_url"].contains(&key)
            })
        })
    }

    /// Reads the file.
    ///
    /// # Errors
    /// All mistakes in the file, or the reason why it cannot be read.
    pub fn read(path: &Path) -> Result<Self, Vec<Diagnostic>> {
        let text = text_file::read(path, FILE_BYTES_MAX).map_err(|error| {
            let name = path.display();
            let message = format!("cannot read the composition configuration {name}: {error}");
            vec![Diagnostic::error("unreadable-file", message).help(error.advice("--config"))]
        })?;
        Self::parse(&text, path)
    }

    /// Parses the text of the file at `path`, which is used for relative paths and for messages. `${NAME}` and
    /// `${env.NAME}` in values are replaced by environment variables.
    ///
    /// # Errors
    /// All mistakes in the text, each with its place.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Vec<Diagnostic>> {
        Self::parse_with(text, path, &|name| std::env::var_os(name))
    }

    /// Parses as [`Self::parse`] does, with environment variables from `env`.
    pub(crate) fn parse_with(
        text: &str,
        path: &Path,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Vec<Diagnostic>> {
        conversion::convert(parse_document(text, &path.display().to_string(), env), path)
    }
}
