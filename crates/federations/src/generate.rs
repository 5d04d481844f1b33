//! A random supergraph. It could have been composed: whoever has a type can identify its objects or
//! reach them, what a field requires or provides is external there, interfaces are implemented where
//! they are known.

use std::fmt::Write as _;

use crate::Random;

const ENTITIES: [&str; 5] = ["Ant", "Bee", "Cat", "Dog", "Elk"];
const SUBGRAPHS: [&str; 8] = ["A", "B", "C", "D", "E", "F", "G", "H"];
const LABELS: [&str; 3] = ["percent(25)", "percent(0.5)", "half"];
const LEAVES: [&str; 7] = ["Int", "String", "String", "Boolean", "Float", "Hue", "ID"];

/// One `@join__field`.
#[derive(Clone, Default)]
struct Mention {
    graph: usize,
    is_external: bool,
    requires: Option<String>,
    provides: Option<String>,
    overrides: Option<usize>,
    /// The label on which it moves there, or away.
    label: Option<&'static str>,
    /// An argument that clients do not know, and the selection that it reads of what sets the context.
    context: Option<String>,
    ty: Option<String>,
}

impl Mention {
    fn of(graph: usize) -> Self {
        Self { graph, ..Self::default() }
    }
}

#[derive(Clone)]
struct Field {
    name: String,
    arguments: &'static str,
    ty: String,
    mentions: Vec<Mention>,
    is_hidden: bool,
}

impl Field {
    fn new(name: impl Into<String>, ty: impl Into<String>, by: &[usize]) -> Self {
        Self {
            name: name.into(),
            arguments: "",
            ty: ty.into(),
            mentions: by.iter().map(|&graph| Mention::of(graph)).collect(),
            is_hidden: false,
        }
    }

    fn named(&self) -> &str {
        self.ty.trim_matches(|c| matches!(c, '[' | ']' | '!'))
    }

    fn resolves(&self, graph: usize) -> bool {
        self.mentions.iter().any(|mention| mention.graph == graph && !mention.is_external)
    }

    fn requires_nothing(&self) -> bool {
        self.mentions.iter().all(|mention| mention.requires.is_none())
    }

    /// Does it stay where it is, whatever is asked for with it?
    fn is_settled(&self) -> bool {
        let is_settled = |mention: &Mention| {
            mention.overrides.is_none() && mention.label.is_none() && mention.context.is_none()
        };
        self.mentions.iter().all(is_settled)
    }

    fn mention_external(&mut self, graph: usize) {
        if !self.mentions.iter().any(|mention| mention.graph == graph) {
            self.mentions.push(Mention { is_external: true, ..Mention::of(graph) });
        }
    }
}

struct Object {
    name: String,
    /// By subgraph: its keys, and whether they may be used.
    presence: Vec<(usize, Vec<String>, bool)>,
    fields: Vec<Field>,
    /// Interface and subgraphs.
    implements: Vec<(String, Vec<usize>)>,
    /// The subgraphs in which it sets the context that there is.
    contexts: Vec<usize>,
}

impl Object {
    fn graphs(&self) -> Vec<usize> {
        self.presence.iter().map(|(graph, _, _)| *graph).collect()
    }

    fn is_in(&self, graph: usize) -> bool {
        self.graphs().contains(&graph)
    }
}

/// An interface or union: by subgraph its members, and for interfaces its fields with their subgraphs.
struct Abstract {
    name: &'static str,
    members: Vec<(usize, Vec<String>)>,
    fields: Vec<Field>,
    is_union: bool,
    /// Subgraphs with `@key(fields: "id")` on it.
    keyed: Vec<usize>,
    /// The subgraph that has it as an interface object.
    object: Option<usize>,
}

impl Abstract {
    fn new(name: &'static str, is_union: bool) -> Self {
        let (members, fields, keyed) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, members, fields, is_union, keyed, object: None }
    }

    fn members_in(&self, graph: usize) -> &[String] {
        let found = self.members.iter().find(|(known, _)| *known == graph);
        found.map_or(&[], |(_, members)| members)
    }
}

struct Federation<'r> {
    random: &'r mut Random,
    graphs: usize,
    objects: Vec<Object>,
    abstracts: Vec<Abstract>,
    query: Vec<Field>,
    mutation: Vec<Field>,
}

/// The SDL of a random supergraph with `subgraphs` (2 to 8) subgraphs.
pub fn federation(random: &mut Random, subgraphs: usize) -> String {
    let mut federation = Federation {
        random,
        graphs: subgraphs.clamp(2, SUBGRAPHS.len()),
        objects: Vec::new(),
        abstracts: Vec::new(),
        query: Vec::new(),
        mutation: Vec::new(),
    };
    federation.values();
    federation.entities();
    federation.names();
    federation.interface_object();
    federation.abstracts();
    federation.fields();
    federation.requires();
    federation.provides();
    federation.contexts();
    federation.roots();
    federation.print()
}

impl Federation<'_> {
    fn all(&self) -> Vec<usize> {
        (0..self.graphs).collect()
    }

    /// Value types: the same in all subgraphs, but for fields that only some have.
    fn values(&mut self) {
        let all = self.all();
        for name in ["Box", "Cup"].iter().take(self.random.below(3)) {
            let mut fields = vec![Field::new("size", "Int", &all)];
            for field in 0..1 + self.random.below(2) {
                let by = if self.random.one_in(3) { self.random.some(&all) } else { all.clone() };
                let leaf = *self.random.pick(&LEAVES);
                fields.push(Field::new(format!("v{field}"), leaf, &by));
            }
            self.objects.push(Object {
                name: (*name).to_owned(),
                presence: all.iter().map(|&graph| (graph, Vec::new(), true)).collect(),
                fields,
                implements: Vec::new(),
                contexts: Vec::new(),
            });
        }
        // Nested keys are made of this one.
        self.objects.push(Object {
            name: "Spot".to_owned(),
            presence: all.iter().map(|&graph| (graph, Vec::new(), true)).collect(),
            fields: vec![Field::new("x", "Int!", &all), Field::new("y", "Int!", &all)],
            implements: Vec::new(),
            contexts: Vec::new(),
        });
    }

    fn entities(&mut self) {
        let all = self.all();
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
                fields.push(Field { is_hidden, ..Field::new(member, ty, &by) });
            }
            self.objects.push(Object {
                name: (*name).to_owned(),
                presence,
                fields,
                implements: Vec::new(),
                contexts: Vec::new(),
            });
        }
    }

    /// Fields that all entities and some values have, for interfaces.
    fn names(&mut self) {
        for index in 0..self.objects.len() {
            if self.objects[index].name == "Spot" || self.random.one_in(5) {
                continue;
            }
            let graphs = self.objects[index].graphs();
            let is_value = self.objects[index].presence[0].1.is_empty();
            let by = if is_value { graphs } else { self.random.some(&graphs) };
            self.objects[index].fields.push(Field::new("name", "String", &by));
        }
    }

    /// An interface that one subgraph has as an interface object, without knowing the two entities that
    /// implement it. Another one knows them, by a key on the interface.
    fn interface_object(&mut self) {
        if !self.random.one_in(3) {
            return;
        }
        let all = self.all();
        let object = *self.random.pick(&all);
        let others: Vec<usize> = all.iter().copied().filter(|&graph| graph != object).collect();
        let knowing = *self.random.pick(&others);
        let mut media = Abstract::new("Media", false);
        media.object = Some(object);
        media.keyed = vec![knowing, object];
        let members = ["Fox", "Gnu"];
        // Where it is known, all entities that implement it are.
        let also: Vec<usize> = match self.random.one_in(3) {
            true => others.iter().copied().filter(|&graph| graph != knowing).take(1).collect(),
            false => Vec::new(),
        };
        let mut known_by = vec![knowing];
        known_by.extend(&also);
        let names = members.map(str::to_owned).to_vec();
        for &graph in known_by.iter().chain([&object]) {
            media.members.push((graph, names.clone()));
        }
        media.fields.push(Field::new("id", "ID!", &known_by));
        media.fields[0].mentions.push(Mention::of(object));
        let has_name = self.random.one_in(2);
        if has_name {
            media.fields.push(Field::new("name", "String", &known_by));
        }
        let ty = if self.random.one_in(4) { "String!" } else { "String" };
        let mut own = vec![Field::new("io0", ty, &[object])];
        if self.random.one_in(2) {
            let ty = self.wrapped("Media".to_owned());
            own.push(Field::new("io1", ty, &[object]));
        }
        if has_name && self.random.one_in(2) {
            let mut field = Field::new("io2", "String", &[object]);
            field.mentions[0].requires = Some("name".to_owned());
            own.push(field);
            media.fields[1].mention_external(object);
        }
        for name in members {
            let mut presence: Vec<(usize, Vec<String>, bool)> = Vec::new();
            for &graph in &others {
                if known_by.contains(&graph) || self.random.one_in(2) {
                    presence.push((graph, vec!["id".to_owned()], true));
                }
            }
            let graphs: Vec<usize> = presence.iter().map(|(graph, _, _)| *graph).collect();
            let mut fields = vec![Field::new("id", "ID!", &graphs)];
            if has_name {
                fields.push(Field::new("name", "String", &known_by));
            }
            // Nobody who knows the entity resolves these.
            fields.extend(own.iter().map(|field| Field { mentions: Vec::new(), ..field.clone() }));
            self.objects.push(Object {
                name: name.to_owned(),
                presence,
                fields,
                implements: vec![("Media".to_owned(), known_by.clone())],
                contexts: Vec::new(),
            });
        }
        media.fields.extend(own);
        self.query.push(Field::new("media", "[Media!]", &[object]));
        self.query.push(Field::new("known", "Media", &[knowing]));
        self.abstracts.push(media);
    }

    fn abstracts(&mut self) {
        if self.random.one_in(2) {
            self.interface();
        }
        if self.random.one_in(2) {
            self.union();
        }
    }

    fn interface(&mut self) {
        let with_name: Vec<usize> = (0..self.objects.len())
            .filter(|&index| self.objects[index].fields.iter().any(|field| field.name == "name"))
            .collect();
        if with_name.len() < 2 {
            return;
        }
        let mut chosen = self.random.some(&with_name);
        chosen.truncate(3);
        let mut pet = Abstract::new("Pet", false);
        let common: Vec<(String, String)> = [("id", "ID!"), ("name", "String")]
            .iter()
            .filter(|(name, _)| {
                chosen.iter().all(|&index| {
                    self.objects[index].fields.iter().any(|field| field.name == *name)
                })
            })
            .map(|(name, ty)| ((*name).to_owned(), (*ty).to_owned()))
            .collect();
        for graph in self.all() {
            let present: Vec<usize> =
                chosen.iter().copied().filter(|&index| self.objects[index].is_in(graph)).collect();
            if present.is_empty() || self.random.one_in(4) {
                continue;
            }
            let there = if self.random.one_in(3) { self.random.some(&present) } else { present };
            let fields: Vec<&(String, String)> = common
                .iter()
                .filter(|(name, _)| {
                    there.iter().all(|&index| {
                        let mut fields = self.objects[index].fields.iter();
                        fields.any(|field| field.name == *name && field.resolves(graph))
                    })
                })
                .collect();
            if fields.is_empty() {
                continue;
            }
            for (name, ty) in fields {
                match pet.fields.iter_mut().find(|known| known.name == *name) {
                    Some(known) => known.mentions.push(Mention::of(graph)),
                    None => pet.fields.push(Field::new(name.clone(), ty.clone(), &[graph])),
                }
            }
            let names = there.iter().map(|&index| self.objects[index].name.clone()).collect();
            pet.members.push((graph, names));
        }
        if pet.members.is_empty() {
            return;
        }
        for object in &mut self.objects {
            let by: Vec<usize> = pet
                .members
                .iter()
                .filter(|(_, members)| members.contains(&object.name))
                .map(|(graph, _)| *graph)
                .collect();
            if !by.is_empty() {
                object.implements.push((pet.name.to_owned(), by));
            }
        }
        self.abstracts.push(pet);
    }

    fn union(&mut self) {
        let mut zoo = Abstract::new("Zoo", true);
        for graph in self.all() {
            let present: Vec<usize> =
                (0..self.objects.len()).filter(|&it| self.objects[it].is_in(graph)).collect();
            if self.random.one_in(2) || present.is_empty() {
                continue;
            }
            let there = self.random.some(&present);
            let names = there.iter().map(|&index| self.objects[index].name.clone()).collect();
            zoo.members.push((graph, names));
        }
        if !zoo.members.is_empty() {
            self.abstracts.push(zoo);
        }
    }

    /// The subgraphs among `by` that can return `ty` and agree on one object type at least.
    fn returners(&self, ty: &str, by: &[usize]) -> Vec<usize> {
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

    /// A composite type that `graph` knows.
    fn composite(&mut self, graph: usize) -> String {
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

    fn wrapped(&mut self, ty: String) -> String {
        match self.random.below(8) {
            0 => format!("{ty}!"),
            1 | 2 => format!("[{ty}]"),
            3 => format!("[{ty}!]!"),
            4 => format!("[{ty}!]"),
            _ => ty,
        }
    }

    /// A field of a type that is in `graphs`.
    fn field(&mut self, name: String, graphs: &[usize]) -> Field {
        let mut by = match self.random.one_in(2) {
            true => vec![*self.random.pick(graphs)],
            false => self.random.some(graphs),
        };
        if self.random.one_in(2) {
            let named = self.composite(by[0]);
            by = self.returners(&named, &by);
            let ty = self.wrapped(named.clone());
            let mut field = Field::new(name, ty, &by);
            if by.len() == 1 && self.random.one_in(10) {
                let from = *self.random.pick(graphs);
                if self.returners(&named, &[by[0], from]).len() == 2 {
                    self.moves(&mut field, from);
                }
            }
            if field.ty.starts_with('[') && self.random.one_in(4) {
                field.arguments = "(first: Int = 2)";
            }
            return field;
        }
        let leaf = (*self.random.pick(&LEAVES)).to_owned();
        let is_text = leaf == "String";
        let ty = self.wrapped(leaf);
        let mut field = Field::new(name, ty, &by);
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
                false => self.moves(&mut field, other),
            }
        }
        field
    }

    /// The only subgraph that has the field takes it over from another one for some of the requests.
    fn moves(&mut self, field: &mut Field, from: usize) {
        let label = Some(*self.random.pick(&LABELS));
        if field.mentions[0].graph != from {
            field.mentions[0].overrides = Some(from);
            field.mentions[0].label = label;
            field.mentions.push(Mention { label, ..Mention::of(from) });
        }
    }

    /// Fields with an argument that is read from the nearest object above of several types.
    fn contexts(&mut self) {
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
                let mut field = Field::new("told", "String", &[graph]);
                field.mentions[0].context = Some(selection.clone());
                if self.random.one_in(3) {
                    field.arguments = "(x: Int)";
                }
                object.fields.push(field);
            }
        }
    }

    fn fields(&mut self) {
        for index in 0..self.objects.len() {
            if self.objects[index].presence[0].1.is_empty() {
                continue;
            }
            let graphs = self.objects[index].graphs();
            for number in 0..2 + self.random.below(4) {
                let field = self.field(format!("f{number}"), &graphs);
                self.objects[index].fields.push(field);
            }
            if self.random.one_in(6) {
                let by = self.random.some(&graphs);
                let ty = self.wrapped("Query".to_owned());
                self.objects[index].fields.push(Field::new("home", ty, &by));
            }
        }
    }

    /// Fields that need what other subgraphs know.
    fn requires(&mut self) {
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
                    if let Some(text) = self.required(index, at, graph) {
                        self.objects[index].fields[at].mention_external(graph);
                        set.push(text);
                    }
                }
                if !set.is_empty() {
                    let mut field = Field::new(format!("r{number}"), "String", &[graph]);
                    field.mentions[0].requires = Some(set.join(" "));
                    if self.random.one_in(4) {
                        field.arguments = "(x: Int)";
                    }
                    self.objects[index].fields.push(field);
                }
            }
        }
    }

    /// The text by which `graph` requires a field; what is below becomes external there.
    fn required(&mut self, index: usize, at: usize, graph: usize) -> Option<String> {
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
        let below = self.leaf_below(field.named(), graph)?;
        text.push_str(&below);
        Some(text)
    }

    /// A leaf of a type, for `@requires` and `@provides` of `graph`: in braces, empty for leaf types.
    fn leaf_below(&mut self, ty: &str, graph: usize) -> Option<String> {
        if let Some(target) = self.objects.iter().position(|object| object.name == ty) {
            let leaf = self.leaf_of(target, graph)?;
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
        let leaf = self.leaf_of(target, graph)?;
        Some(format!(" {{ ... on {member} {{ {leaf} }} }}"))
    }

    fn leaf_of(&mut self, target: usize, graph: usize) -> Option<String> {
        if !self.objects[target].is_in(graph) {
            return None;
        }
        let is_leaf = |field: &Field| LEAVES.contains(&field.named());
        let leaves: Vec<usize> = (0..self.objects[target].fields.len())
            .filter(|&at| {
                let field = &self.objects[target].fields[at];
                is_leaf(field)
                    && !field.mentions.is_empty()
                    && field.arguments.is_empty()
                    && field.requires_nothing()
                    && field.is_settled()
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

    /// Paths on which a subgraph knows more of another type than elsewhere.
    fn provides(&mut self) {
        for index in 0..self.objects.len() {
            for at in 0..self.objects[index].fields.len() {
                let field = self.objects[index].fields[at].clone();
                if !self.random.one_in(4) || LEAVES.contains(&field.named()) {
                    continue;
                }
                let Some(graph) = field.mentions.first().map(|mention| mention.graph) else {
                    continue;
                };
                let Some(below) = self.leaf_below(field.named(), graph) else { continue };
                if field.mentions[0].is_external || below.is_empty() {
                    continue;
                }
                let inner = below.trim_start_matches([' ', '{']).trim_end();
                let inner = inner.strip_suffix('}').unwrap_or(inner).trim().to_owned();
                self.objects[index].fields[at].mentions[0].provides = Some(inner);
            }
        }
    }

    fn roots(&mut self) {
        let all = self.all();
        for number in 0..2 + self.random.below(4) {
            let mut field = self.field(format!("q{number}"), &all);
            if LEAVES.contains(&field.named()) && !self.random.one_in(4) {
                let graph = field.mentions[0].graph;
                let ty = self.composite(graph);
                let by = self.returners(&ty, &[graph]);
                let ty = self.wrapped(ty);
                field = Field::new(format!("q{number}"), ty, &by);
            }
            self.query.push(field);
        }
        for number in 0..self.random.below(3) {
            let graph = *self.random.pick(&all);
            let ty = match self.random.one_in(4) {
                true => "Query".to_owned(),
                false => self.composite(graph),
            };
            let by = self.returners(&ty, &[graph]);
            let mut field = Field::new(format!("m{number}"), ty, &by);
            if self.random.one_in(3) {
                field = Field::new(format!("m{number}"), "String", &[graph]);
                field.arguments = "(x: Int)";
            }
            self.mutation.push(field);
        }
    }

    fn print(&self) -> String {
        let mut sdl = String::from(
            "schema @link(url: \"https://specs.apollo.dev/link/v1.0\") @link(url: \"https://specs.apollo.dev/join/v0.5\", for: EXECUTION) @link(url: \"https://specs.apollo.dev/inaccessible/v0.2\", for: SECURITY) @link(url: \"https://specs.apollo.dev/context/v0.1\", for: SECURITY) {\n  query: Query\n",
        );
        if !self.mutation.is_empty() {
            sdl.push_str("  mutation: Mutation\n");
        }
        sdl.push_str("}\nenum join__Graph {\n");
        let all = self.all();
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
                let graph = SUBGRAPHS[*graph];
                let end = if *is_resolvable { "" } else { ", resolvable: false" };
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
            print_fields(&mut sdl, &object.fields, &object.graphs());
        }
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
            print_fields(&mut sdl, &known.fields, &by);
        }
        sdl
    }
}

/// Fields that all of `everywhere` resolve alike need no directives.
fn print_fields(sdl: &mut String, fields: &[Field], everywhere: &[usize]) {
    sdl.push_str(" {\n");
    for field in fields {
        let _ = write!(sdl, "  {}{}: {}", field.name, field.arguments, field.ty);
        if field.mentions.is_empty() {
            // Of an interface object.
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
