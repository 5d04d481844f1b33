//! `__schema` and `__type`: answered from the API schema without any subgraph
//! (GraphQL specification, section 4).

use apollo_compiler::collections::HashMap;
use apollo_compiler::executable::ExecutableDocument;
use apollo_compiler::introspection::partial_execute;
use apollo_compiler::response::{JsonMap, JsonValue};
use apollo_compiler::schema::Implementers;
use apollo_compiler::validation::Valid;
use apollo_compiler::{Name, Schema};
use bytes::Bytes;
use plan::{Operation, Variables};

use crate::PrepareError;
use crate::error::Problem;
use crate::input_types::InputTypes;

/// What is compiled once per schema.
#[derive(Debug)]
pub(crate) struct SchemaFacts {
    pub(crate) schema: std::sync::Arc<Valid<Schema>>,
    pub(crate) input_types: InputTypes,
    pub(crate) implementers: HashMap<Name, Implementers>,
    /// See [`crate::introspection_size`].
    pub(crate) introspection_values_max: u64,
}

/// The document of an operation that asks for introspection.
#[derive(Debug)]
pub(crate) struct Introspection {
    pub(crate) document: Valid<ExecutableDocument>,
    pub(crate) name: Option<Box<str>>,
}

impl Introspection {
    pub(crate) fn answer(
        &self,
        facts: &SchemaFacts,
        normalised: &Operation,
        variables: &Variables,
    ) -> Result<Bytes, PrepareError> {
        let refused = |error: apollo_compiler::request::RequestError| {
            PrepareError::Validation(vec![Problem::new(error.message().to_string())])
        };
        let operation = self.document.operations.get(self.name.as_deref()).map_err(refused)?;
        let mut values = JsonMap::new();
        for (variable, value) in normalised.variables.iter().zip(&variables.values) {
            if let Some(value) = value {
                // Our own coercion printed it, so it is JSON.
                let value: JsonValue = serde_json::from_str(value).unwrap_or_default();
                values.insert(&*variable.name, value);
            }
        }
        let values = Valid::assume_valid(values);
        let answer =
            partial_execute(&facts.schema, &facts.implementers, &self.document, operation, &values)
                .map_err(refused)?;
        let text = serde_json::to_vec(&answer.data)
            .map_err(|error| PrepareError::Internal(error.to_string()))?;
        Ok(text.into())
    }
}
