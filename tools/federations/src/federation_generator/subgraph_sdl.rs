//! Printing of the subgraphs of a random federation, as their authors would write them.

use std::fmt::Write as _;

use super::generator::{FederationGenerator, SUBGRAPHS};
use super::model::{AbstractModel, FieldModel, JoinField, ObjectModel};

/// The name of the only context of a federation.
const CONTEXT: &str = "above";

/// The first lines of each subgraph: its directives, and the types that all subgraphs have.
const HEAD: &str = "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.8\", import: [\"@key\", \"@shareable\", \
    \"@external\", \"@requires\", \"@provides\", \"@override\", \"@inaccessible\", \"@interfaceObject\", \"@context\", \
    \"@fromContext\"])\nenum Hue { RED BLUE }\ninput Size { w: Int! h: Int }\n";

impl FederationGenerator<'_> {
    /// Returns the name and the SDL of each subgraph.
    pub(super) fn print_subgraphs(&self) -> Vec<(String, String)> {
        let print = |graph: usize| (SUBGRAPHS[graph].to_lowercase(), self.print_subgraph(graph));
        self.all_graphs().into_iter().map(print).collect()
    }

    fn print_subgraph(&self, graph: usize) -> String {
        let mut sdl = HEAD.to_owned();
        for (name, fields) in [("Query", &self.query), ("Mutation", &self.mutation)] {
            let fields = self.fields_of(fields, graph, true);
            if !fields.is_empty() {
                let _ = writeln!(sdl, "type {name} {{\n{fields}}}");
            } else if name == "Query" && self.has_field_of_query(graph) {
                // Each server has a query root.
                let _ = writeln!(sdl, "type Query {{ _unused: Int @inaccessible @shareable }}");
            }
        }
        for object in self.objects.iter().filter(|object| object.is_in(graph)) {
            self.print_object(&mut sdl, object, graph);
        }
        for known in &self.abstracts {
            self.print_abstract(&mut sdl, known, graph);
        }
        sdl
    }

    /// True if a field of that subgraph returns the query root.
    fn has_field_of_query(&self, graph: usize) -> bool {
        let fields = self.objects.iter().flat_map(|object| &object.fields).chain(&self.mutation);
        fields.into_iter().any(|field| field.named() == "Query" && field.is_mentioned(graph))
    }

    fn print_object(&self, sdl: &mut String, object: &ObjectModel, graph: usize) {
        // One subgraph has the type itself.
        let is_first = object.presence.first().is_some_and(|(first, _, _)| *first == graph);
        let has_base = object.graphs().iter().any(|it| !object.extensions.contains(it));
        let is_extension = object.extensions.contains(&graph) && (has_base || !is_first);
        let keyword = if is_extension { "extend type" } else { "type" };
        let _ = write!(sdl, "{keyword} {}", object.name);
        let interfaces = object.implements.iter().filter(|(_, by)| by.contains(&graph));
        for (at, (interface, _)) in interfaces.enumerate() {
            let _ = write!(sdl, "{} {interface}", if at == 0 { " implements" } else { " &" });
        }
        for (_, keys, is_resolvable) in object.presence.iter().filter(|(by, _, _)| *by == graph) {
            let end = if *is_resolvable { "" } else { ", resolvable: false" };
            for key in keys {
                let _ = write!(sdl, " @key(fields: \"{key}\"{end})");
            }
        }
        if object.contexts.contains(&graph) {
            let _ = write!(sdl, " @context(name: \"{CONTEXT}\")");
        }
        let _ = writeln!(sdl, " {{\n{}}}", self.fields_of(&object.fields, graph, true));
    }

    fn print_abstract(&self, sdl: &mut String, known: &AbstractModel, graph: usize) {
        let members = known.members_in(graph);
        if members.is_empty() {
            return;
        }
        if known.is_union {
            let _ = writeln!(sdl, "union {} = {}", known.name, members.join(" | "));
            return;
        }
        let is_object = known.object == Some(graph);
        let keyword = if is_object { "type" } else { "interface" };
        let _ = write!(sdl, "{keyword} {}", known.name);
        if known.keyed.contains(&graph) {
            sdl.push_str(" @key(fields: \"id\")");
        }
        if is_object {
            sdl.push_str(" @interfaceObject");
        }
        let mut fields = self.fields_of(&known.fields, graph, is_object);
        if is_object {
            // Subgraphs that know the implementations may provide these fields.
            fields = fields.lines().map(|line| share(line) + "\n").collect();
        }
        let _ = writeln!(sdl, " {{\n{fields}}}");
    }

    /// Prints the fields that the subgraph has. Fields of interfaces have no resolvers.
    fn fields_of(&self, fields: &[FieldModel], graph: usize, has_resolvers: bool) -> String {
        let mut text = String::new();
        for field in fields {
            let mention = field.mentions.iter().find(|mention| mention.graph == graph);
            let is_overridden = field.mentions.iter().any(|it| it.overrides == Some(graph));
            match mention {
                Some(mention) => print_field(&mut text, field, mention, has_resolvers),
                // The supergraph does not mention the subgraph that a field was taken from.
                None if is_overridden => {
                    print_field(&mut text, field, &JoinField::of(graph), has_resolvers);
                }
                None => {}
            }
        }
        text
    }
}

fn print_field(text: &mut String, field: &FieldModel, mention: &JoinField, has_resolvers: bool) {
    let contextual = mention
        .context
        .as_ref()
        .map(|selection| format!("of: String @fromContext(field: \"${CONTEXT} {selection}\")"));
    let arguments = match (contextual, field.arguments.strip_prefix('(')) {
        (None, _) => field.arguments.to_owned(),
        (Some(argument), None) => format!("({argument})"),
        (Some(argument), Some(others)) => format!("({argument}, {others}"),
    };
    let ty = mention.ty.as_ref().unwrap_or(&field.ty);
    let _ = write!(text, "  {}{arguments}: {ty}", field.name);
    if mention.is_external {
        text.push_str(" @external");
    }
    for (name, set) in [("requires", &mention.requires), ("provides", &mention.provides)] {
        if let Some(set) = set {
            let _ = write!(text, " @{name}(fields: \"{set}\")");
        }
    }
    if let Some(from) = mention.overrides {
        let label = mention.label.map_or_else(String::new, |it| format!(", label: \"{it}\""));
        let _ = write!(text, " @override(from: \"{}\"{label})", SUBGRAPHS[from].to_lowercase());
    }
    // Another subgraph with an external field may provide it, and then it is shared as well.
    if has_resolvers && field.mentions.len() > 1 && !mention.is_external && field.is_settled() {
        text.push_str(" @shareable");
    }
    text.push_str(if field.is_hidden && !mention.is_external { " @inaccessible\n" } else { "\n" });
}

/// Marks a printed field as shared.
fn share(line: &str) -> String {
    let has_directive = line.contains("@external") || line.contains("@shareable");
    if has_directive { line.to_owned() } else { format!("{line} @shareable") }
}
