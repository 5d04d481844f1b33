//! The events and outputs of a protocol machine that wait to be polled: a structure of one pointer that holds no heap
//! memory while it is empty.

use std::collections::VecDeque;

use crate::Chunks;
use crate::connection::Output;
use crate::lazy_state::{Idle, LazyState};
use crate::websocket::CloseCode;

/// A protocol's events for the layer above and its outputs for the WebSocket below, each in order. Only the response to
/// the last ping is kept: a peer that floods pings gets one pong per read.
#[derive(Debug)]
pub(crate) struct PendingQueues<E>(LazyState<Queues<E>>);

#[derive(Debug)]
struct Queues<E> {
    events: VecDeque<E>,
    outputs: VecDeque<Output>,
    pong: Option<Chunks>,
}

impl<E> Default for Queues<E> {
    fn default() -> Self {
        Self { events: VecDeque::new(), outputs: VecDeque::new(), pong: None }
    }
}

impl<E> Idle for Queues<E> {
    fn is_idle(&self) -> bool {
        self.events.is_empty() && self.outputs.is_empty() && self.pong.is_none()
    }
}

impl<E> Default for PendingQueues<E> {
    fn default() -> Self {
        Self(LazyState::default())
    }
}

impl<E> PendingQueues<E> {
    pub(crate) fn push_event(&mut self, event: E) {
        self.0.get_or_allocate().events.push_back(event);
    }

    pub(crate) fn peek_event(&self) -> Option<&E> {
        self.0.get()?.events.front()
    }

    pub(crate) fn take_event(&mut self) -> Option<E> {
        self.0.take(|queues| queues.events.pop_front())
    }

    /// Removes an event that was not polled yet. Returns whether there was one.
    pub(crate) fn retract_event(&mut self, is_it: impl Fn(&E) -> bool) -> bool {
        let taken = self.0.take(|queues| {
            let at = queues.events.iter().position(is_it)?;
            queues.events.remove(at)
        });
        taken.is_some()
    }

    pub(crate) fn clear_events(&mut self) {
        self.0.take(|queues| {
            queues.events.clear();
            None::<()>
        });
    }

    pub(crate) fn push_text(&mut self, text: Chunks) {
        self.0.get_or_allocate().outputs.push_back(Output::Text(text));
    }

    pub(crate) fn set_pong(&mut self, pong: Chunks) {
        self.0.get_or_allocate().pong = Some(pong);
    }

    /// Queues a close. The caller must not add outputs for the WebSocket after it.
    pub(crate) fn push_close(&mut self, code: CloseCode, reason: Box<str>) {
        self.0.get_or_allocate().outputs.push_back(Output::Close(code, reason));
    }

    pub(crate) fn take_output(&mut self) -> Option<Output> {
        self.0.take(|queues| match queues.pong.take() {
            Some(pong) => Some(Output::Text(pong)),
            None => queues.outputs.pop_front(),
        })
    }
}

const _: () = assert!(size_of::<PendingQueues<[u64; 4]>>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_outputs_keep_their_order_and_leave_no_memory_behind() {
        let mut pending = PendingQueues::default();
        for round in 0..3 {
            (0..5).for_each(|item| pending.push_event((round, item)));
            pending.push_text(Chunks::whole("first"));
            pending.push_close(CloseCode::NORMAL, "done".into());
            pending.set_pong(Chunks::whole("dropped"));
            pending.set_pong(Chunks::whole("pong"));
            assert_eq!(pending.peek_event(), Some(&(round, 0)));
            let events: Vec<_> = std::iter::from_fn(|| pending.take_event()).collect();
            assert_eq!(events, (0..5).map(|item| (round, item)).collect::<Vec<_>>());
            let outputs: Vec<_> = std::iter::from_fn(|| pending.take_output()).collect();
            let text = |text| Output::Text(Chunks::whole(text));
            let close = Output::Close(CloseCode::NORMAL, "done".into());
            assert_eq!(outputs, [text("pong"), text("first"), close]);
            assert!(pending.0.get().is_none());
        }
        pending.push_event((8, 8));
        assert!(!pending.retract_event(|event| *event == (9, 9)));
        assert!(pending.retract_event(|event| *event == (8, 8)) && pending.0.get().is_none());
        pending.push_event((9, 9));
        pending.clear_events();
        assert!(pending.peek_event().is_none() && pending.take_event().is_none());
        assert!(pending.0.get().is_none());
    }
}
