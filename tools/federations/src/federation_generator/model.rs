//! The parts of a random supergraph before printing: types and fields, with the subgraphs that have them.

/// One `@join__field`.
#[derive(Clone, Default)]
pub(super) struct JoinField {
    pub(super) graph: usize,
    pub(super) is_external: bool,
    pub(super) requires: Option<String>,
    pub(super) provides: Option<String>,
    pub(super) overrides: Option<usize>,
    /// The label that moves the field to this subgraph, or away from it.
    pub(super) label: Option<&'static str>,
    /// The selection on the setter of the context, read by an argument that clients do not know.
    pub(super) context: Option<String>,
    pub(super) ty: Option<String>,
}

impl JoinField {
    pub(super) fn of(graph: usize) -> Self {
        Self { graph, ..Self::default() }
    }
}

#[derive(Clone)]
pub(super) struct FieldModel {
    pub(super) name: String,
    pub(super) arguments: &'static str,
    pub(super) ty: String,
    pub(super) mentions: Vec<JoinField>,
    pub(super) is_hidden: bool,
}

impl FieldModel {
    pub(super) fn new(name: impl Into<String>, ty: impl Into<String>, by: &[usize]) -> Self {
        Self {
            name: name.into(),
            arguments: "",
            ty: ty.into(),
            mentions: by.iter().map(|&graph| JoinField::of(graph)).collect(),
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

    /// True if the same subgraphs resolve the field for all labels, without arguments from context.
    pub(super) fn is_settled(&self) -> bool {
        let is_settled = |mention: &JoinField| {
            mention.overrides.is_none() && mention.label.is_none() && mention.context.is_none()
        };
        self.mentions.iter().all(is_settled)
    }

    pub(super) fn mention_external(&mut self, graph: usize) {
        if !self.is_mentioned(graph) {
            self.mentions.push(JoinField { is_external: true, ..JoinField::of(graph) });
        }
    }
}

pub(super) struct ObjectModel {
    pub(super) name: String,
    /// The subgraphs that have the type, each with its keys and whether they are resolvable.
    pub(super) presence: Vec<(usize, Vec<String>, bool)>,
    pub(super) fields: Vec<FieldModel>,
    /// The implemented interfaces, each with the subgraphs in which the type implements it.
    pub(super) implements: Vec<(String, Vec<usize>)>,
    /// The subgraphs in which the type sets the federation's only context.
    pub(super) contexts: Vec<usize>,
    /// The subgraphs in which the type is a type extension of Federation 1.
    pub(super) extensions: Vec<usize>,
}

impl ObjectModel {
    pub(super) fn graphs(&self) -> Vec<usize> {
        self.presence.iter().map(|(graph, _, _)| *graph).collect()
    }

    /// Returns the keys that the type has in a subgraph.
    pub(super) fn keys_in(&self, graph: usize) -> &[String] {
        let found = self.presence.iter().find(|(known, _, _)| *known == graph);
        found.map_or(&[], |(_, keys, _)| keys)
    }

    pub(super) fn is_in(&self, graph: usize) -> bool {
        self.graphs().contains(&graph)
    }
}

/// An interface or union: its members by subgraph, and for interfaces its fields with their subgraphs.
pub(super) struct AbstractModel {
    pub(super) name: &'static str,
    pub(super) members: Vec<(usize, Vec<String>)>,
    pub(super) fields: Vec<FieldModel>,
    pub(super) is_union: bool,
    /// The subgraphs with `@key(fields: "id")` on the type.
    pub(super) keyed: Vec<usize>,
    /// The subgraph that has the type as an interface object.
    pub(super) object: Option<usize>,
}

impl AbstractModel {
    pub(super) fn new(name: &'static str, is_union: bool) -> Self {
        let (members, fields, keyed) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, members, fields, is_union, keyed, object: None }
    }

    pub(super) fn members_in(&self, graph: usize) -> &[String] {
        let found = self.members.iter().find(|(known, _)| *known == graph);
        found.map_or(&[], |(_, members)| members)
    }
}
