//! Printing of a random federation as supergraph SDL.

use std::fmt::Write as _;

use super::generator::{FederationGenerator, SUBGRAPHS};
use super::model::FieldModel;

impl FederationGenerator<'_> {
    pub(super) fn print(&self) -> String {
        let mut sdl = String::from(
            "schema @link(url: \"https://specs.apollo.dev/link/v1.0\") @link(url: \"https://specs.apollo.dev/join/v0.5\", for: EXECUTION) @link(url: \"https://specs.apollo.dev/inaccessible/v0.2\", for: SECURITY) @link(url: \"https://specs.apollo.dev/context/v0.1\", for: SECURITY) {\n  query: Query\n",
        );
        if !self.mutation.is_empty() {
            sdl.push_str("  mutation: Mutation\n");
        }
        sdl.push_str("}\nenum join__Graph {\n");
        let all = self.all_graphs();
        for &graph in &all {
            let name = SUBGRAPHS[graph];
            let lower = name.to_lowercase();
            let _ =
                writeln!(sdl, "  {name} @join__graph(name: \"{lower}\", url: \"http://{lower}\")");
        }
        sdl.push_str("}\n");
        let everywhere = |out: &mut String| {
            for &graph in &all {
                let _ = write!(out, " @join__type(graph: {})", SUBGRAPHS[graph]);
            }
        };
        for (name, fields) in [("Query", &self.query), ("Mutation", &self.mutation)] {
            if !fields.is_empty() {
                let _ = write!(sdl, "type {name}");
                everywhere(&mut sdl);
                print_fields(&mut sdl, fields, &[]);
            }
        }
        sdl.push_str("enum Hue");
        everywhere(&mut sdl);
        sdl.push_str(" {");
        for value in ["RED", "BLUE"] {
            let _ = write!(sdl, " {value}");
            for &graph in &all {
                let _ = write!(sdl, " @join__enumValue(graph: {})", SUBGRAPHS[graph]);
            }
        }
        sdl.push_str(" }\ninput Size");
        everywhere(&mut sdl);
        sdl.push_str(" { w: Int! h: Int }\n");
        self.print_objects(&mut sdl);
        self.print_abstracts(&mut sdl);
        sdl
    }

    fn print_objects(&self, sdl: &mut String) {
        for object in &self.objects {
            let _ = write!(sdl, "type {}", object.name);
            for (at, (interface, _)) in object.implements.iter().enumerate() {
                let _ = write!(sdl, "{} {interface}", if at == 0 { " implements" } else { " &" });
            }
            for (interface, by) in &object.implements {
                for &graph in by {
                    let graph = SUBGRAPHS[graph];
                    let _ = write!(
                        sdl,
                        " @join__implements(graph: {graph}, interface: \"{interface}\")"
                    );
                }
            }
            for (graph, keys, is_resolvable) in &object.presence {
                let mut end = String::new();
                if object.extensions.contains(graph) {
                    end.push_str(", extension: true");
                }
                if !is_resolvable {
                    end.push_str(", resolvable: false");
                }
                let graph = SUBGRAPHS[*graph];
                for key in keys {
                    let _ = write!(sdl, " @join__type(graph: {graph}, key: \"{key}\"{end})");
                }
                if keys.is_empty() {
                    let _ = write!(sdl, " @join__type(graph: {graph})");
                }
            }
            for &graph in &object.contexts {
                let _ =
                    write!(sdl, " @context(name: \"{}__above\")", SUBGRAPHS[graph].to_lowercase());
            }
            print_fields(sdl, &object.fields, &object.graphs());
        }
    }

    fn print_abstracts(&self, sdl: &mut String) {
        for known in &self.abstracts {
            let keyword = if known.is_union { "union" } else { "interface" };
            let _ = write!(sdl, "{keyword} {}", known.name);
            let mut names: Vec<&str> = Vec::new();
            for (graph, members) in &known.members {
                let key = if known.keyed.contains(graph) { ", key: \"id\"" } else { "" };
                let is_object = known.object == Some(*graph);
                let object = if is_object { ", isInterfaceObject: true" } else { "" };
                let graph = SUBGRAPHS[*graph];
                let _ = write!(sdl, " @join__type(graph: {graph}{key}{object})");
                for member in members {
                    if !names.contains(&&**member) {
                        names.push(member);
                    }
                    if known.is_union {
                        let _ = write!(
                            sdl,
                            " @join__unionMember(graph: {graph}, member: \"{member}\")"
                        );
                    }
                }
            }
            if known.is_union {
                let _ = writeln!(sdl, " = {}", names.join(" | "));
                continue;
            }
            let by: Vec<usize> = known.members.iter().map(|(graph, _)| *graph).collect();
            print_fields(sdl, &known.fields, &by);
        }
    }
}

/// Prints fields. A field that all of `everywhere` resolve in the same way needs no directives.
fn print_fields(sdl: &mut String, fields: &[FieldModel], everywhere: &[usize]) {
    sdl.push_str(" {\n");
    for field in fields {
        let _ = write!(sdl, "  {}{}: {}", field.name, field.arguments, field.ty);
        if field.mentions.is_empty() {
            // The field belongs to an interface object.
            sdl.push_str(" @join__field");
        }
        let is_plain = field.mentions.len() == everywhere.len()
            && field.mentions.iter().all(|mention| {
                !mention.is_external
                    && mention.requires.is_none()
                    && mention.provides.is_none()
                    && mention.overrides.is_none()
                    && mention.label.is_none()
                    && mention.context.is_none()
                    && mention.ty.is_none()
            });
        for mention in field.mentions.iter().filter(|_| !is_plain) {
            let _ = write!(sdl, " @join__field(graph: {}", SUBGRAPHS[mention.graph]);
            if let Some(ty) = &mention.ty {
                let _ = write!(sdl, ", type: \"{ty}\"");
            }
            if mention.is_external {
                sdl.push_str(", external: true");
            }
            for (name, set) in [("requires", &mention.requires), ("provides", &mention.provides)] {
                if let Some(set) = set {
                    let _ = write!(sdl, ", {name}: \"{set}\"");
                }
            }
            if let Some(other) = mention.overrides {
                let _ = write!(sdl, ", override: \"{}\"", SUBGRAPHS[other].to_lowercase());
            }
            if let Some(label) = mention.label {
                let _ = write!(sdl, ", overrideLabel: \"{label}\"");
            }
            if let Some(selection) = &mention.context {
                let above = format!("{}__above", SUBGRAPHS[mention.graph].to_lowercase());
                let _ = write!(
                    sdl,
                    ", contextArguments: [{{context: \"{above}\", name: \"of\", type: \"String\", selection: \"{selection}\"}}]"
                );
            }
            sdl.push(')');
        }
        sdl.push_str(if field.is_hidden { " @inaccessible\n" } else { "\n" });
    }
    sdl.push_str("}\n");
}
