//! Requirements of an operation (`@authenticated`, `@requiresScopes`, `@policy`): those that decide about it, and the
//! selections that a client may not use. Which requirements a client meets is decided elsewhere.

use std::sync::Arc;

use graph::{DeniedAccess, FieldId, InitialState, Requirement, RequirementSet, Supergraph, TypeId};
use plan::{
    Condition, Field, FieldTarget, Operation, OperationKind, Selection, SelectionSet, Variables,
};

/// The maximum number of denied selections of one operation that are listed. Further ones are denied all the same.
const DENIED_SELECTIONS_MAX: usize = 50;

/// A selection that the client may not use, or may not use on some types.
#[derive(Clone, PartialEq, Debug)]
pub struct DeniedSelection {
    /// The response keys that lead to it.
    pub path: Box<[Box<str>]>,
    /// The condition under which it is selected.
    pub condition: Condition,
}

/// The requirements of one operation with the decision about each. It outlives the graph, so that a subscription can
/// be moved to the next one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DecidedRequirements(pub Arc<[(Requirement, bool)]>);

impl DecidedRequirements {
    /// Returns the requirements of `relevant` that are not met. `None` if one of them was not decided.
    pub fn unmet_of(
        &self,
        graph: &Supergraph,
        relevant: &RequirementSet,
    ) -> Option<RequirementSet> {
        let mut unmet = RequirementSet::default();
        for index in relevant.iter() {
            let requirement = graph.access.requirements.get(usize::from(index))?;
            let (_, is_met) = self.0.iter().find(|(known, _)| known == requirement)?;
            if !is_met {
                unmet.insert(index);
            }
        }
        Some(unmet)
    }
}

/// The facts about an operation that access to it is decided by. They are known before it is planned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessFacts {
    /// The requirements that decide about the operation.
    pub requirements: RequirementSet,
    /// Query, mutation or subscription.
    pub kind: OperationKind,
    /// The name in its text.
    pub name: Option<Box<str>>,
    /// The id that the operation has for clients that meet all requirements, with all override labels off.
    pub operation_id: u128,
    /// The nesting of its fields.
    pub depth: u32,
}

/// Returns the requirements that decide about `operation`.
pub(crate) fn requirements_of(graph: &Supergraph, operation: &Operation) -> RequirementSet {
    let mut found = RequirementSet::default();
    if graph.access.is_empty() {
        return found;
    }
    let mut add = |field: FieldId| {
        let below = graph.field(field).ty.named();
        let all = graph.access.of_selection(field).iter().chain(graph.access.of_position(below));
        all.for_each(|requirement| found.insert(*requirement));
    };
    visit_fields(&operation.selection_set, &mut |field| {
        add(field);
        // The state of a subscription is read through another root field.
        if operation.kind == OperationKind::Subscription
            && Some(graph.field(field).parent) == graph.subscription
            && let Some(InitialState::Field(state)) = graph.initial_state(field)
        {
            add(state);
        }
    });
    found
}

fn visit_fields(set: &SelectionSet, visit: &mut impl FnMut(FieldId)) {
    for item in &set.items {
        match item {
            Selection::Field(field) => {
                if let FieldTarget::Field(id) = field.target {
                    visit(id);
                }
                field.selection_set.iter().for_each(|below| visit_fields(below, visit));
            }
            Selection::Fragment(fragment) => visit_fields(&fragment.selection_set, visit),
        }
    }
}

/// Returns the selections of `operation` that its client may not use, the first [`DENIED_SELECTIONS_MAX`] of them.
pub(crate) fn denied_selections(
    graph: &Supergraph,
    operation: &Operation,
) -> Box<[DeniedSelection]> {
    let denied = &operation.denied;
    if denied.is_empty() {
        return Box::default();
    }
    let mut lister = DenialLister { graph, denied, path: Vec::new(), found: Vec::new() };
    lister.list(&operation.selection_set, &Condition::default());
    lister.found.into()
}

struct DenialLister<'a> {
    graph: &'a Supergraph,
    denied: &'a DeniedAccess,
    path: Vec<Box<str>>,
    found: Vec<DeniedSelection>,
}

impl DenialLister<'_> {
    // The recursion is as deep as the operation, which is limited.
    fn list(&mut self, set: &SelectionSet, outer: &Condition) {
        for item in &set.items {
            if self.found.len() >= DENIED_SELECTIONS_MAX {
                return;
            }
            match item {
                Selection::Fragment(fragment) => {
                    let condition = both(outer, &fragment.condition);
                    if self.denied.has_type(fragment.on) {
                        self.add(condition);
                    } else {
                        self.list(&fragment.selection_set, &condition);
                    }
                }
                Selection::Field(field) => {
                    self.list_field(field, set.on, &both(outer, &field.condition));
                }
            }
        }
    }

    fn list_field(&mut self, field: &Field, on: TypeId, condition: &Condition) {
        let FieldTarget::Field(id) = field.target else { return };
        self.path.push(field.response_key.clone());
        let below = self.graph.field(id).ty.named();
        let is_denied = self.denied.has_field(id) || self.denied.has_type(on);
        if is_denied || self.denied.has_type_within(self.graph, below) {
            self.add(condition.clone());
        } else if let Some(set) = &field.selection_set {
            self.list(set, condition);
        }
        self.path.pop();
    }

    fn add(&mut self, condition: Condition) {
        self.found.push(DeniedSelection { path: self.path.as_slice().into(), condition });
    }
}

/// Returns the condition that holds if both hold.
fn both(outer: &Condition, inner: &Condition) -> Condition {
    let mut all = [outer.all.as_slice(), inner.all.as_slice()].concat();
    all.sort_unstable();
    all.dedup();
    Condition { all }
}

impl DeniedSelection {
    /// True if the selection applies with these variables.
    pub fn applies(&self, variables: &Variables) -> bool {
        self.condition.holds(variables)
    }
}
