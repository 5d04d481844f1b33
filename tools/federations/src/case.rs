//! A test case and the folder that stores it.

use std::path::Path;

use apollo_compiler::ast::Document;
use serde_json::{Map, Value};

use crate::{Failure, LoadedCase, ObjectStore, Outcome};

/// Values of variables by name.
pub type Variables = Map<String, Value>;

/// A supergraph, an operation, and an object store.
#[derive(Clone, Debug)]
pub struct Case {
    /// The text of the supergraph.
    pub supergraph: String,
    /// The text of the operation.
    pub operation: String,
    /// The values of the operation's variables.
    pub variables: Variables,
    /// The labels of progressive overrides that are on.
    pub labels: Vec<String>,
    /// The requirements that the client does not meet, as directives: `@authenticated`.
    pub unmet: Vec<String>,
    /// The object store.
    pub data: ObjectStore,
}

impl Case {
    /// Reads a folder with `supergraph.graphql`, `operation.graphql`, `data.json`, and optionally `variables.json`,
    /// `labels.json` and `unmet.json`.
    ///
    /// # Errors
    /// A file is missing or cannot be read.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let variables = match folder.join("variables.json").exists() {
            true => serde_json::from_str(&text("variables.json")?).map_err(|e| e.to_string())?,
            false => Variables::new(),
        };
        let labels = match folder.join("labels.json").exists() {
            true => serde_json::from_str(&text("labels.json")?).map_err(|e| e.to_string())?,
            false => Vec::new(),
        };
        let unmet = match folder.join("unmet.json").exists() {
            true => serde_json::from_str(&text("unmet.json")?).map_err(|e| e.to_string())?,
            false => Vec::new(),
        };
        Ok(Self {
            labels,
            unmet,
            supergraph: text("supergraph.graphql")?,
            operation: text("operation.graphql")?,
            variables,
            data: ObjectStore::parse(&text("data.json")?)?,
        })
    }

    /// Executes the operation in both ways and compares the responses.
    ///
    /// # Errors
    /// The case cannot be loaded.
    pub fn compare(&self) -> Result<Result<Outcome, Failure>, String> {
        let loaded = LoadedCase::load(&self.supergraph, self.data.clone(), &self.labels)?
            .without(&self.supergraph, &self.unmet)?;
        Ok(loaded.compare(&self.operation, &self.variables))
    }

    /// Returns the expected response.
    ///
    /// # Errors
    /// The case cannot be loaded.
    pub fn expected(&self) -> Result<Value, String> {
        let loaded = LoadedCase::load(&self.supergraph, self.data.clone(), &self.labels)?
            .without(&self.supergraph, &self.unmet)?;
        loaded.expected(&self.operation, &self.variables).ok_or_else(|| "no operation".to_owned())
    }

    /// Writes the folder, including the expected response as `response.json`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let write = |name: &str, text: String| {
            std::fs::write(folder.join(name), text).map_err(|error| error.to_string())
        };
        write("supergraph.graphql", tidy(&self.supergraph))?;
        write("operation.graphql", tidy(&self.operation))?;
        if !self.variables.is_empty() {
            write("variables.json", pretty(&Value::Object(self.variables.clone())))?;
        }
        if !self.labels.is_empty() {
            let labels = self.labels.iter().map(|label| Value::String(label.clone()));
            write("labels.json", pretty(&labels.collect()))?;
        }
        if !self.unmet.is_empty() {
            let unmet = self.unmet.iter().map(|it| Value::String(it.clone()));
            write("unmet.json", pretty(&unmet.collect()))?;
        }
        let objects = self
            .data
            .objects
            .iter()
            .map(|(name, fields)| format!("  {}: {fields}", Value::String(name.clone())));
        let objects: Vec<String> = objects.collect();
        write("data.json", format!("{{\n{}\n}}\n", objects.join(",\n")))?;
        write("response.json", pretty(&self.expected()?))
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Returns the text as the parser prints it.
fn tidy(text: &str) -> String {
    match Document::parse(text.to_owned(), "tidy.graphql") {
        Ok(document) => document.to_string(),
        Err(_) => text.to_owned(),
    }
}
