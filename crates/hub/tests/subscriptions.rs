//! Tests of the hub as the server uses it: its own tasks, a provider, execution on a core, and outlets.

mod stage;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bindings::Source;
use events::{
    EventFuture, EventStream, Memory, MemorySettings, Message, Provider, ProviderStats,
    PublishError, SourceError, StreamRequest,
};
use execute::{ErrorCode, GraphqlError, LocalFuture, Payload};
use hub::{
    GroupKey, Hub, HubSettings, LiveOperation, Outlet, OutletCommand, Resolve, SubscribeRequest,
    Subscriber, TransportCounts, TransportId, TriggerEvent, TriggerState,
};
use stage::{Listener, OneWorker, with_hub, with_hub_and_cursors};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

/// A resolver with the payload `{"data":event}`.
struct Echo;

impl Resolve for Echo {
    fn resolve(self: Arc<Self>, event: TriggerEvent) -> LocalFuture<'static, Payload> {
        let text = format!("{{\"data\":{}}}", String::from_utf8_lossy(&event.event.payload));
        let splice = text.len() - 1;
        let payload = Payload {
            bytes: text.into(),
            splice,
            has_data: true,
            errors: 0,
            first_error: None,
            subgraph_requests: 0,
            headers: None,
            cost: None,
            caching: None,
            revision: None,
        };
        Box::pin(std::future::ready(payload))
    }
}

/// A resolver like [`Echo`] that says that it waits for nothing.
struct Local;

impl Resolve for Local {
    fn resolve(self: Arc<Self>, event: TriggerEvent) -> LocalFuture<'static, Payload> {
        Arc::new(Echo).resolve(event)
    }

    fn waits(&self) -> bool {
        false
    }
}

fn memory() -> Arc<dyn Provider> {
    Arc::new(Memory::new("default", MemorySettings::default()))
}

fn operation(source: Source, operation_id: u128, resolve: Arc<dyn Resolve>) -> LiveOperation {
    let group = GroupKey { operation_id, variables: Arc::default(), partition: Box::default() };
    let field = "Subscription.field".into();
    LiveOperation {
        generation: 1,
        source,
        field,
        bound_to: Box::default(),
        group,
        filter: None,
        resolve,
    }
}

fn request(
    provider: &Arc<dyn Provider>,
    listener: &Listener,
    connection: u64,
    resolve: Arc<dyn Resolve>,
) -> SubscribeRequest {
    SubscribeRequest {
        operation: operation(Source::new(Arc::clone(provider), vec!["a".into()]), 1, resolve),
        outlet: Arc::clone(&listener.outlet) as Arc<dyn Outlet>,
        member: Subscriber { connection, operation: 1 },
        transport: TransportId::new(0),
        resume: None,
    }
}

#[tokio::test]
async fn an_event_reaches_subscribers_through_one_resolution_and_one_broadcast() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (provider, mut listener) = (memory(), Listener::new());
        let first = hub.subscribe(request(&provider, &listener, 1, Arc::new(Echo))).await.unwrap();
        let second = hub.subscribe(request(&provider, &listener, 2, Arc::new(Echo))).await.unwrap();
        assert_eq!(first.group(), second.group());
        provider.publish(Message::new("a", "1")).await.unwrap();
        assert_eq!(
            [listener.next().await, listener.next().await, listener.next().await],
            ["join", "join", r#"{"data":1}"#]
        );
        let stats = hub.stats();
        assert_eq!((stats.triggers.load(Relaxed), stats.groups.load(Relaxed)), (1, 1));
        assert_eq!((stats.broadcasts.load(Relaxed), stats.deliveries.load(Relaxed)), (1, 2));
        assert_eq!(stats.resolutions.load(Relaxed), 1);

        let topology = hub.topology().await;
        assert_eq!(topology.len(), 1);
        assert_eq!((topology[0].state, topology[0].groups[0].members), (TriggerState::Live, 2));

        first.unsubscribe();
        assert_eq!(listener.next().await, "end: unsubscribed");
        provider.publish(Message::new("a", "2")).await.unwrap();
        assert_eq!(listener.next().await, r#"{"data":2}"#);
        drop(second);
        assert_eq!(listener.next().await, "end: unsubscribed");
        // The shard sends the command to the outlet before it replies.
        assert_eq!(hub.topology().await, []);
        assert_eq!(stats.subscribers.load(Relaxed), 0);
    })
    .await;
}

#[tokio::test]
async fn subscribers_that_come_together_do_not_depend_on_each_other() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (provider, listener) = (memory(), Listener::new());
        let subscribe =
            |connection| hub.subscribe(request(&provider, &listener, connection, Arc::new(Echo)));
        for is_dropped_later in [false, true] {
            // The first one passes all of them on, unless it goes before.
            let mut first = Box::pin(subscribe(1));
            assert!(futures_util::poll!(&mut first).is_pending());
            let mut others: Vec<_> = (2..200).map(|it| Box::pin(subscribe(it))).collect();
            for other in &mut others {
                assert!(futures_util::poll!(other).is_pending());
            }
            if is_dropped_later {
                assert!(futures_util::poll!(&mut first).is_pending());
            }
            drop(first);
            let joined = futures_util::future::try_join_all(others).await.unwrap();
            assert_eq!(hub.stats().subscribers.load(Relaxed), joined.len() as u64);
            drop(joined);
            // The shard handles what leaves before other commands, or right after them.
            while hub.stats().subscribers.load(Relaxed) > 0 {
                hub.topology().await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_topology_has_the_numbers_of_subscribers_by_transport() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (provider, mut listener) = (memory(), Listener::new());
        let subscribe = |connection, operation_id, transport| {
            let mut request = request(&provider, &listener, connection, Arc::new(Echo));
            request.operation.group.operation_id = operation_id;
            hub.subscribe(SubscribeRequest { transport: TransportId::new(transport), ..request })
        };
        let _first = subscribe(1, 1, 0).await.unwrap();
        let second = subscribe(2, 1, 0).await.unwrap();
        let _third = subscribe(3, 1, 5).await.unwrap();
        let _of_another_group = subscribe(4, 2, 5).await.unwrap();
        for _ in 0..4 {
            assert_eq!(listener.next().await, "join");
        }
        let transports = async || {
            let topology = hub.topology().await;
            let [trigger] = &topology[..] else { panic!("one trigger: {topology:?}") };
            let numbers = |counts: TransportCounts| [counts[0], counts[5]];
            let groups = trigger.groups.iter().map(|it| numbers(it.transports));
            (numbers(trigger.transports), groups.collect::<Vec<_>>())
        };
        assert_eq!(transports().await, ([2, 2], vec![[2, 1], [0, 1]]));
        second.unsubscribe();
        assert_eq!(listener.next().await, "end: unsubscribed");
        assert_eq!(transports().await, ([1, 2], vec![[1, 1], [0, 1]]));
    })
    .await;
}

#[tokio::test]
async fn a_subscriber_without_events_gets_a_position_in_time_and_resumes_from_it() {
    let settings = HubSettings {
        position_interval: Some(Duration::from_millis(5)),
        ring_events: 0,
        ..HubSettings::default()
    };
    with_hub_and_cursors(settings, async |hub: Arc<Hub>| {
        let (provider, mut listener) = (memory(), Listener::new());
        provider.publish(Message::new("a", "1")).await.unwrap();
        let first = hub.subscribe(request(&provider, &listener, 1, Arc::new(Echo))).await.unwrap();
        assert_eq!(listener.next().await, "join");
        let commands = listener.next().await;
        let cursor = commands.strip_prefix("position: ").expect("a position arrives").to_owned();
        first.unsubscribe();
        assert_eq!(listener.next().await, "end: unsubscribed");
        // No trigger with positions is left.
        assert_eq!(hub.topology().await, []);

        provider.publish(Message::new("a", "2")).await.unwrap();
        let resume = Some(cursor.as_str().into());
        let again = request(&provider, &listener, 2, Arc::new(Echo));
        let _again = hub.subscribe(SubscribeRequest { resume, ..again }).await.unwrap();
        assert_eq!(listener.next().await, "join");
        let payload = listener.next().await;
        assert!(payload.starts_with(r#"{"data":2,"#), "{payload}");
        assert_ne!(
            payload.split('"').nth_back(1),
            Some(cursor.as_str()),
            "the position is later now"
        );
        assert!(hub.stats().positions.load(Relaxed) >= 1);
    })
    .await;
}

#[tokio::test]
async fn a_thousand_events_arrive_in_order() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (provider, mut listener) = (memory(), Listener::new());
        let _held = hub.subscribe(request(&provider, &listener, 1, Arc::new(Echo))).await.unwrap();
        assert_eq!(listener.next().await, "join");
        for number in 0..1000 {
            provider.publish(Message::new("a", number.to_string())).await.unwrap();
            assert_eq!(listener.next().await, format!("{{\"data\":{number}}}"));
        }
    })
    .await;
}

#[tokio::test]
async fn an_event_that_waits_for_nothing_is_resolved_without_a_worker() {
    let (workers, mut jobs) = OneWorker::new();
    let hub = Hub::new(unhurried(), workers);
    let (provider, mut listener) = (memory(), Listener::new());
    let _held = hub.subscribe(request(&provider, &listener, 1, Arc::new(Local))).await.unwrap();
    assert_eq!(listener.next().await, "join");
    // More than a group has in flight.
    for number in 0..20 {
        provider.publish(Message::new("a", number.to_string())).await.unwrap();
    }
    for number in 0..20 {
        assert_eq!(listener.next().await, format!("{{\"data\":{number}}}"));
    }
    assert!(jobs.try_recv().is_err());
    assert_eq!(hub.stats().resolve_durations.read().count(), 20);
}

#[tokio::test]
async fn workers_share_the_resolutions_of_an_event_of_many_groups() {
    // Of a hundred groups the shard resolves 64, and 36 go to workers, up to 16 together.
    assert_eq!(resolve_for_groups(100, unhurried(), 64).await, 3);
}

#[tokio::test]
async fn a_shard_that_has_no_time_resolves_one_event_in_a_turn() {
    let hurried = HubSettings { own_resolving_max: Duration::ZERO, ..HubSettings::default() };
    assert_eq!(resolve_for_groups(33, hurried, 1).await, 2, "32 resolutions, up to 16 together");
}

/// Settings of a hub that resolves events itself however long that takes on this machine.
fn unhurried() -> HubSettings {
    HubSettings { own_resolving_max: Duration::from_secs(60), ..HubSettings::default() }
}

/// Publishes an event for a number of groups, of which the hub must resolve the number `own` itself. Returns the number
/// of jobs for workers.
async fn resolve_for_groups(groups: u64, settings: HubSettings, own: u64) -> usize {
    let (workers, mut jobs) = OneWorker::new();
    let hub = Hub::new(settings, workers);
    let (provider, mut listener) = (memory(), Listener::new());
    let mut held = Vec::new();
    for number in 0..groups {
        let source = Source::new(Arc::clone(&provider), vec!["a".into()]);
        let operation = operation(source, u128::from(number), Arc::new(Local));
        let of_first = request(&provider, &listener, number, Arc::new(Local));
        let request = SubscribeRequest { operation, ..of_first };
        held.push(hub.subscribe(request).await.expect("a subscription"));
        assert_eq!(listener.next().await, "join");
    }
    provider.publish(Message::new("a", "1")).await.expect("published");
    for _ in 0..own {
        assert_eq!(listener.next().await, r#"{"data":1}"#);
    }
    let mut batches = 0;
    while let Ok(job) = jobs.try_recv() {
        job().await;
        batches += 1;
    }
    for _ in own..groups {
        assert_eq!(listener.next().await, r#"{"data":1}"#);
    }
    assert_eq!(hub.stats().resolutions.load(Relaxed), groups);
    assert_eq!(hub.stats().resolving.load(Relaxed), 0);
    batches
}

#[tokio::test]
async fn an_event_that_waits_unexpectedly_is_resolved_by_a_worker() {
    struct WaitsUnexpectedly;
    impl Resolve for WaitsUnexpectedly {
        fn resolve(self: Arc<Self>, event: TriggerEvent) -> LocalFuture<'static, Payload> {
            Box::pin(async move {
                tokio::task::yield_now().await;
                Arc::new(Echo).resolve(event).await
            })
        }

        fn waits(&self) -> bool {
            false
        }
    }
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (provider, mut listener) = (memory(), Listener::new());
        let request = request(&provider, &listener, 1, Arc::new(WaitsUnexpectedly));
        let _held = hub.subscribe(request).await.unwrap();
        for event in ["1", "2"] {
            provider.publish(Message::new("a", event)).await.unwrap();
        }
        assert_eq!(listener.next().await, "join");
        assert_eq!(listener.next().await, r#"{"data":1}"#);
        assert_eq!(listener.next().await, r#"{"data":2}"#);
    })
    .await;
}

#[tokio::test]
async fn a_resolution_that_panics_costs_its_own_event_only() {
    struct Panics {
        waits: bool,
    }
    impl Resolve for Panics {
        fn resolve(self: Arc<Self>, event: TriggerEvent) -> LocalFuture<'static, Payload> {
            Box::pin(async move {
                assert_ne!(event.event.payload, "1", "a defect");
                Arc::new(Echo).resolve(event).await
            })
        }

        fn waits(&self) -> bool {
            self.waits
        }
    }
    for waits in [true, false] {
        with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
            let (provider, mut listener) = (memory(), Listener::new());
            let request = request(&provider, &listener, 1, Arc::new(Panics { waits }));
            let _held = hub.subscribe(request).await.unwrap();
            for event in ["1", "2"] {
                provider.publish(Message::new("a", event)).await.unwrap();
            }
            assert_eq!(listener.next().await, "join");
            assert!(listener.next().await.contains("INTERNAL_SERVER_ERROR"));
            assert_eq!(listener.next().await, r#"{"data":2}"#);
            assert_eq!(hub.stats().resolutions_failed.load(Relaxed), 1);
        })
        .await;
    }
}

#[tokio::test]
async fn a_resolution_without_subscribers_is_dropped_on_its_core() {
    /// Reports when it starts, and when it is dropped.
    struct Held(mpsc::UnboundedSender<&'static str>);
    struct SayDropped(mpsc::UnboundedSender<&'static str>);
    impl Drop for SayDropped {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }
    impl Resolve for Held {
        fn resolve(self: Arc<Self>, _event: TriggerEvent) -> LocalFuture<'static, Payload> {
            Box::pin(async move {
                let _guard = SayDropped(self.0.clone());
                let _ = self.0.send("started");
                std::future::pending().await
            })
        }
    }
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (provider, listener) = (memory(), Listener::new());
        let (said, mut says) = mpsc::unbounded_channel();
        let kept = hub.subscribe(request(&provider, &listener, 1, Arc::new(Held(said)))).await;
        provider.publish(Message::new("a", "1")).await.unwrap();
        assert_eq!(says.recv().await, Some("started"));
        drop(kept);
        assert_eq!(says.recv().await, Some("dropped"));
        assert_eq!(hub.stats().dropped_group_left.load(Relaxed), 1);
    })
    .await;
}

#[tokio::test]
async fn one_subscriber_too_many_is_refused_and_a_released_slot_is_free_again() {
    let settings = HubSettings { subscribers_max: 1, ..HubSettings::default() };
    with_hub(settings, async |hub: Arc<Hub>| {
        let (provider, mut listener) = (memory(), Listener::new());
        let first = hub.subscribe(request(&provider, &listener, 1, Arc::new(Echo))).await.unwrap();
        let second = hub.subscribe(request(&provider, &listener, 2, Arc::new(Echo))).await;
        assert_eq!(second.unwrap_err().code, ErrorCode::Overloaded);
        drop(first);
        assert_eq!([listener.next().await, listener.next().await], ["join", "end: unsubscribed"]);
        hub.subscribe(request(&provider, &listener, 3, Arc::new(Echo))).await.unwrap();
        assert_eq!(hub.stats().refused_overload.load(Relaxed), 1);
    })
    .await;
}

#[tokio::test]
async fn a_provider_that_never_responds_does_not_hold_up_others() {
    struct Mute(ProviderStats);
    impl Provider for Mute {
        fn name(&self) -> &str {
            "mute/default"
        }
        fn subscribe(&self, _: StreamRequest) -> EventFuture<'_, Result<EventStream, SourceError>> {
            Box::pin(std::future::pending())
        }
        fn publish(&self, _: Message) -> EventFuture<'_, Result<(), PublishError>> {
            Box::pin(std::future::pending())
        }
        fn is_connected(&self) -> bool {
            false
        }
        fn stats(&self) -> &ProviderStats {
            &self.0
        }
    }
    // There is one shard, so both share it.
    let settings = HubSettings { shards: 1, ..HubSettings::default() };
    with_hub(settings, async |hub: Arc<Hub>| {
        let mute: Arc<dyn Provider> = Arc::new(Mute(ProviderStats::default()));
        let (provider, mut listener) = (memory(), Listener::new());
        let waits = hub.subscribe(request(&mute, &listener, 1, Arc::new(Echo)));
        let live = hub.subscribe(request(&provider, &listener, 2, Arc::new(Echo)));
        tokio::pin!(waits);
        let _live = tokio::select! {
            biased;
            _ = &mut waits => panic!("the provider never responds"),
            live = live => live.unwrap(),
        };
        provider.publish(Message::new("a", "1")).await.unwrap();
        assert_eq!([listener.next().await, listener.next().await], ["join", r#"{"data":1}"#]);
    })
    .await;
}

#[tokio::test]
async fn a_provider_that_is_closed_ends_its_subscriptions() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (provider, mut listener) = (memory(), Listener::new());
        // The hub itself must not keep a closed provider: this is its last other owner.
        let (stop, stream) = mpsc::channel(1);
        drop(provider);
        let ends: Arc<dyn Provider> =
            Arc::new(OneStream(ProviderStats::default(), Some(stream).into()));
        let _held = hub.subscribe(request(&ends, &listener, 1, Arc::new(Echo))).await.unwrap();
        assert_eq!(listener.next().await, "join");
        drop(stop);
        assert_eq!(listener.next().await, "end: PROVIDER_UNAVAILABLE");
    })
    .await;

    struct OneStream(
        ProviderStats,
        std::sync::Mutex<Option<mpsc::Receiver<events::SourceMessage>>>,
    );
    impl Provider for OneStream {
        fn name(&self) -> &str {
            "test/one"
        }
        fn subscribe(&self, _: StreamRequest) -> EventFuture<'_, Result<EventStream, SourceError>> {
            let messages = self.1.lock().unwrap().take().expect("one stream");
            Box::pin(std::future::ready(Ok(EventStream { messages })))
        }
        fn publish(&self, _: Message) -> EventFuture<'_, Result<(), PublishError>> {
            Box::pin(std::future::ready(Ok(())))
        }
        fn is_connected(&self) -> bool {
            true
        }
        fn stats(&self) -> &ProviderStats {
            &self.0
        }
    }
}

#[tokio::test]
async fn all_outlets_have_their_commands_when_a_reload_or_a_shutdown_returns() {
    with_hub(HubSettings::default(), async |hub: Arc<Hub>| {
        let (provider, mut listener) = (memory(), Listener::new());
        let gone = hub.subscribe(request(&provider, &listener, 1, Arc::new(Echo))).await.unwrap();
        let mut other = request(&provider, &listener, 2, Arc::new(Echo));
        other.operation.group.operation_id = 2;
        let stays = hub.subscribe(other.clone()).await.unwrap();
        assert_eq!([listener.next().await, listener.next().await], ["join", "join"]);
        let old = hub.operations_before(2).await;
        assert_eq!(old.len(), 2);
        let reason = GraphqlError::new(ErrorCode::GraphReloaded, "The field is gone.");
        let renewed = LiveOperation { generation: 2, ..other.operation.clone() };
        let renewals = vec![(gone.group(), Err(Box::new(reason))), (stays.group(), Ok(renewed))];
        assert!(hub.advance(2, renewals).await.is_empty());
        assert_eq!(listener.next().await, "end: GRAPH_RELOADED");
        let late = hub.subscribe(other).await;
        assert_eq!(late.unwrap_err().code, ErrorCode::GraphReloaded, "its graph is gone");
        provider.publish(Message::new("a", "1")).await.unwrap();
        assert_eq!(listener.next().await, r#"{"data":1}"#);
        drop(gone);
        hub.shutdown().await;
        assert_eq!(listener.next().await, "end: SHUTTING_DOWN");
        assert!(listener.commands.try_recv().is_err(), "no command follows");
        let late = hub.subscribe(request(&provider, &listener, 3, Arc::new(Echo))).await;
        assert_eq!(late.unwrap_err().code, ErrorCode::ShuttingDown);
    })
    .await;
}

/// Counts the subscribers of each group, from several shards at once.
#[derive(Default)]
struct Counting(std::sync::Mutex<std::collections::HashMap<(hub::GroupId, u64), Counts>>);

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
struct Counts {
    joins: u32,
    ends: u32,
}

impl Outlet for Counting {
    fn send(&self, command: OutletCommand) {
        let mut members = self.0.lock().expect("a broken guarantee ends the test");
        match command {
            OutletCommand::Join { group, member } => {
                members.entry((group, member.connection)).or_default().joins += 1;
            }
            OutletCommand::Deliver { group, .. } => {
                let is_live = |counts: &Counts| counts.joins > counts.ends;
                assert!(
                    members.iter().any(|(key, counts)| key.0 == group && is_live(counts)),
                    "only groups with subscribers here get results"
                );
            }
            OutletCommand::Leave { group, member } => {
                members.entry((group, member.connection)).or_default().ends += 1;
            }
            OutletCommand::Merge { .. } | OutletCommand::Position { .. } => {
                panic!("there are no cursors")
            }
            OutletCommand::End { group, .. } => {
                for ((of, _), counts) in members.iter_mut() {
                    counts.ends += u32::from(*of == group && counts.joins > counts.ends);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_that_come_and_go_on_many_threads_leave_nothing_behind() {
    const TASKS: u64 = 8;
    const EACH: u64 = 150;
    let (cores, mut jobs) = OneWorker::new();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async move {
            while let Some(job) = jobs.recv().await {
                tokio::task::spawn_local(job());
            }
        });
    });
    let hub = Arc::new(Hub::new(HubSettings::default(), cores));
    let (provider, outlet) = (memory(), Arc::new(Counting::default()));
    let comers = (0..TASKS).map(|task| {
        let (hub, provider, outlet) =
            (Arc::clone(&hub), Arc::clone(&provider), Arc::clone(&outlet));
        tokio::spawn(async move {
            let mut kept = std::collections::VecDeque::new();
            for number in 0..EACH {
                let topic = (number % 7).to_string();
                let source = Source::new(Arc::clone(&provider), vec![topic.as_str().into()]);
                let request = SubscribeRequest {
                    operation: operation(source, u128::from(number % 3), Arc::new(Echo)),
                    outlet: Arc::clone(&outlet) as Arc<dyn Outlet>,
                    member: Subscriber { connection: task * EACH + number, operation: 1 },
                    transport: TransportId::new((number % 2) as u8),
                    resume: None,
                };
                kept.push_back(hub.subscribe(request).await.expect("the hub is open"));
                provider
                    .publish(Message::new(&*topic, number.to_string()))
                    .await
                    .expect("published");
                if kept.len() > 5 {
                    kept.pop_front();
                }
            }
        })
    });
    for subscriber in futures_util::future::join_all(comers).await {
        subscriber.expect("no guarantee was broken");
    }
    hub.shutdown().await;
    assert_eq!(hub.topology().await, []);
    let stats = hub.stats();
    assert_eq!(
        [&stats.triggers, &stats.groups, &stats.subscribers].map(|it| it.load(Relaxed)),
        [0, 0, 0]
    );
    let members = outlet.0.lock().unwrap();
    assert_eq!(members.len() as u64, TASKS * EACH, "all subscribers joined");
    let once = Counts { joins: 1, ends: 1 };
    assert!(members.values().all(|counts| *counts == once), "all subscribers ended once");
}

#[tokio::test]
async fn many_events_are_handled_in_turns_and_in_order() {
    let settings = HubSettings { shards: 1, group_waiting: 10_000, ..HubSettings::default() };
    with_hub(settings, async |hub: Arc<Hub>| {
        let settings = MemorySettings { queue_events: 10_000, ..MemorySettings::default() };
        let provider: Arc<dyn Provider> = Arc::new(Memory::new("default", settings));
        let mut listener = Listener::new();
        let mut kept = Vec::new();
        // There are so many groups that a turn ends after a few events.
        for operation in 0..1000 {
            let mut request = request(&provider, &listener, operation, Arc::new(Echo));
            request.operation.group.operation_id = operation.into();
            kept.push(hub.subscribe(request).await.unwrap());
            assert_eq!(listener.next().await, "join");
        }
        for number in 0..20 {
            provider.publish(Message::new("a", number.to_string())).await.unwrap();
        }
        let mut next = std::collections::HashMap::new();
        for _ in 0..20 * kept.len() {
            let command = listener.commands.recv().await.unwrap();
            let OutletCommand::Deliver { group, payload, .. } = command else {
                panic!("{command:?}")
            };
            let number: &mut u32 = next.entry(group).or_default();
            assert_eq!(payload.bytes, format!("{{\"data\":{number}}}"));
            *number += 1;
        }
        assert!(listener.commands.try_recv().is_err());
    })
    .await;
}
