//! Changes between two API schemas, and which of them break given operations.
//!
//! - `change` has the data: [`SchemaChange`], [`ChangeCode`], [`Criticality`].
//! - `types`, `input_values` and `directives` find the changes; `annotations` compares descriptions and deprecations,
//!   `type_compatibility` has the rules of variance.
//! - `client_operations` reads the operations of clients, `usage` collects the elements that one of them uses, and
//!   `operation_check` relates both to the changes. `field_usage` relates what routers have counted to them.
//!
//! A change is [breaking](Criticality::Breaking) if a correct request may fail or a response may have a form that was
//! excluded before. Operations only lower that: what none of them uses is safe. The values of variables are not known,
//! so that all values of an enum and all fields of an input type count as used if a variable has the type. Planning and
//! serving are no matter of this module.

mod annotations;
mod change;
mod client_operations;
mod directives;
mod field_usage;
mod input_values;
mod operation_check;
mod type_compatibility;
mod types;
mod usage;

pub use change::{ChangeCode, ChangeUse, ClientUse, Criticality, SchemaChange};
pub use client_operations::{
    ClientOperation, OperationFile, OperationPlace, OperationProblem, read_operations,
};
pub use field_usage::{CountedUsage, UsageRules, check_usage};
pub use operation_check::{OperationsReport, UncheckedOperation, check_operations};
pub use usage::{DeprecatedUse, find_deprecated_uses};

use change::ChangeList;
use graph::ApiSchema;

/// Returns the changes from `old` to `new`, breaking ones first.
pub fn diff(old: &ApiSchema, new: &ApiSchema) -> Vec<SchemaChange> {
    let mut changes = ChangeList::default();
    types::compare_roots(&mut changes, &old.0, &new.0);
    types::compare(&mut changes, &old.0, &new.0);
    directives::compare(&mut changes, &old.0, &new.0);
    changes.into_sorted()
}
