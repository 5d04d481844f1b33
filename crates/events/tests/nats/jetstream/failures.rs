//! Brokers, connections, streams and subscribers that fail or are slow: nothing is lost without a gap.

use super::*;

#[tokio::test]
async fn a_broker_that_is_killed_or_stopped_and_started_loses_nothing() {
    let Some(mut broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let mut ephemeral = open(&provider, wanted(&["orders.>"], Start::New)).await;
    let mut durable = open(&provider, with_consumer("feed")).await;
    let mut published = 0;
    let mut read = 0;
    for kill in [true, false, true] {
        broker.publish(published + 1..=published + 1000).await;
        published += 1000;
        // The rest is on its way when the broker ends.
        expect_all(&mut ephemeral, read + 1..=published - 500).await;
        expect_all(&mut durable, read + 1..=published - 500).await;
        read = published - 500;
        broker = broker.restart(kill).await;
        broker.publish(published + 1..=published + 1000).await;
        published += 1000;
    }
    expect_all(&mut ephemeral, read + 1..=published).await;
    expect_all(&mut durable, read + 1..=published).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
    assert!(provider.stats().reconnects.load(Relaxed) >= 3);
}

#[tokio::test]
async fn a_connection_that_is_cut_loses_nothing_and_repeats_nothing() {
    let Some(broker) = Broker::start().await else { return };
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], broker.server.port()));
    let (proxy, cut) = cuttable_proxy(address).await;
    let provider = Nats::start(settings(&format!("nats://{proxy}"))).expect("settings");
    let mut ephemeral = open(&provider, wanted(&["orders.>"], Start::New)).await;
    let mut durable = open(&provider, with_consumer("feed")).await;
    for round in 0..10 {
        let first = round * 500 + 1;
        broker.publish(first..=first + 249).await;
        expect_all(&mut ephemeral, first..=first + 99).await;
        cut.notify_waiters();
        broker.publish(first + 250..=first + 499).await;
        expect_all(&mut ephemeral, first + 100..=first + 499).await;
    }
    expect_all(&mut durable, 1..=5000).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
    assert!(provider.stats().reconnects.load(Relaxed) >= 1);
}

#[tokio::test]
async fn a_stream_that_is_deleted_ends_and_a_consumer_that_is_deleted_is_made_again() {
    let Some(broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let mut ephemeral = open(&provider, wanted(&["orders.>"], Start::New)).await;
    let mut durable = open(&provider, with_consumer("feed")).await;
    for round in 0..5 {
        let first = round * 400 + 1;
        broker.publish(first..=first + 199).await;
        expect_all(&mut ephemeral, first..=first + 99).await;
        let stream = broker.admin.get_stream("ORDERS").await.expect("the stream");
        for consumer in broker.consumers().await {
            // A server that is writing the consumer's state at the same time fails to remove its folder (2.9).
            if let Err(error) = stream.delete_consumer(&consumer.name).await {
                assert!(error.to_string().contains("directory not empty"), "deleted: {error}");
            }
        }
        broker.publish(first + 200..=first + 399).await;
        expect_all(&mut ephemeral, first + 100..=first + 399).await;
    }
    expect_all(&mut durable, 1..=2000).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);

    // A consumer that is being made lets the server fail to remove the folder (2.9), so this is repeated.
    while let Err(error) = broker.admin.delete_stream("ORDERS").await {
        let is_busy = error.to_string().contains("directory not empty");
        assert!(is_busy, "deleted: {error}");
    }
    for stream in [&mut ephemeral, &mut durable] {
        let end = loop {
            match next(stream).await {
                passed if passed.starts_with("passed") => {}
                end => break end,
            }
        };
        assert_eq!(end, r#"stream "ORDERS" of JetStream was deleted"#);
    }
}

#[tokio::test]
async fn a_stream_that_is_created_again_while_no_client_is_connected_is_another_one() {
    let Some(broker) = Broker::start().await else { return };
    let provider = broker.provider();
    broker.publish(1..=10).await;
    let mut stream = open(&provider, wanted(&["orders.>"], Start::All)).await;
    expect_all(&mut stream, 1..=10).await;
    let Broker { folder, server, admin: _ } = broker;
    let port = server.kill();
    // Another store: its stream has the same name and other events.
    drop(folder);
    let folder = tempfile::tempdir().expect("a folder");
    let other_port = NatsServer::start_with_jetstream(-1, folder.path()).expect("it is installed");
    let admin = admin(&other_port).await;
    admin.create_stream(stream_config()).await.expect("a stream");
    other_port.stop();
    let _server = restart_with_jetstream(port, &folder);
    assert_eq!(next(&mut stream).await, r#"stream "ORDERS" of JetStream was deleted"#);
}

#[tokio::test]
async fn a_suspended_reader_leaves_events_at_the_broker_and_loses_none() {
    let Some(broker) = Broker::start().await else { return };
    let provider = Nats::start(NatsSettings { queue_events: 64, ..settings(&broker.server.url()) })
        .expect("settings");
    let mut slow = open(&provider, wanted(&["orders.>"], Start::New)).await;
    broker.publish(1..=5000).await;
    let left = broker.consumers().await.first().map(|consumer| consumer.num_pending);
    assert!(left.is_some_and(|left| left > 4500), "{left:?} are left at the broker");
    let lag = || match provider.stats().topics().as_slice() {
        [(name, topic)] if &**name == "orders.>" => topic.lag(),
        topics => panic!("one topic: {topics:?}"),
    };
    // The subscriber does not read, so the provider polls the broker.
    eventually("the lag is known", || lag().events.is_some_and(|events| events > 4500)).await;
    assert!(lag().time.is_some_and(|time| !time.is_zero()), "{:?}", lag());
    expect_all(&mut slow, 1..=5000).await;
    let caught_up = events::Lag { events: Some(0), time: Some(Duration::ZERO) };
    eventually("nothing is left", || lag() == caught_up).await;
    assert_eq!(provider.stats().topics()[0].1.received.load(Relaxed), 5000);
    assert_eq!(provider.stats().dropped.load(Relaxed), 0);
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
}

#[tokio::test]
async fn events_that_the_broker_dropped_while_no_client_was_connected_are_one_gap() {
    let Some(broker) = Broker::without_stream().await else { return };
    broker.create(stream::Config { max_messages: 100, ..stream_config() }).await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], broker.server.port()));
    let (proxy, cut) = cuttable_proxy(address).await;
    let provider = Nats::start(NatsSettings {
        // This leaves the broker time to drop events.
        retry: events::Retry { initial: Duration::from_secs(4), max: Duration::from_secs(4) },
        ..settings(&format!("nats://{proxy}"))
    })
    .expect("settings");
    let mut stream = open(&provider, wanted(&["orders.>"], Start::New)).await;
    broker.publish(1..=50).await;
    expect_all(&mut stream, 1..=50).await;
    cut.notify_waiters();
    eventually("it is away", || !provider.is_connected()).await;
    broker.publish(51..=1050).await;
    assert!(!provider.is_connected(), "publishing took longer than the first attempt waits");
    assert_eq!(next(&mut stream).await, "gap");
    expect_all(&mut stream, 951..=1050).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 1);
}

#[tokio::test]
async fn events_that_the_broker_dropped_before_a_slow_subscriber_read_them_are_a_gap() {
    for durable in [false, true] {
        let Some(broker) = Broker::without_stream().await else { return };
        broker.create(stream::Config { max_messages: 100, ..stream_config() }).await;
        let provider =
            Nats::start(NatsSettings { queue_events: 10, ..settings(&broker.server.url()) })
                .expect("settings");
        let wanted =
            if durable { with_consumer("feed") } else { wanted(&["orders.>"], Start::All) };
        let mut stream = open(&provider, wanted).await;
        broker.publish(1..=1000).await;
        let mut expected = 1;
        while expected <= 1000 {
            match next(&mut stream).await.as_str() {
                "gap" => expected = 901,
                passed if passed.starts_with("passed ") => {}
                event => {
                    assert_eq!(event, format!("orders.1 {expected}"));
                    expected += 1;
                }
            }
        }
        assert_eq!(provider.stats().gaps.load(Relaxed), 1);
    }
}
