//! Plans as pictures for people: a Mermaid flowchart of requests and their dependencies. The output is stable.

use std::fmt::Write as _;

use graph::Supergraph;

use crate::{FetchKind, Path, Plan, SubscriptionRoot};

/// The maximum number of paths that a box lists; the rest is counted. With more the picture is hard to read.
const PLACES_MAX: usize = 5;

impl Plan {
    /// Returns the plan as a Mermaid flowchart: one box for each request, grouped by wave, with arrows from the
    /// requests that it depends on. <https://mermaid.js.org/syntax/flowchart.html>
    pub fn to_mermaid(&self, graph: &Supergraph) -> String {
        let mut out = String::from("flowchart TD\n");
        if let Some(root) = &self.subscription {
            let subgraph = match root {
                SubscriptionRoot::Event(event) => event.subgraph,
                SubscriptionRoot::Upstream { subgraph, .. } => *subgraph,
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "  events([\"events of {}\"])",
                escape(&graph.subgraph(subgraph).name)
            );
        }
        let waves = self.waves();
        for wave in 1..=waves.iter().copied().max().unwrap_or(0) {
            let _ = writeln!(out, "  subgraph wave{wave}[\"wave {wave}\"]");
            let members =
                self.fetches.iter().enumerate().filter(|(index, _)| waves[*index] == wave);
            for (index, fetch) in members {
                let mut lines = vec![format!("#{index} {}", graph.subgraph(fetch.subgraph).name)];
                match &fetch.kind {
                    FetchKind::Root { .. } => lines.push("root fields".to_owned()),
                    FetchKind::RootBelow { target, .. } => {
                        lines.push(format!("root fields at {}", print_path(target)));
                    }
                    FetchKind::Publish(event) => lines.push(format!("publish {}", event.data_key)),
                    FetchKind::Request(event) => lines.push(format!("request {}", event.data_key)),
                    FetchKind::Entities { batches, .. } => {
                        let mut places = Vec::new();
                        for batch in batches {
                            let typename = batch.representation.typename.as_deref();
                            let typename = typename.unwrap_or("*");
                            let targets = batch.targets.iter();
                            places.extend(
                                targets.map(|path| format!("{typename} at {}", print_path(path))),
                            );
                        }
                        let more = places.len().saturating_sub(PLACES_MAX);
                        lines.extend(places.into_iter().take(PLACES_MAX));
                        if more > 0 {
                            lines.push(format!("and {more} more places"));
                        }
                    }
                }
                if !fetch.any_of.is_empty() {
                    lines.push("only under a condition".to_owned());
                }
                let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
                let _ = writeln!(out, "    f{index}[\"{}\"]", lines.join("<br/>"));
            }
            out.push_str("  end\n");
        }
        for (index, fetch) in self.fetches.iter().enumerate() {
            for before in &fetch.depends_on {
                let _ = writeln!(out, "  f{} --> f{index}", before.0);
            }
            if fetch.depends_on.is_empty() && self.subscription.is_some() {
                let _ = writeln!(out, "  events --> f{index}");
            }
        }
        out
    }
}

fn print_path(path: &Path) -> String {
    let keys: Vec<&str> = path.steps.iter().map(|step| &*step.data_key).collect();
    keys.join(".")
}

/// Escapes text inside a quoted label, where `#` begins an entity.
fn escape(text: &str) -> String {
    text.replace('#', "#35;").replace('"', "#quot;").replace('<', "#lt;").replace('>', "#gt;")
}
