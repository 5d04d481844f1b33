//! Tests of the traces of events that groups read again, with a scripted shard. Live events have no traces here,
//! because those begin in the task.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use events::{Event, SourceMessage};
use telemetry::spans::{
    Attribute, AttributeValue, FinishedTrace, Propagation, SamplingRules, Tracer, TracerSettings,
};

use super::resumption_tests::{Scenario, after, joined, partition_offset};
use crate::{EventTracer, HubSettings};

const PUBLISHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

const NEVER: SamplingRules = SamplingRules {
    ratio: 0.0,
    follows_parent: true,
    slow: None,
    failed: false,
    has_conditions: false,
};

const ALWAYS: SamplingRules = SamplingRules { ratio: 1.0, ..NEVER };

/// The spans of an event that one group reads again.
const SPANS: [&str; 3] = ["process field", "subscription", "broadcast"];

impl Scenario {
    /// Makes the shard record traces.
    fn traced(mut self, sampling: SamplingRules) -> (Self, Arc<Tracer>) {
        let tracer = Arc::new(Tracer::new(TracerSettings {
            sampling,
            propagation: Propagation::default(),
            queue_bytes_max: 1 << 20,
            spans_max: 1000,
            batch_spans: 1,
        }));
        let event_tracer = EventTracer { tracer: Arc::clone(&tracer), graph: None };
        self.stage.shard.set_tracer(event_tracer);
        (self, tracer)
    }

    /// Completes all resolutions, with the time for the traces as the task passes it.
    fn resolve_in_time(&mut self) {
        while !self.stage.resolutions.is_empty() {
            self.stage.shard.set_time(Instant::now());
            self.stage.resolve(0);
        }
    }
}

/// Returns the event at an offset, with the headers of its publisher.
fn published_event(offset: u64) -> SourceMessage {
    let headers = vec![("traceparent".into(), Bytes::from_static(PUBLISHER.as_bytes()))];
    let event = Event::new("topic", offset.to_string()).at(partition_offset(0, offset));
    SourceMessage::Event(Event { headers: Some(Arc::new(headers)), ..event }.into())
}

fn exported(tracer: &Tracer) -> Vec<FinishedTrace> {
    let mut traces = Vec::new();
    loop {
        let batch = tracer.take_batch();
        if batch.is_empty() {
            return traces;
        }
        traces.extend(batch);
    }
}

fn names(trace: &FinishedTrace) -> Vec<&str> {
    trace.spans.iter().map(|span| &*span.name).collect()
}

/// Returns the number of groups of an event that was read again.
fn groups_of(trace: &FinishedTrace) -> i64 {
    let attributes = &trace.spans[0].attributes;
    let is_read_again = Attribute::flag("starling.event.catching_up", true);
    assert!(attributes.contains(&is_read_again), "{attributes:?}");
    number(trace, "starling.event.groups")
}

fn number(trace: &FinishedTrace, name: &str) -> i64 {
    let attributes = &trace.spans[0].attributes;
    let found = attributes.iter().find(|it| it.name == name).map(|it| it.value.clone());
    let Some(AttributeValue::Number(number)) = found else { panic!("{name}: {attributes:?}") };
    number
}

#[test]
fn an_event_from_the_ring_is_linked_to_its_publisher_and_follows_the_decision_of_that() {
    for (sampling, has_link) in [(ALWAYS, &[true, false][..]), (NEVER, &[true])] {
        let (mut scenario, tracer) = Scenario::new(10).traced(sampling);
        let (trigger, _, _first) = scenario.live(0);
        scenario.events(trigger, 1..=2);
        scenario.stage.message(trigger, published_event(3));
        scenario.events(trigger, [4]);
        scenario.resolve_in_time();
        assert_eq!(exported(&tracer).len(), 0, "the traces of live events begin in the task");
        let (again, reply) = scenario.subscribe(1, after(&[(0, 2)]));
        let _again = joined(reply);
        scenario.resolve_in_time();
        assert_eq!(scenario.heard(again), ["3", "4"]);
        let traces = exported(&tracer);
        let links = traces.iter().map(|trace| {
            assert_eq!((names(trace), groups_of(trace)), (SPANS.to_vec(), 1));
            let link = trace.spans[0].link.as_deref();
            link.map(|it| format!("00-{}-{}-01", it.trace, it.span))
        });
        let expected = has_link.iter().map(|it| it.then(|| PUBLISHER.to_owned()));
        assert_eq!(links.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{sampling:?}");
        scenario.events(trigger, [5]);
        scenario.resolve_in_time();
        assert_eq!(exported(&tracer).len(), 0, "the group is live again");
    }
}

#[test]
fn an_event_of_a_side_reader_has_one_trace_for_all_groups_that_it_serves() {
    let (mut scenario, tracer) = Scenario::new(2).traced(ALWAYS);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=9);
    scenario.resolve_in_time();
    let replies = [2, 3].map(|operation| scenario.subscribe(operation, after(&[(0, 5)])).1);
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _held = replies.map(joined);
    scenario.stage.read(trigger, stream_id, published_event(5));
    scenario.stage.read(trigger, stream_id, published_event(6));
    scenario.resolve_in_time();
    let traces = exported(&tracer);
    assert_eq!(traces.len(), 1, "both groups have had the event at 5");
    let mut spans = names(&traces[0]);
    spans.sort_unstable();
    let expected = ["broadcast", "broadcast", "process field", "subscription", "subscription"];
    assert_eq!((spans, groups_of(&traces[0])), (expected.to_vec(), 2));
    assert!(traces[0].spans[0].link.is_some());
    // The ring has the others, and each group takes them for itself.
    scenario.read(trigger, stream_id, 7);
    scenario.resolve_in_time();
    let mut groups: Vec<_> = exported(&tracer).iter().map(groups_of).collect();
    groups.sort_unstable();
    assert_eq!(groups, [1, 1, 1, 1, 2]);
}

#[test]
fn events_that_a_group_behind_gets_later_have_traces() {
    let settings = HubSettings {
        group_in_flight: 1,
        group_waiting: 2,
        ring_events: 100,
        ..HubSettings::default()
    };
    let (mut scenario, tracer) = Scenario::with(settings).traced(ALWAYS);
    let (trigger, member, _subscription) = scenario.live(0);
    // The group holds 1 to 4.
    scenario.events(trigger, 1..=6);
    assert_eq!(scenario.count(|it| &it.fell_behind), 1);
    scenario.resolve_in_time();
    assert_eq!(scenario.heard(member), ["1", "2", "3", "4", "5", "6"]);
    let traces = exported(&tracer);
    let traces: Vec<_> = traces.iter().map(|trace| (names(trace), groups_of(trace))).collect();
    assert_eq!(traces, [(SPANS.to_vec(), 1), (SPANS.to_vec(), 1)]);
}

#[test]
fn the_size_of_an_event_that_is_too_large_is_that_of_its_payload() {
    let settings = HubSettings { event_bytes_max: 1, ..HubSettings::default() };
    let (mut scenario, tracer) = Scenario::with(settings).traced(ALWAYS);
    let (trigger, _, _first) = scenario.live(8);
    scenario.events(trigger, [9, 1000]);
    scenario.resolve_in_time();
    let (_, reply) = scenario.subscribe(1, after(&[(0, 8)]));
    let _again = joined(reply);
    scenario.resolve_in_time();
    let traces = exported(&tracer);
    let sizes = traces.iter().map(|trace| number(trace, "messaging.message.body.size"));
    assert_eq!(sizes.collect::<Vec<_>>(), [1, 4]);
}
