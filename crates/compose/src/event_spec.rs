//! The directives of event subgraphs: their definitions, and the recognition of subgraphs that use them.

use apollo_compiler::ast::{self, Definition};
use graph::EventRole;

/// The result type of publishing mutations.
pub(crate) const PUBLISH_RESULT: &str = "edfs__PublishResult";

/// The directive that filters the events of a subscription.
pub(crate) const FILTER: &str = "openfed__subscriptionFilter";

/// The definitions of all event directives. Values of structured arguments are checked when the router loads the graph,
/// so they are custom scalars here.
pub(crate) const DEFINITIONS: &str = "
scalar events__Any
directive @events__subscribe(topics: [String!]!, providerId: String, start: events__Any, since: String, until: events__Any, sequence: Int, stream: events__Any, initial: events__Any, select: String, key: events__Any, authorize: events__Any, invalidate: Boolean) on FIELD_DEFINITION
directive @events__publish(topic: String!, providerId: String, key: String, headers: events__Any, stream: events__Any, authorize: events__Any) on FIELD_DEFINITION
directive @events__request(topic: String!, providerId: String, timeout: String, select: String, key: events__Any, headers: events__Any, authorize: events__Any) on FIELD_DEFINITION
directive @edfs__natsSubscribe(subjects: [String!]!, providerId: String, streamConfiguration: events__Any) on FIELD_DEFINITION
directive @edfs__natsPublish(subject: String!, providerId: String) on FIELD_DEFINITION
directive @edfs__natsRequest(subject: String!, providerId: String) on FIELD_DEFINITION
directive @edfs__kafkaSubscribe(topics: [String!]!, providerId: String) on FIELD_DEFINITION
directive @edfs__kafkaPublish(topic: String!, providerId: String) on FIELD_DEFINITION
directive @edfs__redisSubscribe(channels: [String!]!, providerId: String) on FIELD_DEFINITION
directive @edfs__redisPublish(channel: String!, providerId: String) on FIELD_DEFINITION
directive @openfed__subscriptionFilter(condition: events__Any!) on FIELD_DEFINITION
type edfs__PublishResult { success: Boolean! }
";

/// True if the directive of that name belongs to an event subgraph.
pub(crate) fn is_event_directive(name: &str) -> bool {
    name == FILTER || EventRole::of_directive(name).is_some()
}

/// True if some field of `document` has an event directive.
pub(crate) fn is_event_document(document: &ast::Document) -> bool {
    document.definitions.iter().any(|definition| {
        let fields = match definition {
            Definition::ObjectTypeDefinition(it) => &it.fields,
            Definition::ObjectTypeExtension(it) => &it.fields,
            _ => return false,
        };
        fields.iter().any(|field| field.directives.iter().any(|it| is_event_directive(&it.name)))
    })
}
