//! The entities that mutations return and have changed (`@openfed__cacheInvalidate`, `@openfed__cachePopulate`). The
//! requests of such a plan also select the keys of the entities, whatever the client selects, because the router finds
//! what it has stored about an entity by its keys. `populated_entities` says what is stored of them.

use std::fmt::Write as _;

use apollo_compiler::ast::{self, Definition, Selection};
use apollo_compiler::parser::Parser;
use cache::TtlRules;
use execute::{ChangedEntity, ChangedKey, ChangedKeyField};
use graph::{FieldSet, FieldSetItem, SubgraphId, Supergraph, TypeId, TypeKind};
use plan::{FetchKind, OperationKind, Plan};

use crate::fetch_caching::Selections;
use crate::populated_entities::PopulatedField;

/// Selects the keys of changed entities in the mutations of `plan`. Returns the entities by fetch; empty if there are
/// none.
pub(crate) fn select_changed_entities(
    plan: &mut Plan,
    graph: &Supergraph,
    rules: &TtlRules,
) -> Vec<Vec<ChangedEntity>> {
    let (Some(mutation), OperationKind::Mutation) = (graph.mutation, plan.kind) else {
        return Vec::new();
    };
    let Some(hints) = &graph.cache_hints else { return Vec::new() };
    let alias = free_alias(plan);
    let all = plan.fetches.iter_mut().map(|fetch| {
        let subgraph = fetch.subgraph;
        let FetchKind::Root { operation, .. } = &mut fetch.kind else { return Vec::new() };
        if operation.kind != OperationKind::Mutation {
            return Vec::new();
        }
        // Texts of the planner can be parsed.
        let Ok(document) = Parser::new().parse_ast(&*operation.text, "fetch.graphql") else {
            return Vec::new();
        };
        let selections = Selections(document);
        let mut changed: Vec<ChangedEntity> = Vec::new();
        let mut insertions: Vec<(usize, String)> = Vec::new();
        for (field, end) in root_fields(&selections.0) {
            let Some(id) = graph.field_named(mutation, &field.name) else { continue };
            let Some(hint) = hints.of_field(subgraph, id).filter(|it| it.changes_entity) else {
                continue;
            };
            let ty = graph.field_type_in(id, subgraph);
            let EntityKeys { all: keys, of_requests, text } = keys_of(graph, ty, subgraph, &alias);
            if keys.is_empty() {
                continue;
            }
            insertions.push((end, text));
            let data_key: Box<str> = field.response_name().as_str().into();
            if let Some(known) = changed.iter_mut().find(|it| it.data_key == data_key) {
                // A field under several conditions is selected once for each, and which of its selections the
                // response has depends on variables.
                known.populated.clear();
                continue;
            }
            let is_private = hint.control.is_private == Some(true);
            let populated = hint.populates.map(|hint| {
                let populated = PopulatedField {
                    graph,
                    rules,
                    subgraph,
                    variables: &operation.variables,
                    representations: &alias,
                    selections: &selections,
                    max_age: hint.max_age,
                    is_private,
                };
                populated.entries(field, &keys, &of_requests)
            });
            let populated = populated.unwrap_or_default();
            changed.push(ChangedEntity { data_key, keys, populated });
        }
        insertions.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut text = operation.text.to_string();
        for (at, keys) in insertions {
            text.insert_str(at, &keys);
        }
        operation.text = text.into();
        changed
    });
    let all: Vec<Vec<ChangedEntity>> = all.collect();
    if all.iter().all(Vec::is_empty) { Vec::new() } else { all }
}

/// Returns a beginning of response keys that no text of the plan contains.
fn free_alias(plan: &Plan) -> String {
    let mut alias = "_key".to_owned();
    let is_used = |alias: &str| {
        plan.fetches.iter().any(|fetch| match &fetch.kind {
            FetchKind::Root { operation, .. }
            | FetchKind::RootBelow { operation, .. }
            | FetchKind::Entities { operation, .. } => operation.text.contains(alias),
            FetchKind::Publish(_) | FetchKind::Request(_) => false,
        })
    };
    while is_used(&alias) {
        alias.push('_');
    }
    alias
}

/// The root fields of a mutation with selections, below fragments with conditions too, each with the position of the
/// end of its selections.
fn root_fields(document: &ast::Document) -> Vec<(&ast::Field, usize)> {
    let mut found = Vec::new();
    let operations = document.definitions.iter().filter_map(|definition| match definition {
        Definition::OperationDefinition(operation) => Some(&operation.selection_set),
        _ => None,
    });
    let mut left: Vec<&Selection> = operations.flatten().collect();
    while let Some(selection) = left.pop() {
        match selection {
            Selection::Field(field) => {
                if let Some(span) = field.location().filter(|_| !field.selection_set.is_empty()) {
                    // The last character is the closing brace.
                    found.push((&**field, span.end_offset() - 1));
                }
            }
            Selection::InlineFragment(fragment) => left.extend(&fragment.selection_set),
            Selection::FragmentSpread(_) => {}
        }
    }
    found
}

/// The keys of an entity that a subgraph resolves.
#[derive(Default)]
struct EntityKeys {
    all: Vec<ChangedKey>,
    /// The indices of those by which the router requests the entity from the subgraph itself.
    of_requests: Vec<usize>,
    /// The text that selects all of them.
    text: String,
}

/// Returns the keys of an entity that a subgraph resolves.
fn keys_of(graph: &Supergraph, ty: TypeId, subgraph: SubgraphId, alias: &str) -> EntityKeys {
    let entity = graph.ty(ty);
    let mut found = EntityKeys::default();
    if entity.kind != TypeKind::Object {
        return found;
    }
    let EntityKeys { all: keys, of_requests, text } = &mut found;
    let mut selected: Vec<(String, String)> = Vec::new();
    // Representations of interface objects have the name of the interface.
    for id in [ty].into_iter().chain(entity.implements.iter().copied()) {
        let named = graph.ty(id);
        let all = named.subgraphs.iter().flat_map(|it| it.keys.iter().map(move |key| (it, key)));
        for (of_subgraph, key) in all {
            let Some(fields) = fields_of(graph, ty, subgraph, &key.fields) else { continue };
            // A selection that several keys have in common is written once.
            let fields = fields.into_iter().map(|field| {
                let selection = field_text(&field);
                let known = selected.iter().find(|(known, _)| *known == selection);
                let response_key = match known {
                    Some((_, response_key)) => response_key.clone(),
                    None => {
                        let response_key = format!("{alias}{}", selected.len());
                        let _ = write!(text, " {response_key}:{selection}");
                        selected.push((selection, response_key.clone()));
                        response_key
                    }
                };
                ChangedKeyField { response_key: response_key.into(), ..field }
            });
            let changed = ChangedKey { type_name: named.name.clone(), fields: fields.collect() };
            let known = keys.iter().position(|known| *known == changed);
            let index = known.unwrap_or(keys.len());
            if known.is_none() {
                keys.push(changed);
            }
            let is_own = id == ty && of_subgraph.subgraph == subgraph && key.resolvable;
            if is_own && !of_requests.contains(&index) {
                of_requests.push(index);
            }
        }
    }
    found
}

/// Returns the fields of a key, with their names as response keys. `None` if the subgraph does not resolve all of them.
///
/// Recursion is bounded by the nesting of the key.
fn fields_of(
    graph: &Supergraph,
    parent: TypeId,
    subgraph: SubgraphId,
    set: &FieldSet,
) -> Option<Vec<ChangedKeyField>> {
    let fields = set.items.iter().map(|item| match item {
        FieldSetItem::Field { field, arguments, fields } if arguments.is_empty() => {
            let name = graph.field(*field).name.clone();
            let id = graph.field_named(parent, &name)?;
            let is_key = |it: &graph::Key| it.fields.mentions(id);
            let own_key =
                graph.type_in(parent, subgraph).is_some_and(|it| it.keys.iter().any(is_key));
            if !own_key && !graph.field(id).resolved_by.contains(subgraph) {
                return None;
            }
            let below = graph.field_type_in(id, subgraph);
            let fields = fields_of(graph, below, subgraph, fields)?;
            Some(ChangedKeyField { response_key: name.clone(), name, fields })
        }
        // Keys of interfaces may have fragments; the entity is found by its other keys.
        FieldSetItem::Field { .. } | FieldSetItem::Fragment { .. } => None,
    });
    fields.collect()
}

fn field_text(field: &ChangedKeyField) -> String {
    let mut text = field.name.to_string();
    if !field.fields.is_empty() {
        let below: Vec<String> = field.fields.iter().map(field_text).collect();
        let _ = write!(text, "{{{}}}", below.join(" "));
    }
    text
}
