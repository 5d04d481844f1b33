//! Tests of subscriptions that subgraphs serve, with a scripted shard.

use std::sync::{Arc, Mutex};

use bindings::Source;
use bytes::Bytes;
use events::{EventFuture, EventStream, SourceError, SubgraphSubscription, SubscriptionClient};
use http::{HeaderName, HeaderValue};

use super::TriggerId;
use super::scripted_stage::{ScriptedOutlet, Stage, SubscribeReply, member};
use crate::{HubSettings, LiveOperation, Subscription};

/// A client of a subgraph, with the tokens that it got. The stage opens its streams.
#[derive(Default)]
struct TokenRecorder(Mutex<Vec<HeaderValue>>);

impl SubscriptionClient for TokenRecorder {
    fn name(&self) -> &str {
        "subgraph/reviews"
    }

    fn note_headers(&self, wanted: &SubgraphSubscription) {
        self.0.lock().unwrap().extend(wanted.headers.iter().map(|(_, value)| value.clone()));
    }

    fn renew_headers(&self, _wanted: &SubgraphSubscription) {}

    fn subscribe(
        &self,
        _wanted: Arc<SubgraphSubscription>,
    ) -> EventFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(std::future::pending())
    }

    fn resubscribe(
        &self,
        wanted: Arc<SubgraphSubscription>,
    ) -> EventFuture<'_, Result<EventStream, SourceError>> {
        self.subscribe(wanted)
    }
}

struct Scenario {
    stage: Stage,
    outlet: Arc<ScriptedOutlet>,
    client: Arc<TokenRecorder>,
}

impl Scenario {
    fn new() -> Self {
        let stage = Stage::new(HubSettings::default());
        Self { stage, outlet: Arc::default(), client: Arc::default() }
    }

    /// Returns the operation with this request, for a client with this token.
    fn operation(&self, request: &'static str, token: &str, generation: u64) -> LiveOperation {
        let header = (HeaderName::from_static("x-token"), HeaderValue::from_str(token).unwrap());
        let wanted = SubgraphSubscription {
            field: "Subscription.reviewAdded".into(),
            request: Bytes::from_static(request.as_bytes()),
            headers: [header].into(),
            trace: Arc::default(),
            partition: Box::default(),
        };
        let client = Arc::clone(&self.client) as Arc<dyn SubscriptionClient>;
        let source = Source::of_subgraph(client, wanted);
        LiveOperation { source, ..self.stage.operation("unused", 1, generation) }
    }

    fn subscribe(&mut self, number: u64, operation: LiveOperation) -> SubscribeReply {
        self.stage.subscribe_to(&self.outlet, member(number), operation)
    }

    /// Adds the subscriber 1, with the request `a` and the token `first`.
    fn live(&mut self) -> (TriggerId, Subscription) {
        let reply = self.subscribe(1, self.operation("a", "first", 1));
        let trigger = self.stage.open();
        (trigger, joined(reply))
    }

    /// Replaces the graph by one with the request `b`. The operation has the token of the group's first client.
    fn reload(&mut self, group: &Subscription) {
        let renewed = self.operation("b", "first", 2);
        assert!(self.stage.advance(2, vec![(group.group(), Ok(renewed))]).is_empty());
    }

    fn last_token(&self) -> HeaderValue {
        self.client.0.lock().unwrap().last().expect("a token").clone()
    }
}

fn joined(mut reply: SubscribeReply) -> Subscription {
    reply.try_recv().expect("a response").expect("joined")
}

fn unreachable() -> SourceError {
    SourceError::Subgraph { source_name: "subgraph/reviews".into(), reason: "down".into() }
}

#[test]
fn the_token_of_the_client_that_came_last_counts_also_after_a_reload() {
    let mut scenario = Scenario::new();
    let (old, one) = scenario.live();
    assert_eq!(scenario.last_token(), "first");
    let two = joined(scenario.subscribe(2, scenario.operation("a", "second", 1)));
    assert_eq!((two.group(), scenario.last_token()), (one.group(), "second".parse().unwrap()));
    scenario.reload(&one);
    let new = scenario.stage.open();
    assert_eq!((scenario.stage.closed[0], scenario.stage.opened_for_move[0]), (old, new));
    assert_eq!(scenario.last_token(), "second");
    // A new operation of a client sends its token with the first attempt.
    let _opening = scenario.subscribe(3, scenario.operation("c", "third", 2));
    assert_eq!(scenario.last_token(), "third");
}

#[test]
fn a_group_that_waits_for_the_attempt_of_a_new_subscriber_does_not_end_with_it() {
    for is_up_in_time in [true, false] {
        let mut scenario = Scenario::new();
        let (old, one) = scenario.live();
        let mut refused = scenario.subscribe(2, scenario.operation("b", "second", 2));
        scenario.reload(&one);
        scenario.stage.refuse_to_open(unreachable());
        assert!(refused.try_recv().expect("a response at once").is_err());
        assert_eq!(scenario.outlet.heard(member(1)), ["join"]);
        scenario.stage.event(old, "1");
        assert_eq!(scenario.stage.opened_for_move, scenario.stage.opening);
        if is_up_in_time {
            let new = scenario.stage.open();
            scenario.stage.event(new, "2");
            scenario.stage.resolve_all();
            let events = [r#"{"data":1}"#, r#"{"data":2,"extensions":{"gap":true}}"#];
            assert_eq!(scenario.outlet.heard(member(1))[1..], events);
        } else {
            scenario.stage.refuse_to_open(unreachable());
            let heard = scenario.outlet.heard(member(1));
            assert_eq!(heard, ["join", "end: SUBGRAPH_REQUEST_FAILED"]);
        }
        assert_eq!(scenario.stage.closed, [old]);
        drop(one);
    }
}
