//! Changes and operations: which operations a change affects, and changes that affect none.

use apollo_compiler::{ExecutableDocument, validation::Valid};
use graph::ApiSchema;

use super::{
    change::{ChangeCode, ChangeList, Criticality, Exposure, SchemaChange, breaking},
    client_operations::ClientOperation,
    usage::OperationUsage,
};

/// Changes in the light of operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationsReport {
    /// The changes, breaking ones first. What no operation uses is safe.
    pub changes: Vec<SchemaChange>,
    /// The number of operations that fit the old schema.
    pub checked: usize,
    /// The operations that did not fit the old schema already.
    pub unchecked: Vec<UncheckedOperation>,
}

/// An operation that is not valid against the old schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UncheckedOperation {
    /// The label of the operation.
    pub label: String,
    /// The first error.
    pub message: String,
}

/// Finds the operations that each change affects, and lowers changes that affect none to safe.
///
/// An operation that becomes invalid without a single change to blame is a change of its own,
/// [`ChangeCode::OperationInvalid`]: fields that could be merged, for example, cannot be merged any more.
pub fn check_operations(
    old: &ApiSchema,
    new: &ApiSchema,
    changes: Vec<SchemaChange>,
    operations: &[ClientOperation],
) -> OperationsReport {
    let mut list = ChangeList(changes);
    let implementers = old.0.implementers_map();
    let mut unchecked = Vec::new();
    let mut broken = ChangeList::default();
    for operation in operations {
        let document = match validate(old, operation) {
            Ok(document) => document,
            Err(message) => {
                unchecked.push(UncheckedOperation { label: operation.label.clone(), message });
                continue;
            }
        };
        let mut is_broken = false;
        for own in document.operations.iter() {
            let usage = OperationUsage::collect(&old.0, &implementers, &document, own);
            for change in list.0.iter_mut().filter(|it| usage.has(&it.exposure)) {
                change.operations.push(operation.label.clone());
                is_broken |= change.criticality == Criticality::Breaking;
            }
        }
        if !is_broken && let Err(message) = validate(new, operation) {
            broken.add(
                ChangeCode::OperationInvalid,
                operation.label.clone(),
                format!("the operation is no longer valid: {message}"),
                breaking("the operation is refused"),
                Exposure::Nothing,
            );
        }
    }
    let checked = operations.len() - unchecked.len();
    if checked > 0 {
        list.0.iter_mut().for_each(|it| lower_unused(it, checked));
    }
    for mut change in broken.0 {
        change.operations.push(change.path.clone());
        list.0.push(change);
    }
    OperationsReport { changes: list.into_sorted(), checked, unchecked }
}

/// Lowers a change that affects no operation.
fn lower_unused(change: &mut SchemaChange, checked: usize) {
    if change.operations.is_empty() && change.criticality != Criticality::Safe {
        change.criticality = Criticality::Safe;
        change.reason = match checked {
            1 => "not used by the operation".into(),
            _ => format!("not used by the {checked} operations").into(),
        };
    }
}

/// Parses and validates an operation. The error is its first message.
fn validate(
    api: &ApiSchema,
    operation: &ClientOperation,
) -> Result<Valid<ExecutableDocument>, String> {
    ExecutableDocument::parse_and_validate(&api.0, operation.text.as_str(), "operation").map_err(
        |failed| {
            let first = failed.errors.iter().next().map(|it| it.error.to_string());
            first.unwrap_or_default()
        },
    )
}
