//! `@openfed__subscriptionFilter(condition:)` of a field: read and checked when a graph is loaded, rendered for each
//! subscription.

use std::sync::Arc;

use execute::{ErrorCode, GraphqlError};
use graph::{ConstValue, Field, Supergraph, TypeKind, TypeRefShape};

use super::{Comparison, Condition, FieldPath, Filter, Key};
use crate::binding::template::{ArgumentPath, PlannedArguments, Scalar, Template};

/// Nesting of conditions. Other routers allow five.
const DEPTH_MAX: usize = 8;

/// Conditions of one field.
const CONDITIONS_MAX: usize = 64;

/// Values of one filter, lists in arguments expanded. An event is compared with the values that it may have only, so
/// this bounds memory, not time.
const VALUES_MAX: usize = 1_000;

/// A condition as it stands in the graph.
#[derive(Debug)]
pub(crate) struct ConditionTemplate(Node);

#[derive(Debug)]
enum Node {
    In(Arc<FieldPath>, Vec<ValueTemplate>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
}

#[derive(Debug)]
enum ValueTemplate {
    /// The same for everybody; `None` if the field never has that value.
    Constant(Option<Key>),
    /// `{{ args.id }}` and nothing else: the value of the argument, each of them if it is a list.
    Argument(ArgumentPath),
    /// Text with arguments in it.
    Text(Template),
}

impl ConditionTemplate {
    /// Reads the argument `condition` of the directive on `field`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn read(
        graph: &Supergraph,
        field: &Field,
        condition: Option<&ConstValue>,
    ) -> Result<Self, Vec<String>> {
        let mut reader = Reader { graph, field, conditions: 0, errors: Vec::new() };
        if matches!(field.ty.shape, TypeRefShape::List(_)) {
            return Err(vec!["events of a field that is a list cannot be filtered".to_owned()]);
        }
        let node = match condition {
            Some(condition) => reader.node(condition, 1),
            None => {
                reader.errors.push("condition is missing".to_owned());
                None
            }
        };
        match node {
            Some(node) if reader.errors.is_empty() => Ok(Self(node)),
            _ => Err(reader.errors),
        }
    }

    /// The filter of a subscription with these arguments.
    ///
    /// # Errors
    /// `BAD_USER_INPUT` for an argument that is no value to compare with, and for too many values.
    pub(crate) fn render(&self, arguments: &PlannedArguments<'_>) -> Result<Filter, GraphqlError> {
        let mut values = 0;
        render(&self.0, arguments, &mut values).map(Filter)
    }
}

struct Reader<'a> {
    graph: &'a Supergraph,
    field: &'a Field,
    conditions: usize,
    errors: Vec<String>,
}

impl Reader<'_> {
    fn node(&mut self, value: &ConstValue, depth: usize) -> Option<Node> {
        self.conditions += 1;
        if depth > DEPTH_MAX || self.conditions > CONDITIONS_MAX {
            let bounds = format!("{CONDITIONS_MAX} conditions, nested {DEPTH_MAX} deep");
            self.errors.push(format!("the condition is too large; at most {bounds}, are allowed"));
            return None;
        }
        let ConstValue::Object(members) = value else {
            self.errors.push("a condition must be an object".to_owned());
            return None;
        };
        let mut members = members.iter().filter(|(_, value)| *value != ConstValue::Null);
        let (Some((name, value)), None) = (members.next(), members.next()) else {
            self.errors.push("a condition has exactly one of IN, AND, OR and NOT".to_owned());
            return None;
        };
        match &**name {
            "IN" => self.field_condition(value),
            "NOT" => self.node(value, depth + 1).map(|it| Node::Not(Box::new(it))),
            "AND" => self.list(name, value, depth).map(Node::And),
            "OR" => self.list(name, value, depth).map(Node::Or),
            _ => {
                self.errors.push(format!("{name:?} is none of IN, AND, OR and NOT"));
                None
            }
        }
    }

    fn list(&mut self, name: &str, value: &ConstValue, depth: usize) -> Option<Vec<Node>> {
        let items = list_of(value);
        if items.is_empty() {
            self.errors.push(format!("{name} is empty"));
            return None;
        }
        let nodes: Vec<_> = items.iter().filter_map(|it| self.node(it, depth + 1)).collect();
        (nodes.len() == items.len()).then_some(nodes)
    }

    fn field_condition(&mut self, value: &ConstValue) -> Option<Node> {
        let ConstValue::Object(members) = value else {
            self.errors.push("IN must be an object with fieldPath and values".to_owned());
            return None;
        };
        let member = |wanted: &str| members.iter().find(|(name, _)| &**name == wanted);
        let known = ["fieldPath", "values"];
        for (name, _) in members.iter().filter(|(name, _)| !known.contains(&&**name)) {
            self.errors.push(format!("IN has no {name:?}; known are fieldPath and values"));
        }
        let Some((_, ConstValue::String(path))) = member("fieldPath") else {
            self.errors.push("fieldPath must be a string".to_owned());
            return None;
        };
        let comparison = match self.comparison(path) {
            Ok(comparison) => comparison,
            Err(error) => {
                self.errors.push(format!("fieldPath {path:?}: {error}"));
                return None;
            }
        };
        let values = member("values").map_or(&[][..], |(_, value)| list_of(value));
        if values.is_empty() {
            self.errors.push(format!("values for fieldPath {path:?} are missing"));
            return None;
        }
        let mut templates = Vec::new();
        for value in values {
            match self.value(value, comparison) {
                Ok(template) => templates.push(template),
                Err(error) => self.errors.push(format!("values for fieldPath {path:?}: {error}")),
            }
        }
        let names = path.split('.').map(Into::into).collect();
        Some(Node::In(Arc::new(FieldPath { names, comparison }), templates))
    }

    /// How the field at `path` below the event is compared.
    fn comparison(&self, path: &str) -> Result<Comparison, String> {
        let graph = self.graph;
        let mut parent = self.field.ty.named();
        let mut names = path.split('.').peekable();
        while let Some(name) = names.next() {
            let is_last = names.peek().is_none();
            if name == "__typename" && is_last {
                return Ok(Comparison::Text);
            }
            let Some(id) = graph.field_named(parent, name) else {
                return Err(format!("`{}` has no field `{name}`", graph.ty(parent).name));
            };
            let field = graph.field(id);
            if matches!(field.ty.shape, TypeRefShape::List(_)) {
                return Err(format!("`{name}` is a list"));
            }
            parent = field.ty.named();
            let ty = graph.ty(parent);
            let comparison = match (&ty.kind, &*ty.name) {
                (TypeKind::Scalar, "Int" | "Float") => Comparison::Number,
                (TypeKind::Scalar, "Boolean") => Comparison::Boolean,
                (TypeKind::Scalar | TypeKind::Enum(_), _) => Comparison::Text,
                _ if is_last => return Err(format!("`{name}` is an object; name a field of it")),
                _ => continue,
            };
            return match is_last {
                true => Ok(comparison),
                false => Err(format!("`{name}` is a {} and has no fields", ty.name)),
            };
        }
        Err("it is empty".to_owned())
    }

    fn value(&self, value: &ConstValue, comparison: Comparison) -> Result<ValueTemplate, String> {
        let text = match value {
            ConstValue::Null => return Ok(ValueTemplate::Constant(Some(Key::Null))),
            ConstValue::Int(text) | ConstValue::Float(text) | ConstValue::Enum(text) => text,
            ConstValue::Boolean(value) => {
                let key = comparison.key(if *value { "true" } else { "false" });
                return Ok(ValueTemplate::Constant(key));
            }
            ConstValue::String(text) => {
                let template = Template::parse(text)?;
                for path in template.paths() {
                    self.check_argument(path)?;
                }
                if let Some(path) = template.as_argument() {
                    return Ok(ValueTemplate::Argument(path.clone()));
                }
                if template.paths().next().is_some() {
                    return Ok(ValueTemplate::Text(template));
                }
                text
            }
            ConstValue::List(_) | ConstValue::Object(_) => {
                return Err("a value must be a string, a number or a boolean".to_owned());
            }
        };
        match comparison.key(text) {
            Some(key) => Ok(ValueTemplate::Constant(Some(key))),
            None => Err(format!("{text:?} is no value of the field")),
        }
    }

    fn check_argument(&self, path: &ArgumentPath) -> Result<(), String> {
        match self.field.arguments.iter().any(|it| it.name == path.argument) {
            true => Ok(()),
            false => Err(format!("there is no argument {:?}", path.argument)),
        }
    }
}

/// As everywhere in GraphQL, one value stands for a list of one.
fn list_of(value: &ConstValue) -> &[ConstValue] {
    match value {
        ConstValue::List(items) => items,
        ConstValue::Null => &[],
        one => std::slice::from_ref(one),
    }
}

fn render(
    node: &Node,
    arguments: &PlannedArguments<'_>,
    values: &mut usize,
) -> Result<Condition, GraphqlError> {
    let mut all = |nodes: &[Node]| -> Result<Box<[Condition]>, GraphqlError> {
        nodes.iter().map(|it| render(it, arguments, values)).collect()
    };
    Ok(match node {
        Node::And(nodes) => Condition::And(all(nodes)?),
        Node::Or(nodes) => Condition::Or(all(nodes)?),
        Node::Not(node) => Condition::Not(Box::new(render(node, arguments, values)?)),
        Node::In(path, templates) => {
            let mut keys = Vec::new();
            for template in templates {
                match template {
                    ValueTemplate::Constant(key) => keys.extend(key.clone()),
                    ValueTemplate::Argument(argument) => {
                        let scalars = arguments.scalars(argument).map_err(|reason| {
                            refused(&format!("Argument \"{argument}\" cannot be compared: {reason}."))
                        })?;
                        keys.extend(scalars.iter().filter_map(|scalar| match scalar {
                            Scalar::Null => Some(Key::Null),
                            Scalar::Text(text) => path.comparison.key(text),
                        }));
                    }
                    ValueTemplate::Text(template) => {
                        let text = template.text(arguments).map_err(|(argument, reason)| {
                            refused(&format!("Argument \"{argument}\" cannot be compared: {reason}."))
                        })?;
                        keys.extend(path.comparison.key(&text));
                    }
                }
            }
            *values += keys.len();
            if *values > VALUES_MAX {
                return Err(refused(&format!(
                    "The arguments name more than {VALUES_MAX} values to compare with."
                )));
            }
            Condition::In(Arc::clone(path), keys.into())
        }
    })
}

fn refused(message: &str) -> GraphqlError {
    GraphqlError::new(ErrorCode::BadUserInput, message.to_owned())
}
