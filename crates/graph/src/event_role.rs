//! The directives that bind root fields of event subgraphs to topics, by name, and what a field does that has one.

use crate::{Field, SubgraphId};

/// What a root field of an event subgraph does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventRole {
    /// Events of topics start its resolution; a field of Subscription.
    Subscribe,
    /// It publishes its arguments; a field of Mutation.
    Publish,
    /// It publishes its arguments and waits for an answer; a field of Query or Mutation.
    Request,
}

/// The directives that are supported, in the order in which messages list them.
pub(crate) const BINDINGS: [(&str, EventRole); 10] = [
    ("edfs__natsSubscribe", EventRole::Subscribe),
    ("edfs__natsPublish", EventRole::Publish),
    ("edfs__natsRequest", EventRole::Request),
    ("edfs__kafkaSubscribe", EventRole::Subscribe),
    ("edfs__kafkaPublish", EventRole::Publish),
    ("edfs__redisSubscribe", EventRole::Subscribe),
    ("edfs__redisPublish", EventRole::Publish),
    ("events__subscribe", EventRole::Subscribe),
    ("events__publish", EventRole::Publish),
    ("events__request", EventRole::Request),
];

impl EventRole {
    /// The role that a directive of that name gives. `None`: it binds nothing.
    pub fn of_directive(name: &str) -> Option<Self> {
        BINDINGS.iter().find(|(known, _)| *known == name).map(|(_, role)| *role)
    }

    /// The names of all directives that bind.
    pub fn directives() -> impl Iterator<Item = &'static str> {
        BINDINGS.iter().map(|(name, _)| *name)
    }
}

impl Field {
    /// What the field does in an event subgraph; `None`: it is bound to nothing there.
    pub fn event_role(&self, subgraph: SubgraphId) -> Option<EventRole> {
        let there = self.directives.iter().filter(|it| it.subgraphs.contains(subgraph));
        there.filter_map(|it| EventRole::of_directive(&it.name)).next()
    }
}
