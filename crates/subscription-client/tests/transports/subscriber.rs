//! The subscriber's side: a client with short times, and its streams as text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use events::{
    EventStream, Retry, SourceError, SourceMessage, SubgraphSubscription, SubscriptionClient,
};
use http::{HeaderName, HeaderValue};
use subscription_client::{
    ReconnectSettings, SubgraphSubscriptions, SubscriptionProtocol, SubscriptionSettings,
};

use crate::scripted_server::DEADLINE;

pub(crate) const QUERY: &str = r#"{"query":"subscription{n}","variables":{"a":1}}"#;

/// Returns the same settings with more attempts than a server needs that starts at once.
pub(crate) fn patient(settings: SubscriptionSettings) -> SubscriptionSettings {
    let reconnect = ReconnectSettings { attempts: 100_000, ..settings.reconnect };
    SubscriptionSettings { reconnect, ..settings }
}

/// Returns settings with short delays and few attempts.
pub(crate) fn settings(protocol: SubscriptionProtocol) -> SubscriptionSettings {
    let delays = Retry { initial: Duration::from_millis(1), max: Duration::from_millis(5) };
    SubscriptionSettings {
        protocol,
        reconnect: ReconnectSettings { delays, attempts: 3 },
        ..SubscriptionSettings::default()
    }
}

pub(crate) fn client(url: &str, settings: SubscriptionSettings) -> SubgraphSubscriptions {
    SubgraphSubscriptions::new("reviews", url, None, settings).expect("a valid URL")
}

pub(crate) async fn subscribe(client: &SubgraphSubscriptions) -> Result<EventStream, SourceError> {
    subscribe_with(client, QUERY, "").await
}

/// Subscribes with a forwarded token, which is the partition too.
pub(crate) async fn subscribe_with(
    client: &SubgraphSubscriptions,
    request: &str,
    token: &str,
) -> Result<EventStream, SourceError> {
    subscribe_in(client, token, request, token).await
}

/// Subscribes in a partition, with a forwarded token that is not a part of it, as the hub does for a new client.
pub(crate) async fn subscribe_in(
    client: &SubgraphSubscriptions,
    partition: &str,
    request: &str,
    token: &str,
) -> Result<EventStream, SourceError> {
    let wanted = subscription_in(partition, request, token);
    client.note_headers(&wanted);
    let subscribed = client.subscribe(Arc::new(wanted));
    tokio::time::timeout(DEADLINE, subscribed).await.expect("an outcome in time")
}

/// Moves a subscription to this client, with the token of its first client, as the hub does after a reload.
pub(crate) async fn resubscribe_in(
    client: &SubgraphSubscriptions,
    partition: &str,
    request: &str,
    token: &str,
) -> Result<EventStream, SourceError> {
    let wanted = subscription_in(partition, request, token);
    let subscribed = client.resubscribe(Arc::new(wanted));
    tokio::time::timeout(DEADLINE, subscribed).await.expect("an outcome in time")
}

/// Returns a subscription in a partition, with a forwarded token that is not a part of it.
pub(crate) fn subscription_in(partition: &str, request: &str, token: &str) -> SubgraphSubscription {
    let header = (HeaderName::from_static("x-token"), HeaderValue::from_str(token).expect("ASCII"));
    SubgraphSubscription {
        field: "Subscription.n".into(),
        request: request.to_owned().into(),
        headers: [header].into(),
        trace: Arc::default(),
        partition: partition.as_bytes().into(),
    }
}

/// Returns the same subscription as a part of a trace.
pub(crate) fn in_trace(
    subscription: SubgraphSubscription,
    traceparent: &'static str,
) -> SubgraphSubscription {
    let header = (HeaderName::from_static("traceparent"), HeaderValue::from_static(traceparent));
    SubgraphSubscription { trace: [header].into(), ..subscription }
}

/// Returns the next message as text: the payload, `gap`, or the end in parentheses.
pub(crate) async fn next(stream: &mut EventStream) -> String {
    let message = tokio::time::timeout(DEADLINE, stream.messages.recv()).await;
    match message.expect("a message in time") {
        Some(SourceMessage::Event(event)) => {
            assert_eq!(&*event.topic, "Subscription.n");
            String::from_utf8_lossy(&event.payload).into_owned()
        }
        Some(SourceMessage::Gap) => "gap".to_owned(),
        Some(SourceMessage::End(end)) => format!("({end})"),
        other => format!("{other:?}"),
    }
}

/// Returns all messages up to the end.
pub(crate) async fn collect(mut stream: EventStream) -> Vec<String> {
    let mut messages = vec![next(&mut stream).await];
    while !messages.last().is_some_and(|it| it.starts_with('(')) {
        messages.push(next(&mut stream).await);
    }
    messages
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Waits until a condition holds that no message announces, such as the value of a counter.
pub(crate) async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("{what}"));
}
