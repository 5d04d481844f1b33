//! Reading of persisted documents from the files and folders that the configuration names, and from the manifests that
//! were downloaded (`manifest_downloads`).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use config::diagnostic::Diagnostic;
use config::{
    DocumentManifest, DocumentManifestFormat, PersistedDocuments, PersistedDocumentsMode,
};
use persisted_documents::{DocumentSet, ID_BYTES_MAX, PersistedDocument, parse_manifest};

use crate::file_watch::Stamp;
use crate::manifest_downloads::{DownloadedManifests, manifest_format};
use crate::remote_file::shown_url;

/// The endings of files with one document each.
const DOCUMENT_ENDINGS: [&str; 2] = ["graphql", "gql"];

/// The versions of all files: equal versions have equal contents, as far as the metadata shows.
pub(crate) type Versions = Vec<(PathBuf, Option<Stamp>)>;

/// The documents that were read, with the versions of their files.
#[derive(Debug, Default)]
pub(crate) struct ReadDocuments {
    pub(crate) documents: DocumentSet,
    pub(crate) versions: Versions,
}

/// Reads all manifests, and takes the versions of the files before, so that a change while they are read is noticed.
/// `downloads` has the downloaded manifests by their index; others have no documents yet. Blocks.
///
/// # Errors
/// Each manifest that cannot be used, with the place and the reason.
pub(crate) fn read_documents(
    settings: &PersistedDocuments,
    downloads: &DownloadedManifests,
) -> Result<ReadDocuments, Vec<Diagnostic>> {
    let versions = stamps(settings);
    let mut reader = DocumentReader {
        bytes_left: settings.max_size,
        documents_max: settings.max_documents as usize,
        settings,
        documents: Vec::new(),
    };
    let mut problems = Vec::new();
    for (index, manifest) in settings.manifests.iter().enumerate() {
        let read = match (&manifest.file, &manifest.folder, downloads.get(&index)) {
            (Some(file), ..) => reader.read_manifest(file, manifest.format),
            (None, Some(folder), _) => reader.read_folder(folder),
            (None, None, Some(text)) => reader.read_download(manifest, text),
            (None, None, None) => Ok(()),
        };
        problems.extend(read.err().map(refused));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let finds_texts = matches!(
        settings.mode,
        PersistedDocumentsMode::LogUnknown | PersistedDocumentsMode::RequireKnown
    );
    let documents = DocumentSet::new(reader.documents, finds_texts)
        .map_err(|conflict| vec![refused(conflict.to_string())])?;
    Ok(ReadDocuments { documents, versions })
}

fn refused(message: String) -> Diagnostic {
    Diagnostic::error("persisted-documents", message)
}

/// The documents that were read, and the room for further ones.
struct DocumentReader<'a> {
    settings: &'a PersistedDocuments,
    bytes_left: usize,
    documents_max: usize,
    documents: Vec<PersistedDocument>,
}

impl DocumentReader<'_> {
    fn read_manifest(&mut self, file: &Path, format: DocumentManifestFormat) -> Result<(), String> {
        let text = self.read_file(file)?;
        self.add_manifest(&file.display().to_string(), &text, format)
    }

    fn read_download(&mut self, manifest: &DocumentManifest, text: &[u8]) -> Result<(), String> {
        let name = shown_url(manifest.url.as_deref());
        self.take_bytes(text.len(), &name)?;
        self.add_manifest(&name, text, manifest.format)
    }

    fn add_manifest(
        &mut self,
        name: &str,
        text: &[u8],
        format: DocumentManifestFormat,
    ) -> Result<(), String> {
        let documents =
            parse_manifest(text, manifest_format(format), self.documents_max).map_err(|error| {
                match error.line {
                    0 => format!("{name}: {error}"),
                    line => format!("{name}:{line}:{}: {error}", error.column),
                }
            })?;
        self.documents.extend(documents);
        self.check_count()
    }

    fn read_folder(&mut self, folder: &Path) -> Result<(), String> {
        for file in files_in(folder).map_err(|error| unreadable(folder, &error))? {
            let text = self.read_file(&file)?;
            let Some(id) = file.file_stem().and_then(|stem| stem.to_str()) else {
                return Err(format!("{}: the name of the file is not UTF-8", file.display()));
            };
            if id.len() > ID_BYTES_MAX {
                let name = file.display();
                return Err(format!("{name}: the id is longer than {ID_BYTES_MAX} bytes"));
            }
            if std::str::from_utf8(&text).is_ok_and(|text| text.trim().is_empty()) {
                return Err(format!("{}: the document is empty", file.display()));
            }
            let text = Bytes::from(text);
            self.documents.push(PersistedDocument {
                id: id.into(),
                name: None,
                client: None,
                text,
            });
            self.check_count()?;
        }
        Ok(())
    }

    /// Reads a file within the remaining size.
    fn read_file(&mut self, file: &Path) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        // One byte more than allowed, to detect that the file is larger.
        let limit = self.bytes_left as u64 + 1;
        File::open(file)
            .and_then(|opened| opened.take(limit).read_to_end(&mut text))
            .map_err(|error| unreadable(file, &error))?;
        self.take_bytes(text.len(), &file.display().to_string())?;
        Ok(text)
    }

    /// Takes the size of a text from the remaining size.
    fn take_bytes(&mut self, bytes: usize, name: &str) -> Result<(), String> {
        let Some(left) = self.bytes_left.checked_sub(bytes) else {
            let size = self.settings.max_size;
            return Err(format!(
                "{name}: the manifests are larger than {size} bytes together (`persisted_documents.max_size`)"
            ));
        };
        self.bytes_left = left;
        Ok(())
    }

    fn check_count(&self) -> Result<(), String> {
        let count = self.documents_max;
        match self.documents.len() > count {
            true => Err(format!(
                "the manifests have more than {count} documents together (`persisted_documents.max_documents`)"
            )),
            false => Ok(()),
        }
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

/// Returns the files of a folder that are documents, in the order of their names.
fn files_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let ending = path.extension().and_then(|it| it.to_str());
        if ending.is_some_and(|it| DOCUMENT_ENDINGS.contains(&it)) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the versions of all files. Blocks.
pub(crate) fn stamps(settings: &PersistedDocuments) -> Versions {
    let mut stamps = Vec::new();
    for manifest in &settings.manifests {
        let in_folder = manifest.folder.as_deref().map(files_in).and_then(Result::ok);
        for path in manifest.file.iter().chain(in_folder.iter().flatten()) {
            stamps.push((path.clone(), Stamp::of_file(path)));
        }
    }
    stamps
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(path: PathBuf) -> DocumentManifest {
        DocumentManifest { file: Some(path), ..DocumentManifest::default() }
    }

    fn folder(path: &Path) -> DocumentManifest {
        DocumentManifest { folder: Some(path.to_owned()), ..DocumentManifest::default() }
    }

    fn read(manifests: Vec<DocumentManifest>) -> Result<DocumentSet, String> {
        let settings =
            PersistedDocuments { manifests, max_size: 100, max_documents: 3, ..Default::default() };
        read_documents(&settings, &DownloadedManifests::new()).map(|it| it.documents).map_err(
            |problems| problems.iter().map(|it| it.message.clone()).collect::<Vec<_>>().join("\n"),
        )
    }

    #[test]
    fn files_and_folders_are_read_together() {
        let place = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            fs::write(place.path().join(name), text).expect("a file");
        };
        write("list.json", r#"{"a": "{ a }"}"#);
        write("B.graphql", "{ b }");
        write("C.gql", "{ c }");
        write("README.md", "none");
        fs::create_dir(place.path().join("D.graphql")).expect("a folder");
        let set = read(vec![file(place.path().join("list.json")), folder(place.path())]);
        let set = set.expect("documents");
        let ids: Vec<_> = set.documents().iter().map(|it| &*it.id).collect();
        assert_eq!(ids, ["a", "B", "C"]);
        write("E.graphql", "{ e }");
        let error = read(vec![file(place.path().join("list.json")), folder(place.path())]);
        let error = error.expect_err("too many");
        assert!(error.contains("more than 3 documents together"), "{error}");
    }

    #[test]
    fn the_message_about_a_manifest_has_its_name_and_the_place() {
        let place = tempfile::tempdir().expect("a folder");
        let error = |text: &str| {
            let path = place.path().join("list.json");
            fs::write(&path, text).expect("a file");
            let error = read(vec![file(path)]).map(|it| it.len()).expect_err(text);
            error.replace(&place.path().display().to_string(), "PLACE")
        };
        assert!(error("{\n\"a\" 1}").starts_with("PLACE/list.json:2:5: expected `:`"));
        assert!(error(r#"{"operations": []}"#).starts_with("PLACE/list.json: the manifest has no"));
        assert!(error(&" ".repeat(101)).contains("larger than 100 bytes together"));
        let missing = read(vec![file(place.path().join("none")), folder(&place.path().join("x"))]);
        assert_eq!(
            missing.map(|it| it.len()).expect_err("missing").matches("cannot read").count(),
            2
        );
        let empty = tempfile::tempdir().expect("a folder");
        fs::write(empty.path().join("a.graphql"), "\n").expect("a file");
        let error = read(vec![folder(empty.path())]).map(|it| it.len()).expect_err("empty");
        assert!(error.ends_with("a.graphql: the document is empty"), "{error}");
    }

    #[test]
    fn a_new_file_in_a_folder_is_a_new_version() {
        let place = tempfile::tempdir().expect("a folder");
        let settings =
            PersistedDocuments { manifests: vec![folder(place.path())], ..Default::default() };
        let before = stamps(&settings);
        fs::write(place.path().join("a.graphql"), "{ a }").expect("a file");
        assert_ne!(stamps(&settings), before);
        assert_eq!(stamps(&settings), stamps(&settings));
    }
}
