//! The operations of clients in a folder: GraphQL files, and manifests of persisted operations as Apollo's and Relay's
//! tools write them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use compose::{ClientOperation, OperationFile, OperationPlace, OperationProblem};
use config::diagnostic::{Diagnostic, SourceText, Span};
use persisted_documents::{ManifestFormat, PersistedDocument, parse_manifest};

use crate::usage::has_extension;

/// Extensions of files with operations.
const GRAPHQL_EXTENSIONS: [&str; 2] = ["graphql", "gql"];

/// The maximum nesting of folders. It stops at mistakes such as `/`; clients have a handful of levels.
const FOLDER_DEPTH_MAX: usize = 32;

/// The operations of clients with the texts that they come from.
pub(super) struct ClientOperations {
    pub(super) operations: Vec<ClientOperation>,
    /// The texts, by the index of [`OperationPlace::file`].
    pub(super) sources: Vec<Arc<SourceText>>,
}

impl ClientOperations {
    /// Puts a message at a place in a file.
    pub(super) fn locate(&self, diagnostic: Diagnostic, place: &OperationPlace) -> Diagnostic {
        locate(&self.sources, diagnostic, place)
    }
}

fn locate(
    sources: &[Arc<SourceText>],
    diagnostic: Diagnostic,
    place: &OperationPlace,
) -> Diagnostic {
    let Some(source) = sources.get(place.file) else { return diagnostic };
    let span = Span::of_line_column(&source.text, place.line, place.column);
    diagnostic.in_source(source).at(span, "")
}

/// Reads the operations in a folder with its subfolders, or in one file.
///
/// # Errors
/// Files that cannot be read, mistakes of the syntax, and a folder without operations.
pub(super) fn read(path: &Path) -> Result<ClientOperations, Vec<Diagnostic>> {
    let mut paths = Vec::new();
    if path.is_dir() {
        collect_files(path, 0, &mut paths).map_err(|error| {
            vec![Diagnostic::error(
                "operations",
                format!("cannot read {}: {error}", path.display()),
            )]
        })?;
        paths.sort();
    } else {
        paths.push(path.to_owned());
    }
    let mut files = Vec::new();
    for file in &paths {
        let text = std::fs::read_to_string(file).map_err(|error| {
            let message = format!("cannot read {}: {error}", file.display());
            vec![Diagnostic::error("operations", message)]
        })?;
        let name = file.display().to_string();
        match has_extension(file, &["json"]) {
            true => files.extend(read_manifest(&name, &text).map_err(|error| vec![*error])?),
            false => files.push(OperationFile { name, text }),
        }
    }
    let source = |file: &OperationFile| {
        Arc::new(SourceText { name: file.name.clone(), text: file.text.clone() })
    };
    let sources: Vec<_> = files.iter().map(source).collect();
    let operations = compose::read_operations(&files).map_err(|problems| {
        let diagnostic = |OperationProblem { message, place }: &OperationProblem| {
            locate(&sources, Diagnostic::error("operations", message.clone()), place)
        };
        problems.iter().map(diagnostic).collect::<Vec<_>>()
    })?;
    if operations.is_empty() {
        let message = format!("{} contains no operations", path.display());
        return Err(vec![Diagnostic::error("operations", message).help(
            "operations are read from files that end in .graphql or .gql, and from manifests of persisted operations (.json)",
        )]);
    }
    Ok(ClientOperations { operations, sources })
}

/// Collects the files of a folder. Hidden entries are skipped, and so are links to folders, which may form cycles.
fn collect_files(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if depth < FOLDER_DEPTH_MAX {
                collect_files(&path, depth + 1, files)?;
            }
        } else if path.is_file()
            && (has_extension(&path, &GRAPHQL_EXTENSIONS) || has_extension(&path, &["json"]))
        {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads the operations of a manifest; none if the JSON is something else.
///
/// # Errors
/// The file says that it is a manifest, and has a mistake.
fn read_manifest(name: &str, text: &str) -> Result<Vec<OperationFile>, Box<Diagnostic>> {
    let documents = match parse_manifest(text.as_bytes(), ManifestFormat::Auto, usize::MAX) {
        Ok(documents) => documents,
        // A mistake without a line is a missing or wrong format of what otherwise is a manifest.
        Err(mistake) if mistake.line == 0 || text.contains(APOLLO_FORMAT) => {
            let source = Arc::new(SourceText { name: name.to_owned(), text: text.to_owned() });
            let diagnostic = Diagnostic::error("manifest", mistake.message.clone());
            let diagnostic = diagnostic.in_source(&source);
            return Err(Box::new(match mistake.line {
                0 => diagnostic,
                line => diagnostic.at(Span::of_line_column(text, line, mistake.column), ""),
            }));
        }
        Err(_) => return Ok(Vec::new()),
    };
    let text_of = |document: &PersistedDocument| {
        // The manifest is valid JSON, so its texts are UTF-8.
        String::from_utf8_lossy(&document.text).into_owned()
    };
    let texts: Vec<_> = documents.iter().map(text_of).collect();
    // A map of texts may be anything, such as the translations of an application.
    if !texts.iter().all(|text| is_operation(text)) {
        return Ok(Vec::new());
    }
    let file = |(document, text): (&PersistedDocument, String)| {
        let id = document.name.as_deref().unwrap_or(&document.id);
        OperationFile { name: format!("{name}#{id}"), text }
    };
    Ok(documents.iter().zip(texts).map(file).collect())
}

/// The word by which Apollo's manifests are recognised.
const APOLLO_FORMAT: &str = "apollo-persisted-query-manifest";

/// True if the text begins as an operation or a fragment does.
fn is_operation(text: &str) -> bool {
    let text = text.trim_start();
    ["query", "mutation", "subscription", "fragment", "{"].iter().any(|it| text.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_of_persisted_operations_are_read_and_other_json_is_not() {
        let read = |text: &str| {
            let files = read_manifest("m.json", text).expect("no mistake").into_iter();
            files.map(|it| format!("{}: {}", it.name, it.text)).collect::<Vec<_>>()
        };
        let apollo = r#"{"format": "apollo-persisted-query-manifest", "version": 1, "operations": [
            {"id": "1f", "name": "A", "type": "query", "body": "query A { a }"}
        ]}"#;
        assert_eq!(read(apollo), ["m.json#A: query A { a }"]);
        assert_eq!(read(r#"{"2e": "{ a }", "3d": "mutation { b }"}"#).len(), 2);
        for other in [r#"{"name": "package"}"#, "[]", "{", r#"{"a": {"b": "query"}}"#] {
            assert!(read(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn a_manifest_with_a_mistake_is_reported_with_its_place() {
        let broken = "{\"format\": \"apollo-persisted-query-manifest\", \"version\": 1,\n \"operations\": [{\"id\": 7}]}";
        let mistake = read_manifest("m.json", broken).expect_err("a mistake");
        let shown = config::diagnostic::render(&[*mistake], config::diagnostic::Style::Plain);
        assert!(shown.contains("m.json:2:"), "{shown}");
        let newer =
            r#"{"format": "apollo-persisted-query-manifest", "version": 2, "operations": []}"#;
        let mistake = read_manifest("m.json", newer).expect_err("a mistake");
        assert_eq!(mistake.message, "the member `version` must be 1");
        let unnamed = r#"{"operations": [{"id": "1", "name": "A", "body": "{ a }"}]}"#;
        let mistake = read_manifest("m.json", unnamed).expect_err("a mistake");
        assert!(
            mistake.message.starts_with("the manifest has no member `format`"),
            "{}",
            mistake.message
        );
    }
}
