//! The errors of one execution, bounded, and which parts of the tree they account for.

use std::borrow::Cow;

use astjson::NodeId;
use foldhash::HashSet;

use crate::bounds::{ERROR_MESSAGE_BYTES_MAX, ERRORS_MAX};
use crate::{ErrorCode, GraphqlError};

/// Collects errors up to [`ERRORS_MAX`] and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct ErrorList {
    errors: Vec<GraphqlError>,
    left_out: u32,
    /// Objects that a failed or complaining fetch was about: a null in or below them needs no
    /// error of its own.
    pub(crate) explained_objects: HashSet<NodeId>,
    /// The same for keys of the root.
    pub(crate) explained_keys: Vec<Box<str>>,
}

impl ErrorList {
    /// Adds an error; a message that is too long is cut.
    pub(crate) fn push(&mut self, mut error: GraphqlError) {
        if self.is_full() {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        error.message = shortened(error.message);
        self.errors.push(error);
    }

    /// From here on errors are only counted.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS_MAX
    }

    /// Counts an error that nobody needs to build, because the list is full.
    pub(crate) fn count_left_out(&mut self) {
        self.left_out = self.left_out.saturating_add(1);
    }

    /// Those kept, in the order they came.
    pub(crate) fn kept(&self) -> &[GraphqlError] {
        &self.errors
    }

    /// Marks keys of the root as accounted for.
    pub(crate) fn explain_keys(&mut self, keys: &[Box<str>]) {
        self.explained_keys.extend_from_slice(keys);
    }

    /// All errors, the last one saying how many were left out, if any were.
    pub(crate) fn into_errors(mut self) -> Vec<GraphqlError> {
        if self.left_out > 0 {
            self.errors.push(GraphqlError::new(
                ErrorCode::OperationLimitExceeded,
                format!("{} more errors were left out", self.left_out),
            ));
        }
        self.errors
    }
}

fn shortened(message: Cow<'static, str>) -> Cow<'static, str> {
    if message.len() <= ERROR_MESSAGE_BYTES_MAX {
        return message;
    }
    let mut end = ERROR_MESSAGE_BYTES_MAX;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}…", &message[..end]))
}
