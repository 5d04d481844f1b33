//! The copy of the last supergraph that was loaded, with which a router starts while no server can be reached: a file
//! with the supergraph SDL, after a comment in its first line that says where it comes from.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use serde_json::{Value, json};

use super::downloaded_graph::{DownloadedGraph, Provenance};
use super::signature::Signatures;
use crate::file_replacement::{FilePermissions, replace_file};

/// The beginning of the first line.
const MARK: &str = "# starling: ";

/// The room for the first line: signatures and the name of a version.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The file of the copy.
#[derive(Clone, Debug)]
pub(super) struct CopyFile {
    pub(super) path: PathBuf,
    /// The maximum size of the supergraph.
    pub(super) bytes_max: usize,
}

impl CopyFile {
    /// Reads the copy; `None` if there is none. A supergraph without the first line is one from an unknown place. Its
    /// signatures are not verified yet. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or it is damaged.
    pub(super) fn read(&self) -> Result<Option<DownloadedGraph>, String> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let bytes_max = self.bytes_max + HEAD_BYTES_MAX;
        let mut text = String::new();
        // One byte more than allowed, to detect that the file is larger.
        let read = file.take(bytes_max as u64 + 1).read_to_string(&mut text);
        read.map_err(|error| error.to_string())?;
        if text.len() > bytes_max {
            return Err("it is larger than `supergraph.url.max_size`".to_owned());
        }
        let name = self.path.display().to_string();
        let Some((head, body)) = text.strip_prefix(MARK).and_then(|it| it.split_once('\n')) else {
            return Ok(Some(DownloadedGraph::new(&name, text, Provenance::default())));
        };
        let head: Value =
            serde_json::from_str(head).map_err(|_| "its first line is damaged".to_owned())?;
        let graph = DownloadedGraph::new(&name, body.to_owned(), provenance(&head));
        match head["id"].as_str() == Some(&*hexadecimal(graph.id)) {
            true => Ok(Some(graph)),
            false => Err("its text has changed since the router wrote it".to_owned()),
        }
    }

    /// Returns the time since the file was written.
    pub(super) fn age(&self) -> Option<Duration> {
        fs::metadata(&self.path).ok()?.modified().ok()?.elapsed().ok()
    }

    /// Replaces the copy as a whole, and makes its folder. A reader sees the old one or the new one, never a part.
    /// Blocks.
    ///
    /// # Errors
    /// The file cannot be written; it keeps its content.
    pub(super) fn write(&self, graph: &DownloadedGraph) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        // A supergraph has the URLs of subgraphs.
        replace_file(&self.path, &[&head(graph), &graph.text.text], FilePermissions::Private)
    }
}

/// Returns the first line.
fn head(graph: &DownloadedGraph) -> String {
    // The time of the signature is in the signature.
    let Provenance { source, etag, modified, signed: _, signatures } = &graph.provenance;
    let text = |value: &Option<HeaderValue>| {
        value.as_ref().and_then(|it| it.to_str().ok()).map(str::to_owned)
    };
    let head = json!({
        "id": hexadecimal(graph.id),
        "source": hexadecimal(*source),
        "etag": text(etag),
        "modified": modified,
        "hmac": text(&signatures.hmac),
        "minisign": signatures.minisign,
    });
    // JSON on one line: its strings have no line breaks.
    format!("{MARK}{head}\n")
}

/// Returns what the first line says. The time of the signature is known when that was verified.
fn provenance(head: &Value) -> Provenance {
    let header = |name: &str| head[name].as_str().and_then(|it| HeaderValue::from_str(it).ok());
    let source = head["source"].as_str().and_then(|it| u64::from_str_radix(it, 16).ok());
    Provenance {
        source: source.unwrap_or_default(),
        etag: header("etag"),
        modified: head["modified"].as_u64(),
        signed: None,
        signatures: Signatures {
            hmac: header("hmac"),
            minisign: head["minisign"].as_str().map(str::to_owned),
        },
    }
}

fn hexadecimal(id: u64) -> String {
    format!("{id:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_in(folder: &std::path::Path) -> CopyFile {
        CopyFile { path: folder.join("deep/supergraph.graphql"), bytes_max: 100 }
    }

    fn graph() -> DownloadedGraph {
        let provenance = Provenance {
            source: 7,
            etag: Some(HeaderValue::from_static("\"a\"")),
            modified: Some(1),
            signed: None,
            signatures: Signatures {
                hmac: Some(HeaderValue::from_static("sha256=00")),
                minisign: Some("two\nlines".to_owned()),
            },
        };
        DownloadedGraph::new("https://g/", "type Query { a: Int }".to_owned(), provenance)
    }

    #[test]
    fn a_copy_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let copy = copy_in(folder.path());
        assert_eq!(copy.read(), Ok(None));
        for text in ["type Query { longer: Int }", "type Query { a: Int }"] {
            let graph = DownloadedGraph::new("", text.to_owned(), graph().provenance);
            copy.write(&graph).unwrap();
            let read = copy.read().unwrap().unwrap();
            assert_eq!((&*read.text.text, read.id), (text, graph.id));
            assert_eq!(read.provenance, graph.provenance);
        }
        assert_eq!(fs::read_dir(copy.path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_copy_is_not_used_and_a_plain_supergraph_is() {
        let folder = tempfile::tempdir().unwrap();
        let copy = copy_in(folder.path());
        copy.write(&graph()).unwrap();
        let text = fs::read_to_string(&copy.path).unwrap();
        let refused = |text: &str| {
            fs::write(&copy.path, text).unwrap();
            copy.read().unwrap_err()
        };
        assert!(refused(&text.replace("a: Int", "b: Int")).contains("has changed"));
        assert!(refused(&text[..text.len() - 1]).contains("has changed"));
        assert!(refused(&text.replace('{', "")).contains("first line is damaged"));
        assert!(refused(&" ".repeat(100 + HEAD_BYTES_MAX + 1)).contains("larger than"));
        fs::write(&copy.path, "type Query { c: Int }").unwrap();
        let plain = copy.read().unwrap().unwrap();
        assert_eq!(plain.provenance, Provenance::default());
    }

    #[test]
    #[cfg(unix)]
    fn other_users_cannot_read_a_copy() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let copy = copy_in(folder.path());
        copy.write(&graph()).unwrap();
        assert_eq!(fs::metadata(&copy.path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
