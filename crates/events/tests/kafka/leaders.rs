//! Two brokers, one of which is killed: its partitions get another leader.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use events::{KafkaSettings, Provider as _};
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::metadata::MetadataPartition;
use test_kit::kafka::KafkaBroker;
use test_kit::programs::kafka_jars;
use tokio::task::spawn_blocking;

use crate::{Admin, PATIENCE, Seen, connected, eventually, publish, settings, subscribe, wanted};

/// The settings by which a silent broker soon counts as dead; by default the others wait for nine seconds.
const SOON_DEAD: &str = "broker.heartbeat.interval.ms=300\nbroker.session.timeout.ms=3000";

/// The topic of this test.
const TOPIC: &str = "led";

impl Admin {
    /// Returns the node that leads each partition that has a leader.
    fn leaders(&self) -> Vec<i32> {
        let found = self.0.inner().fetch_metadata(Some(TOPIC), PATIENCE);
        let found = found.expect("a broker responds");
        let mut partitions: Vec<_> = found.topics()[0].partitions().iter().collect();
        partitions.sort_by_key(|partition| partition.id());
        partitions.into_iter().map(MetadataPartition::leader).collect()
    }

    fn brokers(&self) -> usize {
        let found = self.0.inner().fetch_metadata(None, PATIENCE);
        found.expect("a broker responds").brokers().len()
    }
}

#[tokio::test]
async fn events_continue_without_loss_or_repetition_when_the_leader_of_a_partition_is_killed() {
    // Checked here because only this thread has the name of the test.
    if kafka_jars().is_none() {
        return;
    }
    let pair = spawn_blocking(|| {
        let first = KafkaBroker::start_with(SOON_DEAD).expect("there are jars");
        let second = KafkaBroker::start_beside(&first, SOON_DEAD);
        (first, second)
    });
    let (first, mut second) = pair.await.expect("two brokers");
    let admin = Admin::of(&first);
    eventually("both brokers are there", || admin.brokers() == 2).await;
    let leaders: [&[i32]; 4] = [&[2, 1], &[1, 2], &[2, 1], &[1, 2]];
    let topic = [NewTopic::new(TOPIC, 4, TopicReplication::Variable(&leaders))];
    let made = admin.0.create_topics(&topic, &AdminOptions::new()).await;
    made.expect("the broker responds").remove(0).expect("the topic is made");
    eventually("each leads two", || admin.leaders() == [2, 1, 2, 1]).await;

    let brokers = vec![second.address(), first.address()];
    let publish_timeout = Duration::from_secs(50);
    let provider =
        connected(KafkaSettings { brokers, publish_timeout, ..settings(String::new()) }).await;
    let mut stream = subscribe(&provider, wanted(&[TOPIC])).await;
    let mut seen = Seen::default();
    let reading = async {
        seen.read(&mut stream, 1000).await;
        // Requests and responses on their way are lost with it.
        second.stop();
        seen.read(&mut stream, 5000).await;
    };
    tokio::join!(publish(&provider, TOPIC, 0..6000), reading);
    assert_eq!(seen.numbers, (0..6000).collect());
    assert_eq!(admin.leaders(), [1, 1, 1, 1]);
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
    assert!(provider.is_connected());
}
