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
        json.write_object(|json| {
            json.write_text("kind", &format!("{:?}", self.kind).to_lowercase());
            if let Some(root) = &self.subscription {
                json.begin_member("subscription");
                json.write_object(|json| match root {
                    SubscriptionRoot::Event(event) => {
                        json.write_text("kind", "event");
                        write_event(json, event, graph);
                    }
                    SubscriptionRoot::Upstream { subgraph, operation } => {
                        json.write_text("kind", "upstream");
                        json.write_text("subgraph", &graph.subgraph(*subgraph).name);
                        write_operation(json, operation);
                    }
                });
            }
            let waves = self.waves();
            json.write_list("fetches", self.fetches.iter().enumerate(), |json, (index, fetch)| {
                json.write_object(|json| {
                    json.write_number("id", index as u64);
                    json.write_text("subgraph", &graph.subgraph(fetch.subgraph).name);
                    json.write_number("wave", u64::from(waves[index]));
                    json.write_list("dependsOn", &fetch.depends_on, |json, id| {
                        json.push_number(id.0);
                    });
                    json.write_list("anyOf", &fetch.any_of, write_condition);
                    match &fetch.kind {
                        FetchKind::Root { operation, .. } => {
                            json.write_text("kind", "root");
                            write_operation(json, operation);
                        }
                        FetchKind::RootBelow { operation, target } => {
                            json.write_text("kind", "rootBelow");
                            write_operation(json, operation);
                            json.begin_member("target");
                            write_path(json, target);
                        }
                        FetchKind::Publish(event) => {
                            json.write_text("kind", "publish");
                            write_event(json, event, graph);
                        }
                        FetchKind::Request(event) => {
                            json.write_text("kind", "request");
                            write_event(json, event, graph);
                        }
                        FetchKind::Entities { operation, batches } => {
                            json.write_text("kind", "entities");
                            write_operation(json, operation);
                            json.write_list("batches", batches, write_batch);
                        }
                    }
                });
            });
        });
        json.out
    }
}

fn write_operation(json: &mut JsonWriter, operation: &SubgraphOperation) {
    json.write_text("operation", &operation.text);
    if let Some(name) = &operation.name {
        json.write_text("operationName", name);
    }
    json.write_list("variables", &operation.variables, |json, (name, _)| json.push_text(name));
}

fn write_event(json: &mut JsonWriter, event: &EventField, graph: &Supergraph) {
    json.write_text("eventSubgraph", &graph.subgraph(event.subgraph).name);
    json.write_text("field", &graph.field(event.field).name);
    json.write_text("dataKey", &event.data_key);
    json.write_list("arguments", &event.arguments, |json, (name, _)| json.push_text(name));
}

fn write_condition(json: &mut JsonWriter, condition: &Condition) {
    json.push_list(&condition.all, |json, (variable, wanted)| {
        json.write_object(|json| {
            json.write_number("variable", u64::from(variable.0));
            json.begin_member("is");
            json.out.push_str(if *wanted { "true" } else { "false" });
        });
    });
}

fn write_batch(json: &mut JsonWriter, batch: &EntityBatch) {
    json.write_object(|json| {
        json.write_text("dataKey", &batch.data_key);
        json.write_text("variable", &batch.variable);
        json.write_list("targets", &batch.targets, write_path);
        json.begin_member("representation");
        json.write_object(|json| {
            if let Some(typename) = &batch.representation.typename {
                json.write_text("typename", typename);
            }
            json.write_list("fields", &batch.representation.fields, write_representation_field);
        });
        if !batch.any_of.is_empty() {
            json.write_list("anyOf", &batch.any_of, write_condition);
        }
        if !batch.context.is_empty() {
            json.write_list("context", &batch.context, write_context_variable);
        }
    });
}

fn write_context_variable(json: &mut JsonWriter, variable: &ContextVariable) {
    json.write_object(|json| {
        json.write_text("variable", &variable.variable);
        json.write_list("sources", &variable.sources, |json, source| {
            json.write_object(|json| {
                json.write_number("steps", u64::from(source.steps));
                json.write_list("types", &source.types, |json, name| json.push_text(name));
                json.write_list("dataKeys", &source.data_keys, |json, key| json.push_text(key));
            });
        });
    });
}

fn write_path(json: &mut JsonWriter, path: &Path) {
    json.push_list(&path.steps, |json, step| {
        json.write_object(|json| {
            json.write_text("key", &step.data_key);
            json.write_list("types", &step.types, |json, name| json.push_text(name));
        });
    });
}

fn write_representation_field(json: &mut JsonWriter, field: &RepresentationField) {
    json.write_object(|json| {
        json.write_text("name", &field.name);
        json.write_text("dataKey", &field.data_key);
        json.begin_member("key");
        json.out.push_str(if field.key { "true" } else { "false" });
        json.write_list("types", &field.types, |json, name| json.push_text(name));
        json.write_list("fields", &field.fields, write_representation_field);
    });
}

/// A JSON writer that inserts commas automatically.
#[derive(Default)]
struct JsonWriter {
    out: String,
}

impl JsonWriter {
    fn add_separator(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with(['{', '[', ':']) {
            self.out.push(',');
        }
    }

    fn write_object(&mut self, members: impl FnOnce(&mut Self)) {
        self.add_separator();
        self.out.push('{');
        members(self);
        self.out.push('}');
    }

    fn begin_member(&mut self, name: &str) {
        self.add_separator();
        let _ = write!(self.out, "\"{name}\":");
    }

    fn write_text(&mut self, name: &str, text: &str) {
        self.begin_member(name);
        self.push_text(text);
    }

    fn write_number(&mut self, name: &str, number: u64) {
        self.begin_member(name);
        let _ = write!(self.out, "{number}");
    }

    fn write_list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        item: impl FnMut(&mut Self, T),
    ) {
        self.begin_member(name);
        self.push_list(items, item);
    }

    fn push_list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T),
    ) {
        self.add_separator();
        self.out.push('[');
        items.into_iter().for_each(|one| item(self, one));
        self.out.push(']');
    }

    fn push_number(&mut self, number: u32) {
        self.add_separator();
        let _ = write!(self.out, "{number}");
    }

    fn push_text(&mut self, text: &str) {
        self.add_separator();
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
