//! A federation that grows step by step. `abstracts` has the steps for interfaces and unions, `print` the text.

use super::model::{AbstractModel, FieldModel, JoinField, ObjectModel};
use crate::Random;

pub(super) const ENTITIES: [&str; 5] = ["Ant", "Bee", "Cat", "Dog", "Elk"];
pub(super) const SUBGRAPHS: [&str; 8] = ["A", "B", "C", "D", "E", "F", "G", "H"];
pub(super) const LABELS: [&str; 3] = ["percent(25)", "percent(0.5)", "half"];
pub(super) const LEAVES: [&str; 7] = ["Int", "String", "String", "Boolean", "Float", "Hue", "ID"];

pub(super) struct FederationGenerator<'r> {
    pub(super) random: &'r mut Random,
    pub(super) graphs: usize,
    pub(super) objects: Vec<ObjectModel>,
    pub(super) abstracts: Vec<AbstractModel>,
    pub(super) query: Vec<FieldModel>,
    pub(super) mutation: Vec<FieldModel>,
}

impl<'r> FederationGenerator<'r> {
    /// Creates an empty federation of `subgraphs` (2 to 8) subgraphs.
    pub(super) fn new(random: &'r mut Random, subgraphs: usize) -> Self {
        Self {
            random,
            graphs: subgraphs.clamp(2, SUBGRAPHS.len()),
            objects: Vec::new(),
            abstracts: Vec::new(),
            query: Vec::new(),
            mutation: Vec::new(),
        }
    }

    pub(super) fn all_graphs(&self) -> Vec<usize> {
        (0..self.graphs).collect()
    }

    /// Adds value types: the same in all subgraphs, except for fields that only some have.
    pub(super) fn add_values(&mut self) {
        let all = self.all_graphs();
        for name in ["Box", "Cup"].iter().take(self.random.below(3)) {
            let mut fields = vec![FieldModel::new("size", "Int", &all)];
            for field in 0..1 + self.random.below(2) {
                let by = if self.random.one_in(3) { self.random.some(&all) } else { all.clone() };
                let leaf = *self.random.pick(&LEAVES);
                fields.push(FieldModel::new(format!("v{field}"), leaf, &by));
            }
            self.objects.push(ObjectModel {
                name: (*name).to_owned(),
                presence: all.iter().map(|&graph| (graph, Vec::new(), true)).collect(),
                fields,
                implements: Vec::new(),
                contexts: Vec::new(),
                extensions: Vec::new(),
            });
        }
        // Nested keys consist of this type.
        self.objects.push(ObjectModel {
            name: "Spot".to_owned(),
            presence: all.iter().map(|&graph| (graph, Vec::new(), true)).collect(),
            fields: vec![FieldModel::new("x", "Int!", &all), FieldModel::new("y", "Int!", &all)],
            implements: Vec::new(),
            contexts: Vec::new(),
            extensions: Vec::new(),
        });
    }

    pub(super) fn add_entities(&mut self) {
        let all = self.all_graphs();
        for name in ENTITIES.iter().take(1 + self.random.below(4)) {
            let mut graphs = self.random.some(&all);
            if graphs.len() == 1 {
                graphs.push((graphs[0] + 1) % self.graphs);
                graphs.sort_unstable();
            }
            let pool: &[&str] = match self.random.below(8) {
                0 => &["id", "code"],
                1 => &["id code", "id"],
                2 => &["spot { x y }", "id"],
                3 => &["tags", "id"],
                4 => &["id spot { x }", "code"],
                _ => &["id"],
            };
            let bridge = graphs[self.random.below(graphs.len())];
            let mut presence = Vec::new();
            for &graph in &graphs {
                let keys: Vec<String> = match graph == bridge || self.random.one_in(3) {
                    true => pool.iter().map(|key| (*key).to_owned()).collect(),
                    false => vec![(*self.random.pick(pool)).to_owned()],
                };
                let is_resolvable = graph == bridge || !self.random.one_in(10);
                presence.push((graph, keys, is_resolvable));
            }
            let members =
                [("id", "ID!"), ("code", "String!"), ("spot", "Spot!"), ("tags", "[String!]!")];
            let mut fields = Vec::new();
            for (member, ty) in members {
                let holds = |keys: &[String]| {
                    keys.iter().any(|key| key.split([' ', '{', '}']).any(|word| word == member))
                };
                let mut by: Vec<usize> = Vec::new();
                for (graph, keys, _) in &presence {
                    if holds(keys) {
                        by.push(*graph);
                    }
                }
                if by.is_empty() {
                    continue;
                }
                for &graph in &graphs {
                    if !by.contains(&graph) && self.random.one_in(6) {
                        by.push(graph);
                    }
                }
                let is_hidden = member == "code" && self.random.one_in(3);
                fields.push(FieldModel { is_hidden, ..FieldModel::new(member, ty, &by) });
            }
            self.objects.push(ObjectModel {
                name: (*name).to_owned(),
                presence,
                fields,
                implements: Vec::new(),
                contexts: Vec::new(),
                extensions: Vec::new(),
            });
        }
    }

    /// Makes key members external in some subgraphs: on type extensions of Federation 1, where that means that the
    /// subgraph only refers to the object, and elsewhere, where the subgraph cannot resolve them. Each member remains
    /// resolvable in one subgraph, so that most operations can still be planned.
    pub(super) fn add_external_key_members(&mut self) {
        for index in 0..self.objects.len() {
            if self.objects[index].presence[0].1.is_empty() {
                continue;
            }
            for graph in self.objects[index].graphs() {
                if !self.random.one_in(5) {
                    continue;
                }
                if self.random.one_in(2) {
                    self.objects[index].extensions.push(graph);
                }
                let keys: Vec<String> = self.objects[index].keys_in(graph).to_vec();
                for field in &mut self.objects[index].fields {
                    let mut words = keys.iter().flat_map(|key| key.split([' ', '{', '}']));
                    let is_member = words.any(|word| word == field.name);
                    let is_elsewhere = field
                        .mentions
                        .iter()
                        .any(|mention| mention.graph != graph && !mention.is_external);
                    let mut mentions = field.mentions.iter_mut();
                    if let Some(mention) = mentions.find(|mention| mention.graph == graph)
                        && is_member
                        && is_elsewhere
                    {
                        mention.is_external = true;
                    }
                }
            }
        }
    }

    /// Adds fields for interfaces, which all entities and some values have.
    pub(super) fn add_names(&mut self) {
        for index in 0..self.objects.len() {
            if self.objects[index].name == "Spot" || self.random.one_in(5) {
                continue;
            }
            let graphs = self.objects[index].graphs();
            let is_value = self.objects[index].presence[0].1.is_empty();
            let by = if is_value { graphs } else { self.random.some(&graphs) };
            self.objects[index].fields.push(FieldModel::new("name", "String", &by));
        }
    }

    /// Returns the subgraphs among `by` that can return `ty` and agree on at least one object type.
    pub(super) fn returners(&self, ty: &str, by: &[usize]) -> Vec<usize> {
        if let Some(object) = self.objects.iter().find(|object| object.name == ty) {
            return by.iter().copied().filter(|&graph| object.is_in(graph)).collect();
        }
        let Some(known) = self.abstracts.iter().find(|known| known.name == ty) else {
            return by.to_vec();
        };
        let mut members: Option<Vec<&String>> = None;
        let mut returners = Vec::new();
        for &graph in by {
            let there = known.members_in(graph);
            let agreed: Vec<&String> = match &members {
                None => there.iter().collect(),
                Some(members) => {
                    members.iter().copied().filter(|name| there.contains(name)).collect()
                }
            };
            if !agreed.is_empty() {
                members = Some(agreed);
                returners.push(graph);
            }
        }
        returners
    }

    /// Returns a composite type that `graph` knows.
    pub(super) fn pick_composite(&mut self, graph: usize) -> String {
        let objects = self.objects.iter().filter(|object| object.is_in(graph));
        let mut names: Vec<String> = objects.map(|object| object.name.clone()).collect();
        for known in &self.abstracts {
            if !known.members_in(graph).is_empty() {
                names.push(known.name.to_owned());
                names.push(known.name.to_owned());
            }
        }
        self.random.pick(&names).clone()
    }

    pub(super) fn wrap_type(&mut self, ty: String) -> String {
        match self.random.below(8) {
            0 => format!("{ty}!"),
            1 | 2 => format!("[{ty}]"),
            3 => format!("[{ty}!]!"),
            4 => format!("[{ty}!]"),
            _ => ty,
        }
    }

    /// Generates a field in some of the subgraphs `graphs`.
    pub(super) fn generate_field(&mut self, name: String, graphs: &[usize]) -> FieldModel {
        let mut by = match self.random.one_in(2) {
            true => vec![*self.random.pick(graphs)],
            false => self.random.some(graphs),
        };
        if self.random.one_in(2) {
            let named = self.pick_composite(by[0]);
            by = self.returners(&named, &by);
            let ty = self.wrap_type(named.clone());
            let mut field = FieldModel::new(name, ty, &by);
            if by.len() == 1 && self.random.one_in(10) {
                let from = *self.random.pick(graphs);
                if self.returners(&named, &[by[0], from]).len() == 2 {
                    self.move_by_label(&mut field, from);
                }
            }
            if field.ty.starts_with('[') && self.random.one_in(4) {
                field.arguments = "(first: Int = 2)";
            }
            return field;
        }
        let leaf = (*self.random.pick(&LEAVES)).to_owned();
        let is_text = leaf == "String";
        let ty = self.wrap_type(leaf);
        let mut field = FieldModel::new(name, ty, &by);
        if is_text && self.random.one_in(2) {
            field.arguments =
                *self.random.pick(&["(x: Int)", "(x: Int = 1, hue: Hue)", "(of: Size!)"]);
        }
        if by.len() > 1 && !field.ty.ends_with('!') && self.random.one_in(5) {
            for (index, mention) in field.mentions.iter_mut().enumerate() {
                mention.ty = Some(format!("{}{}", field.ty, if index == 0 { "!" } else { "" }));
            }
        }
        if by.len() == 1
            && let Some(&other) = graphs.iter().find(|graph| **graph != by[0])
            && self.random.one_in(6)
        {
            match self.random.one_in(2) {
                true => field.mentions[0].overrides = Some(other),
                false => self.move_by_label(&mut field, other),
            }
        }
        field
    }

    /// Moves the field from another subgraph to its only subgraph for some of the requests, by a label.
    pub(super) fn move_by_label(&mut self, field: &mut FieldModel, from: usize) {
        let label = Some(*self.random.pick(&LABELS));
        if field.mentions[0].graph != from {
            field.mentions[0].overrides = Some(from);
            field.mentions[0].label = label;
            field.mentions.push(JoinField { label, ..JoinField::of(from) });
        }
    }

    /// Adds fields with an argument that is read from the nearest object above of several types.
    pub(super) fn add_contexts(&mut self) {
        if !self.random.one_in(3) {
            return;
        }
        let graph = self.random.below(self.graphs);
        let mut read = Vec::new();
        for object in self.objects.iter_mut().filter(|object| object.is_in(graph)) {
            let leaf = object.fields.iter().find(|field| {
                field.ty.trim_end_matches('!') == "String"
                    && field.arguments.is_empty()
                    && !field.is_hidden
                    && field.resolves(graph)
                    && field.requires_nothing()
                    && field.is_settled()
            });
            let Some(leaf) = leaf else { continue };
            if self.random.one_in(4) {
                continue;
            }
            read.push(format!("... on {} {{ {} }}", object.name, leaf.name));
            object.contexts.push(graph);
        }
        if read.is_empty() {
            return;
        }
        let selection = read.join(" ");
        for object in &mut self.objects {
            let is_asked_by_key = object.presence.iter().any(|(known, keys, is_resolvable)| {
                *known == graph && *is_resolvable && !keys.is_empty()
            });
            let is_masked = object.implements.iter().any(|(interface, _)| interface == "Media");
            if is_asked_by_key && !is_masked && !self.random.one_in(3) {
                let mut field = FieldModel::new("told", "String", &[graph]);
                field.mentions[0].context = Some(selection.clone());
                if self.random.one_in(3) {
                    field.arguments = "(x: Int)";
                }
                object.fields.push(field);
            }
        }
    }

    pub(super) fn add_fields(&mut self) {
        for index in 0..self.objects.len() {
            if self.objects[index].presence[0].1.is_empty() {
                continue;
            }
            let graphs = self.objects[index].graphs();
            for number in 0..2 + self.random.below(4) {
                let field = self.generate_field(format!("f{number}"), &graphs);
                self.objects[index].fields.push(field);
            }
            if self.random.one_in(6) {
                let by = self.random.some(&graphs);
                let ty = self.wrap_type("Query".to_owned());
                self.objects[index].fields.push(FieldModel::new("home", ty, &by));
            }
        }
    }

    /// Adds fields that require fields of other subgraphs.
    pub(super) fn add_requires(&mut self) {
        for index in 0..self.objects.len() {
            if self.objects[index].presence[0].1.is_empty() {
                continue;
            }
            for number in 0..self.random.below(3) {
                let able: Vec<usize> = self.objects[index]
                    .presence
                    .iter()
                    .filter(|(_, _, is_resolvable)| *is_resolvable)
                    .map(|(graph, _, _)| *graph)
                    .collect();
                let graph = *self.random.pick(&able);
                let elsewhere: Vec<usize> = (0..self.objects[index].fields.len())
                    .filter(|&at| {
                        let field = &self.objects[index].fields[at];
                        !field.mentions.iter().any(|mention| mention.graph == graph)
                            && field.is_settled()
                            && !field.is_hidden
                    })
                    .collect();
                if elsewhere.is_empty() {
                    continue;
                }
                let mut set = Vec::new();
                let mut chosen = self.random.some(&elsewhere);
                chosen.truncate(2);
                for at in chosen {
                    if let Some(text) = self.write_requirement(index, at, graph) {
                        self.objects[index].fields[at].mention_external(graph);
                        set.push(text);
                    }
                }
                if !set.is_empty() {
                    let mut field = FieldModel::new(format!("r{number}"), "String", &[graph]);
                    field.mentions[0].requires = Some(set.join(" "));
                    if self.random.one_in(4) {
                        field.arguments = "(x: Int)";
                    }
                    self.objects[index].fields.push(field);
                }
            }
        }
    }

    /// Returns the text by which `graph` requires a field; fields below it become external there.
    pub(super) fn write_requirement(
        &mut self,
        index: usize,
        at: usize,
        graph: usize,
    ) -> Option<String> {
        let field = self.objects[index].fields[at].clone();
        if field.named() == "Query" {
            return None;
        }
        let mut text = field.name.clone();
        text.push_str(match field.arguments {
            "(x: Int)" => "(x: 3)",
            "(x: Int = 1, hue: Hue)" => "(hue: RED)",
            "(of: Size!)" => "(of: {w: 2})",
            "(first: Int = 2)" => "(first: 1)",
            _ => "",
        });
        let below = self.leaf_below(field.named(), graph, false)?;
        text.push_str(&below);
        Some(text)
    }

    /// Returns a selection of a leaf of a type, for `@requires` and `@provides` of `graph`: in braces, empty for leaf
    /// types.
    pub(super) fn leaf_below(
        &mut self,
        ty: &str,
        graph: usize,
        is_provided: bool,
    ) -> Option<String> {
        if let Some(target) = self.objects.iter().position(|object| object.name == ty) {
            let leaf = self.leaf_of(target, graph, is_provided)?;
            return Some(format!(" {{ {leaf} }}"));
        }
        let Some(known) = self.abstracts.iter().find(|known| known.name == ty) else {
            return Some(String::new());
        };
        if known.object == Some(graph) {
            return None;
        }
        let members = known.members_in(graph).to_vec();
        let member = members.first()?;
        let target = self.objects.iter().position(|object| object.name == *member)?;
        let leaf = self.leaf_of(target, graph, is_provided)?;
        Some(format!(" {{ ... on {member} {{ {leaf} }} }}"))
    }

    /// Returns a leaf field of an object type, which becomes external in `graph` unless that resolves it. A subgraph
    /// provides only fields that it does not resolve anyway.
    pub(super) fn leaf_of(
        &mut self,
        target: usize,
        graph: usize,
        is_provided: bool,
    ) -> Option<String> {
        if !self.objects[target].is_in(graph) {
            return None;
        }
        let is_leaf = |field: &FieldModel| LEAVES.contains(&field.named());
        let leaves: Vec<usize> = (0..self.objects[target].fields.len())
            .filter(|&at| {
                let field = &self.objects[target].fields[at];
                is_leaf(field)
                    && !field.mentions.is_empty()
                    && field.arguments.is_empty()
                    && field.requires_nothing()
                    && field.is_settled()
                    && !(is_provided && field.resolves(graph))
            })
            .collect();
        if leaves.is_empty() {
            return None;
        }
        let at = *self.random.pick(&leaves);
        let field = &mut self.objects[target].fields[at];
        field.mention_external(graph);
        Some(field.name.clone())
    }

    /// Adds `@provides`: paths on which a subgraph resolves more fields of a type than elsewhere.
    pub(super) fn add_provides(&mut self) {
        for index in 0..self.objects.len() {
            for at in 0..self.objects[index].fields.len() {
                let field = self.objects[index].fields[at].clone();
                if !self.random.one_in(4) || LEAVES.contains(&field.named()) {
                    continue;
                }
                let Some(graph) = field.mentions.first().map(|mention| mention.graph) else {
                    continue;
                };
                if field.mentions[0].is_external {
                    continue;
                }
                let Some(below) = self.leaf_below(field.named(), graph, true) else { continue };
                if below.is_empty() {
                    continue;
                }
                let inner = below.trim_start_matches([' ', '{']).trim_end();
                let inner = inner.strip_suffix('}').unwrap_or(inner).trim().to_owned();
                self.objects[index].fields[at].mentions[0].provides = Some(inner);
            }
        }
    }

    pub(super) fn add_roots(&mut self) {
        let all = self.all_graphs();
        for number in 0..2 + self.random.below(4) {
            let mut field = self.generate_field(format!("q{number}"), &all);
            if LEAVES.contains(&field.named()) && !self.random.one_in(4) {
                let graph = field.mentions[0].graph;
                let ty = self.pick_composite(graph);
                let by = self.returners(&ty, &[graph]);
                let ty = self.wrap_type(ty);
                field = FieldModel::new(format!("q{number}"), ty, &by);
            }
            self.query.push(field);
        }
        for number in 0..self.random.below(3) {
            let graph = *self.random.pick(&all);
            let ty = match self.random.one_in(4) {
                true => "Query".to_owned(),
                false => self.pick_composite(graph),
            };
            let by = self.returners(&ty, &[graph]);
            let mut field = FieldModel::new(format!("m{number}"), ty, &by);
            if self.random.one_in(3) {
                field = FieldModel::new(format!("m{number}"), "String", &[graph]);
                field.arguments = "(x: Int)";
            }
            self.mutation.push(field);
        }
    }
}
