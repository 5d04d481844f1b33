//! Coerces the variable values of one request to the types that preparing has compiled (GraphQL
//! specification, section 6.1.2).

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use apollo_compiler::Node;
use apollo_compiler::ast::Type;
use apollo_compiler::executable::Operation;
use astjson::{Document, Kind};
use bytes::Bytes;
use plan::Variables;

use crate::error::{PROBLEMS_MAX, Problem};
use crate::input_types::{InputTypes, InputWriter, TOO_LARGE};

/// The types of the variables of one operation.
#[derive(Debug)]
pub(crate) struct VariableTypes {
    variables: Vec<VariableType>,
    /// Index into `variables`.
    by_name: HashMap<Box<str>, usize>,
}

#[derive(Debug)]
struct VariableType {
    name: Box<str>,
    ty: Node<Type>,
    /// The default value as JSON text.
    default: Option<Box<str>>,
}

thread_local! {
    /// A document that keeps its memory between requests of this thread.
    static DOCUMENT: RefCell<Document> = RefCell::new(Document::new());
}

impl VariableTypes {
    /// Compiles the types. `never_null` names the variables with a default that are used where null
    /// is not allowed.
    ///
    /// # Errors
    /// A default is too large with the defaults of its input objects filled in.
    pub(crate) fn of(
        operation: &Operation,
        types: &InputTypes,
        never_null: &HashSet<&str>,
    ) -> Result<Self, Problem> {
        let mut out = InputWriter::new();
        let mut variables = Vec::with_capacity(operation.variables.len());
        for variable in &operation.variables {
            let mut default = None;
            if let Some(value) = &variable.default_value {
                if !types.write_default(value, &variable.ty, &mut out, 0, 0) {
                    let name = &variable.name;
                    return Err(Problem::new(format!(
                        "the default of variable `${name}` {TOO_LARGE}"
                    )));
                }
                default = Some(out.take());
            }
            let ty = if never_null.contains(variable.name.as_str()) {
                Node::new(variable.ty.as_ref().clone().non_null())
            } else {
                variable.ty.clone()
            };
            variables.push(VariableType { name: variable.name.as_str().into(), ty, default });
        }
        let names = variables.iter().enumerate();
        let by_name = names.map(|(index, it)| (it.name.clone(), index)).collect();
        Ok(Self { variables, by_name })
    }

    /// The number of variables that the client declares.
    pub(crate) fn len(&self) -> usize {
        self.variables.len()
    }

    /// The types as text, by variable, for the operations that are sent to subgraphs.
    pub(crate) fn types(&self) -> impl Iterator<Item = String> {
        self.variables.iter().map(|variable| variable.ty.to_string())
    }

    /// Reads `text`, the JSON object with the variables of the request; empty text and `null` mean
    /// none. Values of variables that the operation does not declare are ignored.
    pub(crate) fn coerce(
        &self,
        text: &Bytes,
        types: &InputTypes,
    ) -> Result<Variables, Vec<Problem>> {
        let trimmed = text.trim_ascii();
        // The text is not read at all if no variable is declared.
        if self.variables.is_empty() && matches!(trimmed.first(), None | Some(b'{')) {
            return Ok(Variables::default());
        }
        let text = match trimmed {
            b"" => Bytes::from_static(b"{}"),
            trimmed => text.slice_ref(trimmed),
        };
        DOCUMENT.with_borrow_mut(|document| {
            let result = self.read_variables(document, text, types);
            // Releases the text of the request.
            document.reset();
            result
        })
    }

    /// Returns the members of `text` that the operation declares, as a JSON object in memory of its
    /// own; empty if there are none.
    pub(crate) fn declared_members(&self, text: &Bytes) -> Bytes {
        let mut given: Vec<Option<Bytes>> = vec![None; self.variables.len()];
        if !given.is_empty() {
            // Text that is not JSON was refused before.
            let _ = astjson::outline_members(text, |key, value| {
                if let Some(&index) = self.by_name.get(&*key) {
                    given[index] = Some(value);
                }
            });
        }
        let mut declared = Vec::new();
        for (variable, value) in self.variables.iter().zip(given) {
            let Some(value) = value else { continue };
            declared.push(if declared.is_empty() { b'{' } else { b',' });
            astjson::print_string(&variable.name, &mut declared);
            declared.push(b':');
            declared.extend_from_slice(&value);
        }
        if !declared.is_empty() {
            declared.push(b'}');
        }
        declared.shrink_to_fit();
        declared.into()
    }

    fn read_variables(
        &self,
        document: &mut Document,
        text: Bytes,
        types: &InputTypes,
    ) -> Result<Variables, Vec<Problem>> {
        let not_json = |error| vec![Problem::new(format!("`variables` is not JSON: {error}"))];
        // Members that the operation does not declare are skipped: they may be far larger than the
        // others.
        let mut given: Vec<Option<Bytes>> = vec![None; self.variables.len()];
        let kind = astjson::outline_members(&text, |key, value| {
            if let Some(&index) = self.by_name.get(&*key) {
                given[index] = Some(value);
            }
        });
        if !matches!(kind.map_err(not_json)?, Kind::Object | Kind::Null) {
            return Err(vec![Problem::new("`variables` must be a JSON object or null")]);
        }
        let mut problems = Vec::new();
        let mut values = Vec::with_capacity(self.variables.len());
        let mut out = InputWriter::new();
        for (variable, value) in self.variables.iter().zip(given) {
            values.push(match value {
                Some(value) => {
                    let value = document.parse(value).map_err(not_json)?;
                    if let Err(mismatch) = types.coerce(document, value, &variable.ty, &mut out) {
                        problems.push(Problem::new(mismatch.of_variable(&variable.name)));
                    }
                    Some(out.take())
                }
                None if variable.default.is_some() => variable.default.clone(),
                None => {
                    if variable.ty.is_non_null() {
                        problems.push(Problem::new(format!(
                            "Variable \"${}\" of required type \"{}\" was not provided.",
                            variable.name, variable.ty
                        )));
                    }
                    None
                }
            });
            if problems.len() >= PROBLEMS_MAX {
                break;
            }
        }
        if problems.is_empty() { Ok(Variables { values }) } else { Err(problems) }
    }
}
