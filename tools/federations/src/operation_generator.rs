//! A generator of random operations on a supergraph.

use std::fmt::Write as _;

use graph::{Supergraph, TypeId, TypeKind};
use plan::OperationKind;
use serde_json::{Map, Value, json};

use crate::Random;

/// The maximum nesting depth of selections.
const DEPTH_MAX: usize = 4;

/// The nesting depth of a wide operation, and the maximum number of objects selected at one position: some dozen
/// selection sets.
const WIDE_DEPTH: usize = 3;
const WIDE_BRANCHES_MAX: usize = 3;

/// An operation, with all relevant combinations of values of its variables.
#[derive(Clone, Debug)]
pub struct GeneratedOperation {
    /// The document.
    pub text: String,
    /// The values of the variables for each run.
    pub variables: Vec<Map<String, Value>>,
}

/// Generates a random operation. It may be invalid if selections do not merge; most are valid.
pub fn generate_operation(graph: &Supergraph, random: &mut Random) -> GeneratedOperation {
    let kind = match graph.mutation.is_some() && random.one_in(6) {
        true => OperationKind::Mutation,
        false => OperationKind::Query,
    };
    generate_operation_of(graph, kind, random)
}

/// Generates a random operation of that kind; a query if the supergraph has no root for it. It may be invalid if
/// selections do not merge; most are valid.
pub fn generate_operation_of(
    graph: &Supergraph,
    kind: OperationKind,
    random: &mut Random,
) -> GeneratedOperation {
    let (keyword, root) = match (kind, graph.mutation, graph.subscription) {
        (OperationKind::Mutation, Some(root), _) => ("mutation", root),
        (OperationKind::Subscription, _, Some(root)) => ("subscription", root),
        _ => ("query", graph.query),
    };
    let mut writer = OperationGenerator {
        graph,
        random,
        above: Vec::new(),
        fragments: Vec::new(),
        has_conditions: false,
        uses: [false; 4],
    };
    writer.has_conditions = writer.random.one_in(2);
    let body = match keyword {
        "subscription" => writer.subscription(root),
        _ => writer.selection_set(root, DEPTH_MAX),
    };
    let declared = [("x", "Boolean!"), ("y", "Boolean!"), ("n", "Int"), ("hue", "Hue = BLUE")];
    let used: Vec<String> = declared
        .iter()
        .zip(writer.uses)
        .filter(|(_, is_used)| *is_used)
        .map(|((name, ty), _)| format!("${name}: {ty}"))
        .collect();
    let head = match used.is_empty() {
        true => keyword.to_owned(),
        false => format!("{keyword} Q({})", used.join(", ")),
    };
    let uses = writer.uses;
    let text = format!("{head} {body}{}", writer.fragments.join(" "));
    let mut variables = Vec::new();
    for bits in 0..4_usize {
        if (bits & 1 == 1 && !uses[0]) || (bits & 2 == 2 && !uses[1]) {
            continue;
        }
        let mut values = Map::new();
        for (at, name) in ["x", "y"].iter().enumerate().filter(|(at, _)| uses[*at]) {
            values.insert((*name).to_owned(), json!(bits >> at & 1 == 1));
        }
        if uses[2] && bits % 2 == 0 {
            values.insert("n".to_owned(), json!(1));
        }
        if uses[3] && bits >= 2 {
            values.insert("hue".to_owned(), json!("RED"));
        }
        variables.push(values);
    }
    GeneratedOperation { text, variables }
}

/// Generates a random query with dozens of selection sets over the self-referential type of
/// [`generate_wide_federation`](crate::generate_wide_federation): long enough for the planner to choose its requests as
/// a whole.
pub fn generate_wide_operation(graph: &Supergraph, random: &mut Random) -> GeneratedOperation {
    let root = graph.ty(graph.query).fields.iter().copied();
    let root = root.map(|field| graph.field(field)).find(|field| &*field.name == "q0");
    let mut text = String::from("{ q0 ");
    if let Some(root) = root {
        wide_selections(graph, random, root.ty.named(), WIDE_DEPTH, &mut text);
    }
    text.push('}');
    GeneratedOperation { text, variables: vec![Map::new()] }
}

/// Writes leaves and, above depth 0, objects of the same type, with their braces.
fn wide_selections(
    graph: &Supergraph,
    random: &mut Random,
    on: TypeId,
    depth: usize,
    out: &mut String,
) {
    let is_deeper = |field: &graph::FieldId| graph.field(*field).ty.named() == on;
    let (deeper, leaves): (Vec<_>, Vec<_>) =
        graph.ty(on).fields.iter().copied().partition(is_deeper);
    out.push_str("{ ");
    for _ in 0..1 + random.below(4) {
        let leaf = *random.pick(&leaves);
        let _ = write!(out, "{} ", graph.field(leaf).name);
    }
    if depth > 0 {
        let mut chosen = random.some(&deeper);
        chosen.truncate(WIDE_BRANCHES_MAX);
        for field in chosen {
            let _ = write!(out, "{} ", graph.field(field).name);
            wide_selections(graph, random, on, depth - 1, out);
        }
    }
    out.push_str("} ");
}

struct OperationGenerator<'a> {
    graph: &'a Supergraph,
    random: &'a mut Random,
    /// The types of the ancestors of the current selection.
    above: Vec<TypeId>,
    /// The definitions of named fragments.
    fragments: Vec<String>,
    has_conditions: bool,
    /// Whether `$x`, `$y`, `$n` and `$hue` are used.
    uses: [bool; 4],
}

impl OperationGenerator<'_> {
    /// Writes the only root field of a subscription, which has no conditions.
    fn subscription(&mut self, root: TypeId) -> String {
        let field = *self.random.pick(&self.graph.ty(root).fields);
        let mut out = String::from("{ ");
        self.field(field, DEPTH_MAX, &mut out);
        out.push_str("} ");
        out
    }

    fn selection_set(&mut self, on: TypeId, depth: usize) -> String {
        let mut out = String::from("{ ");
        self.selections(on, depth, &mut out);
        if out.len() <= 2 {
            out.push_str("__typename ");
        }
        out.push_str("} ");
        out
    }

    fn selections(&mut self, on: TypeId, depth: usize, out: &mut String) {
        let ty = self.graph.ty(on);
        if self.random.one_in(6) {
            let alias = if self.random.one_in(3) { "kind: " } else { "" };
            let _ = write!(out, "{alias}__typename ");
        }
        let graph = self.graph;
        let fields: Vec<_> =
            ty.fields.iter().copied().filter(|&field| self.has_contexts_above(field)).collect();
        let count = if fields.is_empty() { 0 } else { 1 + self.random.below(4) };
        for _ in 0..count {
            let field = *self.random.pick(&fields);
            self.field(field, depth, out);
        }
        if depth == 0 {
            return;
        }
        let mut narrower: Vec<TypeId> = Vec::new();
        if ty.kind.is_abstract() {
            let visible = |member: &&TypeId| !graph.ty(**member).inaccessible;
            narrower.extend(ty.possible.iter().filter(visible));
        }
        if ty.kind == TypeKind::Object && self.random.one_in(4) {
            narrower.extend(&ty.implements);
            narrower.push(on);
        }
        for inner in narrower {
            if self.random.one_in(2) {
                self.fragment(inner, depth - 1, out);
            }
        }
        if ty.kind == TypeKind::Union {
            // Interfaces that some of the members implement.
            for (index, other) in graph.types.iter().enumerate() {
                let meets = other.possible.iter().any(|member| ty.possible.contains(member));
                if other.kind == TypeKind::Interface && meets && self.random.one_in(3) {
                    self.fragment(TypeId(index as u32), depth - 1, out);
                }
            }
        }
    }

    /// True if an ancestor sets the contexts of all arguments that the field reads from further up.
    fn has_contexts_above(&self, field: graph::FieldId) -> bool {
        let graph = self.graph;
        let definition = graph.field(field);
        let mut read = definition.subgraphs.iter().flat_map(|there| &there.context);
        !definition.inaccessible
            && read.all(|argument| {
                let sets = |ty: &TypeId| argument.selections.iter().any(|(setter, _)| setter == ty);
                self.above.iter().any(|&above| graph.ty(above).possible.iter().any(sets))
            })
    }

    fn fragment(&mut self, on: TypeId, depth: usize, out: &mut String) {
        let name = &self.graph.ty(on).name;
        let inner = self.selection_set(on, depth);
        let condition = self.condition();
        if self.random.one_in(4) {
            let number = self.fragments.len();
            self.fragments.push(format!("fragment F{number} on {name} {inner}"));
            let _ = write!(out, "...F{number}{condition} ");
        } else {
            let _ = write!(out, "... on {name}{condition} {inner}");
        }
    }

    fn condition(&mut self) -> &'static str {
        if !self.has_conditions {
            return "";
        }
        match self.random.below(10) {
            0 => {
                self.uses[0] = true;
                " @include(if: $x)"
            }
            1 => {
                self.uses[1] = true;
                " @skip(if: $y)"
            }
            2 => {
                self.uses[0] = true;
                " @skip(if: $x)"
            }
            _ => "",
        }
    }

    fn field(&mut self, field: graph::FieldId, depth: usize, out: &mut String) {
        let graph = self.graph;
        let definition = graph.field(field);
        let below = definition.ty.named();
        let is_composite = graph.ty(below).kind.is_composite();
        if is_composite && depth == 0 {
            return;
        }
        let mut arguments = String::new();
        let mut digest = String::new();
        for argument in &definition.arguments {
            if !argument.ty.ends_with('!') && self.random.one_in(2) {
                continue;
            }
            let value = match &*argument.ty {
                "Int" if self.random.one_in(4) => {
                    self.uses[2] = true;
                    "$n"
                }
                "Int" => *self.random.pick(&["1", "2"]),
                "Hue" if self.random.one_in(3) => {
                    self.uses[3] = true;
                    "$hue"
                }
                "Hue" => "RED",
                "Size!" => *self.random.pick(&["{w: 1}", "{w: 1, h: 2}"]),
                "Boolean" | "Boolean!" => "true",
                "ID" | "ID!" | "String" | "String!" => *self.random.pick(&["\"a\"", "\"b\""]),
                "Currency" => *self.random.pick(&["EUR", "USD"]),
                _ => continue,
            };
            digest.extend(value.chars().filter(char::is_ascii_alphanumeric));
            let comma = if arguments.is_empty() { "" } else { ", " };
            let _ = write!(arguments, "{comma}{}: {value}", argument.name);
        }
        // A key that determines the field and its arguments merges everywhere.
        let name = &definition.name;
        match self.random.below(12) {
            _ if !arguments.is_empty() => {
                let _ = write!(out, "{name}_{digest}: ");
            }
            0 => {
                let _ = write!(out, "{}: ", self.random.pick(&["id", "name", "__s0", "a"]));
            }
            1 => {
                let _ = write!(out, "{name}_{}: ", graph.ty(definition.parent).name.to_lowercase());
            }
            _ => {}
        }
        out.push_str(name);
        if !arguments.is_empty() {
            let _ = write!(out, "({arguments})");
        }
        // The root field of a subscription has no condition.
        if Some(definition.parent) != graph.subscription {
            out.push_str(self.condition());
        }
        out.push(' ');
        if is_composite {
            self.above.push(definition.parent);
            let inner = self.selection_set(below, depth - 1);
            self.above.pop();
            out.push_str(&inner);
        }
    }
}
