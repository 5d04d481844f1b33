//! What goes in and what comes out of preparing.

use std::sync::Arc;

use bytes::Bytes;
use plan::{Operation, OperationKind, Plan};

/// What any transport hands in. Texts are borrowed from its buffer or shared with it.
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
    /// The client's name for it.
    pub name: Option<Box<str>>,
    /// Query, mutation or subscription.
    pub kind: OperationKind,
    /// The normalised operation; its variables are those that coercion yields.
    pub operation: Operation,
    /// How to answer it.
    pub plan: Arc<Plan>,
}
