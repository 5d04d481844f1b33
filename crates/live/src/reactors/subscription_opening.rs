//! Keeps what the log has about a subscription of a reactor's client from its message to its start or refusal, so that
//! it is written once. A worker adds it to its group, and the reactor decides, because it knows the connection's state.

use std::sync::Arc;

use clients::access_log::LoggedOperation;
use execute::GraphqlError;
use serving::operation_spans::OperationSpans;
use serving::subscription_count::SubscriptionCount;

use crate::access_records::{LoggedClient, OperationRecord, SubscriptionRecord};
use crate::client_context::KeptContext;
use crate::metrics::Transport;
use crate::operation_runner::OperationRunner;
use crate::websocket_span::WebSocketSpan;

/// The count, the lines in the access log and the span of a subscription that opens. Dropping it only ends the span:
/// the client has gone.
pub(super) struct SubscriptionOpening {
    /// `None` for a subscription that moves to another group: it was counted when it opened.
    pub(super) count: Option<SubscriptionCount>,
    /// The operation for the lines of the subscription; `None` if the access log is not written, and for a subscription
    /// that moves, which keeps its record.
    pub(super) logged: Option<LoggedOperation>,
    /// The client for the lines of the subscription; `None` if the access log is not written.
    pub(super) client: Option<LoggedClient>,
    /// The record for the line of an operation that fails; `None` if the line of its request shows the operation.
    pub(super) record: Option<OperationRecord>,
    /// Before `span`: the operation ends before its message.
    pub(super) spans: Option<Arc<OperationSpans>>,
    #[expect(dead_code, reason = "held for its drop")]
    pub(super) span: Option<WebSocketSpan>,
}

impl SubscriptionOpening {
    /// Notes that the subscription has opened. Returns its record for the access log, if it has none yet.
    pub(super) fn note_opened(
        self,
        runner: &OperationRunner,
        transport: Transport,
    ) -> Option<Box<SubscriptionRecord>> {
        if let Some(count) = self.count {
            count.count_opened();
        }
        runner.begin_subscription(transport, self.logged, self.client)
    }

    /// Notes that the subscription of a client with this context did not open because of this error.
    pub(super) fn note_failed(self, context: &KeptContext, error: &GraphqlError) {
        if let Some(count) = self.count {
            count.count_failed(error);
        }
        let errors = std::slice::from_ref(error);
        if let Some(spans) = &self.spans {
            spans.note_refusal(errors);
        }
        if let Some(record) = self.record {
            record.finish(context, Err(errors));
        }
    }
}
