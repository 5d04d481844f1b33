//! Validation of a configuration tree against the JSON Schema, with every mistake reported.
//!
//! The schema determines the type of a scalar, so that `${PORT}` can be a number and `0755` a text. The valid part
//! becomes a JSON value for serde. This step follows `environment`; rules between several keys are in `consistency`.

use std::ops::Range;

use serde_json::{Map, Value};

use super::findings::{Findings, KeyPlace, KeyPlaces};
use super::format::Format;
use super::format_check::{print_quantity, quantity};
use super::moved_keys;
use super::secrecy;
use super::source_tree::{Content, MappingEntry, Scalar, SourceNode};
use crate::diagnostic::shown_text;

/// The number of characters of a value that a message repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// The similarity below which a name is not suggested (Jaro–Winkler, 0 to 1).
const LIKENESS_MIN: f64 = 0.8;

/// The valid part of a tree, with the places of its keys in the file.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) value: Value,
    pub(super) places: KeyPlaces,
}

impl Default for Checked {
    fn default() -> Self {
        Self { value: Value::Object(Map::new()), places: KeyPlaces::default() }
    }
}

/// Checks a whole tree. Invalid values are left out of the result.
pub(super) fn check(root: &SourceNode, schema: &Value, findings: &mut Findings) -> Checked {
    if root.is_null() {
        return Checked::default();
    }
    check_part(root, schema, schema, findings)
}

/// Checks one part of a tree against `part` of the whole `schema`.
pub(super) fn check_part(
    node: &SourceNode,
    schema: &Value,
    part: &Value,
    findings: &mut Findings,
) -> Checked {
    let mut checker = Checker { schema, findings, places: KeyPlaces::default() };
    let value = checker.value(node, part, "", &node.range).unwrap_or(Value::Object(Map::new()));
    Checked { value, places: checker.places }
}

/// Returns the name among `known` that is most similar to `name`, if one is similar enough.
pub(super) fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&name, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Describes the sections of these paths, as the words that follow "belongs".
fn sections(paths: &[String]) -> String {
    let section = |path: &String| match path.rsplit_once('.') {
        Some((section, _)) => format!("in `{section}`"),
        None => "at the top level".to_owned(),
    };
    paths.iter().map(section).collect::<Vec<_>>().join(" or ")
}

struct Checker<'a> {
    /// The whole schema.
    schema: &'a Value,
    findings: &'a mut Findings,
    places: KeyPlaces,
}

impl Checker<'_> {
    fn value(
        &mut self,
        node: &SourceNode,
        schema: &Value,
        path: &str,
        key: &Range<usize>,
    ) -> Option<Value> {
        self.places.insert(path, KeyPlace { key: key.clone(), value: node.range.clone() });
        let forms = forms(schema);
        let schema = self.branch(node, schema);
        match &node.content {
            Content::Broken => None,
            content => match (kind(schema), content) {
                (ValueKind::Object, Content::Mapping(entries)) => {
                    self.object(entries, schema, path, key)
                }
                (ValueKind::List, Content::Sequence(items)) => self.list(items, schema, path, key),
                (ValueKind::Scalar, Content::Scalar(scalar)) => {
                    self.scalar(scalar, &node.range, schema, path)
                }
                (expected, _) => {
                    self.wrong_kind(expected, &forms, node, schema, path, key);
                    None
                }
            },
        }
    }

    /// Returns the form of a value (`anyOf`) that matches the node.
    fn branch<'s>(&self, node: &SourceNode, schema: &'s Value) -> &'s Value {
        let Some(branches) = schema.get("anyOf").and_then(Value::as_array) else {
            return schema;
        };
        // `listen` and similar keys have a short form and a long form.
        let fits = |branch: &&Value| {
            matches!(
                (kind(branch), &node.content),
                (ValueKind::Object, Content::Mapping(_))
                    | (ValueKind::List, Content::Sequence(_))
                    | (ValueKind::Scalar, Content::Scalar(_))
            )
        };
        let mut branches_of_value = branches.iter().filter(|branch| branch["type"] != "null");
        let first = branches_of_value.clone().next().unwrap_or(schema);
        let branch = branches_of_value.find(fits).unwrap_or(first);
        if branch.get("anyOf").is_some() { self.branch(node, branch) } else { branch }
    }

    fn object(
        &mut self,
        entries: &[MappingEntry],
        schema: &Value,
        path: &str,
        key: &Range<usize>,
    ) -> Option<Value> {
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let is_one_of = is_one_of(schema);
        let mut object = Map::new();
        let mut known = Vec::new();
        for entry in entries {
            let inner = join(path, &entry.key);
            let further = schema.get("additionalProperties").filter(|further| further.is_object());
            let Some(property) = properties.get(&entry.key).or(further) else {
                self.unknown_key(entry, properties, path);
                continue;
            };
            known.push(entry);
            if entry.value.is_null() {
                // A section in which all keys are commented out counts as absent.
                if kind(self.branch(&entry.value, property)) == ValueKind::Scalar || is_one_of {
                    self.no_value(entry, property, &inner);
                }
                continue;
            }
            if let Some(value) = self.value(&entry.value, property, &inner, &entry.key_range) {
                object.insert(entry.key.clone(), value);
            }
        }
        if is_one_of && known.len() != 1 {
            // If all keys were unknown, that has been reported already.
            if known.len() > 1 || entries.is_empty() {
                self.not_one(&known, properties, path, key);
            }
            return None;
        }
        if !self.fit_each_other(&known, schema, properties, path, key) {
            return None;
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if entries.iter().all(|entry| entry.key != name) {
                let name = join(path, name);
                self.findings
                    .error("missing-key", format!("`{name}` is missing"))
                    .at(key.clone(), format!("`{}` is needed here", last(&name)))
                    .help(match properties[last(&name)]["examples"][0].as_str() {
                        Some(example) => format!("add `{}: {example}`", last(&name)),
                        None => how_to_write(&properties[last(&name)]),
                    });
            }
        }
        Some(Value::Object(object))
    }

    /// Checks the keys of which exactly one must be present (`x-one-of`), and the keys that require another key
    /// (`dependentRequired`).
    fn fit_each_other(
        &mut self,
        known: &[&MappingEntry],
        schema: &Value,
        properties: &Map<String, Value>,
        path: &str,
        key: &Range<usize>,
    ) -> bool {
        if let Some(names) = schema["x-one-of"].as_array() {
            let is_choice = |name: &str| names.iter().any(|it| it == name);
            let given: Vec<_> = known.iter().copied().filter(|it| is_choice(&it.key)).collect();
            if given.len() != 1 {
                let choices = properties.iter().filter(|(name, _)| is_choice(name));
                let choices = choices.map(|(name, it)| (name.clone(), it.clone())).collect();
                self.not_one(&given, &choices, path, key);
                return false;
            }
        }
        for (name, needed) in schema["dependentRequired"].as_object().into_iter().flatten() {
            let Some(entry) = known.iter().find(|entry| entry.key == *name) else { continue };
            for needed in needed.as_array().into_iter().flatten().filter_map(Value::as_str) {
                if known.iter().any(|entry| entry.key == needed) {
                    continue;
                }
                let name = join(path, name);
                self.findings
                    .error("conflict", format!("`{name}` has no meaning without `{needed}`"))
                    .at(entry.key_range.clone(), format!("belongs to `{needed}`"))
                    .help(format!("remove it, or write `{needed}` beside it"));
                return false;
            }
        }
        true
    }

    fn list(
        &mut self,
        items: &[SourceNode],
        schema: &Value,
        path: &str,
        key: &Range<usize>,
    ) -> Option<Value> {
        let bound = |name| schema.get(name).and_then(Value::as_u64);
        let count = items.len() as u64;
        if let Some(least) = bound("minItems").filter(|least| count < *least) {
            self.findings
                .error("out-of-range", format!("`{path}` needs at least {least} element"))
                .at(key.clone(), "the list is empty")
                .help("add an element, or remove the key to keep the default");
            return None;
        }
        if let Some(most) = bound("maxItems").filter(|most| count > *most) {
            self.findings
                .error("out-of-range", format!("`{path}` may have at most {most} elements"))
                .at(key.clone(), format!("this list has {count}"));
            return None;
        }
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let inner = format!("{path}[{index}]");
            if let Some(value) = self.value(item, &schema["items"], &inner, &item.range) {
                values.push(value);
            }
        }
        // A list without its invalid elements would have another meaning.
        (values.len() == items.len()).then_some(Value::Array(values))
    }

    fn scalar(
        &mut self,
        scalar: &Scalar,
        range: &Range<usize>,
        schema: &Value,
        path: &str,
    ) -> Option<Value> {
        if let Some(format) = format(schema) {
            return self.formatted(scalar, range, schema, format, path);
        }
        if let Some(choices) = choices(schema) {
            if choices.contains(&scalar.text.as_str()) {
                return Some(Value::String(scalar.text.clone()));
            }
            let list = quoted(choices.iter().copied(), "or");
            let help = match closest(&scalar.text, choices) {
                Some(choice) if !scalar.has_variable => format!("did you mean `{choice}`?"),
                _ => format!("write {list}"),
            };
            self.findings
                .error("invalid-value", format!("`{path}` must be {list}"))
                .at(range.clone(), unfit(scalar))
                .help(help);
            return None;
        }
        match type_name(schema) {
            Some("boolean") => self.boolean(scalar, range, path),
            Some("integer") => self.integer(scalar, range, schema, path),
            _ => Some(Value::String(scalar.text.clone())),
        }
    }

    fn formatted(
        &mut self,
        scalar: &Scalar,
        range: &Range<usize>,
        schema: &Value,
        format: Format,
        path: &str,
    ) -> Option<Value> {
        if format.is_secret() {
            self.findings.hide(range.clone());
        }
        if let Err(complaint) = format.check(&scalar.text) {
            let may_quote = !scalar.has_variable && !format.is_secret();
            // Reasons do not repeat the value: the excerpt shows it, masked if it is secret.
            let label = match scalar.has_variable && !format.is_secret() {
                true => unfit(scalar),
                false => complaint.reason.into_owned(),
            };
            let instead = complaint.instead.filter(|_| may_quote);
            self.findings
                .error("invalid-value", format!("`{path}` must be {}", format.noun()))
                .at(range.clone(), label)
                .help(instead.unwrap_or_else(|| format.how().to_owned()));
            return None;
        }
        let least = schema.get("x-minimum").and_then(Value::as_u64);
        if let (Some(least), Some(given)) = (least, quantity(format, &scalar.text))
            && given < least
            && !(given == 0 && format == Format::DurationOrZero)
        {
            let least = print_quantity(format, least);
            let or_zero = if format == Format::DurationOrZero { ", or `0s`" } else { "" };
            self.findings
                .error("out-of-range", format!("`{path}` must be at least `{least}`{or_zero}"))
                .at(range.clone(), unfit(scalar))
                .help(format!("write `{least}` or more"));
            return None;
        }
        Some(Value::String(scalar.text.clone()))
    }

    fn boolean(&mut self, scalar: &Scalar, range: &Range<usize>, path: &str) -> Option<Value> {
        match scalar.text.as_str() {
            "true" | "True" | "TRUE" => Some(Value::Bool(true)),
            "false" | "False" | "FALSE" => Some(Value::Bool(false)),
            other => {
                let meant = match other.to_lowercase().as_str() {
                    "yes" | "on" | "y" | "1" => "write `true`",
                    "no" | "off" | "n" | "0" => "write `false`",
                    _ => "write `true` or `false`",
                };
                let help = if scalar.has_variable { "write `true` or `false`" } else { meant };
                self.findings
                    .error("wrong-type", format!("`{path}` must be `true` or `false`"))
                    .at(range.clone(), unfit(scalar))
                    .help(help);
                None
            }
        }
    }

    fn integer(
        &mut self,
        scalar: &Scalar,
        range: &Range<usize>,
        schema: &Value,
        path: &str,
    ) -> Option<Value> {
        let least = schema["minimum"].as_i64().unwrap_or(i64::MIN);
        let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
        let digits = scalar.text.strip_prefix('-').unwrap_or(&scalar.text);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // A number that is too long to parse is out of range as well.
        match scalar.text.parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => Some(Value::from(number)),
            number if is_number => {
                let is_small = number.map_or(scalar.text.starts_with('-'), |given| given < least);
                let label = match (scalar.has_variable, is_small) {
                    (true, _) => unfit(scalar),
                    (false, true) => format!("{} is too small", shown(scalar)),
                    (false, false) => format!("{} is too large", shown(scalar)),
                };
                self.findings
                    .error("out-of-range", format!("`{path}` must be from {least} to {most}"))
                    .at(range.clone(), label)
                    .help(format!("write a number from {least} to {most}"));
                None
            }
            _ => {
                self.findings
                    .error("wrong-type", format!("`{path}` must be a whole number"))
                    .at(range.clone(), unfit(scalar))
                    .help(format!(
                        "write a number from {least} to {most}, digits only, without quotes or a \
                         unit"
                    ));
                None
            }
        }
    }

    fn unknown_key(&mut self, entry: &MappingEntry, properties: &Map<String, Value>, path: &str) {
        // The value may be a secret under a misspelt name.
        let beside_secret = properties.values().any(|property| property["writeOnly"] == true);
        if beside_secret {
            self.findings.hide_value(&entry.value);
        } else {
            self.findings.hide_if_likely_secret(&entry.key, &entry.value);
        }
        if let Some(new) = moved_keys::new_path(&join(path, &entry.key)) {
            let old = join(path, &entry.key);
            self.findings
                .error("moved-key", format!("`{old}` has moved: it is now `{new}`"))
                .at(entry.key_range.clone(), "moved to another section")
                .help(format!("remove it here, and write `{new}`"));
            return;
        }
        let place =
            if path.is_empty() { "at the top level".into() } else { format!("in `{path}`") };
        let allowed = quoted(properties.keys().map(String::as_str), "and");
        let elsewhere = self.paths_of(&entry.key);
        let help = if let Some(name) = closest(&entry.key, properties.keys().map(String::as_str)) {
            format!("did you mean `{name}`? Known here: {allowed}")
        } else if !elsewhere.is_empty() {
            let key = printable(&entry.key);
            format!("`{key}` belongs {}. Known here: {allowed}", sections(&elsewhere))
        } else {
            format!("known here: {allowed}")
        };
        self.findings
            .error("unknown-key", format!("unknown key `{}` {place}", printable(&entry.key)))
            .at(entry.key_range.clone(), "not known here")
            .help(help);
    }

    /// Returns other paths of a key with this name, because a missing section is a common mistake.
    fn paths_of(&self, key: &str) -> Vec<String> {
        fn walk(schema: &Value, key: &str, path: &str, found: &mut Vec<String>) {
            if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                for (name, property) in properties {
                    let inner = join(path, name);
                    if name == key {
                        found.push(inner.clone());
                    }
                    walk(property, key, &inner, found);
                }
            }
            if let Some(further) = schema.get("additionalProperties") {
                walk(further, key, &join(path, "<name>"), found);
            }
        }
        let mut found = Vec::new();
        walk(self.schema, key, "", &mut found);
        found.truncate(3);
        found
    }

    fn no_value(&mut self, entry: &MappingEntry, schema: &Value, path: &str) {
        let help = match schema.get("default").filter(|default| !default.is_null()) {
            Some(default) => format!(
                "{}; or remove the key to keep the default `{}`",
                how_to_write(schema),
                default.as_str().map_or_else(|| default.to_string(), str::to_owned)
            ),
            None => how_to_write(schema),
        };
        self.findings
            .error("missing-value", format!("`{path}` has no value"))
            .at(entry.key_range.clone(), "nothing follows this key")
            .help(help);
    }

    fn not_one(
        &mut self,
        known: &[&MappingEntry],
        properties: &Map<String, Value>,
        path: &str,
        key: &Range<usize>,
    ) {
        let choices = quoted(properties.keys().map(String::as_str), "or");
        let message = format!("`{path}` must have exactly one of {choices}");
        let finding = self.findings.error("conflict", message);
        match known {
            [first, second, ..] => {
                finding
                    .at(second.key_range.clone(), "cannot be combined with the other")
                    .related(first.key_range.clone(), "given first")
                    .help("keep one of them; in a list, begin a new element (`- `) for the other");
            }
            _ => {
                finding.at(key.clone(), "nothing is given here").help(format!("write {choices}"));
            }
        }
    }

    fn wrong_kind(
        &mut self,
        expected: ValueKind,
        forms: &[&Value],
        node: &SourceNode,
        schema: &Value,
        path: &str,
        key: &Range<usize>,
    ) {
        if format(schema).is_some_and(Format::is_secret) {
            self.findings.hide_value(node);
        }
        let name = if path.is_empty() { "the file".into() } else { format!("`{path}`") };
        let expected_name = match forms {
            [] => expected.name().to_owned(),
            forms => {
                let names: Vec<_> = forms.iter().map(|form| kind(form).name()).collect();
                names.join(" or ")
            }
        };
        let (place, label) = match &node.content {
            Content::Mapping(_) => (key.clone(), "this is a mapping".to_owned()),
            Content::Sequence(_) => (key.clone(), "this is a list".to_owned()),
            // A scalar in place of a section may be anything, also a secret.
            Content::Scalar(_)
                if !path.is_empty() && expected == ValueKind::Object && contains_secret(schema) =>
            {
                self.findings.hide_value(node);
                (node.range.clone(), "this is a single value".to_owned())
            }
            Content::Scalar(scalar) if path.is_empty() => {
                self.findings.hide_if_likely_secret(&scalar.text, node);
                (node.range.clone(), "this is a single value".to_owned())
            }
            Content::Scalar(scalar) => {
                (node.range.clone(), format!("this is a single value: {}", shown(scalar)))
            }
            Content::Broken => return,
        };
        let help = match path {
            "" => "write keys and values such as `listen: 127.0.0.1:4000`, one a line".to_owned(),
            _ => how_to_write(schema),
        };
        self.findings
            .error("wrong-type", format!("{name} must be {expected_name}"))
            .at(place, label)
            .help(help);
    }
}

/// Returns the possible forms of a value, except for `null`.
fn forms(schema: &Value) -> Vec<&Value> {
    let branches = schema.get("anyOf").and_then(Value::as_array);
    branches.into_iter().flatten().filter(|branch| branch["type"] != "null").collect()
}

/// The YAML type that a schema requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Object,
    List,
    Scalar,
}

impl ValueKind {
    fn name(self) -> &'static str {
        match self {
            Self::Object => "a mapping of keys to values",
            Self::List => "a list",
            Self::Scalar => "a single value",
        }
    }
}

fn kind(schema: &Value) -> ValueKind {
    match type_name(schema) {
        Some("object") => ValueKind::Object,
        Some("array") => ValueKind::List,
        _ => ValueKind::Scalar,
    }
}

/// Returns the type of a schema. `null` in a list of types only means that the value is optional, and is skipped.
pub(super) fn type_name(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::Array(several) => {
            several.iter().filter_map(Value::as_str).find(|one| *one != "null")
        }
        one => one.as_str(),
    }
}

fn format(schema: &Value) -> Option<Format> {
    schema.get("format").and_then(Value::as_str).and_then(Format::from_name)
}

/// True if a mapping must have exactly one of its keys.
pub(super) fn is_one_of(schema: &Value) -> bool {
    schema["minProperties"] == 1 && schema["maxProperties"] == 1
}

/// Returns the allowed words of a value, if it is an enumeration.
pub(super) fn choices(schema: &Value) -> Option<Vec<&str>> {
    let words = match (schema.get("oneOf"), schema.get("enum")) {
        (Some(Value::Array(branches)), _) => {
            branches.iter().filter_map(|branch| branch["const"].as_str()).collect()
        }
        (_, Some(Value::Array(words))) => words.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    Some(words)
}

fn contains_secret(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.get("writeOnly") == Some(&Value::Bool(true))
                || object.values().any(contains_secret)
        }
        Value::Array(items) => items.iter().any(contains_secret),
        _ => false,
    }
}

/// Returns one sentence that explains how to write a value of this schema.
fn how_to_write(schema: &Value) -> String {
    let schema = forms(schema).first().copied().unwrap_or(schema);
    if let Some(format) = format(schema) {
        return format.how().to_owned();
    }
    if let Some(choices) = choices(schema) {
        return format!("write {}", quoted(choices, "or"));
    }
    match kind(schema) {
        ValueKind::Object => match schema.get("properties").and_then(Value::as_object) {
            Some(properties) => {
                let keys = quoted(properties.keys().map(String::as_str), "and");
                match is_one_of(schema) {
                    true => format!("put one of these keys below it, indented: {keys}"),
                    false => format!("put its keys below it, indented; known here: {keys}"),
                }
            }
            None => "put names below it, indented, and below each its settings".to_owned(),
        },
        ValueKind::List => "put its elements below it, one a line, each after `- `".to_owned(),
        ValueKind::Scalar => match type_name(schema) {
            Some("boolean") => "write `true` or `false`".to_owned(),
            Some("integer") => {
                format!("write a number from {} to {}", schema["minimum"], schema["maximum"])
            }
            _ => "write a text".to_owned(),
        },
    }
}

/// Returns a message that a value does not fit. It omits the text if that came from the environment.
fn unfit(scalar: &Scalar) -> String {
    if scalar.has_variable {
        "the value of the variable does not fit".to_owned()
    } else {
        format!("{} does not fit", shown(scalar))
    }
}

fn shown(scalar: &Scalar) -> String {
    if scalar.has_variable {
        "the value of the variable".to_owned()
    } else if scalar.text.is_empty() {
        "an empty text".to_owned()
    } else {
        format!("`{}`", printable(&shown_text(&secrecy::mask(&scalar.text, &[])).text))
    }
}

/// Returns a text as one line, shortened.
fn printable(text: &str) -> String {
    let mut line: String = text
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}

/// Joins names as in "`a`, `b` and `c`".
fn quoted<'a>(names: impl IntoIterator<Item = &'a str>, last: &str) -> String {
    let names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., final_one] => format!("{} {last} {final_one}", first.join(", ")),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
