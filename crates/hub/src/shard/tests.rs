//! Tests of the behaviour of a shard. Random orders of events are tested in [`super::simulation`].

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bindings::Filter;
use events::{SourceError, SourceMessage, StreamEnd};
use execute::{ErrorCode, GraphqlError};

use super::scripted_stage::{ScriptedOutlet, Stage, SubscribeReply, member};
use super::{ResolutionOutcome, Shard, TriggerId};
use crate::{HubSettings, Subscription};

fn stage() -> (Stage, Arc<ScriptedOutlet>) {
    (Stage::new(HubSettings::default()), Arc::default())
}

fn joined(mut reply: SubscribeReply) -> Subscription {
    reply.try_recv().expect("the response is there").expect("it is a subscription")
}

fn refused(mut reply: SubscribeReply) -> GraphqlError {
    reply.try_recv().expect("the response is there").expect_err("it is an error")
}

/// Makes a live trigger with one subscriber, number 1, of operation 1.
fn live(stage: &mut Stage, outlet: &Arc<ScriptedOutlet>) -> (TriggerId, Subscription) {
    let reply = stage.subscribe(outlet, member(1), "a", 1, 1);
    let trigger = stage.open();
    (trigger, joined(reply))
}

fn is_empty(shard: &Shard) -> bool {
    shard.triggers.is_empty()
        && shard.groups.has_no_outlets()
        && shard.triggers.has_no_source()
        && shard.groups.is_empty()
        && shard.scheduler.resolutions() == 0
}

#[test]
fn a_subscriber_joins_gets_events_and_ends_once() {
    let (mut stage, outlet) = stage();
    let mut reply = stage.subscribe(&outlet, member(1), "a", 1, 1);
    assert!(reply.try_recv().is_err(), "the reply waits for the source");
    assert_eq!(outlet.heard(member(1)), Vec::<String>::new());

    let trigger = stage.open();
    let subscription = joined(reply);
    stage.event(trigger, "1");
    stage.resolve_all();
    stage.event(trigger, "2");
    stage.leave(subscription);
    assert_eq!(outlet.heard(member(1)), ["join", r#"{"data":1}"#, "end: unsubscribed"]);
    assert_eq!(stage.closed, [trigger]);
    assert!(is_empty(&stage.shard) && outlet.is_empty());
    assert_eq!(stage.stats.subscribers.load(Relaxed), 0);
    assert_eq!(stage.stats.dropped_group_left.load(Relaxed), 1);
}

#[test]
fn equal_groups_share_one_resolution_and_each_outlet_gets_it_once() {
    let (mut stage, first) = stage();
    let second = Arc::<ScriptedOutlet>::default();
    let (trigger, _one) = live(&mut stage, &first);
    let _two = joined(stage.subscribe(&first, member(2), "a", 1, 1));
    let _three = joined(stage.subscribe(&second, member(3), "a", 1, 1));
    let _other = joined(stage.subscribe(&second, member(4), "a", 2, 1));
    stage.event(trigger, "1");
    assert_eq!(stage.resolutions.len(), 2, "one for each group");
    stage.resolve_all();
    assert_eq!((first.deliveries(), second.deliveries()), (1, 2));
    for (outlet, number) in [(&first, 1), (&first, 2), (&second, 3), (&second, 4)] {
        assert_eq!(outlet.heard(member(number)), ["join", r#"{"data":1}"#]);
    }
    assert_eq!(stage.stats.deliveries.load(Relaxed), 4);
}

#[test]
fn operation_variables_and_partition_all_keep_groups_apart() {
    let (mut stage, outlet) = stage();
    let (_, _one) = live(&mut stage, &outlet);
    let same = joined(stage.subscribe(&outlet, member(2), "a", 1, 1));
    let operation = joined(stage.subscribe(&outlet, member(3), "a", 2, 1));
    assert_eq!(same.group(), _one.group());
    assert_ne!(operation.group(), _one.group());
    let key = |variable: &str, partition: &'static str| crate::GroupKey {
        operation_id: 1,
        variables: Arc::new(plan::Variables { values: vec![Some(variable.into())] }),
        partition: partition.as_bytes().into(),
    };
    assert_eq!(key("1", "a"), key("1", "a"));
    assert_ne!(key("1", "a"), key("2", "a"));
    assert_ne!(key("1", "a"), key("1", "b"));
}

#[test]
fn events_are_released_in_order_whatever_ends_first() {
    let (mut stage, outlet) = stage();
    let (trigger, _subscription) = live(&mut stage, &outlet);
    for event in ["1", "2", "3"] {
        stage.event(trigger, event);
    }
    stage.resolve(2);
    stage.resolve(1);
    assert_eq!(outlet.heard(member(1)), ["join"]);
    stage.resolve(0);
    let expected = ["join", r#"{"data":1}"#, r#"{"data":2}"#, r#"{"data":3}"#];
    assert_eq!(outlet.heard(member(1)), expected);
}

#[test]
fn a_slow_group_drops_its_oldest_events_and_announces_how_many_while_others_continue() {
    let settings = HubSettings { group_in_flight: 1, group_waiting: 2, ..HubSettings::default() };
    let mut stage = Stage::new(settings);
    let outlet = Arc::<ScriptedOutlet>::default();
    let (trigger, slow) = live(&mut stage, &outlet);
    let quick = joined(stage.subscribe(&outlet, member(2), "a", 2, 1));
    let mut slow_resolution = None;
    for event in ["1", "2", "3", "4", "5"] {
        stage.event(trigger, event);
        slow_resolution = slow_resolution
            .or_else(|| stage.resolutions.iter().position(|it| it.group == slow.group()));
        let done = stage.resolutions.iter().position(|it| it.group == quick.group()).unwrap();
        stage.resolve(done);
    }
    assert_eq!(outlet.heard(member(2)).len(), 6, "the other group got all of them");
    assert_eq!(outlet.heard(member(1)), ["join"]);
    stage.resolve_all();
    assert_eq!(
        outlet.heard(member(1)),
        ["join", r#"{"data":1}"#, r#"{"data":4,"extensions":{"lost":2}}"#, r#"{"data":5}"#]
    );
    assert_eq!(stage.stats.dropped_group_behind.load(Relaxed), 2);
}

/// Makes a live trigger with one subscriber and an operation that takes batches.
fn live_with_batches(
    settings: HubSettings,
) -> (Stage, Arc<ScriptedOutlet>, TriggerId, Subscription) {
    let (mut stage, outlet) = (Stage::new(settings), Arc::default());
    let operation = Stage::with_batches(stage.operation("a", 1, 1));
    let reply = stage.subscribe_to(&outlet, member(1), operation);
    let trigger = stage.open();
    (stage, outlet, trigger, joined(reply))
}

/// Returns the number of events of each resolution.
fn batches(stage: &Stage) -> Vec<usize> {
    stage.resolutions.iter().map(|it| 1 + it.others.len()).collect()
}

#[test]
fn waiting_events_are_resolved_as_one_batch_and_released_in_order() {
    let settings = HubSettings { group_in_flight: 2, batch_events: 3, ..HubSettings::default() };
    let (mut stage, outlet, trigger, _subscription) = live_with_batches(settings);
    for event in 1..=7 {
        stage.event(trigger, &event.to_string());
    }
    assert_eq!(batches(&stage), [1, 1], "an event with room in flight does not wait");
    stage.resolve(1);
    assert_eq!(batches(&stage), [1], "it counts until it is released");
    stage.resolve(0);
    assert_eq!(batches(&stage), [3, 2]);
    assert_eq!(stage.shard.topology()[0].groups[0].in_flight, 5);
    stage.resolve(1);
    assert_eq!(outlet.heard(member(1)).len(), 3, "earlier events come first");
    stage.resolve(0);
    let expected: Vec<_> = (1..=7).map(|event| format!("{{\"data\":{event}}}")).collect();
    assert_eq!(outlet.heard(member(1))[1..], expected);
    let stats = [&stage.stats.resolutions, &stage.stats.batches, &stage.stats.batched_events];
    assert_eq!(stats.map(|it| it.load(Relaxed)), [7, 2, 5]);
    stage.event(trigger, "8");
    assert_eq!(batches(&stage), [1], "no batch after a pause");
}

#[test]
fn dropped_events_are_announced_with_the_next_event_also_in_a_batch() {
    let settings = HubSettings { group_in_flight: 1, group_waiting: 3, ..HubSettings::default() };
    let (mut stage, outlet, trigger, _subscription) = live_with_batches(settings);
    for event in ["1", "2", "3", "4"] {
        stage.event(trigger, event);
    }
    stage.message(trigger, SourceMessage::Gap);
    stage.event(trigger, "5");
    stage.resolve_all();
    let expected = [
        r#"{"data":1}"#,
        r#"{"data":3,"extensions":{"lost":1}}"#,
        r#"{"data":4}"#,
        r#"{"data":5,"extensions":{"gap":true}}"#,
    ];
    assert_eq!(outlet.heard(member(1))[1..], expected);
}

#[test]
fn a_batch_is_bounded_in_bytes_of_events_and_of_payloads() {
    let settings = HubSettings { group_in_flight: 1, ..HubSettings::default() };
    let (mut stage, _outlet, trigger, _subscription) = live_with_batches(settings);
    let large = format!("\"{}\"", "x".repeat(50 << 10));
    for event in ["0", &large, &large, &large, "1", "2", "3"] {
        stage.event(trigger, event);
    }
    stage.resolve(0);
    assert_eq!(batches(&stage), [2], "a third would be too much");
    stage.resolve(0);
    assert_eq!(batches(&stage), [2], "small events, but the payloads were large");
    stage.resolve(0);
    assert_eq!(batches(&stage), [2]);
}

#[test]
fn a_failed_batch_is_an_error_for_each_of_its_events() {
    let settings = HubSettings { group_in_flight: 1, ..HubSettings::default() };
    let (mut stage, outlet, trigger, subscription) = live_with_batches(settings);
    for event in ["1", "2", "3"] {
        stage.event(trigger, event);
    }
    stage.resolve(0);
    // A batch with too few payloads is a defect too.
    for outcome in [ResolutionOutcome::BrokeOff, ResolutionOutcome::Batch(Vec::new())] {
        let broken = stage.resolutions.remove(0);
        assert_eq!(broken.others.len(), 1);
        stage.shard.on_resolved(broken.group, broken.ticket, outcome);
        stage.take_effects();
        for event in ["4", "5", "6"] {
            stage.event(trigger, event);
        }
        stage.resolve(0);
    }
    let errors =
        |heard: &[String]| heard.iter().filter(|it| it.contains("INTERNAL_SERVER_ERROR")).count();
    assert_eq!(errors(&outlet.heard(member(1))), 4);
    assert_eq!(stage.stats.resolutions_failed.load(Relaxed), 2);
    stage.leave(subscription);
    assert!(is_empty(&stage.shard), "an unneeded batch releases its permit");
    assert_eq!(stage.stats.resolving.load(Relaxed), 0);
}

#[test]
fn a_gap_is_announced_with_the_next_event() {
    let (mut stage, outlet) = stage();
    let (trigger, _subscription) = live(&mut stage, &outlet);
    stage.event(trigger, "1");
    stage.message(trigger, SourceMessage::Gap);
    stage.message(trigger, SourceMessage::Gap);
    stage.event(trigger, "2");
    stage.event(trigger, "3");
    stage.resolve_all();
    assert_eq!(
        outlet.heard(member(1)),
        ["join", r#"{"data":1}"#, r#"{"data":2,"extensions":{"gap":true}}"#, r#"{"data":3}"#]
    );
}

#[test]
fn resolutions_in_flight_are_bounded_and_groups_take_turns() {
    let settings = HubSettings { resolutions_in_flight: 2, ..HubSettings::default() };
    let mut stage = Stage::new(settings);
    let outlet = Arc::<ScriptedOutlet>::default();
    let (trigger, one) = live(&mut stage, &outlet);
    let two = joined(stage.subscribe(&outlet, member(2), "a", 2, 1));
    for event in ["1", "2", "3"] {
        stage.event(trigger, event);
        assert!(stage.resolutions.len() <= 2);
    }
    let mut order = Vec::new();
    while !stage.resolutions.is_empty() {
        order.push(stage.resolutions[0].group == one.group());
        stage.resolve(0);
    }
    assert_eq!(order, [true, false, true, false, true, false]);
    assert_eq!(outlet.heard(member(1)).len(), 4);
    assert_eq!(outlet.heard(member(2)).len(), 4);
    drop((one, two));
}

#[test]
fn events_that_need_a_slow_subgraph_leave_half_of_the_permits_and_none_is_lost() {
    let settings = HubSettings { resolutions_in_flight: 4, ..HubSettings::default() };
    let mut stage = Stage::new(settings);
    let outlet = Arc::<ScriptedOutlet>::default();
    let operation = Stage::with_slow_subgraph(stage.operation("slow", 1, 1));
    let reply = stage.subscribe_to(&outlet, member(1), operation);
    let slow = stage.open();
    let _slow = joined(reply);
    let reply = stage.subscribe(&outlet, member(2), "quick", 2, 1);
    let quick = stage.open();
    let _quick = joined(reply);
    for event in ["1", "2", "3", "4", "5"] {
        stage.event(slow, event);
    }
    assert_eq!(stage.resolutions.len(), 2);
    stage.event(quick, "6");
    stage.resolve(2);
    assert_eq!(outlet.heard(member(2))[1..], [r#"{"data":6}"#]);
    stage.resolve_all();
    let expected: Vec<_> = (1..=5).map(|event| format!("{{\"data\":{event}}}")).collect();
    assert_eq!(outlet.heard(member(1))[1..], expected);
}

#[test]
fn a_group_that_needs_no_slow_subgraph_any_more_does_not_wait_for_those_that_do() {
    let settings = HubSettings { resolutions_in_flight: 4, ..HubSettings::default() };
    let mut stage = Stage::new(settings);
    let outlet = Arc::<ScriptedOutlet>::default();
    let operation = Stage::with_slow_subgraph(stage.operation("a", 1, 1));
    let reply = stage.subscribe_to(&outlet, member(1), operation);
    let trigger = stage.open();
    let subscription = joined(reply);
    for event in ["1", "2", "3"] {
        stage.event(trigger, event);
    }
    assert_eq!(stage.resolutions.len(), 2);
    let renewed = stage.operation("a", 1, 2);
    stage.advance(2, vec![(subscription.group(), Ok(renewed))]);
    assert_eq!(stage.resolutions.len(), 3);
    stage.resolve_all();
    let expected: Vec<_> = (1..=3).map(|event| format!("{{\"data\":{event}}}")).collect();
    assert_eq!(outlet.heard(member(1))[1..], expected);
}

#[test]
fn a_source_that_ends_delivers_its_events_and_then_ends_its_subscribers() {
    let (mut stage, outlet) = stage();
    let (trigger, subscription) = live(&mut stage, &outlet);
    let _idle = joined(stage.subscribe(&outlet, member(2), "a", 2, 1));
    stage.event(trigger, "1");
    let idle = stage.resolutions.iter().position(|it| it.group != subscription.group()).unwrap();
    stage.resolve(idle);
    stage.message(trigger, SourceMessage::End(StreamEnd::Closed));
    assert_eq!(outlet.heard(member(2)).last().unwrap(), "end: PROVIDER_UNAVAILABLE");
    assert_eq!(outlet.heard(member(1)), ["join"]);

    let later = stage.subscribe(&outlet, member(3), "a", 1, 1);
    assert_eq!(stage.opening.len(), 1, "a new subscriber gets a new source");
    stage.resolve_all();
    let expected = ["join", r#"{"data":1}"#, "end: PROVIDER_UNAVAILABLE"];
    assert_eq!(outlet.heard(member(1)), expected);
    stage.leave(subscription);
    assert_eq!(outlet.heard(member(1)), expected, "it has ended already");
    stage.open();
    let later = joined(later);
    stage.leave(later);
    assert!(is_empty(&stage.shard) && outlet.is_empty());
}

#[test]
fn an_unavailable_provider_refuses_all_that_wait_and_is_tried_again_later() {
    let (mut stage, outlet) = stage();
    let replies = [1, 2].map(|number| stage.subscribe(&outlet, member(number), "a", 1, 1));
    assert_eq!(stage.opening.len(), 1);
    stage.refuse_to_open(SourceError::Unavailable {
        provider: "nats/default".into(),
        reason: "10.0.0.7 refused the connection".into(),
    });
    for reply in replies {
        let error = refused(reply);
        assert_eq!(error.code, ErrorCode::ProviderUnavailable);
        assert_eq!(
            error.message,
            "The event provider nats/default is not connected at present; try again later."
        );
    }
    assert_eq!(outlet.heard(member(1)), Vec::<String>::new());
    assert!(is_empty(&stage.shard));
    assert_eq!(stage.stats.subscribers.load(Relaxed), 0);

    let reply = stage.subscribe(&outlet, member(3), "a", 1, 1);
    stage.open();
    joined(reply);
}

#[test]
fn callers_that_cancel_while_the_source_opens_leave_nothing_behind() {
    let (mut stage, outlet) = stage();
    drop(stage.subscribe(&outlet, member(1), "a", 1, 1));
    let trigger = stage.open();
    assert_eq!(stage.closed, [trigger]);
    assert!(is_empty(&stage.shard) && outlet.is_empty());
    assert_eq!(outlet.heard(member(1)), Vec::<String>::new());
    assert_eq!(stage.stats.subscribers.load(Relaxed), 0);
}

#[test]
fn a_caller_that_cancels_and_returns_while_the_source_opens_gets_that_stream() {
    let (mut stage, outlet) = stage();
    drop(stage.subscribe(&outlet, member(1), "a", 1, 1));
    let reply = stage.subscribe(&outlet, member(2), "a", 1, 1);
    assert_eq!(stage.opening.len(), 1, "asked for once, though two have subscribed");
    let trigger = stage.open();
    let subscription = joined(reply);
    stage.event(trigger, "1");
    stage.resolve_all();
    assert_eq!(outlet.heard(member(2)), ["join", r#"{"data":1}"#]);
    assert_eq!(outlet.heard(member(1)), Vec::<String>::new());
    stage.leave(subscription);
    assert_eq!(stage.closed, [trigger]);
    assert!(is_empty(&stage.shard) && outlet.is_empty());
}

#[test]
fn a_reload_replaces_operations_between_two_events_unnoticed() {
    let (mut stage, outlet) = stage();
    let (trigger, one) = live(&mut stage, &outlet);
    stage.event(trigger, "1");
    stage.event(trigger, "2");
    let (group, old) = stage.shard.operations_before(2).remove(0);
    assert_eq!((group, old.generation), (one.group(), 1));
    assert!(stage.advance(2, vec![(group, Ok(stage.operation("a", 7, 2)))]).is_empty());
    stage.event(trigger, "3");
    // Resolutions that began on the old graph and on the new one keep their order.
    stage.resolve(2);
    stage.resolve(1);
    stage.resolve(0);
    let events = [r#"{"data":1}"#, r#"{"data":2}"#, r#"{"data":3}"#];
    assert_eq!(outlet.heard(member(1)), [&["join"][..], &events].concat());
    let two = joined(stage.subscribe(&outlet, member(2), "a", 7, 2));
    assert_eq!(two.group(), one.group(), "subscribers of the new graph join the group");
    assert_eq!(stage.stats.spliced.load(Relaxed), 1);
    assert_eq!((stage.shard.triggers.len(), stage.closed.len()), (1, 0));
}

#[test]
fn only_operations_that_are_invalid_on_the_new_graph_end() {
    let (mut stage, outlet) = stage();
    let (trigger, gone) = live(&mut stage, &outlet);
    let stays = joined(stage.subscribe(&outlet, member(2), "a", 2, 1));
    let waiting = stage.subscribe(&outlet, member(3), "b", 1, 1);
    stage.event(trigger, "1");
    let reason = GraphqlError::new(ErrorCode::GraphReloaded, "The field is gone.");
    let renewals = vec![
        (gone.group(), Err(Box::new(reason))),
        (stays.group(), Ok(stage.operation("a", 2, 2))),
    ];
    assert!(stage.advance(2, renewals).is_empty());
    assert_eq!(outlet.heard(member(1)), ["join", "end: GRAPH_RELOADED"]);
    assert_eq!(refused(waiting).code, ErrorCode::GraphReloaded);
    assert!(stage.opening.is_empty(), "no subscriber waits for b any more");
    stage.resolve_all();
    assert_eq!(outlet.heard(member(2)), ["join", r#"{"data":1}"#]);
    stage.leave(gone);
    assert_eq!(outlet.heard(member(1)), ["join", "end: GRAPH_RELOADED"]);
    let late = refused(stage.subscribe(&outlet, member(4), "a", 1, 1));
    assert_eq!(late.code, ErrorCode::GraphReloaded, "the server tries again on the new graph");
}

#[test]
fn a_group_without_a_renewal_continues_and_is_returned() {
    let (mut stage, outlet) = stage();
    let (trigger, one) = live(&mut stage, &outlet);
    let left = stage.advance(2, Vec::new());
    assert_eq!(left.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [one.group()]);
    stage.event(trigger, "1");
    stage.resolve_all();
    assert_eq!(outlet.heard(member(1)), ["join", r#"{"data":1}"#]);
    assert!(stage.advance(2, vec![(one.group(), Ok(stage.operation("a", 1, 2)))]).is_empty());
}

#[test]
fn a_group_whose_topic_changes_stays_on_the_old_one_until_the_new_one_is_open() {
    let (mut stage, outlet) = stage();
    let (old, one) = live(&mut stage, &outlet);
    stage.event(old, "1");
    assert!(stage.advance(2, vec![(one.group(), Ok(stage.operation("b", 1, 2)))]).is_empty());
    stage.event(old, "2");
    assert_eq!(stage.closed, []);
    let new = stage.open();
    assert_eq!(stage.closed, [old]);
    stage.event(old, "lost on the way");
    stage.event(new, "3");
    stage.event(new, "4");
    stage.resolve_all();
    let gap = r#"{"data":3,"extensions":{"gap":true}}"#;
    assert_eq!(
        outlet.heard(member(1)),
        ["join", r#"{"data":1}"#, r#"{"data":2}"#, gap, r#"{"data":4}"#]
    );
    let two = joined(stage.subscribe(&outlet, member(2), "b", 1, 2));
    assert_ne!(two.group(), one.group(), "it moved with events of the old topic in flight");
    drop((one, two));
    stage.process_leaves();
    assert!(is_empty(&stage.shard));
}

#[test]
fn a_group_whose_new_topic_cannot_be_opened_ends_with_the_reason() {
    let (mut stage, outlet) = stage();
    let (old, one) = live(&mut stage, &outlet);
    stage.advance(2, vec![(one.group(), Ok(stage.operation("b", 1, 2)))]);
    stage.refuse_to_open(SourceError::Unavailable { provider: "p".into(), reason: "".into() });
    assert_eq!(outlet.heard(member(1)), ["join", "end: PROVIDER_UNAVAILABLE"]);
    assert_eq!(stage.closed, [old]);
    assert!(is_empty(&stage.shard));
}

#[test]
fn a_group_that_ends_or_stays_while_it_waits_to_move_leaves_no_trigger_behind() {
    let (mut stage, outlet) = stage();
    let (old, one) = live(&mut stage, &outlet);
    stage.advance(2, vec![(one.group(), Ok(stage.operation("b", 1, 2)))]);
    let on_the_way = stage.opening[0];
    // The next graph listens to the old topic again.
    stage.advance(3, vec![(one.group(), Ok(stage.operation("a", 1, 3)))]);
    assert_eq!((&stage.opening[..], &stage.closed[..]), (&[][..], &[on_the_way][..]));
    stage.advance(4, vec![(one.group(), Ok(stage.operation("b", 1, 4)))]);
    // Its source ends meanwhile, which does not concern the group.
    stage.message(old, SourceMessage::End(StreamEnd::Closed));
    assert_eq!(outlet.heard(member(1)), ["join"]);
    stage.leave(one);
    assert!(stage.opening.is_empty() && is_empty(&stage.shard) && outlet.is_empty());
}

#[test]
fn groups_that_become_equal_stay_apart_and_the_first_is_joined() {
    let (mut stage, outlet) = stage();
    let (trigger, one) = live(&mut stage, &outlet);
    let two = joined(stage.subscribe(&outlet, member(2), "a", 2, 1));
    let renewals = [&one, &two].map(|it| (it.group(), Ok(stage.operation("a", 9, 2))));
    stage.advance(2, renewals.into());
    let three = joined(stage.subscribe(&outlet, member(3), "a", 9, 2));
    assert_eq!(three.group(), one.group());
    stage.event(trigger, "1");
    stage.resolve_all();
    for number in 1..4 {
        assert_eq!(outlet.heard(member(number)), ["join", r#"{"data":1}"#]);
    }
    drop((one, two, three));
    stage.process_leaves();
    assert!(is_empty(&stage.shard));
}

#[test]
fn removed_groups_do_not_pile_up_in_the_queue() {
    let settings = HubSettings { resolutions_in_flight: 1, ..HubSettings::default() };
    let mut stage = Stage::new(settings);
    let outlet = Arc::<ScriptedOutlet>::default();
    let (trigger, _busy) = live(&mut stage, &outlet);
    stage.event(trigger, "1");
    for number in 2..1000 {
        let subscription = joined(stage.subscribe(&outlet, member(number), "a", number.into(), 1));
        stage.event(trigger, "2");
        stage.leave(subscription);
    }
    assert!(stage.shard.scheduler.queued() < 100, "{}", stage.shard.scheduler.queued());
}

#[test]
fn a_shutdown_ends_all_subscribers_and_refuses_later_ones() {
    let (mut stage, outlet) = stage();
    let (trigger, _subscription) = live(&mut stage, &outlet);
    let waiting = stage.subscribe(&outlet, member(2), "b", 1, 1);
    stage.event(trigger, "1");
    stage.shard.shut_down();
    stage.take_effects();
    assert_eq!(outlet.heard(member(1)), ["join", "end: SHUTTING_DOWN"]);
    assert_eq!(refused(waiting).code, ErrorCode::ShuttingDown);
    assert_eq!(
        refused(stage.subscribe(&outlet, member(3), "a", 1, 1)).code,
        ErrorCode::ShuttingDown
    );
    assert!(is_empty(&stage.shard) && outlet.is_empty());
}

#[test]
fn a_failed_resolution_is_an_error_payload_and_the_subscription_continues() {
    let (mut stage, outlet) = stage();
    let (trigger, _subscription) = live(&mut stage, &outlet);
    stage.event(trigger, "1");
    let broken = stage.resolutions.remove(0);
    stage.shard.on_resolved(broken.group, broken.ticket, ResolutionOutcome::BrokeOff);
    stage.take_effects();
    stage.event(trigger, "2");
    stage.resolve_all();
    assert_eq!(
        outlet.heard(member(1)),
        [
            "join",
            r#"{"errors":[{"message":"The event could not be resolved.","extensions":{"code":"INTERNAL_SERVER_ERROR"}}]}"#,
            r#"{"data":2}"#
        ]
    );
}

#[test]
fn the_topology_shows_triggers_groups_and_counts() {
    let (mut stage, outlet) = stage();
    let (trigger, _one) = live(&mut stage, &outlet);
    let _two = joined(stage.subscribe(&outlet, member(2), "a", 1, 1));
    let _waiting = stage.subscribe(&outlet, member(3), "b", 7, 1);
    stage.event(trigger, "1");
    let view: Vec<_> = stage
        .shard
        .topology()
        .into_iter()
        .map(|it| {
            let groups: Vec<_> = it
                .groups
                .iter()
                .map(|group| (group.operation_id, group.members, group.outlets, group.in_flight))
                .collect();
            let (provider, topics) = (it.source.name().to_owned(), it.source.topics().to_vec());
            (provider, topics, it.state.as_str(), it.events, groups)
        })
        .collect();
    assert_eq!(
        view,
        [
            ("memory/default".to_owned(), vec!["a".into()], "live", 1, vec![(1, 2, 1, 1)]),
            ("memory/default".to_owned(), vec!["b".into()], "opening", 0, vec![]),
        ]
    );
}

#[test]
fn an_event_costs_one_lookup_among_a_hundred_thousand_groups_with_an_id_each() {
    const GROUPS: u64 = 100_000;
    let (mut stage, outlet) = stage();
    let mut held = Vec::new();
    for number in 0..GROUPS {
        let mut operation = stage.operation("a", number.into(), 1);
        operation.filter = Some(Arc::new(Filter::one_of("id", &[number])));
        let reply = stage.subscribe_to(&outlet, member(number), operation);
        if number == 0 {
            stage.open();
        }
        held.push(joined(reply));
    }
    let trigger = stage.shard.triggers.ids()[0];
    for id in [7, 99_999, GROUPS] {
        stage.event(trigger, &format!("{{\"id\":{id}}}"));
    }
    stage.event(trigger, "not JSON");
    stage.resolve_all();
    assert_eq!(stage.stats.filters_evaluated.load(Relaxed), 2);
    assert_eq!(stage.stats.deliveries.load(Relaxed), 2);
    assert_eq!(stage.stats.filtered_out.load(Relaxed), 4 * GROUPS - 2);
    assert_eq!(outlet.heard(member(7)), ["join", r#"{"data":{"id":7}}"#]);
    assert_eq!(outlet.heard(member(8)), ["join"]);
    // Another graph may have another filter.
    let mut operation = stage.operation("a", 8, 2);
    operation.filter = Some(Arc::new(Filter::one_of("id", &[9])));
    stage.advance(2, vec![(held[8].group(), Ok(operation))]);
    stage.event(trigger, r#"{"id":8}"#);
    stage.event(trigger, r#"{"id":9}"#);
    stage.resolve_all();
    assert_eq!(outlet.heard(member(8)), ["join", r#"{"data":{"id":9}}"#]);
    drop(held);
    stage.process_leaves();
    assert!(is_empty(&stage.shard));
}
