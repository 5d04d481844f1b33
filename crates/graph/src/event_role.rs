//! The names of the directives that bind root fields of event subgraphs to topics, and the role that each gives a
//! field.

use crate::{Field, SubgraphId};

/// The role of a root field of an event subgraph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventRole {
    /// Events of the bound topics start the resolution of the field, a field of Subscription.
    Subscribe,
    /// The field publishes its arguments; a field of Mutation.
    Publish,
    /// The field publishes its arguments and waits for a response; a field of Query or Mutation.
    Request,
}

/// The supported directives, in the order in which messages list them.
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
    /// Returns the role that the directive of that name gives; `None` if the directive binds nothing.
    pub fn of_directive(name: &str) -> Option<Self> {
        BINDINGS.iter().find(|(known, _)| *known == name).map(|(_, role)| *role)
    }

    /// Returns the names of all binding directives.
    pub fn directives() -> impl Iterator<Item = &'static str> {
        BINDINGS.iter().map(|(name, _)| *name)
    }
}

impl Field {
    /// Returns the role of the field in an event subgraph; `None` if no directive binds it there.
    pub fn event_role(&self, subgraph: SubgraphId) -> Option<EventRole> {
        let there = self.directives.iter().filter(|it| it.subgraphs.contains(subgraph));
        there.filter_map(|it| EventRole::of_directive(&it.name)).next()
    }
}
