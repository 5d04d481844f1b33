//! Executes `__schema` and `__type` on the API schema, without any subgraph (GraphQL specification,
//! section 4).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{collections::HashSet, sync::Arc};

use apollo_compiler::ast::{Argument, DirectiveList, Value};
use apollo_compiler::collections::HashMap;
use apollo_compiler::executable::{ExecutableDocument, Selection, SelectionSet};
use apollo_compiler::introspection::partial_execute;
use apollo_compiler::response::{JsonMap, JsonValue};
use apollo_compiler::schema::Implementers;
use apollo_compiler::validation::Valid;
use apollo_compiler::{Name, Node, Schema};
use bytes::Bytes;
use graph::RequirementSet;
use plan::{Operation, Variables};

use crate::PrepareError;
use crate::error::Problem;
use crate::input_types::InputTypes;
use crate::visible_schemas::VisibleSchemas;

/// Maximum size of the cached responses of one schema. The tools of all developers of a graph send
/// a handful of different introspection queries, each with a response of some hundred kilobytes.
const CACHED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Data that is compiled once per schema.
#[derive(Debug)]
pub(crate) struct SchemaFacts {
    pub(crate) schema: Arc<Valid<Schema>>,
    pub(crate) input_types: InputTypes,
    pub(crate) implementers: HashMap<Name, Implementers>,
    /// The limit of [`crate::introspection_size`].
    pub(crate) introspection_values_max: u64,
    /// Size of the cached responses.
    pub(crate) introspection_cached: Arc<AtomicUsize>,
}

/// The document of an operation that selects introspection fields.
#[derive(Debug)]
pub(crate) struct Introspection {
    pub(crate) document: Valid<ExecutableDocument>,
    pub(crate) name: Option<Box<str>>,
    /// The part of the schema that it shows; `None` for all of it.
    visible: Option<VisiblePart>,
    cached: CachedResponse,
}

/// The part of the schema for the clients of one operation. Looked up for each execution, so that only the cache
/// decides how many are kept.
#[derive(Debug)]
struct VisiblePart {
    schemas: Arc<VisibleSchemas>,
    unmet: RequirementSet,
}

/// The response, if it is always the same and there was room to keep it.
#[derive(Debug)]
struct CachedResponse {
    /// True if no variable influences the response.
    is_constant: bool,
    response: OnceLock<Bytes>,
    bytes: Arc<AtomicUsize>,
}

impl CachedResponse {
    fn store(&self, response: &Bytes) {
        let with =
            |cached: usize| cached.checked_add(response.len()).filter(|&it| it <= CACHED_BYTES_MAX);
        let order = Ordering::Relaxed;
        if self.is_constant
            && self.bytes.fetch_update(order, order, with).is_ok()
            && self.response.set(response.clone()).is_err()
        {
            // Another thread was first.
            self.bytes.fetch_sub(response.len(), order);
        }
    }
}

impl Drop for CachedResponse {
    fn drop(&mut self) {
        let bytes = self.response.get().map_or(0, Bytes::len);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Introspection {
    /// Creates the introspection of operation `name` of `document`.
    pub(crate) fn new(
        facts: &SchemaFacts,
        document: Valid<ExecutableDocument>,
        name: Option<Box<str>>,
    ) -> Self {
        let is_constant = document.operations.get(name.as_deref()).is_ok_and(|operation| {
            let mut search = VariableSearch { document: &document, fragments: HashSet::new() };
            !search.varies_at_root(&operation.selection_set)
        });
        let bytes = Arc::clone(&facts.introspection_cached);
        let cached = CachedResponse { is_constant, response: OnceLock::new(), bytes };
        Self { document, name, visible: None, cached }
    }

    /// Shows only the part of the schema for clients that do not meet `unmet`. Returns false if they may use nothing.
    pub(crate) fn restrict(
        &mut self,
        schemas: &Arc<VisibleSchemas>,
        unmet: &RequirementSet,
    ) -> bool {
        // It is made here, on the thread that prepares, and found when the operation is executed.
        let is_visible = schemas.get(unmet).is_some();
        self.visible = Some(VisiblePart { schemas: Arc::clone(schemas), unmet: unmet.clone() });
        is_visible
    }

    pub(crate) fn execute(
        &self,
        facts: &SchemaFacts,
        normalised: &Operation,
        variables: &Variables,
    ) -> Result<Bytes, PrepareError> {
        if let Some(response) = self.cached.response.get() {
            return Ok(response.clone());
        }
        let refused = |error: apollo_compiler::request::RequestError| {
            PrepareError::Validation(vec![Problem::new(error.message().to_string())])
        };
        let operation = self.document.operations.get(self.name.as_deref()).map_err(refused)?;
        let mut values = JsonMap::new();
        for (variable, value) in normalised.variables.iter().zip(&variables.values) {
            if let Some(value) = value {
                // The value was printed by coercion, so it is valid JSON.
                let value: JsonValue = serde_json::from_str(value).unwrap_or_default();
                values.insert(&*variable.name, value);
            }
        }
        let values = Valid::assume_valid(values);
        let execute = |schema: &Valid<Schema>, implementers: &HashMap<Name, Implementers>| {
            partial_execute(schema, implementers, &self.document, operation, &values)
                .map_err(refused)
        };
        let response = match &self.visible {
            None => execute(&facts.schema, &facts.implementers)?,
            Some(VisiblePart { schemas, unmet }) => match schemas.get(unmet) {
                Some(part) => execute(&part.schema, &part.implementers)?,
                // `restrict` has found it, and it depends on nothing else.
                None => return Err(PrepareError::Internal("a schema is missing".into())),
            },
        };
        let text = serde_json::to_vec(&response.data)
            .map_err(|error| PrepareError::Internal(error.to_string()))?;
        let response = Bytes::from(text);
        self.cached.store(&response);
        Ok(response)
    }
}

/// Searches for variables that influence the introspection response. Each fragment is visited once
/// at the root and once below, so the work is bounded by the size of the document.
struct VariableSearch<'a> {
    document: &'a ExecutableDocument,
    /// Visited fragments, and true for a visit at the root.
    fragments: HashSet<(&'a str, bool)>,
}

impl<'a> VariableSearch<'a> {
    fn varies_at_root(&mut self, set: &'a SelectionSet) -> bool {
        self.varies_in(set, true)
    }

    fn varies_in(&mut self, set: &'a SelectionSet, at_root: bool) -> bool {
        set.selections.iter().any(|selection| match selection {
            // Other fields of the root are executed by the plan.
            Selection::Field(field) if at_root && !is_introspection(&field.name) => false,
            Selection::Field(field) => {
                in_arguments(&field.arguments)
                    || in_directives(&field.directives)
                    || self.varies_in(&field.selection_set, false)
            }
            Selection::InlineFragment(fragment) => {
                in_directives(&fragment.directives)
                    || self.varies_in(&fragment.selection_set, at_root)
            }
            Selection::FragmentSpread(spread) => {
                let name = spread.fragment_name.as_str();
                in_directives(&spread.directives)
                    || (self.fragments.insert((name, at_root))
                        && self.document.fragments.get(name).is_some_and(|fragment| {
                            in_directives(&fragment.directives)
                                || self.varies_in(&fragment.selection_set, at_root)
                        }))
            }
        })
    }
}

fn is_introspection(name: &Name) -> bool {
    matches!(name.as_str(), "__schema" | "__type")
}

fn in_directives(directives: &DirectiveList) -> bool {
    directives.iter().any(|directive| in_arguments(&directive.arguments))
}

fn in_arguments(arguments: &[Node<Argument>]) -> bool {
    // No argument of introspection or of a condition takes lists or objects.
    arguments.iter().any(|argument| {
        !matches!(&*argument.value, Value::String(_) | Value::Boolean(_) | Value::Enum(_))
    })
}
