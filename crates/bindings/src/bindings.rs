//! All bindings of one supergraph. `docs/events/directives.md` explains the directives. [`crate::directive`] and
//! [`crate::start`] read a directive's name and arguments, [`crate::topics`] and [`crate::template`] its topics,
//! [`crate::payload_mapping`] the mapping of payloads, [`crate::message`] the messages that are sent,
//! [`crate::filter`] the filter, [`crate::authorization`] the condition on claims, and [`crate::invalidation`] the
//! topics that say what is stale.
//!
//! In `events__subscribe` and `events__publish`, `providerId` is `kind/id`, or a bare id that only one kind has.
//! The reader of the supergraph has checked that the directives are on the right root fields.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use events::{Durable, Message, Provider, Providers, Start, StreamRequest, TopicUse};
use execute::{ClaimPath, ClaimValues, Claims, ErrorCode, GraphqlError};
use graph::{AppliedDirective, EventRole, FieldId, Supergraph};
use plan::{EventField, FetchKind, Plan, Variables};

use crate::authorization::Authorization;
use crate::directive::BindingDirective;
use crate::filter::condition::ConditionTemplate;
use crate::message::MessageTemplate;
use crate::template::{JsonArguments, PlannedArguments, Template};
use crate::topics::Topics;
use crate::{Filter, InvalidatingTopic, PayloadMapping, Source, invalidation, start};

/// The directive that filters the events of a subscription.
const FILTER: &str = "openfed__subscriptionFilter";

/// An error in the binding of one field.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{coordinate} @{directive}: {message}")]
pub struct BindingError {
    /// The coordinate of the field, such as `Subscription.orderMoved`.
    pub coordinate: Box<str>,
    /// The name of the directive without the `@`.
    pub directive: Box<str>,
    /// The error, and how to correct it.
    pub message: String,
}

/// All bindings of one supergraph.
#[derive(Debug, Default)]
pub struct Bindings {
    subscribe: HashMap<FieldId, SubscribeBinding>,
    filters: HashMap<FieldId, ConditionTemplate>,
    /// The bindings of fields that publish events or send requests.
    send: HashMap<FieldId, SendBinding>,
    /// The topics of fields with `invalidate: true`, in the order of the schema.
    invalidating: Vec<InvalidatingTopic>,
}

/// One topic that a field is bound to.
pub struct BoundTopic {
    /// The provider of the topic.
    pub provider: Arc<dyn Provider>,
    /// The coordinate of the field, such as `Subscription.orderMoved`.
    pub coordinate: Box<str>,
    /// `subscribe`, `publish` or `request`.
    pub what: &'static str,
    /// The topic to show to operators, with `{{…}}` for each argument.
    pub shown: Box<str>,
    /// The use of the topic, to be checked at the provider. `None` if the topic depends on arguments.
    pub usage: Option<TopicUse>,
}

/// The binding of a subscription field to the topics that it listens to.
#[derive(Debug)]
struct SubscribeBinding {
    /// The coordinate of the field, such as `Subscription.orderMoved`.
    coordinate: Arc<str>,
    topics: Topics,
    start: Start,
    durable: Option<Arc<Durable>>,
    bounded: bool,
    payload: Option<Arc<PayloadMapping>>,
    authorization: Option<Authorization>,
    /// The claims that its authorization, topics and filter read.
    claims: Vec<ClaimPath>,
}

/// The binding of a field that sends. It has exactly one topic.
#[derive(Debug)]
struct SendBinding {
    topics: Topics,
    role: EventRole,
    message: MessageTemplate,
    /// The mapping of a response to the field's value.
    payload: Option<PayloadMapping>,
    authorization: Option<Authorization>,
    /// The claims that its authorization, topic and message read.
    claims: Vec<ClaimPath>,
}

/// A message that a field is about to send.
pub(crate) struct OutgoingMessage<'a> {
    pub(crate) provider: &'a Arc<dyn Provider>,
    pub(crate) message: Message,
    pub(crate) timeout: Option<Duration>,
    pub(crate) payload: Option<&'a PayloadMapping>,
}

/// One of the two kinds of bindings.
enum Binding {
    Subscribe(SubscribeBinding, Vec<InvalidatingTopic>),
    Send(SendBinding),
}

impl Bindings {
    /// Reads the directives of all root fields.
    ///
    /// # Errors
    /// All errors in the directives, in the order of the schema.
    pub fn load(graph: &Supergraph, providers: &Providers) -> Result<Self, Vec<BindingError>> {
        let mut bindings = Self::default();
        let mut errors = Vec::new();
        let roots = [Some(graph.query), graph.mutation, graph.subscription];
        for root in roots.into_iter().flatten() {
            for &id in &graph.ty(root).fields {
                let field = graph.field(id);
                let mut bound = false;
                for directive in &field.directives {
                    let Some(kind) = BindingDirective::named(&directive.name) else { continue };
                    let result = if std::mem::replace(&mut bound, true) {
                        Err(vec!["a second binding of the same field is not supported".to_owned()])
                    } else {
                        Binding::load(graph, id, directive, kind, providers)
                    };
                    match result {
                        Ok(Binding::Subscribe(binding, invalidating)) => {
                            bindings.subscribe.insert(id, binding);
                            bindings.invalidating.extend(invalidating);
                        }
                        Ok(Binding::Send(binding)) => {
                            bindings.send.insert(id, binding);
                        }
                        Err(messages) => {
                            let coordinate = format!("{}.{}", graph.ty(root).name, field.name);
                            errors.extend(messages.into_iter().map(|message| BindingError {
                                coordinate: coordinate.as_str().into(),
                                directive: kind.name.into(),
                                message,
                            }));
                        }
                    }
                }
                bindings.load_filter(graph, id, &mut errors);
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let subscribe = bindings.subscribe.values().map(|it| &it.topics);
        subscribe.chain(bindings.send.values().map(|it| &it.topics)).for_each(Topics::register);
        Ok(bindings)
    }

    /// Returns the coordinate of the field, such as `Subscription.orderMoved`. Cursors are valid for that field only.
    /// `None` if it is bound to no topic.
    pub fn coordinate(&self, field: FieldId) -> Option<Arc<str>> {
        self.subscribe.get(&field).map(|it| Arc::clone(&it.coordinate))
    }

    /// Returns the claims that decide whether a subscription to `field` is allowed, and which events it gets.
    pub fn claims(&self, field: FieldId) -> &[ClaimPath] {
        self.subscribe.get(&field).map_or(&[], |it| &it.claims)
    }

    /// Returns the claims that any field reads, some of them several times.
    pub fn all_claims(&self) -> impl Iterator<Item = &ClaimPath> {
        let subscribe = self.subscribe.values().flat_map(|it| &it.claims);
        subscribe.chain(self.send.values().flat_map(|it| &it.claims))
    }

    /// Checks that a client with these claims is allowed to subscribe to `field` with these variables.
    ///
    /// # Errors
    /// `FORBIDDEN`
    pub fn authorize(
        &self,
        field: &EventField,
        variables: &Variables,
        claims: &ClaimValues,
    ) -> Result<(), GraphqlError> {
        let binding = self.subscribe.get(&field.field);
        let Some(authorization) = binding.and_then(|it| it.authorization.as_ref()) else {
            return Ok(());
        };
        let arguments = PlannedArguments { arguments: &field.arguments, variables, claims };
        if authorization.allows(claims, &arguments) { Ok(()) } else { Err(forbidden()) }
    }

    /// Checks an operation with a single root field that publishes or sends a request: fails if the field is forbidden
    /// to a client with these claims. The whole request then fails, so that HTTP can respond with 403. Forbidden fields
    /// among others fail on their own, during execution.
    ///
    /// # Errors
    /// `FORBIDDEN`
    pub fn authorize_single_root(
        &self,
        plan: &Plan,
        variables: &Variables,
        claims: Option<&Claims>,
    ) -> Result<(), GraphqlError> {
        let roots = plan.fetches.iter().filter(|it| it.depends_on.is_empty());
        let mut roots = roots.filter(|it| it.any_of.is_empty());
        let (Some(root), None) = (roots.next(), roots.next()) else { return Ok(()) };
        let (FetchKind::Publish(field) | FetchKind::Request(field)) = &root.kind else {
            return Ok(());
        };
        let Some(binding) = self.send.get(&field.field) else { return Ok(()) };
        let Some(authorization) = &binding.authorization else { return Ok(()) };
        let claims = &Claims::select(claims, &binding.claims);
        let arguments = PlannedArguments { arguments: &field.arguments, variables, claims };
        if authorization.allows(claims, &arguments) { Ok(()) } else { Err(forbidden()) }
    }

    /// True if claims decide about the messages that an operation sends. Its result must then not be shared between
    /// clients.
    pub fn depends_on_claims(&self, plan: &Plan) -> bool {
        plan.fetches.iter().any(|fetch| match &fetch.kind {
            FetchKind::Publish(field) | FetchKind::Request(field) => {
                self.send.get(&field.field).is_some_and(|it| !it.claims.is_empty())
            }
            _ => false,
        })
    }

    /// Returns the source of the events of `field`, with these variables and the values of its [`Bindings::claims`].
    ///
    /// # Errors
    /// `BAD_USER_INPUT` if an argument cannot be part of a topic: it is null, an object, a fraction or too long a list,
    /// it contains a separator, or the provider refuses it (NATS: spaces, wildcards, empty tokens; Redis: pattern
    /// characters). `NOT_SUPPORTED` if the field is bound to no topic.
    pub fn source(
        &self,
        field: &EventField,
        variables: &Variables,
        claims: &ClaimValues,
    ) -> Result<Source, GraphqlError> {
        let binding = self.subscribe.get(&field.field).ok_or_else(not_bound)?;
        let arguments = PlannedArguments { arguments: &field.arguments, variables, claims };
        let topics = binding.topics.render(&arguments)?;
        let (start, durable) = (binding.start.clone(), binding.durable.clone());
        let provider = Arc::clone(&binding.topics.provider);
        let bounded = binding.bounded;
        Ok(Source::with_wanted(provider, StreamRequest { topics, start, durable, bounded }))
    }

    /// Returns all topics in the order of the schema, for checks at their brokers.
    pub fn bound_topics(&self, graph: &Supergraph) -> Vec<BoundTopic> {
        let mut topics = Vec::new();
        let roots = [Some(graph.query), graph.mutation, graph.subscription];
        for &id in roots.into_iter().flatten().flat_map(|root| &graph.ty(root).fields) {
            let field = graph.field(id);
            let coordinate = format!("{}.{}", graph.ty(field.parent).name, field.name);
            let bound = |topics: &Topics, what, durable: Option<Arc<Durable>>| {
                let template = |template: &Template| {
                    // Arguments decide about the topic, so a topic with placeholders cannot be checked here.
                    let is_fixed = template.paths().next().is_none();
                    let shown: Box<str> = template.render_with_placeholder("{{…}}").into();
                    let usage = is_fixed.then(|| TopicUse {
                        topic: shown.clone(),
                        usage: topics.usage,
                        durable: durable.clone(),
                    });
                    let provider = Arc::clone(&topics.provider);
                    BoundTopic {
                        provider,
                        coordinate: coordinate.as_str().into(),
                        what,
                        shown,
                        usage,
                    }
                };
                topics.templates.iter().map(template).collect::<Vec<_>>()
            };
            if let Some(it) = self.subscribe.get(&id) {
                topics.extend(bound(&it.topics, "subscribe", it.durable.clone()));
            }
            if let Some(it) = self.send.get(&id) {
                let what = if it.role == EventRole::Request { "request" } else { "publish" };
                topics.extend(bound(&it.topics, what, it.message.is_stored().then(Arc::default)));
            }
        }
        topics
    }

    /// Returns the topics with events that make entries of the caches stale (`invalidate: true`), in the order of the
    /// schema.
    pub fn invalidating_topics(&self) -> &[InvalidatingTopic] {
        &self.invalidating
    }

    /// Returns the mapping from payloads of the source to the value of `field`. `None` if payloads are used as they
    /// are.
    pub fn payload_mapping(&self, field: FieldId) -> Option<Arc<PayloadMapping>> {
        self.subscribe.get(&field).and_then(|it| it.payload.clone())
    }

    /// Returns the filter of a subscription to `field` with these variables. `None` if it gets all events.
    ///
    /// # Errors
    /// `BAD_USER_INPUT` if an argument cannot be compared, or names too many values.
    pub fn filter(
        &self,
        field: &EventField,
        variables: &Variables,
        claims: &ClaimValues,
    ) -> Result<Option<Arc<Filter>>, GraphqlError> {
        let Some(condition) = self.filters.get(&field.field) else { return Ok(None) };
        let arguments = PlannedArguments { arguments: &field.arguments, variables, claims };
        let filter = condition.render(&arguments)?;
        Ok((!filter.passes_everything()).then(|| Arc::new(filter)))
    }

    fn load_filter(&mut self, graph: &Supergraph, id: FieldId, errors: &mut Vec<BindingError>) {
        let field = graph.field(id);
        let coordinate = format!("{}.{}", graph.ty(field.parent).name, field.name);
        let mut error = |message| {
            errors.push(BindingError {
                coordinate: coordinate.as_str().into(),
                directive: FILTER.into(),
                message,
            });
        };
        for directive in field.directives.iter().filter(|it| &*it.name == FILTER) {
            let binds = |it: &AppliedDirective| {
                let kind = BindingDirective::named(&it.name);
                kind.is_some_and(|kind| kind.role == EventRole::Subscribe)
            };
            if !field.directives.iter().any(binds) {
                error(
                    "it filters the events of a topic, but the field is bound to no topic"
                        .to_owned(),
                );
                continue;
            }
            if self.filters.contains_key(&id) {
                error("a second filter of the same field is not supported; use AND".to_owned());
                continue;
            }
            let payload = self.subscribe.get(&id).and_then(|it| it.payload.as_deref());
            let condition = directive.argument("condition");
            match ConditionTemplate::read(graph, field, payload, condition) {
                Ok(condition) => {
                    if let Some(binding) = self.subscribe.get_mut(&id) {
                        binding.claims.extend(condition.claims());
                    }
                    self.filters.insert(id, condition);
                }
                Err(messages) => messages.into_iter().for_each(&mut error),
            }
        }
    }

    /// Returns the message that `field` sends with these arguments (JSON text of an object).
    pub(crate) fn outgoing(
        &self,
        field: FieldId,
        role: EventRole,
        arguments: &Bytes,
        claims: Option<&Claims>,
    ) -> Result<OutgoingMessage<'_>, GraphqlError> {
        let binding = self.send.get(&field).filter(|it| it.role == role).ok_or_else(not_bound)?;
        let claims = Claims::select(claims, &binding.claims);
        let read = JsonArguments::parse(arguments, claims.clone()).ok_or_else(|| {
            GraphqlError::new(
                ErrorCode::BadUserInput,
                "The arguments are nested too deep to publish.",
            )
        })?;
        if binding.authorization.as_ref().is_some_and(|it| !it.allows(&claims, &read)) {
            return Err(forbidden());
        }
        let (topic, name) = binding.topics.render_one(&read)?.ok_or_else(not_bound)?;
        let message = binding.message.render(topic, &read, arguments.clone())?;
        Ok(OutgoingMessage {
            provider: &binding.topics.provider,
            message: Message { schema_topic: Some(name), ..message },
            timeout: binding.message.timeout,
            payload: binding.payload.as_ref(),
        })
    }
}

fn forbidden() -> GraphqlError {
    let message = "This field is not allowed to this client, with these arguments.";
    GraphqlError::new(ErrorCode::Forbidden, message)
}

fn not_bound() -> GraphqlError {
    GraphqlError::new(ErrorCode::NotSupported, "This field is not bound to a topic.")
}

impl Binding {
    fn load(
        graph: &Supergraph,
        id: FieldId,
        directive: &AppliedDirective,
        kind: &BindingDirective,
        providers: &Providers,
    ) -> Result<Self, Vec<String>> {
        let field = graph.field(id);
        let mut errors = kind.unknown_arguments(directive);
        let topics = Topics::load(graph, field, directive, kind, providers, &mut errors);
        let payload = PayloadMapping::read(graph, field, directive);
        let payload = payload.map_err(|error| errors.push(error));
        let authorization = Authorization::read(field, directive);
        let authorization = authorization.map_err(|them| errors.extend(them)).unwrap_or_default();
        let mut claims = authorization.as_ref().map(Authorization::claims).unwrap_or_default();
        claims
            .extend(topics.iter().flat_map(|it| &it.templates).flat_map(Template::claims).cloned());
        if kind.role != EventRole::Subscribe {
            let message = MessageTemplate::read(field, directive);
            let message = message.map_err(|error| errors.push(error));
            if let (Some(topics), Ok(message)) = (&topics, &message) {
                for name in message.header_names() {
                    if let Err(reason) = topics.provider.check_header(name) {
                        errors.push(format!("headers: {name:?} cannot be sent: {reason}"));
                    }
                }
            }
            return match (topics, message, payload) {
                (Some(topics), Ok(message), Ok(payload)) if errors.is_empty() => {
                    claims.extend(message.claims().cloned());
                    let role = kind.role;
                    Ok(Self::Send(SendBinding {
                        topics,
                        role,
                        message,
                        payload,
                        authorization,
                        claims,
                    }))
                }
                _ => Err(errors),
            };
        }
        let start = start::read_start(directive).map_err(|error| errors.push(error));
        let durable = start::read_durable(directive).map_err(|error| errors.push(error));
        if let (Some(topics), Ok(start), Ok(durable)) = (&topics, &start, &durable)
            && *start != Start::New
            && !topics.provider.replays(durable.as_deref())
        {
            errors.push(format!(
                "{} forwards events without storing them, so a stream cannot begin in the past; \
                 if the broker stores the events, name its stream by stream: {{…}}",
                topics.provider.name()
            ));
        }
        let bounded = start::read_until(directive).map_err(|error| errors.push(error));
        if let (Some(topics), Ok(true), Ok(durable)) = (&topics, &bounded, &durable)
            && !topics.provider.has_bounded_streams(durable.as_deref())
        {
            errors.push(format!(
                "until: {} does not know where its events end; JetStream does: name its stream by stream: {{…}}",
                topics.provider.name()
            ));
        }
        let invalidating = match invalidation::read_invalidate(directive) {
            Err(error) => {
                errors.push(error);
                Vec::new()
            }
            Ok(true) => match (&topics, &durable) {
                (Some(topics), Ok(durable)) => invalidation::invalidating_topics(
                    graph,
                    id,
                    topics,
                    durable.as_ref(),
                    &mut errors,
                ),
                _ => Vec::new(),
            },
            Ok(false) => Vec::new(),
        };
        match graph.initial(id, directive) {
            Err(error) => errors.push(error),
            Ok(Some(_)) if start.as_ref().is_ok_and(|start| *start != Start::New) => errors.push(
                "initial fetches the state before the next published event; a stream that begins in the past \
                 delivers that state by its events"
                    .to_owned(),
            ),
            Ok(_) => {}
        }
        match (topics, start, durable, bounded, payload) {
            (Some(topics), Ok(start), Ok(durable), Ok(bounded), Ok(payload))
                if errors.is_empty() =>
            {
                let payload = payload.map(Arc::new);
                let coordinate = format!("{}.{}", graph.ty(field.parent).name, field.name);
                let binding = SubscribeBinding {
                    coordinate: coordinate.into(),
                    topics,
                    start,
                    durable,
                    bounded,
                    payload,
                    authorization,
                    claims,
                };
                Ok(Self::Subscribe(binding, invalidating))
            }
            _ => Err(errors),
        }
    }
}
