//! Tests of the pace at which clients that return with a cursor are served: their part of the permits, and the side
//! readers that are opened at a time.

use events::{SourceError, SourceMessage, Start};
use execute::ErrorCode;

use super::resumption_tests::{Scenario, after, joined, partition_offset, position, refused};
use crate::HubSettings;

#[test]
fn resumed_groups_leave_half_of_the_permits_to_live_events() {
    let settings =
        HubSettings { resolutions_in_flight: 4, group_in_flight: 1, ..HubSettings::default() };
    let mut scenario = Scenario::with(settings);
    let (trigger, first, _first) = scenario.live(0);
    scenario.events(trigger, 1..=2);
    scenario.stage.resolve_all();
    let mut resumed = Vec::new();
    for operation in 2..7 {
        let (member, reply) = scenario.subscribe(operation, after(&[(0, 0)]));
        resumed.push((member, joined(reply)));
    }
    assert_eq!(scenario.stage.resolutions.len(), 2);
    scenario.events(trigger, [3]);
    scenario.stage.resolve(2);
    assert_eq!(scenario.heard(first), ["1", "2", "3"]);
    scenario.stage.resolve_all();
    for (member, _) in &resumed {
        assert_eq!(scenario.heard(*member), ["1", "2", "3"]);
    }
    scenario.events(trigger, [4]);
    assert_eq!(scenario.stage.resolutions.len(), 4, "groups that have caught up are live");
    scenario.stage.resolve_all();
    for (member, _) in &resumed {
        assert_eq!(scenario.heard(*member), ["1", "2", "3", "4"]);
    }
}

#[test]
fn live_events_take_turns_with_resumed_groups_that_wait_for_a_permit() {
    let settings =
        HubSettings { resolutions_in_flight: 8, group_in_flight: 1, ..HubSettings::default() };
    let mut scenario = Scenario::with(settings);
    let (trigger, _, first) = scenario.live(0);
    let mut handles = vec![first];
    handles.extend((2..=8).map(|operation| joined(scenario.subscribe(operation, None).1)));
    let (_, reply) = scenario.subscribe_to(scenario.stage.operation("other", 1, 0), None);
    let other = scenario.stage.open();
    handles.push(joined(reply));
    scenario.events(trigger, [1]);
    handles.extend(
        (11..=20).map(|operation| joined(scenario.subscribe(operation, after(&[(0, 0)])).1)),
    );
    scenario.stage.event(other, "7");
    assert_eq!(scenario.stage.resolutions.len(), 8, "all permits are taken");
    for _ in 0..2 {
        scenario.stage.resolve(0);
    }
    assert!(
        scenario.stage.resolutions.iter().any(|it| it.event == "7"),
        "it does not wait for those that came before it"
    );
    scenario.stage.resolve_all();
    assert_eq!(scenario.count(|it| &it.waiting), 0);
}

#[test]
fn groups_that_have_fallen_behind_may_use_all_permits() {
    let settings = HubSettings {
        resolutions_in_flight: 4,
        group_in_flight: 4,
        group_waiting: 1,
        ..HubSettings::default()
    };
    let mut scenario = Scenario::with(settings);
    let (trigger, first, _first) = scenario.live(0);
    scenario.events(trigger, 1..=9);
    // These four were started before it fell behind.
    for _ in 0..4 {
        scenario.stage.resolve(0);
    }
    assert_eq!(scenario.count(|it| &it.catching_up), 1);
    assert_eq!(scenario.stage.resolutions.len(), 4);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(first), ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

#[test]
fn readers_are_opened_a_few_at_a_time() {
    let settings = HubSettings { readers_opening_max: 2, ring_events: 1, ..HubSettings::default() };
    let mut scenario = Scenario::with(settings);
    let mut handles = Vec::new();
    let mut triggers = Vec::new();
    for topic in ["0", "1", "2", "3", "4", "5"] {
        let (_, reply) = scenario.subscribe_to(scenario.stage.operation(topic, 1, 0), None);
        let trigger = scenario.stage.open();
        handles.push(joined(reply));
        scenario.stage.message(trigger, SourceMessage::Progress(partition_offset(0, 0)));
        scenario.events(trigger, 1..=4);
        triggers.push(trigger);
    }
    scenario.stage.resolve_all();
    let resume = |scenario: &mut Scenario, topic: &str, operation, offset| {
        let operation = scenario.stage.operation(topic, operation, 0);
        scenario.subscribe_to(operation, after(&[(0, offset)]))
    };
    let all = ["0", "1", "2", "3", "4", "5"].map(|topic| resume(&mut scenario, topic, 1, 2));
    let [first, failed, gone, fourth, fifth, _sixth] = all;
    // It comes while the reader of its topic waits, which then begins early enough for both.
    let earlier = resume(&mut scenario, "3", 2, 1);
    let opening = |scenario: &Scenario| -> Vec<_> {
        scenario.stage.readers_opening.iter().map(|it| (it.0, it.2.clone())).collect()
    };
    let starts = |topic: usize, offset| (triggers[topic], Start::After(position(&[(0, offset)])));
    assert_eq!(opening(&scenario), [starts(0, 2), starts(1, 2)]);
    assert_eq!(scenario.count(|it| &it.readers_waiting), 4);
    // The only subscriber that needs the third reader leaves before its turn.
    drop(gone);
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _first = joined(first.1);
    assert_eq!(opening(&scenario), [starts(1, 2), starts(3, 1)]);
    let reason = String::new();
    let no = SourceError::Refused { provider: "p".into(), reason };
    scenario.stage.open_reader(Err(no));
    assert_eq!(refused(failed.1), ErrorCode::ProviderUnavailable);
    assert_eq!(opening(&scenario), [starts(3, 1), starts(4, 2)]);
    assert_eq!(scenario.count(|it| &it.readers_waiting), 1);
    let (_, of_fourth, _) = scenario.stage.open_reader(Ok(()));
    let (_, of_fifth, _) = scenario.stage.open_reader(Ok(()));
    assert_eq!(opening(&scenario), [starts(5, 2)]);
    assert_eq!(scenario.count(|it| &it.readers_waiting), 0);
    assert_eq!(scenario.count(|it| &it.side_readers), 5);
    let _handles = [joined(fourth.1), joined(fifth.1), joined(earlier.1)];
    for (topic, stream_id) in [(0, stream_id), (3, of_fourth), (4, of_fifth)] {
        for offset in 2..=3 {
            scenario.read(triggers[topic], stream_id, offset);
        }
    }
    scenario.stage.resolve_all();
    for member in [first.0, fourth.0, fifth.0] {
        assert_eq!(scenario.heard(member), ["3", "4"]);
    }
    assert_eq!(scenario.heard(earlier.0), ["2", "3", "4"]);
}

#[test]
fn readers_of_groups_that_have_gone_give_their_places_up() {
    let settings = HubSettings {
        readers_opening_max: 1,
        ring_events: 1,
        group_in_flight: 1,
        group_waiting: 1,
        ..HubSettings::default()
    };
    let mut scenario = Scenario::with(settings);
    let mut groups = Vec::new();
    for topic in ["0", "1", "2"] {
        let (member, reply) = scenario.subscribe_to(scenario.stage.operation(topic, 1, 0), None);
        let trigger = scenario.stage.open();
        scenario.stage.message(trigger, SourceMessage::Progress(partition_offset(0, 0)));
        // It falls behind.
        scenario.events(trigger, 1..=9);
        groups.push((trigger, member, joined(reply)));
    }
    while scenario.count(|it| &it.readers_waiting) < 2 {
        scenario.stage.resolve(0);
    }
    let Ok([(first, _, of_first), (second, _, of_second), (third, member, _of_third)]) =
        <[_; 3]>::try_from(groups)
    else {
        panic!("there are three groups");
    };
    assert_eq!(scenario.stage.readers_opening[0].0, first);
    scenario.stage.leave(of_second);
    assert_eq!(scenario.count(|it| &it.readers_waiting), 1);
    assert!(scenario.stage.closed.contains(&second));
    scenario.stage.leave(of_first);
    assert_eq!(scenario.count(|it| &it.readers_waiting), 0);
    let (opened, stream_id, is_wanted) = scenario.stage.open_reader(Ok(()));
    assert!(opened == third && is_wanted && scenario.stage.readers_opening.is_empty());
    let mut next = 1;
    while next <= 9 || !scenario.stage.resolutions.is_empty() {
        if next <= 9 && !scenario.stage.readers_paused.contains(&(third, stream_id)) {
            scenario.read(third, stream_id, next);
            next += 1;
        } else {
            scenario.stage.resolve(0);
        }
    }
    assert_eq!(scenario.heard(member), ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}
