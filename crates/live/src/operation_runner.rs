//! The execution of operations on live connections: queries and mutations run, subscriptions join a group of the hub.

use std::sync::Arc;

use clients::access_log::AccessLog;
use clients::authentication::{ClientAuthentication, Identity};
use clients::byte_budget::ByteAccount;
use clients::kept_operations::{ExistingAmounts, KeptOperation, KeptShare};
use clients::request_ids::RequestIds;
use execute::{ClientKey, ErrorCode, GraphqlError, Payload};
use hub::{Hub, SubscribeRequest, Subscriber, Subscription};
use serving::operation;
use serving::overload::work_ticket::WorkResult;
use serving::prepared_request::PreparedRequest;
use serving::serving::Serving;
use serving::subscription_migration;
use serving::trace::RequestTrace;
use telemetry::spans::Tracer;

use super::metrics::{Policy, SubscriptionMetrics, Transport};
use super::subscription_limits::SubscriptionLimits;

/// Runs the operations of live connections. There is one for each graph.
pub struct OperationRunner {
    /// The graph that serves.
    pub serving: Arc<Serving>,
    /// The groups of subscribers.
    pub hub: Arc<Hub>,
    /// The limits of subscriptions.
    pub limits: SubscriptionLimits,
    /// The counters of subscriptions.
    pub metrics: Arc<SubscriptionMetrics>,
    /// Verifies the tokens of `connection_init`, and counts those that expire.
    pub authentication: Arc<ClientAuthentication>,
    /// The access log, if it is written.
    pub access_log: Option<Arc<AccessLog>>,
    /// Gives the operations on WebSockets their ids, if requests have any.
    pub request_ids: Option<Arc<RequestIds>>,
    /// Records the traces of operations on WebSockets, if any are exported.
    pub tracer: Option<Arc<Tracer>>,
}

/// A live subscription with the memory that is counted for it.
pub(super) struct LiveSubscription {
    pub(super) subscription: Subscription,
    pub(super) kept: KeptOperation,
    #[expect(dead_code, reason = "held for its drop")]
    pub(super) share: Option<KeptShare>,
}

impl OperationRunner {
    /// Runs a query or mutation.
    ///
    /// # Errors
    /// Those of [`operation::run`].
    pub async fn run(
        &self,
        ready: PreparedRequest,
        trace: Option<RequestTrace>,
    ) -> Result<Payload, Vec<GraphqlError>> {
        operation::run(&self.serving, ready, trace).await
    }

    /// Joins the group of a prepared subscription. `held` are the amounts that the live subscriptions of the connection
    /// keep already. The caller counts the subscription: its connection may still refuse it.
    ///
    /// # Errors
    /// Those of [`hub::Hub::subscribe`], and if the operation's root field has no source in this graph.
    pub(super) async fn subscribe(
        &self,
        mut ready: PreparedRequest,
        outlet: Arc<dyn hub::Outlet>,
        (member, transport): (Subscriber, Transport),
        held: ExistingAmounts,
    ) -> Result<LiveSubscription, GraphqlError> {
        // Opening a subscription is work. Its events are not admitted again.
        let ticket = ready.ticket.take();
        let _memory = ready.memory.take();
        let mut kept = KeptOperation::new(&self.limits.kept_operation_bytes, kept_bytes(&ready));
        let subscribed =
            join_group(self, ready, outlet, (member, transport), (&mut kept, held)).await;
        if let Some(ticket) = ticket.filter(|_| subscribed.is_ok()) {
            ticket.set_result(WorkResult::Opened);
        }
        subscribed.map(|(subscription, share)| LiveSubscription { subscription, kept, share })
    }

    /// Opens the account of the responses that a connection of that client has not read.
    pub(super) fn open_account(&self, client: ClientKey) -> Arc<ByteAccount> {
        self.serving.limits.open_account(client)
    }

    /// Counts events that the configured policy for slow subscribers dropped.
    pub(super) fn count_dropped(&self, dropped: u64) {
        if dropped > 0 {
            let policy = Policy::of(self.limits.settings.policy);
            self.metrics.count_slow(policy, dropped);
        }
    }
}

/// Returns the bytes of text and variables that a live subscription keeps.
fn kept_bytes(ready: &PreparedRequest) -> usize {
    let values = ready.variables.values.iter().flatten();
    ready.prepared.query.len()
        + ready.variables_text.len()
        + values.map(|value| value.len()).sum::<usize>()
}

/// Returns the key under which the groups of a client count together: its identity or, if it is anonymous, the
/// connection, since many clients may share the address of one proxy. All streams of an HTTP/2 connection are one
/// client.
fn group_share_key(
    identity: &Identity,
    outlet: &Arc<dyn hub::Outlet>,
    member: Subscriber,
    held: &ExistingAmounts,
) -> ClientKey {
    identity.client_key().unwrap_or_else(|| match held {
        ExistingAmounts::Total(connection) => {
            ClientKey::of_identity(&connection.id().to_ne_bytes())
        }
        // The outlet of a reactor lives as long as the process, so its address is unique.
        ExistingAmounts::Amounts(_) => {
            let outlet = Arc::as_ptr(outlet).addr() as u64;
            let connection = [outlet, member.connection].map(u64::to_ne_bytes);
            ClientKey::of_identity(connection.as_flattened())
        }
    })
}

async fn join_group(
    runner: &OperationRunner,
    mut ready: PreparedRequest,
    outlet: Arc<dyn hub::Outlet>,
    (member, transport): (Subscriber, Transport),
    (kept, held): (&mut KeptOperation, ExistingAmounts),
) -> Result<(Subscription, Option<KeptShare>), GraphqlError> {
    let client = group_share_key(&ready.identity, &outlet, member, &held);
    let resume = ready.resume.take();
    let claims = subscription_migration::claims_of(&ready);
    let operation = subscription_migration::live_operation(ready, claims, runner.serving.time_max)?;
    subscription_migration::check_room(&operation)?;
    kept.set_topics(operation.source.topics().len());
    let kept_share = kept.check(&runner.limits.settings, &held)?;
    let most = runner.limits.settings.max_groups_per_client as usize;
    let share = runner.limits.group_shares.enter(client, &operation, most)?;
    let mut operation = subscription_migration::holding(operation, Some(Arc::new(share)));
    loop {
        let generation = operation.generation;
        let request = SubscribeRequest {
            operation: operation.clone(),
            outlet: Arc::clone(&outlet),
            member,
            transport: transport.id(),
            resume: resume.clone(),
        };
        match runner.hub.subscribe(request).await {
            Err(error) if error.code == ErrorCode::GraphReloaded => {
                // The graph is being replaced. The next one serves in a moment.
                let next = runner.serving.wait_for_graph_after(generation);
                let next = tokio::time::timeout(runner.serving.time_max, next).await;
                operation =
                    subscription_migration::renew(&next.map_err(|_| error)?, &operation).await?;
            }
            subscribed => return subscribed.map(|subscription| (subscription, kept_share)),
        }
    }
}
