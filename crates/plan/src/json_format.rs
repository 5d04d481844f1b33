//! Plans as JSON for tools, with members in a fixed order. New members may be added; known ones remain.

use std::fmt::Write as _;

use graph::Supergraph;

use crate::{
    Condition, ContextVariable, EntityBatch, EventField, FetchKind, Path, Plan,
    RepresentationField, SubgraphOperation, SubscriptionRoot,
};

impl Plan {
    /// Returns the plan as one line of JSON, without the response shape.
    pub fn to_json(&self, graph: &Supergraph) -> String {
        let mut json = JsonWriter::default();
        json.object(|json| {
            json.text("kind", &format!("{:?}", self.kind).to_lowercase());
            if let Some(root) = &self.subscription {
                json.member("subscription");
                json.object(|json| match root {
                    SubscriptionRoot::Event(event) => {
                        json.text("kind", "event");
                        event_members(json, event, graph);
                    }
                    SubscriptionRoot::Upstream { subgraph, operation } => {
                        json.text("kind", "upstream");
                        json.text("subgraph", &graph.subgraph(*subgraph).name);
                        operation_members(json, operation);
                    }
                });
            }
            let waves = self.waves();
            json.list("fetches", self.fetches.iter().enumerate(), |json, (index, fetch)| {
                json.object(|json| {
                    json.number("id", index as u64);
                    json.text("subgraph", &graph.subgraph(fetch.subgraph).name);
                    json.number("wave", u64::from(waves[index]));
                    json.list("dependsOn", &fetch.depends_on, |json, id| json.push_number(id.0));
                    json.list("anyOf", &fetch.any_of, condition);
                    match &fetch.kind {
                        FetchKind::Root { operation, .. } => {
                            json.text("kind", "root");
                            operation_members(json, operation);
                        }
                        FetchKind::RootBelow { operation, target } => {
                            json.text("kind", "rootBelow");
                            operation_members(json, operation);
                            json.member("target");
                            path(json, target);
                        }
                        FetchKind::Publish(event) => {
                            json.text("kind", "publish");
                            event_members(json, event, graph);
                        }
                        FetchKind::Request(event) => {
                            json.text("kind", "request");
                            event_members(json, event, graph);
                        }
                        FetchKind::Entities { operation, batches } => {
                            json.text("kind", "entities");
                            operation_members(json, operation);
                            json.list("batches", batches, batch);
                        }
                    }
                });
            });
        });
        json.out
    }
}

fn operation_members(json: &mut JsonWriter, operation: &SubgraphOperation) {
    json.text("operation", &operation.text);
    if let Some(name) = &operation.name {
        json.text("operationName", name);
    }
    json.list("variables", &operation.variables, |json, (name, _)| json.push_text(name));
}

fn event_members(json: &mut JsonWriter, event: &EventField, graph: &Supergraph) {
    json.text("eventSubgraph", &graph.subgraph(event.subgraph).name);
    json.text("field", &graph.field(event.field).name);
    json.text("dataKey", &event.data_key);
    json.list("arguments", &event.arguments, |json, (name, _)| json.push_text(name));
}

fn condition(json: &mut JsonWriter, condition: &Condition) {
    json.push_list(&condition.all, |json, (variable, wanted)| {
        json.object(|json| {
            json.number("variable", u64::from(variable.0));
            json.member("is");
            json.out.push_str(if *wanted { "true" } else { "false" });
        });
    });
}

fn batch(json: &mut JsonWriter, batch: &EntityBatch) {
    json.object(|json| {
        json.text("dataKey", &batch.data_key);
        json.text("variable", &batch.variable);
        json.list("targets", &batch.targets, path);
        json.member("representation");
        json.object(|json| {
            if let Some(typename) = &batch.representation.typename {
                json.text("typename", typename);
            }
            json.list("fields", &batch.representation.fields, representation_field);
        });
        if !batch.any_of.is_empty() {
            json.list("anyOf", &batch.any_of, condition);
        }
        if !batch.context.is_empty() {
            json.list("context", &batch.context, context_variable);
        }
    });
}

fn context_variable(json: &mut JsonWriter, variable: &ContextVariable) {
    json.object(|json| {
        json.text("variable", &variable.variable);
        json.list("sources", &variable.sources, |json, source| {
            json.object(|json| {
                json.number("steps", u64::from(source.steps));
                json.list("types", &source.types, |json, name| json.push_text(name));
                json.list("dataKeys", &source.data_keys, |json, key| json.push_text(key));
            });
        });
    });
}

fn path(json: &mut JsonWriter, path: &Path) {
    json.push_list(&path.steps, |json, step| {
        json.object(|json| {
            json.text("key", &step.data_key);
            json.list("types", &step.types, |json, name| json.push_text(name));
        });
    });
}

fn representation_field(json: &mut JsonWriter, field: &RepresentationField) {
    json.object(|json| {
        json.text("name", &field.name);
        json.text("dataKey", &field.data_key);
        json.member("key");
        json.out.push_str(if field.key { "true" } else { "false" });
        json.list("types", &field.types, |json, name| json.push_text(name));
        json.list("fields", &field.fields, representation_field);
    });
}

/// A JSON writer that inserts commas automatically.
#[derive(Default)]
struct JsonWriter {
    out: String,
}

impl JsonWriter {
    fn separate(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with(['{', '[', ':']) {
            self.out.push(',');
        }
    }

    fn object(&mut self, members: impl FnOnce(&mut Self)) {
        self.separate();
        self.out.push('{');
        members(self);
        self.out.push('}');
    }

    fn member(&mut self, name: &str) {
        self.separate();
        let _ = write!(self.out, "\"{name}\":");
    }

    fn text(&mut self, name: &str, text: &str) {
        self.member(name);
        self.push_text(text);
    }

    fn number(&mut self, name: &str, number: u64) {
        self.member(name);
        let _ = write!(self.out, "{number}");
    }

    fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        item: impl FnMut(&mut Self, T),
    ) {
        self.member(name);
        self.push_list(items, item);
    }

    fn push_list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T),
    ) {
        self.separate();
        self.out.push('[');
        items.into_iter().for_each(|one| item(self, one));
        self.out.push(']');
    }

    fn push_number(&mut self, number: u32) {
        self.separate();
        let _ = write!(self.out, "{number}");
    }

    fn push_text(&mut self, text: &str) {
        self.separate();
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                control if u32::from(control) < 0x20 => {
                    let _ = write!(self.out, "\\u{:04x}", u32::from(control));
                }
                other => self.out.push(other),
            }
        }
        self.out.push('"');
    }
}
