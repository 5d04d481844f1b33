//! The mapping of events that do not have the shape of the graph: `select: "data.after"` takes the root field's value
//! out of the payload, `key: {field: "id", from: SUBJECT, token: 2}` takes a key field from the topic or from the
//! message's key. Objects of a field with only one possible type get their `__typename` if they do not have one.

use std::sync::Arc;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use events::Event;
use graph::{
    AppliedDirective, ConstValue, EventRole, Field, SubgraphSet, Supergraph, TypeKind, TypeRef,
    TypeRefShape,
};

use crate::directive::InputObject;

/// The maximum nesting of an event, as for every event.
const DEPTH_MAX: u32 = 64;

/// The maximum number of names in `select`.
const SELECT_NAMES_MAX: usize = 16;

/// The mapping from an event to the value of a root field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PayloadMapping {
    select: Box<[Box<str>]>,
    key: Option<MappedKey>,
    /// The type of objects without a `__typename`.
    type_name: Option<Box<str>>,
}

/// A key field with a value from outside the payload.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MappedKey {
    field: Box<str>,
    is_int: bool,
    origin: Arc<ValueOrigin>,
}

/// The place outside the payload that a value is taken from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ValueOrigin {
    /// The topic, or its part with that number, counted from 0.
    Topic { separator: Box<str>, token: Option<usize> },
    /// The key of the message.
    MessageKey,
}

impl ValueOrigin {
    /// Returns the value. `None` if the event has none.
    pub(crate) fn value<'a>(&self, event: &'a Event) -> Option<&'a str> {
        match self {
            Self::Topic { token: None, .. } => Some(&event.topic),
            Self::Topic { separator, token: Some(token) } => {
                event.topic.split(&**separator).nth(*token)
            }
            Self::MessageKey => std::str::from_utf8(event.key.as_ref()?).ok(),
        }
    }
}

impl PayloadMapping {
    /// Reads `select` and `key` of `directive` on `field`. `None` if payloads are used as they are.
    pub(crate) fn read(
        graph: &Supergraph,
        field: &Field,
        directive: &AppliedDirective,
    ) -> Result<Option<Self>, String> {
        let given = |name| directive.argument(name).filter(|value| **value != ConstValue::Null);
        let select = match given("select") {
            None => Box::default(),
            Some(ConstValue::String(path)) => split_path(path)?,
            Some(_) => return Err("select must be a string such as \"data.after\"".to_owned()),
        };
        // In directives that send, `key` is the key of the message.
        let is_subscribed = EventRole::of_directive(&directive.name) == Some(EventRole::Subscribe);
        let key = given("key").filter(|_| is_subscribed);
        let key = key.map(|value| MappedKey::read(graph, field, value)).transpose()?;
        let is_mapped = !select.is_empty() || key.is_some();
        let ty = graph.ty(field.ty.named());
        let here: SubgraphSet = directive.subgraphs;
        let is_foreign = ty.subgraphs.iter().any(|it| !here.contains(it.subgraph));
        let says_no_type = ty.kind == TypeKind::Object && (is_mapped || !is_foreign);
        let type_name = says_no_type.then(|| ty.name.clone());
        let mapping = Self { select, key, type_name };
        Ok((is_mapped || mapping.type_name.is_some()).then_some(mapping))
    }

    /// Returns the path from the payload to the field's value.
    pub(crate) fn selected(&self) -> &[Box<str>] {
        &self.select
    }

    /// True if a key field has its value from outside the payload.
    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Returns the origin of the member `name` of the field's value, if it is not the payload.
    pub(crate) fn origin(&self, name: &str) -> Option<&Arc<ValueOrigin>> {
        self.key.as_ref().filter(|key| *key.field == *name).map(|key| &key.origin)
    }

    /// Returns the value of the field as JSON text. The error is a phrase that follows "The event ".
    pub fn apply(&self, event: &Event) -> Result<Bytes, String> {
        let mut document = Document::with_depth_limit(DEPTH_MAX);
        // If the key is outside the payload, an event may have an empty payload.
        let root = match self.key.is_some() && event.payload.is_empty() {
            true => Ok(document.new_object()),
            false => document.parse(event.payload.clone()),
        };
        let mut node = root.map_err(|error| format!("is not valid JSON: {error}"))?;
        for (index, name) in self.select.iter().enumerate() {
            let found = match document.kind(node) {
                Kind::Object => document.get(node, name),
                _ => None,
            };
            node = found
                .ok_or_else(|| format!("has nothing at {:?}", self.select[..=index].join(".")))?;
        }
        let objects: Vec<NodeId> = match document.kind(node) {
            Kind::Object => vec![node],
            Kind::Array => {
                let elements = document.elements(node);
                elements.filter(|it| document.kind(*it) == Kind::Object).collect()
            }
            _ => Vec::new(),
        };
        let key = self.key.as_ref().map(|key| key.node(event, &mut document)).transpose()?;
        for object in objects {
            if let Some(type_name) = &self.type_name
                && document.get(object, "__typename").is_none()
            {
                let type_name = document.new_string(type_name);
                document.set(object, "__typename", type_name);
            }
            if let (Some(key), Some(node)) = (&self.key, key) {
                document.set(object, &key.field, node);
            }
        }
        let mut out = Vec::with_capacity(event.payload.len() + 64);
        document.print(node, &mut out);
        Ok(out.into())
    }
}

impl MappedKey {
    fn read(graph: &Supergraph, field: &Field, value: &ConstValue) -> Result<Self, String> {
        let object = InputObject::read("key", value, &["field", "from", "token", "separator"])?;
        let name = object.required_text("field")?;
        let parent = field.ty.named();
        let Some(member) = graph.field_named(parent, name) else {
            return Err(format!("key.field: `{}` has no field `{name}`", graph.ty(parent).name));
        };
        let ty: &TypeRef = &graph.field(member).ty;
        let leaf = graph.ty(ty.named());
        let is_leaf = matches!(leaf.kind, TypeKind::Scalar | TypeKind::Enum(_));
        if !is_leaf || matches!(ty.shape, TypeRefShape::List(_)) {
            return Err(format!("key.field: `{name}` is not a single value"));
        }
        let token = match object.number("token")? {
            None => None,
            // Directives count from 1.
            Some(0) => return Err("key.token is counted from 1".to_owned()),
            Some(token) => Some(usize::try_from(token - 1).unwrap_or(usize::MAX)),
        };
        let separator = object.text("separator")?;
        let from = match object.get("from") {
            Some(ConstValue::Enum(from) | ConstValue::String(from)) => &**from,
            _ => "",
        };
        let origin = match from {
            "SUBJECT" | "TOPIC" => {
                ValueOrigin::Topic { separator: separator.unwrap_or(".").into(), token }
            }
            "KEY" if token.is_some() || separator.is_some() => {
                return Err("key.token and key.separator are for from: SUBJECT".to_owned());
            }
            "KEY" => ValueOrigin::MessageKey,
            _ => return Err("key.from must be SUBJECT or KEY".to_owned()),
        };
        let is_int = &*leaf.name == "Int";
        Ok(Self { field: name.into(), is_int, origin: Arc::new(origin) })
    }

    fn node(&self, event: &Event, document: &mut Document) -> Result<NodeId, String> {
        let field = &self.field;
        let Some(value) = self.origin.value(event).filter(|value| !value.is_empty()) else {
            return Err(format!("has nothing for key field {field:?} in its topic or key"));
        };
        if !self.is_int {
            return Ok(document.new_string(value));
        }
        let number = value.parse::<i64>().map_err(|_| ());
        let node = number.and_then(|number| document.new_raw(&number.to_string()).map_err(|_| ()));
        node.map_err(|()| {
            format!("has no whole number for key field {field:?} in its topic or key")
        })
    }
}

/// Splits a path such as `data.after` into names.
fn split_path(path: &str) -> Result<Box<[Box<str>]>, String> {
    let names: Box<[Box<str>]> = path.split('.').map(Into::into).collect();
    if names.iter().any(|name| name.is_empty()) {
        Err(format!("select: {path:?} has an empty name"))
    } else if names.len() > SELECT_NAMES_MAX {
        Err(format!("select has more than {SELECT_NAMES_MAX} names"))
    } else {
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(
        select: &str,
        key: Option<(ValueOrigin, bool)>,
        type_name: Option<&str>,
    ) -> PayloadMapping {
        PayloadMapping {
            select: if select.is_empty() { Box::default() } else { split_path(select).unwrap() },
            key: key.map(|(origin, is_int)| MappedKey {
                field: "id".into(),
                is_int,
                origin: Arc::new(origin),
            }),
            type_name: type_name.map(Into::into),
        }
    }

    fn mapped(mapping: &PayloadMapping, payload: &'static str) -> Result<String, String> {
        let event = Event { key: Some("k7".into()), ..Event::new("orders.7.moved", payload) };
        mapping.apply(&event).map(|json| String::from_utf8(json.to_vec()).unwrap())
    }

    fn token(token: usize) -> ValueOrigin {
        ValueOrigin::Topic { separator: ".".into(), token: Some(token) }
    }

    #[test]
    fn a_value_is_taken_out_of_the_payload_and_gets_its_type() {
        let order = mapping("data.after", None, Some("Order"));
        for (payload, value) in [
            (r#"{"data":{"after":{"id":1}}}"#, Ok(r#"{"id":1,"__typename":"Order"}"#)),
            (r#"{"data":{"after":{"__typename":"X"}}}"#, Ok(r#"{"__typename":"X"}"#)),
            (
                r#"{"data":{"after":[{"id":1},null]}}"#,
                Ok(r#"[{"id":1,"__typename":"Order"},null]"#),
            ),
            (r#"{"data":{"after":7}}"#, Ok("7")),
            (r#"{"data":{}}"#, Err(r#"has nothing at "data.after""#)),
            (r#"{"data":[]}"#, Err(r#"has nothing at "data.after""#)),
            ("[]", Err(r#"has nothing at "data""#)),
            ("", Err("is not valid JSON: the text ends too early at byte 0")),
        ] {
            let wanted = value.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(mapped(&order, payload), wanted, "{payload}");
        }
    }

    #[test]
    fn a_key_comes_from_the_topic_or_the_message_key() {
        let nothing = r#"has nothing for key field "id" in its topic or key"#;
        let no_number = r#"has no whole number for key field "id" in its topic or key"#;
        let whole = ValueOrigin::Topic { separator: ".".into(), token: None };
        for (origin, is_int, payload, value) in [
            (token(1), false, r#"{"a":1}"#, Ok(r#"{"a":1,"id":"7"}"#)),
            (token(1), true, r#"{"id":"old"}"#, Ok(r#"{"id":7}"#)),
            (token(1), false, "", Ok(r#"{"id":"7"}"#)),
            (token(3), false, "{}", Err(nothing)),
            (token(2), true, "{}", Err(no_number)),
            (whole, false, "{}", Ok(r#"{"id":"orders.7.moved"}"#)),
            (ValueOrigin::MessageKey, false, "[{},{}]", Ok(r#"[{"id":"k7"},{"id":"k7"}]"#)),
        ] {
            let mapping = mapping("", Some((origin, is_int)), None);
            let wanted = value.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(mapped(&mapping, payload), wanted, "{mapping:?} {payload}");
        }
    }

    #[test]
    fn a_path_with_an_empty_name_is_refused() {
        for path in ["", ".", "a..b", "a."] {
            assert!(split_path(path).is_err(), "{path}");
        }
        assert!(split_path(&["a"; SELECT_NAMES_MAX + 1].join(".")).is_err());
    }
}
