//! The errors of one execution, bounded, and the parts of the tree that they explain.

use std::borrow::Cow;

use astjson::NodeId;
use foldhash::{HashSet, HashSetExt};

use crate::bounds::{DENIED_PLACES_MAX, ERROR_MESSAGE_BYTES_MAX, ERRORS_MAX, FAILURE_PLACES_MAX};
use crate::error_path::PathExit;
use crate::{ErrorCode, GraphqlError, PathSegment};

/// Collects errors up to [`ERRORS_MAX`] and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct ErrorList {
    errors: Vec<RecordedError>,
    left_out: u32,
    /// Number of errors that repeat the failure of a fetch at one of its places.
    failure_places: usize,
    /// Number of places of failed fetches beyond [`FAILURE_PLACES_MAX`].
    failure_places_left_out: usize,
    /// Objects of a fetch that failed or reported errors: a null in or below them needs no error of
    /// its own.
    pub(crate) explained_objects: HashSet<NodeId>,
    /// The same for keys of the root.
    pub(crate) explained_keys: Vec<Box<str>>,
    /// The same for the whole response: the operation exceeded a bound.
    pub(crate) explained_all: bool,
    /// The places that the client may not use, up to [`DENIED_PLACES_MAX`].
    denied: Vec<Vec<PathSegment>>,
    /// The number of further such places.
    denied_left_out: usize,
}

/// The message about a place that the client may not use. It does not say what would be needed.
const DENIED: &str = "Unauthorized field or type";

#[derive(Debug)]
struct RecordedError {
    /// The index of the fetch that it came from.
    fetch: u32,
    error: GraphqlError,
    /// Set if it concerns one place only: the steps to that place from the end of its path.
    place: Option<TreePath>,
    /// True if it repeats the failure of its fetch at one of several places.
    is_repeated: bool,
}

/// Keys of the tree and indices from the end of an error's path to its place; empty if the response
/// has that place.
pub(crate) type TreePath = Vec<PathSegment>;

impl ErrorList {
    /// Adds an error of fetch `fetch`; a message that is too long is cut.
    pub(crate) fn push(&mut self, fetch: u32, error: GraphqlError) {
        self.record_error(fetch, error, None, false);
    }

    /// The number of further places of failed fetches that may have an error of their own.
    pub(crate) fn failure_places_left(&self) -> usize {
        FAILURE_PLACES_MAX.saturating_sub(self.failure_places)
    }

    /// Adds the failure of a whole fetch, at each of `paths`. `left_out` more places are only
    /// counted.
    pub(crate) fn push_failure(
        &mut self,
        fetch: u32,
        mut error: GraphqlError,
        paths: Vec<Vec<PathSegment>>,
        left_out: usize,
    ) {
        error.message = shorten_message(error.message);
        self.failure_places += paths.len();
        self.failure_places_left_out += left_out;
        for path in paths {
            self.record_error(fetch, error.clone().at(path), None, true);
        }
    }

    /// Adds an error that a subgraph reports for the place that `error.path` and then `place` lead
    /// to.
    pub(crate) fn push_placed(&mut self, fetch: u32, error: GraphqlError, place: TreePath) {
        self.record_error(fetch, error, Some(place), false);
    }

    fn record_error(
        &mut self,
        fetch: u32,
        mut error: GraphqlError,
        place: Option<TreePath>,
        is_repeated: bool,
    ) {
        if self.is_full() {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        error.message = shorten_message(error.message);
        self.errors.push(RecordedError { fetch, error, place, is_repeated });
    }

    /// Records a place that the client may not use.
    pub(crate) fn push_denied(&mut self, path: Vec<PathSegment>) {
        if self.denied.len() < DENIED_PLACES_MAX {
            self.denied.push(path);
        } else {
            self.denied_left_out += 1;
        }
    }

    /// Takes the errors about places that the client may not use. The last one gives the number of
    /// those that were left out, if any.
    pub(crate) fn take_denied(&mut self) -> Vec<GraphqlError> {
        let places = std::mem::take(&mut self.denied).into_iter();
        let mut errors: Vec<_> = places
            .map(|path| GraphqlError::new(ErrorCode::UnauthorizedFieldOrType, DENIED).at(path))
            .collect();
        if self.denied_left_out > 0 {
            let message = format!(
                "{} more places of this response are not allowed for this client.",
                self.denied_left_out
            );
            errors.push(GraphqlError::new(ErrorCode::UnauthorizedFieldOrType, message));
        }
        errors
    }

    /// Restricts all paths to the client's response: a path that leaves it ends at the last object
    /// inside, and an error for a place that has no effect on the response is removed.
    pub(crate) fn keep_inside(
        &mut self,
        outside: impl Fn((&[PathSegment], &[PathSegment])) -> Option<PathExit>,
    ) {
        // Places of one failure that are outside of the response may end at one place inside.
        let mut repeated: HashSet<(u32, Cow<'static, str>, Vec<PathSegment>)> = HashSet::new();
        self.errors.retain_mut(|RecordedError { fetch, error, place, is_repeated }| {
            let beyond = place.as_deref().unwrap_or_default();
            match outside((&error.path, beyond)) {
                None => {}
                Some(PathExit { is_aside: true, .. }) if place.is_some() => return false,
                Some(PathExit { inside, .. }) => error.path.truncate(inside),
            }
            !*is_repeated || repeated.insert((*fetch, error.message.clone(), error.path.clone()))
        });
    }

    /// Sorts the errors in the order of the plan: the order of arrival is random, and a response
    /// should not depend on it.
    pub(crate) fn sort(&mut self) {
        self.errors.sort_by_key(|recorded| recorded.fetch);
    }

    /// True if there are no errors so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty() && self.left_out == 0
    }

    /// True if further errors are only counted.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS_MAX
    }

    /// Counts an error that need not be built, because the list is full.
    pub(crate) fn count_left_out(&mut self) {
        self.left_out = self.left_out.saturating_add(1);
    }

    /// The errors in the list.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &GraphqlError> {
        self.errors.iter().map(|recorded| &recorded.error)
    }

    /// Marks keys of the root as explained.
    pub(crate) fn explain_keys(&mut self, keys: &[Box<str>]) {
        self.explained_keys.extend_from_slice(keys);
    }

    /// Returns all errors. The last one gives the number of those that were left out, if any.
    pub(crate) fn into_errors(self) -> Vec<GraphqlError> {
        let mut errors: Vec<_> = self.errors.into_iter().map(|recorded| recorded.error).collect();
        if self.failure_places_left_out > 0 {
            errors.push(GraphqlError::new(
                ErrorCode::SubgraphRequestFailed,
                format!(
                    "{} more places of this response failed for the reasons above.",
                    self.failure_places_left_out
                ),
            ));
        }
        if self.left_out > 0 {
            errors.push(GraphqlError::new(
                ErrorCode::OperationLimitExceeded,
                format!("{} more errors were left out.", self.left_out),
            ));
        }
        errors
    }
}

fn shorten_message(message: Cow<'static, str>) -> Cow<'static, str> {
    if message.len() <= ERROR_MESSAGE_BYTES_MAX {
        return message;
    }
    let mut end = ERROR_MESSAGE_BYTES_MAX;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}…", &message[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(message: impl Into<Cow<'static, str>>) -> GraphqlError {
        GraphqlError::new(ErrorCode::InvalidEvent, message)
    }

    #[test]
    fn errors_over_the_bound_are_counted() {
        let mut list = ErrorList::default();
        for _ in 0..ERRORS_MAX + 3 {
            list.push(0, error("x"));
        }
        list.count_left_out();
        let errors = list.into_errors();
        assert_eq!(errors.len(), ERRORS_MAX + 1);
        assert_eq!(errors[ERRORS_MAX].message, "4 more errors were left out.");
    }

    #[test]
    fn places_of_failures_over_the_bound_are_summarised_in_one_error() {
        let path = |index| vec![PathSegment::Key("a".into()), PathSegment::Index(index)];
        let mut list = ErrorList::default();
        assert_eq!(list.failure_places_left(), FAILURE_PLACES_MAX);
        let paths = (0..FAILURE_PLACES_MAX as u32).map(path).collect();
        list.push_failure(0, error("x"), paths, 900);
        assert_eq!(list.failure_places_left(), 0);
        list.push_failure(1, error("y"), vec![path(0)], 1);
        let errors = list.into_errors();
        assert_eq!(errors.len(), FAILURE_PLACES_MAX + 2);
        assert_eq!((&*errors[99].message, &errors[99].path), ("x", &path(99)));
        let last = errors.last().map(|it| &*it.message);
        assert_eq!(last, Some("901 more places of this response failed for the reasons above."));
    }

    #[test]
    fn places_that_end_at_the_same_place_of_the_response_have_one_error() {
        let mut list = ErrorList::default();
        let path = |index| vec![PathSegment::Key("a".into()), PathSegment::Index(index)];
        list.push_failure(0, error("x"), vec![path(0), path(1)], 0);
        list.push_failure(1, error("x"), vec![path(2)], 0);
        list.keep_inside(|_| Some(PathExit { inside: 1, is_aside: false }));
        assert_eq!(list.into_errors().len(), 2, "one for each fetch");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let mut list = ErrorList::default();
        list.push(0, error("x".repeat(ERROR_MESSAGE_BYTES_MAX - 1) + "éé"));
        let message = list.into_errors().remove(0).message;
        assert_eq!(message, "x".repeat(ERROR_MESSAGE_BYTES_MAX - 1) + "…");
    }

    #[test]
    fn errors_come_out_in_the_order_of_the_plan() {
        let mut list = ErrorList::default();
        for (fetch, message) in [(2, "c"), (0, "a"), (2, "d"), (1, "b")] {
            list.push(fetch, error(message));
        }
        list.sort();
        let messages: Vec<_> = list.into_errors().into_iter().map(|it| it.message).collect();
        assert_eq!(messages, ["a", "b", "c", "d"]);
    }
}
