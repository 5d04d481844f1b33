//! Which topics the root fields of event subgraphs are bound to, as their directives say; `docs/events.md` has the table.
//! A directive's name and arguments are read in [`directive`] and [`start`], templates in [`template`].
//!
//! In `events__subscribe` and `events__publish`, `providerId` is `kind/id`, or a bare id that only one kind has.
//! That the directives stand on the right root fields is checked where the supergraph is read.

mod directive;
mod instant;
mod publisher;
mod start;
pub(crate) mod template;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use events::{Durable, Provider, Providers, Start, TopicUsage, Wanted};
use execute::{ErrorCode, GraphqlError};
use graph::{AppliedDirective, Field, FieldId, Supergraph, TypeKind};
use plan::{EventField, Variables};

pub use publisher::EventPublisher;

use crate::filter::condition::ConditionTemplate;
use crate::{Filter, Source};
use directive::{BindingDirective, Role};
use template::{Arguments, JsonArguments, PlannedArguments, RenderError, Template};

/// Topics that one subscription field may name. Each is a subscription at the broker.
const TOPICS_MAX: usize = 64;

/// Says which events of its source a subscription gets.
const FILTER: &str = "openfed__subscriptionFilter";

/// Something wrong with the binding of one field.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{coordinate} @{directive}: {message}")]
pub struct BindingError {
    /// `Subscription.orderMoved`
    pub coordinate: Box<str>,
    /// Without the `@`.
    pub directive: Box<str>,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// All bindings of one supergraph.
#[derive(Debug, Default)]
pub struct Bindings {
    subscribe: HashMap<FieldId, Binding>,
    filters: HashMap<FieldId, ConditionTemplate>,
    publish: HashMap<FieldId, Binding>,
}

/// One field's provider and topics; to publish there is exactly one topic.
struct Binding {
    provider: Arc<dyn Provider>,
    topics: Vec<Template>,
    /// Where what is subscribed to begins, and what it is read from.
    start: Start,
    durable: Option<Arc<Durable>>,
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.provider.name(), self.topics)
    }
}

impl Bindings {
    /// Reads the directives of all root fields.
    ///
    /// # Errors
    /// Everything that is wrong with them, in the order of the schema.
    pub fn load(graph: &Supergraph, providers: &Providers) -> Result<Self, Vec<BindingError>> {
        let mut bindings = Self::default();
        let mut errors = Vec::new();
        for root in [graph.mutation, graph.subscription].into_iter().flatten() {
            for &id in &graph.ty(root).fields {
                let field = graph.field(id);
                let mut bound = false;
                bindings.load_filter(graph, id, &mut errors);
                for directive in &field.directives {
                    let Some(kind) = BindingDirective::named(&directive.name) else { continue };
                    let result = if std::mem::replace(&mut bound, true) {
                        Err(vec!["a second binding of the same field is not supported".to_owned()])
                    } else {
                        Binding::load(graph, field, directive, kind, providers)
                    };
                    match (result, kind.role) {
                        (Ok(binding), Role::Subscribe) => {
                            bindings.subscribe.insert(id, binding);
                        }
                        (Ok(binding), Role::Publish) => {
                            bindings.publish.insert(id, binding);
                        }
                        (Err(messages), _) => {
                            let coordinate = format!("{}.{}", graph.ty(root).name, field.name);
                            errors.extend(messages.into_iter().map(|message| BindingError {
                                coordinate: coordinate.as_str().into(),
                                directive: kind.name.into(),
                                message,
                            }));
                        }
                    }
                }
            }
        }
        if errors.is_empty() { Ok(bindings) } else { Err(errors) }
    }

    /// Where the events of `field` come from, with these variables.
    ///
    /// # Errors
    /// `BAD_USER_INPUT` if an argument cannot stand in a topic: it is null, a list, an object or a fraction, or
    /// the provider has reason to refuse it (NATS: spaces, wildcards, empty tokens; Redis: pattern characters). `NOT_SUPPORTED`
    /// if the field is bound to no topic.
    pub fn source(
        &self,
        field: &EventField,
        variables: &Variables,
    ) -> Result<Source, GraphqlError> {
        let binding = self.subscribe.get(&field.field).ok_or_else(not_bound)?;
        let arguments = PlannedArguments { arguments: &field.arguments, variables };
        let topics = binding
            .topics
            .iter()
            .map(|template| binding.render(template, &arguments, TopicUsage::Subscribe))
            .collect::<Result<_, _>>()?;
        let (start, durable) = (binding.start.clone(), binding.durable.clone());
        Ok(Source::wanting(Arc::clone(&binding.provider), Wanted { topics, start, durable }))
    }

    /// Which events of its source a subscription to `field` gets, with these variables. `None`: all of them.
    ///
    /// # Errors
    /// `BAD_USER_INPUT` if an argument is no value to compare with, or names too many.
    pub fn filter(
        &self,
        field: &EventField,
        variables: &Variables,
    ) -> Result<Option<Arc<Filter>>, GraphqlError> {
        let Some(condition) = self.filters.get(&field.field) else { return Ok(None) };
        let arguments = PlannedArguments { arguments: &field.arguments, variables };
        condition.render(&arguments).map(|filter| Some(Arc::new(filter)))
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
                kind.is_some_and(|kind| kind.role == Role::Subscribe)
            };
            if !field.directives.iter().any(binds) {
                error("it filters the events of a topic; the field is bound to none".to_owned());
                continue;
            }
            if self.filters.contains_key(&id) {
                error("a second filter of the same field is not supported; use AND".to_owned());
                continue;
            }
            match ConditionTemplate::read(graph, field, directive.argument("condition")) {
                Ok(condition) => {
                    self.filters.insert(id, condition);
                }
                Err(messages) => messages.into_iter().for_each(&mut error),
            }
        }
    }

    /// Where `field` publishes to, with these arguments (JSON text of an object).
    fn target(
        &self,
        field: FieldId,
        arguments: &Bytes,
    ) -> Result<(&Arc<dyn Provider>, Box<str>), GraphqlError> {
        let binding = self.publish.get(&field).ok_or_else(not_bound)?;
        let template = binding.topics.first().ok_or_else(not_bound)?;
        let arguments = JsonArguments::parse(arguments).ok_or_else(|| {
            GraphqlError::new(
                ErrorCode::BadUserInput,
                "The arguments are nested too deep to publish.",
            )
        })?;
        let topic = binding.render(template, &arguments, TopicUsage::Publish)?;
        Ok((&binding.provider, topic))
    }
}

fn not_bound() -> GraphqlError {
    GraphqlError::new(ErrorCode::NotSupported, "This field is not bound to a topic.")
}

impl Binding {
    fn load(
        graph: &Supergraph,
        field: &Field,
        directive: &AppliedDirective,
        kind: &BindingDirective,
        providers: &Providers,
    ) -> Result<Self, Vec<String>> {
        let mut errors = kind.unknown_arguments(directive);
        let provider = kind.provider_id(directive).and_then(|id| {
            let provider = match kind.provider_kind {
                Some(kind) => providers.resolve_kind(kind, id),
                None => providers.resolve(id),
            };
            provider.map(Arc::clone).map_err(|error| error.to_string())
        });
        let provider = provider.map_err(|error| errors.push(error)).ok();
        let start = start::start(directive).map_err(|error| errors.push(error));
        let durable = start::durable(directive).map_err(|error| errors.push(error));
        if let (Some(provider), Ok(start), Ok(durable)) = (&provider, &start, &durable)
            && *start != Start::New
            && !provider.replays(durable.as_deref())
        {
            errors.push(format!(
                "{} passes events on and stores none, so that nothing can begin in the past; \
                 where the broker stores them, name that by stream: {{…}}",
                provider.name()
            ));
        }

        let usage = match kind.role {
            Role::Subscribe => TopicUsage::Subscribe,
            Role::Publish => TopicUsage::Publish,
        };
        let topics = kind
            .topics(directive, TOPICS_MAX)
            .map_err(|error| errors.push(error))
            .unwrap_or_default();
        let mut templates = Vec::new();
        for topic in topics {
            let template = match Template::parse(topic) {
                Ok(template) => template,
                Err(error) => {
                    errors.push(format!("topic {topic:?}: {error}"));
                    continue;
                }
            };
            for path in template.paths() {
                if let Err(error) = check_argument(graph, field, path) {
                    errors.push(format!("topic {topic:?}: {error}"));
                }
            }
            // A letter is a value that every provider takes, so what is refused is the text around it.
            let sample = template.with_every_argument("x");
            if let Some(Err(reason)) =
                provider.as_ref().map(|provider| provider.check_topic(&sample, usage))
            {
                errors.push(format!("topic {topic:?}: {reason}"));
            }
            templates.push(template);
        }
        match (provider, start, durable) {
            (Some(provider), Ok(start), Ok(durable)) if errors.is_empty() => {
                Ok(Self { provider, topics: templates, start, durable })
            }
            _ => Err(errors),
        }
    }

    fn render(
        &self,
        template: &Template,
        arguments: &dyn Arguments,
        usage: TopicUsage,
    ) -> Result<Box<str>, GraphqlError> {
        template
            .render(arguments, |value, at_start| self.provider.check_topic_value(value, at_start))
            .and_then(|topic| match self.provider.check_topic(&topic, usage) {
                Ok(()) => Ok(topic),
                Err(reason) => Err(RenderError::Topic { reason }),
            })
            .map_err(|error| {
                let message = match error {
                    RenderError::Value { path, reason } => {
                        format!("Argument \"{path}\" cannot be part of a topic: {reason}.")
                    }
                    RenderError::Topic { reason } => {
                        format!("The arguments make no topic: {reason}.")
                    }
                };
                GraphqlError::new(ErrorCode::BadUserInput, message)
            })
    }
}

/// Does the field have that argument, and can its value ever be a word?
fn check_argument(
    graph: &Supergraph,
    field: &Field,
    path: &template::ArgumentPath,
) -> Result<(), String> {
    let Some(argument) = field.arguments.iter().find(|it| it.name == path.argument) else {
        let names: Vec<_> = field.arguments.iter().map(|it| &*it.name).collect();
        return Err(if names.is_empty() {
            format!("there is no argument {:?}; the field has none", path.argument)
        } else {
            format!("there is no argument {:?}; the field has {}", path.argument, names.join(", "))
        });
    };
    let named = argument.ty.trim_matches(['[', ']', '!']);
    let is_object = graph
        .type_named(named)
        .is_some_and(|id| matches!(graph.ty(id).kind, TypeKind::InputObject));
    let problem = if argument.ty.starts_with('[') {
        "a list, which cannot stand in a topic"
    } else if is_object && path.members.is_empty() {
        "an input object; name one of its fields"
    } else if !is_object && !path.members.is_empty() && is_builtin_scalar(named) {
        "no input object and has no fields"
    } else {
        return Ok(());
    };
    Err(format!("argument {:?} is {problem}", path.argument))
}

/// Custom scalars may hold objects.
fn is_builtin_scalar(name: &str) -> bool {
    matches!(name, "Int" | "Float" | "String" | "Boolean" | "ID")
}
