//! Contracts: a part of the graph for some clients, selected by `@tag`. Elements outside it become `@inaccessible`, so
//! that planning still uses their fields as keys and requirements.
//!
//! The rules are those that Apollo documents for its contracts:
//!
//! 1. The tags of an object or interface type are also tags of its fields.
//! 2. With included tags, a union and a field of an object or interface is hidden unless it has one of them. Scalars,
//!    enums, input types and arguments follow the fields that use them (rule 5).
//! 3. An element of any kind with an excluded tag is hidden, whatever other tags it has.
//! 4. A type whose members are all hidden is hidden. An object or interface type without an included tag is visible if
//!    one of its fields is.
//! 5. A type that no visible root field leads to is hidden, unless it has an included tag itself.
//!
//! The visible part must be a valid schema: a visible field cannot return a hidden type, hidden arguments cannot be
//! required, visible fields of interfaces need visible implementations, and the query root needs a field. The errors
//! have the codes of `@inaccessible`.

use std::collections::{BTreeSet, HashSet};

use apollo_compiler::Name;

use crate::{
    code::Code,
    finding::Findings,
    post_merge,
    subgraph::model::{ROOTS, SubgraphModel, TypeKind, is_root},
    supergraph::{MergedDirective, MergedType, SupergraphModel, has_directive},
};

/// The maximum length of a tag, by the tag specification.
const TAG_CHARACTERS_MAX: usize = 128;

const HIDDEN: &str = "inaccessible";

/// The tags that select a part of the graph.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContractFilter {
    include: BTreeSet<String>,
    exclude: BTreeSet<String>,
}

impl ContractFilter {
    /// Creates a filter. Without included tags, everything that is not excluded is visible.
    ///
    /// # Errors
    /// The reason in one sentence: no tags, a malformed tag, or one that is both included and excluded.
    pub fn new(
        include: impl IntoIterator<Item = String>,
        exclude: impl IntoIterator<Item = String>,
    ) -> Result<Self, String> {
        let filter =
            Self { include: include.into_iter().collect(), exclude: exclude.into_iter().collect() };
        if filter.include.is_empty() && filter.exclude.is_empty() {
            return Err("a contract needs at least one tag to include or exclude".to_owned());
        }
        if let Some(tag) = filter.include.union(&filter.exclude).find(|it| !is_tag(it)) {
            return Err(format!(
                "`{tag}` is not a tag: a tag has 1 to {TAG_CHARACTERS_MAX} letters, digits, `_`, `-` and `/`"
            ));
        }
        if let Some(tag) = filter.include.intersection(&filter.exclude).next() {
            return Err(format!("the tag `{tag}` is both included and excluded"));
        }
        Ok(filter)
    }

    fn is_included(&self, tags: &HashSet<&str>) -> bool {
        self.include.iter().any(|tag| tags.contains(tag.as_str()))
    }

    fn is_excluded(&self, tags: &HashSet<&str>) -> bool {
        self.exclude.iter().any(|tag| tags.contains(tag.as_str()))
    }

    /// Returns the tags of the filter that are not in `known`.
    fn missing(&self, known: &HashSet<String>) -> Vec<String> {
        let all = self.include.union(&self.exclude);
        all.filter(|tag| !known.contains(*tag)).cloned().collect()
    }
}

fn is_tag(text: &str) -> bool {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '/');
    (1..=TAG_CHARACTERS_MAX).contains(&text.len()) && text.chars().all(is_allowed)
}

/// Hides everything outside the contract, and checks that clients still see a valid schema. Returns the tags of the
/// filter that no element has: usually a misspelling.
pub(crate) fn apply(
    subgraphs: &[SubgraphModel],
    merged: &mut SupergraphModel,
    filter: &ContractFilter,
    findings: &mut Findings<'_>,
) -> Vec<String> {
    let missing = filter.missing(&all_tags(merged));
    for ty in merged.types.values_mut() {
        hide_by_tags(ty, filter);
    }
    hide_empty_types(merged);
    hide_unreachable_types(merged, filter);
    let query = merged.types.get("Query").filter(|it| !is_visible(&it.directives));
    if let Some(query) = query {
        let own = |it: &SubgraphModel| Some(it.spot(&it.types.get(&query.name)?.name));
        findings.error(
            Code::QUERY_ROOT_TYPE_INACCESSIBLE,
            subgraphs.iter().filter_map(own),
            "in the contract, no field of `Query` is visible, so clients could send nothing",
            "give a field of `Query` an included tag, and no excluded one",
        );
        return missing;
    }
    let before = findings.error_count();
    post_merge::check_visibility(subgraphs, merged, findings);
    findings.add_context(before, "in the contract, ");
    missing
}

/// Returns the tags of all elements.
fn all_tags(merged: &SupergraphModel) -> HashSet<String> {
    let mut tags = HashSet::new();
    merged.visit_directives(&mut |it| tags.extend(tag_of(it).map(str::to_owned)));
    tags
}

fn tag_of(directive: &MergedDirective) -> Option<&str> {
    let is_tag = directive.graphs.is_none() && directive.name == "tag";
    let (_, value) = directive.arguments.first().filter(|_| is_tag)?;
    value.as_str()
}

fn tags_of(directives: &[MergedDirective]) -> impl Iterator<Item = &str> {
    directives.iter().filter_map(tag_of)
}

/// Applies rules 1 to 3 to a type and its members.
fn hide_by_tags(ty: &mut MergedType, filter: &ContractFilter) {
    let own: HashSet<&str> = tags_of(&ty.directives).collect();
    let is_hidden = |tags: &HashSet<&str>| {
        filter.is_excluded(tags) || (!filter.include.is_empty() && !filter.is_included(tags))
    };
    for field in ty.fields.values_mut() {
        let mut tags: HashSet<&str> = tags_of(&field.directives).collect();
        tags.extend(&own);
        if is_hidden(&tags) {
            hide(&mut field.directives);
        }
        for argument in field.arguments.values_mut() {
            hide_excluded(&mut argument.directives, filter);
        }
    }
    for input in ty.inputs.values_mut() {
        hide_excluded(&mut input.directives, filter);
    }
    for value in ty.values.values_mut() {
        hide_excluded(&mut value.directives, filter);
    }
    let hides_type = match ty.kind {
        TypeKind::Union => is_hidden(&own),
        _ => filter.is_excluded(&own),
    };
    if hides_type {
        hide(&mut ty.directives);
    }
}

/// Hides an element with an excluded tag.
fn hide_excluded(directives: &mut Vec<MergedDirective>, filter: &ContractFilter) {
    if filter.is_excluded(&tags_of(directives).collect()) {
        hide(directives);
    }
}

fn hide(directives: &mut Vec<MergedDirective>) {
    if !has_directive(directives, HIDDEN) {
        directives.push(MergedDirective::plain(HIDDEN, Vec::new()));
    }
}

fn is_visible(directives: &[MergedDirective]) -> bool {
    !has_directive(directives, HIDDEN)
}

fn visible_types(merged: &SupergraphModel) -> HashSet<Name> {
    let visible = merged.types.values().filter(|it| is_visible(&it.directives));
    visible.map(|it| it.name.clone()).collect()
}

/// Applies rule 4. Unions are decided last, because they have the other types as members.
fn hide_empty_types(merged: &mut SupergraphModel) {
    for ty in merged.types.values_mut() {
        let is_empty = match ty.kind {
            TypeKind::Object | TypeKind::Interface => {
                ty.fields.values().all(|it| !is_visible(&it.directives))
            }
            TypeKind::InputObject => ty.inputs.values().all(|it| !is_visible(&it.directives)),
            TypeKind::Enum => ty.values.values().all(|it| !is_visible(&it.directives)),
            TypeKind::Scalar | TypeKind::Union => false,
        };
        if is_empty {
            hide(&mut ty.directives);
        }
    }
    let visible = visible_types(merged);
    for ty in merged.types.values_mut().filter(|it| it.kind == TypeKind::Union) {
        if ty.members.keys().all(|it| !visible.contains(it)) {
            hide(&mut ty.directives);
        }
    }
}

/// Applies rule 5.
fn hide_unreachable_types(merged: &mut SupergraphModel, filter: &ContractFilter) {
    let reachable = find_reachable_types(merged);
    for ty in merged.types.values_mut() {
        let is_kept = reachable.contains(&ty.name)
            || is_root(&ty.name)
            || filter.is_included(&tags_of(&ty.directives).collect());
        if !is_kept {
            hide(&mut ty.directives);
        }
    }
}

/// Returns the types that visible root fields and directives of operations lead to. An interface leads to the types
/// that implement it, and these to their interfaces.
fn find_reachable_types(merged: &SupergraphModel) -> HashSet<Name> {
    let mut pending: Vec<&Name> = Vec::new();
    let roots = ROOTS.iter().filter_map(|it| merged.types.get(*it));
    pending.extend(roots.map(|it| &it.name));
    let directives = merged.directive_definitions.values();
    pending
        .extend(directives.flat_map(|it| it.arguments.iter()).map(|it| it.ty.inner_named_type()));
    let mut reachable = HashSet::new();
    while let Some(name) = pending.pop() {
        let Some(ty) = merged.types.get(name).filter(|it| is_visible(&it.directives)) else {
            continue;
        };
        if !reachable.insert(name.clone()) {
            continue;
        }
        for field in ty.fields.values().filter(|it| is_visible(&it.directives)) {
            pending.push(field.ty.inner_named_type());
            let arguments = field.arguments.values().filter(|it| is_visible(&it.directives));
            pending.extend(arguments.map(|it| it.ty.inner_named_type()));
        }
        let inputs = ty.inputs.values().filter(|it| is_visible(&it.directives));
        pending.extend(inputs.map(|it| it.ty.inner_named_type()));
        pending.extend(ty.members.keys());
        pending.extend(ty.implements.keys());
        if ty.kind == TypeKind::Interface {
            let implementers = merged.types.values().filter(|it| it.implements.contains_key(name));
            pending.extend(implementers.map(|it| &it.name));
        }
    }
    reachable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_needs_well_formed_tags_that_do_not_contradict_each_other() {
        let check = |include: &[&str], exclude: &[&str]| {
            let owned = |tags: &[&str]| tags.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
            ContractFilter::new(owned(include), owned(exclude)).map(drop)
        };
        assert_eq!(check(&["a/b-1"], &["c_2"]), Ok(()));
        for (include, exclude, reason) in [
            (vec![], vec![], "at least one tag"),
            (vec![""], vec![], "`` is not a tag"),
            (vec![], vec!["a b"], "`a b` is not a tag"),
            (vec!["a"], vec!["a"], "both included and excluded"),
        ] {
            let error = check(&include, &exclude).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
    }
}
