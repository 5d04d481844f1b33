//! A broker in memory: delivers the values of root fields of event subgraphs as payloads, and records the arguments of
//! every event.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use execute::{EventRequest, GraphqlError, LocalFuture};
use graph::{FieldId, SubgraphId, SubgraphKind, Supergraph, TypeId};
use plan::{EventField, Value as PlanValue, Variables};
use serde_json::{Map, Value, json};

use crate::{
    object_store::{Object, ObjectStore, StoredValue, complete_arguments},
    request_log::RequestLog,
};

/// The maximum nesting depth of objects in a payload. Objects of the store may contain each other.
const PAYLOAD_DEPTH_MAX: usize = 6;

/// Delivers events, replies to requests, and accepts every publication.
pub(crate) struct InMemoryBroker {
    pub(crate) graph: Arc<Supergraph>,
    pub(crate) data: Arc<ObjectStore>,
    pub(crate) log: Arc<Mutex<RequestLog>>,
}

impl InMemoryBroker {
    /// Returns the payload of a subscription's event, as JSON text.
    pub(crate) fn event(&self, event: &EventField, variables: &Variables) -> Bytes {
        let given = event
            .arguments
            .iter()
            .filter_map(|(name, value)| Some((name.to_string(), json_value(value, variables)?)));
        self.deliver(event.field, given.collect()).to_string().into()
    }

    /// Records an event and returns the payload of its field.
    fn deliver(&self, field: FieldId, given: Map<String, Value>) -> Value {
        let arguments = complete_arguments(&self.graph, field, given);
        let definition = self.graph.field(field);
        let root = self.graph.ty(definition.parent).name.to_string();
        let root = Object { name: root, ty: definition.parent };
        let value = self.data.value(&self.graph, &root, field, &arguments, None);
        self.record(field, arguments);
        match event_subgraph(&self.graph, field) {
            Some(subgraph) => self.payload(value, definition.ty.named(), subgraph, 0),
            None => Value::Null,
        }
    }

    fn record(&self, field: FieldId, arguments: Map<String, Value>) {
        if let Ok(mut log) = self.log.lock() {
            log.events.push((field, arguments));
        }
    }

    /// Returns a value as the event subgraph sends it: objects have their type and the fields that the subgraph
    /// declares.
    fn payload(&self, value: StoredValue, ty: TypeId, subgraph: SubgraphId, depth: usize) -> Value {
        let graph = &*self.graph;
        let object = match value {
            StoredValue::Leaf(value) => return value,
            StoredValue::Error(_) => return Value::Null,
            StoredValue::List(items) => {
                let item = |item| self.payload(item, ty, subgraph, depth);
                return items.into_iter().map(item).collect();
            }
            StoredValue::Object(object) => object,
        };
        let is_masked = graph.is_interface_object(ty, subgraph);
        let known_as = if is_masked { ty } else { object.ty };
        let mut payload = Map::new();
        payload.insert("__typename".to_owned(), json!(*graph.ty(known_as).name));
        for &field in &graph.ty(known_as).fields {
            let definition = graph.field(field);
            let below = definition.ty.named();
            let is_composite = graph.ty(below).kind.is_composite();
            if !definition.resolved_by.contains(subgraph)
                || (is_composite && depth == PAYLOAD_DEPTH_MAX)
            {
                continue;
            }
            let Some(own) = graph.field_named(object.ty, &definition.name) else { continue };
            let arguments = complete_arguments(graph, own, Map::new());
            let value = self.data.value(graph, &object, own, &arguments, None);
            let value = self.payload(value, below, subgraph, depth + 1);
            payload.insert(definition.name.to_string(), value);
        }
        Value::Object(payload)
    }
}

/// Returns the event subgraph that provides a root field, if any.
pub(crate) fn event_subgraph(graph: &Supergraph, field: FieldId) -> Option<SubgraphId> {
    let resolvers = graph.field(field).resolved_by;
    resolvers.iter().find(|&it| graph.subgraph(it).kind == SubgraphKind::Events)
}

/// Returns a value of an operation as JSON; `None` for a variable without a value.
fn json_value(value: &PlanValue, variables: &Variables) -> Option<Value> {
    let nested = |value: &PlanValue| json_value(value, variables).unwrap_or_default();
    Some(match value {
        PlanValue::Null => Value::Null,
        PlanValue::Int(text) | PlanValue::Float(text) => serde_json::from_str(text).ok()?,
        PlanValue::String(text) | PlanValue::Enum(text) => json!(**text),
        PlanValue::Boolean(value) => json!(value),
        PlanValue::List(items) => items.iter().map(nested).collect(),
        PlanValue::Object(members) => {
            members.iter().map(|(name, value)| (name.to_string(), nested(value))).collect()
        }
        PlanValue::Variable(id) => serde_json::from_str(variables.get(*id)?).ok()?,
    })
}

impl execute::Publisher for InMemoryBroker {
    fn publish<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<bool, GraphqlError>> {
        let given = serde_json::from_slice(&request.arguments).unwrap_or_default();
        self.record(request.field, complete_arguments(&self.graph, request.field, given));
        Box::pin(async { Ok(true) })
    }

    fn request<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<Bytes, GraphqlError>> {
        let given = serde_json::from_slice(&request.arguments).unwrap_or_default();
        let reply = self.deliver(request.field, given).to_string();
        Box::pin(async { Ok(reply.into()) })
    }
}
