//! The provider and the topics of one binding: templates that are checked when a graph is loaded, and rendered with the
//! arguments and claims of each subscription or publication.

use std::sync::Arc;

use events::{Provider, Providers, SchemaTopic, TopicUsage};
use execute::{ErrorCode, GraphqlError};
use graph::{AppliedDirective, EventRole, Field, Supergraph, TypeKind};

use crate::directive::BindingDirective;
use crate::template::{ArgumentPath, Arguments, Template, TemplateError};

/// A topic, and its name in the schema.
type RenderedTopic = (Box<str>, Arc<SchemaTopic>);

/// The maximum number of topics of one subscription field. Each is a subscription at the broker.
const TOPICS_MAX: usize = 64;

/// The maximum number of topics of one subscription, lists in arguments expanded: the work that one client can cause at
/// a broker at once.
const RENDERED_TOPICS_MAX: usize = 256;

/// A provider and templates of its topics.
pub(crate) struct Topics {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) templates: Vec<Template>,
    /// The names of the templates, in the same order.
    names: Vec<Arc<SchemaTopic>>,
    pub(crate) usage: TopicUsage,
}

impl std::fmt::Debug for Topics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.provider.name(), self.templates)
    }
}

impl Topics {
    /// Reads the provider and the topics of a directive. `None` if the provider is unknown. Errors are added to
    /// `errors`.
    pub(crate) fn load(
        graph: &Supergraph,
        field: &Field,
        directive: &AppliedDirective,
        kind: &BindingDirective,
        providers: &Providers,
        errors: &mut Vec<String>,
    ) -> Option<Self> {
        let provider = kind.provider_id(directive).and_then(|id| {
            let provider = match kind.provider_kind {
                Some(kind) => providers.resolve_kind(kind, id),
                None => providers.resolve(id),
            };
            provider.map(Arc::clone).map_err(|error| error.to_string())
        });
        let provider = provider.map_err(|error| errors.push(error)).ok();
        let usage = match kind.role {
            EventRole::Subscribe => TopicUsage::Subscribe,
            EventRole::Publish | EventRole::Request => TopicUsage::Publish,
        };
        let topics = kind
            .topics(directive, TOPICS_MAX)
            .map_err(|error| errors.push(error))
            .unwrap_or_default();
        let mut templates = Vec::new();
        let separators = provider.as_ref().map_or(&[][..], |it| it.topic_separators());
        for topic in topics {
            let template = match Template::parse_topic(topic, separators) {
                Ok(template) => template,
                Err(error) => {
                    errors.push(format!("topic {topic:?}: {error}"));
                    continue;
                }
            };
            for path in template.paths() {
                if let Err(error) = check_argument(graph, field, path, usage) {
                    errors.push(format!("topic {topic:?}: {error}"));
                }
            }
            // Every provider accepts a letter as a value, so only the text around it can be refused here.
            let sample = template.render_with_placeholder("x");
            if let Some(Err(reason)) =
                provider.as_ref().map(|provider| provider.check_topic(&sample, usage))
            {
                errors.push(format!("topic {topic:?}: {reason}"));
            }
            templates.push(template);
        }
        let name_of = |template: &Template| {
            let name = template.name().into_boxed_str();
            Arc::new(SchemaTopic { name, has_placeholders: !template.is_constant() })
        };
        let names = templates.iter().map(name_of).collect();
        Some(Self { provider: provider?, templates, names, usage })
    }

    /// Registers the topics at the provider. Its metrics show them in place of rendered ones.
    pub(crate) fn register(&self) {
        for (template, name) in self.templates.iter().zip(&self.names) {
            self.provider.stats().register_topic(&name.name, &template.texts());
        }
    }

    /// Renders the only topic of a field that sends, and returns it with its name in the schema.
    pub(crate) fn render_one(
        &self,
        arguments: &dyn Arguments,
    ) -> Result<Option<RenderedTopic>, GraphqlError> {
        let topic = self.render(arguments)?.into_iter().next();
        Ok(topic.zip(self.names.first().cloned()))
    }

    /// Renders the topics for these arguments: at least one.
    pub(crate) fn render(&self, arguments: &dyn Arguments) -> Result<Vec<Box<str>>, GraphqlError> {
        let refused = |error| {
            let message = match error {
                TemplateError::Value { path, reason, is_claim: true } => {
                    let message =
                        format!("This field needs \"{path}\" of a token for its topic: {reason}.");
                    return GraphqlError::new(ErrorCode::Forbidden, message);
                }
                TemplateError::Value { path, reason, is_claim: false } => {
                    format!("Argument \"{path}\" cannot be part of a topic: {reason}.")
                }
                TemplateError::Topic { reason } => {
                    format!("The arguments make no topic: {reason}.")
                }
                TemplateError::TooMany => {
                    format!("The arguments name more than {RENDERED_TOPICS_MAX} topics.")
                }
            };
            GraphqlError::new(ErrorCode::BadUserInput, message)
        };
        let check_value = |value: &str, at_start| self.provider.check_topic_value(value, at_start);
        let mut topics = Vec::with_capacity(self.templates.len());
        for template in &self.templates {
            let left = RENDERED_TOPICS_MAX - topics.len();
            topics.extend(template.render(arguments, left, check_value).map_err(refused)?);
        }
        for topic in &topics {
            self.provider
                .check_topic(topic, self.usage)
                .map_err(|reason| refused(TemplateError::Topic { reason }))?;
        }
        Ok(topics)
    }
}

/// Checks that the field has that argument, and that values of its type can be part of a topic.
fn check_argument(
    graph: &Supergraph,
    field: &Field,
    path: &ArgumentPath,
    usage: TopicUsage,
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
    let is_list = argument.ty.starts_with('[');
    let problem = if is_list && usage == TopicUsage::Publish {
        "a list, and an event is published to one topic"
    } else if argument.ty.starts_with("[[") {
        "a list of lists, which cannot stand in a topic"
    } else if is_list && (is_object || named == "Float") {
        "a list of values that cannot stand in a topic"
    } else if is_object && path.members.is_empty() {
        "an input object; name one of its fields"
    } else if !is_object && !path.members.is_empty() && is_builtin_scalar(named) {
        "no input object and has no fields"
    } else {
        return Ok(());
    };
    Err(format!("argument {:?} is {problem}", path.argument))
}

/// True for scalars that GraphQL defines. Custom scalars may contain objects.
fn is_builtin_scalar(name: &str) -> bool {
    matches!(name, "Int" | "Float" | "String" | "Boolean" | "ID")
}
