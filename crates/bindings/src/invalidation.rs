//! `invalidate: true`: the topics of a subscription field with events that name stale entries of the caches of every
//! router, whether or not a client subscribes.
//!
//! A topic with placeholders means all of its topics then, so the provider needs a wildcard.

use std::sync::Arc;

use events::{Durable, Provider, Start, StreamRequest, TopicUsage};
use graph::{AppliedDirective, ConstValue, FieldId, Supergraph, TypeId};

use crate::template::Template;
use crate::topics::Topics;

/// A topic with events that name stale objects.
#[derive(Clone)]
pub struct InvalidatingTopic {
    /// The provider of the topic.
    pub provider: Arc<dyn Provider>,
    /// The stream of all events of the topic that are published from now on. It has one topic.
    pub wanted: StreamRequest,
    /// The subscription field. Its type names the objects of events without a `__typename`, and
    /// [`crate::Bindings::payload_mapping`] finds the object in an event of another shape.
    pub field: FieldId,
    /// The coordinate of the field, such as `Subscription.orderMoved`.
    pub coordinate: Box<str>,
}

impl std::fmt::Debug for InvalidatingTopic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {:?}", self.coordinate, self.provider.name(), self.wanted)
    }
}

/// Reads the argument.
pub(crate) fn read_invalidate(directive: &AppliedDirective) -> Result<bool, String> {
    match directive.argument("invalidate") {
        None | Some(ConstValue::Null) => Ok(false),
        Some(ConstValue::Boolean(value)) => Ok(*value),
        Some(_) => Err("invalidate must be true or false".to_owned()),
    }
}

/// Returns the topics of a field with `invalidate: true`. Errors are added to `errors`.
pub(crate) fn invalidating_topics(
    graph: &Supergraph,
    field: FieldId,
    topics: &Topics,
    durable: Option<&Arc<Durable>>,
    errors: &mut Vec<String>,
) -> Vec<InvalidatingTopic> {
    let definition = graph.field(field);
    let ty = definition.ty.named();
    if !has_key(graph, ty) {
        errors.push(format!(
            "invalidate: {} has no key, so its events name no entity; use a type with a @key",
            graph.ty(ty).name
        ));
    }
    // The consumer of the subscription must not miss the events that this router reads here.
    let durable = durable.map(|it| Arc::new(Durable { consumer: None, ..Durable::clone(it) }));
    let mut all = Vec::with_capacity(topics.templates.len());
    for template in &topics.templates {
        match topic_of(topics, template, durable.as_deref()) {
            Ok(topic) => all.push(InvalidatingTopic {
                provider: Arc::clone(&topics.provider),
                wanted: StreamRequest {
                    topics: vec![topic],
                    start: Start::New,
                    durable: durable.clone(),
                    bounded: false,
                },
                field,
                coordinate: format!("{}.{}", graph.ty(definition.parent).name, definition.name)
                    .into(),
            }),
            Err(error) => errors.push(error),
        }
    }
    all
}

/// Returns the topic that matches all topics of a template.
fn topic_of(
    topics: &Topics,
    template: &Template,
    durable: Option<&Durable>,
) -> Result<Box<str>, String> {
    let provider = &topics.provider;
    if template.is_constant() {
        return Ok(template.render_with_placeholder("").into());
    }
    let shown = template.render_with_placeholder("{{…}}");
    let Some(wildcard) = provider.topic_wildcard(durable) else {
        return Err(format!(
            "invalidate: topic {shown:?} depends on arguments, and {} has no wildcards, so the router cannot follow \
             all of its topics; use a topic without placeholders",
            provider.name()
        ));
    };
    let topic = template.render_with_placeholder(wildcard);
    let separators = provider.topic_separators();
    let is_part = |token: &str| token.contains(wildcard) && token != wildcard;
    if !separators.is_empty() && (template.allows_tokens() || topic.split(separators).any(is_part))
    {
        return Err(format!(
            "invalidate: a placeholder of topic {shown:?} is not exactly one token, as a wildcard of {} is; put it \
             between separators ({separators:?}) and leave out `| tokens`",
            provider.name()
        ));
    }
    match provider.check_topic(&topic, TopicUsage::Subscribe) {
        Ok(()) => Ok(topic.into()),
        Err(reason) => Err(format!("invalidate: topic {topic:?}: {reason}")),
    }
}

/// True if objects of the type can be named by a key.
fn has_key(graph: &Supergraph, id: TypeId) -> bool {
    let ty = graph.ty(id);
    let possible: &[TypeId] = if ty.kind.is_abstract() { &ty.possible } else { &[] };
    let related = [id].into_iter().chain(ty.implements.iter().copied());
    related
        .chain(possible.iter().copied())
        .any(|id| graph.ty(id).subgraphs.iter().any(|it| !it.keys.is_empty()))
}
