//! The input types of a schema, compiled once, and the coercion of JSON values to them
//! (GraphQL specification, sections 3.5 to 3.12, "Input Coercion", and 6.1.2).

use std::collections::HashMap;
use std::fmt::Write as _;

use apollo_compiler::ast::{Type, Value};
use apollo_compiler::schema::ExtendedType;
use apollo_compiler::{Node, Schema};
use astjson::{Document, Kind, NodeId};

use crate::error::shorten;

/// All input types of a schema by name.
#[derive(Debug)]
pub(crate) struct InputTypes {
    types: HashMap<Box<str>, InputType>,
}

#[derive(Debug)]
enum InputType {
    Int,
    Float,
    String,
    Boolean,
    Id,
    Custom,
    Enum(Vec<Box<str>>),
    Object(InputObject),
}

#[derive(Debug)]
struct InputObject {
    fields: Vec<InputField>,
    /// The index of each field in `fields`.
    by_name: HashMap<Box<str>, usize>,
    /// The fields that must be visited even if no value is given: those with a default and those
    /// that require a value. Ascending.
    eager: Vec<usize>,
    one_of: bool,
}

/// A field of an input object type.
#[derive(Debug)]
pub(crate) struct InputField {
    name: Box<str>,
    pub(crate) ty: Node<Type>,
    pub(crate) default: Option<Node<Value>>,
}

/// Maximum nesting of lists and input objects. Deeper values are refused; JSON parsing and the
/// parser of documents have bounds of their own.
pub(crate) const INPUT_DEPTH_MAX: usize = 128;

/// Maximum number of bytes that defaults may add to the variables of one request. A list of empty
/// objects takes three bytes an item, and each item becomes as long as the defaults of its type.
const DEFAULT_BYTES_MAX: usize = 4 << 20;

/// JSON text that is being written, and the bytes that defaults may still add to it.
#[derive(Debug)]
pub(crate) struct InputWriter {
    pub(crate) text: String,
    /// The bytes that defaults may still add.
    defaults_left: usize,
}

impl InputWriter {
    pub(crate) fn new() -> Self {
        Self { text: String::new(), defaults_left: DEFAULT_BYTES_MAX }
    }

    /// Takes the text so far. The bytes that defaults have used remain used.
    pub(crate) fn take(&mut self) -> Box<str> {
        std::mem::take(&mut self.text).into()
    }
}

impl InputTypes {
    pub(crate) fn of(schema: &Schema) -> Self {
        let mut types = HashMap::new();
        for (name, definition) in &schema.types {
            let ty = match definition {
                ExtendedType::Scalar(_) => match name.as_str() {
                    "Int" => InputType::Int,
                    "Float" => InputType::Float,
                    "String" => InputType::String,
                    "Boolean" => InputType::Boolean,
                    "ID" => InputType::Id,
                    _ => InputType::Custom,
                },
                ExtendedType::Enum(it) => {
                    InputType::Enum(it.values.keys().map(|value| value.as_str().into()).collect())
                }
                ExtendedType::InputObject(it) => {
                    let fields: Vec<InputField> = it
                        .fields
                        .values()
                        .map(|field| InputField {
                            name: field.name.as_str().into(),
                            ty: field.ty.clone(),
                            default: field.default_value.clone(),
                        })
                        .collect();
                    let names = fields.iter().enumerate();
                    InputType::Object(InputObject {
                        by_name: names.map(|(index, it)| (it.name.clone(), index)).collect(),
                        eager: (0..fields.len())
                            .filter(|&index| {
                                let field = &fields[index];
                                field.ty.is_non_null() || field.default.is_some()
                            })
                            .collect(),
                        one_of: it.directives.has("oneOf"),
                        fields,
                    })
                }
                _ => continue,
            };
            types.insert(name.as_str().into(), ty);
        }
        Self { types }
    }

    /// Writes `value` as canonical JSON text of type `ty`.
    ///
    /// # Errors
    /// The value does not fit; the error names the problem and the path.
    pub(crate) fn coerce(
        &self,
        document: &Document,
        value: NodeId,
        ty: &Type,
        out: &mut InputWriter,
    ) -> Result<(), Mismatch> {
        self.coerce_at(document, value, ty, out, 0)
    }

    fn coerce_at(
        &self,
        document: &Document,
        value: NodeId,
        ty: &Type,
        out: &mut InputWriter,
        depth: usize,
    ) -> Result<(), Mismatch> {
        if depth > INPUT_DEPTH_MAX {
            return Err(Mismatch::new(format!("is nested deeper than {INPUT_DEPTH_MAX} levels")));
        }
        if document.is_null(value) {
            if ty.is_non_null() {
                return Err(Mismatch::new(format!("expected non-null type \"{ty}\", got null")));
            }
            out.text.push_str("null");
            return Ok(());
        }
        match ty {
            Type::List(item) | Type::NonNullList(item) => {
                out.text.push('[');
                if document.kind(value) == Kind::Array {
                    for (index, element) in document.elements(value).enumerate() {
                        if index > 0 {
                            out.text.push(',');
                        }
                        self.coerce_at(document, element, item, out, depth + 1)
                            .map_err(|mismatch| mismatch.below(&index.to_string()))?;
                    }
                } else {
                    // A single value is a list of one (section 3.11).
                    self.coerce_at(document, value, item, out, depth + 1)?;
                }
                out.text.push(']');
                Ok(())
            }
            Type::Named(name) | Type::NonNullNamed(name) => {
                let Some(input) = self.types.get(name.as_str()) else {
                    return Err(Mismatch::new(format!("unknown input type \"{name}\"")));
                };
                match input {
                    InputType::Object(object) if document.kind(value) == Kind::Object => {
                        self.coerce_object(document, value, name, object, out, depth)
                    }
                    _ => coerce_leaf(document, value, name, input, &mut out.text),
                }
            }
        }
    }

    fn coerce_object(
        &self,
        document: &Document,
        value: NodeId,
        name: &str,
        object: &InputObject,
        out: &mut InputWriter,
        depth: usize,
    ) -> Result<(), Mismatch> {
        let mut given = Vec::new();
        for (key, value) in document.members(value) {
            let Some(&index) = object.by_name.get(&*key) else {
                return Err(Mismatch::new(format!(
                    "field \"{}\" is not defined by type {name}",
                    shorten(key.into_owned(), SHOWN)
                )));
            };
            given.push((index, value));
        }
        if object.one_of && !matches!(given[..], [(_, value)] if !document.is_null(value)) {
            return Err(Mismatch::new(format!(
                "exactly one field of {name} must be given, and not null"
            )));
        }
        given.sort_by_key(|(index, _)| *index);
        // Of several members with one name the last counts, as everywhere in JSON.
        given.reverse();
        given.dedup_by_key(|(index, _)| *index);
        let mut eager = object.eager.iter().copied().peekable();
        let before = out.text.len();
        out.text.push('{');
        while let Some(index) = match (given.last(), eager.peek()) {
            (Some(&(given, _)), Some(&eager)) => Some(given.min(eager)),
            (Some(&(index, _)), None) | (None, Some(&index)) => Some(index),
            (None, None) => None,
        } {
            let field = &object.fields[index];
            eager.next_if_eq(&index);
            if out.text.len() > before + 1 {
                out.text.push(',');
            }
            let start = out.text.len();
            let _ = write!(out.text, "\"{}\":", field.name);
            match (given.pop_if(|(it, _)| *it == index), &field.default) {
                (Some((_, value)), _) => self
                    .coerce_at(document, value, &field.ty, out, depth + 1)
                    .map_err(|mismatch| mismatch.below(&field.name))?,
                (None, Some(default)) => {
                    if !self.write_default(default, &field.ty, out, start, depth + 1) {
                        return Err(Mismatch::new(TOO_LARGE.to_owned()));
                    }
                }
                (None, None) => {
                    return Err(Mismatch::new(format!(
                        "field \"{}\" of required type \"{}\" was not provided",
                        field.name, field.ty
                    )));
                }
            }
        }
        out.text.push('}');
        Ok(())
    }

    /// Writes a default of the document or schema, which validation has checked, as JSON text. The
    /// text since `start` counts as part of it. Returns false if it is too large; the text is then
    /// unusable.
    pub(crate) fn write_default(
        &self,
        value: &Value,
        ty: &Type,
        out: &mut InputWriter,
        start: usize,
        depth: usize,
    ) -> bool {
        let end_max = start + out.defaults_left;
        if !self.write_constant(value, ty, &mut out.text, end_max, depth) {
            return false;
        }
        out.defaults_left = end_max - out.text.len();
        true
    }

    /// Writes a constant. Returns false if it exceeds `end_max` or [`INPUT_DEPTH_MAX`]. Defaults of
    /// input objects may refer to each other, even in cycles.
    fn write_constant(
        &self,
        value: &Value,
        ty: &Type,
        out: &mut String,
        end_max: usize,
        depth: usize,
    ) -> bool {
        if depth > INPUT_DEPTH_MAX {
            return false;
        }
        let fits = match (ty, value) {
            (_, Value::Null | Value::Variable(_)) => {
                out.push_str("null");
                true
            }
            (Type::List(item) | Type::NonNullList(item), Value::List(items)) => {
                out.push('[');
                let fits = items.iter().enumerate().all(|(index, element)| {
                    if index > 0 {
                        out.push(',');
                    }
                    self.write_constant(element, item, out, end_max, depth + 1)
                });
                out.push(']');
                fits
            }
            (Type::List(item) | Type::NonNullList(item), single) => {
                out.push('[');
                let fits = self.write_constant(single, item, out, end_max, depth + 1);
                out.push(']');
                fits
            }
            (Type::Named(name) | Type::NonNullNamed(name), value) => {
                match (self.types.get(name.as_str()), value) {
                    (Some(InputType::Object(object)), Value::Object(members)) => {
                        self.write_constant_object(object, members, out, end_max, depth)
                    }
                    (Some(InputType::Id), Value::Int(number)) => {
                        let _ = write!(out, "\"{}\"", number.as_str());
                        true
                    }
                    (_, value) => {
                        write_untyped(value, out);
                        true
                    }
                }
            }
        };
        fits && out.len() <= end_max
    }

    fn write_constant_object(
        &self,
        object: &InputObject,
        members: &[(apollo_compiler::Name, Node<Value>)],
        out: &mut String,
        end_max: usize,
        depth: usize,
    ) -> bool {
        let before = out.len();
        out.push('{');
        let fits = object.fields.iter().all(|field| {
            let given = members.iter().find(|(key, _)| *key.as_str() == *field.name);
            let Some(value) = given.map(|(_, value)| value).or(field.default.as_ref()) else {
                return true;
            };
            if out.len() > before + 1 {
                out.push(',');
            }
            let _ = write!(out, "\"{}\":", field.name);
            self.write_constant(value, &field.ty, out, end_max, depth + 1)
        });
        out.push('}');
        fits
    }

    /// True if `name` is the built-in `ID`.
    pub(crate) fn is_id(&self, name: &str) -> bool {
        matches!(self.types.get(name), Some(InputType::Id))
    }

    /// True if `name` is a custom scalar, or unknown.
    pub(crate) fn is_custom(&self, name: &str) -> bool {
        matches!(self.types.get(name), Some(InputType::Custom) | None)
    }

    /// True if `name` is an input object type with `@oneOf`: exactly one field must be given.
    pub(crate) fn is_one_of(&self, name: &str) -> bool {
        matches!(self.types.get(name), Some(InputType::Object(object)) if object.one_of)
    }

    /// A field of an input object type.
    pub(crate) fn field(&self, object: &str, field: &str) -> Option<&InputField> {
        match self.types.get(object) {
            Some(InputType::Object(it)) => it.by_name.get(field).map(|&index| &it.fields[index]),
            _ => None,
        }
    }
}

/// The end of messages about values that grow too large.
pub(crate) const TOO_LARGE: &str = "is too large with the defaults of its input objects filled in";

fn coerce_leaf(
    document: &Document,
    value: NodeId,
    name: &str,
    input: &InputType,
    out: &mut String,
) -> Result<(), Mismatch> {
    let kind = document.kind(value);
    // Strings and objects may hold secrets, so the message contains their kind only.
    let unfit = || {
        let got = match kind {
            Kind::Number => shorten(document.raw(value).to_owned(), SHOWN),
            Kind::Bool => document.raw(value).to_owned(),
            Kind::String => "a string".to_owned(),
            Kind::Array => "a list".to_owned(),
            Kind::Object => "an object".to_owned(),
            _ => "null".to_owned(),
        };
        Mismatch::new(format!("{name} cannot represent {got}"))
    };
    match input {
        InputType::Int if kind == Kind::Number => {
            let number = whole_number(document.raw(value)).ok_or_else(unfit)?;
            let _ = write!(out, "{number}");
        }
        InputType::Float if kind == Kind::Number => {
            let text = document.raw(value);
            let number: f64 = text.parse().map_err(|_| unfit())?;
            if !number.is_finite() {
                return Err(unfit());
            }
            out.push_str(text);
        }
        InputType::String | InputType::Id if kind == Kind::String => {
            out.push_str(document.raw(value));
        }
        InputType::Id if kind == Kind::Number => {
            let text = document.raw(value);
            if text.contains(['.', 'e', 'E']) {
                return Err(unfit());
            }
            let _ = write!(out, "\"{text}\"");
        }
        InputType::Boolean if kind == Kind::Bool => out.push_str(document.raw(value)),
        InputType::Custom => {
            let mut text = Vec::new();
            document.print(value, &mut text);
            out.push_str(&String::from_utf8_lossy(&text));
        }
        InputType::Enum(values) if kind == Kind::String => {
            let text = document.as_str(value).unwrap_or_default();
            // The name from the schema, not the client's spelling of it with escapes.
            let known = values.iter().find(|value| ***value == *text).ok_or_else(|| {
                Mismatch::new(format!(
                    "value \"{}\" does not exist in enum {name}",
                    shorten(text.into_owned(), SHOWN)
                ))
            })?;
            let _ = write!(out, "\"{known}\"");
        }
        _ => return Err(unfit()),
    }
    Ok(())
}

/// Writes a constant of a custom scalar or leaf type as JSON. Its depth is bounded by the check of
/// literals in [`crate::variable_usage`] or by the reader of the schema.
fn write_untyped(value: &Value, out: &mut String) {
    match value {
        Value::Null | Value::Variable(_) => out.push_str("null"),
        Value::Boolean(it) => out.push_str(if *it { "true" } else { "false" }),
        Value::Int(it) => out.push_str(it.as_str()),
        Value::Float(it) => out.push_str(it.as_str()),
        Value::Enum(it) => write_string(it.as_str(), out),
        Value::String(it) => write_string(it, out),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_untyped(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(key.as_str(), out);
                out.push(':');
                write_untyped(value, out);
            }
            out.push('}');
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    astjson::print_string(text, &mut bytes);
    out.push_str(&String::from_utf8_lossy(&bytes));
}

/// The `Int` that a JSON number denotes: `3`, `3.0` and `3e2` are integers, `3.5` and `3e9` are
/// not.
fn whole_number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    // Every `i32` is exact in an `f64`.
    let fits =
        number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
    fits.then_some(number as i32)
}

/// Maximum number of characters of a client's value in a message: enough to recognise it.
const SHOWN: usize = 64;

/// A value that does not fit.
#[derive(Debug)]
pub(crate) struct Mismatch {
    message: String,
    /// The path to the value, from the inside out.
    path: Vec<String>,
}

impl Mismatch {
    fn new(message: String) -> Self {
        Self { message, path: Vec::new() }
    }

    fn below(mut self, step: &str) -> Self {
        self.path.push(step.to_owned());
        self
    }

    /// Returns a sentence about variable `name`.
    pub(crate) fn of_variable(&self, name: &str) -> String {
        let mut text = format!("Variable \"${name}\" got an invalid value");
        if !self.path.is_empty() {
            let _ = write!(text, " at \"{name}");
            for step in self.path.iter().rev() {
                let _ = write!(text, ".{step}");
            }
            text.push('"');
        }
        let _ = write!(text, ": {}.", self.message);
        text
    }
}
