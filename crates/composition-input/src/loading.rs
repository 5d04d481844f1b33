//! Loading of the schemas of all subgraphs, concurrently and within bounds.

use std::path::Path;

use compose::{SDL_BYTES_MAX, SubgraphInput};
use config::diagnostic::Diagnostic;
use futures_util::{StreamExt as _, stream};

use crate::composition_config::{CompositionConfig, SchemaSource, SubgraphConfig};
use crate::introspection::{displayed_url, introspect};
use crate::load_error::{LoadError, LoadErrorKind};
use crate::text_file;

/// The number of schemas that are loaded at the same time: many small files, and few enough connections for a laptop.
const CONCURRENT_LOADS_MAX: usize = 16;

/// Reads all schema files and asks all servers. The result has the order of `config`.
///
/// # Errors
/// All failures, in the order of the subgraphs.
pub async fn load(config: &CompositionConfig) -> Result<Vec<SubgraphInput>, Vec<LoadError>> {
    let subgraphs: Vec<_> = config.subgraphs.iter().collect();
    let mut inputs = Vec::with_capacity(subgraphs.len());
    let mut errors = Vec::new();
    for loaded in load_each(config, &subgraphs).await {
        match loaded {
            Ok(input) => inputs.push(input),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(inputs) } else { Err(errors) }
}

/// Loads the schemas of some subgraphs of `config`. Returns one result for each, in their order: one failure does not
/// hide the others.
pub async fn load_each(
    config: &CompositionConfig,
    subgraphs: &[&SubgraphConfig],
) -> Vec<Result<SubgraphInput, LoadError>> {
    let loads = subgraphs.iter().map(|subgraph| load_subgraph(config, subgraph));
    // A closure in the type of the stream would keep the future from being `Send`.
    let loads: Vec<_> = loads.collect();
    stream::iter(loads).buffered(CONCURRENT_LOADS_MAX).collect().await
}

async fn load_subgraph(
    config: &CompositionConfig,
    subgraph: &SubgraphConfig,
) -> Result<SubgraphInput, LoadError> {
    let loaded = match &subgraph.schema {
        SchemaSource::File(path) => {
            let sdl = read_schema(path).await;
            sdl.map(|sdl| (sdl, path.display().to_string()))
        }
        SchemaSource::Inline(sdl) => {
            let file = format!("{} ({})", config.path.display(), subgraph.name);
            Ok((sdl.clone(), file))
        }
        SchemaSource::Introspection { url, headers, is_plain } => {
            let introspected = introspect(url, headers, *is_plain).await;
            introspected.map(|it| {
                // Findings of a schema without federation directives are puzzling without its origin.
                let origin = if it.is_plain { " (introspection)" } else { "" };
                (it.sdl, format!("{}{origin}", displayed_url(url)))
            })
        }
    };
    let input = loaded.and_then(|(sdl, file)| {
        let url = routing_url(config, subgraph, &sdl)?;
        let (name, subscription) = (subgraph.name.clone(), subgraph.subscription.clone());
        Ok(SubgraphInput { name, url, file, sdl, subscription })
    });
    input.map_err(|kind| load_error(config, subgraph, kind))
}

async fn read_schema(path: &Path) -> Result<String, LoadErrorKind> {
    let shown = path.display().to_string();
    let path = path.to_owned();
    let reading =
        tokio::task::spawn_blocking(move || text_file::read_regular(&path, SDL_BYTES_MAX));
    let read =
        reading.await.unwrap_or_else(|error| Err(text_file::FileError::Failed(error.to_string())));
    read.map_err(|error| LoadErrorKind::File { path: shown, error })
}

/// Returns the URL for requests of the router, empty for an event subgraph.
fn routing_url(
    config: &CompositionConfig,
    subgraph: &SubgraphConfig,
    sdl: &str,
) -> Result<String, LoadErrorKind> {
    match (&subgraph.routing_url, &subgraph.schema) {
        (Some(url), _) | (None, SchemaSource::Introspection { url, .. }) => Ok(url.clone()),
        // Composition reports a schema that is not GraphQL.
        (None, _) if compose::is_event_subgraph(sdl).unwrap_or(true) => Ok(String::new()),
        (None, _) if config.is_folder() => {
            Err(LoadErrorKind::NoUrl { key: format!("subgraphs.{}.url", subgraph.name) })
        }
        (None, _) => Err(LoadErrorKind::NoRoutingUrl),
    }
}

fn load_error(
    config: &CompositionConfig,
    subgraph: &SubgraphConfig,
    kind: LoadErrorKind,
) -> LoadError {
    let name = &subgraph.name;
    let advice = match &kind {
        LoadErrorKind::File { error, .. } if config.is_folder() => error.folder_advice(),
        kind => kind.advice(),
    };
    let mut diagnostic =
        Diagnostic::error(kind.code(), format!("subgraph `{name}`: {kind}")).help(advice);
    if let Some(source) = &config.source {
        diagnostic = diagnostic.in_source(source);
    }
    if let Some(place) = &subgraph.place {
        diagnostic = diagnostic.at(place.clone(), "");
    }
    LoadError { subgraph: name.clone(), kind, diagnostic: Box::new(diagnostic) }
}
