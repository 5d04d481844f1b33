//! The checks of topics for `starling check --online`.

use std::time::Instant;

use events::{Kafka, Provider as _, TopicUsage, TopicUse, Verdict};

use test_kit::kafka::KafkaBroker;
use test_kit::programs::kafka_jars;

use crate::{Admin, as_user, connected, provider, settings, within};

async fn check(provider: &Kafka, topic: &str, usage: TopicUsage) -> Verdict {
    let wanted = TopicUse { topic: topic.into(), usage, durable: None };
    within("a verdict", provider.check(wanted)).await
}

/// A broker takes a moment to apply changed permissions.
async fn refused(provider: &Kafka, topic: &str, usage: TopicUsage) -> String {
    let asking = async {
        loop {
            if let Verdict::Fails(reason) = check(provider, topic, usage).await {
                break reason;
            }
        }
    };
    within("a refusal", asking).await
}

#[tokio::test]
async fn a_check_reports_whether_a_topic_exists_and_may_be_seen_and_read() {
    use TopicUsage::{Publish, Subscribe};
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    for topic in ["checked", "checked-events-hidden", "checked-hidden"] {
        admin.create(topic, 3).await;
    }
    let user = connected(as_user(broker)).await;
    let all = provider(broker).await;
    assert_eq!(check(&user, "checked", Subscribe).await, Verdict::Works);
    let unknown =
        "the topic exists; Kafka reports permission to write only when an event is published";
    assert_eq!(check(&user, "checked", Publish).await, Verdict::Unknown(unknown.into()));
    for usage in [Subscribe, Publish] {
        let missing = Verdict::Fails("there is no topic checked-missing".into());
        assert_eq!(check(&user, "checked-missing", usage).await, missing);
    }

    broker.hide_events("checked-events-hidden", true);
    let refusal = refused(&user, "checked-events-hidden", Subscribe).await;
    assert_eq!(refusal, "the broker does not allow the router to read it (READ)");
    broker.hide_topic("checked-hidden");
    for usage in [Subscribe, Publish] {
        let refusal = refused(&user, "checked-hidden", usage).await;
        let expected =
            "the broker does not allow the router to see it (DESCRIBE): checked-hidden: ";
        assert!(refusal.starts_with(expected), "{refusal}");
    }
    for topic in ["checked-events-hidden", "checked-hidden"] {
        assert_eq!(check(&all, topic, Subscribe).await, Verdict::Works, "{topic}");
    }
    let stats = user.stats();
    assert_eq!(stats.streams.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_check_of_an_unavailable_cluster_ends_with_the_reason() {
    if kafka_jars().is_none() {
        return;
    }
    // A port without a listener: it was free, and is not assigned to others while this socket holds it.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("bound").to_string();
    drop(socket);
    let away = Kafka::start(settings(address)).expect("the settings are right");
    let begun = Instant::now();
    let verdict = check(&away, "checked", TopicUsage::Subscribe).await;
    assert!(matches!(verdict, Verdict::Fails(_)), "{verdict:?}");
    assert!(begun.elapsed().as_secs() < 10);
}
