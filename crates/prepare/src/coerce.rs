//! Variable values of one request, coerced against the description that preparing compiled
//! (GraphQL specification, section 6.1.2).

use std::cell::RefCell;

use apollo_compiler::Node;
use apollo_compiler::ast::Type;
use apollo_compiler::executable::Operation;
use astjson::{Document, Kind};
use bytes::Bytes;
use plan::Variables;

use crate::error::{PROBLEMS_MAX, Problem};
use crate::input_types::InputTypes;

/// What the variables of one operation must be.
#[derive(Debug)]
pub(crate) struct VariableTypes {
    variables: Vec<VariableType>,
}

#[derive(Debug)]
struct VariableType {
    name: Box<str>,
    ty: Node<Type>,
    /// JSON text.
    default: Option<Box<str>>,
}

thread_local! {
    /// Keeps its memory between requests of this thread.
    static DOCUMENT: RefCell<Document> = RefCell::new(Document::new());
}

impl VariableTypes {
    pub(crate) fn of(operation: &Operation, types: &InputTypes) -> Self {
        let variables = operation.variables.iter().map(|variable| VariableType {
            name: variable.name.as_str().into(),
            ty: variable.ty.clone(),
            default: variable.default_value.as_ref().map(|value| {
                let mut text = String::new();
                types.constant(value, &variable.ty, &mut text, 0);
                text.into()
            }),
        });
        Self { variables: variables.collect() }
    }

    /// Reads `text`, the JSON object with the request's variables (empty or `null`: none). Values of
    /// variables that the operation does not declare are ignored.
    pub(crate) fn coerce(
        &self,
        text: &Bytes,
        types: &InputTypes,
    ) -> Result<Variables, Vec<Problem>> {
        let text = text.trim_ascii();
        if self.variables.is_empty() && (text.is_empty() || text == b"{}") {
            return Ok(Variables::default());
        }
        DOCUMENT.with_borrow_mut(|document| {
            document.reset();
            let source = if text.is_empty() { &b"{}"[..] } else { text };
            let root = document
                .parse(Bytes::copy_from_slice(source))
                .map_err(|error| vec![Problem::new(format!("`variables` is not JSON: {error}"))])?;
            let given = match document.kind(root) {
                Kind::Object => Some(root),
                Kind::Null => None,
                _ => return Err(vec![Problem::new("`variables` must be a JSON object or null")]),
            };
            let mut problems = Vec::new();
            let mut values = Vec::with_capacity(self.variables.len());
            for variable in &self.variables {
                let value = given.and_then(|object| document.get(object, &variable.name));
                let coerced = match value {
                    Some(value) => {
                        let mut text = String::new();
                        match types.coerce(document, value, &variable.ty, &mut text) {
                            Ok(()) => Some(text.into()),
                            Err(mismatch) => {
                                problems.push(Problem::new(mismatch.of_variable(&variable.name)));
                                None
                            }
                        }
                    }
                    None if variable.default.is_some() => variable.default.clone(),
                    None if variable.ty.is_non_null() => {
                        problems.push(Problem::new(format!(
                            "Variable \"${}\" of required type \"{}\" was not provided.",
                            variable.name, variable.ty
                        )));
                        None
                    }
                    None => None,
                };
                values.push(coerced);
                if problems.len() >= PROBLEMS_MAX {
                    break;
                }
            }
            if problems.is_empty() { Ok(Variables { values }) } else { Err(problems) }
        })
    }
}
