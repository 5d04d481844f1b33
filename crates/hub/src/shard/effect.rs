//! The actions that a shard requests from its task, [`super::task`].

use std::sync::Arc;

use bindings::Source;
use events::StreamRequest;
use futures_util::future::AbortRegistration;

use super::resolution::ResolutionWork;
use super::trigger_id::TriggerId;
use crate::{GroupId, Resolve};

/// An action that the shard requests from its task.
pub(crate) enum Effect {
    /// Opens a stream at the provider; the task then calls [`Shard::on_opened`](super::Shard::on_opened). `is_move` is
    /// true for groups that move there, see [`Source::open_for_move`].
    Open { trigger: TriggerId, source: Source, is_move: bool },
    /// Drops the stream, or the attempt to open it.
    Close { trigger: TriggerId },
    /// Opens a side reader's stream at the provider; the task then calls
    /// [`Shard::on_reader_opened`](super::Shard::on_reader_opened).
    OpenReader { trigger: TriggerId, stream_id: u64, source: Source, wanted: StreamRequest },
    /// Resumes a paused side reader, which has room again.
    ResumeReader { trigger: TriggerId, stream_id: u64 },
    /// Drops the side reader's stream, or the attempt to open it.
    CloseReader { trigger: TriggerId, stream_id: u64 },
    /// Resolves an event, several events, or a state; the task then calls
    /// [`Shard::on_resolved`](super::Shard::on_resolved), unless it is aborted.
    Resolve {
        group: GroupId,
        ticket: u64,
        work: ResolutionWork,
        resolve: Arc<dyn Resolve>,
        abort: AbortRegistration,
    },
}
