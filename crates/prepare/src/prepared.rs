//! The input and the output of preparing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cost::OperationCost;
use execute::{Executable, StatePlan};
use plan::{Operation, OperationKind, Plan, Selection, SelectionSet, Variables};

use crate::PrepareError;
use crate::access::DeniedSelection;
use crate::coerce::VariableTypes;
use crate::field_use::FieldUse;
use crate::introspection::{Introspection, SchemaFacts};
use crate::live_directive::LiveQuery;
use crate::plan_cache::SharedPlan;

/// The request of any transport. Texts are shared with its buffer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperationRequest {
    /// The document. Empty if the client sends an id or a hash in its place.
    pub query: Bytes,
    /// The id of a persisted document (`documentId`). Shared, because requests are cloned from a cache.
    pub document_id: Option<Arc<str>>,
    /// The name of the operation to execute.
    pub operation_name: Option<Box<str>>,
    /// JSON text of the object with variable values; empty if there are none.
    pub variables: Bytes,
    /// JSON text of the request's `extensions`; empty if there are none.
    pub extensions: Bytes,
}

/// An operation that can be executed any number of times.
#[derive(Debug)]
pub struct Prepared {
    /// Identity of the normalised operation: equal for documents that differ only in spaces, commas,
    /// comments or names of fragments. Groups, sharing and metrics use it.
    pub operation_id: u128,
    /// The document of a subscription or a live query, which is prepared again for the next graph, without white space
    /// and comments. Empty for other operations.
    pub query: Bytes,
    /// The client's name of the operation.
    pub name: Option<Box<str>>,
    /// Query, mutation or subscription.
    pub kind: OperationKind,
    /// The directive of a live query; `None` for other operations.
    pub live: Option<LiveQuery>,
    /// The normalised operation; its variables are those that coercion yields.
    pub operation: Operation,
    /// The plan of its execution.
    pub plan: Arc<Plan>,
    /// The plan with everything that execution can compute in advance.
    pub executable: Arc<Executable>,
    /// For subscriptions: the plan that fetches the current state, if the field has one
    /// (`initial`).
    pub state: Option<Arc<StatePlan>>,
    /// The selections that the client may not use. They are null in the response.
    pub denied: Box<[DeniedSelection]>,
    /// The cost of the operation, if costs are estimated.
    pub cost: Option<Arc<OperationCost>>,
    /// The fields and arguments that it uses, if they are counted.
    pub field_use: Option<Arc<FieldUse>>,
    /// Estimated memory in bytes; the cache is bounded by their sum.
    pub(crate) weight: u64,
    /// True if the plan is one of those that are evicted last.
    pub(crate) is_slow: bool,
    /// Number of times that it was found in the cache, and the uses that it has from elsewhere.
    pub(crate) uses: AtomicU64,
    /// Keeps the shared plan in [`crate::plan_cache`].
    pub(crate) _planned: Arc<SharedPlan>,
    /// Values of the variables that replace literals, after those of the client.
    pub(crate) extracted: Vec<Option<Box<str>>>,
    pub(crate) variables: VariableTypes,
    pub(crate) introspection: Option<Introspection>,
    pub(crate) schema: Arc<SchemaFacts>,
}

/// Returns the nesting of the fields of `set`. The recursion is as deep as the operation, which is limited.
pub(crate) fn depth_of(set: &SelectionSet) -> u32 {
    let depths = set.items.iter().map(|item| match item {
        Selection::Field(field) => 1 + field.selection_set.as_ref().map_or(0, depth_of),
        Selection::Fragment(fragment) => depth_of(&fragment.selection_set),
    });
    depths.max().unwrap_or(0)
}

impl Prepared {
    /// True if the operation has introspection fields other than `__typename`.
    pub fn has_introspection(&self) -> bool {
        self.introspection.is_some()
    }

    /// True if the operation has a stream of results: subscriptions and live queries.
    pub fn has_stream(&self) -> bool {
        self.kind == OperationKind::Subscription || self.live.is_some()
    }

    /// Adds uses that were counted elsewhere: by the preparer of an earlier graph, or by another router.
    pub fn credit_uses(&self, uses: u64) {
        self.uses.fetch_add(uses, Ordering::Relaxed);
    }

    /// Returns the nesting of the operation's fields. Visits all of them.
    pub fn depth(&self) -> u32 {
        depth_of(&self.operation.selection_set)
    }

    /// The values of the operation's variables from `text`, the request's JSON object (empty: none).
    ///
    /// # Errors
    /// [`PrepareError::Variables`] with one problem for each variable that does not fit.
    pub fn coerce(&self, text: &Bytes) -> Result<Variables, PrepareError> {
        let variables = self.variables.coerce(text, &self.schema.input_types);
        let mut variables = variables.map_err(PrepareError::Variables)?;
        if !self.extracted.is_empty() {
            // Without variables of the client there may be no values at all.
            variables.values.resize(self.variables.len(), None);
            variables.values.extend_from_slice(&self.extracted);
        }
        Ok(variables)
    }

    /// The part of `text`, a request's JSON object with variables, that the operation declares, in memory of its own.
    pub fn declared_variables(&self, text: &Bytes) -> Bytes {
        self.variables.declared_members(text)
    }

    /// Executes the introspection fields of the root. Returns JSON text of an object with their
    /// response keys, or `None` if the operation has no such fields.
    ///
    /// # Errors
    /// [`PrepareError::Internal`] for defects of the router.
    pub fn introspect(&self, variables: &Variables) -> Result<Option<Bytes>, PrepareError> {
        self.introspection
            .as_ref()
            .map(|it| it.execute(&self.schema, &self.operation, variables))
            .transpose()
    }
}
