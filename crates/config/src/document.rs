//! YAML files of other kinds than the configuration of the router, such as the file that names the subgraphs of a
//! composition. They go through the same steps: tree with places → environment variables → check against the schema of
//! a type → that type. Rules between several keys are left to the caller.

use std::ffi::OsString;
use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;

use super::findings::{Findings, KeyPlaces, first_line};
use super::source_tree::{Content, SourceNode};
use super::{check, environment, secrecy, yaml};
use crate::diagnostic::{Diagnostic, SourceText, Span};

/// A YAML file after its checks.
#[derive(Debug)]
pub struct Document<T> {
    /// The valid part of the file; `None` if something is missing without which there is no value.
    pub value: Option<T>,
    /// The mistakes, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// The text for messages, in which secrets are masked.
    pub source: Arc<SourceText>,
    places: KeyPlaces,
}

impl<T> Document<T> {
    /// Returns the place of a key, or the beginning of an element of a list, by its path (`subgraphs[0].schema`).
    pub fn key_span(&self, path: &str) -> Option<Span> {
        self.places.get(path).map(|place| self.span(place.key.clone()))
    }

    /// Returns the place of the value of a key.
    pub fn value_span(&self, path: &str) -> Option<Span> {
        self.places.get(path).map(|place| self.span(place.value.clone()))
    }

    /// True if the file has a key with such a path, whether its value is valid or not. Unknown keys do not count.
    pub fn has_key(&self, is_wanted: impl FnMut(&str) -> bool) -> bool {
        self.places.paths().any(is_wanted)
    }

    fn span(&self, range: std::ops::Range<usize>) -> Span {
        // Masking keeps every offset.
        Span::of_bytes(&self.source.text, first_line(&self.source.text, range))
    }
}

/// Parses a text as the type `T`. `name` is the name of the file in messages, `env` looks up environment variables.
pub fn parse_document<T: DeserializeOwned + JsonSchema>(
    text: &str,
    name: &str,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Document<T> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let mut findings = Findings::default();
    let root = match yaml::read(text, &mut findings) {
        // An empty file lacks everything that is required.
        Some(root) if root.is_null() => Some(empty_mapping()),
        None if !findings.has_errors() => Some(empty_mapping()),
        root => root,
    };
    let mut value = None;
    let mut places = KeyPlaces::default();
    if let Some(mut root) = root {
        environment::expand(&mut root, text, env, &mut findings);
        let checked = check::check(&root, &schema, &mut findings);
        places = checked.places;
        value = match serde_json::from_value(checked.value) {
            Ok(value) => Some(value),
            Err(_) if findings.has_errors() => None,
            Err(error) => {
                let message =
                    format!("the file passed every check and still cannot be read: {error}");
                findings.error("internal", message);
                None
            }
        };
    }
    let source =
        Arc::new(SourceText { name: name.to_owned(), text: secrecy::mask(text, &findings.hidden) });
    let diagnostics = findings.into_diagnostics(Some(&source));
    Document { value, diagnostics, source, places }
}

/// Parses a text of any structure as a tree that keeps the place and the spelling of every value. Variables are not
/// expanded. `name` is the name of the file in messages. `None` if the text holds no value.
///
/// # Errors
/// The text is not YAML, or a key is given twice.
pub fn parse_tree(text: &str, name: &str) -> Result<Option<SourceNode>, Vec<Diagnostic>> {
    let mut findings = Findings::default();
    let root = yaml::read(text, &mut findings);
    if !findings.has_errors() {
        return Ok(root);
    }
    let source =
        Arc::new(SourceText { name: name.to_owned(), text: secrecy::mask(text, &findings.hidden) });
    Err(findings.into_diagnostics(Some(&source)))
}

fn empty_mapping() -> SourceNode {
    SourceNode { range: 0..0, content: Content::Mapping(Vec::new()) }
}
