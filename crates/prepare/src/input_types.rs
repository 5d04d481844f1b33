//! The input types of a schema, compiled once, and the coercion of JSON values to them
//! (GraphQL specification, sections 3.5 to 3.12, "Input Coercion", and 6.1.2).

use std::collections::HashMap;
use std::fmt::Write as _;

use apollo_compiler::ast::{Type, Value};
use apollo_compiler::schema::ExtendedType;
use apollo_compiler::{Node, Schema};
use astjson::{Document, Kind, NodeId};

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
    Object { fields: Vec<InputField>, one_of: bool },
}

#[derive(Debug)]
struct InputField {
    name: Box<str>,
    ty: Node<Type>,
    default: Option<Node<Value>>,
}

/// Input objects inside each other. Deeper values than this are refused; JSON parsing has a bound of its own.
const INPUT_DEPTH_MAX: usize = 128;

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
                ExtendedType::InputObject(it) => InputType::Object {
                    one_of: it.directives.has("oneOf"),
                    fields: it
                        .fields
                        .values()
                        .map(|field| InputField {
                            name: field.name.as_str().into(),
                            ty: field.ty.clone(),
                            default: field.default_value.clone(),
                        })
                        .collect(),
                },
                _ => continue,
            };
            types.insert(name.as_str().into(), ty);
        }
        Self { types }
    }

    /// Writes `value` as canonical JSON text of type `ty`. On failure the message says what is wrong
    /// with the value, and `path` where in it.
    pub(crate) fn coerce(
        &self,
        document: &Document,
        value: NodeId,
        ty: &Type,
        out: &mut String,
    ) -> Result<(), Mismatch> {
        self.coerce_at(document, value, ty, out, 0)
    }

    fn coerce_at(
        &self,
        document: &Document,
        value: NodeId,
        ty: &Type,
        out: &mut String,
        depth: usize,
    ) -> Result<(), Mismatch> {
        if depth > INPUT_DEPTH_MAX {
            return Err(Mismatch::new(format!("is nested deeper than {INPUT_DEPTH_MAX} levels")));
        }
        if document.is_null(value) {
            if ty.is_non_null() {
                return Err(Mismatch::new(format!("expected non-null type \"{ty}\", got null")));
            }
            out.push_str("null");
            return Ok(());
        }
        match ty {
            Type::List(item) | Type::NonNullList(item) => {
                out.push('[');
                if document.kind(value) == Kind::Array {
                    for (index, element) in document.elements(value).enumerate() {
                        if index > 0 {
                            out.push(',');
                        }
                        self.coerce_at(document, element, item, out, depth + 1)
                            .map_err(|mismatch| mismatch.below(&index.to_string()))?;
                    }
                } else {
                    // A single value stands for a list of one (section 3.11).
                    self.coerce_at(document, value, item, out, depth + 1)?;
                }
                out.push(']');
                Ok(())
            }
            Type::Named(name) | Type::NonNullNamed(name) => {
                let Some(input) = self.types.get(name.as_str()) else {
                    return Err(Mismatch::new(format!("unknown input type \"{name}\"")));
                };
                self.coerce_named(document, value, name, input, out, depth)
            }
        }
    }

    fn coerce_named(
        &self,
        document: &Document,
        value: NodeId,
        name: &str,
        input: &InputType,
        out: &mut String,
        depth: usize,
    ) -> Result<(), Mismatch> {
        let kind = document.kind(value);
        let unfit = || {
            let mut text = Vec::new();
            document.print(value, &mut text);
            Mismatch::new(format!("{name} cannot represent {}", shortened(&text)))
        };
        match input {
            InputType::Int => {
                let text = document.raw(value);
                let number = (kind == Kind::Number).then(|| whole_number(text)).flatten();
                let number = number.and_then(|it| i32::try_from(it).ok()).ok_or_else(unfit)?;
                let _ = write!(out, "{number}");
            }
            InputType::Float if kind == Kind::Number => out.push_str(document.raw(value)),
            InputType::String | InputType::Id if kind == Kind::String => {
                out.push_str(document.raw(value));
            }
            InputType::Id if kind == Kind::Number => {
                let text = document.raw(value);
                if whole_number(text).is_none() || text.contains(['.', 'e', 'E']) {
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
                if !values.iter().any(|value| **value == *text) {
                    return Err(Mismatch::new(format!(
                        "value {} does not exist in enum {name}",
                        shortened(document.raw(value).as_bytes())
                    )));
                }
                out.push_str(document.raw(value));
            }
            InputType::Object { fields, one_of } if kind == Kind::Object => {
                self.coerce_object(document, value, name, fields, *one_of, out, depth)?;
            }
            _ => return Err(unfit()),
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one call site; the arguments are one idea")]
    fn coerce_object(
        &self,
        document: &Document,
        value: NodeId,
        name: &str,
        fields: &[InputField],
        one_of: bool,
        out: &mut String,
        depth: usize,
    ) -> Result<(), Mismatch> {
        for (key, _) in document.members(value) {
            if !fields.iter().any(|field| *field.name == *key) {
                return Err(Mismatch::new(format!(
                    "field {} is not defined by type {name}",
                    shortened(key.as_bytes())
                )));
            }
        }
        if one_of {
            let given = document.members(value).count();
            let null = document.members(value).any(|(_, it)| document.is_null(it));
            if given != 1 || null {
                return Err(Mismatch::new(format!(
                    "exactly one field of {name} must be given, and not null"
                )));
            }
        }
        out.push('{');
        let mut first = true;
        for field in fields {
            let given = document.get(value, &field.name);
            if given.is_none() && field.default.is_none() {
                if field.ty.is_non_null() {
                    return Err(Mismatch::new(format!(
                        "field \"{}\" of required type \"{}\" was not provided",
                        field.name, field.ty
                    )));
                }
                continue;
            }
            if !std::mem::take(&mut first) {
                out.push(',');
            }
            let _ = write!(out, "\"{}\":", field.name);
            match (given, &field.default) {
                (Some(given), _) => self
                    .coerce_at(document, given, &field.ty, out, depth + 1)
                    .map_err(|mismatch| mismatch.below(&field.name))?,
                (None, Some(default)) => self.constant(default, &field.ty, out, depth + 1),
                (None, None) => {}
            }
        }
        out.push('}');
        Ok(())
    }

    /// Writes a constant of the document or schema, which validation has checked, as JSON text.
    pub(crate) fn constant(&self, value: &Value, ty: &Type, out: &mut String, depth: usize) {
        // Defaults of input objects may refer to each other; composition and validation refuse cycles,
        // the bound keeps a defect there from ending the process.
        if depth > INPUT_DEPTH_MAX {
            return out.push_str("null");
        }
        match (ty, value) {
            (_, Value::Null | Value::Variable(_)) => out.push_str("null"),
            (Type::List(item) | Type::NonNullList(item), Value::List(items)) => {
                out.push('[');
                for (index, element) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.constant(element, item, out, depth + 1);
                }
                out.push(']');
            }
            (Type::List(item) | Type::NonNullList(item), single) => {
                out.push('[');
                self.constant(single, item, out, depth + 1);
                out.push(']');
            }
            (Type::Named(name) | Type::NonNullNamed(name), value) => {
                let input = self.types.get(name.as_str());
                match (input, value) {
                    (Some(InputType::Object { fields, .. }), Value::Object(members)) => {
                        out.push('{');
                        let mut first = true;
                        for field in fields {
                            let given = members
                                .iter()
                                .find(|(key, _)| *key.as_str() == *field.name)
                                .map(|(_, value)| value)
                                .or(field.default.as_ref());
                            let Some(given) = given else { continue };
                            if !std::mem::take(&mut first) {
                                out.push(',');
                            }
                            let _ = write!(out, "\"{}\":", field.name);
                            self.constant(given, &field.ty, out, depth + 1);
                        }
                        out.push('}');
                    }
                    (Some(InputType::Id), Value::Int(number)) => {
                        let _ = write!(out, "\"{}\"", number.as_str());
                    }
                    (_, value) => untyped(value, out, depth),
                }
            }
        }
    }

    /// Is `name` the built-in `ID`?
    pub(crate) fn is_id(&self, name: &str) -> bool {
        matches!(self.types.get(name), Some(InputType::Id))
    }

    /// The type of a field of an input object.
    pub(crate) fn field_type(&self, object: &str, field: &str) -> Option<&Type> {
        match self.types.get(object) {
            Some(InputType::Object { fields, .. }) => {
                fields.iter().find(|it| *it.name == *field).map(|it| &*it.ty)
            }
            _ => None,
        }
    }
}

/// A constant of a custom scalar or leaf type as JSON.
fn untyped(value: &Value, out: &mut String, depth: usize) {
    if depth > INPUT_DEPTH_MAX {
        return out.push_str("null");
    }
    match value {
        Value::Null | Value::Variable(_) => out.push_str("null"),
        Value::Boolean(it) => out.push_str(if *it { "true" } else { "false" }),
        Value::Int(it) => out.push_str(it.as_str()),
        Value::Float(it) => out.push_str(it.as_str()),
        Value::Enum(it) => string(it.as_str(), out),
        Value::String(it) => string(it, out),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                untyped(item, out, depth + 1);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                string(key.as_str(), out);
                out.push(':');
                untyped(value, out, depth + 1);
            }
            out.push('}');
        }
    }
}

fn string(text: &str, out: &mut String) {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    astjson::print_string(text, &mut bytes);
    out.push_str(&String::from_utf8_lossy(&bytes));
}

/// The integer that a JSON number stands for: `3`, `3.0` and `3e2` do, `3.5` does not.
fn whole_number(text: &str) -> Option<i128> {
    if let Ok(number) = text.parse::<i128>() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    // Beyond 2^53 a float no longer names one integer.
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i128)
}

/// Enough of a client's value to recognise it, and no more.
fn shortened(text: &[u8]) -> String {
    const SHOWN: usize = 64;
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// A value that does not fit.
#[derive(Debug)]
pub(crate) struct Mismatch {
    message: String,
    /// From the inside out.
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

    /// A sentence about variable `name`.
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
