//! Plans as text for people: `starling plan` and snapshots. The output is stable, but the format is not an interface.

use std::fmt::Write as _;

use graph::Supergraph;

use crate::{
    Condition, ContextSource, EntityBatch, EventField, Fetch, FetchKind, Path, PathStep, Plan,
    RepresentationField, SubgraphOperation, SubscriptionRoot,
};

impl Plan {
    /// Returns the wave of each fetch, counted from 1: one more than the latest wave of its dependencies.
    pub fn waves(&self) -> Vec<u32> {
        let mut waves: Vec<u32> = Vec::with_capacity(self.fetches.len());
        for fetch in &self.fetches {
            let before = fetch.depends_on.iter().map(|id| waves[id.0 as usize]).max();
            waves.push(before.unwrap_or(0) + 1);
        }
        waves
    }

    /// Returns the plan as indented text: waves of fetches with their operations and the paths to the objects.
    pub fn to_text(&self, graph: &Supergraph) -> String {
        let waves = self.waves();
        let mut out = String::new();
        let kind = format!("{:?}", self.kind).to_lowercase();
        let requests = self.fetches.len();
        let last = waves.iter().copied().max().unwrap_or(0);
        write_line(
            &mut out,
            0,
            &format!(
                "{kind}: {requests} request{} in {last} wave{}",
                plural(requests),
                plural(last as usize)
            ),
        );
        match &self.subscription {
            None => {}
            Some(SubscriptionRoot::Event(event)) => {
                write_line(&mut out, 0, &format!("events: {}", event_text(event, graph)));
            }
            Some(SubscriptionRoot::Upstream { subgraph, operation }) => {
                write_line(&mut out, 0, &format!("events: {}", graph.subgraph(*subgraph).name));
                write_operation(&mut out, 2, operation);
            }
        }
        let mut order: Vec<usize> = (0..self.fetches.len()).collect();
        order.sort_by_key(|&index| (waves[index], index));
        let mut wave = 0;
        for index in order {
            if waves[index] != wave {
                wave = waves[index];
                write_line(&mut out, 0, &format!("wave {wave}"));
            }
            fetch_text(&mut out, index, &self.fetches[index], graph);
        }
        out
    }
}

fn fetch_text(out: &mut String, index: usize, fetch: &Fetch, graph: &Supergraph) {
    let mut head = format!("#{index} {}", graph.subgraph(fetch.subgraph).name);
    for (position, before) in fetch.depends_on.iter().enumerate() {
        let _ = write!(head, "{}#{}", if position == 0 { " after " } else { " " }, before.0);
    }
    if !fetch.any_of.is_empty() {
        let _ = write!(head, " if {}", conditions_text(&fetch.any_of));
    }
    write_line(out, 1, &head);
    match &fetch.kind {
        FetchKind::Root { operation, .. } => write_operation(out, 2, operation),
        FetchKind::RootBelow { operation, target } => {
            write_line(out, 2, &format!("at {}", path_text(target)));
            write_operation(out, 2, operation);
        }
        FetchKind::Publish(event) => {
            write_line(out, 2, &format!("publish {}", event_text(event, graph)));
        }
        FetchKind::Request(event) => {
            write_line(out, 2, &format!("request {}", event_text(event, graph)));
        }
        FetchKind::Entities { operation, batches } => {
            for batch in batches {
                batch_text(out, batch);
            }
            write_operation(out, 2, operation);
        }
    }
}

fn batch_text(out: &mut String, batch: &EntityBatch) {
    let typename = batch.representation.typename.as_deref().unwrap_or("*");
    let fields = representation_text(&batch.representation.fields);
    let mut head = format!("{}: {typename} {fields}", batch.data_key);
    if !batch.any_of.is_empty() {
        let _ = write!(head, " if {}", conditions_text(&batch.any_of));
    }
    write_line(out, 2, &head);
    for target in &batch.targets {
        write_line(out, 3, &format!("at {}", path_text(target)));
    }
    for variable in &batch.context {
        let from: Vec<String> =
            variable.sources.iter().map(|source| source_text(batch, source)).collect();
        write_line(out, 3, &format!("with ${} = {}", variable.variable, from.join(" or ")));
    }
}

/// Returns the path to a value above the objects of a batch.
fn source_text(batch: &EntityBatch, source: &ContextSource) -> String {
    let mut path = batch.targets.first().cloned().unwrap_or_default();
    path.steps.truncate(source.steps as usize);
    if let Some(last) = path.steps.last_mut() {
        last.types.clone_from(&source.types);
    }
    for data_key in &source.data_keys {
        path.steps.push(PathStep { data_key: data_key.clone(), types: Vec::new() });
    }
    path_text(&path)
}

fn representation_text(fields: &[RepresentationField]) -> String {
    let mut out = String::from("{");
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(&field.name);
        if !field.key {
            out.push('?');
        }
        if field.data_key != field.name {
            let _ = write!(out, "={}", field.data_key);
        }
        if !field.types.is_empty() {
            let _ = write!(out, "<{}>", field.types.join("|"));
        }
        if !field.fields.is_empty() {
            out.push_str(&representation_text(&field.fields));
        }
    }
    out.push('}');
    out
}

fn path_text(path: &Path) -> String {
    let steps: Vec<String> = path
        .steps
        .iter()
        .map(|step| match step.types.is_empty() {
            true => step.data_key.to_string(),
            false => format!("{}<{}>", step.data_key, step.types.join("|")),
        })
        .collect();
    steps.join(".")
}

fn event_text(event: &EventField, graph: &Supergraph) -> String {
    let field = graph.field(event.field);
    let names: Vec<&str> = event.arguments.iter().map(|(name, _)| &**name).collect();
    format!(
        "{}: {}.{}({}) of {}",
        event.data_key,
        graph.ty(field.parent).name,
        field.name,
        names.join(", "),
        graph.subgraph(event.subgraph).name
    )
}

fn conditions_text(any_of: &[Condition]) -> String {
    let any: Vec<String> = any_of
        .iter()
        .map(|condition| {
            let all: Vec<String> = condition
                .all
                .iter()
                .map(|(variable, wanted)| {
                    format!("{}${}", if *wanted { "" } else { "!" }, variable.0)
                })
                .collect();
            all.join(" and ")
        })
        .collect();
    any.join(" or ")
}

/// Writes the compact document with one selection per line. Only the planner writes these texts, so they have neither
/// comments nor block strings.
fn write_operation(out: &mut String, indent: usize, operation: &SubgraphOperation) {
    let mut depth = indent;
    let mut current = String::new();
    let mut parentheses = 0_u32;
    let mut is_string = false;
    let mut is_escaped = false;
    for character in operation.text.chars() {
        if is_string {
            current.push(character);
            is_string = is_escaped || character != '"';
            is_escaped = !is_escaped && character == '\\';
            continue;
        }
        match character {
            '"' => {
                is_string = true;
                current.push(character);
            }
            '(' => {
                parentheses += 1;
                current.push(character);
            }
            ')' => {
                parentheses = parentheses.saturating_sub(1);
                current.push(character);
            }
            '{' if parentheses == 0 => {
                if !current.is_empty() {
                    current.push(' ');
                }
                current.push('{');
                write_line(out, depth, &std::mem::take(&mut current));
                depth += 1;
            }
            '}' if parentheses == 0 => {
                if !current.is_empty() {
                    write_line(out, depth, &std::mem::take(&mut current));
                }
                depth = depth.saturating_sub(1);
                write_line(out, depth, "}");
            }
            ' ' if parentheses == 0 && depth > indent && current != "...on" => {
                if !current.is_empty() {
                    write_line(out, depth, &std::mem::take(&mut current));
                }
            }
            other => current.push(other),
        }
    }
    if !current.is_empty() {
        write_line(out, depth, &current);
    }
}

fn write_line(out: &mut String, indent: usize, text: &str) {
    out.extend(std::iter::repeat_n("  ", indent));
    out.push_str(text);
    out.push('\n');
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
