//! The combinations of variable values for which the conditions of an operation are checked.

use std::collections::BTreeSet;

use plan::{Condition, FetchKind, Operation, Plan, Selection, SelectionSet, VariableId, Variables};

/// The maximum number of variables for which all combinations are tried: sixteen executions.
const EXHAUSTIVE_VARIABLES_MAX: usize = 4;

/// The number of variables that are tried individually when there are more than [`EXHAUSTIVE_VARIABLES_MAX`]: all true,
/// all false, and each of these variables different from the rest.
const SINGLE_VARIABLES_MAX: usize = 8;

/// Returns the assignments of values to the variables that conditions read.
pub(crate) fn all_assignments(operation: &Operation, plan: &Plan) -> Vec<Variables> {
    let mut read = BTreeSet::new();
    collect_condition_variables(&operation.selection_set, &mut read);
    let shapes = plan.shape.objects.iter().flat_map(|object| &object.variants);
    let shown = shapes
        .flat_map(|variant| &variant.fields)
        .flat_map(|field| field.any_of.iter().chain(&field.unless));
    let sent = plan.fetches.iter().flat_map(|fetch| &fetch.any_of);
    let batches = plan.fetches.iter().flat_map(|fetch| match &fetch.kind {
        FetchKind::Entities { batches, .. } => &batches[..],
        _ => &[],
    });
    let asked = batches.flat_map(|batch| &batch.any_of);
    shown.chain(sent).chain(asked).for_each(|condition| collect_variables(condition, &mut read));
    let read: Vec<VariableId> = read.into_iter().collect();
    let mut chosen: Vec<BTreeSet<VariableId>> = Vec::new();
    if read.len() <= EXHAUSTIVE_VARIABLES_MAX {
        for bits in 0..1_usize << read.len() {
            let is_true = |(at, id): (usize, &VariableId)| (bits >> at & 1 == 1).then_some(*id);
            chosen.push(read.iter().enumerate().filter_map(is_true).collect());
        }
    } else {
        let every: BTreeSet<VariableId> = read.iter().copied().collect();
        for &id in read.iter().take(SINGLE_VARIABLES_MAX) {
            chosen.push(BTreeSet::from([id]));
            let mut others = every.clone();
            others.remove(&id);
            chosen.push(others);
        }
        chosen.push(every);
        chosen.push(BTreeSet::new());
    }
    let count = operation.variables.len() as u16;
    let values = |of: &BTreeSet<VariableId>| {
        let value = |id| Some(if of.contains(&VariableId(id)) { "true" } else { "false" }.into());
        Variables { values: (0..count).map(value).collect() }
    };
    chosen.iter().map(values).collect()
}

fn collect_condition_variables(set: &SelectionSet, read: &mut BTreeSet<VariableId>) {
    for item in &set.items {
        match item {
            Selection::Field(field) => {
                collect_variables(&field.condition, read);
                if let Some(below) = &field.selection_set {
                    collect_condition_variables(below, read);
                }
            }
            Selection::Fragment(fragment) => {
                collect_variables(&fragment.condition, read);
                collect_condition_variables(&fragment.selection_set, read);
            }
        }
    }
}

fn collect_variables(condition: &Condition, read: &mut BTreeSet<VariableId>) {
    read.extend(condition.all.iter().map(|(id, _)| *id));
}

/// True if one of the conditions holds, or if there are none.
pub(crate) fn any_holds(any_of: &[Condition], variables: &Variables) -> bool {
    any_of.is_empty() || any_of.iter().any(|condition| condition.holds(variables))
}
