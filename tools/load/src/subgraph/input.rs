//! Variables and arguments: coercion to the types that the schema declares (specification, sections 6.1.2 and 6.4.1).

use std::borrow::Cow;

use apollo_compiler::Node;
use apollo_compiler::ast;
use apollo_compiler::ast::Type;
use apollo_compiler::executable::VariableDefinition;
use apollo_compiler::schema::{ExtendedType, InputValueDefinition, Schema};
use serde_json::{Map, Number, Value};

use super::model::Model;

/// The maximum nesting of one input value. Deeper values are refused without being walked.
const INPUT_DEPTH_MAX: usize = 64;

/// A variable that an operation declares.
pub(super) struct Variable {
    pub(super) name: Box<str>,
    pub(super) ty: Type,
    pub(super) default: Option<Value>,
}

/// An argument of a field, as far as it is known without the variables.
pub(super) struct Argument {
    pub(super) name: Box<str>,
    pub(super) value: ArgumentValue,
    /// The value to use if a variable has none.
    pub(super) default: Option<Value>,
}

/// The value of an argument.
pub(super) enum ArgumentValue {
    Constant(Value),
    Variable(usize),
    List(Vec<ArgumentValue>),
    Object(Vec<(Box<str>, ArgumentValue)>),
}

impl Variable {
    pub(super) fn declared(
        schema: &Schema,
        definition: &VariableDefinition,
    ) -> Result<Self, String> {
        let default = definition
            .default_value
            .as_ref()
            .map(|value| {
                let value = constant(value)?;
                coerce(schema, &definition.ty, value, 0)
            })
            .transpose()
            .map_err(|what| format!("variable `${}`: {what}", definition.name))?;
        let ty = definition.ty.as_ref().clone();
        Ok(Self { name: definition.name.as_str().into(), ty, default })
    }
}

/// Coerces the values of an operation's variables, in the order of their declaration; `None` if a variable has no
/// value.
pub(super) fn variables(
    model: &Model,
    declared: &[Variable],
    mut given: Map<String, Value>,
) -> Result<Vec<Option<Value>>, String> {
    declared
        .iter()
        .map(|variable| match given.remove(&*variable.name) {
            Some(value) => coerce(&model.schema, &variable.ty, value, 0)
                .map(Some)
                .map_err(|what| format!("variable `${}`: {what}", variable.name)),
            None if variable.default.is_some() => Ok(variable.default.clone()),
            None if variable.ty.is_non_null() => {
                Err(format!("variable `${}` of type {} is missing", variable.name, variable.ty))
            }
            None => Ok(None),
        })
        .collect()
}

impl Argument {
    /// Prepares the arguments of a field: the given ones, and the defaults of the others.
    pub(super) fn prepare(
        schema: &Schema,
        definitions: &[Node<InputValueDefinition>],
        given: &[Node<ast::Argument>],
        variables: &[Variable],
    ) -> Result<Vec<Self>, String> {
        let mut arguments = Vec::new();
        for definition in definitions {
            let default = definition
                .default_value
                .as_ref()
                .map(|value| coerce(schema, &definition.ty, constant(value)?, 0))
                .transpose()?;
            let value = match given.iter().find(|argument| argument.name == definition.name) {
                Some(argument) => prepare(schema, &definition.ty, &argument.value, variables, 0)?,
                None => match &default {
                    Some(value) => ArgumentValue::Constant(value.clone()),
                    None => continue,
                },
            };
            arguments.push(Self { name: definition.name.as_str().into(), value, default });
        }
        Ok(arguments)
    }

    /// Adds the argument's value to `into`, if it has one.
    pub(super) fn resolve(&self, variables: &[Option<Value>], into: &mut Map<String, Value>) {
        if let Some(value) = self.value.resolve(variables).or_else(|| self.default.clone()) {
            into.insert(self.name.to_string(), value);
        }
    }
}

impl ArgumentValue {
    /// Returns the same as [`Self::resolve`], borrowed if possible.
    pub(super) fn borrow<'a>(&'a self, variables: &'a [Option<Value>]) -> Option<Cow<'a, Value>> {
        match self {
            Self::Constant(value) => Some(Cow::Borrowed(value)),
            Self::Variable(index) => variables[*index].as_ref().map(Cow::Borrowed),
            other => other.resolve(variables).map(Cow::Owned),
        }
    }

    /// Returns the value, or `None` if it is a variable without value.
    pub(super) fn resolve(&self, variables: &[Option<Value>]) -> Option<Value> {
        match self {
            Self::Constant(value) => Some(value.clone()),
            Self::Variable(index) => variables[*index].clone(),
            Self::List(items) => Some(Value::Array(
                items.iter().map(|item| item.resolve(variables).unwrap_or(Value::Null)).collect(),
            )),
            Self::Object(members) => Some(Value::Object(
                members
                    .iter()
                    .filter_map(|(name, value)| Some((name.to_string(), value.resolve(variables)?)))
                    .collect(),
            )),
        }
    }
}

fn prepare(
    schema: &Schema,
    ty: &Type,
    value: &ast::Value,
    variables: &[Variable],
    depth: usize,
) -> Result<ArgumentValue, String> {
    if depth > INPUT_DEPTH_MAX {
        return Err(too_deep_error());
    }
    if !has_variable(value, depth)? {
        return Ok(ArgumentValue::Constant(coerce(schema, ty, constant(value)?, depth)?));
    }
    Ok(match value {
        ast::Value::Variable(name) => {
            let index = variables.iter().position(|variable| *variable.name == **name);
            // Validation has checked that every variable is declared.
            ArgumentValue::Variable(index.ok_or_else(|| format!("unknown variable `${name}`"))?)
        }
        ast::Value::List(items) => {
            let item_type = if ty.is_list() { ty.item_type() } else { ty };
            ArgumentValue::List(
                items
                    .iter()
                    .map(|item| prepare(schema, item_type, item, variables, depth + 1))
                    .collect::<Result<_, _>>()?,
            )
        }
        ast::Value::Object(members) => {
            let definition = schema.get_input_object(ty.inner_named_type());
            let mut prepared = Vec::with_capacity(members.len());
            for (name, value) in members {
                let member_type = definition
                    .and_then(|definition| definition.fields.get(name))
                    .map_or(ty, |field| &field.ty);
                let value = prepare(schema, member_type, value, variables, depth + 1)?;
                prepared.push((name.as_str().into(), value));
            }
            for (name, field) in definition.iter().flat_map(|definition| &definition.fields) {
                if let Some(default) = &field.default_value
                    && !members.iter().any(|(given, _)| given == name)
                {
                    let value = coerce(schema, &field.ty, constant(default)?, depth + 1)?;
                    prepared.push((name.as_str().into(), ArgumentValue::Constant(value)));
                }
            }
            ArgumentValue::Object(prepared)
        }
        other => ArgumentValue::Constant(constant(other)?),
    })
}

fn has_variable(value: &ast::Value, depth: usize) -> Result<bool, String> {
    if depth > INPUT_DEPTH_MAX {
        return Err(too_deep_error());
    }
    match value {
        ast::Value::Variable(_) => Ok(true),
        ast::Value::List(items) => {
            items.iter().try_fold(false, |any, item| Ok(any | has_variable(item, depth + 1)?))
        }
        ast::Value::Object(members) => members
            .iter()
            .try_fold(false, |any, (_, value)| Ok(any | has_variable(value, depth + 1)?)),
        _ => Ok(false),
    }
}

/// Converts a literal without variables to JSON.
fn constant(value: &ast::Value) -> Result<Value, String> {
    constant_within(value, 0)
}

fn constant_within(value: &ast::Value, depth: usize) -> Result<Value, String> {
    if depth > INPUT_DEPTH_MAX {
        return Err(too_deep_error());
    }
    Ok(match value {
        ast::Value::Null => Value::Null,
        ast::Value::Boolean(value) => Value::Bool(*value),
        ast::Value::Enum(name) => Value::String(name.to_string()),
        ast::Value::String(value) => Value::String(value.clone()),
        ast::Value::Int(value) => match value.as_str().parse::<i64>() {
            Ok(number) => Value::Number(number.into()),
            Err(_) => float(value.as_str())?,
        },
        ast::Value::Float(value) => float(value.as_str())?,
        ast::Value::List(items) => Value::Array(
            items.iter().map(|item| constant_within(item, depth + 1)).collect::<Result<_, _>>()?,
        ),
        ast::Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(name, value)| Ok((name.to_string(), constant_within(value, depth + 1)?)))
                .collect::<Result<_, String>>()?,
        ),
        ast::Value::Variable(name) => return Err(format!("`${name}` is not allowed here")),
    })
}

fn float(text: &str) -> Result<Value, String> {
    text.parse()
        .ok()
        .and_then(Number::from_f64)
        .map(Value::Number)
        .ok_or_else(|| format!("{text} is out of range"))
}

/// Coerces an input value to its declared type.
fn coerce(schema: &Schema, ty: &Type, value: Value, depth: usize) -> Result<Value, String> {
    if depth > INPUT_DEPTH_MAX {
        return Err(too_deep_error());
    }
    if value.is_null() {
        return if ty.is_non_null() {
            Err(format!("null is not a value of type {ty}"))
        } else {
            Ok(value)
        };
    }
    if ty.is_list() {
        let item_type = ty.item_type();
        return match value {
            Value::Array(items) => items
                .into_iter()
                .map(|item| coerce(schema, item_type, item, depth + 1))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            single => Ok(Value::Array(vec![coerce(schema, item_type, single, depth + 1)?])),
        };
    }
    let name = ty.inner_named_type();
    match name.as_str() {
        "Int" => match value.as_i64() {
            Some(number) if i32::try_from(number).is_ok() => Ok(value),
            // 3.0 is an integer, because some JSON libraries of clients write integers this way.
            _ => match value.as_f64() {
                Some(number) if number.fract() == 0.0 && number.abs() <= f64::from(i32::MAX) => {
                    Ok(Value::Number((number as i64).into()))
                }
                _ => Err(mismatch(&value, ty)),
            },
        },
        "Float" if value.is_number() => Ok(value),
        "String" if value.is_string() => Ok(value),
        "Boolean" if value.is_boolean() => Ok(value),
        "ID" if value.is_string() => Ok(value),
        "ID" if value.is_i64() || value.is_u64() => Ok(Value::String(value.to_string())),
        "Float" | "String" | "Boolean" | "ID" => Err(mismatch(&value, ty)),
        _ => match schema.types.get(name) {
            Some(ExtendedType::Enum(definition)) => match value.as_str() {
                Some(text) if definition.values.contains_key(text) => Ok(value),
                _ => Err(mismatch(&value, ty)),
            },
            Some(ExtendedType::InputObject(definition)) => {
                let Value::Object(mut given) = value else { return Err(mismatch(&value, ty)) };
                let mut coerced = Map::new();
                for (field_name, field) in &definition.fields {
                    match (given.remove(field_name.as_str()), &field.default_value) {
                        (Some(value), _) => {
                            let value = coerce(schema, &field.ty, value, depth + 1)
                                .map_err(|what| format!("{field_name}: {what}"))?;
                            coerced.insert(field_name.to_string(), value);
                        }
                        (None, Some(default)) => {
                            let value = coerce(schema, &field.ty, constant(default)?, depth + 1)?;
                            coerced.insert(field_name.to_string(), value);
                        }
                        (None, None) if field.ty.is_non_null() => {
                            return Err(format!("`{field_name}` of {name} is missing"));
                        }
                        (None, None) => {}
                    }
                }
                match given.keys().next() {
                    Some(unknown) => Err(format!("{name} has no field `{unknown}`")),
                    None => Ok(Value::Object(coerced)),
                }
            }
            // A custom scalar, in particular `_Any`, accepts any JSON value.
            _ => Ok(value),
        },
    }
}

fn mismatch(value: &Value, ty: &Type) -> String {
    format!("{value} is not a value of type {ty}")
}

fn too_deep_error() -> String {
    format!("an input value is nested more than {INPUT_DEPTH_MAX} levels deep")
}
