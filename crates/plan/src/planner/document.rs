//! The text of subgraph operations: compact GraphQL, only the variables that it uses.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use graph::{FieldId, SubgraphId, Supergraph, TypeId, TypeKind};

use super::build::{Entry, SelectionId, Selections};
use crate::{Condition, Operation, OperationKind, SubgraphOperation, VariableId};

/// Writes selection sets for one subgraph.
pub(super) struct Writer<'a> {
    pub(super) graph: &'a Supergraph,
    pub(super) operation: &'a Operation,
    pub(super) selections: &'a Selections,
    pub(super) subgraph: SubgraphId,
    /// The request is only sent if this holds, so nothing in it has to say so again.
    pub(super) implied: &'a [Condition],
    /// Variables used so far.
    pub(super) variables: BTreeSet<VariableId>,
}

impl Writer<'_> {
    /// `{…}` of a selection set.
    pub(super) fn selection_set(&mut self, selection: SelectionId) -> String {
        let node = &self.selections[selection];
        let mut inner = String::new();
        match self.graph.ty(node.ty).kind.is_abstract() {
            false => {
                if node.says_type {
                    inner.push_str("__typename");
                }
                for entry in &node.entries {
                    if entry.on.is_none_or(|on| on == node.ty) {
                        self.entry(entry, &mut inner);
                    }
                }
                if inner.is_empty() {
                    inner.push_str("__typename");
                }
            }
            true => self.abstract_set(node.ty, &node.entries, &mut inner),
        }
        format!("{{{inner}}}")
    }

    fn abstract_set(&mut self, ty: TypeId, entries: &[Entry], out: &mut String) {
        out.push_str("__typename");
        let mut common = Vec::new();
        for entry in entries.iter().filter(|entry| entry.on.is_none()) {
            let mut text = String::new();
            self.entry(entry, &mut text);
            separate(out);
            out.push_str(&text);
            common.push(text);
        }
        let possible = self.graph.possible_in(ty, self.subgraph);
        let mut fragments: Vec<(TypeId, Vec<(FieldId, String)>)> = Vec::new();
        for entry in entries {
            let Some(on) = entry.on.filter(|on| possible.contains(on)) else { continue };
            let mut text = String::new();
            self.entry(entry, &mut text);
            if common.contains(&text) {
                continue;
            }
            match fragments.iter_mut().find(|(known, _)| *known == on) {
                Some((_, texts)) => texts.push((entry.field, text)),
                None => fragments.push((on, vec![(entry.field, text)])),
            }
        }
        self.fold_interface_fields(ty, possible, &mut fragments, out);
        for (on, texts) in &fragments {
            if !texts.is_empty() {
                separate(out);
                let texts: Vec<&str> = texts.iter().map(|(_, text)| &**text).collect();
                let _ = write!(out, "...on {}{{{}}}", self.graph.ty(*on).name, texts.join(" "));
            }
        }
    }

    /// What every possible type selects alike, and the interface has in this subgraph, is written once.
    fn fold_interface_fields(
        &self,
        ty: TypeId,
        possible: &[TypeId],
        fragments: &mut [(TypeId, Vec<(FieldId, String)>)],
        out: &mut String,
    ) {
        if self.graph.ty(ty).kind != TypeKind::Interface
            || fragments.len() != possible.len()
            || fragments.is_empty()
        {
            return;
        }
        for (field, text) in fragments[0].1.clone() {
            let is_of_interface = self
                .graph
                .field_named(ty, &self.graph.field(field).name)
                .is_some_and(|field| self.graph.field_in(field, self.subgraph).is_some());
            let is_everywhere =
                fragments.iter().all(|(_, texts)| texts.iter().any(|(_, other)| *other == text));
            if is_of_interface && is_everywhere {
                separate(out);
                out.push_str(&text);
                for (_, texts) in fragments.iter_mut() {
                    texts.retain(|(_, other)| *other != text);
                }
            }
        }
    }

    fn entry(&mut self, entry: &Entry, out: &mut String) {
        separate(out);
        let mut text = String::new();
        let name = &self.graph.field(entry.field).name;
        if *entry.data_key != **name {
            let _ = write!(text, "{}:", entry.data_key);
        }
        text.push_str(name);
        if !entry.arguments.text.is_empty() {
            let _ = write!(text, "({})", entry.arguments.text);
            self.variables.extend(&entry.arguments.variables);
        }
        let below = entry.child.map(|child| self.selection_set(child)).unwrap_or_default();
        let is_implied = entry.any_of.is_empty()
            || (!self.implied.is_empty() && self.implied.iter().all(|c| entry.any_of.contains(c)));
        if is_implied {
            out.push_str(&text);
            out.push_str(&below);
            return;
        }
        for (index, condition) in entry.any_of.iter().enumerate() {
            if index > 0 {
                out.push(' ');
            }
            let (last, outer) = match condition.all.split_last() {
                Some(split) => split,
                // An empty condition never stands beside others; were it to, it would mean always.
                None => {
                    let _ = write!(out, "{text}{below}");
                    continue;
                }
            };
            for &one in outer {
                let _ = write!(out, "...{}{{", self.directive(one));
            }
            let _ = write!(out, "{text}{}{below}", self.directive(*last));
            out.extend(std::iter::repeat_n('}', outer.len()));
        }
    }

    fn directive(&mut self, (variable, wanted): (VariableId, bool)) -> String {
        self.variables.insert(variable);
        let directive = if wanted { "include" } else { "skip" };
        format!("@{directive}(if:${})", self.variable_name(variable))
    }

    fn variable_name(&self, variable: VariableId) -> &str {
        self.operation.variables.get(usize::from(variable.0)).map_or("", |v| &*v.name)
    }

    /// The whole document around `body`, with `own` variables (name, type) in front of the client's.
    pub(super) fn document(
        &self,
        kind: OperationKind,
        body: &str,
        number: usize,
        own: &[(Box<str>, &str)],
    ) -> SubgraphOperation {
        let keyword = match kind {
            OperationKind::Query => "query",
            OperationKind::Mutation => "mutation",
            OperationKind::Subscription => "subscription",
        };
        let name = self.operation.name.as_ref().map(|name| {
            let subgraph: String = self
                .graph
                .subgraph(self.subgraph)
                .name
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                .collect();
            format!("{name}__{subgraph}__{number}").into_boxed_str()
        });
        let mut declared = own.iter().map(|(name, ty)| format!("${name}:{ty}")).collect::<Vec<_>>();
        let mut variables = Vec::new();
        for &id in &self.variables {
            if let Some(variable) = self.operation.variables.get(usize::from(id.0)) {
                declared.push(format!("${}:{}", variable.name, variable.ty));
                variables.push((variable.name.clone(), id));
            }
        }
        let mut text = String::new();
        if kind != OperationKind::Query || name.is_some() || !declared.is_empty() {
            text.push_str(keyword);
            if let Some(name) = &name {
                let _ = write!(text, " {name}");
            }
            if !declared.is_empty() {
                let _ = write!(text, "({})", declared.join(","));
            }
        }
        text.push_str(body);
        SubgraphOperation { text: text.into(), kind, name, variables }
    }
}

/// A space where two selections would run into each other.
fn separate(out: &mut String) {
    if !out.is_empty() && !out.ends_with(['{', ' ']) {
        out.push(' ');
    }
}
