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
use super::schema_facts::{
    ValueKind, allowed_words, contains_secret, forms, is_one_of, text_format, type_name, value_kind,
};
use super::source_tree::{Content, MappingEntry, Scalar, SourceNode};
use super::wording::{
    describe_sections, find_similar, how_to_write, misfit, printable, quote_names, shown_value,
};

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
    let value =
        checker.check_value(node, part, "", &node.range).unwrap_or(Value::Object(Map::new()));
    Checked { value, places: checker.places }
}

struct Checker<'a> {
    /// The whole schema.
    schema: &'a Value,
    findings: &'a mut Findings,
    places: KeyPlaces,
}

impl Checker<'_> {
    fn check_value(
        &mut self,
        node: &SourceNode,
        schema: &Value,
        path: &str,
        key: &Range<usize>,
    ) -> Option<Value> {
        self.places.insert(path, KeyPlace { key: key.clone(), value: node.range.clone() });
        let forms = forms(schema);
        let schema = self.find_form(node, schema);
        match &node.content {
            Content::Broken => None,
            content => match (value_kind(schema), content) {
                (ValueKind::Object, Content::Mapping(entries)) => {
                    self.check_object(entries, schema, path, key)
                }
                (ValueKind::List, Content::Sequence(items)) => {
                    self.check_list(items, schema, path, key)
                }
                (ValueKind::Scalar, Content::Scalar(scalar)) => {
                    self.check_scalar(scalar, &node.range, schema, path)
                }
                (expected, _) => {
                    self.report_wrong_kind(expected, &forms, node, schema, path, key);
                    None
                }
            },
        }
    }

    /// Returns the form of a value (`anyOf`) that matches the node.
    fn find_form<'s>(&self, node: &SourceNode, schema: &'s Value) -> &'s Value {
        let Some(branches) = schema.get("anyOf").and_then(Value::as_array) else {
            return schema;
        };
        // `listen` and similar keys have a short form and a long form.
        let fits = |branch: &&Value| {
            matches!(
                (value_kind(branch), &node.content),
                (ValueKind::Object, Content::Mapping(_))
                    | (ValueKind::List, Content::Sequence(_))
                    | (ValueKind::Scalar, Content::Scalar(_))
            )
        };
        let mut branches_of_value = branches.iter().filter(|branch| branch["type"] != "null");
        let first = branches_of_value.clone().next().unwrap_or(schema);
        let branch = branches_of_value.find(fits).unwrap_or(first);
        if branch.get("anyOf").is_some() { self.find_form(node, branch) } else { branch }
    }

    fn check_object(
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
            let inner = join_path(path, &entry.key);
            let further = schema.get("additionalProperties").filter(|further| further.is_object());
            let Some(property) = properties.get(&entry.key).or(further) else {
                self.report_unknown_key(entry, properties, path);
                continue;
            };
            known.push(entry);
            if entry.value.is_null() {
                // A section in which all keys are commented out counts as absent, but not one that has no
                // meaning without keys.
                let form = self.find_form(&entry.value, property);
                let needs_keys = property["x-needs-keys"] == true;
                if value_kind(form) == ValueKind::Scalar || is_one_of || needs_keys {
                    self.report_no_value(entry, property, &inner);
                }
                continue;
            }
            if let Some(value) = self.check_value(&entry.value, property, &inner, &entry.key_range)
            {
                object.insert(entry.key.clone(), value);
            }
        }
        if is_one_of && known.len() != 1 {
            // If all keys were unknown, that has been reported already.
            if known.len() > 1 || entries.is_empty() {
                self.report_not_one(&known, properties, path, key);
            }
            return None;
        }
        if !self.check_key_combination(&known, schema, properties, path, key) {
            return None;
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if entries.iter().all(|entry| entry.key != name) {
                let name = join_path(path, name);
                self.findings
                    .error("missing-key", format!("`{name}` is missing"))
                    .at(key.clone(), format!("`{}` is needed here", last_key(&name)))
                    .help(match properties[last_key(&name)]["examples"][0].as_str() {
                        Some(example) => format!("add `{}: {example}`", last_key(&name)),
                        None => how_to_write(&properties[last_key(&name)]),
                    });
            }
        }
        Some(Value::Object(object))
    }

    /// Checks the keys of which exactly one must be present (`x-one-of`), and the keys that require another key
    /// (`dependentRequired`).
    fn check_key_combination(
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
                self.report_not_one(&given, &choices, path, key);
                return false;
            }
        }
        for (name, needed) in schema["dependentRequired"].as_object().into_iter().flatten() {
            let Some(entry) = known.iter().find(|entry| entry.key == *name) else { continue };
            for needed in needed.as_array().into_iter().flatten().filter_map(Value::as_str) {
                if known.iter().any(|entry| entry.key == needed) {
                    continue;
                }
                let name = join_path(path, name);
                self.findings
                    .error("conflict", format!("`{name}` has no meaning without `{needed}`"))
                    .at(entry.key_range.clone(), format!("belongs to `{needed}`"))
                    .help(format!("remove it, or write `{needed}` beside it"));
                return false;
            }
        }
        true
    }

    fn check_list(
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
            if let Some(value) = self.check_value(item, &schema["items"], &inner, &item.range) {
                values.push(value);
            }
        }
        // A list without its invalid elements would have another meaning.
        (values.len() == items.len()).then_some(Value::Array(values))
    }

    fn check_scalar(
        &mut self,
        scalar: &Scalar,
        range: &Range<usize>,
        schema: &Value,
        path: &str,
    ) -> Option<Value> {
        if let Some(format) = text_format(schema) {
            return self.check_formatted(scalar, range, schema, format, path);
        }
        if let Some(choices) = allowed_words(schema) {
            if choices.contains(&scalar.text.as_str()) {
                return Some(Value::String(scalar.text.clone()));
            }
            let list = quote_names(choices.iter().copied(), "or");
            let help = match find_similar(&scalar.text, choices) {
                Some(choice) if !scalar.has_variable => format!("did you mean `{choice}`?"),
                _ => format!("write {list}"),
            };
            self.findings
                .error("invalid-value", format!("`{path}` must be {list}"))
                .at(range.clone(), misfit(scalar))
                .help(help);
            return None;
        }
        match type_name(schema) {
            Some("boolean") => self.check_boolean(scalar, range, path),
            Some("integer") => self.check_integer(scalar, range, schema, path),
            _ => Some(Value::String(scalar.text.clone())),
        }
    }

    fn check_formatted(
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
                true => misfit(scalar),
                false => complaint.reason.into_owned(),
            };
            let instead = complaint.instead.filter(|_| may_quote);
            let finding = self
                .findings
                .error("invalid-value", format!("`{path}` must be {}", format.noun()))
                .at(range.clone(), label)
                .help(instead.unwrap_or_else(|| format.how().to_owned()));
            if let Some(part) = complaint.part.filter(|_| may_quote) {
                finding.part(&scalar.text, part);
            }
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
                .at(range.clone(), misfit(scalar))
                .help(format!("write `{least}` or more"));
            return None;
        }
        Some(Value::String(scalar.text.clone()))
    }

    fn check_boolean(
        &mut self,
        scalar: &Scalar,
        range: &Range<usize>,
        path: &str,
    ) -> Option<Value> {
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
                    .at(range.clone(), misfit(scalar))
                    .help(help);
                None
            }
        }
    }

    fn check_integer(
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
                    (true, _) => misfit(scalar),
                    (false, true) => format!("{} is too small", shown_value(scalar)),
                    (false, false) => format!("{} is too large", shown_value(scalar)),
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
                    .at(range.clone(), misfit(scalar))
                    .help(format!(
                        "write a number from {least} to {most}, digits only, without quotes or a \
                         unit"
                    ));
                None
            }
        }
    }

    fn report_unknown_key(
        &mut self,
        entry: &MappingEntry,
        properties: &Map<String, Value>,
        path: &str,
    ) {
        // The value may be a secret under a misspelt name.
        let beside_secret = properties.values().any(|property| property["writeOnly"] == true);
        if beside_secret {
            self.findings.hide_value(&entry.value);
        } else {
            self.findings.hide_if_likely_secret(&entry.key, &entry.value);
        }
        if let Some(new) = moved_keys::new_path(&join_path(path, &entry.key)) {
            let old = join_path(path, &entry.key);
            self.findings
                .error("moved-key", format!("`{old}` has moved: it is now `{new}`"))
                .at(entry.key_range.clone(), "moved to another section")
                .help(format!("remove it here, and write `{new}`"));
            return;
        }
        let place =
            if path.is_empty() { "at the top level".into() } else { format!("in `{path}`") };
        let allowed = quote_names(properties.keys().map(String::as_str), "and");
        let elsewhere = self.find_paths(&entry.key);
        let help =
            if let Some(name) = find_similar(&entry.key, properties.keys().map(String::as_str)) {
                format!("did you mean `{name}`? Known here: {allowed}")
            } else if !elsewhere.is_empty() {
                let key = printable(&entry.key);
                format!("`{key}` belongs {}. Known here: {allowed}", describe_sections(&elsewhere))
            } else {
                format!("known here: {allowed}")
            };
        self.findings
            .error("unknown-key", format!("unknown key `{}` {place}", printable(&entry.key)))
            .at(entry.key_range.clone(), "not known here")
            .help(help);
    }

    /// Returns other paths of a key with this name, because a missing section is a common mistake.
    fn find_paths(&self, key: &str) -> Vec<String> {
        fn walk(schema: &Value, key: &str, path: &str, found: &mut Vec<String>) {
            if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                for (name, property) in properties {
                    let inner = join_path(path, name);
                    if name == key {
                        found.push(inner.clone());
                    }
                    walk(property, key, &inner, found);
                }
            }
            if let Some(further) = schema.get("additionalProperties") {
                walk(further, key, &join_path(path, "<name>"), found);
            }
        }
        let mut found = Vec::new();
        walk(self.schema, key, "", &mut found);
        // Keys near the top level are the most common ones. The sort is stable.
        found.sort_by_key(|path| path.matches('.').count());
        found.truncate(3);
        found
    }

    fn report_no_value(&mut self, entry: &MappingEntry, schema: &Value, path: &str) {
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

    fn report_not_one(
        &mut self,
        known: &[&MappingEntry],
        properties: &Map<String, Value>,
        path: &str,
        key: &Range<usize>,
    ) {
        let choices = quote_names(properties.keys().map(String::as_str), "or");
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

    fn report_wrong_kind(
        &mut self,
        expected: ValueKind,
        forms: &[&Value],
        node: &SourceNode,
        schema: &Value,
        path: &str,
        key: &Range<usize>,
    ) {
        if text_format(schema).is_some_and(Format::is_secret) {
            self.findings.hide_value(node);
        }
        let name = if path.is_empty() { "the file".into() } else { format!("`{path}`") };
        let expected_name = match forms {
            [] => expected.name().to_owned(),
            forms => {
                let names: Vec<_> = forms.iter().map(|form| value_kind(form).name()).collect();
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
                (node.range.clone(), format!("this is a single value: {}", shown_value(scalar)))
            }
            Content::Broken => return,
        };
        let help = match path {
            "" => {
                let example = schema["examples"][0].as_str().unwrap_or("listen: 127.0.0.1:4000");
                format!("write keys and values such as `{example}`, one a line")
            }
            _ => how_to_write(schema),
        };
        self.findings
            .error("wrong-type", format!("{name} must be {expected_name}"))
            .at(place, label)
            .help(help);
    }
}

fn join_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn last_key(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
