//! What a random supergraph is made of, before it is printed: types and fields, and which subgraph has what.

/// One `@join__field`.
#[derive(Clone, Default)]
pub(super) struct Mention {
    pub(super) graph: usize,
    pub(super) is_external: bool,
    pub(super) requires: Option<String>,
    pub(super) provides: Option<String>,
    pub(super) overrides: Option<usize>,
    /// The label on which it moves there, or away.
    pub(super) label: Option<&'static str>,
    /// An argument that clients do not know, and the selection that it reads of what sets the context.
    pub(super) context: Option<String>,
    pub(super) ty: Option<String>,
}

impl Mention {
    pub(super) fn of(graph: usize) -> Self {
        Self { graph, ..Self::default() }
    }
}

#[derive(Clone)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) arguments: &'static str,
    pub(super) ty: String,
    pub(super) mentions: Vec<Mention>,
    pub(super) is_hidden: bool,
}

impl Field {
    pub(super) fn new(name: impl Into<String>, ty: impl Into<String>, by: &[usize]) -> Self {
        Self {
            name: name.into(),
            arguments: "",
            ty: ty.into(),
            mentions: by.iter().map(|&graph| Mention::of(graph)).collect(),
            is_hidden: false,
        }
    }

    pub(super) fn named(&self) -> &str {
        self.ty.trim_matches(|c| matches!(c, '[' | ']' | '!'))
    }

    pub(super) fn resolves(&self, graph: usize) -> bool {
        self.mentions.iter().any(|mention| mention.graph == graph && !mention.is_external)
    }

    pub(super) fn is_mentioned(&self, graph: usize) -> bool {
        self.mentions.iter().any(|mention| mention.graph == graph)
    }

    pub(super) fn requires_nothing(&self) -> bool {
        self.mentions.iter().all(|mention| mention.requires.is_none())
    }

    /// Does it stay where it is, whatever is asked for with it?
    pub(super) fn is_settled(&self) -> bool {
        let is_settled = |mention: &Mention| {
            mention.overrides.is_none() && mention.label.is_none() && mention.context.is_none()
        };
        self.mentions.iter().all(is_settled)
    }

    pub(super) fn mention_external(&mut self, graph: usize) {
        if !self.is_mentioned(graph) {
            self.mentions.push(Mention { is_external: true, ..Mention::of(graph) });
        }
    }
}

pub(super) struct Object {
    pub(super) name: String,
    /// By subgraph: its keys, and whether they may be used.
    pub(super) presence: Vec<(usize, Vec<String>, bool)>,
    pub(super) fields: Vec<Field>,
    /// Interface and subgraphs.
    pub(super) implements: Vec<(String, Vec<usize>)>,
    /// The subgraphs in which it sets the context that there is.
    pub(super) contexts: Vec<usize>,
    /// The subgraphs in which it is a type extension of Federation 1.
    pub(super) extensions: Vec<usize>,
}

impl Object {
    pub(super) fn graphs(&self) -> Vec<usize> {
        self.presence.iter().map(|(graph, _, _)| *graph).collect()
    }

    pub(super) fn is_in(&self, graph: usize) -> bool {
        self.graphs().contains(&graph)
    }
}

/// An interface or union: by subgraph its members, and for interfaces its fields with their subgraphs.
pub(super) struct Abstract {
    pub(super) name: &'static str,
    pub(super) members: Vec<(usize, Vec<String>)>,
    pub(super) fields: Vec<Field>,
    pub(super) is_union: bool,
    /// Subgraphs with `@key(fields: "id")` on it.
    pub(super) keyed: Vec<usize>,
    /// The subgraph that has it as an interface object.
    pub(super) object: Option<usize>,
}

impl Abstract {
    pub(super) fn new(name: &'static str, is_union: bool) -> Self {
        let (members, fields, keyed) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, members, fields, is_union, keyed, object: None }
    }

    pub(super) fn members_in(&self, graph: usize) -> &[String] {
        let found = self.members.iter().find(|(known, _)| *known == graph);
        found.map_or(&[], |(_, members)| members)
    }
}
