//! State that is nearly always empty and then holds no heap memory, so that idle connections stay small.

use std::collections::VecDeque;

/// A value that is allocated only while it differs from its default.
#[derive(Debug)]
pub(crate) struct LazyState<T>(Option<Box<T>>);

/// The contents of a [`LazyState`].
pub(crate) trait Idle: Default {
    /// True if the value need not be kept.
    fn is_idle(&self) -> bool;
}

impl<T> Default for LazyState<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Idle> LazyState<T> {
    /// Returns the value if it is allocated.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// Returns the value to add something, allocated if necessary.
    pub(crate) fn get_or_allocate(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }

    /// Removes something from the value. The memory is freed when the value becomes idle.
    pub(crate) fn take<R>(&mut self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let kept = self.0.as_mut()?;
        let taken = take(kept);
        if kept.is_idle() {
            self.0 = None;
        }
        taken
    }
}

/// Removes the first entry, and frees the queue's memory with the last one: an idle machine holds none.
pub(crate) fn pop_or_release<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let front = queue.pop_front();
    if queue.is_empty() && queue.capacity() > 0 {
        *queue = VecDeque::new();
    }
    front
}
