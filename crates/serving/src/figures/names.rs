//! The names of operations in the tables, and the label of those without a row of their own.

use std::borrow::Cow;
use std::fmt::Write as _;

use plan::OperationKind;
use prepare::Prepared;

/// The maximum length of the name of an operation or a client in the metrics.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// The label of the row for all names without a row of their own.
pub const OTHER: &str = "other";

/// Returns the kind of an operation in the tables: all with a stream of results are subscriptions.
pub(super) fn kind_of(prepared: &Prepared) -> &'static str {
    match (prepared.has_stream(), prepared.kind) {
        (true, _) | (_, OperationKind::Subscription) => "subscription",
        (_, OperationKind::Query) => "query",
        (_, OperationKind::Mutation) => "mutation",
    }
}

/// Returns the name of an operation in the tables.
pub(super) fn name_of(prepared: &Prepared) -> Cow<'_, str> {
    match &prepared.name {
        Some(name) => shorten(name, NAME_BYTES_MAX).into(),
        None => String::from(anonymous_name(prepared.operation_id)).into(),
    }
}

/// Cuts a text to a length.
pub(super) fn shorten(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Returns the name of an anonymous operation: the first half of its id, which the access log and traces have in full.
/// No name of an operation has a colon.
pub(super) fn anonymous_name(id: u128) -> Box<str> {
    let mut name = String::from("anonymous:");
    // Writing to a string cannot fail.
    let _ = write!(name, "{:016x}", id >> 64);
    name.into()
}
