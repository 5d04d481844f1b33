//! Reads the operations that a router prepares before it is ready, from a file or from another router.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use config::WarmingSource;
use http::HeaderMap;
use persisted_documents::{ManifestFormat, PersistedDocument, parse_manifest};
use upstream::{Resource, Revision, resource_tls_with_identity};

use crate::remote_file::shown_url;

/// The maximum size of a source: twenty thousand operations of half a kilobyte.
const SOURCE_BYTES_MAX: usize = 10_000_000;

/// The maximum time for the response of another router, and the part of `warming.timeout` that it may take: the
/// operations must be prepared in the same time.
const DOWNLOAD_TIME_MAX: Duration = Duration::from_secs(5);
const DOWNLOAD_PART: u32 = 2;

/// The media type that is requested.
const ACCEPT: &str = "application/json";

/// Returns the name of a source for messages, without secrets.
pub(super) fn shown_name(source: &WarmingSource) -> String {
    match &source.file {
        Some(file) => file.display().to_string(),
        None => shown_url(source.url.as_deref()),
    }
}

/// Reads the first operations of a source for a graph. `graph` is the name of a further graph; `None` for the graph of
/// `supergraph`. `time_max` is the time for reading and preparing them.
///
/// # Errors
/// The reason in words, without secrets.
pub(super) async fn read_operations(
    source: &WarmingSource,
    graph: Option<&str>,
    time_max: Duration,
) -> Result<Vec<PersistedDocument>, String> {
    let source = source.clone();
    let text = match &source.url {
        Some(url) => {
            let time_max = DOWNLOAD_TIME_MAX.min(time_max / DOWNLOAD_PART);
            download(&url_of_graph(url, graph), &source, time_max).await?
        }
        None => Bytes::new(),
    };
    let read = tokio::task::spawn_blocking(move || {
        let text = match &source.file {
            Some(file) => read_file(file)?.into(),
            None => text,
        };
        parse(&text, source.max as usize)
    });
    read.await.map_err(|error| error.to_string())?
}

/// Returns the URL of the operations of a graph: for a further graph with the parameter `graph`, before all others.
fn url_of_graph(url: &str, graph: Option<&str>) -> String {
    let Some(graph) = graph else { return url.to_owned() };
    // A fragment is not sent.
    let (url, _) = url.split_once('#').unwrap_or((url, ""));
    // Names of graphs have no characters that need an escape. Of two parameters with one name, the first one counts.
    match url.split_once('?') {
        Some((path, parameters)) => format!("{path}?graph={graph}&{parameters}"),
        None => format!("{url}?graph={graph}"),
    }
}

async fn download(url: &str, source: &WarmingSource, time_max: Duration) -> Result<Bytes, String> {
    let (tls_url, files) = (url.to_owned(), source.clone());
    let tls = tokio::task::spawn_blocking(move || {
        resource_tls_with_identity(&tls_url, files.ca.as_deref(), files.identity())
    });
    let tls = tls.await.map_err(|error| error.to_string())??;
    let resource = Resource::new(url, tls, ACCEPT, SOURCE_BYTES_MAX, time_max);
    let resource = resource.map_err(|error| error.to_string())?;
    let headers = source.headers.iter().map(|it| (it.name.clone(), it.value.clone()));
    let headers: HeaderMap = headers.collect();
    match resource.get_changed(headers, None).await.map_err(|error| error.to_string())? {
        Revision::Changed { body, .. } => Ok(body),
        Revision::Unchanged => Err("the server says that nothing has changed".into()),
    }
}

fn read_file(file: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    // One byte more than allowed, to detect that the file is larger.
    let limit = SOURCE_BYTES_MAX as u64 + 1;
    let read = File::open(file).and_then(|opened| opened.take(limit).read_to_end(&mut text));
    read.map_err(|error| format!("cannot read it: {error}"))?;
    match text.len() > SOURCE_BYTES_MAX {
        true => Err(format!("it is larger than {SOURCE_BYTES_MAX} bytes")),
        false => Ok(text),
    }
}

fn parse(text: &[u8], max: usize) -> Result<Vec<PersistedDocument>, String> {
    // The size of the text bounds the number of its operations.
    let operations = parse_manifest(text, ManifestFormat::Auto, usize::MAX);
    let mut operations = operations.map_err(|error| match error.line {
        0 => error.to_string(),
        line => format!("line {line}, column {}: {error}", error.column),
    })?;
    operations.truncate(max);
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_further_graph_has_its_name() {
        let url = "http://peer:8088/admin/operations";
        assert_eq!(url_of_graph(url, None), url);
        assert_eq!(url_of_graph(url, Some("beta")), format!("{url}?graph=beta"));
        for fragment in ["", "#top"] {
            let limited = format!("{url}?limit=9{fragment}");
            assert_eq!(url_of_graph(&limited, Some("v1.2")), format!("{url}?graph=v1.2&limit=9"));
        }
    }

    #[tokio::test]
    async fn a_file_is_read_up_to_the_maximum_and_a_bad_one_is_explained() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("operations.json");
        let source = WarmingSource {
            file: Some(file.clone()),
            url: None,
            headers: Vec::new(),
            ca: None,
            certificate: None,
            key: None,
            max: 2,
        };
        let read = async |text: &str| {
            std::fs::write(&file, text).expect("it is written");
            let read = read_operations(&source, None, Duration::from_secs(10)).await;
            read.map(|it| it.into_iter().map(|it| it.text).collect::<Vec<_>>())
        };
        let three = r#"{"a": "{ a }", "b": "{ b }", "c": "{ c }"}"#;
        assert_eq!(read(three).await, Ok(vec!["{ a }".into(), "{ b }".into()]));
        let broken = read("{\n\"a\": 1}").await.expect_err("it is broken");
        assert!(broken.contains("neither Apollo's manifest"), "{broken}");
        let cut = read("{\"a\": \"{").await.expect_err("it is cut");
        assert_eq!(cut, "line 1, column 8: EOF while parsing a string");
        let huge = read(&" ".repeat(SOURCE_BYTES_MAX + 1)).await.expect_err("it is huge");
        assert_eq!(huge, "it is larger than 10000000 bytes");
        std::fs::remove_file(&file).expect("it is removed");
        let missing = read_operations(&source, None, Duration::from_secs(10)).await;
        let missing = missing.expect_err("it is missing");
        assert!(missing.starts_with("cannot read it: No such file"), "{missing}");
    }
}
