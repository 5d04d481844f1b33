//! What goes in and what comes out of preparing.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bytes::Bytes;
use execute::{Executable, StatePlan};
use plan::{Operation, OperationKind, Plan, Variables};

use crate::PrepareError;
use crate::coerce::VariableTypes;
use crate::introspection::{Introspection, SchemaFacts};
use crate::plans::Planned;

/// What any transport hands in. Texts are shared with its buffer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperationRequest {
    /// The document.
    pub query: Bytes,
    /// Which operation of it.
    pub operation_name: Option<Box<str>>,
    /// JSON text of the object with variable values; empty: none.
    pub variables: Bytes,
    /// JSON text of the request's `extensions`; empty: none.
    pub extensions: Bytes,
}

/// One operation, ready to run any number of times.
#[derive(Debug)]
pub struct Prepared {
    /// Identity of the normalised operation: equal for documents that differ only in spaces, commas,
    /// comments or names of fragments. Groups, sharing and metrics use it.
    pub operation_id: u128,
    /// The document of a subscription, which is prepared again for the next graph, without white space and comments.
    /// Empty for other operations.
    pub query: Bytes,
    /// The client's name for it.
    pub name: Option<Box<str>>,
    /// Query, mutation or subscription.
    pub kind: OperationKind,
    /// The normalised operation; its variables are those that coercion yields.
    pub operation: Operation,
    /// How to answer it.
    pub plan: Arc<Plan>,
    /// The plan with everything that execution can do ahead.
    pub executable: Arc<Executable>,
    /// Subscriptions: how to ask for the current state, where the field has one (`initial`).
    pub state: Option<Arc<StatePlan>>,
    /// Estimated memory in bytes; the cache is bounded by their sum.
    pub(crate) weight: u64,
    /// The plan is one of those that are let go last.
    pub(crate) is_slow: bool,
    /// How often it was found in the cache.
    pub(crate) uses: AtomicU32,
    /// Keeps what other texts share with this one findable.
    pub(crate) _planned: Arc<Planned>,
    /// Values of the variables that stand for literals, behind the client's.
    pub(crate) lifted: Vec<Option<Box<str>>>,
    pub(crate) variables: VariableTypes,
    pub(crate) introspection: Option<Introspection>,
    pub(crate) schema: Arc<SchemaFacts>,
}

impl Prepared {
    /// The values of the operation's variables from `text`, the request's JSON object (empty: none).
    ///
    /// # Errors
    /// [`PrepareError::Variables`] with one problem for each variable that does not fit.
    pub fn coerce(&self, text: &Bytes) -> Result<Variables, PrepareError> {
        let variables = self.variables.coerce(text, &self.schema.input_types);
        let mut variables = variables.map_err(PrepareError::Variables)?;
        if !self.lifted.is_empty() {
            // Without variables of the client there may be no values at all.
            variables.values.resize(self.variables.len(), None);
            variables.values.extend_from_slice(&self.lifted);
        }
        Ok(variables)
    }

    /// The part of `text`, a request's JSON object with variables, that the operation declares, in memory of its own.
    pub fn declared_variables(&self, text: &Bytes) -> Bytes {
        self.variables.declared(text)
    }

    /// The answer to the introspection fields of the root: JSON text of an object with their response
    /// keys, or `None` where the operation has no such fields.
    ///
    /// # Errors
    /// [`PrepareError::Internal`] for defects of the router.
    pub fn introspect(&self, variables: &Variables) -> Result<Option<Bytes>, PrepareError> {
        self.introspection
            .as_ref()
            .map(|it| it.answer(&self.schema, &self.operation, variables))
            .transpose()
    }
}
