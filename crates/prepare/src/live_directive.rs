//! The directive of live queries: `query @live(throttle: 500, patch: true) { … }`. It is part of the schema that
//! clients see where live queries are turned on.

use std::time::Duration;

use apollo_compiler::ast::{self, Definition, OperationType, Value};
use apollo_compiler::validation::Valid;
use apollo_compiler::{Name, Schema, executable};
use plan::{VariableId, Variables};

use crate::PrepareError;
use crate::error::Problem;

/// The name of the directive.
pub(crate) const NAME: &str = "live";

/// The argument for the minimum time between two results.
const THROTTLE: &str = "throttle";

/// The argument for results as patches.
const PATCH: &str = "patch";

/// The maximum of the throttle: an hour.
const THROTTLE_MS_MAX: u32 = 3_600_000;

/// The definition, in a schema of its own.
const DEFINITION: &str = r#"
"""
Sends the result of the query now, and again whenever it changes. `throttle` is the minimum time between two results,
in milliseconds. With `patch: true` the results after the first one are patches (RFC 6902) where these are smaller.
"""
directive @live(throttle: Int, patch: Boolean = false) on QUERY
type Query { unused: Int }
"#;

/// The directive of one live query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveQuery {
    throttle: Throttle,
    patch: PatchChoice,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Throttle {
    /// The time in milliseconds; `None` if the client does not choose one.
    Constant(Option<u32>),
    Variable(VariableId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PatchChoice {
    Constant(bool),
    Variable(VariableId),
}

impl LiveQuery {
    /// Reads the directive of a valid operation. `None` if the operation is no live query.
    ///
    /// # Errors
    /// The throttle is not between 0 and an hour.
    pub(crate) fn of(operation: &executable::Operation) -> Result<Option<Self>, PrepareError> {
        let Some(directive) = operation.directives.get(NAME) else { return Ok(None) };
        let argument = |name| directive.specified_argument_by_name(name).map(|value| &**value);
        let throttle = match argument(THROTTLE) {
            None | Some(Value::Null) => Throttle::Constant(None),
            Some(Value::Variable(name)) => Throttle::Variable(variable_id(operation, name)?),
            Some(Value::Int(number)) => {
                let number = read_throttle(number.as_str());
                let number = number.ok_or_else(|| PrepareError::Validation(vec![wrong()]))?;
                Throttle::Constant(Some(number))
            }
            // The type of the argument is `Int`.
            Some(_) => return Err(PrepareError::Validation(vec![wrong()])),
        };
        let patch = match argument(PATCH) {
            Some(Value::Variable(name)) => PatchChoice::Variable(variable_id(operation, name)?),
            value => PatchChoice::Constant(matches!(value, Some(Value::Boolean(true)))),
        };
        Ok(Some(Self { throttle, patch }))
    }

    /// Returns the minimum time between two results that the client asks for; zero if it does not choose one.
    ///
    /// # Errors
    /// [`PrepareError::Variables`]: the value is not between 0 and an hour.
    pub fn throttle(&self, variables: &Variables) -> Result<Duration, PrepareError> {
        let millis = match self.throttle {
            Throttle::Constant(millis) => millis.unwrap_or_default(),
            Throttle::Variable(id) => match variables.get(id) {
                None | Some("null") => 0,
                Some(text) => {
                    read_throttle(text).ok_or_else(|| PrepareError::Variables(vec![wrong()]))?
                }
            },
        };
        Ok(Duration::from_millis(millis.into()))
    }

    /// True if the client asks for results as patches.
    pub fn wants_patches(&self, variables: &Variables) -> bool {
        match self.patch {
            PatchChoice::Constant(wants) => wants,
            PatchChoice::Variable(id) => variables.get(id) == Some("true"),
        }
    }

    /// Returns the part of the operation's identity.
    pub(crate) fn identity(&self) -> String {
        let throttle = match self.throttle {
            Throttle::Constant(None) => String::new(),
            Throttle::Constant(Some(millis)) => format!("({millis})"),
            Throttle::Variable(id) => format!("(${})", id.0),
        };
        let patch = match self.patch {
            PatchChoice::Constant(false) => String::new(),
            PatchChoice::Constant(true) => "patch".to_owned(),
            PatchChoice::Variable(id) => format!("patch${}", id.0),
        };
        format!("@live{throttle}{patch};")
    }
}

/// Returns the number of a variable that the operation declares.
fn variable_id(operation: &executable::Operation, name: &Name) -> Result<VariableId, PrepareError> {
    let mut declared = operation.variables.iter();
    let at = declared.position(|variable| variable.name == *name);
    let id = at.and_then(|at| u16::try_from(at).ok());
    let unknown = || PrepareError::Internal(format!("${name} is not declared"));
    Ok(VariableId(id.ok_or_else(unknown)?))
}

fn read_throttle(text: &str) -> Option<u32> {
    text.parse().ok().filter(|millis| *millis <= THROTTLE_MS_MAX)
}

fn wrong() -> Problem {
    Problem::new(format!(
        "`@live(throttle:)` must be a number of milliseconds between 0 and {THROTTLE_MS_MAX}"
    ))
}

/// Returns a schema with the directive in addition. Another definition of that name is replaced.
pub(crate) fn with_live_directive(mut schema: Schema) -> Valid<Schema> {
    // The definition is a constant, which a test parses.
    if let Ok(definition) = Schema::parse_and_validate(DEFINITION, "live.graphql") {
        if let Some(directive) = definition.directive_definitions.get(NAME) {
            schema.directive_definitions.insert(directive.name.clone(), directive.clone());
        }
        // A schema without a number has no type `Int`.
        for name in ["Int", "Boolean"] {
            if let Some((name, scalar)) = definition.types.get_key_value(name) {
                schema.types.entry(name.clone()).or_insert_with(|| scalar.clone());
            }
        }
    }
    Valid::assume_valid(schema)
}

/// Checks that a document has no live query, for a router where they are turned off.
///
/// # Errors
/// It has one, and the schema of the graph has no directive of that name.
pub(crate) fn refuse_live_queries(
    document: &ast::Document,
    schema: &Schema,
) -> Result<(), PrepareError> {
    let is_live = |definition: &Definition| match definition {
        Definition::OperationDefinition(operation) => {
            operation.operation_type == OperationType::Query && operation.directives.has(NAME)
        }
        _ => false,
    };
    if schema.directive_definitions.contains_key(NAME) || !document.definitions.iter().any(is_live)
    {
        return Ok(());
    }
    let message = "live queries are turned off on this router (`live_queries.enabled`)";
    Err(PrepareError::Validation(vec![Problem::new(message)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_valid_and_is_added_with_the_types_of_its_arguments() {
        let schema = "type Query { a: String }";
        let schema = Schema::parse_and_validate(schema, "test.graphql").unwrap();
        let schema = with_live_directive(schema.into_inner());
        assert!(schema.directive_definitions.contains_key(NAME));
        assert!(schema.types.contains_key("Int") && schema.types.contains_key("Boolean"));
        assert!(schema.into_inner().validate().is_ok());
    }
}
