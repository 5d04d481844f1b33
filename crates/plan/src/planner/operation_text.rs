//! The text of subgraph operations: compact GraphQL that declares only the variables that it uses.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use foldhash::{HashMap, HashSet};
use graph::{SubgraphId, Supergraph, TypeId};

use super::conditions;
use super::fetch_graph::{ContextUse, SelectedField, SelectionId, Selections};
use super::fragment_folding::{self, FieldText, push_separator};
use crate::{Condition, ContextVariable, Operation, OperationKind, SubgraphOperation, VariableId};

/// The number of comparisons of conditions that cost as much as writing a field.
const COMPARISONS_IN_STEP: u64 = 8;

/// A writer of selection sets for one subgraph.
pub(super) struct OperationWriter<'a> {
    pub(super) graph: &'a Supergraph,
    pub(super) operation: &'a Operation,
    pub(super) selections: &'a Selections,
    pub(super) subgraph: SubgraphId,
    /// The variables used so far.
    pub(super) variables: BTreeSet<VariableId>,
    /// The variables for values from further up that are used so far, with their types.
    pub(super) context: Vec<(ContextVariable, Box<str>)>,
    /// The number of fields that may still be written, over all texts of a plan. When it reaches 0, the texts are
    /// incomplete and must be discarded.
    pub(super) fields_left: u64,
}

impl OperationWriter<'_> {
    /// Returns the text `{…}` of a selection set that is only reached where one of `given` holds (always, if empty), so
    /// that these conditions are not repeated inside.
    pub(super) fn write_selection_set(
        &mut self,
        selection: SelectionId,
        given: &[Condition],
    ) -> String {
        let node = &self.selections[selection];
        let mut inner = String::new();
        let is_abstract = self.graph.ty(node.ty).kind.is_abstract()
            && !self.graph.is_interface_object(node.ty, self.subgraph);
        match is_abstract {
            false => {
                if node.selects_type {
                    inner.push_str("__typename");
                }
                for entry in node.entries() {
                    if entry.on.is_none_or(|on| on == node.ty) {
                        self.write_field(entry, given, &mut inner);
                    }
                }
                if inner.is_empty() {
                    // An interface object's name must not be stored as that of the real type.
                    let is_there = !self.graph.is_interface_object(node.ty, self.subgraph);
                    inner.push_str(if is_there { "__typename" } else { "__any:__typename" });
                }
            }
            true => self.write_abstract_set(node.ty, node.entries(), given, &mut inner),
        }
        format!("{{{inner}}}")
    }

    /// Returns the keys of the fields that [`OperationWriter::write_selection_set`] writes for the root of an operation, in
    /// the same order and without duplicates.
    pub(super) fn root_data_keys(
        &self,
        selection: SelectionId,
        given: &[Condition],
    ) -> Vec<Box<str>> {
        let node = &self.selections[selection];
        let mut keys: Vec<Box<str>> = Vec::new();
        let mut known: HashSet<&str> = HashSet::default();
        if node.selects_type {
            keys.push("__typename".into());
        }
        for entry in node.entries() {
            let is_written = entry.on.is_none_or(|on| on == node.ty)
                && conditions::remaining_conditions(&entry.any_of, given).is_some();
            if is_written && known.insert(&entry.data_key) {
                keys.push((*entry.data_key).into());
            }
        }
        if keys.is_empty() {
            keys.push("__typename".into());
        }
        keys
    }

    fn write_abstract_set(
        &mut self,
        ty: TypeId,
        entries: &[SelectedField],
        given: &[Condition],
        out: &mut String,
    ) {
        out.push_str("__typename");
        let mut common = HashSet::default();
        for entry in entries.iter().filter(|entry| entry.on.is_none()) {
            let mut text = String::new();
            self.write_field(entry, given, &mut text);
            if text.is_empty() {
                continue;
            }
            push_separator(out);
            out.push_str(&text);
            common.insert(text);
        }
        let possible = self.graph.possible_in(ty, self.subgraph);
        let mut fragments: Vec<(TypeId, Vec<FieldText>)> = Vec::new();
        let mut fragment_of: HashMap<TypeId, usize> = HashMap::default();
        for entry in entries {
            let Some(on) = entry.on.filter(|on| possible.contains(on)) else { continue };
            let mut text = String::new();
            self.write_field(entry, given, &mut text);
            if text.is_empty() || common.contains(&text) {
                continue;
            }
            match fragment_of.get(&on) {
                Some(&known) => fragments[known].1.push(FieldText::of(entry, text)),
                None => {
                    fragment_of.insert(on, fragments.len());
                    fragments.push((on, vec![FieldText::of(entry, text)]));
                }
            }
        }
        fragment_folding::fold_fragments(self.graph, self.subgraph, ty, &mut fragments, out);
        for (on, lines) in &fragments {
            if !lines.is_empty() {
                push_separator(out);
                let texts: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
                let _ = write!(out, "...on {}{{{}}}", self.graph.ty(*on).name, texts.join(" "));
            }
        }
    }

    /// Writes a field once for each condition, and not at all if none of them can hold here.
    fn write_field(&mut self, entry: &SelectedField, given: &[Condition], out: &mut String) {
        let compared = 1 + (entry.any_of.len() * given.len()) as u64 / COMPARISONS_IN_STEP;
        self.fields_left = self.fields_left.saturating_sub(compared);
        if self.fields_left == 0 {
            return;
        }
        let Some(any_of) = conditions::remaining_conditions(&entry.any_of, given) else { return };
        let mut text = String::new();
        let name = &self.graph.field(entry.field).name;
        if *entry.data_key != **name {
            let _ = write!(text, "{}:", entry.data_key);
        }
        text.push_str(name);
        let mut arguments = entry.arguments.text.to_string();
        self.variables.extend(&entry.arguments.variables);
        for read in &entry.context {
            let separator = if arguments.is_empty() { "" } else { ", " };
            let variable = self.context_variable(read);
            let _ = write!(arguments, "{separator}{}: ${variable}", read.argument);
        }
        if !arguments.is_empty() {
            let _ = write!(text, "({arguments})");
        }
        if any_of.is_empty() {
            push_separator(out);
            out.push_str(&text);
            self.write_below(entry, given, out);
            return;
        }
        for condition in &any_of {
            push_separator(out);
            let Some((last, outer)) = condition.all.split_last() else { continue };
            for &one in outer {
                let _ = write!(out, "...{}{{", self.condition_directive(one));
            }
            let _ = write!(out, "{text}{}", self.condition_directive(*last));
            let known = conditions::add_known(given, condition);
            self.write_below(entry, &known, out);
            out.extend(std::iter::repeat_n('}', outer.len()));
        }
    }

    fn write_below(&mut self, entry: &SelectedField, given: &[Condition], out: &mut String) {
        if let Some(child) = entry.child {
            let below = self.write_selection_set(child, given);
            out.push_str(&below);
        }
    }

    /// Returns the variable for a value from further up; equal values share it.
    fn context_variable(&mut self, read: &ContextUse) -> Box<str> {
        let known = self
            .context
            .iter()
            .find(|(variable, ty)| *ty == read.ty && *variable.sources == *read.sources);
        if let Some((known, _)) = known {
            return known.variable.clone();
        }
        let prefix = free_variable(self.operation, "contextualArgument_");
        let variable: Box<str> = format!("{prefix}{}", self.context.len()).into();
        let sources = read.sources.to_vec();
        self.context
            .push((ContextVariable { variable: variable.clone(), sources }, read.ty.clone()));
        variable
    }

    fn condition_directive(&mut self, (variable, wanted): (VariableId, bool)) -> String {
        self.variables.insert(variable);
        let directive = if wanted { "include" } else { "skip" };
        format!("@{directive}(if:${})", self.variable_name(variable))
    }

    fn variable_name(&self, variable: VariableId) -> &str {
        self.operation.variables.get(usize::from(variable.0)).map_or("", |v| &*v.name)
    }

    /// Returns the whole document around `body`, with the variables `own` (name, type) before the client's.
    pub(super) fn write_document(
        &self,
        kind: OperationKind,
        body: &str,
        number: usize,
        own: &[(Box<str>, Box<str>)],
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

/// Returns a string that is not a prefix of any variable of the client: `wanted`, with a suffix if needed.
pub(super) fn free_variable(operation: &Operation, wanted: &str) -> String {
    let mut name = wanted.to_owned();
    while operation.variables.iter().any(|variable| variable.name.starts_with(&name)) {
        name.push('_');
    }
    name
}
