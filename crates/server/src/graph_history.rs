//! The supergraphs that have served before, to which an operator can return.

use std::collections::VecDeque;
use std::sync::Arc;

use config::diagnostic::SourceText;
use serving::generation;

/// The maximum number of earlier supergraphs: some mistakes in a row. Each is a text of usually less than a megabyte.
const EARLIER_MAX: usize = 4;

/// The supergraph that serves, and those before it.
#[derive(Debug)]
pub(crate) struct GraphHistory {
    /// The earlier ones, the last one at the end.
    earlier: VecDeque<Arc<SourceText>>,
    current: Arc<SourceText>,
    /// The hash of the text at the source that an operator has left by a rollback. It is not loaded again on its own.
    left: Option<u64>,
}

impl GraphHistory {
    /// Creates the history of a router that serves its first supergraph.
    pub(crate) fn new(first: Arc<SourceText>) -> Self {
        Self { earlier: VecDeque::with_capacity(EARLIER_MAX), current: first, left: None }
    }

    /// Returns the number of earlier supergraphs.
    pub(crate) fn len(&self) -> usize {
        self.earlier.len()
    }

    /// Returns the hash of the text that a rollback has left.
    pub(crate) fn left(&self) -> Option<u64> {
        self.left
    }

    /// Notes that the source provides the supergraph that serves.
    pub(crate) fn on_unchanged(&mut self) {
        self.left = None;
    }

    /// Notes that the source's supergraph serves now.
    pub(crate) fn on_loaded(&mut self, text: Arc<SourceText>) {
        if self.earlier.len() == EARLIER_MAX {
            self.earlier.pop_front();
        }
        self.earlier.push_back(std::mem::replace(&mut self.current, text));
        self.left = None;
    }

    /// Returns the supergraph before the one that serves.
    pub(crate) fn before(&self) -> Option<&Arc<SourceText>> {
        self.earlier.back()
    }

    /// Notes that the supergraph before serves again.
    pub(crate) fn on_rolled_back(&mut self) {
        let Some(before) = self.earlier.pop_back() else { return };
        let left = std::mem::replace(&mut self.current, before);
        // After several rollbacks in a row, the source still has the text that the first one left.
        self.left.get_or_insert_with(|| generation::identity(&left.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Arc<SourceText> {
        Arc::new(SourceText { name: "supergraph.graphql".into(), text: text.into() })
    }

    fn before(history: &GraphHistory) -> Option<&str> {
        history.before().map(|it| &*it.text)
    }

    #[test]
    fn each_rollback_goes_one_supergraph_further_back() {
        let mut history = GraphHistory::new(text("1"));
        assert_eq!((before(&history), history.left()), (None, None));
        history.on_loaded(text("2"));
        history.on_loaded(text("3"));
        history.on_rolled_back();
        assert_eq!(
            (before(&history), history.left()),
            (Some("1"), Some(generation::identity("3")))
        );
        history.on_rolled_back();
        assert_eq!((before(&history), history.left()), (None, Some(generation::identity("3"))));
        history.on_rolled_back();
        assert_eq!(history.len(), 0);
        history.on_loaded(text("4"));
        assert_eq!((before(&history), history.left()), (Some("1"), None));
    }

    #[test]
    fn the_number_of_earlier_supergraphs_is_bounded() {
        let mut history = GraphHistory::new(text("0"));
        for number in 1..10 {
            history.on_loaded(text(&number.to_string()));
        }
        assert_eq!((history.len(), before(&history)), (EARLIER_MAX, Some("8")));
    }
}
