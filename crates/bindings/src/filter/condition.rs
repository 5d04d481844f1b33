//! `@openfed__subscriptionFilter(condition:)` of a field: read and checked when a graph is loaded, and rendered for
//! each subscription.

use std::sync::Arc;

use execute::{ClaimPath, ErrorCode, GraphqlError};
use graph::{ConstValue, Field, Supergraph, TypeKind, TypeRefShape};

use super::{Comparison, FieldCondition, FieldPath, Filter, FilterValue};
use crate::PayloadMapping;
use crate::expression::{Expression, LeafSyntax, list_items, read_expression};
use crate::template::{ArgumentPath, Arguments, PlannedArguments, Scalar, Template};

/// The maximum number of values of one filter, lists in arguments expanded. An event is compared only with filters that
/// it may pass, so this bounds memory, not time.
const VALUES_MAX: usize = 1_000;

/// A condition as the graph declares it, with placeholders for arguments.
#[derive(Debug)]
pub(crate) struct ConditionTemplate {
    expression: Expression<FieldTemplate>,
    /// See [`Filter`].
    is_keyed: bool,
}

/// A condition on one field: it has one of the values.
#[derive(Debug)]
struct FieldTemplate {
    path: Arc<FieldPath>,
    values: Vec<ValueTemplate>,
    /// If all values are null, every event passes.
    bypass_if_null: bool,
}

#[derive(Debug)]
enum ValueTemplate {
    /// A value that is the same for all clients. `None` if the field never has that value.
    Constant(Option<FilterValue>),
    /// `{{ args.id }}` and nothing else: the value of the argument, or each element if it is a list.
    Argument(ArgumentPath),
    /// Text with placeholders for arguments.
    Text(Template),
}

impl ConditionTemplate {
    /// Reads the argument `condition` of the directive on `field`.
    ///
    /// # Errors
    /// All errors of the condition.
    pub(crate) fn read(
        graph: &Supergraph,
        field: &Field,
        payload: Option<&PayloadMapping>,
        condition: Option<&ConstValue>,
    ) -> Result<Self, Vec<String>> {
        if matches!(field.ty.shape, TypeRefShape::List(_)) {
            return Err(vec!["events of a field that is a list cannot be filtered".to_owned()]);
        }
        let condition = condition.ok_or_else(|| vec!["condition is missing".to_owned()])?;
        let expression = read_expression(&FieldSyntax { graph, field, payload }, condition)?;
        Ok(Self { expression, is_keyed: payload.is_some_and(PayloadMapping::has_key) })
    }

    /// Returns the claims that the condition reads.
    pub(crate) fn claims(&self) -> Vec<ClaimPath> {
        let mut paths = Vec::new();
        self.expression.for_each_leaf(&mut |field| {
            for value in &field.values {
                match value {
                    ValueTemplate::Constant(_) => {}
                    ValueTemplate::Argument(path) => paths.extend(path.claim.clone()),
                    ValueTemplate::Text(template) => paths.extend(template.claims().cloned()),
                }
            }
        });
        paths
    }

    /// Renders the filter of a subscription with these arguments.
    ///
    /// # Errors
    /// `BAD_USER_INPUT` for an argument that cannot be compared, and for too many values.
    pub(crate) fn render(&self, arguments: &PlannedArguments<'_>) -> Result<Filter, GraphqlError> {
        let mut values = 0;
        let condition = self.expression.try_map(&mut |field| {
            let keys = field.render(arguments)?;
            values += keys.len();
            if values > VALUES_MAX {
                return Err(refused(&format!(
                    "The arguments name more than {VALUES_MAX} values to compare with."
                )));
            }
            let is_null = !keys.is_empty() && keys.iter().all(|key| *key == FilterValue::Null);
            Ok(match field.bypass_if_null && is_null {
                // An empty conjunction: every event passes.
                true => Expression::And(Box::default()),
                false => {
                    let (path, keys) = (Arc::clone(&field.path), keys.into());
                    Expression::Leaf(FieldCondition { path, keys })
                }
            })
        })?;
        Ok(Filter { condition, is_keyed: self.is_keyed })
    }
}

impl FieldTemplate {
    /// Returns the keys of its values with these arguments.
    fn render(&self, arguments: &PlannedArguments<'_>) -> Result<Vec<FilterValue>, GraphqlError> {
        let incomparable = |argument: &ArgumentPath, reason: &str| {
            refused(&format!("Argument \"{argument}\" cannot be compared: {reason}."))
        };
        let comparison = self.path.comparison;
        let mut keys = Vec::new();
        for template in &self.values {
            match template {
                ValueTemplate::Constant(key) => keys.extend(key.clone()),
                ValueTemplate::Argument(argument) => {
                    let scalars = arguments
                        .scalars(argument)
                        .map_err(|reason| incomparable(argument, &reason))?;
                    keys.extend(scalars.iter().filter_map(|scalar| match scalar {
                        Scalar::Null => Some(FilterValue::Null),
                        Scalar::Text(text) => comparison.key(text),
                    }));
                }
                ValueTemplate::Text(template) => {
                    let text = template
                        .text(arguments)
                        .map_err(|(argument, reason)| incomparable(argument, reason.as_str()))?;
                    keys.extend(comparison.key(&text));
                }
            }
        }
        Ok(keys)
    }
}

/// The syntax of conditions on fields of an event.
struct FieldSyntax<'a> {
    graph: &'a Supergraph,
    field: &'a Field,
    /// The mapping from events to the field's value.
    payload: Option<&'a PayloadMapping>,
}

impl LeafSyntax for FieldSyntax<'_> {
    type Leaf = FieldTemplate;

    const OPERATORS: &'static [&'static str] = &["IN"];
    const QUALIFIER: Option<&'static str> = None;
    const ONE_OPERATOR: &'static str = "a condition has exactly one of IN, AND, OR and NOT";

    fn read_leaf(
        &self,
        _operator: &str,
        value: &ConstValue,
        _qualifier: Option<&ConstValue>,
        errors: &mut Vec<String>,
    ) -> Option<FieldTemplate> {
        let ConstValue::Object(members) = value else {
            errors.push("IN must be an object with fieldPath and values".to_owned());
            return None;
        };
        let member = |wanted: &str| members.iter().find(|(name, _)| &**name == wanted);
        let known = ["fieldPath", "values", "bypassIfValuesNull"];
        for (name, _) in members.iter().filter(|(name, _)| !known.contains(&&**name)) {
            errors.push(format!(
                "IN has no {name:?}; known are fieldPath, values and bypassIfValuesNull"
            ));
        }
        let Some((_, ConstValue::String(path))) = member("fieldPath") else {
            errors.push("fieldPath must be a string".to_owned());
            return None;
        };
        let comparison = match self.comparison(path) {
            Ok(comparison) => comparison,
            Err(error) => {
                errors.push(format!("fieldPath {path:?}: {error}"));
                return None;
            }
        };
        let values = member("values").map_or(&[][..], |(_, value)| list_items(value));
        if values.is_empty() {
            errors.push(format!("values for fieldPath {path:?} are missing"));
            return None;
        }
        let mut templates = Vec::new();
        for value in values {
            match self.value(value, comparison) {
                Ok(template) => templates.push(template),
                Err(error) => errors.push(format!("values for fieldPath {path:?}: {error}")),
            }
        }
        let bypass_if_null = match member("bypassIfValuesNull") {
            None | Some((_, ConstValue::Null | ConstValue::Boolean(false))) => false,
            Some((_, ConstValue::Boolean(true))) => true,
            Some(_) => {
                errors.push("bypassIfValuesNull must be true or false".to_owned());
                return None;
            }
        };
        let selected = self.payload.map_or(&[][..], PayloadMapping::selected).iter().cloned();
        let names = selected.chain(path.split('.').map(Into::into)).collect();
        let origin = self.payload.and_then(|it| it.origin(path)).cloned();
        let path = Arc::new(FieldPath { names, origin, comparison });
        Some(FieldTemplate { path, values: templates, bypass_if_null })
    }
}

impl FieldSyntax<'_> {
    /// Returns how values of the field at `path` of the event are compared.
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
            ConstValue::Null => return Ok(ValueTemplate::Constant(Some(FilterValue::Null))),
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
                if !template.is_constant() {
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

fn refused(message: &str) -> GraphqlError {
    GraphqlError::new(ErrorCode::BadUserInput, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::DEPTH_MAX;
    use crate::filter::FilteredEvent;
    use events::Event;
    use plan::{Value, VariableId, Variables};

    /// A supergraph with a field that has this condition.
    fn graph(condition: &str) -> Supergraph {
        let sdl = format!(
            r#"
            schema
              @link(url: "https://specs.apollo.dev/link/v1.0")
              @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
            {{ query: Query subscription: Subscription }}
            enum join__Graph {{
              EVENTS @join__graph(name: "events", url: "")
              ORDERS @join__graph(name: "orders", url: "http://orders")
            }}
            type Query @join__type(graph: ORDERS) {{ orders: [Order] }}
            type Order @join__type(graph: EVENTS, key: "id", resolvable: false) @join__type(graph: ORDERS, key: "id") {{
              id: ID!
              total: Float @join__field(graph: EVENTS)
              paid: Boolean @join__field(graph: EVENTS)
              buyer: Buyer @join__field(graph: EVENTS)
              tags: [String] @join__field(graph: EVENTS)
            }}
            type Buyer @join__type(graph: EVENTS) {{ name: String }}
            input Wanted @join__type(graph: EVENTS) {{ ids: [ID!] }}
            type Subscription @join__type(graph: EVENTS) {{
              moved(id: ID, ids: [ID!], total: Int, paid: Boolean, wanted: Wanted): Order
                @join__field(graph: EVENTS)
                @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {{topics: ["a"]}})
                @join__directive(graphs: [EVENTS], name: "openfed__subscriptionFilter", args: {{condition: {condition}}})
            }}
            "#
        );
        Supergraph::from_sdl(&sdl, "supergraph.graphql").unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn read(condition: &str) -> Result<ConditionTemplate, Vec<String>> {
        let graph = graph(condition);
        let subscription = graph.subscription.expect("a subscription type");
        let field = graph.field(graph.field_named(subscription, "moved").expect("its field"));
        let directives = &field.directives;
        let directive = directives.iter().find(|it| &*it.name == "openfed__subscriptionFilter");
        let condition = directive.expect("a filter").argument("condition");
        ConditionTemplate::read(&graph, field, None, condition)
    }

    fn render(condition: &str, arguments: Vec<(&str, Value)>) -> Result<Filter, String> {
        let arguments: Vec<_> =
            arguments.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let variables = Variables {
            values: vec![Some(r#"{"ids":["1",2]}"#.into()), Some("[3,\"4\"]".into()), None],
        };
        let planned = PlannedArguments {
            arguments: &arguments,
            variables: &variables,
            claims: &execute::ClaimValues::default(),
        };
        let condition = read(condition).expect("a valid condition");
        condition.render(&planned).map_err(|error| error.message.to_string())
    }

    /// Returns the indexes of the events that pass.
    fn passing(
        condition: &str,
        arguments: Vec<(&str, Value)>,
        events: &[&'static str],
    ) -> Vec<usize> {
        let filter = render(condition, arguments).expect("values to compare with");
        let passes = |event: &'static str| {
            let event = Arc::new(Event::new("t", event));
            FilteredEvent::read(&event).is_some_and(|event| filter.passes(&event))
        };
        (0..events.len()).filter(|&index| passes(events[index])).collect()
    }

    fn string(text: &str) -> Value {
        Value::String(text.into())
    }

    #[test]
    fn a_filter_with_null_values_can_be_bypassed() {
        let condition =
            r#"{IN: {fieldPath: "id", values: ["{{ args.id }}"], bypassIfValuesNull: true}}"#;
        let events = [r#"{"id":"1"}"#, r#"{"id":null}"#, "{}"];
        assert_eq!(passing(condition, vec![("id", Value::Null)], &events), [0, 1, 2]);
        assert_eq!(passing(condition, vec![], &events), [0, 1, 2]);
        assert_eq!(passing(condition, vec![("id", string("1"))], &events), [0]);
        let render = |value| render(condition, vec![("id", value)]).expect("values");
        assert!(render(Value::Null).passes_everything());
        assert!(!render(string("1")).passes_everything());
        let kept = condition.replace("true", "false");
        assert_eq!(passing(&kept, vec![("id", Value::Null)], &events), [1]);
        let unknown = condition.replace("true", "1");
        assert_eq!(
            read(&unknown).expect_err("a number"),
            ["bypassIfValuesNull must be true or false"]
        );
    }

    #[test]
    fn values_are_compared_by_the_type_of_the_field() {
        let id = r#"{IN: {fieldPath: "id", values: ["{{ args.id }}"]}}"#;
        let events =
            [r#"{"id":"7"}"#, r#"{"id":7}"#, r#"{"id":"07"}"#, r#"{"id":null}"#, "{}", "[]", "x"];
        assert_eq!(passing(id, vec![("id", string("7"))], &events), [0, 1]);
        assert_eq!(passing(id, vec![("id", Value::Int("7".into()))], &events), [0, 1]);
        assert_eq!(passing(id, vec![("id", Value::Null)], &events), [3]);
        assert_eq!(passing(id, vec![], &events), [3], "a missing argument is null");

        let total = r#"{IN: {fieldPath: "total", values: ["{{ args.total }}", 2.5, "3"]}}"#;
        let events = [
            r#"{"total":1}"#,
            r#"{"total":1.0}"#,
            r#"{"total":2.50}"#,
            r#"{"total":3}"#,
            r#"{"total":4}"#,
            r#"{"total":1e0}"#,
        ];
        let one = vec![("total", Value::Int("1".into()))];
        assert_eq!(passing(total, one, &events), [0, 1, 2, 3, 5]);

        let paid = r#"{IN: {fieldPath: "paid", values: ["{{ args.paid }}"]}}"#;
        let events = [r#"{"paid":true}"#, r#"{"paid":false}"#, r#"{"paid":1}"#];
        assert_eq!(passing(paid, vec![("paid", Value::Boolean(true))], &events), [0]);
    }

    #[test]
    fn a_list_stands_for_each_of_its_values() {
        let events = ["1", "2", "3", "4", "5"].map(|id| match id {
            "1" => r#"{"id":1}"#,
            "2" => r#"{"id":"2"}"#,
            "3" => r#"{"id":3}"#,
            "4" => r#"{"id":4}"#,
            _ => r#"{"id":5}"#,
        });
        let ids = r#"{IN: {fieldPath: "id", values: ["5", "{{ args.ids }}"]}}"#;
        let literal = Value::List(vec![string("1"), Value::Variable(VariableId(2))]);
        assert_eq!(passing(ids, vec![("ids", literal)], &events), [0, 4]);
        assert_eq!(passing(ids, vec![("ids", Value::Variable(VariableId(1)))], &events), [2, 3, 4]);
        let wanted = r#"{IN: {fieldPath: "id", values: ["{{ args.wanted.ids }}"]}}"#;
        let variable = Value::Variable(VariableId(0));
        assert_eq!(passing(wanted, vec![("wanted", variable)], &events), [0, 1]);
        let object = Value::Object(vec![("ids".into(), Value::List(vec![string("2")]))]);
        assert_eq!(passing(wanted, vec![("wanted", object)], &events), [1]);
    }

    #[test]
    fn conditions_nest_and_reach_into_objects_of_the_event() {
        let condition = r#"{AND: [
            {OR: [
                {IN: {fieldPath: "buyer.name", values: ["b-{{ args.id }}"]}},
                {IN: {fieldPath: "__typename", values: ["Gift"]}}
            ]},
            {NOT: {IN: {fieldPath: "paid", values: [true]}}}
        ]}"#;
        let events = [
            r#"{"buyer":{"name":"b-1"}}"#,
            r#"{"buyer":{"name":"b-1"},"paid":true}"#,
            r#"{"__typename":"Gift","buyer":null,"paid":false}"#,
            r#"{"__typename":"Order","buyer":{"name":"b-2"}}"#,
            r#"{"buyer":"b-1"}"#,
        ];
        assert_eq!(passing(condition, vec![("id", string("1"))], &events), [0, 2]);
    }

    #[test]
    fn an_invalid_condition_is_refused_with_the_reason() {
        let path = |path: &str| format!(r#"{{IN: {{fieldPath: "{path}", values: ["1"]}}}}"#);
        for (condition, error) in [
            ("1".to_owned(), "a condition must be an object"),
            ("{}".to_owned(), "a condition has exactly one of IN, AND, OR and NOT"),
            (
                format!("{{NOT: {}, OR: [{}]}}", path("id"), path("id")),
                "a condition has exactly one of IN, AND, OR and NOT",
            ),
            ("{XOR: []}".to_owned(), r#""XOR" is none of IN, AND, OR and NOT"#),
            ("{AND: []}".to_owned(), "AND is empty"),
            ("{IN: {fieldPath: 1}}".to_owned(), "fieldPath must be a string"),
            (path("tags"), r#"fieldPath "tags": `tags` is a list"#),
            (path("buyer"), r#"fieldPath "buyer": `buyer` is an object; name a field of it"#),
            (path("id.x"), r#"fieldPath "id.x": `id` is a ID and has no fields"#),
            (path("buyer.age"), r#"fieldPath "buyer.age": `Buyer` has no field `age`"#),
            (
                r#"{IN: {fieldPath: "id", values: ["{{ args.none }}"]}}"#.to_owned(),
                r#"values for fieldPath "id": there is no argument "none""#,
            ),
            (
                r#"{IN: {fieldPath: "total", values: ["much"]}}"#.to_owned(),
                r#"values for fieldPath "total": "much" is no value of the field"#,
            ),
        ] {
            assert_eq!(read(&condition).unwrap_err(), [error], "{condition}");
        }
        let deep = "{NOT: ".repeat(DEPTH_MAX) + &path("id") + &"}".repeat(DEPTH_MAX);
        assert!(read(&deep).unwrap_err()[0].starts_with("the condition is too large"));
    }

    #[test]
    fn an_argument_that_cannot_be_compared_or_has_too_many_values_is_refused() {
        let id = r#"{IN: {fieldPath: "id", values: ["{{ args.wanted }}", "{{ args.ids }}"]}}"#;
        let object = Value::Object(Vec::new());
        assert_eq!(
            render(id, vec![("wanted", object)]).unwrap_err(),
            "Argument \"wanted\" cannot be compared: it is an object."
        );
        let many = Value::List(vec![string("1"); VALUES_MAX + 1]);
        assert_eq!(
            render(id, vec![("ids", many)]).unwrap_err(),
            "The arguments name more than 1000 values to compare with."
        );
    }
}
