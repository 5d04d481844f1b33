//! Generator of the configuration reference (`docs/configuration.md`), from the schema.

use std::fmt::Write;

use serde_json::Value;

use super::format::Format;
use super::schema::plain_schema;
use super::schema_facts::{allowed_words, type_name};

/// Top-level keys in the order of the page, the most common ones first.
const SECTIONS: [&str; 44] = [
    "listen",
    "path",
    "supergraph",
    "graphs",
    "subgraphs",
    "override_labels",
    "authentication",
    "authorization",
    "client_info",
    "headers",
    "block",
    "rate_limits",
    "admission",
    "warming",
    "include_subgraph_errors",
    "traffic",
    "sharing",
    "cache",
    "live_queries",
    "events",
    "cursor",
    "subscriptions",
    "websocket",
    "limits",
    "cost",
    "persisted_documents",
    "apq",
    "storage_providers",
    "http",
    "introspection",
    "ide",
    "cors",
    "csrf",
    "uploads",
    "admin",
    "workers",
    "reactors",
    "metrics",
    "trace",
    "tracing",
    "log",
    "access_log",
    "request_id",
    "shutdown",
];

/// The length of the lines of paragraphs.
const LINE_COLUMNS: usize = 120;

/// A file that uses the most common keys. A test loads it.
pub(super) const EXAMPLE: &str = r#"listen: 0.0.0.0:4000
supergraph:
  file: supergraph.graphql
subgraphs:
  reviews:
    url: ${REVIEWS_URL:-http://localhost:4001/graphql}
headers:
  all:
    request:
      - propagate: {named: authorization}
traffic:
  all:
    timeout: 10s
  subgraphs:
    reviews:
      timeout: 2s
events:
  providers:
    nats:
      - id: default
        url: nats://localhost:4222
log:
  format: json
"#;

const INTRODUCTION: &str = r#"# Configuration

<!-- Generated from the types in crates/config/src. Do not edit: change the comments there,
     then run `UPDATE_EXPECT=1 cargo test -p config configuration_page`. -->

One YAML file, given by `--config`. Every key has a default, so a file holds only what differs; an
empty file is fine. `starling check --config FILE` says what is wrong with a file, and
`starling config-schema` prints the JSON Schema for editors.

"#;

const RULES: &str = r#"
## How values are written

- **Environment variables**: `${NAME}` stands for a variable, `${NAME:-text}` gives a default for
  one that is unset or empty. They work in every value, alone or as a part of it, and not in keys. A
  variable that is not set and has no default is an error. `$${` is a literal `${`. A variable
  cannot add keys or lines: it is expanded after the file is parsed.
- **Durations** are whole numbers with a unit: `500ms`, `30s`, `5m`, `24h`, also `1m30s`. At most a
  week.
- **Sizes** are whole numbers with a unit: `B`, `KB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB`,
  `GiB` (powers of 1024). A plain number counts bytes. Always below 4 GiB.
- **Secrets** (tokens, passwords, values of inserted headers) appear in no log and no message.
- **Unknown keys** are errors, so that a typing mistake is not a setting that silently does nothing.
- A key with nothing after it counts as left out where it is a section or a list; elsewhere it is an
  error.
- Anchors and aliases (`&name`, `*name`, `<<: *name`) work; custom tags do not.

Flags win over the file:

"#;

/// Returns the whole page, as Markdown.
pub fn config_reference() -> String {
    let schema = plain_schema();
    let mut page = INTRODUCTION.to_owned();
    // Writing to a `String` cannot fail, here and below.
    let _ = write!(page, "```yaml\n{EXAMPLE}```\n{RULES}| Flag | Key |\n| --- | --- |\n");
    flags(schema, "", &mut page);
    for section in SECTIONS {
        let property = &schema["properties"][section];
        let _ = write!(page, "\n## `{section}`\n\n{}\n\n", wrap(&paragraphs(property)));
        if is_lone(property) {
            let default = code(&property["default"]);
            let _ = writeln!(
                page,
                "Value: {}. Default: {default}. Example: {}.",
                kind(property),
                examples(property)
            );
            continue;
        }
        page.push_str("| Key | Value | Default | Example | Meaning |\n");
        page.push_str("| --- | --- | --- | --- | --- |\n");
        rows(property, section, false, true, &mut page);
    }
    page
}

fn flags(schema: &Value, path: &str, page: &mut String) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if let Some(flag) = property["x-override"].as_str() {
            let _ = writeln!(page, "| `{flag}` | `{inner}` |");
        }
        flags(property, &inner, page);
    }
}

/// Writes one row for a value, and the rows of everything in it.
fn rows(schema: &Value, path: &str, is_required: bool, is_section: bool, page: &mut String) {
    let shape = without_null(schema);
    if let Some(properties) = shape["properties"].as_object() {
        let required: Vec<_> =
            shape["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !is_section && schema["description"].is_string() {
            let kind = if shape["maxProperties"] == 1 { "one of the keys below" } else { "keys" };
            row(schema, path, kind, is_required, page);
        }
        for (name, property) in properties {
            // The keys of `all` again, by subgraph: one line for all of them.
            let all = properties.get("all");
            if all.is_some_and(|all| has_same_keys(all, &property["additionalProperties"])) {
                row(property, &format!("{path}.{name}"), "keys by name", false, page);
                let _ = writeln!(
                    page,
                    "| `{path}.{name}.<name>` | keys |  |  | The keys of `{path}.all`. |"
                );
                continue;
            }
            rows(
                property,
                &format!("{path}.{name}"),
                required.contains(&name.as_str()),
                false,
                page,
            );
        }
    } else if shape["additionalProperties"].is_object() {
        if !is_section {
            row(schema, path, "keys by name", is_required, page);
        }
        rows(&shape["additionalProperties"], &format!("{path}.<name>"), false, false, page);
    } else if shape["items"]["properties"].is_object() {
        row(schema, path, "list", is_required, page);
        rows(&shape["items"], &format!("{path}[]"), false, true, page);
    } else {
        row(schema, path, &kind(shape), is_required, page);
        // A form with keys of its own, in addition to the short form.
        for branch in shape["anyOf"].as_array().into_iter().flatten() {
            if branch["properties"].is_object() {
                rows(branch, path, false, true, page);
            }
            for element in branch["items"]["anyOf"].as_array().into_iter().flatten() {
                if element["properties"].is_object() {
                    rows(element, &format!("{path}[]"), false, true, page);
                }
            }
        }
    }
}

/// True if two mappings have the same keys, also in the mappings inside them. The values may differ in being optional.
fn has_same_keys(one: &Value, other: &Value) -> bool {
    let properties = |schema: &Value| schema["properties"].as_object().cloned();
    match (properties(one), properties(other)) {
        (Some(one), Some(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, schema)| {
                    let counterpart = other.get(name);
                    counterpart.is_some_and(|counterpart| {
                        schema["properties"].is_null() == counterpart["properties"].is_null()
                            && (schema["properties"].is_null()
                                || has_same_keys(schema, counterpart))
                    })
                })
        }
        _ => false,
    }
}

fn row(schema: &Value, path: &str, kind: &str, is_required: bool, page: &mut String) {
    let default = match &schema["default"] {
        _ if is_required => "required".to_owned(),
        Value::Null | Value::Object(_) => String::new(),
        value => code(value),
    };
    let example = examples(schema);
    // The meaning of a whole section is above its table.
    let meaning = match path.contains(['.', '[']) {
        true => paragraphs(schema).replace("\n\n", " "),
        false => String::new(),
    };
    let choices = without_null(schema)["oneOf"].as_array().map_or_else(String::new, |choices| {
        choices
            .iter()
            .map(|choice| format!(" {}: {}", code(&choice["const"]), paragraphs(choice)))
            .collect::<String>()
    });
    let cells = [format!("`{path}`"), kind.to_owned(), default, example, meaning + &choices];
    let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

/// True if a top-level key is a value, not a section.
fn is_lone(schema: &Value) -> bool {
    !matches!(schema["type"].as_str(), Some("object" | "array")) && schema["anyOf"].is_null()
}

fn examples(schema: &Value) -> String {
    let examples = schema["examples"].as_array();
    examples.into_iter().flatten().map(code).collect::<Vec<_>>().join(", ")
}

/// Returns the kind of a scalar or a list of scalars, in a word or two.
fn kind(schema: &Value) -> String {
    if let Some(format) = schema["format"].as_str().and_then(Format::from_name) {
        let noun = format.noun();
        let least = schema["x-minimum"].as_u64();
        let or_zero = if format == Format::DurationOrZero { ", or `0s`" } else { "" };
        let bound = least.map(|least| {
            format!(", at least `{}`{or_zero}", super::format_check::print_quantity(format, least))
        });
        let articles = ["a ", "an ", "the "];
        let noun = articles.iter().find_map(|article| noun.strip_prefix(article)).unwrap_or(noun);
        return format!("{noun}{}", bound.unwrap_or_default());
    }
    if let Some(choices) = allowed_words(schema) {
        return choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ");
    }
    match type_name(schema) {
        Some("boolean") => "`true`, `false`".into(),
        Some("string") => "text".into(),
        Some("integer") => format!("number, {} to {}", schema["minimum"], schema["maximum"]),
        Some("array") if schema["items"]["anyOf"].is_array() => "a list of them".into(),
        Some("array") => format!("list: {}", kind(&schema["items"])),
        _ => match schema["anyOf"].as_array() {
            Some(branches) => branches.iter().map(kind).collect::<Vec<_>>().join(", or "),
            None => "keys".into(),
        },
    }
}

/// Returns the schema of an optional value without `null`.
fn without_null(schema: &Value) -> &Value {
    let branches = schema["anyOf"].as_array().filter(|branches| {
        branches.len() == 2 && branches.iter().any(|branch| branch["type"] == "null")
    });
    match branches {
        Some(branches) => branches.iter().find(|one| one["type"] != "null").unwrap_or(schema),
        None => schema,
    }
}

/// Returns the description of a value. Its paragraphs are kept, its line breaks are not.
fn paragraphs(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let paragraphs: Vec<_> = text.split("\n\n").map(|text| text.replace('\n', " ")).collect();
    paragraphs.join("\n\n")
}

/// Breaks paragraphs into lines of at most [`LINE_COLUMNS`], or of one word.
fn wrap(text: &str) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for (number, paragraph) in text.split("\n\n").enumerate() {
        wrapped.push_str(if number > 0 { "\n\n" } else { "" });
        let mut columns = 0;
        for word in paragraph.split(' ') {
            let length = word.chars().count();
            if columns == 0 {
                columns = length;
            } else if columns + 1 + length > LINE_COLUMNS {
                wrapped.push('\n');
                columns = length;
            } else {
                wrapped.push(' ');
                columns += 1 + length;
            }
            wrapped.push_str(word);
        }
    }
    wrapped
}

fn code(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if text.is_empty() { "`\"\"`".into() } else { format!("`{text}`") }
}
