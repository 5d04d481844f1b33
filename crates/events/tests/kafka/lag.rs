//! The lag of streams behind the events that the broker stores.

use std::time::Duration;

use events::{Kafka, KafkaSettings, Lag, Provider as _, Start};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use test_kit::kafka::KafkaBroker;

use crate::{
    Admin, PATIENCE, connected, event, eventually, expect_numbers, provider, publish, settings,
    subscribe, wanted,
};

const NOTHING_LEFT: Lag = Lag { events: Some(0), time: Some(Duration::ZERO) };

fn lag(provider: &Kafka, topic: &str) -> Lag {
    let topics = provider.stats().topics();
    let found = topics.iter().find(|(name, _)| **name == *topic);
    found.expect("the topic is counted").1.lag()
}

#[tokio::test]
async fn the_lag_of_a_slow_stream_is_known_until_it_has_read_everything() {
    let Some(broker) = KafkaBroker::shared() else { return };
    Admin::of(broker).create("lag", 3).await;
    let provider =
        connected(KafkaSettings { queue_events: 16, ..settings(broker.address()) }).await;
    let mut slow = subscribe(&provider, wanted(&["lag"])).await;
    let mut quick = subscribe(&provider, wanted(&["lag"])).await;
    assert_eq!(lag(&provider, "lag"), NOTHING_LEFT);
    let publishing = publish(&provider, "lag", 0..3000);
    tokio::join!(expect_numbers(&mut quick, 0..3000), publishing);
    // The slow stream has read only the events that fit into its queue.
    let is_behind = || lag(&provider, "lag").events.is_some_and(|events| events > 2900);
    eventually("the lag is known", is_behind).await;
    assert!(lag(&provider, "lag").time.is_some_and(|time| !time.is_zero()));
    let publishing = publish(&provider, "lag", 3000..4000);
    tokio::join!(expect_numbers(&mut quick, 3000..4000), publishing);
    let grows = || lag(&provider, "lag").events.is_some_and(|events| events > 3900);
    eventually("the lag grows", grows).await;
    expect_numbers(&mut slow, 0..4000).await;
    eventually("nothing is left", || lag(&provider, "lag") == NOTHING_LEFT).await;

    // A stream that begins in the past is behind from the beginning.
    let mut past = subscribe(&provider, wanted(&["lag"]).with_start(Start::All)).await;
    assert!(lag(&provider, "lag").events.is_some_and(|events| events > 3900));
    expect_numbers(&mut past, 0..4000).await;
    eventually("nothing is left again", || lag(&provider, "lag") == NOTHING_LEFT).await;
}

#[tokio::test]
async fn markers_of_transactions_are_not_counted_as_unread_events() {
    let Some(broker) = KafkaBroker::shared() else { return };
    let admin = Admin::of(broker);
    admin.create("transactions", 1).await;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker.address()).set("transactional.id", "lag");
    let producer: BaseProducer = config.create().expect("the settings are right");
    let publishing = tokio::task::spawn_blocking(move || {
        producer.init_transactions(PATIENCE).expect("the broker knows transactions");
        for is_committed in [true, false] {
            producer.begin_transaction().expect("it begins");
            for number in 0..5 {
                let payload = format!(r#"{{"number":{number}}}"#);
                let record = BaseRecord::<[u8], str>::to("transactions").payload(&payload);
                producer.send(record).map_err(|(error, _)| error).expect("there is room");
            }
            producer.flush(PATIENCE).expect("the broker takes them");
            let ended = if is_committed {
                producer.commit_transaction(PATIENCE)
            } else {
                producer.abort_transaction(PATIENCE)
            };
            ended.expect("it ends");
        }
    });
    publishing.await.expect("published");
    // The coordinator writes the last marker after the producer has its response.
    eventually("the markers are there", || admin.ends("transactions", 1) == [12]).await;
    let provider = provider(broker).await;
    let mut stream = subscribe(&provider, wanted(&["transactions"]).with_start(Start::All)).await;
    for _ in 0..5 {
        event(&mut stream).await;
    }
    // At first the reported lag was twelve.
    eventually("nothing is left", || lag(&provider, "transactions") == NOTHING_LEFT).await;
}
