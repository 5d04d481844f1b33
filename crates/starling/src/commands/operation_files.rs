//! The operations of clients in a folder: GraphQL files, and manifests of persisted operations as Apollo's and Relay's
//! tools write them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use compose::{ClientOperation, OperationFile, OperationPlace, OperationProblem};
use config::diagnostic::{Diagnostic, SourceText, Span};
use serde_json::Value;

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
            true => files.extend(read_manifest(&name, &text)),
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
fn read_manifest(name: &str, text: &str) -> Vec<OperationFile> {
    let Ok(Value::Object(manifest)) = serde_json::from_str(text) else { return Vec::new() };
    let file = |id: &str, body: &str| OperationFile {
        name: format!("{name}#{id}"),
        text: body.to_owned(),
    };
    if let Some(Value::Array(operations)) = manifest.get("operations") {
        // The manifest of Apollo's tools.
        let read = |operation: &Value| {
            let id = operation.get("name").or_else(|| operation.get("id"))?.as_str()?;
            Some(file(id, operation.get("body")?.as_str()?))
        };
        return operations.iter().filter_map(read).collect();
    }
    // The map of Relay's tools: identifiers to texts.
    let read = |(id, body): (&String, &Value)| {
        let body = body.as_str()?;
        is_operation(body).then(|| file(id, body))
    };
    let operations: Option<Vec<_>> = manifest.iter().map(read).collect();
    operations.unwrap_or_default()
}

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
            let files = read_manifest("m.json", text).into_iter();
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
}
