//! The files of `starling bench surge`: the points of a shape, and a mix of operations. Both are YAML, or JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::diagnostic::{Diagnostic, Severity};
use config::parse_document;
use http::header::HeaderName;
use load::query::MeasuredOperation;
use load::surge::{LoadShape, ShapePoint, SurgeOperation};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::operation_input::{header, read_variables};
use crate::commands::read_file;

/// The mistakes in a file, or another reason why it cannot be used.
pub(super) type FileProblems = Vec<Diagnostic>;

/// A file with a shape.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShapeFile {
    /// The points, in the order of their times. The rate changes linearly between them.
    #[schemars(extend("minItems" = 1))]
    points: Vec<PointEntry>,
}

/// One point of a shape.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PointEntry {
    /// The time in seconds from the beginning.
    #[schemars(range(min = 0, max = 86_400))]
    seconds: u32,
    /// Requests a second.
    #[schemars(range(min = 0, max = 1_000_000))]
    rate: u32,
}

/// A file with a mix of operations.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MixFile {
    /// The operations.
    #[schemars(extend("minItems" = 1))]
    operations: Vec<MixEntry>,
}

/// One operation of a mix. Paths are relative to the file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MixEntry {
    /// The class in the report. Operations with one name are one class.
    name: String,
    /// The file with the operation (GraphQL).
    #[schemars(extend("format" = "file-path"))]
    operation: Option<String>,
    /// The id of a persisted document, in place of the file.
    document_id: Option<String>,
    /// The name of the operation, if the file has several.
    operation_name: Option<String>,
    /// A file with the variables (JSON): an object, or a list of objects of which each request takes one.
    #[schemars(extend("format" = "file-path"))]
    variables: Option<String>,
    /// The weight among all operations.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_000_000))]
    weight: u32,
    /// Headers of these requests, in addition to those of the command line.
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

/// Reads a shape.
pub(super) fn read_shape(path: &Path) -> Result<LoadShape, FileProblems> {
    let file: ShapeFile = read(path)?;
    let points = file
        .points
        .iter()
        .map(|point| ShapePoint { seconds: point.seconds.into(), rate: point.rate.into() });
    LoadShape::from_points(points.collect()).map_err(|what| problem(path, &what))
}

/// Reads a mix. `base` has what all operations have: headers and the header with a value for each client.
pub(super) fn read_mix(
    path: &Path,
    base: &MeasuredOperation,
) -> Result<Vec<SurgeOperation>, FileProblems> {
    let file: MixFile = read(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let operations = file.operations.into_iter().map(|entry| {
        let name = entry.name.clone();
        convert(entry, folder, base).map_err(|what| problem(path, &format!("`{name}`: {what}")))
    });
    operations.collect()
}

fn convert(
    entry: MixEntry,
    folder: &Path,
    base: &MeasuredOperation,
) -> Result<SurgeOperation, String> {
    let beside = |path: &str| -> PathBuf { folder.join(path) };
    let text = match (&entry.operation, &entry.document_id) {
        (Some(path), None) => read_file(&beside(path))?,
        (None, Some(_)) => String::new(),
        _ => return Err("give either `operation` or `document_id`".to_owned()),
    };
    let mut headers = base.headers.clone();
    for (name, value) in &entry.headers {
        let (name, value) = header(name, value)?;
        // The file is more specific than the command line.
        headers.retain(|(other, _): &(HeaderName, _)| *other != name);
        headers.push((name, value));
    }
    let variables = entry.variables.as_deref().map(|path| read_variables(&beside(path)));
    let operation = MeasuredOperation {
        text,
        document_id: entry.document_id,
        name: entry.operation_name,
        variables: variables.transpose()?.unwrap_or_default(),
        headers,
        unique_header: base.unique_header.clone(),
    };
    SurgeOperation::new(entry.name, entry.weight.into(), operation)
}

fn read<T: DeserializeOwned + JsonSchema>(path: &Path) -> Result<T, FileProblems> {
    let text = read_file(path).map_err(|what| vec![Diagnostic::error("unreadable-file", what)])?;
    let name = path.display().to_string();
    let document = parse_document::<T>(&text, &name, &|name| std::env::var_os(name));
    match document.value {
        Some(value) if !document.diagnostics.iter().any(|it| it.severity == Severity::Error) => {
            Ok(value)
        }
        _ => Err(document.diagnostics),
    }
}

fn problem(path: &Path, what: &str) -> FileProblems {
    vec![Diagnostic::error("unusable-file", format!("{}: {what}", path.display()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    fn messages(problems: FileProblems) -> String {
        config::diagnostic::render(&problems, config::diagnostic::Style::Plain)
    }

    #[test]
    fn a_shape_is_read_from_yaml_and_from_json() {
        for text in [
            "points:\n  - {seconds: 0, rate: 10}\n  - {seconds: 60, rate: 30}\n",
            r#"{"points": [{"seconds": 0, "rate": 10}, {"seconds": 60, "rate": 30}]}"#,
        ] {
            let (_folder, path) = file("shape.yaml", text);
            let shape =
                read_shape(&path).unwrap_or_else(|problems| panic!("{}", messages(problems)));
            assert_eq!((shape.total(), shape.peak()), (1200.0, 30.0));
        }
    }

    #[test]
    fn mistakes_in_a_shape_are_shown() {
        for (text, expected) in [
            ("points: [{seconds: 0, rate: 1}]", "a shape has from 2 to"),
            ("points: [{seconds: 0, rate: 1}, {seconds: 1, rates: 1}]", "rate"),
            ("points: [{seconds: 0, rate: -1}, {seconds: 1, rate: 1}]", "from 0 to 1000000"),
            ("points: [{seconds: 5, rate: 1}, {seconds: 9, rate: 1}]", "point 1: the first"),
            ("pionts: []", "points"),
        ] {
            let (_folder, path) = file("shape.yaml", text);
            let shown = messages(read_shape(&path).unwrap_err());
            assert!(shown.contains(expected), "{text}: {shown}");
        }
    }

    #[test]
    fn a_mix_reads_the_files_beside_it() {
        let mix = "operations:\n  - {name: scores, operation: scores.graphql, variables: ids.json, weight: 8}\n  \
                   - {name: vote, document_id: abc, headers: {x-app: tv}}\n";
        let (folder, path) = file("mix.yaml", mix);
        std::fs::write(folder.path().join("scores.graphql"), "query ($id: ID) { a(id: $id) }")
            .unwrap();
        std::fs::write(folder.path().join("ids.json"), r#"[{"id": 1}, {"id": 2}]"#).unwrap();
        let parsed = |name: &str, value: &str| header(name, value).unwrap();
        let base = MeasuredOperation {
            headers: vec![parsed("x-app", "web"), parsed("x-test", "1")],
            ..MeasuredOperation::default()
        };
        let mix =
            read_mix(&path, &base).unwrap_or_else(|problems| panic!("{}", messages(problems)));
        assert_eq!((mix[0].class.as_str(), mix[0].weight, mix[0].is_query), ("scores", 8.0, true));
        assert_eq!(mix[0].operation.variables.len(), 2);
        assert_eq!(mix[0].operation.headers, base.headers);
        assert_eq!((mix[1].weight, mix[1].operation.document_id.as_deref()), (1.0, Some("abc")));
        assert_eq!(mix[1].operation.headers, [parsed("x-test", "1"), parsed("x-app", "tv")]);
    }

    #[test]
    fn mistakes_in_a_mix_name_the_operation() {
        for (text, expected) in [
            ("operations: []", "at least 1"),
            ("operations: [{name: a}]", "`a`: give either `operation` or `document_id`"),
            ("operations: [{name: a, operation: none.graphql}]", "none.graphql"),
            ("operations: [{name: a, document_id: x, headers: {host: b}}]", "`host` is written by"),
        ] {
            let (_folder, path) = file("mix.yaml", text);
            let problems = read_mix(&path, &MeasuredOperation::default()).unwrap_err();
            let shown = messages(problems);
            assert!(shown.contains(expected), "{text}: {shown}");
        }
    }
}
