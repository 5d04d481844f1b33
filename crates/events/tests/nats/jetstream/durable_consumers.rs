//! Durable consumers: where they continue, and that nothing is lost or repeated if several routers use one.

use super::*;

#[tokio::test]
async fn a_durable_consumer_is_never_silent_however_often_the_broker_is_killed() {
    let Some(mut broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let mut stream = open(&provider, with_consumer("feed")).await;
    let mut read = 0;
    for round in 1..=20 {
        let published = round * 1000;
        broker.publish(published - 999..=published).await;
        // Everything is delivered, but the broker has not written all of that down when it ends.
        expect_all(&mut stream, read + 1..=published - 100).await;
        read = published - 100;
        broker = broker.restart(true).await;
    }
    expect_all(&mut stream, read + 1..=20_000).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
    // The durable consumer is kept.
    let consumers = broker.consumers().await;
    let [bookmark] = consumers.as_slice() else { panic!("one: {consumers:?}") };
    assert!(bookmark.config.durable_name.is_some());
}

#[tokio::test]
async fn a_durable_consumer_that_waits_for_acknowledgements_that_it_lost_continues() {
    let Some(broker) = Broker::start().await else { return };
    let provider = broker.provider();
    let mut stream = open(&provider, with_consumer("feed")).await;
    broker.publish(1..=10).await;
    expect_all(&mut stream, 1..=10).await;
    let consumers = broker.consumers().await;
    let [bookmark] = consumers.as_slice() else { panic!("one: {consumers:?}") };
    // This is like the acknowledgement of a delivery that a killed broker has forgotten: earlier ones have no effect
    // any more.
    let of_the_future =
        format!("$JS.ACK.ORDERS.{}.1.100000.100000.1700000000000000000.0", bookmark.name);
    broker.admin.publish(of_the_future, "+ACK".into()).await.expect("published");
    broker.publish(11..=3000).await;
    expect_all(&mut stream, 11..=3000).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
}

#[tokio::test]
async fn every_router_gets_everything_also_under_one_name() {
    let Some(broker) = Broker::start().await else { return };
    let router = |instance: &str| {
        let instance = Some(instance.into());
        Nats::start(NatsSettings { instance, ..settings(&broker.server.url()) }).expect("settings")
    };
    // The last two have the same name, as two routers on one machine without a configuration would have.
    let routers = ["a", "b", "c", "c"].map(router);
    let mut streams = Vec::new();
    for router in &routers {
        streams.push(open(router, with_consumer("feed")).await);
        streams.push(open(router, wanted(&["orders.>"], Start::All)).await);
    }
    let reading = streams.into_iter().map(|mut stream| {
        tokio::spawn(async move {
            expect_all(&mut stream, 1..=3000).await;
            stream
        })
    });
    let reading: Vec<_> = reading.collect();
    broker.publish(1..=3000).await;
    for reader in reading {
        reader.await.expect("everything, once, in order");
    }
    let durable: Vec<_> = broker
        .consumers()
        .await
        .into_iter()
        .filter_map(|consumer| consumer.config.durable_name)
        .collect();
    assert_eq!(durable.len(), 3, "{durable:?}");
}

#[tokio::test]
async fn the_last_event_reaches_every_router_under_one_name_although_nothing_follows_it() {
    let Some(broker) = Broker::start().await else { return };
    let router = || {
        let (instance, idle) = (Some("c".into()), Duration::from_millis(600));
        Nats::start(NatsSettings { instance, idle, ..settings(&broker.server.url()) })
            .expect("settings")
    };
    let routers = [router(), router()];
    let mut streams = Vec::new();
    for router in &routers {
        streams.push(open(router, with_consumer("feed")).await);
    }
    // The broker delivers each event to one of the two.
    for number in 1..=5 {
        broker.publish(number..=number).await;
        for stream in &mut streams {
            expect_all(stream, number..=number).await;
        }
    }
}

#[tokio::test]
async fn a_durable_consumer_that_another_router_replaces_by_a_later_one_loses_nothing() {
    let Some(broker) = Broker::start().await else { return };
    let provider = Nats::start(NatsSettings { queue_events: 1, ..settings(&broker.server.url()) })
        .expect("settings");
    let mut stream = open(&provider, with_consumer("feed")).await;
    assert_eq!(position(&mut stream).await, 0);
    broker.publish(1..=10).await;
    // Two events are in the queue and the reader holds a third, so no request waits at the broker.
    let info = loop {
        let consumers = broker.consumers().await;
        let [info] = consumers.as_slice() else { panic!("one: {consumers:?}") };
        if info.delivered.consumer_sequence == 3 && info.num_waiting == 0 {
            break info.clone();
        }
        tokio::task::yield_now().await;
    };
    let orders = broker.admin.get_stream("ORDERS").await.expect("the stream");
    orders.delete_consumer(&info.name).await.expect("deleted");
    let start = consumer::DeliverPolicy::ByStartSequence { start_sequence: 11 };
    let config = consumer::Config { deliver_policy: start, ..info.config };
    let pull = consumer::pull::Config {
        durable_name: config.durable_name,
        deliver_policy: config.deliver_policy,
        ack_policy: config.ack_policy,
        filter_subject: config.filter_subject,
        ..consumer::pull::Config::default()
    };
    let other = orders.create_consumer(pull).await.expect("created");
    broker.publish(11..=20).await;
    // The other router has as many deliveries, so the next one has the number that this router expects.
    let fetched = other.fetch().max_messages(3).messages().await.expect("a batch");
    assert_eq!(fetched.count().await, 3);
    expect_all(&mut stream, 1..=20).await;
    assert_eq!(provider.stats().gaps.load(Relaxed), 0);
}

#[tokio::test]
async fn routers_that_create_one_durable_consumer_at_the_same_time_lose_nothing() {
    let Some(broker) = Broker::start().await else { return };
    let router = || {
        let instance = Some("c".into());
        Nats::start(NatsSettings { instance, ..settings(&broker.server.url()) }).expect("settings")
    };
    for round in 0..6 {
        let first = round * 100 + 1;
        let routers = [router(), router()];
        let new = StreamRequest { start: Start::New, ..with_consumer("feed") };
        let (a, b) = tokio::join!(open(&routers[0], new.clone()), open(&routers[1], new));
        broker.publish(first..=first + 39).await;
        let orders = broker.admin.get_stream("ORDERS").await.expect("the stream");
        for consumer in broker.consumers().await {
            // One of the routers may have replaced the consumer meanwhile.
            let _ = orders.delete_consumer(&consumer.name).await;
        }
        broker.publish(first + 40..=first + 99).await;
        for mut stream in [a, b] {
            expect_all(&mut stream, first..=first + 99).await;
        }
    }
}

#[tokio::test]
async fn a_durable_consumer_continues_where_its_router_ended() {
    let Some(broker) = Broker::start().await else { return };
    let router = || {
        let instance = Some("a".into());
        Nats::start(NatsSettings { instance, queue_events: 50, ..settings(&broker.server.url()) })
            .expect("settings")
    };
    let durable = Durable {
        consumer: Some("feed".into()),
        inactive_threshold: Some(Duration::from_secs(300)),
        ..Durable::default()
    };
    let wanted =
        StreamRequest { durable: Some(Arc::new(durable)), ..wanted(&["orders.>"], Start::All) };
    let provider = router();
    let mut stream = open(&provider, wanted.clone()).await;
    // The consumer exists: a second reader of this router must not take half of its events.
    let mut beside = open(&provider, wanted.clone()).await;
    broker.publish(1..=2000).await;
    expect_all(&mut stream, 1..=700).await;
    expect_all(&mut beside, 1..=2000).await;
    drop(provider);
    // Events that had entered the stream are acknowledged or not; this shows which.
    let mut latest = 700;
    while let Some(SourceMessage::Event(event)) = stream.messages.recv().await {
        latest += 1;
        assert_eq!(number(&event), latest);
    }
    broker.publish(2001..=2500).await;
    let provider = router();
    let mut stream = open(&provider, wanted).await;
    let first = number(&next_event(&mut stream).await);
    assert!(first <= latest + 1 && first > latest.saturating_sub(400), "{first} after {latest}");
    expect_all(&mut stream, first + 1..=2500).await;
    let config = broker.consumers().await.into_iter().map(|consumer| consumer.config);
    let durable = config.filter(|config| config.durable_name.is_some()).collect::<Vec<_>>();
    let [durable] = durable.as_slice() else { panic!("one: {durable:?}") };
    assert_eq!(durable.inactive_threshold, Duration::from_secs(300));
    assert!(durable.durable_name.as_deref().is_some_and(|name| name.starts_with("feed-a-")));
}

#[tokio::test]
async fn a_new_subscriber_gets_nothing_of_the_backlog_of_a_durable_consumer() {
    let Some(broker) = Broker::start().await else { return };
    let router = || {
        let instance = Some("a".into());
        Nats::start(NatsSettings { instance, ..settings(&broker.server.url()) }).expect("settings")
    };
    let new = || StreamRequest { start: Start::New, ..with_consumer("feed") };
    let provider = router();
    let mut stream = open(&provider, new()).await;
    broker.publish(1..=20).await;
    expect_all(&mut stream, 1..=20).await;
    drop((provider, stream));
    broker.publish(21..=500).await;
    for restart in 0..3 {
        let provider = router();
        let mut stream = open(&provider, new()).await;
        // The second time no event was published while no router was connected.
        let published = 500 + restart * 10;
        assert_eq!(position(&mut stream).await, published);
        broker.publish(published + 1..=published + 10).await;
        expect_all(&mut stream, published + 1..=published + 10).await;
    }
    let after = [PartitionOffset { partition: 0, offset: 20, part: created(&broker).await }];
    let after = Start::After(after.into_iter().collect());
    let provider = router();
    let mut stream = open(&provider, StreamRequest { start: after, ..with_consumer("feed") }).await;
    expect_all(&mut stream, 21..=530).await;
    let consumers = broker.consumers().await;
    let durable = consumers.iter().filter(|it| it.config.durable_name.is_some()).count();
    assert_eq!(durable, 1, "{consumers:?}");
}
